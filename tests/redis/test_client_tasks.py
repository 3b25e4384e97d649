"""What only `lockd.aio.Client` promises: of tasks that are cancelled, of loops. Beside test_clients.py."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from lockd import LockLost
from lockd.aio import Client, Lease
from tests.harness.clients import take_away
from tests.harness.cluster import Cluster
from tests.harness.waiting import PATIENCE_S, until


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def until_free(client: Client, resource: str) -> None:
    deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
    while await client.holder(resource) is not None:
        assert asyncio.get_running_loop().time() < deadline_s, f"{resource} is not free"
        await asyncio.sleep(0.01)


async def cancelled(work: Awaitable[object]) -> None:
    """Cancel `work` as a task and see that it ends so."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_client_may_be_used_in_one_loop_after_another(shared: Cluster) -> None:
    client = Client(shared.socket)

    async def main() -> None:
        async with client.lock("again"):
            pass
        await client.aclose()

    asyncio.run(main())
    asyncio.run(main())


# Cancelling


@asynchronous
async def test_a_cancelled_wait_leaves_nothing_behind(shared: Cluster) -> None:
    async with Client(shared.socket) as client:
        held = await client.acquire("waited-for")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.acquire("waited-for", wait=30)
        await held.release()
        assert await client.holder("waited-for") is None


@asynchronous
async def test_a_cancelled_release_releases_all_the_same(shared: Cluster) -> None:
    async with Client(shared.socket) as client:
        for detached, idle in ((False, True), (True, True), (True, False)):
            lease = await client.acquire("released", ttl=30, detached=detached)
            if not idle:
                await client.aclose()
            await cancelled(lease.release())
            await until_free(client, "released")


@asynchronous
async def test_a_cancelled_block_releases_as_usual(shared: Cluster) -> None:
    async def hold(client: Client) -> None:
        async with client.lock("block"):
            await asyncio.sleep(30)

    async with Client(shared.socket) as client:
        task = asyncio.ensure_future(hold(client))
        await until(lambda: len(client._pool.all) == 1)
        await asyncio.sleep(0.1)
        assert await client.holder("block") is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await client.holder("block") is None


@asynchronous
async def test_a_cancelled_extension_keeps_the_lease(shared: Cluster) -> None:
    async with Client(shared.socket) as client, client.lock("kept", ttl=1) as lease:
        await cancelled(lease.extend(8))
        await until(lambda: lease.remaining() > 7, "the extension came through")
        lease.check()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@asynchronous
async def test_cancellations_at_any_moment_leave_nothing_behind(shared: Cluster) -> None:
    async def work(client: Client) -> None:
        while True:
            async with client.lock("any-moment", wait=10):
                await asyncio.sleep(0)

    async with Client(shared.socket) as client:
        for _ in range(40):
            tasks = [asyncio.ensure_future(work(client)) for _ in range(5)]
            await asyncio.sleep(random.random() * 0.02)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert all(task.cancelled() for task in tasks)
        gc.collect()
        await until_free(client, "any-moment")


# Telling


@asynchronous
async def test_on_lost_may_be_a_coroutine_function_that_releases(shared: Cluster) -> None:
    ended = asyncio.Event()

    async def on_lost(lease: Lease, reason: str) -> None:
        with pytest.raises(LockLost):
            await lease.release()
        ended.set()

    async with Client(shared.socket) as client:
        lease = await client.acquire("taken", on_lost=on_lost)
        take_away(shared, "taken")
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
        assert await lease.release() is False
