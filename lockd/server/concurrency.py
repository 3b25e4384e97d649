"""Slow readings, a few at a time: whoever asks for too many waits behind himself, not in front of others."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_REST_S = 0.002


class ConcurrencyLimit:
    """For questions that go to all masters, or list all that is held: so many at once, and of each user."""

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
            # A rest between two questions of one user is time in which others get what they came for.
            await asyncio.sleep(_REST_S)
