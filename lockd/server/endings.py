"""Ending the leases of apps that are gone. A few end at once. Thousands, of one process or of many that end
together, leave the loop to others in between. Until it is their turn they are held and renewed as before:
they end later than they could, but safely (rule 13)."""

import asyncio
from contextlib import suppress
from time import perf_counter_ns

from lockd.clock import boottime_ns
from lockd.core.leases import pid_and_uid
from lockd.core.locks import Locks
from lockd.core.owners import Ends, carry_out
from lockd.server.lanes import Crowd, Lane, LaneWork

AT_ONCE = 4
_LOOK_S = 0.005
_UNREAD = "its connection ended before the app had read the reply to LOCK"


class Endings:
    def __init__(self, locks: Locks, crowd: Crowd, rests: int = 2) -> None:
        self._locks = locks
        self._crowd = crowd
        self._lane = Lane(rests)

    @property
    def busy(self) -> bool:
        """Whether something is left to be done."""
        return self._lane.busy

    def add(self, uid: int, job: LaneWork) -> None:
        """Do this for that user, as soon as it is its turn."""
        self._lane.add(uid, job)

    async def finish(self, within_s: float) -> None:
        """Do everything that is left now: later nobody will."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.busy:  # noqa: ASYNC110  # once in an agent's life, and nothing else waits for it
                    await asyncio.sleep(_LOOK_S)

    def end(self, ends: Ends, doubt: str = _UNREAD) -> None:
        """doubt: why leases end in which their apps may still believe."""
        if not ends:
            return
        if len(ends) <= AT_ONCE and self._crowd.has_room():
            while ends:
                self._end_one_of(ends, doubt)
            return

        def work(until_ns: int) -> bool:
            while ends:
                self._end_one_of(ends, doubt)
                if perf_counter_ns() >= until_ns:
                    break
            return bool(ends)

        _, uid = pid_and_uid(next(iter(ends)).holder.owner)
        self.add(uid, work)

    def _end_one_of(self, ends: Ends, doubt: str) -> None:
        """What ends is removed, also when its connection hears of that and removes it."""
        lease, fate = ends.popitem()
        carry_out(fate, lease, self._locks, doubt, boottime_ns())
