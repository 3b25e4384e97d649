"""The state in which a key is found: from what this agent holds, if that was just proven, else from what the
masters show.

What they show is remembered for a moment, since libraries poll. It grants nothing: an app that reads that a
lock is free still has to take it.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from lockd.clock import boottime_ns
from lockd.core.errors import ErrorWord
from lockd.core.leases import Lease
from lockd.core.locks import Locks
from lockd.core.plain_values import value_of
from lockd.core.scripts.operations import State
from lockd.core.tables import Table
from lockd.core.validity import NS_PER_MS, drift_ns
from lockd.core.values import Refusal
from lockd.masters import survey
from lockd.masters.fleet import Fleet
from lockd.server.commands.readings import Readings
from lockd.server.dropin.answers import FREE, Found
from lockd.server.session import Session
from lockd.server.shared import Shared

_FRESH_NS = 100 * NS_PER_MS
_MOST, _FLOOR = 10_000, 50
_GIVEN_BACK_NS = 2_000 * NS_PER_MS
"""Longer than it takes to tell the masters."""


class Seen:
    """What is known of a lease. value: chosen by its app; owner: its process, as core names it; since_ns:
    when it was granted, by this host's clock; left_ms: None if it has no TTL; asked_ns: when the masters were
    asked; nonce, token: as the masters show them, if they do."""

    __slots__ = ("asked_ns", "host", "left_ms", "nonce", "owner", "since_ns", "token", "value")

    def __init__(
        self,
        host: bytes,
        owner: bytes,
        since_ns: int,
        value: bytes | None,
        left_ms: int | None,
        asked_ns: int,
        nonce: bytes = b"",
        token: bytes = b"",
    ) -> None:
        self.host = host
        self.owner = owner
        self.since_ns = since_ns
        self.value = value
        self.left_ms = left_ms
        self.asked_ns = asked_ns
        self.nonce = nonce
        self.token = token

    def found(self, value: bytes | None) -> Found:
        """The state that a script with this value finds."""
        is_own = self.value is not None and self.value == value
        if self.left_ms is None:
            state = State.OWN_ENDLESS if is_own else State.ANOTHERS_ENDLESS
        else:
            state = State.OWN if is_own else State.ANOTHERS
        return Found(state, self.value, self.left_ms, host=self.host)


def found_as(seen: Seen | None, value: bytes | None) -> Found:
    return FREE if seen is None else seen.found(value)


def left_of(lease: Lease, now_ns: int) -> int | None:
    """How much longer it lasts, in ms; None if it was locked without a TTL, and has none since."""
    if lease.let_go_ns is not None:
        return max(1, (min(lease.let_go_ns, lease.deadline_ns) - now_ns) // NS_PER_MS)
    if not lease.holder.detached:
        return None
    return max(1, (lease.deadline_ns - now_ns) // NS_PER_MS)


Told = Callable[[Seen | Refusal | None], None]
"""None: nobody holds it."""


class Looking:
    """The looks of one agent."""

    def __init__(self, shared: Shared, fleet: Fleet, readings: Readings) -> None:
        self._shared = shared
        self._locks: Locks = shared.locks
        self._fleet = fleet
        self._readings = readings
        self._shown = Table[bytes, tuple[int, Seen]](_MOST, _FLOOR)
        self._given_back = Table[tuple[bytes, bytes, bytes], int](_MOST, _FLOOR)
        self._asked: dict[tuple[bytes, str, bool], asyncio.Task[Seen | Refusal | None]] = {}
        self._under_way: set[asyncio.Task[Seen | Refusal | None]] = set()

    def forget(self, resource: bytes) -> None:
        """Something was done about it here: an answer that is under way may be from before that."""
        self._shown.pop(resource)
        for asked in [one for one in self._asked if one[0] == resource]:
            del self._asked[asked]

    def held_here(self, resource: bytes, now_ns: int) -> Lease | None:
        """The lease of this resource, if this agent has just proven it: any agent may have released it since,
        by its value."""
        held = self._locks.held_of(resource, now_ns)
        sure = [one for one in held if one.was_just_proven(now_ns)]
        return sure[-1] if sure else None

    def _as_known(self, resource: bytes, seen: "Seen | Refusal | None") -> "Seen | Refusal | None":
        """What the masters show, combined with what is known here: when its app wants it to end."""
        if not isinstance(seen, Seen):
            return seen
        now_ns = boottime_ns()
        for lease in self._locks.held_of(resource, now_ns):
            known = self._of_lease(lease, now_ns)
            if (known.owner, known.value) == (seen.owner, seen.value):
                known.asked_ns, known.nonce, known.token = seen.asked_ns, seen.nonce, seen.token
                return known
        return None if self._comes_to_nothing(resource, seen, now_ns) else seen

    def _comes_to_nothing(self, resource: bytes, seen: Seen, now_ns: int) -> bool:
        """It is being given back here, or may be: an app that finds its own value there must not go on with
        it."""
        if seen.value is None:
            return False
        until_ns = self._given_back.get((resource, seen.value, seen.owner)) or 0
        return now_ns < until_ns or self._locks.tried_by(resource, seen.value) == seen.owner

    def is_given_back(self, account: str, resource: bytes, value: bytes, owner: bytes) -> None:
        """Because no app was told that it was granted. Masters still show it for a moment."""
        self._given_back.put(account, (resource, value, owner), boottime_ns() + _GIVEN_BACK_NS)

    def look(
        self, session: Session, resource: bytes, told: Told, *, patient: bool = False, anew: bool = False
    ) -> None:
        """told: called at once if the answer is known, else when the masters have answered. patient: the app
        looks again and again, so others go first. anew: the masters are asked in any case."""
        now_ns = boottime_ns()
        if anew:
            self.forget(resource)
        elif (lease := self.held_here(resource, now_ns)) is not None:
            told(self._of_lease(lease, now_ns))
            return
        elif (shown := self._shown.get(resource)) is not None and now_ns < shown[0]:
            told(self._as_known(resource, shown[1]))
            return
        refusal = self._shared.quotas.refuse_unknown_token(session.account, now_ns)
        if refusal is not None:
            self._shared.incidents.limit_hit(refusal, session.peer)
            told(Refusal(ErrorWord.LIMIT, refusal))
            return
        self._ask(session, resource, told, patient)

    def _of_lease(self, lease: Lease, now_ns: int) -> Seen:
        value = value_of(lease.token)
        left_ms = left_of(lease, now_ns)
        return Seen(self._shared.host, lease.holder.owner, lease.granted_ns, value, left_ms, lease.t1_ns)

    def _ask(self, session: Session, resource: bytes, told: Told, patient: bool) -> None:
        asked = resource, session.account, patient
        task = self._asked.get(asked)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._shown_by_masters(asked))
            self._asked[asked] = task
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

        def tell(done: "asyncio.Task[Seen | Refusal | None]") -> None:
            told(self._as_known(resource, self._outcome(done)))

        task.add_done_callback(partial(session.guarded, tell))

    def _outcome(self, done: "asyncio.Task[Seen | Refusal | None]") -> Seen | Refusal | None:
        failure = done.exception()
        if failure is None:
            return done.result()
        self._shared.incidents.internal_error("a look at the masters failed", failure)
        return Refusal(ErrorWord.ERR, "internal error of the agent: see its log")

    async def _shown_by_masters(self, asked: tuple[bytes, str, bool]) -> Seen | Refusal | None:
        resource, account, patient = asked
        mine = asyncio.current_task()
        slots = self._readings.signals if patient else self._readings.listings
        try:
            async with slots.slot(account):
                asked_ns = boottime_ns()
                found = await survey.enough_copies_of(self._fleet, resource)
        finally:
            is_current = self._asked.get(asked) is mine
            if is_current:
                del self._asked[asked]
        seen = self._weighed(found, asked_ns)
        # That it is free is true only until an app takes it.
        if is_current and isinstance(seen, Seen):
            self._shown.put(account, resource, (boottime_ns() + _FRESH_NS, seen))
        return seen

    def _weighed(self, found: survey.Found, asked_ns: int) -> Seen | Refusal | None:
        """A lease counts as held if it may have a quorum together with the masters that did not answer. What
        is left of a failed try does not count. A key is free only when a quorum of the masters that have a
        vote says so."""
        quorum, best = self._fleet.config.quorum, survey.strongest(found.copies)
        if survey.against(self._fleet, found, best).bit_count() >= quorum:
            return None
        if best is None or found.answered.bit_count() < quorum:
            return Refusal(ErrorWord.NOQUORUM, "too few masters answered to say whether it is held")
        first = best[0]
        lasts = sorted((copy.ttl_ms for copy in best), reverse=True)
        left_ms = lasts[min(quorum, len(lasts)) - 1]
        sure_ms = max(1, left_ms - drift_ns(left_ms) // NS_PER_MS)
        owner = b"%b %d %d" % (first.host, first.pid, first.uid)
        since_ns = boottime_ns() - max(copy.held_ms for copy in best) * NS_PER_MS
        ends_ms = sure_ms if first.detached else None
        return Seen(
            first.host, owner, since_ns, first.value, ends_ms, asked_ns, first.nonce, first.token
        )  # fmt: skip

    def whose(self, resource: bytes, seen: Seen | None) -> bytes | None:
        """Whose it is that the masters show: another text where another lease has it, b"" if it is free. None
        if that can't be told from here. A LOCK may be handed on under one tenure, and only its own agent
        knows to whom, unless the masters show its token."""
        if seen is None or seen.value is not None or seen.left_ms is not None:
            return b"" if seen is None else seen.nonce
        fences = self._locks.fences_of(resource, {seen.nonce})
        if fences:
            held = self._locks.held_of(resource, boottime_ns())
            return b"%d %d" % (max(fences), len(held))
        return seen.nonce + seen.token if seen.token else None
