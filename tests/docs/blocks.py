"""Blocks of code in a page, and what is needed to compare what was printed with what the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Block(NamedTuple):
    language: str
    text: str


class Command(NamedTuple):
    """What is typed, and what the page says comes of it."""

    line: str
    shown: str


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", page.read_text(), re.M | re.S)
    return [Block(language, re.sub(f"^{indent}", "", text, flags=re.M)) for indent, language, text in found]


def commands(console: str) -> Iterator[Command]:
    for typed in re.split(r"^\$ ", console, flags=re.M)[1:]:
        line, _, shown = typed.partition("\n")
        yield Command(line, shown)


def alike(text: str) -> list[str]:
    """Its lines, without what differs each time: numbers, tokens, how columns are aligned."""
    lines = (re.sub(r"\b[0-9a-f]{32}\b", "TOKEN", line.strip()) for line in text.splitlines())
    return [re.sub(r"\d+(\.\d+)?", "N", line) for line in lines if line]
