"""docs/tried-libraries.md has what there is, as it was when all of it was played."""

from __future__ import annotations

from tests.dropin.__main__ import PAGE
from tests.dropin.libraries import LIBRARIES
from tests.dropin.scenes import SCENES
from tests.dropin.table import NOT_OFFERED, PLAYED, line_of, marked, notes_of_libraries


def test_the_page_has_each_library_and_each_scene() -> None:
    lines = PAGE.read_text().splitlines()
    assert line_of(["library", *(scene.title for scene in SCENES.values())]) in lines
    notes = notes_of_libraries()
    for library in LIBRARIES:
        cells = [PLAYED if scene.is_for(library) else NOT_OFFERED for scene in SCENES.values()]
        assert line_of([marked(library, notes), *cells]) in lines


def test_the_page_says_what_each_scene_is() -> None:
    page = PAGE.read_text()
    assert [scene.title for scene in SCENES.values() if f"**{scene.title}**" not in page] == []
