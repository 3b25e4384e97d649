"""What lives with a process: is it kept while that lives, and is it free once it is dead (rule 13)?

Promises that hold only as long as masters and machine do their part. So a lease is judged where the masters,
and the ways to them, were well all the time, the processor was to be had, and nobody had spoilt the journal.
All else (exclusion, fences, nothing for nobody) is for the checker that the simulator has too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.hosts import DELAYED, KEEP_MS, KEPT, AgentHost
from tests.chaos.strain import Strain
from tests.harness.checker import Hold, Reading, Violation
from tests.harness.clocks import MS
from tests.harness.history import Abandoned, Asked, Event, Found, LetGo, Missed, Unlocked, Withdrawn

_WELL_FOR_NS = 3_000 * MS
"""So long after trouble masters and their links may not be what they were before."""
_AT_ONCE_NS = 1_500 * MS
_TAKING_OVER_NS = 700 * MS
_AGAIN_NS = 1_500 * MS
_ASKED_FOR_NS = 12_000 * MS
"""No app here asks for longer than this until it gives up."""
_FAR_NS = 1 << 62
_RENEWED_WITH = 0.6
"""An agent renews with two thirds of the TTL left: so much is left when it dies."""
_SEES_ENDS_MS = 500
"""A lock_delay counts from when its agent has seen the death, and masters differ in when they end a lease."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """troubles_ns: when masters or lines were not well. quorum: so many masters make one."""

    agents: Mapping[str, AgentHost]
    troubles_ns: Sequence[Span]
    strain: Strain
    quorum: int

    def agent_of(self, app: str) -> AgentHost:
        return self.agents[app.rpartition("@")[2]]

    def well(self, agent: AgentHost, from_ns: int, until_ns: int) -> bool:
        """Nothing but agents and apps was disturbed in that time, and no journal of this one."""
        return not (
            any(a_ns < until_ns and from_ns < b_ns + _WELL_FOR_NS for a_ns, b_ns in self.troubles_ns)
            or any(from_ns <= at_ns <= until_ns for at_ns in agent.spoilt_ns)
        )

    def late_ns(self, agent: AgentHost, from_ns: int, until_ns: int) -> int:
        """By how much more what it did then may be late, since the machine was busy."""
        return 2 * self.strain.waited_ns(agent.name, from_ns, until_ns)


def absences(agent: AgentHost, from_ns: int, until_ns: int) -> list[Span]:
    """When there was no agent in that time. Between two that follow at once it has had no time to do
    anything: they are one."""
    found: list[Span] = []
    for since_ns, back_ns in agent.away_ns:
        end_ns = 1 << 62 if back_ns is None else back_ns
        if end_ns <= from_ns or since_ns >= until_ns:
            continue
        if found and since_ns - found[-1][1] < _AGAIN_NS:
            since_ns = found.pop()[0]
        found.append((since_ns, end_ns))
    return found


def kept(history: Reading, around: Circumstances) -> Iterable[Violation]:
    """What a living process was told that it holds, it keeps: over pools, pauses, and restarts of its agent
    that are short against its TTL, up to its max_hold."""
    judged: set[bytes] = set()
    for missed in history.all(Missed):
        hold = history.holds.get(missed.token)
        if hold is None or missed.token in judged or not hold.asked.by_process:
            continue
        judged.add(missed.token)
        if missed.at_ns < _max_hold_ends_ns(hold) and _had_to_be_kept(hold, missed.at_ns, around):
            yield Violation("kept", missed.at_ns, f"{hold} was lost: {missed.why}")


def _max_hold_ends_ns(hold: Hold) -> int:
    return hold.granted.at_ns + ((hold.asked.max_hold_ms or 0) - 1_000) * MS


def _had_to_be_kept(hold: Hold, until_ns: int, around: Circumstances) -> bool:
    """The time that nobody renewed it was short against its TTL, whatever the machine had else to do."""
    agent, from_ns = around.agent_of(hold.asked.app), hold.asked.at_ns
    away = absences(agent, from_ns, until_ns)
    longest_ns = max((back_ns - since_ns for since_ns, back_ns in away), default=0)
    late_ns = _TAKING_OVER_NS + around.strain.waited_ns(agent.name, from_ns, until_ns)
    in_time = longest_ns + late_ns < hold.asked.ttl_ms * MS * _RENEWED_WITH
    return in_time and around.well(agent, from_ns, until_ns)


def freed(history: Reading, around: Circumstances) -> Iterable[Violation]:
    """What a process has given back, or is dead, is free at once, or after its keep_ms or lock_delay; where
    its agent was away just then, as soon as the next one is there. Unless the next in line has it, under the
    same tenure."""
    over: dict[bytes, LetGo | Unlocked] = {e.token: e for e in history.all(LetGo) if e.why == "died"}
    over |= {event.token: event for event in history.all(Unlocked)}
    last_ns = _shown_by_quorums(history, around.quorum)
    for token, hold in history.holds.items():
        if token not in over or not history.is_last(token):
            continue
        shown_ns, over_ns = last_ns.get(hold.tenure, 0), over[token].at_ns
        if isinstance(over[token], Unlocked) and hold.granted.resource.startswith(KEPT.encode()):
            over_ns += KEEP_MS * MS
        if shown_ns > _free_by_ns(hold, over_ns, around) and not _next_may_have_it(
            history, hold, over_ns, around.agent_of(hold.asked.app)
        ):
            late_ms = (shown_ns - over[token].at_ns) // MS
            text = f"a quorum still shows {hold} {late_ms} ms after {over[token]}"
            yield Violation("freed", shown_ns, text)


def _next_may_have_it(history: Reading, hold: Hold, over_ns: int, agent: AgentHost) -> bool:
    """Somebody was in line for it when it was over, and its agent was killed before he had an answer: the
    next agent knows that it was handed on to him, not whether he was told, and keeps it for as long as it
    lasts (core/takeover.py)."""
    ended_ns = {event.request: event.at_ns for event in history.all(Withdrawn)}
    killed_ns = [at_ns for at_ns, _ in agent.away_ns if over_ns <= at_ns < over_ns + _AT_ONCE_NS]
    return any(
        asked.at_ns <= at_ns and over_ns <= ended_ns.get(asked.request, 0)
        for asked in history.all(Asked)
        if asked.resource == hold.asked.resource and asked.app.rpartition("@")[2] == agent.name
        for at_ns in killed_ns
    )


def _shown_by_quorums(history: Reading, quorum: int) -> dict[bytes, int]:
    """When so many masters showed each lease for the last time."""
    shown: dict[bytes, dict[str, int]] = defaultdict(dict)
    for found in history.all(Found):
        shown[found.token][found.master] = found.at_ns
    return {token: sorted(by.values())[-quorum] for token, by in shown.items() if len(by) >= quorum}


def _free_by_ns(hold: Hold, over_ns: int, around: Circumstances) -> int:
    """From here on no quorum may show it; far away where nobody can say."""
    agent = around.agent_of(hold.asked.app)
    delay_ns = agent.lock_delay_ms * MS if _is_delayed(hold) else 0
    at_ns = over_ns
    for since_ns, back_ns in absences(agent, hold.asked.at_ns, over_ns + delay_ns + _AT_ONCE_NS):
        if not hold.asked.by_process:
            return _FAR_NS  # with its agent it has lost its connection, and ends at its deadline
        if since_ns < at_ns + _AT_ONCE_NS:
            at_ns = max(at_ns, back_ns)
    free_ns = max(at_ns, over_ns + delay_ns) + _AT_ONCE_NS
    well = around.well(agent, hold.asked.at_ns, free_ns)
    return free_ns + around.late_ns(agent, over_ns, free_ns) if well else _FAR_NS


def abandoned(history: Reading, around: Circumstances) -> Iterable[Violation]:
    """What an app was not told of, since it gave up waiting, is nobody's: it is given back at once."""
    last_ns = _shown_by_quorums(history, around.quorum)
    for event in history.all(Abandoned):
        agent, free_ns = around.agent_of(event.app), event.at_ns + _AT_ONCE_NS
        free_ns += around.late_ns(agent, event.at_ns, free_ns)
        if (
            last_ns.get(event.token, 0) > free_ns
            and not absences(agent, event.at_ns - _ASKED_FOR_NS, free_ns)
            and around.well(agent, event.at_ns - _ASKED_FOR_NS, free_ns)
        ):
            late_ms = (last_ns[event.token] - event.at_ns) // MS
            text = f"a quorum still shows it {late_ms} ms after {event}"
            yield Violation("abandoned", last_ns[event.token], text)


def _is_delayed(hold: Hold) -> bool:
    return hold.granted.resource.startswith(DELAYED.encode())


def delayed(history: Reading, around: Circumstances) -> Iterable[Violation]:
    """Where its class has a lock_delay, nobody else gets what a dead process held before that is over, over
    restarts of its agent too."""
    died_ns = {event.token: event.at_ns for event in history.all(LetGo) if event.why == "died"}
    for holds in history.holds_by(lambda resource: resource):
        for hold in holds:
            if hold.token not in died_ns or not _is_delayed(hold) or not hold.asked.by_process:
                continue
            over_ns = died_ns[hold.token]
            delay_ns = (around.agent_of(hold.asked.app).lock_delay_ms - _SEES_ENDS_MS) * MS
            until_ns = min(over_ns + delay_ns, _max_hold_ends_ns(hold))
            heir = next((h for h in holds if over_ns < h.granted.at_ns < until_ns), None)
            if heir is not None and _had_to_be_kept(hold, heir.granted.at_ns, around):
                after_ms = (heir.granted.at_ns - over_ns) // MS
                text = f"{heir}, {after_ms} ms after the process of {hold} died"
                yield Violation("lock delay", heir.granted.at_ns, text)


CHECKS: tuple[Callable[[Reading, Circumstances], Iterable[Violation]], ...] = (
    kept,
    freed,
    abandoned,
    delayed,
)


def check_processes(events: Iterable[Event], around: Circumstances) -> list[Violation]:
    """All that was violated of what lives with processes."""
    history = Reading(events)
    return [violation for one in CHECKS for violation in one(history, around)]
