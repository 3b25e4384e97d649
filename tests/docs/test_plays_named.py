"""A command of ansible-playbook can be pasted wherever users read one: it names its inventory, and a play.

Without an inventory it would go to the hosts of the example, by ansible.cfg.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs.made.markdown import DOCS, REPOSITORY
from tests.docs.texts import code
from tests.harness.prose import Passage, expect_none, mistakes, page

ANSIBLE = REPOSITORY / "ansible"
PLAYS = {path.name for path in ANSIBLE.glob("*.yml")}
INVENTORY = "inventories/mine/hosts.yml"
COMMAND = re.compile(r"\bansible-playbook\s+(?:# +)?(?P<rest>[^`\n]*)")
"""Not `ansible-playbook` between the words: that only names the program."""
GIVEN = re.compile(
    rf"-i (?:{re.escape(INVENTORY)} "
    # What the play itself was called with: lockd_play.
    r"|\{\{ ansible_inventory_sources )"
)
PAGES = (
    *REPOSITORY.glob("*.md"),
    *DOCS.rglob("*.md"),
    *(REPOSITORY / "alerts").rglob("*.md"),
    *(REPOSITORY / "packaging").rglob("*.md"),
    *ANSIBLE.rglob("*.md"),
)
TEXTS = (
    *(REPOSITORY / "alerts/templates").iterdir(),
    *(REPOSITORY / "alerts").glob("*.yml"),
    *(REPOSITORY / "dashboards").glob("*.json"),
    *(path for path in ANSIBLE.rglob("*") if path.suffix in (".yml", ".j2", ".cfg", ".sh", ".py")),
    *REPOSITORY.glob("*.example.yml"),
)
CODE = [path for room in ("lockd", "alerts", "dashboards") for path in (REPOSITORY / room).rglob("*.py")]


def texts(path: Path) -> Iterator[Passage]:
    if path.suffix == ".py":
        yield from code(path).literals
    else:
        yield page(path)


@cache
def naming_plays() -> list[Passage]:
    """All texts that name the program or what a play was called with."""
    every = (text for path in (*PAGES, *TEXTS, *CODE) for text in texts(path))
    return [text for text in every if "ansible-playbook" in text.text or "lockd_play" in text.text]


def cannot_be_pasted(text: Passage) -> Iterator[str]:
    """Commands without an inventory, and names of plays that are not there."""
    for found in COMMAND.finditer(text.text):
        if not GIVEN.match(found["rest"]):
            yield text.mistake(f"{found[0]}: without an inventory", found.start())
    for play in sorted(plays(text.text) - PLAYS):
        yield text.mistake(play)


def plays(text: str) -> set[str]:
    """What it has ansible-playbook run."""
    rests = [found["rest"].replace(INVENTORY, "") for found in COMMAND.finditer(text)]
    hinted = re.findall(r"\blockd_play(?: }}| ~ ')\s+(\w+\.yml)", text)
    return {play for rest in rests for play in re.findall(r"(?<![\w/.-])\w+\.yml\b", rest)} | set(hinted)


def test_a_command_of_ansible_playbook_names_its_inventory_and_a_play_that_there_is() -> None:
    expect_none(mistakes(cannot_be_pasted, naming_plays()))


def test_commands_are_where_users_read_them() -> None:
    """Else the test above would pass for nothing."""
    reading = [text.of for text in naming_plays() if COMMAND.search(text.text)]
    assert {"README.md", "docs", "alerts", "ansible", "packaging"} <= {of.partition("/")[0] for of in reading}
    assert len(reading) > 60


@pytest.mark.parametrize(
    "text",
    [
        "On the controller: `ansible-playbook site.yml`.",
        "ansible-playbook replace_master.yml -e replace_master=m3",
        "    say:\n      Run it again: ansible-playbook\n      site.yml",
        "#   ansible-playbook --check -i inventories/example/hosts.yml site.yml",
        "ansible-playbook -i inventories/mine/hosts.yml",
    ],
)
def test_one_without_an_inventory_is_found_with_its_line(text: str) -> None:
    [found] = cannot_be_pasted(Passage("a.md", text, 7))
    assert re.fullmatch(r"a\.md:[78]: ansible-playbook\s(.|\n)*: without an inventory", found)


def test_one_with_its_inventory_is_not_and_a_mere_name_is_not() -> None:
    good = f"Type `ansible-playbook` on the controller: `ansible-playbook -i {INVENTORY} site.yml -e a=b`."
    assert list(cannot_be_pasted(Passage("a.md", good))) == []
    assert plays(good) == {"site.yml"}
    assert plays("{{ lockd_play }} a.yml; {{ lockd_play ~ ' b.yml -e c=d' }}") == {"a.yml", "b.yml"}


def test_a_play_that_is_not_there_is_found_with_its_line() -> None:
    for text in (f"\n`ansible-playbook -i {INVENTORY} no_such.yml`", "\n{{ lockd_play }} no_such.yml"):
        assert list(cannot_be_pasted(Passage("a.md", text))) == ["a.md:2: no_such.yml"]
