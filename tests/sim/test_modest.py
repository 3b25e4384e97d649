"""What the checker finds on a host that greedy accounts share: each promise is broken here once, and kept
once."""

from __future__ import annotations

from dataclasses import replace

from tests.harness.checker import Bounds, check
from tests.harness.clocks import MS
from tests.harness.history import Asked, Event, Granted, Lost, Refused, Stocked, Tried, Unlocked, Waited
from tests.harness.modest import FREE_MS, MODEST_CHECKS, TURNS, of_the_modest

BOUNDS = Bounds(serve_ms=1_000, leftover_ms=50, give_back_ms=300, hold_slack_ms=20, begins_ms=20)
R = b"r"
T0 = 5_000
"""ms: agents have looked at their masters."""


def broken(*events: Event) -> list[str]:
    return [violation.promise for violation in check(events, BOUNDS, MODEST_CHECKS)]


def asked(at_ms: int, request: int, app: str, host: str = "agent1") -> Asked:
    return Asked(at_ms * MS, request, app, R, 1_000, 4_000, 6_000, host=host)


def granted(at_ms: int, request: int, deadline_ms: int) -> Granted:
    token = b"%032d" % request
    return Granted(at_ms * MS, request, R, token, request, deadline_ms * MS, at_ms * MS)


def unlocked(at_ms: int, request: int) -> Unlocked:
    return Unlocked(at_ms * MS, b"%032d" % request)


def test_a_lease_that_is_lost_before_its_max_hold_is_found() -> None:
    lease = asked(T0, 1, "app1"), granted(T0, 1, T0 + 1_000)
    lost = Lost((T0 + 900) * MS, b"%032d" % 1, (T0 + 1_000) * MS)
    assert broken(*lease, lost) == ["kept beside greed"]
    assert broken(*lease, replace(lost, deadline_ns=(T0 + 5_990) * MS)) == []


def test_a_command_that_begins_late_is_found() -> None:
    assert broken(Waited(T0 * MS, "app1", 21 * MS)) == ["served beside greed"]
    assert broken(Waited(T0 * MS, "app1", 20 * MS)) == []


def test_a_modest_account_that_is_refused_by_a_limit_is_found() -> None:
    refused = Refused((T0 + 1) * MS, 1, "LIMIT", "bytes: …")
    assert broken(asked(T0, 1, "app1"), refused) == ["floor beside greed"]
    assert broken(asked(T0, 1, "greedy 1, part 3"), refused) == []
    assert broken(asked(T0, 1, "app1"), replace(refused, code="TAKEN")) == []


def test_more_that_is_given_away_than_there_is_is_found() -> None:
    assert broken(Stocked(T0 * MS, "agent1", "bytes", 101, 100)) == ["floor beside greed"]
    assert broken(Stocked(T0 * MS, "agent1", "bytes", 100, 100)) == []


def turns_of(account: str, times: int, app: str = "app1") -> list[Event]:
    """So often others are granted what this app waits for."""
    events: list[Event] = [asked(T0, 1, app)]
    for number in range(2, 2 + times):
        at_ms = T0 + 10 * number
        events += [asked(T0 - 1, number, f"{account}, part {number}"), granted(at_ms, number, at_ms + 1_000)]
        events.append(unlocked(at_ms + 9, number))
    return [*events, granted(T0 + 10 * (2 + times), 1, T0 + 2_000)]


def test_who_waits_while_another_account_has_it_again_and_again_is_found() -> None:
    assert broken(*turns_of("greedy 1", TURNS + 1)) == ["line beside greed"]
    assert broken(*turns_of("greedy 1", TURNS)) == []
    assert broken(*turns_of("greedy 1", TURNS + 1, app="greedy 2, part 1")) == []


def test_who_waits_while_nobody_holds_it_is_found() -> None:
    late_ms = T0 + FREE_MS + 1
    free = asked(T0, 1, "app1"), granted(late_ms, 1, late_ms + 1_000)
    assert broken(*free) == ["line beside greed"]
    before = asked(T0 - 1, 2, "greedy 1"), granted(T0 - 1, 2, T0 + 1_000)
    assert broken(*free, *before) == []
    assert broken(*free, *before, unlocked(T0, 2)) == ["line beside greed"]


def test_what_only_greedy_accounts_lock_is_left_out() -> None:
    theirs = replace(asked(T0, 1, "greedy 1, part 1"), resource=b"greedy 1 1")
    tried = Tried(T0 * MS, b"greedy 1 1", b"%032d" % 1, 1_000, "agent1")
    wanted_by_all = asked(T0, 2, "greedy 1, part 2")
    events = [theirs, tried, replace(granted(T0, 1, T0 + 1_000), resource=b"greedy 1 1"), wanted_by_all]
    assert of_the_modest(events) == [wanted_by_all]
