"""Playbooks, targets of make, commands and settings that documentation names are there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

import lockd
from docs.made.markdown import DOCS, REPOSITORY
from lockd.config.model import Config
from lockd.lockctl.main import main
from tests.docs.blocks import blocks

PAGES = (REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
MASTERS = [{"name": f"m{i}", "address": f"10.0.0.{i}:6379"} for i in range(1, 4)]


def code(page: Path) -> str:
    """What of a page is code: its blocks, and what stands between single marks."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.M | re.S)
    return "\n".join([*(block.text for block in blocks(page)), *re.findall(r"`([^`\n]+)`", text)])


def pages(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


@pytest.mark.parametrize("page", PAGES, ids=pages)
def test_playbooks_and_targets_and_commands_are_there(page: Path) -> None:
    text = code(page)
    makefile = (REPOSITORY / "Makefile").read_text()
    for play in re.findall(r"\b(?:hosts\.yml|playbook) (\w+\.yml)", text):
        assert (REPOSITORY / "ansible" / play).exists(), play
    for target in re.findall(r"^(?:sudo )?make ([a-z][\w-]*)", text, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), f"make {target}"
    for command in re.findall(r"^(?:sudo )?lockctl (?:--\S+ \S+ )?([a-z][\w-]*)", text, re.M):
        assert command in main.commands, f"lockctl {command}"


@pytest.mark.parametrize("page", PAGES, ids=pages)
def test_its_programs_can_be_read(page: Path) -> None:
    """Those of the shell, Python and YAML, whether or not they can be run here."""
    for block in blocks(page):
        if block.language == "python":
            compile(block.text, page.name, "exec")
        elif block.language == "yaml":
            list(yaml.safe_load_all(block.text))
        elif block.language == "sh":
            subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)


@pytest.mark.parametrize("page", PAGES, ids=pages)
def test_classes_that_it_shows_are_accepted(page: Path) -> None:
    shown = [block.text for block in blocks(page) if block.language == "yaml"]
    for document in (one for text in shown for one in yaml.safe_load_all(text)):
        if isinstance(document, dict) and document.keys() == {"classes"}:
            assert Config.read({"cluster": "example", "masters": MASTERS, **document}).classes


@pytest.mark.parametrize("page", PAGES, ids=pages)
def test_alerts_that_it_names_are_alerts(page: Path) -> None:
    alerts = "".join(path.read_text() for path in REPOSITORY.glob("alerts/*.alerts.yml"))
    for name in re.findall(r"\b(Lockd?[A-Z][a-z]\w+)\b", code(page)):
        assert name in lockd.__all__ or f"alert: {name}\n" in alerts, name


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
