"""Whatever fails, dies or loses power at any step: no start is at once that is not proven clean."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest

from lockd.guard.clock_steps import revoke
from lockd.guard.delay import NS_PER_MS, NS_PER_S
from lockd.guard.enter import enter
from lockd.guard.errors import GuardError
from lockd.guard.state_folder import MARKER, PERMIT
from tests.unit.guard.world import CLEAN, DELAY_NS, KILLED, Dead, FailingDisk, FakeHost, FragileDisk, World

Act = Callable[[World], object]


def run(world: World) -> None:
    world.run_and_stop()
    world.enter()


def run_and_kill(world: World) -> None:
    world.enter()
    world.leave(KILLED)


def leave_clean(world: World) -> None:
    world.leave(CLEAN)


# The disk fails


def prepared_world(folder: Path, prepare: Act, fails_at: int = -1) -> tuple[World, FailingDisk]:
    disk = FailingDisk()
    world = World(folder, disk)
    prepare(world)
    disk.changes, disk.fails_at = 0, fails_at
    return world, disk


def steps_of(act: Act, folder: Path, prepare: Act) -> int:
    """How many changes of the disk it makes."""
    world, disk = prepared_world(folder / "counted", prepare)
    act(world)
    assert disk.changes >= 8
    return disk.changes


@pytest.mark.parametrize("prepare", [World.run_and_stop, run_and_kill], ids=["clean", "killed"])
def test_a_disk_that_fails_at_any_step_of_a_start_never_lets_redis_start_early(
    tmp_path: Path, prepare: Act
) -> None:
    clean = prepare is World.run_and_stop
    for step in range(steps_of(World.enter, tmp_path, prepare)):
        world, disk = prepared_world(tmp_path / str(step), prepare, fails_at=step)
        before_ns = world.host.now_ns
        try:
            enter(world.guard())
        except GuardError as error:
            assert "Redis is not started" in str(error)  # noqa: PT017
        else:
            # The metrics alone may fail.
            assert clean or world.host.now_ns - before_ns >= DELAY_NS
        assert disk.refused
        disk.fails_at = -1
        # A marker that could not be taken away is as good as before: Redis has not run since.
        marker_is_left = step == 0 and clean
        assert marker_is_left == (world.enter() == 0), step


def test_a_disk_that_fails_at_any_step_of_a_stop_never_makes_it_clean(tmp_path: Path) -> None:
    steps = steps_of(leave_clean, tmp_path, World.enter)
    for step in range(steps):
        world, disk = prepared_world(tmp_path / str(step), World.enter, fails_at=step)
        with pytest.raises(GuardError, match="next start waits in full"):
            leave_clean(world)
        disk.fails_at = -1
        # The very last step syncs a marker that is there already.
        assert world.enter() == (0 if step == steps - 1 else DELAY_NS), step


# The guard is killed, or the power cut


def worlds_after_death(tmp_path: Path, prepare: Act, act: Act) -> list[tuple[str, World]]:
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


@pytest.mark.parametrize(
    ("prepare", "act"),
    [(run, lambda world: world.leave(KILLED)), (run_and_kill, World.enter)],
    ids=["dirty stop", "quarantine"],
)
def test_whatever_a_dirty_stop_or_a_quarantine_is_cut_short_by_the_next_start_waits_in_full(
    tmp_path: Path, prepare: Act, act: Act
) -> None:
    for what, world in worlds_after_death(tmp_path, prepare, act):
        assert world.enter() == DELAY_NS, what


def test_whatever_a_clean_stop_is_cut_short_by_its_marker_is_whole_or_none(tmp_path: Path) -> None:
    """Cut short before the marker is there, the next start waits. Either way it serves one Redis only."""
    waited = []
    for what, world in worlds_after_death(tmp_path, World.enter, leave_clean):
        waited.append(world.enter())
        assert world.counts().keys() <= {"first_start", "no_marker", "unclean_stop"}, what
        for survivor in power_cut(world):
            assert survivor.enter() == DELAY_NS, what
    assert set(waited) == {0, DELAY_NS}
    # The end of it all, power cut or not: what `leave` has returned from is durable.
    assert waited[-1] == waited[-2] == 0


@pytest.mark.parametrize(("prepare", "act"), [(World.run_and_stop, World.enter), (run, leave_clean)])
def test_proofs_are_taken_away_for_good_before_anything_is_looked_at(
    tmp_path: Path, prepare: Act, act: Act
) -> None:
    disk = FragileDisk()
    world = World(tmp_path, disk, textfile=None)
    prepare(world)
    assert {MARKER, PERMIT} & disk.files.keys()
    looks = []

    def look() -> int:
        looks.append([{MARKER, PERMIT} & after.files.keys() for after in disk.after_power_cuts()])
        return FakeHost.wall_ns(world.host)

    world.host.wall_ns = look  # type: ignore[method-assign]
    act(world)
    assert looks[0] == [set()]


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
