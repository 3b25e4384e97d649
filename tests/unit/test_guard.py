"""The restart guard: when Redis may start at once, and all that makes it wait (rules 9, 10 and 11b)."""

from __future__ import annotations

import copy
import ctypes
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lockd.core.validity import settle_ns
from lockd.guard import __main__ as head
from lockd.guard.aof import data_fingerprint
from lockd.guard.cli import main
from lockd.guard.clock_steps import revoke
from lockd.guard.clocks import ClockAlarm, Offset, WallClock, read_offset
from lockd.guard.config import read_config
from lockd.guard.delay import NS_PER_MS, NS_PER_S, quarantine_ns
from lockd.guard.disk import Disk
from lockd.guard.enter import enter
from lockd.guard.errors import GuardError
from lockd.guard.guard import Guard
from lockd.guard.host import Host
from lockd.guard.leave import leave
from lockd.guard.overrides import write_override
from lockd.guard.reasons import Reason
from lockd.guard.state_folder import MARKER, OVERRIDE, PERMIT, STATE
from lockd.guard.status import status
from lockd.guard.watch import ClockWatch
from tests.unit.guard_world import (
    CLEAN,
    DELAY_NS,
    KILLED,
    NEVER_RAN,
    Dead,
    FailingDisk,
    FakeHost,
    FragileDisk,
    World,
)

UNIT = "lockd-master.service"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A host on which Redis was never started."""
    return World(tmp_path)


@pytest.fixture
def stopped(world: World) -> World:
    """A host on which Redis has just stopped cleanly."""
    world.run_and_stop()
    return world


@pytest.fixture
def running(stopped: World) -> World:
    """A host on which Redis runs, after a clean stop and start."""
    assert stopped.enter() == 0
    return stopped


# Clean stops


def test_the_delay_is_what_agents_reckon_with() -> None:
    for max_ttl_ms in (1_000, 60_000, 86_400_000):
        assert quarantine_ns(max_ttl_ms) == settle_ns(max_ttl_ms)
    assert quarantine_ns(60_000) == DELAY_NS


def test_after_a_clean_stop_it_starts_at_once(stopped: World) -> None:
    assert stopped.enter() == 0
    stopped.leave(CLEAN)
    assert stopped.enter() == 0


def test_a_clean_stop_is_good_for_one_start(running: World) -> None:
    # The power goes: no `leave`.
    running.start_for(Reason.NO_MARKER)


@pytest.mark.parametrize(
    "environ",
    [
        KILLED,
        {},
        NEVER_RAN,
        # Killed by SIGTERM in its first millisecond, which systemd calls a success.
        CLEAN | {"EXIT_CODE": "killed", "EXIT_STATUS": "TERM"},
        CLEAN | {"EXIT_STATUS": "143"},
        CLEAN | {"EXIT_STATUS": "1"},
        CLEAN | {"EXIT_CODE": "killed"},
        CLEAN | {"EXIT_CODE": "dumped"},
        CLEAN | {"SERVICE_RESULT": "exit-code", "EXIT_STATUS": "1"},
        CLEAN | {"SERVICE_RESULT": "timeout"},
        CLEAN | {"SERVICE_RESULT": "protocol"},
        CLEAN | {"SERVICE_RESULT": "oom-kill"},
    ],
    ids=lambda environ: "-".join(environ.values()) or "no environment",
)
def test_a_stop_is_clean_only_if_systemd_says_so_three_times(running: World, environ: dict[str, str]) -> None:
    running.leave(environ)
    running.start_for(Reason.UNCLEAN_STOP)


def test_a_stop_without_a_start_proves_nothing(stopped: World) -> None:
    stopped.leave(CLEAN)
    stopped.start_for(Reason.NO_MARKER)


@pytest.mark.parametrize("environ", [CLEAN, KILLED], ids=["clean", "killed"])
def test_a_stop_uses_up_its_permit(running: World, environ: dict[str, str]) -> None:
    running.leave(environ)
    assert not (running.state / PERMIT).exists()


def test_a_stop_on_a_host_without_any_start_proves_nothing(world: World) -> None:
    world.leave(CLEAN)
    world.start_for(Reason.NO_MARKER)


def test_a_stop_in_another_boot_than_its_start_proves_nothing(running: World) -> None:
    running.host.reboot()
    running.leave(CLEAN)
    running.start_for(Reason.NO_MARKER)


def test_a_stop_with_the_permit_of_an_earlier_start_proves_nothing(running: World) -> None:
    permit = (running.state / PERMIT).read_bytes()
    running.leave(CLEAN)
    assert running.enter() == 0
    (running.state / PERMIT).write_bytes(permit)
    running.leave(CLEAN)
    running.start_for(Reason.NO_MARKER)


def test_a_damaged_permit_is_none(running: World) -> None:
    (running.state / PERMIT).write_bytes(b"{")
    running.leave(CLEAN)
    running.start_for(Reason.NO_MARKER)


def test_the_aof_has_to_be_synced_before_a_stop_is_clean(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_fsync = os.fsync

    def fsync(file: int) -> None:
        if "appendonly.aof.1.incr" in os.readlink(f"/proc/self/fd/{file}"):
            raise OSError(5, "Input/output error")
        real_fsync(file)

    monkeypatch.setattr(os, "fsync", fsync)
    running.leave(CLEAN)
    with pytest.raises(GuardError, match="Input/output error"):
        running.enter()
    monkeypatch.undo()
    assert running.enter() == DELAY_NS


def test_what_systemd_says_of_a_stop_is_what_the_operator_reads(running: World) -> None:
    running.leave(KILLED)
    running.host.statuses.clear()
    running.enter()
    assert running.host.statuses[0] == "quarantined: 62 s left (unclean stop: killed by SIGKILL)"


# The quarantine


def test_the_first_start_waits(world: World) -> None:
    world.start_for(Reason.FIRST_START)


def test_time_that_passed_while_redis_was_down_is_not_credited(running: World) -> None:
    running.leave(KILLED)
    running.host.now_ns += 3_600 * NS_PER_S
    running.start_for(Reason.UNCLEAN_STOP)


def test_time_in_which_nobody_saw_whether_redis_ran_is_not_credited(running: World) -> None:
    running.host.now_ns += 3_600 * NS_PER_S
    running.start_for(Reason.NO_MARKER)


def test_an_interrupted_quarantine_begins_anew(running: World) -> None:
    running.leave(KILLED)
    interrupt_after(running, seconds=60)
    running.leave(NEVER_RAN)
    running.start_for(Reason.QUARANTINE_INTERRUPTED)


def test_a_stop_during_quarantine_is_not_clean_whatever_systemd_says(running: World) -> None:
    running.leave(KILLED)
    interrupt_after(running, seconds=60)
    running.leave(CLEAN)
    running.start_for(Reason.QUARANTINE_INTERRUPTED)


def test_the_stop_after_a_start_that_failed_does_not_hide_why_it_has_to_wait(running: World) -> None:
    running.leave(KILLED)
    running.leave(NEVER_RAN)
    running.start_for(Reason.UNCLEAN_STOP)


def test_a_guard_that_is_killed_in_quarantine_begins_anew(running: World) -> None:
    running.leave(KILLED)
    interrupt_after(running, seconds=60)
    running.start_for(Reason.QUARANTINE_INTERRUPTED)


def interrupt_after(world: World, seconds: int) -> None:
    end_ns = world.host.now_ns + seconds * NS_PER_S

    def die() -> None:
        if world.host.now_ns >= end_ns:
            raise Dead

    world.host.while_waiting = die
    with pytest.raises(Dead):
        world.enter()
    world.host.while_waiting = lambda: None


def test_a_quarantine_counts_the_time_that_the_host_was_suspended(world: World) -> None:
    world.host.pause_lasts = 7.0  # a pause of 1 s takes 7 s on BOOTTIME
    assert DELAY_NS <= world.enter() < DELAY_NS + 7 * NS_PER_S


def test_a_pause_that_ends_early_shortens_no_quarantine(world: World) -> None:
    world.host.pause_lasts = 0.25
    assert world.enter() >= DELAY_NS


def test_the_wall_clock_does_not_shorten_a_quarantine(world: World) -> None:
    def step() -> None:
        world.host.ahead_ns += 3_600 * NS_PER_S

    world.host.while_waiting = step
    assert world.enter() == DELAY_NS


def test_systemd_is_told_each_second_how_long_it_still_is(world: World) -> None:
    world.enter()
    left = [int(status.split()[1]) for status in world.host.statuses if status.startswith("quarantined:")]
    assert left == list(range(62, 0, -1))
    assert world.host.statuses[-1] == "let start: quarantine is over"


def test_redis_gets_no_permit_while_it_waits(world: World) -> None:
    def look() -> None:
        assert not (world.state / PERMIT).exists()
        assert not (world.state / MARKER).exists()

    world.host.while_waiting = look
    world.enter()
    assert (world.state / PERMIT).exists()


def test_the_permit_of_a_start_whose_end_nobody_saw_is_gone_at_the_next(running: World) -> None:
    def look() -> None:
        assert not (running.state / PERMIT).exists()

    running.host.while_waiting = look
    assert running.enter() == DELAY_NS


def test_after_a_quarantine_stops_are_clean_again(world: World) -> None:
    world.run_and_stop()
    assert world.enter() == 0


def test_a_second_enter_is_refused_and_hurts_nothing(world: World) -> None:
    def another() -> None:
        with pytest.raises(GuardError, match="another `enter` runs"):
            enter(Guard(world.guard().config, world.host, ImpatientDisk()))

    class ImpatientDisk(Disk):
        def _lock_within(self, file: int, wait_s: float) -> None:
            super()._lock_within(file, 0)

    world.host.while_waiting = another
    assert world.enter() == DELAY_NS


# The marker


def test_a_marker_of_an_earlier_stop_is_none(stopped: World) -> None:
    marker = (stopped.state / MARKER).read_bytes()
    stopped.enter()
    stopped.leave(KILLED)
    (stopped.state / MARKER).write_bytes(marker)
    stopped.start_for(Reason.MARKER_INVALID)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\0" * 300, b'{"version": 1}', b"\xff\xfe"])
def test_a_damaged_marker_is_none(stopped: World, content: bytes) -> None:
    (stopped.state / MARKER).write_bytes(content)
    stopped.start_for(Reason.MARKER_INVALID)


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"generation": "2"}, {"data": []}, {"synchronised": 1}, {"more": 1}]
)
def test_a_marker_of_another_format_is_none(stopped: World, change: dict[str, object]) -> None:
    stopped.edit(MARKER, **change)
    stopped.start_for(Reason.MARKER_INVALID)


def test_a_marker_of_another_machine_is_none(stopped: World) -> None:
    stopped.host.machine = "machine-2"
    stopped.start_for(Reason.OTHER_HOST)


# The data


def append(world: World) -> None:
    with world.aof.open("ab") as file:
        file.write(b"*1\r\n")


def cut_off_the_tail(world: World) -> None:
    os.truncate(world.aof, world.aof.stat().st_size - 1)


def overwrite(world: World) -> None:
    """The same size, and the same times as far as they can be set."""
    seen = world.aof.stat()
    with world.aof.open("r+b") as file:
        file.write(b"X")
    os.utime(world.aof, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def put_back_a_copy(world: World) -> None:
    """As `cp -a` from a backup: content and times are the same."""
    copy = world.aof.with_name("copy")
    shutil.copy2(world.aof, copy)
    copy.replace(world.aof)


def put_back_the_folder(world: World) -> None:
    shutil.copytree(world.data, world.data.with_name("backup"), copy_function=os.link)
    shutil.rmtree(world.data)
    world.data.with_name("backup").rename(world.data)


def remove_a_file(world: World) -> None:
    world.aof.with_name("appendonly.aof.1.base.rdb").unlink()


def add_a_file(world: World) -> None:
    world.aof.with_name("appendonly.aof.2.incr.aof").touch()


def change_the_manifest(world: World) -> None:
    world.aof.with_name("appendonly.aof.manifest").write_text("file appendonly.aof.1.base.rdb seq 1 type b\n")


def wipe(world: World) -> None:
    for path in world.data.iterdir():
        shutil.rmtree(path)


def leave_unmounted(world: World) -> None:
    world.data.rename(world.data.with_name("elsewhere"))


def make_anew(world: World) -> None:
    shutil.rmtree(world.data)
    world.write_data()


@pytest.mark.parametrize(
    "change",
    [
        append,
        cut_off_the_tail,
        overwrite,
        put_back_a_copy,
        put_back_the_folder,
        remove_a_file,
        add_a_file,
        change_the_manifest,
        wipe,
        leave_unmounted,
        make_anew,
    ],
)
def test_data_that_is_not_what_redis_left_is_dirty(stopped: World, change: Callable[[World], None]) -> None:
    change(stopped)
    stopped.start_for(Reason.DATA_CHANGED)


@pytest.mark.parametrize(
    ("field", "reason"), list(enumerate(["inode", "size", "time of change", "time of inode change", "tail"]))
)
def test_each_fact_about_a_file_counts(stopped: World, field: int, reason: str) -> None:
    marker = json.loads((stopped.state / MARKER).read_text())
    facts = marker["data"][stopped.aof.name].split()
    assert len(facts) == 5, reason
    facts[field] = "1"
    stopped.edit(MARKER, data=marker["data"] | {stopped.aof.name: " ".join(facts)})
    stopped.start_for(Reason.DATA_CHANGED)


def test_the_facts_about_the_data_are_those_of_its_files(world: World) -> None:
    """Where one file system is lax about a time or an inode, the other facts still tell."""
    facts = data_fingerprint(world.guard().config)
    seen, content = world.aof.stat(), world.aof.read_bytes()
    assert len(content) > 65_536
    tail = hashlib.sha256(content[-65_536:]).hexdigest()
    wanted = [seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, tail]
    assert facts[world.aof.name].split() == [str(one) for one in wanted]
    assert facts["."].split() == [str(folder.stat().st_ino) for folder in (world.data, world.aof.parent)]
    assert facts.keys() == {".", *os.listdir(world.aof.parent)}


def test_an_earlier_redis_with_its_aof_in_one_file_is_guarded_as_well(world: World) -> None:
    shutil.rmtree(world.data / "appendonlydir")
    single = world.data / "appendonly.aof"
    single.write_bytes(b"*1\r\n")
    world.note_data()
    world.run_and_stop()
    assert world.enter() == 0
    world.leave(CLEAN)
    single.write_bytes(b"*1\r")
    world.start_for(Reason.DATA_CHANGED)


def test_a_master_without_an_aof_never_stops_cleanly(running: World) -> None:
    wipe(running)
    running.leave(CLEAN)
    running.start_for(Reason.DATA_CHANGED)


# The clock, seen by enter and leave


def test_a_forward_step_while_redis_is_down_is_dirty(stopped: World) -> None:
    stopped.host.ahead_ns += 3 * NS_PER_MS
    stopped.start_for(Reason.CLOCK_STEP)


def test_a_forward_step_while_redis_ran_is_found_when_nobody_watched(running: World) -> None:
    running.host.ahead_ns += 3 * NS_PER_MS
    running.leave(CLEAN)
    running.start_for(Reason.CLOCK_STEP)


def test_a_step_is_found_however_long_ago_redis_started(running: World) -> None:
    running.host.now_ns += 90 * 86_400 * NS_PER_S
    running.host.ahead_ns += 70 * NS_PER_MS
    running.leave(CLEAN)
    running.start_for(Reason.CLOCK_STEP)


@pytest.mark.parametrize("step_ns", [-3_600 * NS_PER_S, 2 * NS_PER_MS])
def test_steps_that_end_no_lease_early_are_clean(stopped: World, step_ns: int) -> None:
    stopped.host.ahead_ns += step_ns
    assert stopped.enter() == 0
    stopped.host.ahead_ns += step_ns
    stopped.leave(CLEAN)
    assert stopped.enter() == 0


def test_a_clean_reboot_of_a_host_with_a_synchronised_clock_is_clean(stopped: World) -> None:
    stopped.host.reboot()
    assert stopped.enter() == 0


def test_a_clock_that_nobody_vouches_for_after_a_reboot_is_dirty(stopped: World) -> None:
    stopped.host.reboot()
    stopped.host.synchronised = False
    stopped.start_for(Reason.CLOCK_UNPROVEN)


def test_a_clock_that_nobody_vouched_for_before_a_reboot_is_dirty(running: World) -> None:
    running.host.synchronised = False
    running.leave(CLEAN)
    running.host.reboot()
    running.host.synchronised = True
    running.start_for(Reason.CLOCK_UNPROVEN)


def test_a_container_that_is_booted_anew_keeps_its_machines_clock(running: World) -> None:
    running.host.synchronised = False
    running.leave(CLEAN)
    running.host.boot = "boot-2"
    running.host.now_ns += 30 * NS_PER_S
    assert running.enter() == 0


# The guard's own record


@pytest.mark.parametrize(
    "content", [b"", b"\0\0", b"{}", b'{"version": 1, "generation": "3"}', b"[1]", b'"in_service"']
)
def test_a_damaged_record_is_dirty_and_kept(stopped: World, content: bytes) -> None:
    (stopped.state / STATE).write_bytes(content)
    assert stopped.enter() == DELAY_NS
    assert stopped.counts() == {"state_unreadable": 1}
    assert (stopped.state / f"{STATE}.damaged").read_bytes() == content
    stopped.leave(CLEAN)
    assert stopped.enter() == 0


def test_a_count_that_is_no_number_is_damage(stopped: World) -> None:
    stopped.edit(STATE, quarantines={"clock_step": "many"})
    assert stopped.enter() == DELAY_NS
    assert stopped.counts() == {"state_unreadable": 1}


def test_a_marker_without_a_record_is_none(stopped: World) -> None:
    (stopped.state / STATE).unlink()
    stopped.start_for(Reason.STATE_UNREADABLE)


def test_with_a_damaged_record_no_stop_is_clean(running: World) -> None:
    (running.state / STATE).write_bytes(b"{")
    running.leave(CLEAN)
    assert not (running.state / MARKER).exists()
    assert running.enter() == DELAY_NS
    assert running.counts() == {"state_unreadable": 1}


def test_a_wiped_state_folder_is_a_first_start(stopped: World) -> None:
    shutil.rmtree(stopped.state)
    stopped.start_for(Reason.FIRST_START)


def test_a_record_from_before_there_was_some_reason_is_none_the_worse(stopped: World) -> None:
    stopped.edit(STATE, quarantines={"first_start": 1})
    assert stopped.enter() == 0
    stopped.leave(KILLED)
    stopped.start_for(Reason.UNCLEAN_STOP)


def test_a_state_folder_that_others_may_write_to_is_refused(stopped: World) -> None:
    stopped.state.chmod(0o770)
    with pytest.raises(GuardError, match="forge"):
        stopped.enter()
    with pytest.raises(GuardError, match="forge"):
        stopped.leave(CLEAN)


def test_the_guards_files_are_for_nobody_else(running: World) -> None:
    assert running.state.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in running.state.iterdir()} == {0o600}


# The max TTL


def test_a_raised_max_ttl_counts_at_once(running: World) -> None:
    running.leave(KILLED)
    running.settings["max_ttl_ms"] = 300_000
    assert running.enter() == quarantine_ns(300_000)


def test_a_longer_delay_is_kept_and_shown(running: World) -> None:
    running.settings["delay_ms"] = 90_000
    assert running.enter() == 90_000 * NS_PER_MS
    assert status(running.guard())["delay_s"] == 90
    # It is never shorter than the leases take.
    running.settings["max_ttl_ms"] = 300_000
    assert running.enter() == quarantine_ns(300_000)


def test_a_lowered_max_ttl_counts_once_the_longer_leases_are_over(running: World) -> None:
    running.settings["max_ttl_ms"] = 10_000
    running.leave(KILLED)
    assert running.enter() == DELAY_NS
    running.leave(KILLED)
    assert running.enter() == quarantine_ns(10_000)


def test_clean_restarts_do_not_forget_the_longer_leases(running: World) -> None:
    running.settings["max_ttl_ms"] = 10_000
    for _ in range(2):
        running.leave(CLEAN)
        assert running.enter() == 0
    running.leave(KILLED)
    assert running.enter() == DELAY_NS


def test_a_lost_record_does_not_forget_the_longer_leases(running: World) -> None:
    running.settings["max_ttl_ms"] = 10_000
    (running.state / STATE).unlink()
    assert running.enter() == DELAY_NS


def test_an_overridden_quarantine_does_not_forget_the_longer_leases(running: World) -> None:
    running.settings["max_ttl_ms"] = 10_000
    running.leave(KILLED)
    write_override(running.guard(), "test")
    assert running.enter() == 0
    running.leave(KILLED)
    assert running.enter() == DELAY_NS


# Overrides


def test_an_override_ends_the_quarantine_that_runs(running: World) -> None:
    running.leave(KILLED)

    def override() -> None:
        if running.host.now_ns >= end_ns:
            write_override(running.guard(), "all agents are stopped")

    end_ns = running.host.now_ns + 10 * NS_PER_S
    running.host.while_waiting = override
    assert running.enter() == 11 * NS_PER_S
    assert running.host.statuses[-1] == "let start: quarantine cut short by an operator"
    [line] = [line for line in running.host.logged if line["event"] == "overridden"]
    assert line["reason"] == "all agents are stopped"


def test_an_override_is_used_once_and_counted(running: World) -> None:
    running.leave(KILLED)
    write_override(running.guard(), "test")
    assert running.enter() == 0
    assert not (running.state / OVERRIDE).exists()
    assert running.metrics()["redis_lock_guard_overrides_total"] == 1
    running.leave(KILLED)
    running.start_for(Reason.UNCLEAN_STOP)


def test_a_start_that_needs_no_override_uses_it_up(stopped: World) -> None:
    write_override(stopped.guard(), "test")
    assert stopped.enter() == 0
    assert "override_discarded" in stopped.host.events()
    assert stopped.metrics()["redis_lock_guard_overrides_total"] == 0
    stopped.leave(KILLED)
    stopped.start_for(Reason.UNCLEAN_STOP)


def test_an_override_that_nobody_used_in_time_is_over(running: World) -> None:
    write_override(running.guard(), "test")
    running.host.now_ns += 16 * 60 * NS_PER_S
    running.leave(KILLED)
    running.start_for(Reason.UNCLEAN_STOP)
    assert "override_ignored" in running.host.events()


def test_an_override_does_not_survive_a_reboot(running: World) -> None:
    write_override(running.guard(), "test")
    running.host.boot = "boot-2"
    running.start_for(Reason.NO_MARKER)


def test_an_override_from_a_later_time_of_another_clock_is_none(running: World) -> None:
    write_override(running.guard(), "test")
    running.edit(OVERRIDE, at_ns=running.host.now_ns + 3_600 * NS_PER_S)
    running.start_for(Reason.NO_MARKER)


def test_a_damaged_override_is_none(running: World) -> None:
    (running.state / OVERRIDE).write_bytes(b"please")
    running.start_for(Reason.NO_MARKER)
    assert not (running.state / OVERRIDE).exists()


def test_an_override_that_can_not_be_used_up_is_not_honoured(tmp_path: Path) -> None:
    class Sticky(Disk):
        def unlink(self, path: Path) -> None:
            if path.name == OVERRIDE:
                raise OSError(30, "Read-only file system")
            super().unlink(path)

    world = World(tmp_path, Sticky())
    world.guard().folder.prepare()
    write_override(world.guard(), "test")
    with pytest.raises(GuardError, match="not started"):
        world.enter()


# Failing disks


def changes_of(act: Callable[[World], object], folder: Path, prepared: Callable[[World], object]) -> int:
    disk = FailingDisk()
    world = World(folder / "counted", disk)
    prepared(world)
    disk.changes = 0
    act(world)
    return disk.changes


def ran_and_was_killed(world: World) -> None:
    world.enter()
    world.leave(KILLED)


@pytest.mark.parametrize("fails_for_good", [True, False])
@pytest.mark.parametrize("prepared", [World.run_and_stop, ran_and_was_killed], ids=["clean", "killed"])
def test_a_disk_that_fails_at_any_step_of_a_start_never_lets_redis_start_early(
    tmp_path: Path, prepared: Callable[[World], None], fails_for_good: bool
) -> None:
    clean = prepared is World.run_and_stop
    steps = changes_of(World.enter, tmp_path, prepared)
    assert steps >= 8
    for step in range(steps):
        disk = FailingDisk()
        world = World(tmp_path / f"{fails_for_good}-{clean}-{step}", disk)
        prepared(world)
        disk.changes, disk.fails_at = 0, step
        before_ns = world.host.now_ns
        try:
            enter(world.guard())
        except GuardError as error:
            assert "Redis is not started" in str(error)  # noqa: PT017
        else:
            # The metrics alone may fail.
            assert disk.refused
            assert clean or world.host.now_ns - before_ns >= DELAY_NS
        assert disk.refused
        disk.fails_at = -1
        # A marker that could not be taken away is as good as before: Redis has not run since.
        marker_is_left = step == 0 and clean
        assert marker_is_left == (world.enter() == 0), step


def test_a_disk_that_fails_at_any_step_of_a_stop_never_makes_it_clean(tmp_path: Path) -> None:
    def leave(world: World) -> None:
        world.leave(CLEAN)

    steps = changes_of(leave, tmp_path, World.enter)
    assert steps >= 8
    for step in range(steps):
        disk = FailingDisk()
        world = World(tmp_path / str(step), disk)
        world.enter()
        disk.changes, disk.fails_at = 0, step
        with pytest.raises(GuardError, match="next start waits in full"):
            world.leave(CLEAN)
        disk.fails_at = -1
        # The very last step syncs a marker that is there already.
        assert world.enter() == (0 if step == steps - 1 else DELAY_NS), step


# Interrupted transitions: the process dies, or the host, between any two steps


def worlds_after_death(
    tmp_path: Path, prepare: Callable[[World], object], act: Callable[[World], object]
) -> list[tuple[str, World]]:
    """The host, up again, for each step that `act` can be cut short at and each way to lose what was not
    synced. The last step is the end: nothing was cut short."""
    found = []
    step, ended = 0, False
    while not ended:
        disk = FragileDisk()
        world = World(tmp_path / f"{step}", disk, textfile=None)
        prepare(world)
        disk.steps, disk.dies_at = 0, step
        try:
            act(world)
            ended = True
        except Dead:
            pass
        for number, after in enumerate(power_cut(world)):
            found.append((f"power cut before step {step}, variant {number}", after))
        after = copy.copy(world)
        after.disk = disk.after_kill()
        found.append((f"killed before step {step}", after))
        step += 1
    assert step > 5
    return found


def power_cut(world: World) -> list[World]:
    """The host after a power cut now, once for each state that its disk may be in."""
    assert isinstance(world.disk, FragileDisk)
    worlds = []
    for survivor in world.disk.after_power_cuts():
        after = copy.copy(world)
        after.disk, after.host = survivor, copy.copy(world.host)
        after.host.reboot()
        worlds.append(after)
    return worlds


def test_whatever_a_start_is_cut_short_by_its_marker_serves_one_redis_only(tmp_path: Path) -> None:
    """The start may be repeated and find the marker still there: Redis had not run. But when it has, then
    its next start waits, after a power cut as after a kill."""
    for what, world in worlds_after_death(tmp_path, World.run_and_stop, World.enter):
        world.enter()
        for survivor in power_cut(world):
            assert survivor.enter() == DELAY_NS, what


@pytest.mark.parametrize("act", [World.enter, lambda world: world.leave(CLEAN)], ids=["enter", "leave"])
def test_proofs_are_taken_away_for_good_before_anything_is_looked_at(
    tmp_path: Path, act: Callable[[World], object]
) -> None:
    disk = FragileDisk()
    world = World(tmp_path, disk, textfile=None)
    world.run_and_stop()
    if act is not World.enter:
        world.enter()
    assert {MARKER, PERMIT} & disk.files.keys()
    looks = []

    def look() -> int:
        looks.append([{MARKER, PERMIT} & after.files.keys() for after in disk.after_power_cuts()])
        return FakeHost.wall_ns(world.host)

    world.host.wall_ns = look  # type: ignore[method-assign]
    act(world)
    assert looks[0] == [set()]


def test_a_start_that_was_let_through_is_dirty_from_then_on(tmp_path: Path) -> None:
    disk = FragileDisk()
    world = World(tmp_path, disk, textfile=None)
    world.run_and_stop()
    assert world.enter() == 0
    for survivor in power_cut(world):
        assert survivor.enter() == DELAY_NS


def test_whatever_a_dirty_stop_is_cut_short_by_the_next_start_waits(tmp_path: Path) -> None:
    def clean_then_running(world: World) -> None:
        world.run_and_stop()
        world.enter()

    for what, world in worlds_after_death(tmp_path, clean_then_running, lambda world: world.leave(KILLED)):
        assert world.enter() == DELAY_NS, what


def test_whatever_a_clean_stop_is_cut_short_by_its_marker_is_whole_or_none(tmp_path: Path) -> None:
    """Cut short before the marker is there, the next start waits. Either way it serves one Redis only."""
    waited = []
    for what, world in worlds_after_death(tmp_path, World.enter, lambda world: world.leave(CLEAN)):
        waited.append(world.enter())
        assert world.counts().keys() <= {"first_start", "no_marker", "unclean_stop"}, what
        for survivor in power_cut(world):
            assert survivor.enter() == DELAY_NS, what
    assert set(waited) == {0, DELAY_NS}
    # The end of it all, power cut or not: what `leave` has returned from is durable.
    assert waited[-1] == waited[-2] == 0


def test_whatever_a_quarantine_is_cut_short_by_the_next_start_waits_in_full(tmp_path: Path) -> None:
    for what, world in worlds_after_death(tmp_path, ran_and_was_killed, World.enter):
        assert world.enter() == DELAY_NS, what


def test_once_the_watch_has_stopped_redis_no_stop_is_clean_wherever_it_dies_then(tmp_path: Path) -> None:
    def step_found(world: World) -> None:
        # Small, and long after the start: nobody but the watch can tell it from drift.
        world.host.now_ns += 3_600 * NS_PER_S
        world.host.ahead_ns += 5 * NS_PER_MS
        revoke(world.guard(), 5 * NS_PER_MS, lambda: world.host.kills.append("now"))

    after_the_kill = 0
    for what, world in worlds_after_death(tmp_path, World.enter, step_found):
        if world.host.kills:
            after_the_kill += 1
            world.leave(CLEAN)
            assert world.enter() == DELAY_NS, what
    assert after_the_kill > 5


# The watch


class Watched:
    """A watch over a host, looking when the test says so."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.watch = ClockWatch(world.guard())
        self.watch.begin()
        self.watch.look()

    def after(self, seconds: float, stepped_ns: int = 0) -> None:
        self.world.host.now_ns += int(seconds * NS_PER_S)
        self.world.host.ahead_ns += stepped_ns
        self.watch.look()


def test_a_forward_step_kills_redis_into_quarantine(running: World) -> None:
    watched = Watched(running)
    watched.after(0.1, stepped_ns=3 * NS_PER_MS)
    assert running.host.kills == [UNIT]
    running.leave(KILLED)
    running.start_for(Reason.CLOCK_STEP)
    watched.after(0.1)
    assert running.host.kills == [UNIT]


def test_the_proofs_are_gone_before_redis_is(running: World) -> None:
    """Else Redis could end by itself in between, and be called clean."""

    def redis_ends_by_itself() -> str:
        assert not (running.state / PERMIT).exists()
        return ""

    running.host.on_kill = redis_ends_by_itself
    watched = Watched(running)
    watched.after(3_600)
    # So small, and so long after the start, that `leave` takes it for drift.
    watched.after(0.1, stepped_ns=5 * NS_PER_MS)
    running.leave(CLEAN)
    running.start_for(Reason.CLOCK_STEP)


def test_a_small_step_while_redis_is_down_is_dirty_too(stopped: World) -> None:
    watched = Watched(stopped)
    watched.after(60)
    watched.after(0.1, stepped_ns=3 * NS_PER_MS)
    stopped.start_for(Reason.CLOCK_STEP)


def test_a_clock_that_is_set_at_boot_leaves_a_clean_reboot_clean(stopped: World) -> None:
    stopped.host.reboot()
    stopped.host.ahead_ns -= 3_600 * NS_PER_S
    Watched(stopped).after(5, stepped_ns=3_600 * NS_PER_S)
    assert stopped.enter() == 0


def test_a_step_in_quarantine_changes_nothing(world: World) -> None:
    watched = Watched(world)
    world.host.while_waiting = lambda: watched.after(0, stepped_ns=NS_PER_S)
    assert world.enter() == DELAY_NS
    watched.after(0.1)
    assert not watched.watch.killing
    world.leave(CLEAN)
    assert world.enter() == 0


def test_a_redis_that_is_only_about_to_start_is_killed_as_soon_as_it_has(running: World) -> None:
    watched = Watched(running)
    running.host.on_kill = lambda: "No main process to kill"
    watched.after(0.1, stepped_ns=NS_PER_S)
    watched.after(0.02)
    assert watched.watch.killing
    running.host.on_kill = lambda: ""
    watched.after(0.02)
    assert not watched.watch.killing
    watched.after(0.02)
    assert running.host.kills == [UNIT] * 3


def test_a_redis_that_was_weighed_after_the_step_is_not_killed(running: World) -> None:
    watched = Watched(running)
    running.host.on_kill = lambda: "No main process to kill"
    watched.after(0.1, stepped_ns=NS_PER_S)
    running.leave(NEVER_RAN)
    running.enter()
    running.host.on_kill = lambda: ""
    watched.after(0.02)
    assert not watched.watch.killing
    assert running.host.kills == [UNIT]


def test_a_step_that_came_while_nobody_watched_is_found(running: World) -> None:
    running.host.ahead_ns += 3 * NS_PER_MS
    Watched(running)
    assert running.host.kills == [UNIT]


def test_a_watch_that_starts_without_a_step_kills_nobody(running: World) -> None:
    Watched(running)
    running.host.reboot()
    Watched(running)
    assert running.host.kills == []


def test_a_disk_that_fails_does_not_keep_redis_alive(tmp_path: Path) -> None:
    disk = FailingDisk()
    world = World(tmp_path, disk)
    world.enter()
    watched = Watched(world)
    disk.changes, disk.fails_at = 0, 0
    watched.after(0.1, stepped_ns=NS_PER_S)
    assert world.host.kills == [UNIT]
    assert "step_not_recorded" in world.host.events()


def test_a_lock_that_is_held_does_not_keep_redis_alive(running: World) -> None:
    """As by a `leave` whose disk hangs."""
    held = Disk().lock(running.state / "state.lock")

    def let_go() -> str:
        held.__exit__(None, None, None)
        return ""

    running.host.on_kill = let_go
    watched = Watched(running)
    held.__enter__()
    watched.after(0.1, stepped_ns=NS_PER_S)
    assert running.host.kills == [UNIT]
    assert not (running.state / PERMIT).exists()


def test_a_damaged_record_stays_for_enter_to_see(running: World) -> None:
    (running.state / STATE).write_bytes(b"{")
    Watched(running).after(0.1, stepped_ns=NS_PER_S)
    assert running.host.kills == [UNIT]
    assert (running.state / STATE).read_bytes() == b"{"


@pytest.mark.parametrize(("ppm", "killed"), [(990, False), (-50_000, False), (1_500, True), (83_333, True)])
def test_a_clock_that_is_slewed_forward_too_fast_is_as_bad_as_a_step(
    running: World, ppm: int, killed: bool
) -> None:
    """REALTIME and BOOTTIME are slewed alike: only what nobody slews shows it."""
    watched = Watched(running)
    for _ in range(100):
        running.host.now_ns += 100_000_000
        running.host.slewed_ns += 100_000_000 * ppm // 1_000_000
        watched.watch.look()
    assert bool(running.host.kills) == killed


def test_steps_are_counted_by_direction(running: World) -> None:
    watched = Watched(running)
    watched.after(0.1, stepped_ns=-NS_PER_S)
    assert running.host.kills == []
    watched.after(0.1, stepped_ns=NS_PER_S)
    watched.after(0.1, stepped_ns=NS_PER_S)
    metrics = running.metrics()
    assert metrics['redis_lock_guard_clock_steps_total{direction="forward"}'] == 2
    assert metrics['redis_lock_guard_clock_steps_total{direction="backward"}'] == 1


def test_a_backward_step_leaves_stops_clean(running: World) -> None:
    Watched(running).after(0.1, stepped_ns=-NS_PER_S)
    running.leave(CLEAN)
    assert running.enter() == 0


def steps_of(offsets: list[tuple[float, float, float]]) -> list[int]:
    """What a clock watch says of offsets (at second, at least ms, at most ms), the first one not counted."""
    samples = [Offset(int(low * 1e6), int(high * 1e6), int(at * 1e9)) for at, low, high in offsets]
    clock = WallClock(samples[0], 2, DELAY_NS)
    return [clock.look(sample) // NS_PER_MS for sample in samples[1:]]


def test_a_reading_that_a_pause_has_made_vague_is_no_step() -> None:
    assert steps_of([(0, 0, 0), (1, -500, 0.1), (2, -0.1, 500), (3, 0, 0)]) == [0, 0, 0]


def test_what_is_certain_of_a_vague_reading_is_a_step() -> None:
    assert steps_of([(0, 0, 0), (1, 10, 500)]) == [9]
    assert steps_of([(0, 0, 0), (1, -500, -11)]) == [-10]


def test_many_small_steps_are_found_as_surely_as_a_large_one() -> None:
    assert steps_of([(i / 10, i * 1.5, i * 1.5) for i in range(5)])[:2] == [0, 2]


def test_drift_of_a_thousandth_is_no_step() -> None:
    assert steps_of([(i, i * 0.9, i * 0.9) for i in range(1_000)]) == [0] * 999
    assert steps_of([(i, -i * 0.9, -i * 0.9) for i in range(1_000)]) == [0] * 999


def test_a_watch_that_was_paused_for_long_grants_no_more_than_a_lease_can_be_old() -> None:
    assert steps_of([(0, 0, 0), (86_400, 80, 80)]) == [18]


def test_after_a_step_the_next_one_is_found_again() -> None:
    assert steps_of([(0, 0, 0), (0.1, 10, 10), (0.2, 10, 10), (0.3, 20, 20), (0.4, 0, 0), (0.5, 10, 10)]) == [
        9, 0, 9, -20, 9,
    ]  # fmt: skip


def test_the_offset_is_bounded_from_both_sides(world: World) -> None:
    seen = read_offset(world.host)
    assert seen.low_ns == seen.high_ns == world.host.ahead_ns
    real = read_offset(Host())
    assert real.low_ns <= real.high_ns


@pytest.mark.parametrize("missing", [False, True])
def test_waiting_for_the_clock_to_be_set_ends_when_it_is_not(
    missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing:
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    alarm = ClockAlarm()
    alarm.wait(0.01)
    alarm.wait(0.01)
    alarm.close()


# Metrics


def test_every_series_is_there_from_the_start(world: World) -> None:
    Watched(world)
    metrics = world.metrics()
    for reason in Reason:
        assert metrics.pop(f'redis_lock_guard_quarantines_total{{reason="{reason.value}"}}') == 0
    assert metrics == {
        "redis_lock_guard_quarantined": 0,
        "redis_lock_guard_quarantine_until_timestamp_seconds": 0,
        "redis_lock_guard_delay_seconds": 61.6,
        "redis_lock_guard_overrides_total": 0,
        'redis_lock_guard_clock_steps_total{direction="forward"}': 0,
        'redis_lock_guard_clock_steps_total{direction="backward"}': 0,
        "redis_lock_guard_data_moved_aside_total": 0,
        "redis_lock_guard_data_marked_timestamp_seconds": 0,
    }
    text = world.textfile.read_text()
    assert text.count("# HELP ") == text.count("# TYPE ") == 8


def test_the_metrics_say_when_the_quarantine_ends(world: World) -> None:
    ends_s = (world.host.wall_ns() + DELAY_NS) / NS_PER_S
    seen = []
    world.host.while_waiting = lambda: seen.append(world.metrics())
    world.enter()
    assert {one["redis_lock_guard_quarantined"] for one in seen} == {1}
    for one in seen:
        until_s = one["redis_lock_guard_quarantine_until_timestamp_seconds"]
        assert until_s == pytest.approx(ends_s, abs=0.01)
    assert world.metrics()["redis_lock_guard_quarantined"] == 0
    assert world.metrics()["redis_lock_guard_quarantine_until_timestamp_seconds"] == 0
    assert world.metrics()['redis_lock_guard_quarantines_total{reason="first_start"}'] == 1


def test_a_quarantine_that_the_host_died_in_is_no_longer_shown_after_its_boot(world: World) -> None:
    interrupt_after(world, seconds=10)
    world.host.reboot()
    Watched(world)
    assert world.metrics()["redis_lock_guard_quarantined"] == 0


def test_a_quarantine_that_was_stopped_is_no_longer_shown(world: World) -> None:
    interrupt_after(world, seconds=10)
    world.leave(NEVER_RAN)
    assert world.metrics()["redis_lock_guard_quarantined"] == 0


def test_the_watch_keeps_the_file_young(world: World) -> None:
    watched = Watched(world)
    world.textfile.unlink()
    watched.after(14)
    assert not world.textfile.exists()
    watched.after(1)
    assert world.textfile.exists()


def test_node_exporter_may_read_the_file_and_finds_no_other(running: World) -> None:
    assert running.textfile.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in running.textfile.parent.glob("*.prom*")] == ["guard.prom"]


def test_no_start_and_no_stop_fails_for_its_metrics(tmp_path: Path) -> None:
    world = World(tmp_path, textfile=tmp_path / "nowhere" / "guard.prom")
    world.run_and_stop()
    assert world.enter() == 0
    assert "no_metrics" in world.host.events()


# Operators


def test_status_tells_how_things_are(world: World) -> None:
    assert status(world.guard())["next_start"] == "after a quarantine"
    seen = []
    world.host.while_waiting = lambda: seen.append(status(world.guard()))
    world.enter()
    assert [one["left_s"] for one in seen] == list(range(62, 0, -1))
    assert seen[0]["state"] == "quarantined"
    assert seen[0]["reason"] == "first_start"
    assert status(world.guard())["state"] == "in_service"
    world.leave(CLEAN)
    assert status(world.guard())["state"] == "stopped"
    assert status(world.guard())["next_start"] == "at once"
    world.enter()
    world.leave(KILLED)
    found = status(world.guard())
    assert (found["state"], found["next_start"]) == ("stopped", "after a quarantine")
    assert (found["reason"], found["detail"]) == ("unclean_stop", "killed by SIGKILL")


def test_a_guard_that_died_in_quarantine_is_not_shown_as_waiting(world: World) -> None:
    interrupt_after(world, seconds=10)
    assert status(world.guard())["state"] == "stopped"


def test_after_a_reboot_nothing_is_in_service(running: World) -> None:
    running.host.reboot()
    assert status(running.guard())["state"] == "stopped"


def test_a_record_that_can_not_be_read_is_said_so(running: World) -> None:
    (running.state / STATE).write_bytes(b"{")
    with pytest.raises(GuardError, match="are you root"):
        status(running.guard())


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "guard.conf"
    path.write_text(
        "[guard]\nmax_ttl_ms = 60000  # as everywhere\n"
        f"data_dir = {tmp_path}/data\nunit = m.service\nstate_dir = {tmp_path}/state\ntextfile =\n"
    )
    return path


def test_the_status_is_an_exit_status_too(
    config: Path, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    guard = Guard(read_config(str(config)), world.host)
    exits: list[int] = []
    world.host.while_waiting = lambda: exits.append(main(["status", "--config", str(config)]))
    world.host.boot = Host().boot_id()
    enter(guard)
    assert set(exits) == {3}
    assert "quarantined" in capsys.readouterr().out
    assert main(["status", "--json", "--config", str(config)]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "in_service"
    world.host.environ = KILLED
    leave(guard)
    assert main(["status", "--config", str(config)]) == 4
    assert "unclean stop: killed by SIGKILL" in capsys.readouterr().out


def test_every_mistake_of_the_configuration_is_said_at_once(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config.write_text(
        "[guard]\nmax_ttl_ms = 60 s\nunit = redis\nstate_dir = here\ntextfile = /tmp/x\n"
        "append_dir = a/b\nclock_step_ms = 3\nmax_tll_ms = 1\n"
    )
    assert main(["check", "--config", str(config)]) == 78
    said = capfd.readouterr().err
    for key in ("data_dir", "max_ttl_ms", "unit", "state_dir", "textfile", "append_dir", "clock_step_ms"):
        assert f"{key}: " in said, key
    assert "max_tll_ms: no such key" in said


@pytest.mark.parametrize(("delay_ms", "status"), [(0, 0), (61_599, 78), (61_600, 0), (90_000, 0)])
def test_a_delay_that_does_not_outlast_the_leases_is_refused(
    config: Path, delay_ms: int, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    config.write_text(config.read_text() + f"delay_ms = {delay_ms}\n")
    assert main(["check", "--config", str(config)]) == status
    assert ("delay_ms: must be at least 61600" in capfd.readouterr().err) == bool(status)


@pytest.mark.parametrize(
    "text", ["", "max_ttl_ms = 1", "[guard]\n[more]\n", "[guard]\nunit = a.service\nunit = b.service\n", "\0"]
)
def test_a_file_that_is_no_configuration_is_refused(
    config: Path, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    config.write_text(text)
    assert main(["enter", "--config", str(config)]) == 78
    assert "Redis is not started" in capfd.readouterr().err


def test_the_configuration_has_the_defaults_that_are_documented(config: Path) -> None:
    documented = dict(
        line.split("#")[0].strip().split(" = ") for line in (head.__doc__ or "").splitlines() if " = " in line
    )
    short = {key: documented[key] for key in ("max_ttl_ms", "data_dir", "unit")}
    for path_values in (documented, short):
        config.write_text("[guard]\n" + "".join(f"{key} = {value}\n" for key, value in path_values.items()))
    with_defaults = read_config(str(config))
    config.write_text("[guard]\n" + "".join(f"{key} = {value}\n" for key, value in documented.items()))
    assert read_config(str(config)) == with_defaults
    assert with_defaults.max_ttl_ms == 60_000


def test_an_override_needs_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--reason", " "]):
        with pytest.raises(SystemExit) as exited:
            main(["override", *arguments])
        assert exited.value.code == 2


@pytest.mark.parametrize("command", ["enter", "leave"])
def test_what_systemd_runs_changes_nothing_by_hand(
    running: World,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    command: str,
) -> None:
    """The permit of a Redis that runs, and the notes of its data, would end."""
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    before = {path.name: path.read_bytes() for path in running.state.iterdir()}
    assert main([command, "--config", str(config)]) == 1
    assert {path.name: path.read_bytes() for path in running.state.iterdir()} == before
    assert "systemctl start m.service" in capfd.readouterr().err


@pytest.mark.parametrize("by", ["systemd", "hand"])
def test_systemd_runs_it_and_who_says_that_it_is_by_hand(
    running: World, config: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    if by == "systemd":
        monkeypatch.setenv("INVOCATION_ID", "0" * 32)
    assert main(["leave", *(["--by-hand"] if by == "hand" else []), "--config", str(config)]) == 0
    assert not (running.state / PERMIT).exists()
