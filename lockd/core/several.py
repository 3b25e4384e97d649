"""Several resources in one request: all of them, or none.

They are taken one after the other in the order of their names. So two requests that share some never wait for
each other. Each lease is an ordinary one, with its token and its fence, and is renewed while the request
waits for the next. But its app is not told of it yet: when the request fails, ends or is withdrawn, all its
leases are given back at once (rule 13). If a lease is lost meanwhile, it has to be taken again, and leases
that the request still has may come later in the order. So all are given back, and it begins again, within its
wait.

Its token withdraws it through any agent: another one finds a lease by it, and answers that it is unlocked. So
a request with a token ends where one of its leases is gone from the masters, and none is handed out for which
their last word is from before the last lease was there (rule 2).
"""

from collections.abc import Sequence

from lockd.core.claims import Claims, Joint, Whole
from lockd.core.errors import ErrorWord
from lockd.core.leases import Holder, Lease, Loss, Standing
from lockd.core.locks import Locks
from lockd.core.notices import Kind
from lockd.core.values import Extended, Refusal

_WITHDRAWN = Refusal(ErrorWord.NOTHELD, "withdrawn: its token was unlocked before all of them were granted")
_GONE = Refusal(
    ErrorWord.NOTHELD,
    "one of its leases is gone from the masters: its token was unlocked through another agent, an operator "
    "released it, or data was lost",
)
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
        self._had_all_ns = 0
        self._proving: set[Lease] = set()
        """Those that the masters are asked about once more."""
        self._unproven: Lease | None = None
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
        self._had_all_ns = now_ns
        self._claims.add(lease, self, is_first=lease.holder is part)
        self._go_on_soon(now_ns)

    def refused(self, part: Holder, refusal: Refusal, now_ns: int) -> None:
        name = part.resource.decode(errors="backslashreplace")
        self._fail(Refusal(refusal.code, f"{refusal.text} ('{name}')", refusal.retry_after_ms), now_ns)

    def lost(self, lease: Lease, now_ns: int) -> None:
        if lease.lost_by is Loss.GONE and not self._over and self._asked[0].value:
            self._fail(_GONE, now_ns)
        else:
            self._go_on_soon(now_ns)

    def ended(self, lease: Lease, now_ns: int) -> None:
        if not self._over and self._is_withdrawn(lease, now_ns):
            self._fail(_WITHDRAWN, now_ns)
        else:
            self._go_on_soon(now_ns)

    def _is_withdrawn(self, lease: Lease, now_ns: int) -> bool:
        if lease.said_gone is Kind.RELEASED:
            return True
        return self._is_unlocked(self._asked[0], lease.resource, now_ns)

    def _take_step(self, now_ns: int) -> None:
        if (spoilt := self._spoilt(now_ns)) is not None:
            self._begin_anew(spoilt, now_ns)
        elif self._left:
            self._ask_for_next(now_ns)
        elif not self._proving and not self._prove_again(now_ns):
            self._succeed([self._had[part] for part in self._asked], now_ns)

    def _ask_for_next(self, now_ns: int) -> None:
        part = self._left[-1]
        part.asked_ns = now_ns
        self._locks.lock(part, now_ns, ready=self._ready)

    def _prove_again(self, now_ns: int) -> bool:
        """Whether the masters have to be asked once more about a lease."""
        old = [one for one in self._had.values() if not one.was_just_proven(self._had_all_ns)]
        self._proving.update(old)
        for lease in old:
            self._locks.prove(lease, _Proof(self, lease), now_ns)
        return bool(old)

    def is_proven(self, lease: Lease, *, worked: bool) -> None:
        """The masters' answer."""
        if lease in self._proving:
            self._proving.discard(lease)
            if not worked:
                self._unproven = lease
            self._go_on_soon(0)

    def _spoilt(self, now_ns: int) -> Lease | None:
        """A lease that is lost, or could not be proven. At the instant of answering, also one that is too
        short to be handed out (rule 1)."""
        if self._unproven is not None:
            return self._unproven
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
        self._proving, self._unproven = set(), None
        had, self._had = self._had, {}
        self._left += reversed(had)
        self._give_back(reversed(had.values()), now_ns)

    def _forget_parts(self) -> None:
        self._asked, self._left = (), []


class _Proof:
    """For one lease of such a request. core.values.Reply."""

    def __init__(self, whole: Several, lease: Lease) -> None:
        self._whole = whole
        self._lease = lease

    def done(self, _lease: Extended | None) -> None:
        self._whole.is_proven(self._lease, worked=True)

    def refused(self, _refusal: Refusal) -> None:
        self._whole.is_proven(self._lease, worked=False)
