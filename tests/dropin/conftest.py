"""Each test is one scene with one library, on the hosts of its module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dropin.libraries import LIBRARIES, QUICK
from tests.dropin.library import Library
from tests.dropin.scenes import SCENES, Scene
from tests.dropin.stage import Hosts, Stage
from tests.dropin.table import BETWEEN, CELL


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Library after library, each with the scenes that it has something for and its module `plays`."""
    if "stage" not in metafunc.fixturenames:
        return
    cases = [
        pytest.param(library, scene, id=f"{name}-{library.title}", marks=marks_of(library))
        for library in LIBRARIES
        for name, scene in SCENES.items()
        if scene.is_for(library) and metafunc.module.plays(library, name)
    ]
    metafunc.parametrize(("stage", "scene"), cases, indirect=["stage"])


def marks_of(library: Library) -> list[pytest.MarkDecorator]:
    return [] if library.title == QUICK else [pytest.mark.thorough]


class Theatre:
    """The stage of the library whose turn it is: its programs stay from scene to scene."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._stage: Stage | None = None

    def stage_of(self, library: Library) -> Stage:
        if self._stage is None or self._stage.library is not library:
            self.close()
            self._stage = Stage(library, self._hosts)
        return self._stage

    def close(self) -> None:
        if self._stage is not None:
            self._stage.close()


@pytest.fixture(scope="module")
def theatre(hosts: Hosts) -> Iterator[Theatre]:
    made = Theatre(hosts)
    yield made
    made.close()


@pytest.fixture
def stage(request: pytest.FixtureRequest, scene: Scene) -> Iterator[Stage]:
    library: Library = request.param
    request.node.user_properties.append((CELL, library.title + BETWEEN + scene.title))
    library.command()  # skips where the library is not there, and nothing is started
    made = request.getfixturevalue("theatre").stage_of(library)
    yield made
    made.end_scene()
