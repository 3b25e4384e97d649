"""Tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
REPOSITORY = DOCS.parent
REFERENCE = DOCS / "reference"
NOTE = "Made from the code by `make docs-pages`; a test checks that it is current. Don't edit it.\n"


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    return line(head) + "|---" * len(head) + "|\n" + "".join(map(line, rows))


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def with_table(page: str, made: str) -> str:
    """The page with this table in the place of the one that begins with the same line."""
    head = made.partition("\n")[0]
    return re.sub(re.escape(head) + r"\n(?:\|.*\n)+", lambda _: made, page)
