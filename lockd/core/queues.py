"""Who waits for a resource on this host: first come, first served, with one campaign for all of them.

Some in line can't be told yet what they get: others of their connection are to be answered before them. Those
keep their places, and are passed over until they are ready.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.ballot import Ballot
from lockd.core.leases import Holder, Lease, Tenure
from lockd.core.tenures.places import Place, Recall
from lockd.core.timers import Timer
from lockd.core.values import Refusal, Reply

_ARRIVAL = attrgetter("asked_ns")


class KeptEnd(StrEnum):
    """Why a tenure is kept no longer."""

    LOCKED = "locked"
    """Somebody on this host wants it."""
    TIME = "time"
    RECALLED = "recalled"
    GIVEN_BACK = "given_back"
    """By force, for a DETACHED lease, as its agent stops or has another configuration, or as clocks have
    moved."""


@dataclass(slots=True, eq=False)
class Kept:
    """That a tenure is, though nobody has it: since when, and of which class, whose and with what fence the
    last lease was (core/tenures/keeping.py). timer: for how long at most."""

    since_ns: int
    label: str
    owner: bytes
    fence: int
    timer: Timer | None = None


class Queue:
    """One resource on this host: its tenure if there is one, else the campaign for the first in line.

    At most one of `tenure`, `attempt` and `rest` is set: it is held here, being tried for, or left alone
    until the next try. There is no attempt and no rest but for one that is ready. lease: who has it under the
    tenure; None while that is handed on, and `asked` what the masters are asked before; or while it is
    `kept`, for whoever may want it next.
    """

    __slots__ = (
        "_impatient",
        "abandoned_by",
        "asked",
        "attempt",
        "kept",
        "lease",
        "place",
        "ready",
        "recall",
        "refusal",
        "refused_ns",
        "resource",
        "rest",
        "rest_until_ns",
        "returning",
        "tenure",
        "tried_for",
        "tries",
        "waiters",
    )

    def __init__(self, resource: bytes) -> None:
        self.resource = resource
        # Quick to leave in the middle: a waiter may give up or its app may go.
        self.waiters: dict[Holder, Timer | None] = {}
        self.ready: list[Holder] = []
        """Those of them that are not passed over, in the order in which they came."""
        self._impatient: dict[Holder, None] | None = None
        """Those of them that don't wait, or no longer: of thousands that do, not all are looked at for each
        grant. None: nobody yet, as is usual where one of many leases is held."""
        self.tenure: Tenure | None = None
        self.lease: Lease | None = None
        self.asked: Ballot | None = None
        self.kept: Kept | None = None
        self.returning: Reply | None = None
        """Who has given the last lease back, and is to hear whether it was held all the time."""
        self.attempt: Attempt | None = None
        self.tried_for: Holder | None = None
        """Whose attempt it is."""
        self.abandoned_by: Holder | None = None
        """Whose app has gone, though it is tried for him all the same (core/plain_values.py)."""
        self.rest: Timer | None = None
        self.rest_until_ns = 0
        self.place: Place | None = None
        """Among the hosts that wait for it; None: nobody here waits, or it is this host's turn."""
        self.recall: Recall | None = None
        """Under way for those that don't wait, while nobody does."""
        self.tries = 0
        self.refusal: Refusal | None = None
        self.refused_ns = 0

    @property
    def idle(self) -> bool:
        return self.tenure is None and self.attempt is None and self.rest is None

    def oldest(self) -> Holder | None:
        """Who came first, ready or not."""
        return next(iter(self.waiters), None)

    @property
    def has_patient(self) -> bool:
        """Somebody in it waits."""
        return len(self.waiters) > len(self.impatient)

    @property
    def impatient(self) -> Collection[Holder]:
        """Who doesn't wait, or no longer, and is told what the try that is under way comes to."""
        return self._impatient or ()

    def waits_no_longer(self, holder: Holder) -> None:
        if self._impatient is None:
            self._impatient = {}
        self._impatient[holder] = None

    def first(self) -> Holder | None:
        """Who is next."""
        return self.ready[0] if self.ready else None

    def joins(self, holder: Holder, timer: Timer | None, *, ready: bool) -> None:
        self.waiters[holder] = timer
        if holder.give_up_ns is None:
            self.waits_no_longer(holder)
        if ready:
            self.ready.append(holder)

    def becomes_ready(self, holder: Holder) -> None:
        """It is passed over no more, and comes before all that came after it."""
        self.ready.insert(bisect_right(self.ready, holder.asked_ns, key=_ARRIVAL), holder)

    def passes_over(self, holder: Holder) -> bool:
        return holder in self.waiters and self._at(holder) is None

    def leaves(self, holder: Holder) -> Timer | None:
        """The timer of its wait."""
        at = self._at(holder)
        if at is not None:
            del self.ready[at]
        timer = self.waiters.pop(holder)
        if self._impatient is not None:
            self._impatient.pop(holder, None)
        if not self.waiters:
            self.waiters.clear()  # of its room, too: the lease that it has got may be one of many
        return timer

    def clear(self) -> None:
        """All leave."""
        self.waiters.clear()
        self.ready.clear()
        self._impatient = None

    def _at(self, holder: Holder) -> int | None:
        """Its place among those that are ready."""
        ready = self.ready
        at = 0 if ready and ready[0] is holder else bisect_left(ready, holder.asked_ns, key=_ARRIVAL)
        while at < len(ready) and ready[at].asked_ns == holder.asked_ns:
            if ready[at] is holder:
                return at
            at += 1
        return None
