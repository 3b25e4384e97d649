"""One of the five masters was killed: lock code of others does not notice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dropin.library import Library
from tests.dropin.scenes import SCENES, Place, Scene
from tests.dropin.stage import Hosts, Stage, agents_without_a_master

pytestmark = pytest.mark.thorough


def plays(_library: Library, scene: str) -> bool:
    return SCENES[scene].place is Place.WITHOUT_A_MASTER


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with agents_without_a_master() as running:
        yield running


def test_over_agents(stage: Stage, scene: Scene) -> None:
    scene.play(stage)
