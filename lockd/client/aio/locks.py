"""Locks for asyncio programs: `from lockd.aio import Client`.

As sync/, with awaits where the agent is asked. A lease that is held for more than a moment has a task that
reads the agent's pushes, so `check`, `lost` and `remaining` need not ask.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Unpack

from lockd.client import requests
from lockd.client.aio.leading import Leadership
from lockd.client.aio.lease import Lease, OnLost
from lockd.client.aio.pool import Pool
from lockd.client.attempts import LOOK_AGAIN_S, Attempt
from lockd.client.connection import AsyncAgentConnection
from lockd.client.deadlines import AgentClock
from lockd.client.errors import LockdError
from lockd.client.leading import Deposed, Elected
from lockd.client.requests import LeaseOptions, Request, Resource, Resources, socket_path
from lockd.client.state import View


class LockOptions(LeaseOptions, total=False):
    """The options of `acquire`, apart from the resource."""

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

    def lock(self, resource: Resource | Iterable[Resource], **options: Unpack[LockOptions]) -> LockBlock:
        """For `async with`: the resource is held while the block runs. Options: those of `acquire`.

        If the lease was lost meanwhile, the end of the block raises LockLost, unless the block raised
        something itself.
        """
        return LockBlock(self, resource, options)

    async def acquire(
        self,
        resource: Resource | Iterable[Resource],
        *,
        ttl: float = 10.0,
        wait: float = 0.0,
        max_hold: float | None = None,
        detached: bool = False,
        slots: int | None = None,
        on_lost: OnLost | None = None,
    ) -> Lease:
        """As `lockd.Client.acquire`. `on_lost` is called in the event loop, and may be a coroutine function.

        If it is cancelled, nothing stays locked, unless `detached` was granted just then: that ends at its
        `ttl`.
        """
        resource = requests.named_once(resource)
        attempt = Attempt(requests.keys_of(resource), ttl, wait)
        return await self._acquire(
            attempt, resource, on_lost, max_hold=max_hold, detached=detached, slots=slots
        )

    def lead(
        self,
        resource: Resource,
        elected: Elected[Lease],
        deposed: Deposed[Lease] | None = None,
        *,
        ttl: float = 10.0,
        wait: float = 30.0,
        max_hold: float | None = None,
    ) -> Leadership:
        """As `lockd.Client.lead`, in a task of the running loop. Both may be coroutine functions; that of
        `elected` is cancelled when `deposed` is called."""
        key = requests.key_of(resource)

        async def stand(on_lost: OnLost) -> Lease:
            attempt = Attempt([key], ttl, wait)
            return await self._acquire(
                attempt, resource, on_lost, max_hold=max_hold, detached=False, slots=None
            )

        Attempt([key], ttl, wait)  # wrong options are reported at once
        return Leadership(stand, elected, deposed)

    async def _acquire(
        self,
        attempt: Attempt,
        resource: Resource | Resources,
        on_lost: OnLost | None,
        *,
        max_hold: float | None,
        detached: bool,
        slots: int | None,
    ) -> Lease:
        try:
            while True:
                request = requests.lock(
                    resource, attempt.resources, ttl_ms=attempt.ttl_ms, wait=attempt.wait, max_hold=max_hold,
                    detached=detached, slots=slots, clock=self._clock, token=attempt.token,
                )  # fmt: skip
                try:
                    connection, view = await self._ask(request, attempt)
                except LockdError as failure:
                    if not attempt.goes_on_after(failure):
                        raise
                    await asyncio.sleep(LOOK_AGAIN_S)
                    continue
                if detached:
                    self._pool.put(connection)
                    return Lease(self._pool, view, None, on_lost)
                connection.pushes.view = view
                return Lease(self._pool, view, connection, on_lost)
        except BaseException as failure:
            if attempt.leaves_doubt(failure):
                self._pool.give_back_later(attempt.names, attempt.lasts_until_ns)
            raise

    async def _ask(self, request: Request[View], attempt: Attempt) -> tuple[AsyncAgentConnection, View]:
        connection = await self._pool.take()
        attempt.asked = True
        try:
            return connection, await connection.request(request)
        except BaseException as failure:
            self._pool.put(connection)
            attempt.failed(failure)
            raise

    async def holder(self, resource: str | bytes) -> dict[str, Any] | None:
        """As `lockd.Client.holder`."""
        return await self._pool.request(requests.holder(resource))

    async def locks(self, pattern: str | bytes = "*", *, local: bool = False) -> list[dict[str, Any]]:
        """As `lockd.Client.locks`."""
        return await self._pool.request(requests.locks(pattern, local))

    async def masters(self) -> list[dict[str, Any]]:
        """As `lockd.Client.masters`."""
        return await self._pool.request(requests.masters())

    async def ping(self) -> float:
        """How many seconds the agent took to answer."""
        begun_s = time.perf_counter()
        await self._pool.request(requests.ping())
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

    def __init__(self, client: Client, resource: Resource | Iterable[Resource], options: LockOptions) -> None:
        self._client = client
        self._resource = requests.named_once(resource)
        self._options = options

    async def __aenter__(self) -> Lease:
        self._lease = await self._client.acquire(self._resource, **self._options)
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._lease.__aexit__(kind, error, trace)
