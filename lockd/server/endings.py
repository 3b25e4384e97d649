"""Ending the leases of apps that are gone. A few end at once. Thousands, of one process or of many that end
together, leave the loop to others in between. Until it is their turn they are held and renewed as before:
they end later than they could, but safely (rule 13)."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import perf_counter_ns

from lockd.clock import boottime_ns
from lockd.core.locks import Locks
from lockd.core.owners import Ends, carry_out
from lockd.core.validity import NEVER_NS
from lockd.server.turns import LoopTurns, Work

AT_ONCE = 4
_LOOK_S = 0.005
_UNREAD = "its connection ended before the app had read the reply to LOCK"


class Endings:
    def __init__(self, locks: Locks, turns: LoopTurns) -> None:
        self._locks = locks
        self._turns = turns
        self._left = 0

    @property
    def busy(self) -> bool:
        """Whether something is left to be done."""
        return self._left > 0

    def begin(self, account: str, job: Work, *, few: bool) -> None:
        """few: it is little, and may be done at once."""
        if few and self._turns.may_go_first(account):
            began_ns = perf_counter_ns()
            job(NEVER_NS)
            self._turns.went_first(account, began_ns)
        else:
            self.add(account, job)

    def add(self, account: str, job: Work) -> None:
        """Do this for that account, as soon as it is its turn."""
        self._left += 1
        self._turns.add(account, partial(self._go_on, job))

    def _go_on(self, job: Work, until_ns: int) -> bool:
        more = False
        try:
            more = job(until_ns)
        finally:
            self._left -= not more
        return more

    async def finish(self, within_s: float, others: Callable[[], bool] = lambda: False) -> None:
        """Do everything that is left now: later nobody will. others: whether more is being done besides."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.busy or others():  # noqa: ASYNC110  # once in an agent's life, and nothing else waits for it
                    await asyncio.sleep(_LOOK_S)

    def end(self, ends: Ends, doubt: str = _UNREAD) -> None:
        """doubt: why leases end in which their apps may still believe."""
        if not ends:
            return

        def work(until_ns: int) -> bool:
            while ends:
                # Removed first: its connection hears of that, and removes it, too.
                lease, fate = ends.popitem()
                carry_out(fate, lease, self._locks, doubt, boottime_ns())
                if perf_counter_ns() >= until_ns:
                    break
            return bool(ends)

        account = next(iter(ends)).holder.account
        self.begin(account, work, few=len(ends) <= AT_ONCE)
