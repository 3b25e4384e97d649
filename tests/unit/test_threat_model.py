"""Each line of the threat model names a test that shows it, and that test is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/threat-model.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(?:\w+::)?(test_\w+)`")


def test_every_test_that_it_names_is_there() -> None:
    for file, name in NAMED.findall(PAGE):
        assert re.search(rf"^ *(async )?def {name}\(", (ROOT / file).read_text(), re.M), f"{file}::{name}"


def test_every_line_of_its_tables_names_one() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.endswith(" test |")]
    assert len(rows) > 30
    assert [row for row in rows if not NAMED.search(row.rsplit("|", 2)[1])] == []
