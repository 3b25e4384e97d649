"""Slow readings, a few at a time: operators first, then users in turn. A user that asks for too many waits
for itself, and does not hold up others."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

W = TypeVar("W", bound=Hashable)

_REST_S = 0.002


class Line(Generic[W]):
    """Those who wait. `first`: they are an operator's."""

    def __init__(self) -> None:
        self._lines: dict[bool, OrderedDict[int, OrderedDict[W, None]]] = {
            True: OrderedDict(),
            False: OrderedDict(),
        }

    @property
    def has_first(self) -> bool:
        return bool(self._lines[True])

    def add(self, uid: int, one: W, *, first: bool) -> None:
        self._lines[first].setdefault(uid, OrderedDict())[one] = None

    def put_back(self, uid: int, one: W, *, first: bool) -> None:
        """It had its turn, and has to have another: before all others of its kind."""
        self.add(uid, one, first=first)
        self._lines[first].move_to_end(uid, last=False)
        self._lines[first][uid].move_to_end(one, last=False)

    def drop(self, uid: int, one: W, *, first: bool) -> None:
        """It waits no more, if it does."""
        of_user = self._lines[first].get(uid)
        if of_user is not None:
            of_user.pop(one, None)
            if not of_user:
                del self._lines[first][uid]

    def next(self, may: Callable[[int], bool] = lambda _uid: True) -> tuple[int, W] | None:
        """Take out the next one of a user that `may`. Others of that user come after those of all others."""
        for users in (self._lines[True], self._lines[False]):
            uid = next(filter(may, users), None)
            if uid is not None:
                one, _ = users[uid].popitem(last=False)
                users.move_to_end(uid)
                if not users[uid]:
                    del users[uid]
                return uid, one
        return None


class ConcurrencyLimit:
    """For questions that go to all masters, or list everything that is held: how many at once, in all and for
    each user."""

    def __init__(self, at_once: int, per_user: int) -> None:
        self._free = at_once
        self._per_user = per_user
        self._busy = Counter[int]()
        self._line = Line[asyncio.Future[None]]()

    @asynccontextmanager
    async def slot(self, uid: int, *, first: bool = False) -> AsyncIterator[None]:
        """A slot for this user, while a reply is made and no longer: nobody waits for its reader."""
        turn = asyncio.get_running_loop().create_future()
        self._line.add(uid, turn, first=first)
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            self._line.drop(uid, turn, first=first)
            if not turn.cancelled():
                self._leave(uid)
            raise
        try:
            yield
        finally:
            self._leave(uid)

    def _let_in(self) -> None:
        while self._free and (found := self._line.next(self._has_room)) is not None:
            uid, turn = found
            if not turn.done():
                self._free -= 1
                self._busy[uid] += 1
                turn.set_result(None)

    def _has_room(self, uid: int) -> bool:
        return self._busy[uid] < self._per_user

    def _leave(self, uid: int) -> None:
        """A rest between two questions of one user leaves time to others."""
        self._free += 1
        asyncio.get_running_loop().call_later(_REST_S, self._has_rested, uid)
        self._let_in()

    def _has_rested(self, uid: int) -> None:
        self._busy[uid] -= 1
        if not self._busy[uid]:
            del self._busy[uid]
        self._let_in()
