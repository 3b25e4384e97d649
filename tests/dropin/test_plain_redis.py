"""Scenes and programs are right: on one plain Redis, which they were written for, they play as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dropin.library import Library
from tests.dropin.scenes import SCENES, Place, Scene
from tests.dropin.stage import Hosts, Stage, plain_redis

pytestmark = pytest.mark.thorough


def plays(library: Library, scene: str) -> bool:
    """It has not the commands of later servers; and what is careless there plays only what it can."""
    careless = "careless" in library.offers and scene not in CARELESS_TOO
    anywhere = SCENES[scene].place is Place.ANYWHERE
    return anywhere and not careless and "newer" not in library.offers


CARELESS_TOO = ("two_processes_exclude_each_other", "it_says_who_has_it")


@pytest.fixture(scope="module")
def hosts(server_binary: Path) -> Iterator[Hosts]:
    with plain_redis(server_binary) as running:
        yield running


def test_on_one_redis(stage: Stage, scene: Scene) -> None:
    scene.play(stage)
