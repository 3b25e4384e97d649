"""Commands that plays print or name at their top can be pasted: with sudo where only root may do it, and
with the host to type them on. What runbooks say is in tests/alerts/test_runbooks.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from docs.made.markdown import REPOSITORY
from tests.docs.texts import code, composed, strings
from tests.harness.for_root import FOR_ROOT
from tests.harness.prose import Passage, expect_none, name_of

ANSIBLE = REPOSITORY / "ansible"
PLAYS = sorted(ANSIBLE.glob("*.yml"))
TASKS = [
    *PLAYS, *ANSIBLE.glob("tasks/*.yml"), *ANSIBLE.glob("group_vars/*.yml"),
    *ANSIBLE.glob("roles/*/tasks/*.yml"), *ANSIBLE.glob("roles/*/vars/*.yml"),
]  # fmt: skip
PRINTED_BY_PROGRAMS = [ANSIBLE / "files" / name for name in ("health.py", "neighbours.py")]
RUN_BY_ANSIBLE = frozenset({"cmd", "ansible.builtin.raw", "content", "stdin"})
WORD = re.compile(r"(?<![\w/.-])(?=[a-z])")
HOST = re.compile(r"\b(?:there|[Oo]n (?:\{\{ inventory_hostname|this host|another host))\b")


def texts(path: Path) -> Iterator[Passage]:
    """What a play or a task may print, and what stands at its top; not what it has Ansible run."""
    if path.suffix == ".py":
        yield from code(path).literals
        return
    name, text = name_of(path), path.read_text()
    yield from strings(name, composed(text), RUN_BY_ANSIBLE)
    if path in PLAYS:
        top = re.match(r"---\n((?:#.*\n)*)", text)
        yield Passage(name, re.sub(r"^#", "", top[1] if top else "", flags=re.M), 2)


def for_root(text: str) -> list[str]:
    """Its commands that are for root, as they stand there."""
    flat = " ".join(text.split())
    typed = [at.start() for at in WORD.finditer(flat) if FOR_ROOT.match(flat[at.start() :])]
    return [("sudo " if flat[:at].endswith("sudo ") else "") + flat[at : at + 60] for at in typed]


def cannot_be_pasted(text: Passage, of_a_program: bool = False) -> list[str]:
    """What a program prints of its host, the play begins with the name of that."""
    typed = for_root(text.text)
    found = [text.mistake(f"{one}: no sudo", 0) for one in typed if not one.startswith("sudo ")]
    if typed and not of_a_program and not HOST.search(" ".join(text.text.split())):
        found.append(text.mistake(f"{typed[0]}: on which host?", 0))
    return found


def test_what_only_root_may_do_has_sudo_and_the_host_to_type_it_on() -> None:
    found = [
        mistake
        for path in (*TASKS, *PRINTED_BY_PROGRAMS)
        for text in texts(path)
        for mistake in cannot_be_pasted(text, path in PRINTED_BY_PROGRAMS)
    ]
    expect_none(found)


def test_such_commands_are_found() -> None:
    """Else the test above would pass for nothing."""
    everywhere = (text for path in (*TASKS, *PRINTED_BY_PROGRAMS) for text in texts(path))
    assert len([one for text in everywhere for one in for_root(text.text)]) > 7
    for typed in ("systemctl start lockd-master", "rm /etc/machine-id; reboot", "lockctl locks --local"):
        assert for_root(f"Start it: {typed}. Nothing was changed.")[0].startswith(typed)
        assert for_root(f"Start it: `sudo {typed}`.")[0].startswith(f"sudo {typed}")
    assert not for_root("the guard restarts it, and systemctl status shows it after a reboot of the host")


def test_one_without_sudo_or_its_host_is_found_with_its_line(tmp_path: Path) -> None:
    play = tmp_path / "a.yml"
    play.write_text("- name: A\n  fail:\n    msg: Type reboot;\n    cmd: reboot\n")
    [found] = [one for one in texts(play) if for_root(one.text)]
    assert cannot_be_pasted(found) == ["a.yml:3: reboot;: no sudo", "a.yml:3: reboot;: on which host?"]
    assert cannot_be_pasted(found, of_a_program=True) == ["a.yml:3: reboot;: no sudo"]
    assert cannot_be_pasted(Passage("a.yml", "Type there: sudo reboot;")) == []
