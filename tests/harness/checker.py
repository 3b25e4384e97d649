"""Were the promises kept? Reads a history, simulated or real, and lists what was violated.

Each check serves one promise, is a function of the history alone, and says which events contradict it. None
trusts what an agent believes: leases are judged by true time, fences by the real-time order of their grants.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TypeVar

from lockd.core.fences import slot_of
from lockd.core.validity import NEVER_NS, drift_ns, notice_ns
from tests.harness.clocks import MS
from tests.harness.history import (
    Answered,
    Asked,
    Began,
    Believes,
    Calm,
    Claimed,
    Declined,
    Died,
    Ended,
    Event,
    Extended,
    ExtensionAsked,
    Failed,
    Fault,
    Forced,
    Forgot,
    Found,
    GivenBack,
    Granted,
    Handed,
    HungUp,
    InStep,
    Knows,
    Landed,
    LetGo,
    Lost,
    Moved,
    Prolonged,
    Read,
    Refused,
    ReleasedByValue,
    Removed,
    Slewed,
    Stopped,
    TakenBack,
    TakenOver,
    ToldGone,
    Tried,
    Unlocked,
    WentOn,
    Withdrawn,
    Wrote,
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a run allows for. All in ms.

    serve_ms: within this after the faults stopped and its WAIT ended, a request is answered. leftover_ms: how
    much longer than its TTL what a failed try left may be seen: what the clocks may differ by and, where it
    isn't known when a try landed on a master, the longest that it may have been under way. give_back_ms:
    within this after the faults stopped, what failed before is given back, and not only at the end of its
    TTL. hold_slack_ms: what the clocks may be off over a max_hold. min_validity_ms: what is handed out lasts
    that long still. under_way_ms: so long may a message be lost and sent again when nothing is broken.
    shared_ms: what the masters said so long ago may be said to others who ask, and a lease may be there for
    so long after its holder let it go. settled_ms: how long agents take to begin. quorum: how many masters
    make one; 0 where they are not all heard at all times. lock_delay_ms: so long what a dead app had is kept
    from others. keep_ms: so long a tenure may stay when nobody has it any more. at_once_ms: within this, and
    its lock_delay, a quorum of the masters is told of what is nobody's any more; 0 where no history says
    that.
    idle_ms: nobody waits for longer while nobody holds. turn_ms: so long a host hands on once another waits.
    turns: of each other host that one may see come and go while it waits. All three 0 where anything may be
    broken.
    begins_ms: a modest account's command begins within this time after it came, beside greedy accounts.
    """

    serve_ms: int
    leftover_ms: int
    give_back_ms: int
    hold_slack_ms: int = 0
    min_validity_ms: int = 0
    under_way_ms: int = 3_000
    shared_ms: int = 300
    settled_ms: int = 500
    quorum: int = 0
    lock_delay_ms: int = 0
    keep_ms: int = 0
    at_once_ms: int = 0
    idle_ms: int = 0
    turn_ms: int = 0
    turns: int = 0
    begins_ms: int = 0


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: which, when, and by which events."""

    promise: str
    at_ns: int
    text: str

    def __str__(self) -> str:
        return f"{self.promise} broken at {self.at_ns / 1e9:.6f}: {self.text}"


@dataclass(slots=True)
class Hold:
    """A lease as its holder saw it: relied upon from its grant to its last deadline, or until it let go."""

    granted: Granted
    asked: Asked
    extensions: list[Extended] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    let_go_ns: int | None = None

    @property
    def token(self) -> bytes:
        return self.granted.token

    @property
    def tenure(self) -> bytes:
        return tenure_of(self.granted.token)

    @property
    def began_ns(self) -> int:
        """When the try began, or at least when it can't have been before."""
        return self.asked.at_ns if self.granted.tried_ns is None else self.granted.tried_ns

    @property
    def ended_ns(self) -> int:
        """From here on nobody relies on it. Who is told to go on goes on, also when that comes after the
        deadline: it has to be true then."""
        return self.deadline_ns if self.let_go_ns is None else min(self.deadline_ns, self.let_go_ns)

    @property
    def deadline_ns(self) -> int:
        """The last that anybody was told."""
        told = [self.granted, *self.extensions]
        if not self.moved:
            return max(event.deadline_ns for event in told)
        last = self.moved[-1]
        return max(last.deadline_ns, *(e.deadline_ns for e in told if e.at_ns > last.at_ns), 0)

    def __str__(self) -> str:
        began_s, from_s, to_s = (ns / 1e9 for ns in (self.began_ns, self.granted.at_ns, self.ended_ns))
        return (
            f"{self.token[:8].decode()} (fence {self.granted.fence}, for {self.asked.app}, tried for at "
            f"{began_s:.6f}, held from {from_s:.6f} to {to_s:.6f})"
        )


E = TypeVar("E", bound=Event)


def tenure_of(token: bytes) -> bytes:
    """What the masters know a lease by, given its name in a history."""
    return token[:32]


class Reading:
    """A history, sorted into what the checks ask for."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = _by_first_names(sorted(events, key=lambda event: event.at_ns))
        self._by_kind: dict[type[Event], list[Event]] = defaultdict(list)
        for event in self.events:
            self._by_kind[type(event)].append(event)
        self.asked = {event.request: event for event in self.all(Asked)}
        self.holds = {g.token: Hold(g, self.asked[g.request]) for g in self.all(Granted)}
        self._follow_holds()
        self.under: dict[bytes, list[Hold]] = defaultdict(list)
        """By tenure."""
        for hold in self.holds.values():
            self.under[hold.tenure].append(hold)
        self.forced_ns: dict[bytes, int] = {}
        for forced in self.all(Forced):
            self.forced_ns.setdefault(forced.token, forced.at_ns)
        self._taken_by_value()
        self._keepers: dict[bytes, list[tuple[int, str]]] = defaultdict(list)
        for one in (*self.all(Tried), *self.all(TakenOver)):
            self._keepers[one.token].append((one.at_ns, one.host))
        self.handed: dict[bytes, list[Handed]] = defaultdict(list)
        """By tenure, in their order."""
        self._handed_ns: dict[bytes, int] = {}
        for handed in self.all(Handed):
            self.handed[tenure_of(handed.token)].append(handed)
            self._handed_ns.setdefault(handed.token, handed.at_ns)
        self.died_ns = {event.host: event.at_ns for event in self.all(Died)}
        ttls_ms = (event.ttl_ms for event in (*self.all(Asked), *self.all(ExtensionAsked)))
        self.longest_ttl_ms = max(ttls_ms, default=0)
        self._asked_ttls_ms: dict[bytes, int] = {}
        for asked in self.all(ExtensionAsked):
            known_ms = self._asked_ttls_ms.get(asked.token, 0)
            self._asked_ttls_ms[asked.token] = max(known_ms, asked.ttl_ms)
        self.believes: dict[bytes, list[Believes]] = defaultdict(list)
        for believes in self.all(Believes):
            self.believes[believes.token].append(believes)

    def _follow_holds(self) -> None:
        """What became of each."""
        for extended in self.all(Extended):
            if extended.token in self.holds:
                self.holds[extended.token].extensions.append(extended)
        for moved in self.all(Moved):
            if moved.token in self.holds:
                self.holds[moved.token].moved.append(moved)
        for let_go in self.all(LetGo):
            hold = self.holds.get(let_go.token)
            if hold is not None and hold.let_go_ns is None:
                hold.let_go_ns = let_go.at_ns

    def _taken_by_value(self) -> None:
        """From who holds it, by another with the same value: no agent's fault, if it was asked to."""
        resources = {tried.token: tried.resource for tried in self.all(Tried)}
        from_ns: dict[tuple[bytes, bytes, str], int] = {}
        for asked in self.all(ReleasedByValue):
            from_ns.setdefault((asked.resource, asked.word, asked.host), asked.at_ns)
        for gone in (event for event in self.all(Removed) if event.word):
            by = resources.get(gone.token, b""), gone.word, gone.host
            if from_ns.get(by, NEVER_NS) <= gone.at_ns:
                known_ns = self.forced_ns.get(gone.token, NEVER_NS)
                self.forced_ns[gone.token] = min(known_ns, gone.at_ns)

    def longest_ttl_ms_of(self, hold: Hold) -> int:
        """That it may have had: its app may have asked for another one since."""
        return max(hold.asked.ttl_ms, self._asked_ttls_ms.get(hold.token, 0))

    def keeper_of(self, token: bytes, at_ns: int) -> str | None:
        """Which agent looks after that lease then."""
        keepers = [host for from_ns, host in self._keepers[tenure_of(token)] if from_ns <= at_ns]
        return keepers[-1] if keepers else None

    def is_first(self, token: bytes) -> bool:
        """Its tenure was tried for, for that lease."""
        return all(handed.token == token for handed in self.handed[tenure_of(token)][:1])

    def is_last(self, token: bytes) -> bool:
        """Its tenure is handed on to nobody behind that lease."""
        handed = self.handed[tenure_of(token)]
        return not handed or handed[-1].token == token

    def had_since_ns(self, granted: Granted) -> int | None:
        """When its agent gave that lease out; None: not known. One of a list was before that is answered."""
        return self._handed_ns.get(granted.token, granted.answered_ns)

    def handed_on_ns(self, token: bytes) -> int:
        """When its tenure was, behind that lease."""
        handed = self.handed[tenure_of(token)]
        place = next((at for at, one in enumerate(handed) if one.token == token), len(handed))
        return handed[place + 1].at_ns if place + 1 < len(handed) else NEVER_NS

    def never_read(self) -> Iterable[tuple[bytes, int, bool]]:
        """The leases whose requests have all hung up before an answer was read; since when, and whether their
        agent can know."""
        hung_up = {event.request: event for event in self.all(HungUp)}
        answers: dict[bytes, list[Answered]] = defaultdict(list)
        for answered in self.all(Answered):
            if answered.bound != "ttl":
                answers[answered.token].append(answered)
        for token, of_token in answers.items():
            if token not in self.holds and all(a.request in hung_up for a in of_token):
                ends = [hung_up[a.request] for a in of_token]
                yield token, max(e.at_ns for e in (*ends, *of_token)), all(e.alone for e in ends)

    def wanted(self, asked: Asked) -> Sequence[bytes]:
        """All that was asked for together with this, or each that would do."""
        if asked.whole:
            return [one.resource for one in self.asked.values() if one.whole == asked.whole]
        return asked.among or (asked.resource,)

    def over_ns(self, *ends: type[Answered | Declined | HungUp | TakenBack]) -> dict[int, int]:
        """When each request came to the first of such ends."""
        over_ns: dict[int, int] = {}
        for event in (event for kind in ends for event in self.all(kind)):
            over_ns[event.request] = min(event.at_ns, over_ns.get(event.request, event.at_ns))
        return over_ns

    def was_stopped(self, who: str, from_ns: int, to_ns: int) -> bool:
        """Whether that process was stopped at any time from then to then."""
        turns = [e for e in self.events if isinstance(e, Stopped | WentOn) and e.who == who]
        before = [turn for turn in turns if turn.at_ns <= from_ns]
        meanwhile = any(from_ns < turn.at_ns <= to_ns and isinstance(turn, Stopped) for turn in turns)
        return meanwhile or bool(before and isinstance(before[-1], Stopped))

    def said_from_ns(self, who: str, heard_ns: int) -> int:
        """When what that process heard then was said, at the earliest: while it was stopped it lay unread."""
        turns = [e for e in self.events if isinstance(e, Stopped | WentOn) and e.who == who]
        before = [turn for turn in turns if turn.at_ns <= heard_ns]
        just_went_on = len(before) > 1 and isinstance(before[-1], WentOn) and before[-1].at_ns == heard_ns
        return before[-2].at_ns if just_went_on else heard_ns

    def known_at_ns(self, believes: Believes) -> int | None:
        """When the agent knew of that standstill, if it ever did."""
        known = (k.at_ns for k in self.all(Knows) if k.host == believes.host and k.at_ns >= believes.at_ns)
        return next(known, None)

    def unknown_standstill_ns(self, hold: Hold, at_ns: int, said_ns: int = NEVER_NS) -> int:
        """For how long its host stood still under that lease, as far as its agent did not know of it then.
        said_ns: when it spoke, if its app heard that later."""
        return sum(
            believes.for_ns
            for believes in self.believes[hold.token]
            if believes.at_ns <= at_ns and (self.known_at_ns(believes) or at_ns) >= min(at_ns, said_ns)
        )

    def all(self, kind: type[E]) -> list[E]:
        return self._by_kind[kind]  # type: ignore[return-value]  # sorted by type above

    def holds_by(self, key: Callable[[bytes], object]) -> Iterable[list[Hold]]:
        """The holds of each resource (or of each group of resources), in the order of their grants."""
        groups: dict[object, list[Hold]] = defaultdict(list)
        for hold in self.holds.values():
            groups[key(hold.granted.resource)].append(hold)
        return groups.values()


def _by_first_names(events: list[Event]) -> list[Event]:
    """A tenure that was taken over is the same one, by whatever nonce the masters know it."""
    first: dict[bytes, bytes] = {}
    for event in events:
        if isinstance(event, TakenOver):
            first[event.token] = first.get(event.before, event.before)
    if not first:
        return events
    return [_by_first_name(event, first) for event in events]


def _by_first_name(event: Event, first: Mapping[bytes, bytes]) -> Event:
    token = getattr(event, "token", None)
    if token is None or tenure_of(token) not in first:
        return event
    return replace(event, token=first[tenure_of(token)] + token[32:])  # type: ignore[call-arg]  # it has one


def exclusion(history: Reading, _: Bounds) -> Iterable[Violation]:
    """No two leases of one resource are valid at once, by true time; and no lease has two holders. What was
    taken away by force excludes nobody."""
    first: dict[bytes, Granted] = {}
    for granted in history.all(Granted):
        before = first.setdefault(granted.token, granted)
        if before is not granted:
            yield Violation("exclusion", granted.at_ns, f"{granted} was granted before: {before}")
    for holds in history.holds_by(lambda resource: resource):
        last: Hold | None = None
        for hold in holds:
            forced_ns = history.forced_ns.get(hold.tenure, NEVER_NS)
            if last is not None and hold.granted.at_ns < min(
                last.ended_ns, hold.ended_ns, forced_ns, history.forced_ns.get(last.tenure, NEVER_NS)
            ):
                yield Violation("exclusion", hold.granted.at_ns, f"{hold} was granted while {last} was valid")
            if forced_ns == NEVER_NS and (last is None or hold.ended_ns > last.ended_ns):
                last = hold


def fences(history: Reading, _: Bounds) -> Iterable[Violation]:
    """Fences are unique, and of two grants, one that was there before the other was tried for has the smaller
    one: whatever became of exclusion (rule 6)."""
    for holds in history.holds_by(slot_of):
        first_with: dict[int, Hold] = {}
        for hold in holds:
            twin = first_with.setdefault(hold.granted.fence, hold)
            if twin is not hold:
                yield Violation("fences", hold.granted.at_ns, f"{hold} and {twin} have the same fence")
    for holds in history.holds_by(lambda resource: resource):
        yield from _out_of_order(holds)
    handed: dict[bytes, Hold] = {}
    for hold in history.holds.values():
        before = handed.setdefault(hold.tenure, hold)
        if before is not hold and hold.granted.fence <= before.granted.fence:
            at_ns = hold.granted.at_ns
            yield Violation("fences", at_ns, f"{hold} was handed on by {before}, its fence is no larger")
        handed[hold.tenure] = hold


def _out_of_order(holds: Sequence[Hold]) -> Iterable[Violation]:
    """Walks over tries and grants in time: a try has to bring more than the highest fence granted before
    it."""
    moments = [(hold.began_ns, 0, hold) for hold in holds] + [(h.granted.at_ns, 1, h) for h in holds]
    highest: Hold | None = None
    floors: dict[bytes, Hold | None] = {}
    for _, granted, hold in sorted(moments, key=lambda moment: moment[:2]):
        if not granted:
            floors[hold.token] = highest
            continue
        before = floors[hold.token]
        if before is not None and hold.granted.fence <= before.granted.fence:
            yield Violation(
                "fences", hold.granted.at_ns, f"{hold} came after {before}, its fence is no larger"
            )
        if highest is None or hold.granted.fence > highest.granted.fence:
            highest = hold


def stale_writes(history: Reading, _: Bounds) -> Iterable[Violation]:
    """A resource that checks fences accepts nothing from a lease once one granted after it has written."""
    newest: dict[bytes, Hold] = {}
    for write in history.all(Wrote):
        hold = history.holds.get(write.token)
        if not write.accepted or hold is None:
            continue
        latest = newest.get(write.resource)
        if latest is not None and hold.granted.at_ns < latest.began_ns:
            yield Violation("stale writes", write.at_ns, f"{hold} wrote after {latest} had written")
        if latest is None or hold.granted.at_ns > latest.granted.at_ns:
            newest[write.resource] = hold


def answers(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """Every request is answered once; those that are open when the faults stop, within a bound."""
    answered: dict[int, Event] = {}
    for event in history.events:
        if isinstance(event, Granted | Refused):
            before = answered.setdefault(event.request, event)
            if before is not event and not isinstance(before, Withdrawn):
                yield Violation("answers", event.at_ns, f"answered twice: {before} and {event}")
        elif isinstance(event, Withdrawn):
            answered.setdefault(event.request, event)
    for calm in history.all(Calm)[-1:]:
        end_ns = next((event.at_ns for event in history.all(Ended)), history.events[-1].at_ns)
        for request, asked in history.asked.items():
            due_ns = max(calm.at_ns, asked.at_ns + (asked.wait_ms or 0) * MS) + bounds.serve_ms * MS
            answer = answered.get(request)
            if due_ns <= end_ns and (answer is None or answer.at_ns > due_ns):
                late = "was never answered" if answer is None else f"was answered late: {answer}"
                yield Violation("answers", due_ns, f"{asked} {late}")


def served(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """With all mended, whoever waits for long enough gets the resource, unless others had it meanwhile: an
    outage is none any more, on any host."""
    for calm in history.all(Calm)[-1:]:
        for refused in history.all(Refused):
            asked = history.asked[refused.request]
            if (asked.wait_ms or 0) < bounds.serve_ms or asked.at_ns < calm.at_ns:
                continue
            wanted, since_ns = history.wanted(asked), asked.at_ns
            if asked.whole:
                # Of a list each part is held for a moment: who waits for one, for half of the time, and sees
                # nobody have it, waits for who waits for another.
                since_ns = (asked.at_ns + refused.at_ns) // 2
            others_had_it = refused.code == "TIMEOUT" and any(
                hold.granted.resource in wanted and since_ns < hold.granted.at_ns < refused.at_ns
                for hold in history.holds.values()
            )
            if not others_had_it:
                yield Violation("served", refused.at_ns, f"{asked} got {refused.code} {refused.text}")


def live_releases(history: Reading, _: Bounds) -> Iterable[Violation]:
    """Nothing that is held is taken from a master under its live holder. What was put back there, and no
    proof has counted yet, is held by nobody."""
    back_ns: dict[tuple[str, bytes], int] = {}
    forgot_ns = {event.token: event.at_ns for event in history.all(Forgot)}
    for event in sorted((*history.all(Landed), *history.all(Removed)), key=lambda event: event.at_ns):
        if isinstance(event, Landed):
            if event.put_back:
                back_ns[event.master, event.token] = event.at_ns
            continue
        holds = history.under.get(event.token, ())
        hold = next((one for one in holds if one.granted.at_ns <= event.at_ns < one.ended_ns), None)
        if hold is None or history.forced_ns.get(event.token, NEVER_NS) <= event.at_ns:
            continue
        if forgot_ns.get(hold.token, event.at_ns) < event.at_ns:
            continue
        put_back_ns = back_ns.get((event.master, event.token))
        counted = put_back_ns is None or any(
            put_back_ns < told.at_ns <= event.at_ns for one in holds for told in one.extensions
        )
        if counted:
            yield Violation("live releases", event.at_ns, f"{hold} was released on {event.master}")


def told_gone(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """Who has what he holds released by its value is not told that nobody holds it, by whatever agent: while
    nothing is broken, and so every master is heard."""
    broken_ns = min((fault.at_ns for fault in history.all(Fault)), default=NEVER_NS)
    for told in history.all(ToldGone) if bounds.quorum else ():
        hold = history.holds[told.token]
        is_his = told.at_ns < min(hold.deadline_ns, history.forced_ns.get(hold.tenure, NEVER_NS))
        if is_his and told.at_ns < broken_ns:
            yield Violation("told gone", told.at_ns, f"{hold} was told that nobody holds it")


def comebacks(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """What was given back, by whatever agent, comes back nowhere: only what was under way then may still
    land."""
    unlocked_ns = {
        tenure_of(event.token): event.at_ns for event in history.all(Unlocked) if history.is_last(event.token)
    }
    calm = calm_since(history)
    for landed in history.all(Landed):
        free_ns = unlocked_ns.get(landed.token)
        calm_ns = calm(landed.at_ns)
        if free_ns is None or calm_ns is None:
            continue
        late_ms = (landed.at_ns - max(free_ns, calm_ns)) // MS
        if late_ms > bounds.under_way_ms:
            yield Violation(
                "comebacks", landed.at_ns, f"given back {late_ms} ms ago, and there again: {landed}"
            )


def taken(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """TAKEN is true: while nothing is broken, and so every master is heard, somebody else held it then, or
    had it on a quorum."""
    broken_ns = min((fault.at_ns for fault in history.all(Fault)), default=None)
    tried = {event.token: event for event in history.all(Tried)}
    landed: dict[bytes, list[Landed]] = defaultdict(list)
    for event in history.all(Landed):
        if event.token in tried:
            landed[tried[event.token].resource].append(event)
    removed_ns = {(event.master, event.token): event.at_ns for event in history.all(Removed)}
    left = {event.token for event in history.all(LetGo) if event.why == "left"}
    holds = {group[0].granted.resource: group for group in history.holds_by(lambda resource: resource)}
    for refused in history.all(Refused):
        asked = history.asked[refused.request]
        if refused.code != "TAKEN" or not bounds.quorum or asked.at_ns < bounds.settled_ms * MS:
            continue
        if broken_ns is not None and broken_ns <= refused.at_ns:
            break
        since_ns = asked.at_ns - bounds.shared_ms * MS

        def was_had(resource: bytes, since_ns: int = since_ns, refused: Refused = refused) -> bool:
            if any(
                hold.began_ns <= refused.at_ns
                and since_ns <= (hold.deadline_ns if hold.token in left else hold.ended_ns)
                for hold in holds.get(resource, ())
            ):
                return True
            on: dict[bytes, set[str]] = defaultdict(set)
            for event in landed[resource]:
                gone_ns = removed_ns.get((event.master, event.token), refused.at_ns)
                if event.at_ns <= refused.at_ns and since_ns <= gone_ns:
                    on[event.token].add(event.master)
            return max(map(len, on.values()), default=0) >= bounds.quorum

        of_each = (all if asked.among else any)(map(was_had, history.wanted(asked)))
        if not of_each:
            yield Violation("taken", refused.at_ns, f"nobody had it: {asked} got {refused}")


def max_hold(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """No lease is granted for longer than its max_hold, or renewed past it (rule 7). That counts from the
    grant: other agents know of its age only what a quorum of the masters knows, and those voted before. What
    its host stood still counts from when that can be known, by an agent whose word its app reads later."""
    for hold in history.holds.values():
        if hold.asked.max_hold_ms is None:
            continue
        granted = hold.granted
        end_ns = granted.at_ns + (hold.asked.max_hold_ms + bounds.hold_slack_ms) * MS
        for told in (granted, *hold.extensions):
            late_ns = told.deadline_ns - end_ns
            if late_ns <= history.unknown_standstill_ns(hold, told.at_ns):
                continue
            said_ns = history.said_from_ns(hold.asked.app, told.at_ns)
            if late_ns > history.unknown_standstill_ns(hold, told.at_ns, said_ns):
                text = f"{hold} was promised to {told.deadline_ns / 1e9:.6f}"
                yield Violation("max hold", told.at_ns, text)
                break
    yield from _handed_on_too_late(history, bounds)


def _handed_on_too_late(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """A tenure that is older than its next holder may hold anything is handed on no more (rule 7)."""
    tries = {tried.token: tried for tried in history.all(Tried)}
    for hold in history.holds.values():
        tried, most_ms = tries.get(hold.tenure), hold.asked.max_hold_ms
        had_ns = history.had_since_ns(hold.granted)
        if tried is None or most_ms is None or had_ns is None:
            continue
        late_ns = had_ns - tried.at_ns - (most_ms + bounds.hold_slack_ms) * MS
        if late_ns > history.unknown_standstill_ns(hold, hold.granted.at_ns) + hold.granted.unseen_ns:
            yield Violation("max hold", hold.granted.at_ns, f"{hold} was handed on under {tried}")


def leftovers(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """What a failed try left behind is given back as soon as its masters can be reached (rule 3), and so is
    the session lock of an app that died (rule 13). In any case it is gone within its TTL."""
    tries = {tried.token: tried for tried in history.all(Tried)}
    failed_ns = {event.token: event.at_ns for event in history.all(Failed)}
    dead_ns = {
        tenure_of(event.token): event.at_ns
        for event in history.all(LetGo)
        if event.why == "died" and history.is_last(event.token)
    }
    over_ns = failed_ns | dead_ns
    died_ns = {event.host: event.at_ns for event in history.all(Died)}
    calm = calm_since(history)
    landed_ns = {(event.master, event.token): event.at_ns for event in history.all(Landed)}
    of_processes = {a.token for a in history.all(Answered) if a.bound != "connection"}
    back: dict[bytes, list[GivenBack]] = defaultdict(list)
    for event in history.all(GivenBack):
        back[event.token].append(event)
    for found in history.all(Found):
        tried = tries.get(found.token)
        if tried is None or found.token not in over_ns:
            continue
        dues_ns = []
        if found.token in failed_ns:
            began_ns = landed_ns.get((found.master, found.token), tried.at_ns)
            dues_ns.append(began_ns + (tried.ttl_ms + bounds.leftover_ms) * MS)
        calm_ns = calm(found.at_ns)
        # An agent that died meanwhile has forgotten what its tries owe. What processes held the next one
        # knows, what belonged to a connection it leaves to its deadline.
        known_ns: int | None = 0
        if died_ns.get(tried.host, -1) >= tried.at_ns:
            told = {event.master for event in back[found.token] if event.at_ns <= found.at_ns}
            # What a quorum has given back an agent owes the rest; the next one does not know of that.
            settled = len(told) >= (bounds.quorum or 1) and any(
                over_ns[found.token] < at_ns <= found.at_ns and name_of(host) == name_of(tried.host)
                for host, at_ns in died_ns.items()
            )
            next_knows = found.token in dead_ns and found.token in of_processes and not settled
            known_ns = _known_again_ns(history, tried.host, found.at_ns) if next_knows else None
        if calm_ns is not None and known_ns is not None:
            dues_ns.append(max(calm_ns, over_ns[found.token], known_ns) + bounds.give_back_ms * MS)
        if dues_ns and found.at_ns > min(dues_ns):
            age_ms = (found.at_ns - over_ns[found.token]) // MS
            yield Violation(
                "leftovers", found.at_ns, f"{found.master} shows what was over {age_ms} ms ago: {tried}"
            )


def name_of(host: str) -> str:
    """Of the host that this agent is on, one after the other."""
    return host.partition(".")[0]


def _known_again_ns(history: Reading, host: str, at_ns: int) -> int | None:
    """When the last agent on that host began, if all since then could know what the one before held."""
    of_host = [e for e in history.all(Began) if e.at_ns <= at_ns and name_of(e.host) == name_of(host)]
    later = [event for event in of_host if _life(event.host) > _life(host)]
    died = [event for event in history.all(Died) if name_of(event.host) == name_of(host)]
    if not later or not all(event.trusts for event in later):
        return None
    serves = not any(later[-1].at_ns < event.at_ns <= at_ns for event in died)
    return later[-1].at_ns if serves else None


def _life(host: str) -> int:
    return int(host.partition(".")[2] or 0)


def free_at_once(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """What a process or a connection had that has ended is given back at once, or after its lock_delay; and
    at once what an app never read of (rule 13). A quorum hears of that within a bound, while nothing is
    broken and the agent lives that has to say it."""
    if not (bounds.at_once_ms and bounds.quorum):
        return
    back: dict[bytes, list[GivenBack]] = defaultdict(list)
    for event in history.all(GivenBack):
        back[event.token].append(event)
    nobodys = *_never_read(history), *_claimed_for_nobody(history)
    ends = *_of_the_dead(history, bounds), *_or_kept(history, bounds, nobodys)
    for token, ended_ns, delay_ms in ends:
        due_ns = ended_ns + (delay_ms + bounds.at_once_ms) * MS
        if not _nothing_is_broken(history, bounds, token, ended_ns, due_ns):
            continue
        told = {event.master for event in back[tenure_of(token)] if event.at_ns <= due_ns}
        if len(told) < bounds.quorum and history.handed_on_ns(token) > due_ns:
            text = (
                f"{token[:8].decode()} is nobody's since {ended_ns / 1e9:.6f}, and {len(told)} masters know"
            )
            yield Violation("free at once", due_ns, text)


def _of_the_dead(history: Reading, bounds: Bounds) -> Iterable[tuple[bytes, int, int]]:
    for let_go in history.all(LetGo):
        hold = history.holds.get(let_go.token)
        if let_go.why == "died" and hold is not None and let_go.at_ns < hold.deadline_ns:
            yield let_go.token, let_go.at_ns, bounds.lock_delay_ms


def _or_kept(
    history: Reading, bounds: Bounds, nobodys: Iterable[tuple[bytes, int]]
) -> Iterable[tuple[bytes, int, int]]:
    """What was unlocked by the name of its request, whoever has read of it, may stay for its keep_ms."""
    taken_back = {event.request for event in history.all(TakenBack)}
    unlocked = {
        event.token
        for event in (*history.all(Answered), *history.all(Claimed))
        if event.request in taken_back
    }
    for token, ended_ns in nobodys:
        yield token, ended_ns, bounds.keep_ms if token in unlocked else 0


def _never_read(history: Reading) -> Iterable[tuple[bytes, int]]:
    """Each request that it was the answer to hung up before it was read."""
    for token, since_ns, alone in history.never_read():
        if alone:
            yield token, since_ns


def _claimed_for_nobody(history: Reading) -> Iterable[tuple[bytes, int]]:
    """Each request that it was granted to is over, and was not answered with it. Not what was taken over:
    the agent before may have told of it, for all that the next one knows."""
    claims: dict[bytes, list[Claimed]] = defaultdict(list)
    for claimed in history.all(Claimed):
        claims[claimed.token].append(claimed)
    answered = {event.token for event in history.all(Answered)}
    taken_over = {event.token for event in history.all(TakenOver)}
    over_ns = history.over_ns(Answered, Declined, HungUp, TakenBack)
    for token, of_token in claims.items():
        told = token in answered or tenure_of(token) in taken_over
        if not told and all(claimed.request in over_ns for claimed in of_token):
            yield token, max(max(one.at_ns, over_ns[one.request]) for one in of_token)


def _nothing_is_broken(history: Reading, bounds: Bounds, token: bytes, from_ns: int, to_ns: int) -> bool:
    """For long enough before, and until then; and the agent lives that looks after that lease."""
    keeper = history.keeper_of(token, from_ns)
    if keeper is None or history.died_ns.get(keeper, to_ns + 1) <= to_ns:
        return False
    calm_ns = max((e.at_ns for e in history.all(Calm) if e.at_ns <= from_ns), default=0)
    if from_ns < calm_ns + bounds.give_back_ms * MS:
        return False
    return not any(calm_ns <= e.at_ns <= to_ns for e in history.all(Fault))


def lock_delays(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """Nobody gets what a dead process had before its lock_delay is over, or it was lost (rule 13): of which
    it is told before its deadline, and from then on it is freed at once."""
    if not bounds.lock_delay_ms:
        return
    died_ns = {event.token: event.at_ns for event in history.all(LetGo) if event.why == "died"}
    for holds in history.holds_by(lambda resource: resource):
        for hold in (hold for hold in holds if hold.token in died_ns):
            at_ns = died_ns[hold.token]
            # Who was stopped may have been told of a loss that he has not read: that is freed at once.
            if history.was_stopped(hold.asked.app, hold.granted.at_ns, at_ns):
                continue
            lost_ns = hold.deadline_ns - notice_ns(history.longest_ttl_ms_of(hold))
            # Its agent's clock says how long that is.
            until_ns = min(at_ns + bounds.lock_delay_ms * MS - drift_ns(bounds.lock_delay_ms), lost_ns)
            # What was over when its app heard of it was given to it before.
            for other in (other for other in holds if other.ended_ns > other.granted.at_ns):
                if at_ns < other.granted.at_ns < min(until_ns, history.forced_ns.get(hold.tenure, NEVER_NS)):
                    text = f"{other} was granted within the lock_delay of {hold}"
                    yield Violation("lock delay", other.granted.at_ns, text)


def given_back(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """What its holder has given back, and nobody of its host had after him, is gone from the masters at once,
    or after its keep_ms: nothing is renewed that nobody has."""
    tries = {tried.token: tried for tried in history.all(Tried)}
    detached = {answered.token for answered in history.all(Answered) if answered.bound == "ttl"}
    unlocked_ns = {
        tenure_of(event.token): event.at_ns
        for event in history.all(Unlocked)
        if event.token not in detached and history.is_last(event.token)
    }
    calm = calm_since(history)
    for found in history.all(Found):
        free_ns, calm_ns = unlocked_ns.get(found.token), calm(found.at_ns)
        if free_ns is None or calm_ns is None or found.token not in tries:
            continue
        tried = tries[found.token]
        if not tried.host:
            continue  # whether its agent lives isn't known
        if any(e.at_ns >= tried.at_ns for e in history.all(Died) if name_of(e.host) == name_of(tried.host)):
            continue
        late_ms = (found.at_ns - max(free_ns + bounds.keep_ms * MS, calm_ns)) // MS
        if late_ms > bounds.give_back_ms:
            text = f"{found.master} still shows {late_ms} ms later what was given back: {tried}"
            yield Violation("given back", found.at_ns, text)


def for_nobody(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """Whatever became of who asked for it, nothing is renewed for longer than he may hold it; what nobody was
    told of, since its agent died just then, for no longer than anybody may (rule 13)."""
    if history.all(Believes):
        return
    tries = {tried.token: tried for tried in history.all(Tried)}
    longest_ms = max((asked.max_hold_ms or 0 for asked in history.all(Asked)), default=0)
    hold_ms: dict[bytes, int] = {}
    answered_ns: dict[bytes, int] = {}
    for answered in history.all(Answered):
        tenure, most_ms = tenure_of(answered.token), history.asked[answered.request].max_hold_ms or longest_ms
        hold_ms[tenure] = max(hold_ms.get(tenure, 0), most_ms)
        answered_ns[tenure] = answered.at_ns
    landed_ns = _landed_ns(history)
    # Others extend those, who see their age on each master.
    detached = {answered.token for answered in history.all(Answered) if answered.bound == "ttl"}
    for found in history.all(Found):
        tried = tries.get(found.token)
        if tried is None or found.token in detached:
            continue
        # Where it isn't known who had it: as long as it may be handed on, and the last one may hold it.
        # It may have been extended to another TTL than it was tried for.
        most_ms = hold_ms.get(found.token, 2 * longest_ms) + history.longest_ttl_ms
        most_ms += bounds.hold_slack_ms + bounds.leftover_ms + bounds.under_way_ms
        # What a dead agent had under way may land late.
        since_ns = landed_ns.get((found.master, found.token), tried.at_ns)
        if found.at_ns > max(since_ns, answered_ns.get(found.token, 0)) + most_ms * MS:
            yield Violation("for nobody", found.at_ns, f"{found.master} still shows what nobody has: {tried}")


def unread(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """What nobody was told of, since its agent died just then, is renewed by none that comes after it
    (rule 13). Who has read of it when he waited no more was told."""
    if history.all(Believes):
        return
    first = _first_taken_over(history)
    told = {*history.under, *(tenure_of(event.token) for event in history.all(Read))}
    tries = {tried.token: tried for tried in history.all(Tried)}
    # Those to whom it was handed on may have asked for another TTL than it was tried for.
    ttl_ms = {tried.token: tried.ttl_ms for tried in tries.values()}
    for claimed in history.all(Claimed):
        tenure, its_ms = tenure_of(claimed.token), history.asked[claimed.request].ttl_ms
        ttl_ms[tenure] = max(ttl_ms.get(tenure, 0), its_ms)
    landed_ns = _landed_ns(history)
    for found in history.all(Found):
        tried = tries.get(found.token)
        if tried is None or found.token in told or found.token not in first:
            continue
        most_ms = ttl_ms[tried.token] + bounds.give_back_ms + bounds.hold_slack_ms + bounds.leftover_ms
        # What a dead agent had under way may land late.
        began_ns = max(first[found.token], landed_ns.get((found.master, found.token), 0))
        if found.at_ns > began_ns + (most_ms + bounds.under_way_ms) * MS:
            yield Violation("for nobody", found.at_ns, f"{found.master} still shows what nobody got: {tried}")


def left_to_its_deadline(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """What belonged to a connection no later agent renews: it ended with its agent. Nor is anything renewed,
    once its connection has ended, of which nobody can tell whether it was read (rule 13). Unless its app
    itself extends it."""
    tries = {tried.token: tried for tried in history.all(Tried)}
    of_connections = {a.token: a.at_ns for a in history.all(Answered) if a.bound == "connection"}
    most_ms = history.longest_ttl_ms + bounds.leftover_ms + bounds.under_way_ms
    left_ns = {
        tenure_of(token): since_ns for token, since_ns, _ in history.never_read() if history.is_last(token)
    }
    for token in filter(history.is_last, of_connections):
        tenure = tenure_of(token)
        # Its tenure may have begun with an agent before that.
        died_ns = history.died_ns.get(history.keeper_of(token, of_connections[token]) or "")
        if died_ns is not None:
            left_ns[tenure] = min(died_ns, left_ns.get(tenure, died_ns))
    extended_ns = defaultdict[bytes, list[int]](list)
    for extended in (event for event in history.all(Extended) if event.asked):
        extended_ns[tenure_of(extended.token)].append(extended.at_ns)
    landed_ns = _landed_ns(history, put_back=False)
    for found in history.all(Found):
        since_ns = left_ns.get(found.token, found.at_ns)
        since_ns = max([since_ns, *(at_ns for at_ns in extended_ns[found.token] if at_ns < found.at_ns)])
        if found.at_ns > max(since_ns, landed_ns.get((found.master, found.token), 0)) + most_ms * MS:
            text = f"{found.master} still shows what has ended with its connection: {tries[found.token]}"
            yield Violation("for nobody", found.at_ns, text)


def _landed_ns(history: Reading, *, put_back: bool = True) -> dict[tuple[str, bytes], int]:
    """When a try came to each master, or the last extension that a dead agent had under way: either may be
    late. put_back: also what was put back there."""
    tries = (event for event in history.all(Landed) if put_back or not event.put_back)
    late = (
        event for event in history.all(Prolonged) if history.died_ns.get(event.host, NEVER_NS) < event.at_ns
    )
    return {(event.master, event.token): event.at_ns for event in chain(tries, late)}


def _first_taken_over(history: Reading) -> dict[bytes, int]:
    """When, by the first name of each."""
    names: dict[bytes, bytes] = {}
    first: dict[bytes, int] = {}
    for event in history.all(TakenOver):
        names[event.token] = name = names.get(event.before, event.before)
        first.setdefault(name, event.at_ns)
    return first


_OF_AGENTS_ALONE = ("crash agent", "stop agent")
_TAKING_OVER_MS = 700


def kept(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """What a living process was told that it holds, and is known to have read, it keeps when its agent dies
    and another begins, as long as the masters answer (rule 13): up to its max_hold."""
    of_agents = all(any(f"  {kind}" in e.what for kind in _OF_AGENTS_ALONE) for e in history.all(Fault))
    if not of_agents or not bounds.quorum:
        return
    tries = {tried.token: tried for tried in history.all(Tried)}
    excused = {lost.token for lost in history.all(Lost) if lost.excused}
    read = {event.token for event in history.all(Read)}
    forced = {hold.token for tenure in history.forced_ns for hold in history.under[tenure]}
    for lost in (*history.all(Lost), *history.all(Forgot)):
        hold = history.holds[lost.token]
        held_ms = (hold.deadline_ns - hold.began_ns) / MS
        ttl_ms = history.longest_ttl_ms_of(hold)
        too_soon = held_ms + ttl_ms / 2 < (hold.asked.max_hold_ms or 0)
        known = lost.token in read and lost.token not in excused | forced
        if not too_soon or not hold.asked.by_process or not known:
            continue
        began_ns = _known_again_ns(history, tries[hold.tenure].host, lost.at_ns)
        if began_ns is None:
            continue
        told_ns = [e.deadline_ns for e in (hold.granted, *hold.extensions) if e.at_ns < began_ns]
        enough_ms = max(_TAKING_OVER_MS, ttl_ms // 2)
        if told_ns and max(told_ns) - began_ns > enough_ms * MS:
            yield Violation("kept", lost.at_ns, f"{hold} was lost, although its agent was back in time")


def calm_since(history: Reading) -> Callable[[int], int | None]:
    """Tells since when nothing was broken at a time; None: something was."""
    turns = sorted((e.at_ns, type(e) is Calm) for e in (*history.all(Calm), *history.all(Fault)))

    def since(at_ns: int) -> int | None:
        before = bisect_right(turns, (at_ns, True))
        return turns[before - 1][0] if before and turns[before - 1][1] else None

    return since


def _undisturbed(history: Reading, from_ns: int, to_ns: int) -> bool:
    """No agent has died or stood still shortly before, nor until then."""
    return not _disturbances(history, from_ns, to_ns)


def _disturbances(history: Reading, from_ns: int, to_ns: int) -> int:
    stops = (history.all(Died), history.all(Stopped), history.all(WentOn))
    return sum(from_ns - _DEAD_FOR_NS < event.at_ns <= to_ns for event in chain(*stops))


_DEAD_FOR_NS = 5_000 * MS
"""After that nothing is left of what it had, and the next one has looked around."""


def agent_of(host: str) -> str:
    """Of whom it is a life."""
    return host.partition(".")[0]


def _waits(history: Reading) -> Iterable[tuple[Asked, int]]:
    """The requests that waited, and until when. What is one of a list stands in that line only once all that
    comes before it is had."""
    answered = {e.request: e.at_ns for e in reversed(history.events) if isinstance(e, Granted | Refused)}
    for asked in history.all(Asked):
        if asked.wait_ms is not None and not asked.whole:
            yield asked, answered.get(asked.request, asked.at_ns + asked.wait_ms * MS)


def idle(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """Nobody waits for long while nobody holds: what an agent has that dies or stands still ends soon."""
    if not bounds.idle_ms:
        return
    most_ns = bounds.idle_ms * MS
    claimed = _claimed_from_to(history)
    for holds in history.holds_by(lambda resource: resource):
        held = ((hold.granted.at_ns, _left_ns(history, hold)) for hold in holds)
        spans = _together((*held, *claimed[holds[0].granted.resource]))
        free = [(0, spans[0][0]), *((a[1], b[0]) for a, b in pairwise(spans)), (spans[-1][1], NEVER_NS)]
        for asked, until_ns in _waits(history):
            if asked.resource != holds[0].granted.resource:
                continue
            for free_ns, taken_ns in free:
                from_ns, to_ns = max(free_ns, asked.at_ns), min(taken_ns, until_ns)
                if to_ns - from_ns > most_ns + _DEAD_FOR_NS * _disturbances(history, from_ns, to_ns):
                    text = f"{asked} waits, and nobody holds since {free_ns / 1e9:.6f}"
                    yield Violation("idle", from_ns + most_ns, text)


def _claimed_from_to(history: Reading) -> Mapping[bytes, list[tuple[int, int]]]:
    """By resource: what requests had that were not answered yet, since they wait for more. It is over when
    the masters hear of that, at the latest with the request."""
    over_ns = history.over_ns(Declined, HungUp, TakenBack)
    got_ns = {granted.request: granted.at_ns for granted in history.all(Granted)}
    back_ns: dict[bytes, int] = {}
    for event in reversed(history.all(GivenBack)):
        back_ns[event.token] = event.at_ns
    resources = {tried.token: tried.resource for tried in history.all(Tried)}
    spans: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for claimed in history.all(Claimed):
        ends_ns = (ns.get(claimed.request, NEVER_NS) for ns in (over_ns, got_ns))
        tenure = tenure_of(claimed.token)
        to_ns = min(*ends_ns, back_ns.get(tenure, NEVER_NS))
        if tenure in resources and to_ns > claimed.at_ns:
            spans[resources[tenure]].append((claimed.at_ns, to_ns))
    return spans


def _left_ns(history: Reading, hold: Hold) -> int:
    """When masters were told, or its tenure ended by itself."""
    given_back = hold.let_go_ns is not None and hold.asked.by_process
    return hold.ended_ns if given_back else hold.deadline_ns


def _together(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those that overlap are one."""
    merged: list[tuple[int, int]] = []
    for from_ns, to_ns in sorted(spans):
        if merged and from_ns <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], to_ns)
        else:
            merged.append((from_ns, to_ns))
    return merged


def recalls(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """While another host waits, a tenure is handed on for its turn only."""
    if not bounds.turn_ms:
        return
    hosts = {tried.token: tried for tried in history.all(Tried)}
    for asked, until_ns in _waits(history):
        for tenure, handed in history.handed.items():
            tried = hosts.get(tenure)
            if (
                not handed
                or tried is None
                or tried.resource != asked.resource
                or agent_of(tried.host) == asked.host
            ):
                continue
            due_ns = max(asked.at_ns, handed[0].at_ns) + bounds.turn_ms * MS
            late = [one for one in handed[1:] if due_ns < one.at_ns < until_ns]
            if late and _undisturbed(history, asked.at_ns, late[0].at_ns):
                text = f"{late[0]} of {tried.host} while {asked} waits"
                yield Violation("recalls", late[0].at_ns, text)


def turns(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """While a host waits, each other one has so many turns at most."""
    if not bounds.turns:
        return
    tried_by = {tried.token: tried for tried in history.all(Tried)}
    began: dict[tuple[bytes, str], list[int]] = defaultdict(list)
    for tenure, handed in history.handed.items():
        if handed and tenure in tried_by:
            tried = tried_by[tenure]
            began[tried.resource, agent_of(tried.host)].append(handed[0].at_ns)
    for asked, until_ns in _waits(history):
        own = [at for at in began[asked.resource, asked.host] if at <= until_ns]
        # In a turn of its host others of its line come first.
        from_ns = max([asked.at_ns, *(at for at in own if at < until_ns)])
        for (resource, other), begun in list(began.items()):
            if resource != asked.resource or other == asked.host:
                continue
            seen = [at for at in begun if from_ns < at < until_ns]
            if len(seen) > bounds.turns and _undisturbed(history, from_ns, until_ns):
                text = f"{other} had {len(seen)} turns since {from_ns / 1e9:.6f} while {asked} waits"
                yield Violation("turns", seen[bounds.turns], text)


def overtaking(history: Reading, _: Bounds) -> Iterable[Violation]:
    """On no master a release overtakes what its own agent asked before (rule 3): that would stay there. After
    a break both may be asked once more, in their order."""
    last = {(event.master, event.token, event.host): event for event in history.all(GivenBack)}
    for landed in history.all(Landed):
        release = last.get((landed.master, landed.token, landed.host))
        if release is not None and release.at_ns < landed.at_ns:
            yield Violation("overtaking", landed.at_ns, f"{landed} came behind {release}")


def tokens(history: Reading, _: Bounds) -> Iterable[Violation]:
    """No token is used for two tries (rule 4): what is late for the one would hit the other."""
    first: dict[bytes, Tried] = {}
    for tried in history.all(Tried):
        before = first.setdefault(tried.token, tried)
        if before is not tried:
            yield Violation("tokens", tried.at_ns, f"{tried} has the token of {before}")
    named: dict[bytes, Granted] = {}
    for granted in history.all(Granted):
        if granted.secret and (granted.secret in first or granted.secret in named):
            yield Violation("tokens", granted.at_ns, f"{granted} has the token of another, or of a tenure")
        named[granted.secret] = granted


def validity(history: Reading, bounds: Bounds) -> Iterable[Violation]:
    """What is handed out can be relied upon for a while yet, at the instant of answering (rule 1)."""
    for granted in history.all(Granted):
        if granted.answered_ns is None:
            continue
        left_ns = granted.deadline_ns + granted.unseen_ns - granted.answered_ns
        if left_ns < bounds.min_validity_ms * MS:
            yield Violation(
                "validity", granted.at_ns, f"{left_ns / MS:.3f} ms were left when it was granted: {granted}"
            )


def notice(history: Reading, _: Bounds) -> Iterable[Violation]:
    """A holder learns of a loss before it is one (rule 12)."""
    for lost in history.all(Lost):
        if lost.at_ns > lost.deadline_ns and not lost.excused:
            late_ms = (lost.at_ns - lost.deadline_ns) / MS
            yield Violation(
                "notice", lost.at_ns, f"the holder of {_name(lost)} was told {late_ms:.3f} ms late"
            )


def _name(event: Lost) -> str:
    return event.token[:8].decode()


def standstills(history: Reading, _: Bounds) -> Iterable[Violation]:
    """A holder whose host stood still is told as soon as its agent knows: it relies on nothing that was over
    meanwhile (rule 11d). Not by an agent that died before it had to: nobody else knows."""
    ended_ns = {event.token: event.at_ns for event in (*history.all(Forgot), *history.all(LetGo))}
    for believes in history.all(Believes):
        hold, known_ns = history.holds.get(believes.token), history.known_at_ns(believes)
        if hold is None or known_ns is None:
            continue
        really_ns = hold.deadline_ns
        until_ns = min(ended_ns.get(believes.token, believes.deadline_ns), believes.deadline_ns)
        stopped = any(history.was_stopped(who, known_ns, until_ns) for who in (believes.host, hold.asked.app))
        died = any(
            name_of(event.host) == believes.host and known_ns <= event.at_ns < really_ns
            for event in history.all(Died)
        )
        if until_ns > (heard_ns := max(known_ns + _TELLING_NS, really_ns)) and not (stopped or died):
            yield Violation(
                "standstills", heard_ns, f"{hold} was relied upon to {until_ns / 1e9:.6f}: {believes}"
            )


_TELLING_NS = 20 * MS


def slewing(history: Reading, _: Bounds) -> Iterable[Violation]:
    """An agent whose host's clock is slewed too fast tries for no lease and gets none (rule 11e)."""
    tried = {event.token: event for event in history.all(Tried)}
    ended = history.all(InStep)
    for slewed in history.all(Slewed):
        to_ns = next((e.at_ns for e in ended if e.host == slewed.host and e.at_ns >= slewed.at_ns), 1 << 62)
        for granted in history.all(Granted):
            by = tried.get(tenure_of(granted.token))
            if by is None or by.host != slewed.host:
                continue
            began_ns = granted.tried_ns if granted.tried_ns is not None else by.at_ns
            # Behind what it was asked for before; or handed on since.
            had_ns = history.had_since_ns(granted) or 0
            handed_on = by.at_ns < slewed.at_ns < had_ns and not history.is_first(granted.token)
            if slewed.at_ns < began_ns < granted.at_ns < to_ns or (handed_on and had_ns < to_ns):
                yield Violation("slewing", granted.at_ns, f"{granted}: {slewed}")


Check = Callable[[Reading, Bounds], Iterable[Violation]]
CHECKS: tuple[Check, ...] = (
    exclusion,
    fences,
    stale_writes,
    answers,
    served,
    live_releases,
    told_gone,
    comebacks,
    taken,
    max_hold,
    leftovers,
    given_back,
    for_nobody,
    unread,
    left_to_its_deadline,
    free_at_once,
    lock_delays,
    kept,
    idle,
    recalls,
    turns,
    overtaking,
    tokens,
    validity,
    notice,
    standstills,
    slewing,
)


def check(events: Iterable[Event], bounds: Bounds, checks: Sequence[Check] = CHECKS) -> list[Violation]:
    """All that was violated, in the order of time."""
    history = Reading(events)
    found = [violation for one in checks for violation in one(history, bounds)]
    return sorted(found, key=lambda violation: violation.at_ns)
