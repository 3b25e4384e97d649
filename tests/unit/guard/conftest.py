"""A master's host before its first start, after a clean stop, and while its Redis runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.masters import short_folder
from tests.unit.guard.world import World


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory, where there is such a folder: the guard has the disk confirm whatever it writes, and on a
    real one most of the time of these tests was that."""
    with short_folder() as folder:
        yield folder


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Redis was never started."""
    return World(tmp_path)


@pytest.fixture
def stopped(world: World) -> World:
    """Redis has just stopped cleanly."""
    world.run_and_stop()
    return world


@pytest.fixture
def running(stopped: World) -> World:
    """Redis runs, after a clean stop and start."""
    assert stopped.enter() == 0
    return stopped


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "guard.conf"
    path.write_text(
        "[guard]\nmax_ttl_ms = 60000  # as everywhere\n"
        f"data_dir = {tmp_path}/data\nunit = m.service\nstate_dir = {tmp_path}/state\ntextfile =\n"
    )
    path.chmod(0o644)
    return path
