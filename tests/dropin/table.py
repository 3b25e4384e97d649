"""The table of libraries and what was played with each: from the tests themselves, as they were run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.dropin.libraries import LIBRARIES
from tests.dropin.library import Library
from tests.dropin.scenes import SCENES

CELL = "dropin"
"""The property of a test that names its row and column, with this between."""
BETWEEN = " · "
PLAYED, FAILED, NOT_OFFERED, NOT_HERE = "✓", "**✗**", "–", "not here"
LEGEND = f"{PLAYED} played · {NOT_OFFERED} the library has no such thing"


class Table:
    """A plugin of pytest, in the process that hears of all tests."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str], str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and report.when != "call":
            return
        now = PLAYED if report.passed else NOT_HERE if report.skipped else FAILED
        for name, cell in report.user_properties:
            if name == CELL:
                row, column = str(cell).split(BETWEEN)
                if self._cells.get((row, column)) != FAILED:
                    self._cells[row, column] = now

    @property
    def complete(self) -> bool:
        """Each library was there, and what it offers was played."""
        scenes = SCENES.values()
        wanted = {(one.title, scene.title) for one in LIBRARIES for scene in scenes if scene.is_for(one)}
        return wanted <= {cell for cell, said in self._cells.items() if said == PLAYED}

    def text(self) -> str:
        """In Markdown, with what there is to say of a library below."""
        notes = notes_of_libraries()
        head = ["library", *(scene.title for scene in SCENES.values())]
        rows = [head, ["---"] * len(head), *([marked(one, notes), *self._row(one)] for one in LIBRARIES)]
        below = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
        return "\n".join([*map(line_of, rows), "", LEGEND, "", *below]) + "\n"

    def _row(self, library: Library) -> list[str]:
        return [
            self._cells.get((library.title, scene.title), "") if scene.is_for(library) else NOT_OFFERED
            for scene in SCENES.values()
        ]


def notes_of_libraries() -> list[str]:
    return list(dict.fromkeys(library.note for library in LIBRARIES if library.note))


def marked(library: Library, notes: list[str]) -> str:
    return f"{library.title} ({notes.index(library.note) + 1})" if library.note else library.title


def line_of(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
