"""Things to do at a certain time: a heap that forgets what was cancelled.

What is over refers to nothing that refers to it: a lease and its timer know each other, and such a circle
would stay in memory until old objects are collected, which is hours later.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

Due = Callable[..., None]


class Timer:
    """One thing to do. `due` gets the time at which it really runs, and is None once it has run or was
    cancelled. of: an argument before the time, if there is one, so that many thousands of timers don't each
    need a function; None, too, once it is over."""

    __slots__ = ("due", "of")

    def __init__(self, due: Due, of: object = None) -> None:
        self.due: Due | None = due
        self.of = of


class Timers:
    """`sooner` is called with the new earliest time whenever it becomes earlier, so that a driver can set its
    alarm."""

    def __init__(self) -> None:
        # Tuples, so that the heap compares in C.
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = count()
        self._cancelled = 0
        self.sooner: Callable[[int], None] = lambda _when_ns: None

    def at(self, when_ns: int, due: Due, of: object = None) -> Timer:
        timer = Timer(due, of)
        heappush(self._heap, (when_ns, next(self._order), timer))
        if self._heap[0][2] is timer:
            self.sooner(when_ns)
        return timer

    def cancel(self, timer: Timer | None) -> None:
        if timer is None or timer.due is None:
            return
        timer.due = timer.of = None
        self._cancelled += 1
        # Most timers are cancelled long before they are due: without this, the heap would hold a minute's
        # worth of dead ones.
        if self._cancelled > 256 and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].due is not None]
            heapify(self._heap)
            self._cancelled = 0

    def run(self, now_ns: int, most: int | None = None) -> int | None:
        """Do everything that is due, or this much of it at most. Returns when the next one is due, or None. A
        time not after `now_ns` means that more is due already."""
        left = most
        while self._heap:
            when_ns, _, timer = self._heap[0]
            if timer.due is None:
                heappop(self._heap)
                self._cancelled -= 1
            elif when_ns <= now_ns and left != 0:
                left = None if left is None else left - 1
                heappop(self._heap)
                due, of = timer.due, timer.of
                timer.due = timer.of = None
                if of is None:
                    due(now_ns)
                else:
                    due(of, now_ns)
            else:
                return when_ns
        return None
