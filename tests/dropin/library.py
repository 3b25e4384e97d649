"""A library that locks: its program, and what that can be told."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.dropin.program import Program
from tests.dropin.snippets import GET_THEN_DEL, SNIPPETS

PROGRAMS = Path(__file__).parent / "programs"
INSTALLED = Path(__file__).parents[1] / ".dropin"
"""By tests/setup/dropin.sh."""

Word = str | Path
Command = Callable[[], tuple[list[Word], list[Word]]]
"""What comes before and after the socket. It skips where something is missing."""


@dataclass(frozen=True)
class Library:
    """offers: verbs of its program beyond acquire and release, and

    - for ever: it has locks without a TTL
    - waits: it can wait for a lock
    - careless: on a Redis it deletes or extends whatever is there
    - newer: it says commands that Redis 7 has not
    """

    title: str
    command: Command
    offers: frozenset[str]
    environment: dict[str, str] = field(default_factory=dict)
    note: str = ""

    def program(self, socket: Path) -> Program:
        """A new one that locks at that socket."""
        before, after = self.command()
        return Program([*before, socket, *after], self.environment)


def of_pypi(
    package: str,
    version: str,
    program: str,
    offers: str,
    title: str = "",
    folder: str = "now",
    note: str = "",
) -> Library:
    """It runs with the packages of that folder, and with none of this environment."""
    packages = INSTALLED / folder

    def command() -> tuple[list[Word], list[Word]]:
        _needs(packages / f"{package.replace('-', '_')}-{version}.dist-info", package)
        return [sys.executable, "-S", PROGRAMS / program], []

    return Library(
        f"{title or package} {version}", command, _set(offers), {"PYTHONPATH": str(packages)}, note
    )


def of_npm(
    package: str, version: str, program: str, offers: str, client: str = "", folder: str = "", note: str = ""
) -> Library:
    """client: the Redis client that it is given, where it is given one."""
    modules = INSTALLED / "node" / "node_modules"

    def command() -> tuple[list[Word], list[Word]]:
        node = shutil.which("node") or pytest.skip("no node on this machine")
        _needs(modules / (folder or package), package)
        return [node, PROGRAMS / program], [client]

    title = f"{package} {version}" + (f", {client}" if client else "")
    return Library(title, command, _set(offers), {"NODE_PATH": str(modules)}, note)


def compiled(title: str, program: str, offers: str, *before: str, note: str = "") -> Library:
    """before: what runs it, if it does not run by itself."""

    def command() -> tuple[list[Word], list[Word]]:
        _needs(INSTALLED / program, title)
        return [*before, INSTALLED / program], []

    return Library(title, command, _set(offers), note=note)


def snippet(name: str) -> Library:
    steps = SNIPPETS[name]
    offers = {"locked", "owned", *({"extend", "careless"} & steps.keys())}
    if "acquire for ever" in steps:
        offers.add("for ever")
    if steps["release"] != GET_THEN_DEL:
        offers |= {"token", "release_as"}
    if ":" in name:
        offers.add("newer")

    def command() -> tuple[list[Word], list[Word]]:
        return [sys.executable, PROGRAMS / "snippet.py"], [json.dumps(steps)]

    return Library(
        name, command, frozenset(offers), note=OWN_ONLY if steps["release"] == GET_THEN_DEL else ""
    )


OWN_ONLY = "`DEL` takes away only what its own process holds: another host can't release with it."


def _needs(path: Path, what: str) -> None:
    if not path.exists():
        pytest.skip(f"{what} is not there: make dropin-libraries")


def _set(offers: str) -> frozenset[str]:
    return frozenset(offers.split(", "))
