"""Every relative link of README and docs/ leads to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.made.markdown import DOCS, REPOSITORY

PAGES = (
    *sorted(REPOSITORY.glob("*.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted((REPOSITORY / "alerts").rglob("*.md")),
    REPOSITORY / "ansible/README.md",
    *sorted((REPOSITORY / "ansible/roles").glob("*/README.md")),
)
LINK = re.compile(r"\]\(([^()\s]+)\)")
FENCED = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)
ELSEWHERE = ("http://", "https://", "mailto:")


def links(page: Path) -> list[str]:
    text = re.sub(
        r"`[^`\n]*`", lambda code: code[0] if "](" not in code[0] else "", FENCED.sub("", page.read_text())
    )
    return [link for link in LINK.findall(text) if not link.startswith(ELSEWHERE)]


def anchors(page: Path) -> set[str]:
    """As sites make them of headings."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_its_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_links_are_found() -> None:
    """Else the test above would pass for nothing."""
    assert len(links(REPOSITORY / "README.md")) > 20
    assert "reference/wire.md" in links(DOCS / "index.md")


def test_every_page_can_be_reached_from_the_first_one() -> None:
    reached, ahead = set[Path](), [DOCS / "index.md"]
    while ahead:
        page = ahead.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = ((page.parent / link.partition("#")[0]).resolve() for link in links(page) if link[0] != "#")
        ahead += [target for target in targets if target.suffix == ".md" and target.exists()]
    assert [page for page in DOCS.rglob("*.md") if page not in reached] == []
