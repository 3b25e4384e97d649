"""What people read uses plain words: every page, dashboards, alerts and their runbooks, plays, every text
in the code (help, errors, findings), and the documentation in the code.

Each kind of text is one check. Its failure names every file, line and word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.build import ALERTS, RULES, Site, rendered
from dashboards.__main__ import BOARDS
from docs.made import command_line
from docs.made.markdown import DOCS, REPOSITORY
from docs.made.pages import PAGES as MADE
from tests.docs.texts import code, code_of, composed, string
from tests.harness.prose import FENCED, Passage, expect_none, mistakes, page, pages, without, words

WRITTEN = (
    *(REPOSITORY / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    REPOSITORY / "lockd.example.yml",
    *(page for page in sorted(DOCS.rglob("*.md")) if page not in MADE),
    *sorted(REPOSITORY.glob("alerts/runbooks/*.md")),
    *sorted(REPOSITORY.glob("ansible/**/*.md")),
    *sorted(REPOSITORY.glob("packaging/**/*.md")),
    REPOSITORY / "packaging/deb/README.Debian",
)
CODE_FILES = sorted((REPOSITORY / "lockd").rglob("*.py"))
PLAYS = sorted((REPOSITORY / "ansible").rglob("*.yml"))
TEMPLATES = sorted((REPOSITORY / "ansible").rglob("*.j2"))
AVOIDED = re.compile(
    r"\b(for want of|be had|(?:is|are) to be|mend(?:ed|s)?|ill|of (?:its|their|your|one's) own|makes? up"
    r"|whoever|utili[sz]e|in order to|please note|simply|easily|leverage)\b",
    re.IGNORECASE,
)
"""Say: without, get, has to be, fix, in trouble, separate, invent, anyone who, use, to, nothing at all."""
STIFF = re.compile(r"\bis to\b|\bare to\b")
"""Nor on a dashboard."""
CODE = re.compile(rf"{FENCED.pattern}|`[^`\n]+`", re.M | re.S)
SAID = ("name", "msg", "fail_msg", "success_msg", "prompt", "description", "short_description")


def avoided(text: Passage) -> list[str]:
    return list(words(AVOIDED)(text))


def avoided_between_code(text: Passage) -> list[str]:
    return avoided(without(CODE, text))


def avoided_in_code(path: Path) -> list[str]:
    """In texts that it may say, and in its documentation but for what is code there."""
    found = code(path)
    return mistakes(avoided, found.literals) + mistakes(avoided_between_code, found.documentation)


def test_every_page_uses_plain_words() -> None:
    expect_none(mistakes(avoided_between_code, pages([*WRITTEN, *MADE])))


def test_what_help_says_uses_plain_words() -> None:
    """It is in blocks of code on its page."""
    expect_none(avoided(page(command_line.PAGE)))


def test_texts_in_the_code_and_its_documentation_use_plain_words() -> None:
    expect_none([found for path in CODE_FILES for found in avoided_in_code(path)])


def test_alerts_and_the_comments_of_their_rules_use_plain_words() -> None:
    notes = [
        Passage(f"alert {rule['alert']}, {note}", rule["annotations"][note], 0)
        for group in yaml.safe_load(rendered(ALERTS, Site()))["groups"]
        for rule in group["rules"]
        for note in ("summary", "description")
    ]
    comments = [one for name in (ALERTS, RULES) for one in commented(name, rendered(name, Site()))]
    assert len(notes) > 100
    assert len(comments) > 20
    expect_none(mistakes(avoided, [*notes, *comments]))


def commented(name: str, source: str) -> list[Passage]:
    return [
        Passage(name, found[1], source.count("\n", 0, found.start(1)) + 1)
        for found in re.finditer(r"^ *# (.*)", source, re.M)
    ]


def texts(board: Mapping[str, Any]) -> Iterator[Passage]:
    """All that a reader of a dashboard reads, but for labels and their values."""
    name = f"dashboard {board['uid']}"
    links, notes = board["links"], board["annotations"]["list"]
    yield from (Passage(name, text, 0) for text in (board["title"], board["description"]))
    yield from (Passage(f"{name}, a link", link["tooltip"], 0) for link in links)
    for note in notes:
        said = (note["name"], note["titleFormat"], note["textFormat"])
        yield from (Passage(f"{name}, annotation {note['name']}", text, 0) for text in said)
    for panel in board["panels"]:
        of_values = r'"(?:text|noValue|displayName)": "([^"]*)"'
        said = (
            panel["title"],
            panel["description"],
            *re.findall(of_values, json.dumps(panel["fieldConfig"])),
        )
        yield from (Passage(f"{name}, panel {panel['title']}", text, 0) for text in said)


def test_dashboards_use_plain_words() -> None:
    for board in BOARDS:
        assert len(list(texts(board))) > 2 * len(board["panels"])
    said = [text for board in BOARDS for text in texts(board)]
    expect_none(mistakes(avoided, said) + mistakes(words(STIFF), said))


def said_in(name: str, node: yaml.Node | None) -> Iterator[Passage]:
    """Names, messages and descriptions in what Ansible reads, wherever they are."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value in SAID:
                said = value.value if isinstance(value, yaml.SequenceNode) else [value]
                yield from (string(name, text) for text in said if isinstance(text, yaml.ScalarNode))
            yield from said_in(name, value)
    elif isinstance(node, yaml.SequenceNode):
        for one in node.value:
            yield from said_in(name, one)


def avoided_in_a_play(play: Passage) -> list[str]:
    """In its comments too: operators read them, of defaults and of plays above all."""
    said = [*said_in(play.of, composed(play.text)), *commented(play.of, play.text)]
    return mistakes(avoided, said)


def test_plays_use_plain_words() -> None:
    expect_none(mistakes(avoided_in_a_play, pages(PLAYS)))


def test_files_that_plays_write_on_hosts_use_plain_words() -> None:
    expect_none(mistakes(avoided, pages(TEMPLATES)))


# Each kind of text, with a mistake: else the tests above would pass for nothing.


def planted(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_word_on_a_page_is_found_with_its_line_and_code_is_not(tmp_path: Path) -> None:
    text = "# A page\n\n```sh\nmend\nwhoever\n```\n\nSay `mend`,\nand simply go.\n"
    assert mistakes(avoided_between_code, [page(planted(tmp_path, "a.md", text))]) == ["a.md:9: simply"]
    assert avoided(page(planted(tmp_path, "b.j2", "# Yes.\n# Whoever"))) == ["b.j2:2: Whoever"]


MODULE = '''
def f(x):
    """Anyone
    of its own."""
    y = 1  # is to be kept
    """Mend `ill`."""
    return "one " "ill", f"another of {x} and {x}", f"{x} makes up"
'''


def test_a_word_in_the_code_is_found_in_what_it_says_and_in_its_documentation(tmp_path: Path) -> None:
    assert sorted(avoided_in_code(planted(tmp_path, "f.py", MODULE))) == [
        "f.py:4: of its own", "f.py:5: is to be", "f.py:6: Mend", "f.py:7: ill", "f.py:7: makes up",
    ]  # fmt: skip


def test_all_texts_of_a_module_are_found_and_its_documentation_apart() -> None:
    found = code_of("f.py", MODULE)
    assert sorted(one.text for one in found.literals) == ["another of {} and {}", "one ill", "{} makes up"]
    assert sorted(one.text for one in found.documentation) == [
        "# is to be kept", "Anyone\n    of its own.", "Mend `ill`.",
    ]  # fmt: skip


PLAY = """---
# Whoever it is.
- block:
    - name: Mend it
      assert:
        fail_msg: >-
          Of your own
        that: ill
  description:
    - One.
    - Easily.
"""


def test_a_word_that_a_play_says_is_found_and_what_it_does_is_not() -> None:
    assert sorted(avoided_in_a_play(Passage("a.yml", PLAY))) == [
        "a.yml:11: Easily", "a.yml:2: Whoever", "a.yml:4: Mend", "a.yml:7: Of your own",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "place",
    [
        ("title",),
        ("links", 0, "tooltip"),
        ("annotations", "list", 0, "textFormat"),
        ("panels", 0, "description"),
    ],
    ids=str,
)
def test_a_word_on_a_dashboard_is_found(place: tuple[str | int, ...]) -> None:
    board: Any = json.loads(json.dumps(BOARDS[0]))
    *way, last = place
    part = board
    for step in way:
        part = part[step]
    part[last] = "What is to be seen"
    found = list(texts(board))
    assert [one.rpartition(": ")[2] for one in mistakes(avoided, found)] == ["is to be"]
    assert [one.rpartition(": ")[2] for one in mistakes(words(STIFF), found)] == ["is to"]


def test_words_to_avoid_are_found() -> None:
    assert avoided(Passage("", "Whoever has it is to be asked", 0)) == [": Whoever", ": is to be"]
    assert not avoided(Passage("", "It will still fill the bill, and its owner is told"))
