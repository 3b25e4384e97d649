"""One of n equal locks, whichever is free first.

Each slot is an ordinary lock, and as sound as one. It is not a semaphore: several masters would have to count
its holders alike. The slots are tried one after the other, without waiting. When all are taken, the request
stands in the lines of all of them, and gets the first that becomes free; in each line it keeps its place from
when it came. If two become free at once, the second is given back: no slot is held for nobody.
"""

from collections.abc import Sequence

from lockd.core.claims import Claims, Joint, Whole
from lockd.core.errors import ErrorWord, Kind
from lockd.core.leases import Holder, Lease, Standing
from lockd.core.locks import Locks
from lockd.core.refusals import UNLOCKED_BEFORE
from lockd.core.validity import NS_PER_MS
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
        self._resource = resource
        self._tries = tries
        self._left = list(reversed(tries))
        """Those that are still to try: the last one is the next."""
        self._places = places
        self._trying: Holder | None = None
        self._in_line = self._waits_no_more = False
        self._refusals: list[Refusal] = []
        self._surplus: list[Lease] = []
        self._before: Holder | None = None
        """As `_known` has it."""

    def begins(self, now_ns: int, *, ready: bool = True) -> None:
        if self._is_over(self._resource, now_ns):
            self._fail(UNLOCKED_BEFORE, now_ns)
        elif (known := self._known(now_ns)) is not None:
            self._answer_as(known, now_ns)
        else:
            for place in self._places:
                self._ask(place, now_ns, ready=False)
            if ready and not self._refusals:
                self._try_next(now_ns)

    def _is_over(self, name: bytes, now_ns: int) -> bool:
        """Its token was unlocked, under the name of the resource or of a slot."""
        return self._is_unlocked(self._tries[0], name, now_ns)

    def _known(self, now_ns: int, granted: Lease | None = None) -> Holder | None:
        """The place for the slot that another request of its name has, or has given back: `Locks` knows the
        answer to it. granted: what this request got meanwhile."""
        for part in self._places or self._tries:
            lease = self._locks.known(part.resource, part.value) if part.value else None
            held = lease is not None and lease is not granted and lease.standing is Standing.HELD
            if held or self._is_over(part.resource, now_ns):
                return part
        return None

    def _answer_as(self, known: Holder, now_ns: int) -> None:
        """With what `Locks` knows of the request of its name that came before."""
        known.named = True
        self._places, self._in_line, self._refusals = [known], True, []
        self._ask(known, now_ns)

    def _ask(self, part: Holder, now_ns: int, *, ready: bool = True) -> None:
        part.asked_ns = now_ns
        self._locks.lock(part, now_ns, ready=ready)

    def can_be_told(self, now_ns: int) -> None:
        if not (self._over or self._in_line or self._trying):
            self._try_next(now_ns)

    def granted(self, part: Holder, lease: Lease, now_ns: int) -> None:
        part.named = bool(part.value)
        self._claims.add(lease, self, is_first=lease.holder is part)
        if not self._over and self._is_over(self._resource, now_ns):
            self._fail(UNLOCKED_BEFORE, now_ns)
        self._go_on_soon(now_ns)
        if not self._over:
            # One name, one grant (rule 4): another request of its name may have asked for another slot.
            self._before = self._known(now_ns, lease)
        if self._over or self._before is not None:
            self._surplus.append(lease)
        else:
            self._succeed([lease], now_ns)

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
        self._refusals.append(refusal)
        self._go_on_soon(now_ns)

    def lost(self, lease: Lease, now_ns: int) -> None:
        """Extra slots are given back in any case."""

    def ended(self, lease: Lease, now_ns: int) -> None:
        """As above."""

    def _take_step(self, now_ns: int) -> None:
        before, self._before = self._before, None
        if before is not None:
            self._leave(now_ns)
            self._answer_as(before, now_ns)
            return
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
        """Not if its token was unlocked during the try before (rule 13)."""
        if self._is_over(self._resource, now_ns):
            self._fail(UNLOCKED_BEFORE, now_ns)
            return
        self._trying = self._left.pop()
        self._ask(self._trying, now_ns)

    def _stand_in_line(self, now_ns: int) -> None:
        self._trying, self._in_line, self._refusals = None, True, []
        for place in self._places:
            self._locks.can_be_told(place, now_ns)

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
        waited_ms = (now_ns - self._places[0].asked_ns) // NS_PER_MS
        return Refusal(ErrorWord.TIMEOUT, f"waited {waited_ms} ms, all slots that were tried are still held")

    def _leave(self, now_ns: int) -> None:
        """Leave all lines, and give back extra slots."""
        for part in (self._trying, *self._places):
            if part is not None:
                self._locks.gone(part, now_ns)
        surplus, self._surplus = self._surplus, []
        self._give_back(surplus, now_ns)

    def _forget_parts(self) -> None:
        self._tries, self._places, self._left, self._trying = (), (), [], None
