"""Playbooks, targets of make, commands and settings that documentation names are there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import lockd
from docs.made.markdown import DOCS, REPOSITORY
from lockd.config.model import Config
from lockd.config.problems import ConfigError
from lockd.lockctl.main import main
from tests.docs.blocks import Block, blocks
from tests.harness.prose import Passage, expect_none, name_of

PAGES = (REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
MASTERS = [{"name": f"m{i}", "address": f"10.0.0.{i}:6379"} for i in range(1, 4)]


class Page:
    """A page, its blocks of code, and all that is code on it: also what stands between single marks."""

    def __init__(self, path: Path) -> None:
        self.whole = Passage(name_of(path), path.read_text())
        self.blocks = blocks(path)
        between = re.sub(r"^( *)```.*?^\1```$", "", self.whole.text, flags=re.M | re.S)
        self.code = "\n".join([*(one.text for one in self.blocks), *re.findall(r"`([^`\n]+)`", between)])

    def documents(self) -> Iterator[Any]:
        """Of its YAML."""
        for block in self.blocks:
            if block.language == "yaml":
                yield from yaml.safe_load_all(block.text)


class There:
    """What there is to name."""

    def __init__(self) -> None:
        self.targets = set(re.findall(r"^([a-z][\w-]*):", (REPOSITORY / "Makefile").read_text(), re.M))
        self.plays = {path.name for path in (REPOSITORY / "ansible").glob("*.yml")}
        alerts = "".join(path.read_text() for path in REPOSITORY.glob("alerts/*.alerts.yml"))
        self.alerts = {*lockd.__all__, *re.findall(r"alert: (\w+)\n", alerts)}


def every_page() -> Iterator[Page]:
    return (Page(path) for path in PAGES)


def not_there(page: Page, there: There) -> Iterator[str]:
    """Playbooks, targets of make, commands and alerts."""
    known = (
        (r"\b(?:hosts\.yml|playbook) (\w+\.yml)", there.plays),
        (r"^(?:sudo )?make ([a-z][\w-]*)", there.targets),
        (r"^(?:sudo )?lockctl (?:--\S+ \S+ )?([a-z][\w-]*)", main.commands),
        (r"\b(Lockd?[A-Z][a-z]\w+)\b", there.alerts),
    )
    for pattern, names in known:
        for found in re.finditer(pattern, page.code, re.M):
            if found[1] not in names:
                yield page.whole.mistake(found[0])


def test_playbooks_targets_commands_and_alerts_that_a_page_names_are_there() -> None:
    there = There()
    expect_none([found for page in every_page() for found in not_there(page, there)])


def test_one_that_is_not_there_is_found_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text(
        "# A page\n```sh\nmake no-such\nlockctl nothing\nlockctl masters\n```\n"
        "`playbook no_such.yml`, `LockdNothing`\n"
    )
    assert list(not_there(Page(path), There())) == [
        "a.md:7: playbook no_such.yml", "a.md:3: make no-such",
        "a.md:4: lockctl nothing", "a.md:7: LockdNothing",
    ]  # fmt: skip


def read(block: Block) -> None:
    """As its language has it, whether or not it can be run here."""
    if block.language == "python":
        compile(block.text, "a block", "exec")
    elif block.language == "yaml":
        list(yaml.safe_load_all(block.text))
    elif block.language == "sh":
        subprocess.run(["bash", "-n"], input=block.text, text=True, check=True, capture_output=True)


def cannot_be_read(page: Page) -> Iterator[str]:
    for block in page.blocks:
        try:
            read(block)
        except (SyntaxError, yaml.YAMLError, subprocess.CalledProcessError) as error:
            first = block.text.splitlines()[0].strip()
            yield page.whole.mistake(first) + f": {getattr(error, 'stderr', error)}"


def test_programs_on_pages_can_be_read() -> None:
    expect_none([found for page in every_page() for found in cannot_be_read(page)])


@pytest.mark.parametrize(
    ("language", "text"), [("python", "print("), ("yaml", "a: [b"), ("sh", "if true; then")]
)
def test_a_program_that_cannot_be_read_is_found_with_its_line(
    tmp_path: Path, language: str, text: str
) -> None:
    path = tmp_path / "a.md"
    path.write_text(f"# A page\n\n```{language}\n{text}\n```\n")
    [found] = cannot_be_read(Page(path))
    assert found.startswith(f"a.md:4: {text}: ")


def refused_classes(page: Page) -> Iterator[str]:
    for document in page.documents():
        if isinstance(document, dict) and document.keys() == {"classes"}:
            try:
                assert Config.read({"cluster": "example", "masters": MASTERS, **document}).classes
            except (AssertionError, ConfigError) as error:
                yield page.whole.mistake("classes:") + f" {error}"


def test_classes_that_pages_show_are_accepted() -> None:
    expect_none([found for page in every_page() for found in refused_classes(page)])


def test_a_class_that_is_refused_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("# A page\n```yaml\nclasses:\n  - name: jobs\n    match: 'job:*'\n    speed: 1\n```\n")
    [found] = refused_classes(Page(path))
    assert found.startswith("a.md:3: classes: ")
    assert "speed" in found


def test_variables_that_guides_set_are_variables_of_roles() -> None:
    known = "\n".join(
        path.read_text()
        for path in (*REPOSITORY.glob("ansible/roles/*/*/*.yml"), *REPOSITORY.glob("ansible/*.yml"))
    )
    guides = "\n".join(page.read_text() for page in (*DOCS.glob("how-to/*.md"), *DOCS.glob("tutorial/*.md")))
    named = set(re.findall(r"`(lockd_[a-z_]+)[:`]|^ *(lockd_[a-z_]+):", guides, re.M))
    names = {first or second for first, second in named if not first.endswith("_total")}
    assert len(names) > 15
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", known)] == []
