"""The runbooks as pages for a browser, by the program that the role `runbooks` brings to its host."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from lockd.dev.processes import LOOPBACK, free_ports
from tests.harness.programs import loaded
from tests.harness.prometheus import ALERTS, ALL_ALERTS, ROOT
from tests.harness.waiting import PATIENCE_S, eventually

PROGRAM = ROOT / "ansible/roles/runbooks/files/serve_runbooks.py"
RUNBOOKS = sorted((ALERTS / "runbooks").glob("*.md"))


serve_runbooks = loaded(PROGRAM)


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ('a <b> & "c"', "<p>a &lt;b&gt; &amp; &quot;c&quot;</p>\n"),
        ("<script>x</script>", "<p>&lt;script&gt;x&lt;/script&gt;</p>\n"),
        ("## When it is over", '<h2 id="when-it-is-over">When it is over</h2>\n'),
        ("```\n1. <no>\n\n# list\n```", "<pre><code>1. &lt;no&gt;\n\n# list\n</code></pre>\n"),
    ],
)
def test_markdown_becomes_html_and_nothing_in_it_becomes_markup(markdown: str, html: str) -> None:
    assert serve_runbooks.html_of(markdown) == html


class Links(HTMLParser):
    """Where a page leads, and what on it can be led to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.to: list[str] = []
        self.ids: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.to += [found["href"] or ""] if "href" in found else []
        self.ids |= {found["id"] or ""} if "id" in found else set()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """It runs as its unit starts it, and sees no other module of ours."""
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    folder = ALERTS / "runbooks"
    command = [sys.executable, "-I", str(PROGRAM), "--folder", str(folder), "--listen", address]
    process = subprocess.Popen(command)
    try:
        eventually(lambda: fetch(f"http://{address}/")[0] == 200)
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def fetch(url: str, method: str = "GET") -> tuple[int, str, Any]:
    """Status, body and headers; 0 while nobody answers."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=PATIENCE_S) as reply:
            return reply.status, reply.read().decode(), reply.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers
    except urllib.error.URLError:
        return 0, "", {}


def test_the_link_of_every_alert_leads_to_its_page(url: str) -> None:
    for alert in ALL_ALERTS:
        name = alert["annotations"]["runbook_url"].rpartition("/")[2]
        status, page, headers = fetch(f"{url}/{name}")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert f'<h1 id="{alert["alert"].lower()}">{alert["alert"]}</h1>' in page


def test_every_link_of_every_page_leads_to_a_page_and_a_place_on_it(url: str) -> None:
    pages = {path.name: Links(fetch(f"{url}/{path.name}")[1]) for path in RUNBOOKS}
    followed = 0
    for page in pages.values():
        for name, _, anchor in (to.partition("#") for to in page.to if to != "/"):
            assert not anchor or anchor in pages[name].ids
            assert name in pages
            followed += 1
    assert followed > 100


def test_the_first_page_tells_how_to_use_them_and_lists_all(url: str) -> None:
    status, page, _ = fetch(f"{url}/")
    assert status == 200
    assert "How to use these runbooks</h1>" in page
    assert {f"{path.stem}.md" for path in RUNBOOKS if path.stem != "README"} <= set(Links(page).to)


@pytest.mark.parametrize(
    "path", ["/nothing", "/../README.md", "/..%2f..%2fetc/passwd", "//etc/passwd", "/LockdDown.md/x", "/.md"]
)
def test_nothing_else_is_to_be_read(url: str, path: str) -> None:
    status, page, _ = fetch(f"{url}{path}")
    assert status == 404
    assert "There is no such runbook" in page


def test_it_may_be_asked_for_the_headers_alone_and_loads_nothing_from_elsewhere(url: str) -> None:
    status, body, headers = fetch(f"{url}/LockdDown.md", "HEAD")
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 1000
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert not re.search(r"(src|@import|url\()", fetch(f"{url}/LockdDown.md")[1].partition("</head>")[0])


def test_others_methods_are_refused(url: str) -> None:
    assert fetch(f"{url}/LockdDown.md", "POST")[0] == 501


def test_a_new_page_needs_no_restart(tmp_path: Path) -> None:
    runbooks = serve_runbooks.Runbooks(tmp_path)
    assert runbooks.page("/New.md") is None
    (tmp_path / "New.md").write_text("# New\n")
    page: Callable[[str], str | None] = runbooks.page
    assert "<h1" in (page("/New.md") or "")
    assert (page("/") or "").count("New.md") == 1
