"""Several resources in one request: all of them, or none.

They are taken one after the other in the order of their names. So two requests that share some never wait for
each other. Each lease is an ordinary one, with its token and its fence, and is renewed while the request
waits for the next. But its app is not told of it yet: when the request fails, ends or is withdrawn, all its
leases are given back at once (rule 13). If a lease is lost meanwhile, it has to be taken again, and leases
that the request still has may come later in the order. So all are given back, and it begins again, within its
wait.
"""

from collections.abc import Sequence

from lockd.core.claims import Claims, Joint, Whole
from lockd.core.errors import ErrorWord
from lockd.core.leases import Holder, Lease, Loss, Standing
from lockd.core.locks import Locks
from lockd.core.values import Refusal

_WITHDRAWN = Refusal(ErrorWord.NOTHELD, "withdrawn: its token was unlocked before all of them were granted")
_WORD_OF_LOSS = {Loss.NOT_RENEWED: ErrorWord.NOQUORUM, Loss.CLOCKS: ErrorWord.CLOCK, None: ErrorWord.NOQUORUM}


class Several(Joint):
    """One such request.

    parts: the holder of each resource, in the order in which they were named. min_validity_ns: a lease is
    handed out only while it is valid for longer than this.
    """

    def __init__(
        self, locks: Locks, claims: Claims, parts: Sequence[Holder], whole: Whole, min_validity_ns: int
    ) -> None:
        super().__init__(locks, claims, whole, parts[0].account)
        self._asked = parts
        self._left = sorted(parts, key=lambda part: part.resource, reverse=True)
        """Those without a lease: the last one is the next."""
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
        if not self._over:
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
        if self._is_unlocked(self._asked[0], lease.resource, now_ns):
            self._fail(_WITHDRAWN, now_ns)
        else:
            self._go_on_soon(now_ns)

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
        """A lease that is lost. At the instant of answering, also one that is too short to be handed out
        (rule 1)."""
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
        """A request that doesn't wait has one try only."""
        self._leave(now_ns)
        if self._asked[0].give_up_ns is not None:
            self._ask_for_next(now_ns)
            return
        why = spoilt.loss or "the masters took too long"
        word = _WORD_OF_LOSS.get(spoilt.lost_by, ErrorWord.TIMEOUT)
        self._fail(
            Refusal(word, (f"one of the first leases was lost before the last was granted: {why}")), now_ns
        )

    def _succeed(self, leases: list[Lease], now_ns: int) -> None:
        self._had = {}
        super()._succeed(leases, now_ns)

    def _leave(self, now_ns: int) -> None:
        """Leave the line for the next resource, and give back all leases."""
        if self._left:
            self._locks.gone(self._left[-1], now_ns)
        had, self._had = self._had, {}
        self._left += reversed(had)
        self._give_back(reversed(had.values()), now_ns)

    def _forget_parts(self) -> None:
        self._asked, self._left = (), []
