"""Slow readings, a few at a time: operators first, then accounts in turn. An account that asks for too many
waits for itself, and does not hold up others."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

W = TypeVar("W", bound=Hashable)

_REST_S = 0.002
_LET_IN_S = 2 * _REST_S
"""Timers may be early by a part of that."""


class Line(Generic[W]):
    """Those who wait. `first`: they are an operator's."""

    def __init__(self) -> None:
        self._lines: dict[bool, OrderedDict[str, OrderedDict[W, None]]] = {
            True: OrderedDict(),
            False: OrderedDict(),
        }

    @property
    def has_first(self) -> bool:
        return bool(self._lines[True])

    def add(self, account: str, one: W, *, first: bool) -> None:
        self._lines[first].setdefault(account, OrderedDict())[one] = None

    def put_back(self, account: str, one: W, *, first: bool) -> None:
        """It had its turn, and has to have another: before all others of its kind."""
        self.add(account, one, first=first)
        self._lines[first].move_to_end(account, last=False)
        self._lines[first][account].move_to_end(one, last=False)

    def drop(self, account: str, one: W, *, first: bool) -> None:
        """It waits no more, if it does."""
        of_account = self._lines[first].get(account)
        if of_account is not None:
            of_account.pop(one, None)
            if not of_account:
                del self._lines[first][account]

    def next(self, may: Callable[[str], bool] = lambda _account: True) -> tuple[str, W] | None:
        """Take out the next one of an account that `may`. Others of that account come after those of all
        others."""
        for accounts in (self._lines[True], self._lines[False]):
            account = next(filter(may, accounts), None)
            if account is not None:
                one, _ = accounts[account].popitem(last=False)
                accounts.move_to_end(account)
                if not accounts[account]:
                    del accounts[account]
                return account, one
        return None


class ConcurrencyLimit:
    """For questions that go to all masters, or list everything that is held: how many at once, in all and for
    each account."""

    def __init__(self, at_once: int, per_account: int) -> None:
        self._free = at_once
        self._per_account = per_account
        self._busy_until_s: dict[str, list[float]] = {}
        """By account, for each of its slots: no end is known of those in use."""
        self._line = Line[asyncio.Future[None]]()

    @asynccontextmanager
    async def slot(self, account: str, *, first: bool = False) -> AsyncIterator[None]:
        """A slot for this account, while a reply is made and no longer: nobody waits for its reader."""
        turn = asyncio.get_running_loop().create_future()
        try:
            self._line.add(account, turn, first=first)
            self._let_in()
            await turn
            yield
        finally:
            self._line.drop(account, turn, first=first)
            if turn.done() and not turn.cancelled():
                self._leave(account)

    def _let_in(self) -> None:
        while self._free and (found := self._line.next(self._has_room)) is not None:
            account, turn = found
            if not turn.done():
                self._free -= 1
                self._busy_until_s.setdefault(account, []).append(math.inf)
                turn.set_result(None)

    def _has_room(self, account: str) -> bool:
        now_s = asyncio.get_running_loop().time()
        busy = [until_s for until_s in self._busy_until_s.pop(account, ()) if until_s > now_s]
        if busy:
            self._busy_until_s[account] = busy
        return len(busy) < self._per_account

    def _leave(self, account: str) -> None:
        """A rest between two questions of one account leaves time to others. It ends by the clock, whatever
        becomes of the call that lets the next one in."""
        loop = asyncio.get_running_loop()
        self._free += 1
        busy = self._busy_until_s[account]
        busy[busy.index(math.inf)] = loop.time() + _REST_S
        loop.call_later(_LET_IN_S, self._has_rested, account)
        self._let_in()

    def _has_rested(self, account: str) -> None:
        self._has_room(account)  # nothing is kept of an account that asks no more
        self._let_in()
