"""A forward step of the clock by which Redis expires leases puts a master into quarantine (rule 11b)."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from lockd.guard.clocks import ClockAlarm, Offset, WallClock, read_offset
from lockd.guard.delay import NS_PER_MS, NS_PER_S
from lockd.guard.disk import Disk
from lockd.guard.host import Host
from lockd.guard.reasons import Reason
from lockd.guard.state_folder import PERMIT, STATE
from tests.harness.terminal import unread_terminal
from tests.harness.waiting import PATIENCE_S
from tests.unit.guard.world import CLEAN, DELAY_NS, KILLED, NEVER_RAN, FailingDisk, Watched, World

UNIT = "lockd-master.service"


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


def test_a_step_that_came_while_nobody_watched_is_found_and_a_reboot_is_none(running: World) -> None:
    Watched(running)
    assert running.host.kills == []
    running.host.ahead_ns += 3 * NS_PER_MS
    Watched(running)
    assert running.host.kills == [UNIT]
    running.enter()
    running.host.reboot()
    Watched(running)
    assert running.host.kills == [UNIT]


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


def test_steps_are_counted_by_direction_and_a_backward_one_leaves_stops_clean(running: World) -> None:
    watched = Watched(running)
    watched.after(0.1, stepped_ns=-NS_PER_S)
    assert running.host.kills == []
    running.leave(CLEAN)
    assert running.enter() == 0
    for _ in range(2):
        watched.after(0.1, stepped_ns=NS_PER_S)
    metrics = running.metrics()
    assert metrics['lockd_guard_clock_steps_total{direction="forward"}'] == 2
    assert metrics['lockd_guard_clock_steps_total{direction="backward"}'] == 1


# What a clock watch says of offsets (at second, at least ms, at most ms), the first one not counted.
STEPS: dict[str, tuple[list[tuple[float, float, float]], list[int]]] = {
    "a reading that a pause has made vague is none": (
        [(0, 0, 0), (1, -500, 0.1), (2, -0.1, 500), (3, 0, 0)],
        [0, 0, 0],
    ),
    "what is certain of a vague reading is one": ([(0, 0, 0), (1, 10, 500)], [9]),
    "and backward too": ([(0, 0, 0), (1, -500, -11)], [-10]),
    "many small ones are one": ([(i / 10, i * 1.5, i * 1.5) for i in range(3)], [0, 2]),
    "drift of a thousandth is none": ([(i, i * 0.9, i * 0.9) for i in range(1_000)], [0] * 999),
    "nor is it backward": ([(i, -i * 0.9, -i * 0.9) for i in range(1_000)], [0] * 999),
    "a long pause grants no more than a lease can be old": ([(0, 0, 0), (86_400, 80, 80)], [18]),
    "after one the next is found again": (
        [(0, 0, 0), (0.1, 10, 10), (0.2, 10, 10), (0.3, 20, 20), (0.4, 0, 0), (0.5, 10, 10)],
        [9, 0, 9, -20, 9],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("offsets", "steps"), STEPS.values(), ids=STEPS)
def test_a_step_is_what_no_drift_and_no_pause_explains(
    offsets: list[tuple[float, float, float]], steps: list[int]
) -> None:
    first, *samples = [Offset(int(low * 1e6), int(high * 1e6), int(at * 1e9)) for at, low, high in offsets]
    clock = WallClock(first, 2, DELAY_NS)
    assert [clock.look(sample) // NS_PER_MS for sample in samples] == steps


def test_the_offset_is_bounded_from_both_sides(world: World) -> None:
    seen = read_offset(world.host)
    assert seen.low_ns == seen.high_ns == world.host.ahead_ns
    real = read_offset(Host())
    assert real.low_ns <= real.high_ns


LOGS = """
from lockd.guard.host import Host
host = Host({})
for number in range(3):
    host.log("error", "clock_step", n=number)
print("it watches on")
"""


def test_a_log_that_nobody_reads_holds_no_watch_up() -> None:
    with unread_terminal() as terminal:
        done = subprocess.run(
            [sys.executable, "-c", LOGS],
            stdout=subprocess.PIPE,
            stderr=terminal,
            timeout=PATIENCE_S,
            check=True,
        )
    assert done.stdout == b"it watches on\n"


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
