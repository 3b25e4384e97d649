"""The site has every page, and its links lead to pages of the site. `make docs` builds it, strictly."""

from __future__ import annotations

import pytest
import yaml

from docs.made.markdown import DOCS, REPOSITORY
from docs.made.site import brought, with_links, with_plain_bars

PLACES = {"README.md": "about.md", "alerts/METRICS.md": "reference/metrics.md"}
NAV = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())["nav"]


def named(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav if isinstance(nav, list) else nav.values() if isinstance(nav, dict) else ()
    return [page for part in parts for page in named(part)]


def test_the_menu_has_every_page_of_docs() -> None:
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert sorted(pages - set(named(NAV))) == []


def test_the_menu_has_no_page_twice_and_none_that_is_not_there() -> None:
    pages = named(NAV)
    assert len(pages) == len(set(pages))
    assert [page for page in pages if not (DOCS / page).exists() and page not in brought().values()] == []


def test_every_runbook_and_every_role_is_brought() -> None:
    uris = brought().values()
    assert {f"runbooks/{page.name}" for page in REPOSITORY.glob("alerts/runbooks/*.md")} <= set(uris)
    assert {
        f"reference/roles/{page.parent.name}.md" for page in REPOSITORY.glob("ansible/roles/*/README.md")
    } <= set(uris)
    assert [source for source in brought() if not (REPOSITORY / source).exists()] == []


@pytest.mark.parametrize(
    ("source", "uri", "link", "becomes"),
    [
        ("docs/index.md", "index.md", "[x](reference/wire.md)", "[x](reference/wire.md)"),
        ("docs/index.md", "index.md", "[x](../README.md)", "[x](about.md)"),
        ("README.md", "about.md", "[x](docs/reference/wire.md#commands)", "[x](reference/wire.md#commands)"),
        ("docs/reference/wire.md", "reference/wire.md", "[x](../../alerts/METRICS.md)", "[x](metrics.md)"),
        ("docs/explanation/proven.md", "explanation/proven.md", "see [`x`](../../lockd/x.py).", "see `x`."),
        ("docs/index.md", "index.md", "[x](https://example.com)", "[x](https://example.com)"),
        ("docs/index.md", "index.md", "[x](#how-to)", "[x](#how-to)"),
    ],
)  # fmt: skip
def test_a_link_leads_to_the_page_of_the_site_or_is_its_text(
    source: str, uri: str, link: str, becomes: str
) -> None:
    assert with_links(link, source, uri, PLACES) == becomes


def test_a_bar_in_the_code_of_a_table_is_shown_without_its_backslash() -> None:
    assert with_plain_bars("| `a \\| b` | c \\| d |\n`e \\| f`\n") == "| `a | b` | c \\| d |\n`e \\| f`\n"
