"""Several resources in one request: all of them, or none.

They are taken one after the other in the order of their names: of two requests that share some, none waits
for what the other has while that waits for it. Each lease is one like any other, with a token and a fence of
its own, and is renewed while the request waits for the next. But nobody was told of it yet: when the request
fails, ends or is withdrawn, all that it has is given back at once (rule 13). What is lost meanwhile is of no
use without being had again, and what it has besides may come later in the order: so all is given back, and it
begins anew, within its wait.
"""

from collections.abc import Sequence

from lockd.core.claims import Claims, Joint, Whole
from lockd.core.errors import ErrorWord
from lockd.core.leases import Holder, Lease, Loss, Standing
from lockd.core.locks import Locks
from lockd.core.values import Refusal

_WITHDRAWN = Refusal(
    ErrorWord.NOTHELD, "it was withdrawn: its token was unlocked before all of them were granted"
)
_WORD_OF_LOSS = {Loss.NOT_RENEWED: ErrorWord.NOQUORUM, Loss.CLOCKS: ErrorWord.CLOCK, None: ErrorWord.NOQUORUM}


class Several(Joint):
    """One such request.

    parts: who holds each, in the order in which they were asked for. min_validity_ns: a lease is handed out
    only while it may be relied upon for longer.
    """

    def __init__(
        self, locks: Locks, claims: Claims, parts: Sequence[Holder], whole: Whole, min_validity_ns: int
    ) -> None:
        super().__init__(locks, claims, whole)
        self._asked = parts
        self._left = sorted(parts, key=lambda part: part.resource, reverse=True)
        """Those that it has no lease of: the last is the next."""
        self._min_validity_ns = min_validity_ns
        self._had: dict[Holder, Lease] = {}
        self._ready = True

    def begins(self, now_ns: int, *, ready: bool = True) -> None:
        self._ready = ready
        self._ask_for_next(now_ns)

    def can_be_told(self, now_ns: int) -> None:
        self._ready = True
        if self._left:
            self._locks.can_be_told(self._left[-1], now_ns)

    def granted(self, part: Holder, lease: Lease, now_ns: int) -> None:
        self._left.remove(part)
        self._had[part] = lease
        self._claims.add(lease, self, is_first=lease.holder is part)
        self._go_on_soon(now_ns)

    def refused(self, part: Holder, refusal: Refusal, now_ns: int) -> None:
        name = part.resource.decode(errors="backslashreplace")
        self._fail(Refusal(refusal.code, f"{refusal.text} ('{name}')", refusal.retry_after_ms), now_ns)

    def lost(self, lease: Lease, now_ns: int) -> None:
        self._go_on_soon(now_ns)

    def ended(self, lease: Lease, now_ns: int) -> None:
        if lease.lost_by is None:
            # Neither lost nor given back by us: its app has named it.
            self._fail(_WITHDRAWN, now_ns)

    def _take_step(self, now_ns: int) -> None:
        if (spoilt := self._spoilt(now_ns)) is not None:
            self._begin_anew(spoilt, now_ns)
        elif self._left:
            self._ask_for_next(now_ns)
        else:
            self._succeed([self._had[part] for part in self._asked], now_ns)

    def _ask_for_next(self, now_ns: int) -> None:
        part = self._left[-1]
        part.asked_ns = now_ns
        self._locks.lock(part, now_ns, ready=self._ready)

    def _spoilt(self, now_ns: int) -> Lease | None:
        """One that is lost; at the instant of answering also one that is too short to be handed out (rule
        1)."""
        least_ns = now_ns if self._left else now_ns + self._min_validity_ns
        return next(
            (
                one
                for one in self._had.values()
                if one.standing is not Standing.HELD or one.deadline_ns <= least_ns
            ),
            None,
        )

    def _begin_anew(self, spoilt: Lease, now_ns: int) -> None:
        """Where it doesn't wait, one try is all there is."""
        self._leave(now_ns)
        if self._asked[0].give_up_ns is not None:
            self._ask_for_next(now_ns)
            return
        why = spoilt.loss or "the masters took too long"
        word = _WORD_OF_LOSS.get(spoilt.lost_by, ErrorWord.TIMEOUT)
        self._fail(Refusal(word, f"what was granted first was lost before the last was: {why}"), now_ns)

    def _leave(self, now_ns: int) -> None:
        """The line of the next, and all that it has."""
        if self._left:
            self._locks.gone(self._left[-1], now_ns)
        had, self._had = self._had, {}
        self._left += reversed(had)
        self._give_back(reversed(had.values()), now_ns)
