"""docs/reference/tried-libraries.md has each library with all that was played, and says what that is."""

from __future__ import annotations

from tests.dropin.__main__ import PAGE, with_table
from tests.dropin.libraries import LIBRARIES
from tests.dropin.scenes import SCENES
from tests.dropin.table import NOT_OFFERED, PLAYED, line_of, marked, notes_of_libraries


def test_the_table_has_each_library_and_each_scene() -> None:
    lines = PAGE.read_text().splitlines()
    assert line_of(["library", *(scene.title for scene in SCENES.values())]) in lines
    notes = notes_of_libraries()
    for library in LIBRARIES:
        cells = [PLAYED if scene.is_for(library) else NOT_OFFERED for scene in SCENES.values()]
        assert line_of([marked(library, notes), *cells]) in lines


def test_the_page_says_what_each_scene_is() -> None:
    page = PAGE.read_text()
    assert [scene.title for scene in SCENES.values() if f"**{scene.title}**" not in page] == []


def test_the_table_takes_the_place_of_the_one_before_and_of_nothing_else() -> None:
    before = PAGE.read_text()
    after = with_table(before, "| a |\n")
    assert with_table(after, "| b |\n") == after.replace("| a |\n", "| b |\n")
    kept = [line for line in before.splitlines() if line.startswith("#")]
    assert [line for line in after.splitlines() if line.startswith("#")] == kept
