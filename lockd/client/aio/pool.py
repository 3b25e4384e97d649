"""The connections of one client, and its tasks. Idle connections are used for the next requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar
from weakref import WeakSet

from lockd.client.connection import AsyncAgentConnection
from lockd.client.forks import let_go, survive_forks
from lockd.client.requests import Request
from lockd.client.sync.pool import Pool as SyncPool

T = TypeVar("T")


class Pool:
    """For the tasks of one event loop: in another loop, and in a forked child, it starts empty."""

    def __init__(self, socket: str, timeout_s: float, max_idle: int) -> None:
        self.socket = socket
        self.timeout_s = timeout_s
        self._max_idle = max_idle
        self.loop: asyncio.AbstractEventLoop | None = None
        self._fresh()
        survive_forks(self)

    def _fresh(self) -> None:
        self.idle: deque[AsyncAgentConnection] = deque()
        self.all: WeakSet[AsyncAgentConnection] = WeakSet()
        self._tasks: set[asyncio.Task[Any]] = set()

    def _forked(self) -> None:
        let_go(list(self.all))
        self._fresh()

    async def request(self, request: Request[T]) -> T:
        connection = await self.take()
        try:
            return await connection.request(request)
        finally:
            self.put(connection)

    def give_back_later(self, names: Iterable[tuple[bytes, bytes]], until_ns: int) -> None:
        """Give back later what no agent was there to take: the next agent would go on with it, for nobody.
        Not past its deadline: then no agent does. names: as `requests.unlock`."""
        # In a thread: a loop that ends cancels its tasks, and the process may go on.
        SyncPool(self.socket, self.timeout_s, 0).give_back_later(names, until_ns)

    async def take(self) -> AsyncAgentConnection:
        """An idle connection, or a new one."""
        loop = asyncio.get_running_loop()
        if loop is not self.loop:
            # Connections don't work in another loop than their own.
            self.loop, self.idle = loop, deque()
        while self.idle:
            connection = self.idle.pop()
            if await connection.idles():
                return connection
            connection.close()
        connection = AsyncAgentConnection(self.socket, self.timeout_s)
        self.all.add(connection)
        await connection.open()
        return connection

    def put(self, connection: AsyncAgentConnection) -> None:
        connection.pushes.view = None
        if connection.is_connected and len(self.idle) < self._max_idle:
            self.idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """The idle ones. Those of held leases stay."""
        while self.idle:
            self.idle.pop().close()

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for `work`, which goes on to its end if the waiting is cancelled."""
        return await asyncio.shield(self.start(work))

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
