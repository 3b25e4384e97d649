"""Data that is not what Redis wrote here, or less of it, is moved aside: the master comes up blank."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lockd.guard.data import awaits_data, mark_data
from lockd.guard.delay import NS_PER_S
from lockd.guard.errors import GuardError
from lockd.guard.marks import REWRITE_SLACK_S
from lockd.guard.reasons import Reason
from lockd.guard.state_folder import MARK, MARKER, PREVIOUS_MARK, STATE
from lockd.guard.status import described, status
from tests.unit.guard.world import CLEAN, DELAY_NS, KILLED, Dead, World, fails

Change = Callable[[World], object]


@pytest.fixture
def running(running: World) -> World:
    """The watch has looked at the data of its Redis."""
    mark_data(running.guard())
    return running


def is_blank(world: World) -> bool:
    return not (world.data / "appendonlydir").exists() and not (world.data / "appendonly.aof").exists()


def aside(world: World) -> list[Path]:
    return [path for path in world.data.iterdir() if ".aside-" in path.name]


def starts(world: World, *, blank: bool) -> None:
    world.enter()
    assert is_blank(world) == blank


def starts_after_power_cut(world: World, *, blank: bool) -> None:
    """Nobody saw Redis end: `leave` did not run."""
    world.host.reboot()
    world.start_for(Reason.NO_MARKER)
    assert is_blank(world) == blank


def grow(world: World) -> None:
    with world.aof.open("ab") as file:
        file.write(b"*1\r\n")


def shorten(world: World, by_bytes: int = 1) -> None:
    os.truncate(world.aof, world.aof.stat().st_size - by_bytes)


def tear_off_what_was_never_noted(world: World) -> None:
    grow(world)
    shorten(world, by_bytes=3)


def put_back_an_older_copy(world: World) -> None:
    copy = world.data / "copy"
    shutil.copy2(world.aof, copy)
    grow(world)
    mark_data(world.guard())
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


def take_a_manifest_of_long_ago(world: World) -> None:
    world.edit(MARK, rewrites=7, file="appendonly.aof.8.incr.aof")


def take_a_manifest_from_far_ahead(world: World) -> None:
    """As of the same master before it was wiped: its numbers began anew then. Its files are older."""
    rewritten(world, 9)
    keep_old_times(world)


def keep_old_times(world: World) -> None:
    last_seen_s = json.loads((world.state / MARK).read_text())["at_s"]
    for path in world.aof.parent.iterdir():
        os.utime(path, (last_seen_s, last_seen_s - REWRITE_SLACK_S - 1))


def lose_the_note(world: World) -> None:
    (world.state / MARK).unlink()


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


def begin_a_rewrite(world: World) -> None:
    manifest = world.aof.parent / "appendonly.aof.manifest"
    manifest.write_text(manifest.read_text() + "file appendonly.aof.2.incr.aof seq 2 type i\n")
    (world.aof.parent / "appendonly.aof.2.incr.aof").write_bytes(b"*1\r\n")


NOT_OURS: dict[str, tuple[Change, str]] = {
    "shorter": (shorten, "is shorter than it was"),
    "an older copy": (put_back_an_older_copy, "is a different file"),
    "a copy of the folder": (put_back_the_folder, "its folder is a different one"),
    "written over": (write_over_it, "is not what Redis wrote"),
    "another machine's": (lambda world: setattr(world.host, "machine", "machine-2"), "another machine"),
    "of long ago": (take_a_manifest_of_long_ago, "it is older, or from another master"),
    "from far ahead": (take_a_manifest_from_far_ahead, "is older than when it was last seen"),
    "without its file": (lambda world: world.aof.unlink(), "Redis has not written this"),
    "never noted": (lose_the_note, "there is no record that it was written here"),
}


@pytest.mark.parametrize(("change", "why"), NOT_OURS.values(), ids=NOT_OURS)
def test_data_that_is_not_what_redis_wrote_here_is_moved_aside_and_operators_are_told_where_it_is_and_why(
    running: World, change: Change, why: str
) -> None:
    assert "moved aside" not in described(status(running.guard()))
    change(running)
    starts_after_power_cut(running, blank=True)
    [moved] = aside(running)
    [told] = [line for line in described(status(running.guard())).splitlines() if "moved aside" in line]
    assert f"1, latest {running.data}/*{moved.suffix} (" in told
    assert why in told
    assert "data_moved_aside" in running.host.events()
    assert any("its data was moved aside" in status for status in running.host.statuses)
    assert running.metrics()["lockd_guard_data_moved_aside_total"] == 1


WRITTEN_SINCE: dict[str, Change] = {
    "nothing": lambda _: None,
    "more": grow,
    "what the power cut tore off": tear_off_what_was_never_noted,
    "the beginning of a rewrite": begin_a_rewrite,
    "a rewrite": lambda world: rewritten(world, 1),
    "many, while the watch was dead": lambda world: rewritten(world, 9),
}


@pytest.mark.parametrize("change", WRITTEN_SINCE.values(), ids=WRITTEN_SINCE)
def test_what_redis_itself_has_written_since_the_last_note_stays(running: World, change: Change) -> None:
    change(running)
    starts_after_power_cut(running, blank=False)
    assert aside(running) == []


@pytest.mark.parametrize("ended", [CLEAN, KILLED], ids=["clean", "killed"])
@pytest.mark.parametrize("change", [shorten, lambda world: rewritten(world, 1)], ids=["shorter", "rewritten"])
def test_the_end_of_redis_is_noted_however_it_ended_and_nothing_that_the_watch_sees_after_it(
    running: World, ended: dict[str, str], change: Change
) -> None:
    grow(running)
    running.leave(ended)
    mark_data(running.guard())
    change(running)
    mark_data(running.guard())
    starts(running, blank=True)


def test_data_on_a_machine_that_has_never_seen_it_is_moved_aside(world: World) -> None:
    lose_the_note(world)
    world.start_for(Reason.FIRST_START)
    assert is_blank(world)


def test_where_there_is_no_data_nothing_is_moved(running: World) -> None:
    shutil.rmtree(running.data / "appendonlydir")
    starts_after_power_cut(running, blank=True)
    assert aside(running) == []


def test_after_a_clean_stop_nothing_is_compared(running: World) -> None:
    running.leave(CLEAN)
    lose_the_note(running)
    assert running.enter() == 0
    assert not is_blank(running)


def test_data_that_can_not_be_moved_aside_keeps_redis_out(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(running)
    running.host.reboot()
    fails("rename", errno.ENOSPC, monkeypatch, of="appendonlydir")
    with pytest.raises(GuardError, match="can't be moved aside"):
        running.enter()


def test_an_end_that_is_not_on_disk_yet_is_not_noted(running: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written while it is synced may be torn off by a power cut."""
    real_sync = os.fsync

    def sync(file: int) -> None:
        real_sync(file)
        if os.fstat(file).st_ino == running.aof.stat().st_ino:
            grow(running)

    before = running.aof.stat().st_size
    with monkeypatch.context() as syncing:
        syncing.setattr(os, "fsync", sync)
        mark_data(running.guard())
    os.truncate(running.aof, before)
    starts_after_power_cut(running, blank=False)


# What shows nothing


def test_a_record_of_an_earlier_guard_is_read_and_the_data_stays(running: World) -> None:
    """It knew neither the fields nor the marks."""
    record = json.loads((running.state / STATE).read_text())
    for name in ("moved_aside", "aside", "marked"):
        del record[name]
    (running.state / STATE).write_text(json.dumps(record))
    lose_the_note(running)
    starts_after_power_cut(running, blank=False)


def test_a_mark_that_can_not_be_read_keeps_redis_out_until_somebody_gives_the_data_up(running: World) -> None:
    running.spoil(MARK, b"{")
    for _ in range(2):
        with pytest.raises(GuardError, match=r"remove .*mark\.json"):
            running.enter()
        assert not is_blank(running)
    lose_the_note(running)
    starts_after_power_cut(running, blank=True)


FAULTS = [
    *(("open", error, file) for error in (errno.EIO, errno.EMFILE, errno.EACCES)
      for file in ("appendonlydir", "manifest", ".incr.aof", MARK)),
    ("pread", errno.EIO, ".incr.aof"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "file"), FAULTS)
def test_an_error_that_may_pass_keeps_redis_out_and_the_data_where_it_is(
    running: World, monkeypatch: pytest.MonkeyPatch, call: str, error: int, file: str
) -> None:
    running.host.reboot()
    with monkeypatch.context() as failing:
        fails(call, error, failing, of=file)
        with pytest.raises(GuardError, match=os.strerror(error)):
            running.enter()
    assert not is_blank(running)
    assert running.enter() == DELAY_NS
    assert not is_blank(running)


# The first note


@pytest.fixture
def blank(world: World) -> World:
    """A new host, without data: its Redis is let start."""
    shutil.rmtree(world.data / "appendonlydir")
    lose_the_note(world)
    world.enter()
    return world


def test_data_that_redis_has_begun_since_its_first_start_stays_though_nobody_has_noted_it(
    blank: World,
) -> None:
    blank.write_data()
    starts_after_power_cut(blank, blank=False)
    assert not awaits_data(blank.guard())


def test_data_that_comes_when_redis_has_ended_without_any_is_moved_aside(blank: World) -> None:
    blank.leave(KILLED)
    blank.write_data()
    starts(blank, blank=True)


def test_data_that_comes_during_the_quarantine_of_a_blank_master_is_not_let_in(blank: World) -> None:
    blank.leave(KILLED)

    def restore() -> None:
        if is_blank(blank):
            blank.write_data()

    blank.host.while_waiting = restore
    with pytest.raises(GuardError, match="changed during the quarantine"):
        blank.enter()
    blank.host.while_waiting = lambda: None
    starts(blank, blank=True)


def begin_in_another_folder(world: World) -> None:
    world.data.rename(world.data.with_name("other"))
    world.data.mkdir()
    world.write_data()


def put_older_data(world: World) -> None:
    world.write_data()
    keep_old_times(world)


@pytest.mark.parametrize("change", [put_older_data, begin_in_another_folder])
def test_data_that_redis_can_not_have_begun_since_its_first_start_is_moved_aside(
    blank: World, change: Change
) -> None:
    change(blank)
    starts_after_power_cut(blank, blank=True)


# Redis before 7


@pytest.fixture
def single(world: World) -> Path:
    """The AOF of Redis 6.2, which runs."""
    shutil.rmtree(world.data / "appendonlydir")
    single = world.data / "appendonly.aof"
    single.write_bytes(b"*1\r\n" * 10)
    world.note_data()
    world.enter()
    mark_data(world.guard())
    return single


def rewrite_one_file(single: Path) -> None:
    new = single.with_name("temp-rewriteaof-bg-1.aof")
    new.write_bytes(b"*1\r\n")
    new.rename(single)


def upgraded(world: World, single: Path) -> None:
    """Redis 7 makes a folder with the file as its base, and only later another to write to."""
    folder = world.data / "appendonlydir"
    folder.mkdir()
    single.rename(folder / single.name)
    (folder / "appendonly.aof.manifest").write_text("file appendonly.aof seq 1 type b\n")


@pytest.mark.parametrize("then", [lambda *_: None, upgraded], ids=["as it was", "taken over by Redis 7"])
def test_an_aof_in_one_file_that_was_shortened_is_moved_aside(
    world: World, single: Path, then: Callable[[World, Path], None]
) -> None:
    os.truncate(single, 8)
    then(world, single)
    starts_after_power_cut(world, blank=True)
    assert len(aside(world)) == 1


def test_another_single_file_may_be_a_rewrite_until_redis_was_seen_to_end(world: World, single: Path) -> None:
    rewrite_one_file(single)
    assert mark_data(world.guard()) == ""
    rewrite_one_file(single)
    starts_after_power_cut(world, blank=False)
    world.leave(KILLED)
    rewrite_one_file(single)
    starts(world, blank=True)


def test_an_aof_that_redis_7_has_just_taken_over_stays_and_is_noted(world: World, single: Path) -> None:
    upgraded(world, single)
    starts_after_power_cut(world, blank=False)
    assert mark_data(world.guard()) == ""
    assert json.loads((world.state / MARK).read_text())["file"] == "appendonly.aof"


# Under a running Redis


def test_a_torn_end_that_redis_cuts_off_as_it_loads_is_no_shortened_data(running: World) -> None:
    grow(running)
    running.leave(KILLED)
    running.enter()
    running.host.loaded = False
    assert mark_data(running.guard()) == ""
    shorten(running)
    assert mark_data(running.guard()) == ""
    running.leave(CLEAN)
    assert running.enter() == 0


@pytest.mark.parametrize("change", [shorten, put_back_the_folder, write_over_it, take_a_manifest_of_long_ago])
def test_data_that_was_put_under_a_running_redis_is_not_noted_and_no_stop_of_it_is_clean(
    running: World, change: Callable[[World], None]
) -> None:
    change(running)
    before = (running.state / MARK).read_bytes()
    assert mark_data(running.guard())
    assert (running.state / MARK).read_bytes() == before
    running.leave(CLEAN)
    assert (running.state / MARK).read_bytes() == before
    assert not (running.state / MARKER).exists()
    running.start_for(Reason.DATA_CHANGED)
    assert is_blank(running)


def test_a_rewrite_under_a_running_redis_is_noted(running: World) -> None:
    rewritten(running, 1)
    assert mark_data(running.guard()) == ""
    assert json.loads((running.state / MARK).read_text())["rewrites"] == 1


# Data that is gone


def unmount(world: World) -> None:
    world.data.rename(world.data.with_name("disk"))
    world.data.mkdir()


def mount(world: World) -> None:
    shutil.rmtree(world.data)
    world.data.with_name("disk").rename(world.data)


def test_data_whose_disk_comes_back_is_accepted_again_unless_it_is_shorter(running: World) -> None:
    unmount(running)
    starts_after_power_cut(running, blank=True)
    assert "data_gone" in running.host.events()
    running.leave(KILLED)
    mount(running)
    starts(running, blank=False)
    assert aside(running) == []
    assert "data_back" in running.host.events()
    assert mark_data(running.guard()) == ""
    unmount(running)
    starts_after_power_cut(running, blank=True)
    mount(running)
    shorten(running)
    starts_after_power_cut(running, blank=True)
    assert (running.state / PREVIOUS_MARK).exists()


def test_it_is_accepted_though_another_master_began_in_its_place(running: World) -> None:
    running.leave(CLEAN)
    unmount(running)
    running.enter()
    running.write_data()
    mark_data(running.guard())
    running.leave(CLEAN)
    mount(running)
    starts(running, blank=False)


def test_what_was_moved_aside_is_not_accepted_when_it_is_put_back(running: World) -> None:
    shorten(running)
    starts_after_power_cut(running, blank=True)
    running.write_data()
    mark_data(running.guard())
    running.leave(KILLED)
    shutil.rmtree(running.data / "appendonlydir")
    [moved] = aside(running)
    moved.rename(running.data / "appendonlydir")
    starts(running, blank=True)


# Between two steps


@pytest.mark.parametrize("moved", [True, False])
def test_a_start_that_dies_as_it_moves_data_aside_is_mended_by_the_next(
    running: World, monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    real_rename = os.rename

    def dies(source: object, target: object, **folders: int) -> None:
        is_the_move = ".aside-" in str(target)
        if moved or not is_the_move:
            real_rename(source, target, **folders)  # type: ignore[arg-type]
        if is_the_move:
            raise Dead

    shorten(running)
    with monkeypatch.context() as dying:
        dying.setattr(os, "rename", dies)
        with pytest.raises(Dead):
            running.enter()
    starts_after_power_cut(running, blank=True)
    assert running.metrics()["lockd_guard_data_moved_aside_total"] >= 1
    running.write_data()
    starts_after_power_cut(running, blank=False)


def test_a_stop_is_written_down_though_the_note_of_its_data_can_not_be(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as failing:
        fails("open", errno.ENOSPC, failing, of=f".{MARK}.new")
        running.leave(CLEAN)
    assert "no_mark" in running.host.events()
    assert running.enter() == 0


def test_the_metrics_say_when_the_data_was_last_noted(running: World) -> None:
    metric = "lockd_guard_data_marked_timestamp_seconds"
    noted_s = running.host.wall_ns() // NS_PER_S
    running.host.now_ns += 100 * NS_PER_S
    running.guard().write_metrics()
    assert running.metrics()[metric] == noted_s
    mark_data(running.guard())
    running.guard().write_metrics()
    assert running.metrics()[metric] == noted_s + 100
    running.leave(CLEAN)
    assert running.metrics()[metric] == 0
