"""The waiting requests for a resource on this host: accounts take turns, and of one account the first that
came is the first served, with one campaign for all of them.

Some requests in line can't be told yet what they get, because others on their connection have to be answered
first. Those keep their places, and are passed over until they are ready.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Final

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.ballot import Ballot
from lockd.core.leases import Holder, Lease, Tenure
from lockd.core.tenures.places import Place, Recall
from lockd.core.turns import Job
from lockd.core.values import Refusal, Reply

_ARRIVAL = attrgetter("asked_ns")
_NONE: Final = set[Holder]()
"""Of most queues."""


class KeptEnd(StrEnum):
    """Why a tenure is not kept any longer."""

    LOCKED = "locked"
    """An app on this host wants it."""
    TIME = "time"
    RECALLED = "recalled"
    GIVEN_BACK = "given_back"
    """By force, for a DETACHED lease, because its agent stops or has a new configuration, or because clocks
    have moved."""


@dataclass(slots=True, eq=False)
class Kept:
    """A tenure that is kept without a lease: since when, and the class, owner and fence of its last lease
    (core/tenures/keeping.py). timer: ends it after the longest time."""

    since_ns: int
    label: str
    owner: bytes
    account: str
    fence: int
    timer: Job | None = None


class Queue:
    """One resource on this host: its tenure if there is one, else the campaign for the first in line.

    At most one of `tenure`, `attempt` and `rest` is set: it is held here, being tried for, or left alone
    until the next try. There is an attempt or a rest only for a request that is ready. lease: the present
    lease under the tenure. It is None while the tenure is handed on (`asked`: what the masters are asked
    before that), and while it is `kept` for the next request.
    """

    __slots__ = (
        "_impatient",
        "_leaving",
        "_ready",
        "abandoned_by",
        "asked",
        "attempt",
        "kept",
        "lease",
        "place",
        "recall",
        "refusal",
        "refused_ns",
        "resource",
        "rest",
        "rest_of",
        "rest_until_ns",
        "returning",
        "tenure",
        "tried_for",
        "tries",
        "waiters",
    )

    def __init__(self, resource: bytes) -> None:
        self.resource = resource
        # Leaving in the middle is quick: a request may give up, or its app may go.
        self.waiters: dict[Holder, Job | None] = {}
        self._ready: dict[str, list[Holder]] = {}
        """The waiters of each account that are not passed over, in the order in which they came. The account
        that was granted it longest ago is the first."""
        self._impatient: dict[Holder, None] | None = None
        """The waiters that don't wait, or not any longer. With thousands that do, not all are looked at for
        each grant. None: there was none yet, as usual when one of many leases is held."""
        self._leaving: set[Holder] = _NONE
        """Waiters whose outcome is known, and who hear it in turns."""
        self.tenure: Tenure | None = None
        self.lease: Lease | None = None
        self.asked: Ballot | None = None
        self.kept: Kept | None = None
        self.returning: Reply | None = None
        """The request to give the last lease back, which has to hear whether the lease was held all the
        time."""
        self.attempt: Attempt | None = None
        self.tried_for: Holder | None = None
        """Whose attempt it is."""
        self.abandoned_by: Holder | None = None
        """The holder whose app has gone while the try for it goes on (core/plain_values.py)."""
        self.rest: Job | None = None
        self.rest_until_ns = 0
        self.rest_of = ""
        """The account in whose turn it ends."""
        self.place: Place | None = None
        """This host's place among the hosts that wait for it; None: nobody here waits, or it is this host's
        turn."""
        self.recall: Recall | None = None
        """Under way for requests that don't wait, while there are no others."""
        self.tries = 0
        self.refusal: Refusal | None = None
        self.refused_ns = 0

    @property
    def idle(self) -> bool:
        return self.tenure is None and self.attempt is None and self.rest is None

    def oldest(self) -> Holder | None:
        """The first that came, ready or not."""
        return next(iter(self.waiters), None)

    @property
    def has_patient(self) -> bool:
        """Some request in it waits."""
        return len(self.waiters) > len(self.impatient) + len(self._leaving)

    @property
    def impatient(self) -> Collection[Holder]:
        """The requests that don't wait, or not any longer: they are told the outcome of the try that is under
        way."""
        return self._impatient or ()

    def waits_no_longer(self, holder: Holder) -> None:
        if self._impatient is None:
            self._impatient = {}
        self._impatient[holder] = None

    def first(self) -> Holder | None:
        """The next in line."""
        for of_account in self._ready.values():
            return of_account[0]
        return None

    @property
    def accounts(self) -> Collection[str]:
        """Those with a request that is ready."""
        return self._ready.keys()

    def is_alone(self, holder: Holder) -> bool:
        """No other request of its account is ready."""
        return len(self._ready.get(holder.account, ())) == 1

    def joins(self, holder: Holder, timer: Job | None, *, ready: bool) -> None:
        self.waiters[holder] = timer
        if holder.give_up_ns is None:
            self.waits_no_longer(holder)
        if ready:
            self._ready.setdefault(holder.account, []).append(holder)

    def becomes_ready(self, holder: Holder) -> None:
        """It is not passed over any more, and goes before all of its account that came after it."""
        ready = self._ready.setdefault(holder.account, [])
        ready.insert(bisect_right(ready, holder.asked_ns, key=_ARRIVAL), holder)

    def passes_over(self, holder: Holder) -> bool:
        return holder in self.waiters and not self.is_leaving(holder) and self._at(holder) is None

    def is_leaving(self, holder: Holder) -> bool:
        return holder in self._leaving

    def are_leaving(self, holders: Collection[Holder]) -> None:
        """Nothing is tried for these any more."""
        leaving = self._leaving = self._leaving or set()
        leaving.update(holders)
        for account in {holder.account for holder in holders}:
            if account in self._ready:
                self._ready[account] = [one for one in self._ready[account] if one not in leaving]
                if not self._ready[account]:
                    del self._ready[account]
        if self._impatient:
            for holder in holders:
                self._impatient.pop(holder, None)

    def is_granted(self, holder: Holder) -> Job | None:
        """It leaves, and it is the turn of the other accounts. Returns the timer of its wait."""
        timer = self.leaves(holder)
        if len(self._ready) > 1 and (others := self._ready.pop(holder.account, None)):
            self._ready[holder.account] = others
        return timer

    def leaves(self, holder: Holder) -> Job | None:
        """The timer of its wait."""
        at = self._at(holder)
        if at is not None:
            ready = self._ready[holder.account]
            del ready[at]
            if not ready:
                del self._ready[holder.account]
        timer = self.waiters.pop(holder)
        if self._leaving:
            self._leaving.discard(holder)
        if self._impatient is not None:
            self._impatient.pop(holder, None)
        if not self.waiters:
            self.waiters.clear()  # of its room, too: the lease that it has got may be one of many
        return timer

    def passes_all_over(self) -> None:
        """No request in it is granted any more."""
        self._ready.clear()

    def _at(self, holder: Holder) -> int | None:
        """Its place among those that are ready."""
        ready = self._ready.get(holder.account, ())
        at = 0 if ready and ready[0] is holder else bisect_left(ready, holder.asked_ns, key=_ARRIVAL)
        while at < len(ready) and ready[at].asked_ns == holder.asked_ns:
            if ready[at] is holder:
                return at
            at += 1
        return None
