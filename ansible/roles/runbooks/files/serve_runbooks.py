"""The runbooks of a folder as pages for a browser: where the links of alerts lead.

    serve_runbooks.py --folder /usr/local/share/lockd-runbooks --listen 127.0.0.1:9098

/NAME.md and /NAME are the page of that alert, / is the first page with a list of all of them. A page is read
when it is asked for, so new ones need no restart. HTML in a runbook is shown as text.

It needs Python (3.10 or later) and markdown-it-py (Debian: python3-markdown-it), and nothing of lockd.
"""

from __future__ import annotations

import argparse
import re
import socket
from collections.abc import Sequence
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

FIRST_PAGE = "README"
PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 1.5rem auto; padding: 0 1rem; }}
pre {{ overflow-x: auto; padding: .75rem; }}
code, pre {{ font: 14px/1.5 ui-monospace, monospace; background: #f2f3f5; }}
code {{ padding: .1em .25em; }} pre code {{ padding: 0; }}
h2 {{ margin-top: 2rem; border-bottom: 1px solid #d8dbe0; }}
li {{ margin: .3rem 0; }}
@media (prefers-color-scheme: dark) {{
  body {{ background: #16181d; color: #e3e5e8; }} code, pre {{ background: #24272e; }} a {{ color: #8ab4f8; }}
}}
</style>
</head>
<body>
<p><a href="/">All runbooks</a></p>
{body}</body>
</html>
"""
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
MARKDOWN = MarkdownIt("commonmark", {"html": False})


def html_of(text: str) -> str:
    """Markdown as HTML. A heading has an id, for links to it."""
    tokens = MARKDOWN.parse(text)
    for heading, words in pairwise(tokens):
        if heading.type == "heading_open":
            heading.attrs["id"] = anchor(words.content)
    return str(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}))


def anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


class Runbooks:
    """What is in the folder. Only names that are there are opened, so no path leads out of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def page(self, path: str) -> str | None:
        """The page at this path of a URL, or None."""
        texts = {file.stem: file for file in sorted(self._folder.glob("*.md"))}
        asked = path.partition("?")[0]
        name = re.sub(r"\.md$", "", asked[1:])
        if asked != "/" and name not in texts:
            return None
        title = name or "Runbooks"
        file = texts.get(name or FIRST_PAGE)
        body = html_of(file.read_text(encoding="utf-8")) if file else ""
        if not name:
            links = "".join(f'<li><a href="{one}.md">{one}</a></li>\n' for one in texts if one != FIRST_PAGE)
            body += f'<h2 id="all">All runbooks</h2>\n<ul>\n{links}</ul>\n'
        return PAGE.format(title=escape(title), body=body)


def server(runbooks: Runbooks, host: str, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "lockd-runbooks", ""
        # Who connects and says nothing must not keep a thread for ever.
        timeout = 20

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, with_body: bool) -> None:
            page = runbooks.page(self.path)
            body = (
                page or PAGE.format(title="Not found", body="<p>There is no such runbook.</p>\n")
            ).encode()
            self.send_response(HTTPStatus.NOT_FOUND if page is None else HTTPStatus.OK)
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Who reads what is nobody's business."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

    return Server((host, port), Handler)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    chosen = parser.parse_args(arguments)
    host, _, port = chosen.listen.rpartition(":")
    server(Runbooks(chosen.folder), host.strip("[]"), int(port)).serve_forever()


if __name__ == "__main__":
    main()
