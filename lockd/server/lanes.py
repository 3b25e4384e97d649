"""Work that can wait, done in small pieces: the event loop is never held up for longer than one.

One lane serves all users, one piece at a time and each user in turn: a user that asks for much waits for
itself. However long it has worked, a lane can leave the loop to others for several times as long.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import TypeVar

T = TypeVar("T")

BITE_NS = 1_000_000
"""How long a lane works at a time, plus one step at most."""

LaneWork = Callable[[int], bool]
"""Works on something until that instant of `perf_counter_ns`; True when there is more to do."""


class Lane:
    """`rests`: the lane rests for this many times as long as it works. `bite_ns`: 0 means one job at a
    time."""

    def __init__(self, rests: int, bite_ns: int = BITE_NS) -> None:
        self._rests = rests
        self._bite_ns = bite_ns
        self._users: OrderedDict[int, deque[LaneWork]] = OrderedDict()
        self._free_ns = 0
        self._scheduled = False

    @property
    def busy(self) -> bool:
        """Whether something is left to be done."""
        return bool(self._users)

    def add(self, uid: int, job: LaneWork) -> None:
        """Do this for that user, as soon as it is its turn."""
        self._users.setdefault(uid, deque()).append(job)
        if not self._scheduled:
            self._schedule()

    async def through(self, uid: int, steps: Iterable[object]) -> None:
        """Run all steps, each of which does a little work. Raises what a step raises. If the caller is
        cancelled, the rest is not done."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        rest = iter(steps)

        def work(until_ns: int) -> bool:
            try:
                while not done.done():
                    next(rest)
                    if perf_counter_ns() >= until_ns:
                        return True
            except StopIteration:
                done.set_result(None)
            except Exception as failure:
                done.set_exception(failure)
            return False

        self.add(uid, work)
        await done

    async def answer(self, uid: int, make: Callable[[], bytes]) -> bytes:
        """For work that takes the loop less than a bite: in its user's turn."""
        made = list[bytes]()
        await self.through(uid, map(made.append, (make() for _ in range(1))))
        return made[0]

    async def alone(self, uid: int, make: Callable[[], T]) -> T:
        """For work that can't be done in steps: in its user's turn. Raises what it raises."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def work(_until_ns: int) -> bool:
            if not done.done():
                try:
                    done.set_result(make())
                except Exception as failure:
                    done.set_exception(failure)
            return False

        self.add(uid, work)
        return await done

    def _schedule(self) -> None:
        """The loop's timers know only milliseconds: shorter rests add up until they make one."""
        self._scheduled = True
        rest_s = max(0, self._free_ns - perf_counter_ns()) / 1e9
        asyncio.get_running_loop().call_later(rest_s, self._bite)

    def _bite(self) -> None:
        began_ns = perf_counter_ns()
        until_ns = began_ns + self._bite_ns
        try:
            self._work_for_one(until_ns)
            while self._users and perf_counter_ns() < until_ns:
                self._work_for_one(until_ns)
        finally:
            took_ns = perf_counter_ns() - began_ns
            self._free_ns = max(self._free_ns, began_ns) + (1 + self._rests) * took_ns
            self._scheduled = False
            if self._users:
                self._schedule()

    def _work_for_one(self, until_ns: int) -> None:
        uid, jobs = self._users.popitem(last=False)
        job = jobs.popleft()
        # At the end of the line again, and before the work: what it adds comes after it.
        self._users[uid] = jobs
        try:
            if job(until_ns):
                jobs.append(job)
        finally:
            if not jobs:
                del self._users[uid]


class Crowd:
    """Counts what is done as soon as it arrives, in one turn of the event loop. Thousands may ask for a
    little at the same moment: without a limit, all others would wait for all of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._gathers = most // 2
        self._count = 0

    def has_room(self) -> bool:
        """Whether one more may be served at once; if so, it counts. Otherwise it is work for a lane.

        Half of it may be from earlier turns: to reset it in each turn would cost a callback in each.
        """
        if self._count == self._gathers:
            asyncio.get_running_loop().call_soon(self._disperse)
        self._count += 1
        return self._count <= self._most

    def _disperse(self) -> None:
        self._count = 0
