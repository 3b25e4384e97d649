"""Pictures of terminals and of the status page: each is shown somewhere, and names nothing of the machine."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.made.markdown import DOCS, REPOSITORY
from tests.harness.drawing import NO_BREAK, Style, lines_of, svg

PICTURES = sorted((DOCS / "pictures").iterdir())
PAGES = (REPOSITORY / "README.md", *DOCS.rglob("*.md"))
PLAIN = Style("", "", bold=False, dim=False)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_each_is_shown_on_a_page_and_is_small(picture: Path) -> None:
    shown = [
        page for page in PAGES if re.search(rf"!\[[^\]]+\]\([^)]*pictures/{picture.name}\)", page.read_text())
    ]
    assert shown
    assert picture.stat().st_size < 300_000


@pytest.mark.parametrize(
    "picture", [one for one in PICTURES if one.suffix == ".svg"], ids=lambda one: one.name
)
def test_a_terminal_names_no_folder_and_no_host_of_this_machine(picture: Path) -> None:
    text = " ".join(ElementTree.parse(picture).getroot().itertext()).replace(NO_BREAK, " ")
    assert re.findall(r"/(?:tmp|dev/shm|root|home/(?!me/)|work)\S*", text) == []
    assert socket.gethostname() not in re.findall(r"[\w-]+", text)


def drawn(*lines: list[tuple[str, Style]]) -> list[ElementTree.Element]:
    return ElementTree.fromstring(svg(list(lines), "lockctl top")).findall(f".//{SVG}text")[1:]


def cells(text: str, style: Style = PLAIN) -> list[tuple[str, Style]]:
    return [(character, style) for character in text]


def test_columns_line_up_whatever_font_the_reader_has() -> None:
    """Each run is as wide as its characters, spaces included, so that the next one begins in its column."""
    green = Style("#4ade80", "", bold=True, dim=False)
    first, second = drawn([*cells("a  b"), *cells("up", green)])
    assert (first.text, second.text) == (f"a{NO_BREAK * 2}b", "up")
    assert float(second.attrib["x"]) == float(first.attrib["x"]) + float(first.attrib["textLength"])
    assert (second.attrib["fill"], second.attrib["font-weight"]) == ("#4ade80", "bold")


def test_what_is_on_a_screen_cannot_become_markup() -> None:
    [text] = drawn(cells("<script>&"))
    assert text.text == "<script>&"


def test_what_is_red_stands_on_its_background() -> None:
    red = Style("#ffffff", "#b91c1c", bold=True, dim=False)
    root = ElementTree.fromstring(svg([cells("LOST", red)], "lockctl top"))
    assert [one.attrib["fill"] for one in root.iter(f"{SVG}rect")][1:] == ["#b91c1c"]


def test_a_screen_is_what_an_emulator_shows_at_the_end() -> None:
    lines = lines_of("gone\r\n\x1b[H\x1b[2J\x1b[1;32mup\x1b[0m yes", 20, 5)
    assert ["".join(character for character, _ in line).rstrip() for line in lines] == ["up yes"]
    assert lines[0][0][1].bold
    assert not lines[0][3][1].bold
