"""Both clients, so that one suite tells what both promise: that of asyncio is driven from tests that block.

Calls from several threads are tasks of one event loop then, at the same time.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from lockd import Client, aio
from lockd.client.state import HeldLease
from lockd.clock import boottime_ns
from tests.harness.cluster import Cluster
from tests.harness.waiting import eventually

T = TypeVar("T")
NewLoop = Callable[[], asyncio.AbstractEventLoop]


@cache
def running_loop(new_loop: NewLoop, _pid: int) -> asyncio.AbstractEventLoop:
    """A process's loop, in a thread of its own: that of a parent doesn't run in a forked child."""
    loop = new_loop()
    threading.Thread(target=loop.run_forever, name="event loop", daemon=True).start()
    return loop


class Driver:
    """Runs what is asynchronous in the loop of this process, and waits for it."""

    def __init__(self, new_loop: NewLoop) -> None:
        self._new_loop = new_loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, running_loop(self._new_loop, os.getpid())).result()

    def call(self, function: Callable[[], T]) -> T:
        async def called() -> T:
            return function()

        return self.run(called())


class AwaitedClient:
    """`lockd.aio.Client`, as `lockd.Client` is used."""

    def __init__(self, new_loop: NewLoop, socket: str | Path | None = None, **options: Any) -> None:
        self._driver = Driver(new_loop)
        self._client = aio.Client(socket, **options)
        self._pool = self._client._pool

    def lock(self, resource: str | bytes, **options: Any) -> AwaitedBlock:
        return AwaitedBlock(self._client.lock(resource, **options), self._driver)

    def acquire(self, resource: str | bytes, **options: Any) -> AwaitedLease:
        return AwaitedLease(self._driver.run(self._client.acquire(resource, **options)), self._driver)

    def holder(self, resource: str | bytes) -> dict[str, Any] | None:
        return self._driver.run(self._client.holder(resource))

    def locks(self, pattern: str | bytes = "*", *, local: bool = False) -> list[dict[str, Any]]:
        return self._driver.run(self._client.locks(pattern, local=local))

    def masters(self) -> list[dict[str, Any]]:
        return self._driver.run(self._client.masters())

    def ping(self) -> float:
        return self._driver.run(self._client.ping())

    def __enter__(self) -> AwaitedClient:
        self._driver.run(self._client.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._driver.run(self._client.__aexit__(*error))


class AwaitedLease:
    """What it says of itself, it is asked in its loop, as apps do."""

    def __init__(self, lease: aio.Lease, driver: Driver) -> None:
        self._lease = lease
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        return self._driver.call(lambda: getattr(self._lease, name))

    def check(self) -> None:
        self._driver.call(self._lease.check)

    def remaining(self) -> float:
        return self._driver.call(self._lease.remaining)

    def extend(self, ttl: float) -> None:
        self._driver.run(self._lease.extend(ttl))

    def release(self) -> bool:
        return self._driver.run(self._lease.release())

    def __exit__(self, *error: Any) -> None:
        self._driver.run(self._lease.__aexit__(*error))


class AwaitedBlock:
    def __init__(self, block: aio.LockBlock, driver: Driver) -> None:
        self._block = block
        self._driver = driver

    def __enter__(self) -> AwaitedLease:
        return AwaitedLease(self._driver.run(self._block.__aenter__()), self._driver)

    def __exit__(self, *error: Any) -> None:
        self._driver.run(self._block.__aexit__(*error))


AnyClient = Client | AwaitedClient

KINDS: dict[str, Callable[..., AnyClient]] = {
    "threads": Client,
    "asyncio": partial(AwaitedClient, asyncio.new_event_loop),
    "uvloop": partial(AwaitedClient, uvloop.new_event_loop),
}


class Losses:
    """An `on_lost` that remembers its calls, and what the lease said at that moment."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.left_s: list[float] = []

    def __call__(self, lease: HeldLease, reason: str) -> None:
        self.left_s.append((lease.deadline_ns - boottime_ns()) / 1e9)
        self.reasons.append(reason)

    def wait(self, within_s: float = 10.0) -> str:
        eventually(lambda: self.reasons, within_s, "on_lost is called")
        return self.reasons[0]


def free(client: AnyClient, resource: str) -> bool:
    return client.holder(resource) is None


def wait_until_free(client: AnyClient, resource: str, within_s: float = 3.0) -> None:
    eventually(lambda: free(client, resource), within_s, f"{resource} is free")


def take_away(cluster: Cluster, resource: str) -> None:
    with cluster.client() as operator:
        operator.execute_command("FORCERELEASE", resource)
