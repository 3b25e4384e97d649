"""Every relative link of README and docs/ leads to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.made.markdown import DOCS, REPOSITORY
from tests.harness.prose import FENCED, Passage, expect_none, name_of

PAGES = (
    *sorted(REPOSITORY.glob("*.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted((REPOSITORY / "alerts").rglob("*.md")),
    REPOSITORY / "ansible/README.md",
    *sorted((REPOSITORY / "ansible/roles").glob("*/README.md")),
)
LINK = re.compile(r"\]\(([^()\s]+)\)")
ELSEWHERE = ("http://", "https://", "mailto:")


class Page:
    """Where it leads, and what on it can be led to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = FENCED.sub(lambda block: "\n" * block[0].count("\n"), path.read_text())
        self.anchors = {anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.M)}
        shown = re.sub(r"`[^`\n]*`", lambda code: code[0] if "](" not in code[0] else "", text)
        self.text = Passage(name_of(path), shown)

    def links(self) -> Iterator[re.Match[str]]:
        return (link for link in LINK.finditer(self.text.text) if not link[1].startswith(ELSEWHERE))

    def target(self, link: str) -> Path:
        path = link.partition("#")[0]
        return (self.path.parent / path).resolve() if path else self.path


def anchor(heading: str) -> str:
    """As sites make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def every_page() -> dict[Path, Page]:
    return {path: Page(path) for path in PAGES}


def lead_nowhere(page: Page, pages: Mapping[Path, Page]) -> Iterator[str]:
    for link in page.links():
        target, place = page.target(link[1]), link[1].partition("#")[2]
        if not target.exists() or (place and place not in (pages.get(target) or Page(target)).anchors):
            yield page.text.mistake(link[1], link.start())


def test_every_link_leads_somewhere() -> None:
    pages = every_page()
    expect_none([found for page in pages.values() for found in lead_nowhere(page, pages)])


def test_a_link_that_leads_nowhere_is_found_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text(
        "# A page\n```\n[x](in_code.md)\n```\n[x](a.md#a-page) `[x](in_code.md)` [x](https://example.com)\n"
        "[x](no.md)\n[x](#no)\n[x](a.md#no)\n"
    )
    assert list(lead_nowhere(Page(path), {})) == ["a.md:6: no.md", "a.md:7: #no", "a.md:8: a.md#no"]


def test_links_are_found() -> None:
    """Else the test above would pass for nothing."""
    assert len(list(Page(REPOSITORY / "README.md").links())) > 20
    assert "reference/wire.md" in {link[1] for link in Page(DOCS / "index.md").links()}


def test_every_page_can_be_reached_from_the_first_one() -> None:
    pages = every_page()
    reached, ahead = set[Path](), [DOCS / "index.md"]
    while ahead:
        page = ahead.pop()
        if page in reached:
            continue
        reached.add(page)
        here = pages.get(page) or Page(page)
        targets = (here.target(link[1]) for link in here.links())
        ahead += [target for target in targets if target.suffix == ".md" and target.exists()]
    assert [page for page in DOCS.rglob("*.md") if page not in reached] == []
