"""Lock code of others, unchanged, on two hosts: each scene with each library that has what it needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dropin.library import Library
from tests.dropin.scenes import SCENES, Place, Scene
from tests.dropin.stage import Hosts, Stage, agents


def plays(_library: Library, scene: str) -> bool:
    return SCENES[scene].place is not Place.WITHOUT_A_MASTER


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with agents() as running:
        yield running


def test_over_agents(stage: Stage, scene: Scene) -> None:
    scene.play(stage)
