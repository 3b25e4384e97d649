"""Both clients, so that one suite tells what both promise: that of asyncio is driven from tests that block.

Calls from several threads are tasks of one event loop then, at the same time.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import redis
import uvloop

from lockd import Client, Leadership, Lease, aio
from lockd.client.state import HeldLease
from lockd.clock import boottime_ns
from tests.harness.cluster import Cluster
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import as_map

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


class Awaited:
    """What `lockd.aio` gives (a client, its blocks, its leases), used as that of `lockd` is: asked in its
    loop, as apps do, and waited for."""

    def __init__(self, asynchronous: Any, driver: Driver) -> None:
        self._asynchronous = asynchronous
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        found = self._driver.call(lambda: getattr(self._asynchronous, name))
        return partial(self._ask, found) if inspect.ismethod(found) else found

    def _ask(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        said = self._driver.call(lambda: method(*arguments, **options))
        if inspect.iscoroutine(said):
            said = self._driver.run(said)
        return (
            Awaited(said, self._driver)
            if isinstance(said, (aio.LockBlock, aio.Lease, aio.Leadership))
            else said
        )

    def __enter__(self) -> Awaited:
        entered = self._ask(self._asynchronous.__aenter__)
        return self if entered is self._asynchronous else entered

    def __exit__(self, *error: Any) -> None:
        self._ask(self._asynchronous.__aexit__, *error)


LONG_S = 60.0
"""A TTL and a wait that are not over before a test is, also where the machine stands still meanwhile."""


class PatientClient(Client):
    """One whose locks last, and whose agent may take its time, unless a test says otherwise."""

    def __init__(self, socket: str | Path | None = None, *, timeout: float = PATIENCE_S) -> None:
        super().__init__(socket, timeout=timeout)

    def acquire(self, resource: Any, **options: Any) -> Lease:
        return super().acquire(resource, **{"ttl": LONG_S} | options)

    def lead(self, *what: Any, **options: Any) -> Leadership:
        return super().lead(*what, **{"ttl": LONG_S} | options)


class PatientAsyncClient(aio.Client):
    """As PatientClient."""

    def __init__(self, socket: str | Path | None = None, *, timeout: float = PATIENCE_S) -> None:
        super().__init__(socket, timeout=timeout)

    async def acquire(self, resource: Any, **options: Any) -> aio.Lease:
        return await super().acquire(resource, **{"ttl": LONG_S} | options)

    def lead(self, *what: Any, **options: Any) -> aio.Leadership:
        return super().lead(*what, **{"ttl": LONG_S} | options)


def awaited(new_loop: NewLoop, socket: str | Path | None = None, **options: Any) -> Awaited:
    return Awaited(PatientAsyncClient(socket, **options), Driver(new_loop))


AnyClient = Client | Awaited

KINDS: dict[str, Callable[..., AnyClient]] = {
    "threads": PatientClient,
    "asyncio": partial(awaited, asyncio.new_event_loop),
    "uvloop": partial(awaited, uvloop.new_event_loop),
}


class Losses:
    """An `on_lost` that remembers its calls, and what the lease said at that moment."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.left_s: list[float] = []
        self.told_ns: list[int] = []

    def __call__(self, lease: HeldLease, reason: str) -> None:
        self.told_ns.append(boottime_ns())
        self.left_s.append((lease.deadline_ns - self.told_ns[-1]) / 1e9)
        self.reasons.append(reason)

    def wait(self) -> str:
        eventually(lambda: self.reasons, "on_lost is called")
        return self.reasons[0]


def free(client: AnyClient, resource: str) -> bool:
    return client.holder(resource) is None


def wait_until_free(client: AnyClient, resource: str) -> None:
    eventually(lambda: free(client, resource), f"{resource} is free")


def take_away(cluster: Cluster, resource: str) -> None:
    with cluster.client() as operator:
        operator.execute_command("FORCERELEASE", resource)


def take_all_away(cluster: Cluster) -> None:
    """Nothing that a test has locked is left to the next, or to its own second run."""
    with cluster.client(decode_responses=False) as operator:
        for row in operator.execute_command("LOCKS"):
            with suppress(redis.ResponseError):  # it may run out meanwhile
                operator.execute_command("FORCERELEASE", as_map(row)[b"resource"])
