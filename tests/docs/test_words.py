"""Pages that people wrote use plain words. What is made from the code has the code's words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.made.markdown import DOCS, REPOSITORY
from docs.made.pages import PAGES as MADE

WRITTEN = (
    *(REPOSITORY / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(page for page in sorted(DOCS.rglob("*.md")) if page not in MADE),
)
AVOIDED = re.compile(
    r"\b(for want of|be had|(?:is|are) to be|mend(?:ed|s)?|ill|of (?:its|their|your|one's) own|makes? up"
    r"|whoever|utili[sz]e|in order to|please note|simply|easily|leverage)\b",
    re.IGNORECASE,
)
"""Say: without, get, has to be, fix, in trouble, separate, invent, anyone who, use, to, nothing at all."""
CODE = re.compile(r"^( *)```.*?^\1```$|`[^`\n]+`", re.M | re.S)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_it_uses_plain_words(page: Path) -> None:
    assert [found[0] for found in AVOIDED.finditer(CODE.sub("", page.read_text()))] == []


def test_words_to_avoid_are_found() -> None:
    """Else the test above would pass for nothing."""
    assert AVOIDED.search("Whoever has it is to be asked")
    assert not AVOIDED.search("It will still fill the bill, and its owner is told")
