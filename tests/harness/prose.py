"""Texts that people read, and mistakes in them, each with its place.

A check goes through all texts of a kind in one test. What it finds is a list of mistakes: its failure names
every file, line and word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Passage(NamedTuple):
    """A text, or a part of one, with the line of its file on which it begins (0: it has no lines)."""

    of: str
    text: str
    line: int = 1

    def mistake(self, what: str, at: int | None = None) -> str:
        """at: where in the text it is; if nobody knows, where these words stand first."""
        begins = max(0, self.text.find(what) if at is None else at)
        line = self.line and self.line + self.text.count("\n", 0, begins)
        return f"{self.of}:{line}: {what}" if line else f"{self.of}: {what}"


Check = Callable[[Passage], Iterable[str]]
"""What is wrong with a text: nothing, or mistakes."""


def name_of(path: Path) -> str:
    """As one names it in the repository; a file elsewhere by its name alone."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def page(path: Path) -> Passage:
    return Passage(name_of(path), path.read_text())


def pages(paths: Iterable[Path]) -> Iterator[Passage]:
    return (page(path) for path in paths)


def mistakes(check: Check, texts: Iterable[Passage]) -> list[str]:
    return [found for text in texts for found in check(text)]


def expect_none(found: list[str]) -> None:
    """All are named, however many there are."""
    assert not found, "\n".join(["", *found])


def words(pattern: re.Pattern[str]) -> Check:
    """Each word of the pattern is one."""
    return lambda text: [text.mistake(found[0], found.start()) for found in pattern.finditer(text.text)]


FENCED = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)


def without(code: re.Pattern[str], text: Passage) -> Passage:
    """With as many lines as before."""
    return text._replace(text=code.sub(lambda found: "\n" * found[0].count("\n"), text.text))
