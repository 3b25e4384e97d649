"""What people read uses plain words: every page, dashboards, alerts and their runbooks, plays, every text
in the code (help, errors, findings), and the documentation in the code."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
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
from tests.docs.texts import literals

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
AVOIDED = re.compile(
    r"\b(for want of|be had|(?:is|are) to be|mend(?:ed|s)?|ill|of (?:its|their|your|one's) own|makes? up"
    r"|whoever|utili[sz]e|in order to|please note|simply|easily|leverage)\b",
    re.IGNORECASE,
)
"""Say: without, get, has to be, fix, in trouble, separate, invent, anyone who, use, to, nothing at all."""
CODE = re.compile(r"^( *)```.*?^\1```$|`[^`\n]+`", re.M | re.S)


def avoided(text: str) -> list[str]:
    return [found[0] for found in AVOIDED.finditer(text)]


@pytest.mark.parametrize("page", [*WRITTEN, *MADE], ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_it_uses_plain_words(page: Path) -> None:
    assert avoided(CODE.sub("", page.read_text())) == []


def test_what_help_says_uses_plain_words() -> None:
    """It is in blocks of code on its page."""
    assert avoided(command_line.PAGE.read_text()) == []


@pytest.mark.parametrize("file", CODE_FILES, ids=lambda file: str(file.relative_to(REPOSITORY)))
def test_texts_in_the_code_use_plain_words(file: Path) -> None:
    assert [text for text in literals(file.read_text()) if avoided(text)] == []


def documentation(source: str) -> Iterator[str]:
    """The docstrings of a module, what stands below its constants and fields, and its comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


@pytest.mark.parametrize("file", CODE_FILES, ids=lambda file: str(file.relative_to(REPOSITORY)))
def test_the_documentation_in_the_code_uses_plain_words(file: Path) -> None:
    found = (CODE.sub("", text) for text in documentation(file.read_text()))
    assert [text for text in found if avoided(text)] == []


def test_all_texts_of_a_module_are_found_and_its_documentation_apart() -> None:
    source = '''
def f(x):
    """Whoever reads this."""
    y = 1  # is to be kept
    """Of its own."""
    return "one " "text", f"another of {x} and {x}"
'''
    assert sorted(literals(source)) == ["another of {} and {}", "one text"]
    assert sorted(documentation(source)) == ["# is to be kept", "Of its own.", "Whoever reads this."]


def test_alerts_and_the_comments_of_their_rules_use_plain_words() -> None:
    rules = rendered(ALERTS, Site())
    notes = [
        rule["annotations"][note]
        for group in yaml.safe_load(rules)["groups"]
        for rule in group["rules"]
        for note in ("summary", "description")
    ]
    comments = re.findall(r"^ *# (.*)", rules + rendered(RULES, Site()), re.M)
    assert len(notes) > 100
    assert len(comments) > 20
    assert [text for text in (*notes, *comments) if AVOIDED.search(text)] == []


def texts(board: Mapping[str, Any]) -> Iterator[str]:
    """All that a reader of a dashboard reads, but for labels and their values."""
    yield board["title"]
    yield board["description"]
    yield from (link["tooltip"] for link in board["links"])
    for annotation in board["annotations"]["list"]:
        yield from (annotation["name"], annotation["titleFormat"], annotation["textFormat"])
    for panel in board["panels"]:
        yield from (panel["title"], panel["description"])
        yield from re.findall(r'"(?:text|noValue|displayName)": "([^"]*)"', json.dumps(panel["fieldConfig"]))


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: str(board["uid"]))
def test_a_dashboard_uses_plain_words(board: Mapping[str, Any]) -> None:
    said = list(texts(board))
    assert len(said) > 2 * len(board["panels"])
    assert [found[0] for text in said for found in AVOIDED.finditer(text)] == []
    assert [text for text in said if re.search(r"\bis to\b|\bare to\b", text)] == []


PLAYS = sorted((REPOSITORY / "ansible").rglob("*.yml"))
TEMPLATES = sorted((REPOSITORY / "ansible").rglob("*.j2"))
SAID = ("name", "msg", "fail_msg", "success_msg", "prompt", "description", "short_description")


def said_in(part: Any) -> Iterator[str]:
    """Names, messages and descriptions in what Ansible reads, wherever they are."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key in SAID:
                said = value if isinstance(value, list) else [value]
                yield from (text for text in said if isinstance(text, str))
            yield from said_in(value)
    elif isinstance(part, list):
        for one in part:
            yield from said_in(one)


@pytest.mark.parametrize("file", PLAYS, ids=lambda file: str(file.relative_to(REPOSITORY)))
def test_a_play_uses_plain_words(file: Path) -> None:
    """In its comments too: operators read them, of defaults and of plays above all."""
    source = file.read_text()
    comments = re.findall(r"^ *# (.*)", source, re.M)
    assert [text for text in (*said_in(yaml.safe_load(source)), *comments) if AVOIDED.search(text)] == []


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: str(file.relative_to(REPOSITORY)))
def test_files_that_plays_write_on_hosts_use_plain_words(file: Path) -> None:
    assert avoided(file.read_text()) == []


def test_all_that_a_play_says_is_found() -> None:
    task = {"block": [{"name": "Mend it", "assert": {"fail_msg": "Whoever", "that": "ill"}}]}
    assert list(said_in([task, {"description": ["One.", "Two."]}])) == ["Mend it", "Whoever", "One.", "Two."]


def test_words_to_avoid_are_found() -> None:
    """Else the test above would pass for nothing."""
    assert AVOIDED.search("Whoever has it is to be asked")
    assert not AVOIDED.search("It will still fill the bill, and its owner is told")
