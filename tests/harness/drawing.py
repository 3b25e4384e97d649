"""A terminal's screen as an SVG: what a program has written, through a terminal emulator (pyte)."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

import pyte

CELL_W, CELL_H, MARGIN, BAR = 8.4, 18.0, 12.0, 26.0
BACKGROUND, FOREGROUND = "#16181c", "#dddddd"
COLOURS = {
    "black": "#16181c", "red": "#f87171", "green": "#4ade80", "brown": "#facc15", "yellow": "#facc15",
    "blue": "#8ab4f8", "magenta": "#e879f9", "cyan": "#67e8f9", "white": "#ffffff", "default": "",
}  # fmt: skip
NO_BREAK = "\N{NO-BREAK SPACE}"
"""Browsers draw several spaces as one, but not several of these."""
BAD_BACKGROUND = "#b91c1c"
"""Behind white text, where the red of text would be too light."""


class Style(NamedTuple):
    colour: str
    behind: str
    bold: bool
    dim: bool


def svg(lines: list[list[tuple[str, Style]]], title: str) -> str:
    """Lines of characters, each with its style."""
    columns = max((len(line) for line in lines), default=1)
    width, height = 2 * MARGIN + columns * CELL_W, BAR + MARGIN + len(lines) * CELL_H + MARGIN / 2
    body = "\n".join(part for number, line in enumerate(lines) for part in _line(number, line))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{BACKGROUND}"/>\n'
        f'<g font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" '
        f'fill="{FOREGROUND}">\n'
        f'<text x="{width / 2:g}" y="18" text-anchor="middle" fill="#888888">{escape(title)}</text>\n'
        f"{body}\n</g>\n</svg>\n"
    )


def _line(number: int, line: list[tuple[str, Style]]) -> Iterator[str]:
    """One text for each run of a style, of exactly as many cells as it has characters."""
    top, column = BAR + number * CELL_H, 0
    for style, run in groupby(line, key=lambda cell: cell[1]):
        text = "".join(character for character, _ in run)
        x, width = MARGIN + column * CELL_W, len(text) * CELL_W
        column += len(text)
        if style.behind:
            yield f'<rect x="{x:g}" y="{top:g}" width="{width:g}" height="{CELL_H:g}" fill="{style.behind}"/>'
        if text.strip():
            look = (f' fill="{style.colour}"' if style.colour else "") + (
                ' font-weight="bold"' if style.bold else ""
            )
            look += ' opacity="0.6"' if style.dim else ""
            yield (
                f'<text x="{x:g}" y="{top + 13.5:g}" textLength="{width:g}" '
                f'lengthAdjust="spacingAndGlyphs"{look}>{escape(text).replace(" ", NO_BREAK)}</text>'
            )


def lines_of(written: str, columns: int, rows: int) -> list[list[tuple[str, Style]]]:
    """What stands on the screen once this has been written, without the empty lines at its end."""
    screen = pyte.Screen(columns, rows)
    pyte.Stream(screen).feed(written)
    lines = [[_cell(screen.buffer[y][x]) for x in range(columns)] for y in range(rows)]
    while lines and not any(character.strip() or style.behind for character, style in lines[-1]):
        lines.pop()
    return lines


def _cell(cell: Any) -> tuple[str, Style]:
    behind = COLOURS.get(cell.bg, f"#{cell.bg}")
    behind = BAD_BACKGROUND if cell.bg == "red" else behind
    return cell.data or " ", Style(COLOURS.get(cell.fg, f"#{cell.fg}"), behind, cell.bold, False)
