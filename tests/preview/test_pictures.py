"""The pictures that documentation shows."""

from __future__ import annotations

from docs.made.markdown import DOCS
from tests.preview.__main__ import KEEP, KEPT

SMALL_BYTES = 150_000


def test_they_are_those_that_the_preview_keeps_and_small() -> None:
    there = sorted(KEPT.iterdir())
    named = [f"{hosts}-hosts-{board}.png" for hosts, boards in KEEP.items() for board in boards]
    assert [path.name for path in there] == sorted(named)
    assert [path.name for path in there if path.stat().st_size > SMALL_BYTES] == []


def test_each_is_shown_or_linked() -> None:
    pages = "".join(page.read_text() for page in DOCS.rglob("*.md"))
    assert [path.name for path in KEPT.iterdir() if f"dashboards/pictures/{path.name}" not in pages] == []
