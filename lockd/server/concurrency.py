"""Slow readings, a few at a time: a user that asks for too many waits for itself, and does not hold up
others."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_REST_S = 0.002


class ConcurrencyLimit:
    """For questions that go to all masters, or list everything that is held: how many at once, in all and for
    each user."""

    def __init__(self, at_once: int, per_user: int) -> None:
        self._all = asyncio.Semaphore(at_once)
        # One entry for each user that ever asked: as many as the host has.
        self._users: defaultdict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(per_user))

    @asynccontextmanager
    async def slot(self, uid: int) -> AsyncIterator[None]:
        """A slot for this user."""
        async with self._users[uid]:
            async with self._all:
                yield
            # A rest between two questions of one user leaves time to others.
            await asyncio.sleep(_REST_S)
