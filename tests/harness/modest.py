"""Were the promises kept to accounts that are modest, beside others that are greedy?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tests.harness.checker import Bounds, Reading, Violation
from tests.harness.clocks import MS
from tests.harness.history import Asked, Event, Granted, Lost, Refused, Stocked, Tried, Unlocked, Waited

GREEDY = "greedy"
"""So begin the names of the accounts that are, and of what only they lock."""
LOOKED_MS = 2_000
"""Before that, agents look at their masters for the first time."""
FREE_MS = 1_000
"""Hosts that meet at the masters back off for some of that."""
TURNS = 3
"""So often an account may be granted what another waits for: by a try that was under way when that one came,
by a turn, and by one whose grant its app hears of late."""


def of_the_modest(events: Iterable[Event]) -> list[Event]:
    """Without what greedy accounts alone have to do with, which is nearly all."""
    events = list(events)
    theirs = {event.token for event in events if isinstance(event, Tried) and _is_greedy(event.resource)}
    requests = {event.request for event in events if isinstance(event, Asked) and _is_greedy(event.resource)}
    return [
        event
        for event in events
        if getattr(event, "token", b"")[:32] not in theirs
        and getattr(event, "request", None) not in requests
        and not _is_greedy(getattr(event, "resource", b""))
    ]


def _is_greedy(resource: bytes) -> bool:
    return resource.startswith(GREEDY.encode())


def keeps_its_leases(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """Nobody's lease is lost because of another account's greed. Nothing else is wrong in such a run."""
    granted = {event.token: event for event in history.all(Granted)}
    for lost in history.all(Lost):
        grant = granted[lost.token]
        asked = history.asked[grant.request]
        held_ms = (lost.deadline_ns - (grant.tried_ns or grant.at_ns)) / MS
        if asked.by_process and held_ms < (asked.max_hold_ms or 0) - bounds.hold_slack_ms:
            yield Violation("kept beside greed", lost.at_ns, f"{asked.app} lost it after {held_ms:.0f} ms")


def is_served_soon(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    for waited in history.all(Waited):
        if waited.waited_ns > bounds.begins_ms * MS:
            text = f"a command of {waited.app} began after {waited.waited_ns / MS:.1f} ms"
            yield Violation("served beside greed", waited.at_ns, text)


def has_its_floor(history: Reading, _: Bounds) -> Iterable[Violation]:
    """Below its floor nobody is refused."""
    for refused in history.all(Refused):
        asked = history.asked[refused.request]
        if refused.code == "LIMIT" and not asked.app.startswith(GREEDY):
            yield Violation("floor beside greed", refused.at_ns, f"{asked.app} was refused: {refused.text}")


def no_more_than_there_is(history: Reading, _: Bounds) -> Iterable[Violation]:
    """Floors are promised to those that come later: nobody else may have them."""
    for stocked in history.all(Stocked):
        if stocked.peak > stocked.total:
            text = f"{stocked.host} had {stocked.total} {stocked.stock}, and gave away {stocked.peak}"
            yield Violation("floor beside greed", stocked.at_ns, text)


def has_its_turn_in_line(history: Reading, _: Bounds) -> Iterable[Violation]:
    """In the line for one resource accounts take turns, and all that an account asks for else is not in
    their way: while nobody holds it, it is tried for."""
    holds = _holds(history)
    for end in (*history.all(Granted), *history.all(Refused)):
        asked = history.asked[end.request]
        if asked.app.startswith(GREEDY) or asked.wait_ms is None or asked.at_ns < LOOKED_MS * MS:
            continue
        others = [one for one in holds[asked.resource] if one.to_ns > asked.at_ns and one.from_ns < end.at_ns]
        held_ns = sum(min(one.to_ns, end.at_ns) - max(one.from_ns, asked.at_ns) for one in others)
        free_ms = (end.at_ns - asked.at_ns - held_ns) / MS
        if free_ms > FREE_MS:
            text = f"{asked.app} waited, and for {free_ms:.0f} ms of that nobody held it"
            yield Violation("line beside greed", end.at_ns, text)
        came = Counter(one.account for one in others if one.host == asked.host and one.from_ns > asked.at_ns)
        if (most := came.most_common(1)) and most[0][1] > TURNS:
            text = f"{asked.app} waited while {most[0][0]} had it {most[0][1]} times"
            yield Violation("line beside greed", end.at_ns, text)


@dataclass(frozen=True, slots=True)
class _Held:
    """host: of its agent."""

    account: str
    host: str
    from_ns: int
    to_ns: int


def _holds(history: Reading) -> dict[bytes, list[_Held]]:
    """By resource. One that is given back is held until its agent has answered."""
    unlocked_ns = {event.token: event.at_ns for event in history.all(Unlocked)}
    held = defaultdict(list)
    for hold in history.holds.values():
        asked, to_ns = hold.asked, unlocked_ns.get(hold.token, hold.deadline_ns)
        account = asked.app.partition(",")[0]
        held[asked.resource].append(_Held(account, asked.host, hold.granted.at_ns, to_ns))
    return held


MODEST_CHECKS = (keeps_its_leases, is_served_soon, has_its_floor, no_more_than_there_is, has_its_turn_in_line)
