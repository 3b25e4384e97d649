"""The connections of one client: idle ones are used for the next requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeVar
from weakref import WeakSet

from lockd.client import requests
from lockd.client.connection import AgentConnection
from lockd.client.errors import AgentUnreachable, Draining, LimitReached, LockdError
from lockd.client.forks import let_go, survive_forks
from lockd.client.requests import Request
from lockd.client.sync.resumer import resumer
from lockd.clock import boottime_ns

T = TypeVar("T")


class Pool:
    """Threads may share it; in a forked child it starts empty."""

    def __init__(self, socket: str, timeout_s: float, max_idle: int) -> None:
        self.socket = socket
        self.timeout_s = timeout_s
        self._max_idle = max_idle
        self._fresh()
        survive_forks(self)

    def _fresh(self) -> None:
        self.idle: deque[AgentConnection] = deque()
        self.all: WeakSet[AgentConnection] = WeakSet()

    def _forked(self) -> None:
        let_go(list(self.all))
        self._fresh()

    def request(self, request: Request[T]) -> T:
        connection, answer = self.ask(request)
        self.put(connection)
        return answer

    def ask(self, request: Request[T]) -> tuple[AgentConnection, T]:
        """The answer, and the connection over which it came, for `put`."""

        def over(connection: AgentConnection) -> tuple[AgentConnection, T]:
            try:
                return connection, connection.request(request)
            except BaseException:
                self.put(connection)
                raise

        return self.over_one(over)

    def give_back_later(self, names: Iterable[tuple[bytes, bytes]], until_ns: int) -> None:
        """Give back later what no agent was there to take: the next agent would go on with it, for nobody.
        Not past its deadline: then no agent does. names: as `requests.unlock`."""
        for name in names:
            resumer.add(partial(self._is_given_back, name, until_ns))

    def _is_given_back(self, name: tuple[bytes, bytes], until_ns: int) -> bool:
        try:
            self.request(requests.unlock(name))
        except (AgentUnreachable, LimitReached, Draining):
            return boottime_ns() >= until_ns
        except LockdError:
            """It is over, or was never granted."""
        return True

    def over_one(self, ask: Callable[[AgentConnection], T]) -> T:
        """The result of this request, over a good connection. An idle one may be closed, because its agent
        was stopped, and then nothing was asked over it."""
        while True:
            try:
                return ask(self._take())
            except AgentUnreachable as failure:
                if not failure.unsent:
                    raise

    def _take(self) -> AgentConnection:
        """An idle connection, or a new one."""
        with suppress(IndexError):
            return self.idle.pop()
        connection = AgentConnection(self.socket, self.timeout_s)  # type: ignore[abstract]
        self.all.add(connection)
        connection.open()
        return connection

    def put(self, connection: AgentConnection) -> None:
        connection.pushes.view = None
        if connection.settled and connection.is_connected and len(self.idle) < self._max_idle:
            self.idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """The idle ones. Those of held leases stay."""
        with suppress(IndexError):
            while True:
                self.idle.pop().close()
