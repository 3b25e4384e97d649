"""Which stops are clean, so that the next start need not wait (rules 10 and 11b)."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable

import pytest

from lockd.guard.aof import data_fingerprint
from lockd.guard.delay import NS_PER_MS, NS_PER_S
from lockd.guard.errors import GuardError
from lockd.guard.reasons import Reason
from lockd.guard.state_folder import MARKER, PERMIT, STATE
from tests.unit.guard.world import CLEAN, DELAY_NS, KILLED, NEVER_RAN, World, fails

Change = Callable[[World], object]


def test_a_clean_stop_is_good_for_one_start(stopped: World) -> None:
    assert stopped.enter() == 0
    assert stopped.host.statuses[-1] == "let start: clean stop, no quarantine"
    stopped.leave(CLEAN)
    assert stopped.enter() == 0
    # The power goes: no `leave`.
    stopped.start_for(Reason.NO_MARKER)


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
    assert not (running.state / PERMIT).exists()
    running.start_for(Reason.UNCLEAN_STOP)


NO_PERMITS: dict[str, Change] = {
    "used up by an earlier stop": lambda world: world.leave(CLEAN),
    "of an earlier start": lambda world: world.edit(PERMIT, generation=1),
    "of another boot": lambda world: world.host.reboot(),
    "damaged": lambda world: world.spoil(PERMIT, b"{"),
}


@pytest.mark.parametrize("change", NO_PERMITS.values(), ids=NO_PERMITS)
def test_a_stop_without_the_permit_of_its_start_proves_nothing(running: World, change: Change) -> None:
    change(running)
    running.leave(CLEAN)
    running.start_for(Reason.NO_MARKER)


def test_a_stop_on_a_host_without_any_start_proves_nothing(world: World) -> None:
    world.leave(CLEAN)
    world.start_for(Reason.NO_MARKER)


def test_the_aof_has_to_be_synced_before_a_stop_is_clean(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as failing:
        fails("fsync", errno.EIO, failing, of="appendonly.aof.1.incr")
        running.leave(CLEAN)
        assert not (running.state / MARKER).exists()
        with pytest.raises(GuardError, match="Input/output error"):
            running.enter()
    assert running.enter() == DELAY_NS


# The marker


def test_a_marker_of_an_earlier_stop_is_none(stopped: World) -> None:
    marker = (stopped.state / MARKER).read_bytes()
    stopped.enter()
    stopped.leave(KILLED)
    (stopped.state / MARKER).write_bytes(marker)
    stopped.start_for(Reason.MARKER_INVALID)


MARKER_DAMAGE: list[bytes | dict[str, object]] = [
    *(b"", b"{}", b"[]", b"\0" * 300, b'{"version": 1}', b"\xff\xfe"),
    *({"version": 2}, {"generation": "2"}, {"data": []}, {"synchronised": 1}, {"more": 1}),
]


@pytest.mark.parametrize("damage", MARKER_DAMAGE, ids=repr)
def test_a_marker_that_is_damaged_or_of_another_format_is_none(
    stopped: World, damage: bytes | dict[str, object]
) -> None:
    stopped.spoil(MARKER, damage)
    stopped.start_for(Reason.MARKER_INVALID)


def test_a_marker_of_another_machine_is_none(stopped: World) -> None:
    stopped.host.machine = "machine-2"
    stopped.start_for(Reason.OTHER_HOST)


# The data


def put_back_a_copy(world: World) -> None:
    """As `cp -a` from a backup: content and times are the same."""
    copy = world.aof.with_name("copy")
    shutil.copy2(world.aof, copy)
    copy.replace(world.aof)


OTHER_DATA: dict[str, Change] = {
    "shorter": lambda world: os.truncate(world.aof, world.aof.stat().st_size - 1),
    "a copy": put_back_a_copy,
    "a file less": lambda world: world.aof.with_name("appendonly.aof.1.base.rdb").unlink(),
    "a file more": lambda world: world.aof.with_name("appendonly.aof.2.incr.aof").touch(),
    "wiped": lambda world: shutil.rmtree(world.aof.parent),
}


@pytest.mark.parametrize("change", OTHER_DATA.values(), ids=OTHER_DATA)
def test_data_that_is_not_what_redis_left_is_dirty(stopped: World, change: Change) -> None:
    change(stopped)
    stopped.start_for(Reason.DATA_CHANGED)


def test_the_facts_about_the_data_are_those_of_its_files(world: World) -> None:
    """What is written over, restored or made anew differs in one of them at least. Where a file system is lax
    about a time or an inode, the others still tell."""
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
    shutil.rmtree(running.aof.parent)
    running.leave(CLEAN)
    running.start_for(Reason.DATA_CHANGED)


# The clock, seen by enter and leave


@pytest.mark.parametrize(("days", "step_ms"), [(0, 3), (90, 70)])
def test_a_forward_step_is_found_while_redis_is_down_and_however_long_it_ran_and_nobody_watched(
    running: World, days: int, step_ms: int
) -> None:
    running.host.now_ns += days * 86_400 * NS_PER_S
    running.host.ahead_ns += step_ms * NS_PER_MS
    running.leave(CLEAN)
    running.start_for(Reason.CLOCK_STEP)
    running.leave(CLEAN)
    running.host.ahead_ns += 3 * NS_PER_MS
    running.start_for(Reason.CLOCK_STEP)


@pytest.mark.parametrize("step_ns", [-3_600 * NS_PER_S, 2 * NS_PER_MS])
def test_steps_that_end_no_lease_early_are_clean(stopped: World, step_ns: int) -> None:
    stopped.host.ahead_ns += step_ns
    assert stopped.enter() == 0
    stopped.host.ahead_ns += step_ns
    stopped.leave(CLEAN)
    assert stopped.enter() == 0


@pytest.mark.parametrize(("before", "after"), [(True, True), (True, False), (False, True)])
def test_after_a_reboot_a_clock_counts_that_is_vouched_for_and_was_before(
    running: World, before: bool, after: bool
) -> None:
    running.host.synchronised = before
    running.leave(CLEAN)
    running.host.reboot()
    running.host.synchronised = after
    if before and after:
        assert running.enter() == 0
    else:
        running.start_for(Reason.CLOCK_UNPROVEN)


def test_a_container_that_is_booted_anew_keeps_its_machines_clock(running: World) -> None:
    running.host.synchronised = False
    running.leave(CLEAN)
    running.host.boot = "boot-2"
    running.host.now_ns += 30 * NS_PER_S
    assert running.enter() == 0


# The guard's own record


STATE_DAMAGE: list[bytes | dict[str, object]] = [
    *(b"", b"\0\0", b"{}", b'{"version": 1, "generation": "3"}', b"[1]", b'"in_service"'),
    {"quarantines": {"clock_step": "many"}},
]


@pytest.mark.parametrize("damage", STATE_DAMAGE, ids=repr)
def test_a_damaged_record_is_dirty_and_kept(stopped: World, damage: bytes | dict[str, object]) -> None:
    stopped.spoil(STATE, damage)
    content = (stopped.state / STATE).read_bytes()
    assert stopped.enter() == DELAY_NS
    assert stopped.counts() == {"state_unreadable": 1}
    assert (stopped.state / f"{STATE}.damaged").read_bytes() == content
    stopped.leave(CLEAN)
    assert stopped.enter() == 0


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


def test_the_guards_files_are_for_nobody_else(running: World) -> None:
    assert running.state.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in running.state.iterdir()} == {0o600}
