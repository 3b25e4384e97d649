"""Locks for asyncio programs: `from lockd.aio import Client`.

As sync/, with awaits where the agent is asked. A lease that is held for more than a moment has a
task that reads what the agent pushes, so `check`, `lost` and `remaining` need not ask anybody.
"""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Any, Unpack

from lockd.client.aio.lease import Lease, OnLost
from lockd.client.aio.pool import Pool
from lockd.client.deadlines import AgentClock
from lockd.client.errors import LockdError
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
from lockd.client.state import LeaseView
from lockd.clock import boottime_ns


class LockOptions(LeaseOptions, total=False):
    """What `acquire` takes beside the resource."""

    on_lost: OnLost | None


class Client:
    """Locks through the agent of this host, for the tasks of one event loop. Arguments: as `lockd.Client`."""

    def __init__(
        self, socket: str | os.PathLike[str] | None = None, *, timeout: float = 5.0, max_idle: int = 64
    ) -> None:
        self._clock = AgentClock()
        self._pool = Pool(socket_path(socket), timeout, max_idle)

    @property
    def socket(self) -> str:
        return self._pool.socket

    @property
    def timeout(self) -> float:
        return self._pool.timeout_s

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
        connection = await self._pool.take()
        try:
            reply = await connection.request(request, self.timeout + wait)
            view = LeaseView(resource, key, ttl_ms, detached, reply, self._clock, boottime_ns())
            if detached:
                self._pool.put(connection)
                return Lease(self._pool, view, None, on_lost)
            connection.pushes.view = view
            return Lease(self._pool, view, connection, on_lost)
        except LockdError:
            self._pool.put(connection)
            raise
        except BaseException:
            # The agent may have granted it by now, and only closing tells it that nobody has the lease.
            connection.close()
            raise

    async def holder(self, resource: str | bytes) -> dict[str, Any] | None:
        """As `lockd.Client.holder`."""
        row = await self._pool.request(packed(b"HOLDER", key_of(resource)))
        return None if row is None else as_row(row)

    async def locks(self, pattern: str | bytes = "*", *, local: bool = False) -> list[dict[str, Any]]:
        """As `lockd.Client.locks`."""
        return [as_row(row) for row in await self._pool.request(locks_request(pattern, local))]

    async def masters(self) -> list[dict[str, Any]]:
        """As `lockd.Client.masters`."""
        return [as_row(row) for row in await self._pool.request(packed(b"MASTERS"))]

    async def ping(self) -> float:
        """How many seconds the agent took to answer."""
        begun_s = time.perf_counter()
        await self._pool.request(packed(b"PING"))
        return time.perf_counter() - begun_s

    async def aclose(self) -> None:
        """Close the idle connections. Leases that are held keep theirs."""
        self._pool.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


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
