"""`environments` lists libraries with all that they need, on every Python that is promised.

pip is told to ask for nothing else (tests/setup/dropin.sh). What only an older Python needs is missed by
whoever writes a list with a newer one, so each requirement is asked for every Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.dropin.library import INSTALLED

LISTS = Path(__file__).parent / "environments"
PYTHONS = ("3.11.2", "3.12.0", "3.13.0")
"""The oldest is Debian 12's, and not the newest of its line."""


def _installed(name: str) -> list[Distribution]:
    folder = INSTALLED / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not there: make dropin-libraries")
    return list(distributions(path=[str(folder)]))


def _listed(name: str, python: str) -> dict[str, Requirement]:
    lines = [line.partition("#")[0].strip() for line in (LISTS / f"{name}.txt").read_text().splitlines()]
    found = [Requirement(line) for line in lines if line]
    return {canonicalize_name(one.name): one for one in found if _is_for(one, python)}


def _is_for(requirement: Requirement, python: str) -> bool:
    of_python = {"python_version": python.rpartition(".")[0], "python_full_version": python, "extra": ""}
    return requirement.marker is None or requirement.marker.evaluate(of_python)


def _needs(name: str, python: str) -> Iterator[tuple[str, Requirement]]:
    for distribution in _installed(name):
        for line in distribution.requires or ():
            requirement = Requirement(line)
            if _is_for(requirement, python):
                yield distribution.name, requirement


def _is_met(requirement: Requirement, listed: dict[str, Requirement]) -> bool:
    pin = listed.get(canonicalize_name(requirement.name))
    if pin is None:
        return False
    (version,) = [one.version for one in pin.specifier]
    return requirement.specifier.contains(version, prereleases=True)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["now", "then"])
def test_a_list_has_all_that_its_libraries_need_on_each_promised_python(name: str, python: str) -> None:
    listed = _listed(name, python)
    needs = list(_needs(name, python))
    assert needs
    missing = [f"{who} needs {what}" for who, what in needs if not _is_met(what, listed)]
    assert missing == []
