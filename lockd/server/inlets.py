"""Reading: what apps send is read when it is their account's turn. Until then it waits in the kernel.

The event loop would read whatever has arrived. Then one user who sends single bytes on thousands of
connections keeps everybody else waiting for all of them, again and again. So each account has an epoll that
watches its connections, and the loop watches only that: it is told once, however many of them have
something to be read, and a turn reads as many as it has time for. epoll gives each of them its turn.

A connection that is not read from for a while is watched for its end: of an app that has sent a lot after a
LOCK that waits, and has died, nothing else would be seen. The kernel reports that to a watcher that asks for
no events, too (EPOLLHUP is always reported).
"""

import asyncio
import os
import select
from time import perf_counter_ns
from typing import Final, Protocol

from lockd.server.turns import BITE_NS, LoopTurns

_READS: Final = select.EPOLLIN
_WAITS_FOR_END: Final = select.EPOLLONESHOT
_BYTES: Final = 8_192
_AT_A_TIME: Final = 32


class Read(Protocol):
    """A connection that is read from. inlet: where; None: its transport reads by itself."""

    inlet: "Inlet | None"

    @property
    def account(self) -> str: ...

    def takes(self, data: bytes) -> bool:
        """Whether that was one whole request, which was run."""

    def sent_all(self, reset: bool) -> None:
        """Nothing more can be read. The kernel tells once of a reset."""

    def hung_up(self) -> None:
        """Its app has closed while it was not read from."""

    def broke(self, failure: Exception) -> None:
        """One of these has failed."""


class Inlet:
    """The connections of one account."""

    def __init__(self, account: str, of: "Inlets", loop: asyncio.AbstractEventLoop) -> None:
        self.account = account
        self._of = of
        self._turns = of.turns
        self._loop = loop
        self._epoll = select.epoll()
        self._files: dict[Read, int] = {}
        self._connections: dict[int, Read] = {}
        self._found: list[tuple[int, int]] = []
        """What epoll has named, and was not read yet; the last one is next."""
        self._watch()

    @property
    def is_in_line(self) -> bool:
        return bool(self._found)

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def put(self, connection: Read, file: int, reads: bool) -> None:
        self._files[connection] = file
        self._connections[file] = connection
        self._epoll.register(file, _READS if reads else _WAITS_FOR_END)

    def take_out(self, connection: Read) -> bool:
        """While its file is open. Whether it was the last one."""
        file = self._files.pop(connection)
        del self._connections[file]
        self._not_found(file)
        if not self._epoll.closed:
            self._epoll.unregister(file)
        return not self._files

    def reads(self, connection: Read, on: bool) -> None:
        """Go on reading from it, or only watch for its end."""
        file = self._files[connection]
        self._not_found(file)
        if not self._epoll.closed:
            self._epoll.modify(file, _READS if on else _WAITS_FOR_END)

    def _watch(self) -> None:
        self._loop.add_reader(self._epoll.fileno(), self._ready)

    def _ready(self) -> None:
        """Whole requests are read and run at once while no other account is next, pieces of requests and ends
        for one bite: the others wait for the account's turn."""
        turns, account, until_ns = self._turns, self.account, 0
        self._look()
        while self._found and turns.may_go_first(account):
            began_ns = perf_counter_ns()
            if self._read(*self._found.pop()):
                turns.went_first(account, began_ns)
                continue
            turns.charge(account, began_ns)
            until_ns = until_ns or began_ns + BITE_NS
            if perf_counter_ns() >= until_ns:
                break
        if self._found:
            self._loop.remove_reader(self._epoll.fileno())
            turns.add(account, self._read_in_turn)

    def _read_in_turn(self, until_ns: int) -> bool:
        """As `Work`."""
        while not self._epoll.closed:
            if not self._found and not self._look():
                self._watch()
                return False
            self._read(*self._found.pop())
            if perf_counter_ns() >= until_ns:
                return True
        return False

    def _look(self) -> bool:
        """Whether there is something to be read. epoll names each connection once before it names one twice.
        So does this, if all that it names are read."""
        self._found = self._epoll.poll(0, _AT_A_TIME)
        self._found.reverse()
        return bool(self._found)

    def _not_found(self, file: int) -> None:
        """What was found of it is over."""
        if self._found:
            self._found = [one for one in self._found if one[0] != file]

    def _read(self, file: int, events: int) -> bool:
        """Whether it was a whole request."""
        connection = self._connections[file]
        try:
            return self._read_from(connection, file, events)
        except Exception as failure:
            # The others are read from all the same.
            connection.broke(failure)
            return False

    def _read_from(self, connection: Read, file: int, events: int) -> bool:
        if not events & _READS:
            connection.hung_up()
            return False
        if connection.account != self.account and self._of.put(connection, file, True):
            return False
        try:
            data = os.read(file, _BYTES)
        except BlockingIOError:
            return False
        except OSError:
            connection.sent_all(True)
            return False
        if data:
            return connection.takes(data)
        connection.sent_all(False)
        return False


class Inlets:
    """Of all accounts. Where they are not started, transports read by themselves."""

    def __init__(self, turns: LoopTurns) -> None:
        self.turns = turns
        self._loop: asyncio.AbstractEventLoop | None = None
        self._of: dict[str, Inlet] = {}

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def stop(self) -> None:
        """More connections may still end."""
        for inlet in self._of.values():
            inlet.close()
        self._of.clear()
        self._loop = None

    @property
    def works(self) -> bool:
        return self._loop is not None

    def are_in_line(self, account: str) -> bool:
        """Connections of it wait for its turn."""
        inlet = self._of.get(account)
        return inlet is not None and inlet.is_in_line

    def put(self, connection: Read, file: int, reads: bool) -> bool:
        """From now on it is read from there, if there is a file left for one more account."""
        if self._loop is None:
            return False
        account = connection.account
        inlet = self._of.get(account)
        if inlet is None:
            try:
                inlet = self._of[account] = Inlet(account, self, self._loop)
            except OSError:
                return False
        self.take_out(connection)
        inlet.put(connection, file, reads)
        connection.inlet = inlet
        return True

    def take_out(self, connection: Read) -> None:
        """It is not read from any more, if it was."""
        inlet, connection.inlet = connection.inlet, None
        if inlet is not None and inlet.take_out(connection) and self._of.get(inlet.account) is inlet:
            del self._of[inlet.account]
            inlet.close()
