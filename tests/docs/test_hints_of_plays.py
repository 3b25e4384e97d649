"""Commands that plays print or name at their top can be pasted: with sudo where only root may do it, and
with the host to type them on. What runbooks say is in tests/alerts/test_runbooks.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.made.markdown import REPOSITORY
from tests.docs.texts import literals
from tests.harness.for_root import FOR_ROOT

ANSIBLE = REPOSITORY / "ansible"
PLAYS = sorted(ANSIBLE.glob("*.yml"))
TASKS = [
    *PLAYS, *ANSIBLE.glob("tasks/*.yml"), *ANSIBLE.glob("group_vars/*.yml"),
    *ANSIBLE.glob("roles/*/tasks/*.yml"), *ANSIBLE.glob("roles/*/vars/*.yml"),
]  # fmt: skip
PRINTED_BY_PROGRAMS = [ANSIBLE / "files" / name for name in ("health.py", "neighbours.py")]
RUN_BY_ANSIBLE = {"cmd", "ansible.builtin.raw", "content", "stdin"}
WORD = re.compile(r"(?<![\w/.-])(?=[a-z])")
HOST = re.compile(r"\b(?:there|[Oo]n (?:\{\{ inventory_hostname|this host|another host))\b")


def texts(path: Path) -> Iterator[str]:
    if path.suffix == ".py":
        yield from literals(path.read_text())
        return
    text = path.read_text()
    yield from said(yaml.safe_load(text))
    if path in PLAYS:
        top = re.match(r"---\n((?:#.*\n)*)", text)
        yield re.sub(r"^#", "", top[1] if top else "", flags=re.M)


def said(document: Any) -> Iterator[str]:
    """What a play or a task may print; not what it has Ansible run."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for key, value in document.items():
            if key not in RUN_BY_ANSIBLE:
                yield from said(value)
    elif isinstance(document, list):
        for value in document:
            yield from said(value)


def for_root(text: str) -> list[str]:
    """Its commands that are for root, as they stand there."""
    flat = " ".join(text.split())
    typed = [at.start() for at in WORD.finditer(flat) if FOR_ROOT.match(flat[at.start() :])]
    return [("sudo " if flat[:at].endswith("sudo ") else "") + flat[at : at + 60] for at in typed]


@pytest.mark.parametrize(
    "path", [*TASKS, *PRINTED_BY_PROGRAMS], ids=lambda path: str(path.relative_to(ANSIBLE))
)
def test_what_only_root_may_do_has_sudo_and_the_host_to_type_it_on(path: Path) -> None:
    for text in texts(path):
        typed = for_root(text)
        assert [code for code in typed if not code.startswith("sudo ")] == []
        # What a program prints of its host, the play begins with the name of that.
        assert not typed or path in PRINTED_BY_PROGRAMS or HOST.search(" ".join(text.split()))


def test_such_commands_are_found() -> None:
    """Else the test above would pass for nothing."""
    everywhere = (text for path in (*TASKS, *PRINTED_BY_PROGRAMS) for text in texts(path))
    assert len([code for text in everywhere for code in for_root(text)]) > 7
    for code in ("systemctl start lockd-master", "rm /etc/machine-id; reboot", "lockctl locks --local"):
        assert for_root(f"Start it: {code}. Nothing was changed.")[0].startswith(code)
        assert for_root(f"Start it: `sudo {code}`.")[0].startswith(f"sudo {code}")
    assert not for_root("the guard restarts it, and systemctl status shows it after a reboot of the host")
