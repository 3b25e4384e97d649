"""One of n equal locks, whichever is free first.

Each slot is an ordinary lock, and as sound as one. It is not a semaphore: several masters would have to count
its holders alike. The slots are tried one after the other, without waiting. When all are taken, the request
stands in the lines of all of them, and gets the first that becomes free; in each line it keeps its place from
when it came. If two become free at once, the second is given back: no slot is held for nobody.

One name, one slot (rule 4). A name is known from when the first request of it begins (`OneSlot`). Those that
come later join it: one tries the slots at a time, and what one is granted they all get.
"""

from collections.abc import Sequence

from lockd.core.claims import Claims, Joint, Whole
from lockd.core.errors import ErrorWord, Kind
from lockd.core.leases import Holder, Lease, Standing
from lockd.core.locks import Locks
from lockd.core.names import OneSlot, same_process
from lockd.core.refusals import (
    ANOTHERS,
    BEHIND_ITS_NAME,
    OTHER_SLOTS,
    UNLOCKED_BEFORE,
    WITHDRAWN,
    WITHOUT_SLOTS,
    waited_ms,
)
from lockd.core.values import Refusal


class Slots(Joint):
    """One such request.

    tries: the holders that try each slot without waiting, in the order in which they are tried. places: the
    same with the wait; none if the request doesn't wait. None of them counts as a request (`Holder.counted`).
    Only the places have the request's name (TOKEN), since that belongs to one request: if a try is granted,
    its lease gets the name.
    """

    def __init__(
        self,
        locks: Locks,
        claims: Claims,
        resource: bytes,
        tries: Sequence[Holder],
        places: Sequence[Holder],
        whole: Whole,
    ) -> None:
        super().__init__(locks, claims, whole, tries[0].account)
        self._token = tries[0].value
        self._resource = resource
        self._name = OneSlot(len(tries))
        """Its own, if it has no name."""
        self._tries = tries
        self._left = list(reversed(tries))
        """Those that are still to try: the last one is the next."""
        self._places = places
        self._trying: Holder | None = None
        self._ready = self._in_line = self._waits_no_more = False
        self._refusals: list[Refusal] = []
        self._surplus: list[Lease] = []

    @property
    def asker(self) -> Holder:
        return self._tries[0]

    def begins(self, now_ns: int, *, ready: bool = True) -> None:
        self._ready = ready
        if (refusal := self._cannot_join(now_ns)) is not None:
            self._fail(refusal, now_ns)
            return
        self._joins()
        lease = self._name.lease
        if lease is not None and lease.standing is Standing.HELD:
            self._ask_again_for(lease, now_ns)
            return
        for place in self._places:
            self._ask(place, now_ns, ready=False)
        if not self._refusals:
            self.may_try(now_ns)

    def _cannot_join(self, now_ns: int) -> Refusal | None:
        """The other requests of its name are not of its kind, or are over."""
        token, names = self._token, self._locks.names
        if not token:
            return None
        if self._is_unlocked(self.asker, self._resource, now_ns):
            return UNLOCKED_BEFORE
        if self._locks.knows(self._resource, token) or names.first(self._resource, token):
            return WITHOUT_SLOTS
        one = names.slot(self._resource, token)
        if one is None:
            return None
        has_no_part = one.lease is not None and self._part_of(one.lease) is None
        if has_no_part or one.number not in (0, len(self._tries)):
            return OTHER_SLOTS
        first = next(iter(one.requests), None)
        return ANOTHERS if first is not None and not same_process(first.asker, self.asker) else None

    def _joins(self) -> None:
        if self._token:
            self._name = self._locks.names.wants_slot(self._resource, self._token, len(self._tries))
        self._name.requests[self] = None

    def _part_of(self, lease: Lease) -> Holder | None:
        """The one that is for this slot."""
        return next((one for one in self._places or self._tries if one.resource == lease.resource), None)

    def _ask_again_for(self, lease: Lease, now_ns: int) -> None:
        """`Locks` has the answer to a request whose lease is held already."""
        part = self._part_of(lease)
        assert part is not None
        part.named = True
        self._places, self._in_line = [part], True
        self._ask(part, now_ns)

    def _ask(self, part: Holder, now_ns: int, *, ready: bool = True) -> None:
        part.asked_ns = now_ns
        self._locks.lock(part, now_ns, ready=ready)

    def can_be_told(self, now_ns: int) -> None:
        self._ready = True
        self.may_try(now_ns)

    def may_try(self, now_ns: int) -> None:
        name = self._name
        if self._ready and name.trying is None and not (self._over or self._in_line):
            name.trying = self
            self._try_next(now_ns)

    def granted(self, part: Holder, lease: Lease, now_ns: int) -> None:
        part.named = bool(part.value)
        self._claims.add(lease, self, is_first=lease.holder is part)
        self._go_on_soon(now_ns)
        if self._over:
            self._surplus.append(lease)
        else:
            self._name.has(lease, now_ns)

    def has(self, lease: Lease, now_ns: int) -> None:
        if not self._over:
            self._claims.add(lease, self, is_first=False)
            self._succeed([lease], now_ns)
            self._go_on_soon(now_ns)

    def withdrawn(self, now_ns: int) -> None:
        self._fail(WITHDRAWN, now_ns)

    def refused(self, part: Holder, refusal: Refusal, now_ns: int) -> None:
        if self._over:
            return
        if part is not self._trying and not self._in_line:
            # Its wait has ended before all were tried. The first try may still end: masters that had no time
            # to answer are not down.
            if self._trying is not None and refusal.code is ErrorWord.TIMEOUT:
                self._waits_no_more = True
                if self._refusals:
                    self._fail(self._why_no_more(now_ns), now_ns)
                return
            self._in_line, self._refusals = True, []
            if self._ready and self._name.trying is not None and refusal.code is ErrorWord.TIMEOUT:
                refusal = BEHIND_ITS_NAME
        self._refusals.append(refusal)
        self._go_on_soon(now_ns)

    def lost(self, lease: Lease, now_ns: int) -> None:
        """Extra slots are given back in any case."""

    def ended(self, lease: Lease, now_ns: int) -> None:
        """As above."""

    def _take_step(self, now_ns: int) -> None:
        kind = self._refusals[-1].code.kind
        if self._waits_no_more and kind is Kind.CONTENDED:
            self._fail(self._why_no_more(now_ns), now_ns)
        elif self._in_line or self._waits_no_more or kind not in (Kind.CONTENDED, Kind.UNAVAILABLE):
            self._fail(self._why_not(), now_ns)
        elif self._left and kind is Kind.CONTENDED:
            self._try_next(now_ns)
        elif self._places:
            self._stand_in_line(now_ns)
        else:
            self._fail(self._why_not(), now_ns)

    def _try_next(self, now_ns: int) -> None:
        self._trying = self._left.pop()
        self._ask(self._trying, now_ns)

    def _stand_in_line(self, now_ns: int) -> None:
        self._trying, self._in_line, self._refusals = None, True, []
        for place in self._places:
            self._locks.can_be_told(place, now_ns)
        self._name.tries_no_more(self, now_ns)

    def _why_not(self) -> Refusal:
        """If one slot was in doubt, the answer is not that all are taken. The waits in all lines end
        together: that masters were being asked about one at that moment is no outage."""
        refusals = self._refusals
        if self._in_line:
            return next((one for one in refusals if one.code.kind is Kind.CONTENDED), refusals[-1])
        if any(one.code is not ErrorWord.TAKEN for one in refusals):
            return next(one for one in reversed(refusals) if one.code is not ErrorWord.TAKEN)
        retry_ms = min(one.retry_after_ms for one in refusals)
        text = f"retry-after={retry_ms} all {len(self._tries)} slots are held by others"
        return Refusal(ErrorWord.TAKEN, text, retry_ms)

    def _why_no_more(self, now_ns: int) -> Refusal:
        """The wait ended before all were tried."""
        ms = waited_ms(self._places[0], now_ns)
        return Refusal(ErrorWord.TIMEOUT, f"waited {ms} ms, all slots that were tried are still held")

    def _leave(self, now_ns: int) -> None:
        """Leave all lines, and give back extra slots."""
        for part in (self._trying, *self._places):
            if part is not None:
                self._locks.gone(part, now_ns)
        surplus, self._surplus = self._surplus, []
        self._give_back(surplus, now_ns)
        self._name.leaves(self, now_ns)
        self._locks.names.forget_slot(self._resource, self._token)

    def _forget_parts(self) -> None:
        self._tries, self._places, self._left, self._trying = (), (), [], None
        # What it has got refers to it.
        self._name = OneSlot(0)
