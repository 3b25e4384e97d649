"""Each line of the threat model names a test that shows it, and that test is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


def _tests_in(path: Path) -> set[str]:
    """As pytest names them: `test_x`, `TestY::test_x`."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, _FUNCTIONS)}
        elif isinstance(node, _FUNCTIONS):
            names.add(node.name)
    return {name for name in names if name.rpartition("::")[2].startswith("test_")}


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def test_every_test_that_it_names_is_there() -> None:
    missing = [f"{file}::{name}" for file, name in NAMED.findall(PAGE) if name not in _tests_in(ROOT / file)]
    assert not missing


def test_every_line_of_its_tables_names_one() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.endswith(" test |")]
    assert len(rows) > 30
    assert [row for row in rows if not NAMED.search(row.rsplit("|", 2)[1])] == []
