"""A start that is not proven clean waits, in full, or until an operator says so (rules 9 and 10)."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from lockd.core.validity import settle_ns
from lockd.guard.delay import NS_PER_MS, NS_PER_S, quarantine_ns
from lockd.guard.disk import Disk
from lockd.guard.enter import enter
from lockd.guard.errors import GuardError
from lockd.guard.guard import Guard
from lockd.guard.overrides import write_override
from lockd.guard.reasons import Reason
from lockd.guard.state_folder import MARKER, OVERRIDE, PERMIT, STATE
from lockd.guard.status import status
from tests.unit.guard.world import CLEAN, DELAY_NS, KILLED, NEVER_RAN, World, fails


def test_the_delay_is_what_agents_reckon_with() -> None:
    for max_ttl_ms in (1_000, 60_000, 86_400_000):
        assert quarantine_ns(max_ttl_ms) == settle_ns(max_ttl_ms)
    assert quarantine_ns(60_000) == DELAY_NS


@pytest.mark.parametrize(("ended", "reason"), [(KILLED, Reason.UNCLEAN_STOP), (None, Reason.NO_MARKER)])
def test_time_in_which_redis_was_down_or_nobody_saw_it_is_not_credited(
    running: World, ended: dict[str, str] | None, reason: Reason
) -> None:
    if ended:
        running.leave(ended)
    running.host.now_ns += 3_600 * NS_PER_S
    running.start_for(reason)


@pytest.mark.parametrize("ended", [NEVER_RAN, CLEAN, None], ids=["stopped", "clean", "killed"])
def test_an_interrupted_quarantine_begins_anew_whatever_systemd_says(
    running: World, ended: dict[str, str] | None
) -> None:
    running.leave(KILLED)
    running.interrupted_after(seconds=60)
    if ended:
        running.leave(ended)
    running.start_for(Reason.QUARANTINE_INTERRUPTED)


def test_the_stop_after_a_start_that_failed_does_not_hide_why_it_has_to_wait(running: World) -> None:
    running.leave(KILLED)
    running.leave(NEVER_RAN)
    running.start_for(Reason.UNCLEAN_STOP)


@pytest.mark.parametrize("pause_lasts", [7.0, 1.0, 0.25], ids=["suspended", "as asked", "woken early"])
def test_a_quarantine_is_over_by_boottime_however_long_its_pauses_take_and_whatever_the_wall_clock_says(
    world: World, pause_lasts: float
) -> None:
    def step() -> None:
        world.host.ahead_ns += 3_600 * NS_PER_S

    world.host.pause_lasts, world.host.while_waiting = pause_lasts, step
    assert DELAY_NS <= world.enter() < DELAY_NS + 7 * NS_PER_S


def test_systemd_is_told_each_second_how_long_it_still_is_and_why(running: World) -> None:
    running.leave(KILLED)
    running.host.statuses.clear()
    running.enter()
    assert running.host.statuses == [
        *(f"quarantined: {left} s left (unclean stop: killed by SIGKILL)" for left in range(62, 0, -1)),
        "let start: quarantine is over",
    ]


def test_redis_has_no_permit_while_it_waits_not_even_of_a_start_whose_end_nobody_saw(running: World) -> None:
    def look() -> None:
        assert not (running.state / PERMIT).exists()
        assert not (running.state / MARKER).exists()

    running.host.while_waiting = look
    assert running.enter() == DELAY_NS
    assert (running.state / PERMIT).exists()


def test_a_second_enter_is_refused_and_hurts_nothing(world: World) -> None:
    def another() -> None:
        with pytest.raises(GuardError, match="another `enter` runs"):
            enter(Guard(world.guard().config, world.host, ImpatientDisk()))

    class ImpatientDisk(Disk):
        def _lock_within(self, file: int, wait_s: float) -> None:
            super()._lock_within(file, 0)

    world.host.while_waiting = another
    assert world.enter() == DELAY_NS


# The max TTL


@pytest.mark.parametrize(
    ("settings", "delay_ns"),
    [
        ({"max_ttl_ms": 300_000}, quarantine_ns(300_000)),
        ({"delay_ms": 90_000}, 90_000 * NS_PER_MS),
        ({"delay_ms": 90_000, "max_ttl_ms": 300_000}, quarantine_ns(300_000)),
    ],
    ids=["a raised max TTL", "a longer delay", "a delay shorter than leases are"],
)
def test_a_raised_max_ttl_or_a_longer_delay_counts_at_once(
    running: World, settings: dict[str, int], delay_ns: int
) -> None:
    running.settings |= settings
    assert status(running.guard())["delay_s"] == delay_ns / NS_PER_S
    assert running.enter() == delay_ns


def test_the_longer_leases_of_a_max_ttl_that_was_lowered_are_over_once_they_were_sat_out(
    running: World,
) -> None:
    running.settings["max_ttl_ms"] = 10_000
    for _ in range(2):
        running.leave(CLEAN)
        assert running.enter() == 0
    running.leave(KILLED)
    write_override(running.guard(), "test")
    assert running.enter() == 0
    running.leave(KILLED)
    assert running.enter() == DELAY_NS
    running.leave(KILLED)
    assert running.enter() == quarantine_ns(10_000)


def test_a_lost_record_does_not_forget_the_longer_leases(running: World) -> None:
    running.settings["max_ttl_ms"] = 10_000
    (running.state / STATE).unlink()
    assert running.enter() == DELAY_NS


# Overrides


def test_an_override_ends_the_quarantine_that_runs_and_no_other_and_is_counted(running: World) -> None:
    running.leave(KILLED)

    def override() -> None:
        if running.host.now_ns >= end_ns:
            write_override(running.guard(), "all agents are stopped")

    end_ns = running.host.now_ns + 10 * NS_PER_S
    running.host.while_waiting = override
    assert running.enter() == 11 * NS_PER_S
    assert running.host.statuses[-1] == "let start: quarantine ended early by an operator"
    [line] = [line for line in running.host.logged if line["event"] == "overridden"]
    assert line["reason"] == "all agents are stopped"
    assert not (running.state / OVERRIDE).exists()
    assert running.metrics()["lockd_guard_overrides_total"] == 1
    running.host.while_waiting = lambda: None
    running.leave(KILLED)
    running.start_for(Reason.UNCLEAN_STOP)


def test_a_start_that_needs_no_override_uses_it_up(stopped: World) -> None:
    write_override(stopped.guard(), "test")
    assert stopped.enter() == 0
    assert "override_discarded" in stopped.host.events()
    assert stopped.metrics()["lockd_guard_overrides_total"] == 0
    stopped.leave(KILLED)
    stopped.start_for(Reason.UNCLEAN_STOP)


NO_OVERRIDES: dict[str, Callable[[World], object]] = {
    "too old": lambda world: world.host.sleep(16 * 60),
    "of another boot": lambda world: world.host.reboot(),
    "of a later time": lambda world: world.edit(OVERRIDE, at_ns=world.host.now_ns + 3_600 * NS_PER_S),
    "damaged": lambda world: world.spoil(OVERRIDE, b"please"),
}


@pytest.mark.parametrize("change", NO_OVERRIDES.values(), ids=NO_OVERRIDES)
def test_an_override_that_is_old_or_damaged_is_taken_away_and_none(
    running: World, change: Callable[[World], object]
) -> None:
    write_override(running.guard(), "test")
    change(running)
    running.start_for(Reason.NO_MARKER)
    assert not (running.state / OVERRIDE).exists()
    assert "override_ignored" in running.host.events()


def test_an_override_that_can_not_be_used_up_is_not_honoured(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_override(running.guard(), "test")
    fails("unlink", errno.EROFS, monkeypatch, of=OVERRIDE)
    with pytest.raises(GuardError, match="not started"):
        running.enter()
