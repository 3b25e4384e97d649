"""Which grants were read. It is checked soon after each reply, so that the next agent knows of it, too,
should this one be killed (rule 13).

Leases that were given back by then cost no look. A connection whose app does not read is looked at less and
less often, and many such connections in their account's turns: however much one account leaves unread, others
don't wait for it.
"""

from collections.abc import Iterable
from time import perf_counter_ns
from typing import Final, Protocol

from lockd.clock import boottime_ns
from lockd.core.leases import Lease, Standing
from lockd.core.validity import NS_PER_MS
from lockd.core.values import Bound
from lockd.server.turns import LoopTurns

_SOON_NS: Final = 20 * NS_PER_MS
_LATER_NS: Final = 100 * NS_PER_MS


class Teller(Protocol):
    """A connection on which a grant was told."""

    def tells(self, lease: Lease, reply: bytes) -> None:
        """Its reply is in what is written next."""

    def look(self) -> None:
        """Check whether it was read."""


_Told = dict[Teller, list[Lease]]


class Tellings:
    def __init__(self, turns: LoopTurns) -> None:
        self._turns = turns
        self._open: dict[tuple[str, int], _Told] = {}
        """What is looked at together: of one account, so long after it was told of it."""

    def begins(self, lease: Lease, teller: Teller, reply: bytes) -> None:
        """This reply tells of the grant, and is about to be written there. The next agent needs to know only
        of leases that belong to a process."""
        teller.tells(lease, reply)
        if not lease.told and lease.holder.bound is Bound.PROCESS:
            self._is_looked_at(lease.holder.account, _SOON_NS, teller, (lease,))

    def _is_looked_at(self, account: str, in_ns: int, teller: Teller, leases: Iterable[Lease]) -> None:
        of = account, in_ns
        if of not in self._open:
            self._open[of] = {}
            self._turns.of.at(account, boottime_ns() + in_ns, self._begin, of)
        self._open[of].setdefault(teller, []).extend(leases)

    def _begin(self, of: tuple[str, int], _now_ns: int) -> None:
        account, told = of[0], iter(self._open.pop(of).items())

        def work(until_ns: int) -> bool:
            for teller, leases in told:
                self._look(account, teller, leases)
                if perf_counter_ns() >= until_ns:
                    return True
            return False

        self._turns.add(account, work)

    def _look(self, account: str, teller: Teller, leases: list[Lease]) -> None:
        if any(map(_is_open, leases)):
            teller.look()
            if still := [lease for lease in leases if _is_open(lease)]:
                self._is_looked_at(account, _LATER_NS, teller, still)


def _is_open(lease: Lease) -> bool:
    return lease.standing is Standing.HELD and not lease.told
