"""Locks for asyncio programs: `from lockd.aio import Client`.

As sync.py, with awaits where the agent is asked. A lease that is held for more than a moment has a
task that reads what the agent pushes, so `check`, `lost` and `remaining` need not ask anybody.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Unpack
from weakref import WeakSet

from lockd.client.aio_lease import Lease, OnLost
from lockd.client.connection import AsyncAgentConnection, let_go, survive_forks
from lockd.client.deadlines import AgentClock
from lockd.client.errors import LockdError
from lockd.client.lease import LeaseView
from lockd.client.requests import (
    LeaseOptions,
    as_row,
    key_of,
    lock_request,
    locks_request,
    packed,
    socket_path,
    to_ms,
)
from lockd.clock import boottime_ns

__all__ = ["Client", "Lease", "LockBlock", "LockOptions"]


class LockOptions(LeaseOptions, total=False):
    """What `acquire` takes beside the resource."""

    on_lost: OnLost | None


class Client:
    """Locks through the agent of this host, for the tasks of one event loop. Arguments: as `lockd.Client`."""

    def __init__(
        self, socket: str | os.PathLike[str] | None = None, *, timeout: float = 5.0, max_idle: int = 64
    ) -> None:
        self.socket = socket_path(socket)
        self.timeout = timeout
        self._max_idle = max_idle
        self._clock = AgentClock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: deque[AsyncAgentConnection] = deque()
        self._connections: WeakSet[AsyncAgentConnection] = WeakSet()
        self._tasks: set[asyncio.Task[Any]] = set()
        survive_forks(self)

    def lock(self, resource: str | bytes, **options: Unpack[LockOptions]) -> LockBlock:
        """For `async with`: the resource is held while the block runs. Options: those of `acquire`.

        When the lease was lost meanwhile, the end of the block raises LockLost, unless the block had raised.
        """
        return LockBlock(self, resource, options)

    async def acquire(
        self,
        resource: str | bytes,
        *,
        ttl: float = 10.0,
        wait: float = 0.0,
        max_hold: float | None = None,
        detached: bool = False,
        on_lost: OnLost | None = None,
    ) -> Lease:
        """As `lockd.Client.acquire`. `on_lost` is called in the event loop, and may be a coroutine function.

        Cancelled, it leaves nothing locked, unless `detached` was granted just then: that ends at its `ttl`.
        """
        key, ttl_ms, wait_ms = key_of(resource), to_ms(ttl, "ttl"), to_ms(wait, "wait")
        request = lock_request(key, ttl_ms, wait_ms, max_hold, detached)
        connection = await self._take()
        try:
            reply = await connection.request(request, self.timeout + wait)
            view = LeaseView(resource, key, ttl_ms, detached, reply, self._clock, boottime_ns())
            if detached:
                self._put(connection)
                return Lease(self, view, None, on_lost)
            connection.pushes.view = view
            return Lease(self, view, connection, on_lost)
        except LockdError:
            self._put(connection)
            raise
        except BaseException:
            # The agent may have granted it by now, and only closing tells it that nobody has the lease.
            connection.close()
            raise

    async def holder(self, resource: str | bytes) -> dict[str, Any] | None:
        """As `lockd.Client.holder`."""
        row = await self._request(packed(b"HOLDER", key_of(resource)))
        return None if row is None else as_row(row)

    async def locks(self, pattern: str | bytes = "*", *, local: bool = False) -> list[dict[str, Any]]:
        """As `lockd.Client.locks`."""
        return [as_row(row) for row in await self._request(locks_request(pattern, local))]

    async def masters(self) -> list[dict[str, Any]]:
        """As `lockd.Client.masters`."""
        return [as_row(row) for row in await self._request(packed(b"MASTERS"))]

    async def ping(self) -> float:
        """How many seconds the agent took to answer."""
        begun_s = time.perf_counter()
        await self._request(packed(b"PING"))
        return time.perf_counter() - begun_s

    async def aclose(self) -> None:
        """Close the idle connections. Leases that are held keep theirs."""
        while self._idle:
            self._idle.pop().close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _forked(self) -> None:
        let_go(list(self._connections))
        self._connections = WeakSet()
        self._idle = deque()
        self._tasks = set()

    async def _request(self, request: bytes) -> Any:
        connection = await self._take()
        try:
            return await connection.request(request, self.timeout)
        finally:
            self._put(connection)

    async def _take(self) -> AsyncAgentConnection:
        """An idle connection, or a new one."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Connections don't work in another loop than their own.
            self._loop, self._idle = loop, deque()
        while self._idle:
            connection = self._idle.pop()
            if await connection.idles():
                return connection
            connection.close()
        connection = AsyncAgentConnection(self.socket)
        self._connections.add(connection)
        await connection.open(self.timeout)
        return connection

    def _put(self, connection: AsyncAgentConnection) -> None:
        connection.pushes.view = None
        if connection.is_connected and len(self._idle) < self._max_idle:
            self._idle.append(connection)
        else:
            connection.close()

    async def _shielded(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Wait for `work`, which goes on to its end when the waiting is cancelled."""
        return await asyncio.shield(self._start(work))

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class LockBlock:
    """`async with client.lock(...)`: locks on entering and releases on leaving."""

    __slots__ = ("_client", "_lease", "_options", "_resource")

    def __init__(self, client: Client, resource: str | bytes, options: LockOptions) -> None:
        self._client = client
        self._resource = resource
        self._options = options

    async def __aenter__(self) -> Lease:
        self._lease = await self._client.acquire(self._resource, **self._options)
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._lease.__aexit__(kind, error, trace)
