"""Data that is not what Redis wrote here, or less of it, is moved aside: the master comes up blank."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lockd.guard import MARK, Guard, GuardError, Reason
from tests.unit.guard_world import CLEAN, KILLED, World


@pytest.fixture
def running(tmp_path: Path) -> World:
    """Its Redis runs, and the watch has looked at its data."""
    world = World(tmp_path)
    world.run_and_stop()
    world.enter()
    world.guard().mark_data()
    return world


def is_blank(world: World) -> bool:
    return not (world.data / "appendonlydir").exists() and not (world.data / "appendonly.aof").exists()


def aside(world: World) -> list[Path]:
    return [path for path in world.data.iterdir() if ".aside-" in path.name]


def lose_power(world: World) -> None:
    """Nobody sees Redis end: `leave` does not run."""
    world.host.reboot()


def shorten(world: World) -> None:
    os.truncate(world.aof, world.aof.stat().st_size - 1)


def put_back_an_older_copy(world: World) -> None:
    copy = world.data / "copy"
    shutil.copy2(world.aof, copy)
    with world.aof.open("ab") as file:
        file.write(b"*1\r\n")
    world.guard().mark_data()
    copy.rename(world.aof)


def put_back_the_folder(world: World) -> None:
    folder = world.aof.parent
    shutil.copytree(folder, world.data / "copy")
    shutil.rmtree(folder)
    (world.data / "copy").rename(folder)


def write_over_it(world: World) -> None:
    with world.aof.open("r+b") as file:
        file.seek(-10, os.SEEK_END)
        file.write(b"0123456789")


def take_another_machines_disk(world: World) -> None:
    world.host.machine = "machine-2"


def take_a_manifest_of_long_ago(world: World) -> None:
    world.edit(MARK, rewrites=7, file="appendonly.aof.8.incr.aof")


def take_a_manifest_from_far_ahead(world: World) -> None:
    """As of the same master before it was wiped: its numbers began anew then."""
    rewritten(world, 9)


def remove_the_file(world: World) -> None:
    world.aof.unlink()


def lose_the_note(world: World) -> None:
    (world.state / MARK).unlink()


def damage_the_note(world: World) -> None:
    (world.state / MARK).write_text("{")


def rewritten(world: World, number: int) -> None:
    """Redis has begun a new base, and new files."""
    folder = world.aof.parent
    name = "appendonly.aof"
    (folder / f"{name}.manifest").write_text(
        f"file {name}.{number}.base.rdb seq {number} type b\n"
        f"file {name}.{number + 1}.incr.aof seq {number + 1} type i\n"
    )
    (folder / f"{name}.{number}.base.rdb").write_bytes(b"REDIS0010")
    (folder / f"{name}.{number + 1}.incr.aof").write_bytes(b"")
    world.aof.unlink()


@pytest.mark.parametrize(
    "change",
    [
        shorten,
        put_back_an_older_copy,
        put_back_the_folder,
        write_over_it,
        take_another_machines_disk,
        take_a_manifest_of_long_ago,
        take_a_manifest_from_far_ahead,
        remove_the_file,
        lose_the_note,
        damage_the_note,
    ],
)
def test_data_that_is_not_what_redis_wrote_here_is_moved_aside_and_kept(
    running: World, change: Callable[[World], None]
) -> None:
    change(running)
    lose_power(running)
    running.start_for(Reason.NO_MARKER)
    assert is_blank(running)
    assert len(aside(running)) == 1
    assert "data_moved_aside" in running.host.events()
    assert any("its data was moved aside" in status for status in running.host.statuses)
    assert running.metrics()["redis_lock_guard_data_moved_aside_total"] == 1


def grow(world: World) -> None:
    with world.aof.open("ab") as file:
        file.write(b"*1\r\n")


def tear_off_what_was_never_noted(world: World) -> None:
    grow(world)
    os.truncate(world.aof, world.aof.stat().st_size - 3)


def begin_a_rewrite(world: World) -> None:
    manifest = world.aof.parent / "appendonly.aof.manifest"
    manifest.write_text(manifest.read_text() + "file appendonly.aof.2.incr.aof seq 2 type i\n")
    (world.aof.parent / "appendonly.aof.2.incr.aof").write_bytes(b"*1\r\n")


def finish_a_rewrite(world: World) -> None:
    rewritten(world, 1)


@pytest.mark.parametrize(
    "change", [lambda _: None, grow, tear_off_what_was_never_noted, begin_a_rewrite, finish_a_rewrite]
)
def test_what_redis_itself_has_written_since_the_last_note_stays(
    running: World, change: Callable[[World], None]
) -> None:
    change(running)
    lose_power(running)
    running.start_for(Reason.NO_MARKER)
    assert not is_blank(running)
    assert aside(running) == []


@pytest.mark.parametrize("ended", [CLEAN, KILLED])
def test_the_end_of_redis_is_noted_however_it_ended(running: World, ended: dict[str, str]) -> None:
    grow(running)
    running.leave(ended)
    shorten(running)
    running.enter()
    assert is_blank(running)


def test_data_that_was_put_there_when_redis_had_ended_is_not_noted(running: World) -> None:
    running.leave(KILLED)
    shorten(running)
    running.guard().mark_data()
    running.enter()
    assert is_blank(running)


def test_data_on_a_machine_that_has_never_seen_it_is_moved_aside(tmp_path: Path) -> None:
    world = World(tmp_path)
    lose_the_note(world)
    world.start_for(Reason.FIRST_START)
    assert is_blank(world)


def test_where_there_is_no_data_nothing_is_moved(running: World) -> None:
    shutil.rmtree(running.data / "appendonlydir")
    lose_power(running)
    running.start_for(Reason.NO_MARKER)
    assert aside(running) == []


def test_after_a_clean_stop_nothing_is_compared(running: World) -> None:
    running.leave(CLEAN)
    lose_the_note(running)
    assert running.enter() == 0
    assert not is_blank(running)


def test_an_aof_in_one_file_is_looked_at_as_well(tmp_path: Path) -> None:
    world = World(tmp_path)
    shutil.rmtree(world.data / "appendonlydir")
    single = world.data / "appendonly.aof"
    single.write_bytes(b"*1\r\n" * 10)
    world.note_data()
    os.truncate(single, 8)
    world.enter()
    assert is_blank(world)
    assert len(aside(world)) == 1


def test_data_that_can_not_be_moved_aside_keeps_redis_out(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    shorten(running)
    lose_power(running)
    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(GuardError):
        Guard.enter(running.guard())


def test_an_end_that_is_not_on_disk_yet_is_not_noted(running: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written while it is synced may be torn off by a power cut."""
    real_sync = os.fsync

    def sync(file: int) -> None:
        real_sync(file)
        if os.fstat(file).st_ino == running.aof.stat().st_ino:
            grow(running)

    before = running.aof.stat().st_size
    monkeypatch.setattr(os, "fsync", sync)
    running.guard().mark_data()
    monkeypatch.undo()
    os.truncate(running.aof, before)
    lose_power(running)
    running.enter()
    assert not is_blank(running)
