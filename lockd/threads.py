"""Work that may wait for what never answers: a resolver, a user database, a dead disk.

It is done in threads for which nobody waits. For the event loop's own threads (`to_thread`, or a host's name
given to `create_connection`) a loop that ends waits, and so does its process.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")

YOUNG_NS = 2_000_000_000
"""Longer than a link rests between two tries to connect."""


async def in_thread(work: Callable[[], T]) -> T:
    """Its result. Who is cancelled leaves the thread to itself."""
    return await asyncio.wrap_future(_begun(work))


class Lookup(Generic[T]):
    """Work that is asked for again and again, but not begun again while it is under way.

    So no threads pile up, and an answer that takes longer than anybody waits (the first of two name servers
    is dead) is there for who asks next. It is there for YOUNG_NS: who asks later gets what is true by then.
    """

    def __init__(self, work: Callable[[], T], now_ns: Callable[[], int]) -> None:
        self._work = work
        self._now_ns = now_ns
        self._begun: Future[T] | None = None
        self._done_ns = 0

    async def result(self) -> T:
        begun = self._begun
        if begun is None or (begun.done() and self._now_ns() - self._done_ns > YOUNG_NS):
            begun = self._begun = _begun(self._look)
        try:
            return await asyncio.wrap_future(begun)
        finally:
            if begun.done() and self._begun is begun:
                self._begun = None

    def _look(self) -> T:
        try:
            return self._work()
        finally:
            self._done_ns = self._now_ns()

    @property
    def is_under_way(self) -> bool:
        return self._begun is not None and not self._begun.done()


def _begun(work: Callable[[], T]) -> "Future[T]":
    future: Future[T] = Future()
    # From here on, it can't be cancelled: a caller that has stopped waiting gets no answer.
    future.set_running_or_notify_cancel()
    Thread(target=_run, args=(work, future), daemon=True).start()
    return future


def _run(work: Callable[[], T], future: "Future[T]") -> None:
    try:
        future.set_result(work())
    except BaseException as failure:
        future.set_exception(failure)
