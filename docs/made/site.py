"""What MkDocs is told besides mkdocs.yml: pages of the repository outside of docs/ are part of the site, and
links that lead to them lead there. A link to what is no page (a source file) becomes its text.

The pages stay as they are, so that they can be read without a site as well.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parents[2]
SINGLE = {
    "README.md": "about.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "alerts/METRICS.md": "reference/metrics.md",
    "ansible/README.md": "reference/operating.md",
    "ansible/CHANGELOG.md": "reference/ansible-changelog.md",
    "packaging/AIR-GAP.md": "how-to/air-gap-archive.md",
}
LINK = re.compile(r"(\[((?:[^\[\]]|\[[^\]]*\])*)\])\(([^()\s]+)\)")
TABLE_ROW = re.compile(r"^\|.*$", re.M)
CODE = re.compile(r"`[^`\n]*`")
ELSEWHERE = ("http://", "https://", "mailto:", "#")


def brought() -> dict[str, str]:
    """Where in the site what lies outside of docs/ is, by its path in the repository."""
    return (
        SINGLE
        | {_path(page): f"runbooks/{page.name}" for page in REPOSITORY.glob("alerts/runbooks/*.md")}
        | {
            _path(page): f"reference/roles/{page.parent.name}.md"
            for page in REPOSITORY.glob("ansible/roles/*/README.md")
        }
        | {
            _path(picture): f"pictures/{picture.name}"
            for picture in REPOSITORY.glob("dashboards/pictures/*.png")
        }
    )


def _path(file: Path) -> str:
    return file.relative_to(REPOSITORY).as_posix()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for source, uri in brought().items():
        files.append(File.generated(config, uri, abs_src_path=str(REPOSITORY / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    places = brought()
    of_uri = {uri: source for source, uri in places.items()}
    uri = page.file.src_uri
    return with_plain_bars(with_links(markdown, of_uri.get(uri, f"docs/{uri}"), uri, places))


def with_plain_bars(markdown: str) -> str:
    """A bar in the code of a table needs a backslash where GitHub shows it, and none here."""
    return TABLE_ROW.sub(lambda row: CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), markdown)


def with_links(markdown: str, source: str, uri: str, places: dict[str, str]) -> str:
    """As the page at `uri` has to have it; it was written for `source`, its path in the repository."""

    def led(link: re.Match[str]) -> str:
        whole, words, to = link.groups()
        if to.startswith(ELSEWHERE):
            return link[0]
        path, mark, anchor = to.partition("#")
        target = normpath(PurePosixPath(source).parent / path)
        place = places.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if place is None:
            return words
        return f"{whole}({relpath(place, PurePosixPath(uri).parent.as_posix())}{mark}{anchor})"

    return LINK.sub(led, markdown)
