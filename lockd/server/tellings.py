"""Which grants were read. It is checked soon after each reply, so that the next agent knows of it, too,
should this one be killed (rule 13).

Leases that were given back by then cost no look. A connection whose app does not read is looked at less and
less often, and many such connections a few at a time, in turn: however much one leaves unread, others wait
for only one look at it.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol

from lockd.core.leases import Lease, Standing
from lockd.core.values import Bound

_SOON_S = 0.02
_LATER_S = 0.1
_MOST = 200


class Teller(Protocol):
    """A connection on which a grant was told."""

    def tells(self, lease: Lease, reply: bytes) -> None:
        """Its reply is in what is written next."""

    def look(self) -> None:
        """Check whether it was read."""


_Telling = tuple[Teller, list[Lease]]


class Tellings:
    def __init__(self) -> None:
        self._later = _Round(_LATER_S, self._look)
        self._soon = _Round(_SOON_S, self._look)

    def begins(self, lease: Lease, teller: Teller, reply: bytes) -> None:
        """This reply tells of the grant, and is about to be written there. The next agent needs to know only
        of leases that belong to a process."""
        teller.tells(lease, reply)
        if not lease.told and lease.holder.bound is Bound.PROCESS:
            self._soon.add(teller, (lease,))

    def _look(self, tellings: Iterable[_Telling]) -> None:
        for teller, leases in tellings:
            if any(map(_is_open, leases)):
                teller.look()
                still = [lease for lease in leases if _is_open(lease)]
                if still:
                    self._later.add(teller, still)


def _is_open(lease: Lease) -> bool:
    return lease.standing is Standing.HELD and not lease.told


class _Round:
    """Grants that are looked at together, some time after they arrived. The first of them starts the
    timer."""

    def __init__(self, delay_s: float, look: Callable[[Iterable[_Telling]], None]) -> None:
        self._delay_s = delay_s
        self._look = look
        self._tellings: dict[Teller, list[Lease]] = {}
        self._is_awake = False

    def add(self, teller: Teller, leases: Iterable[Lease]) -> None:
        self._tellings.setdefault(teller, []).extend(leases)
        if not self._is_awake:
            self._wait()

    def _wait(self) -> None:
        self._is_awake = True
        asyncio.get_running_loop().call_later(self._delay_s, self._ring)

    def _ring(self) -> None:
        due = [(teller, self._tellings.pop(teller)) for teller in list(islice(self._tellings, _MOST))]
        try:
            self._look(due)
        finally:
            self._is_awake = False
            if self._tellings:
                self._wait()
