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
from tests.harness.clients import LONG_S, PatientAsyncClient, take_away
from tests.harness.cluster import Cluster
from tests.harness.waiting import PATIENCE_S, until

SHORTER_S = 30


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


async def until_waiting(client: Client, resource: str) -> None:
    deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
    while (await client.locks(resource, local=True))[0]["waiters"] != 1:
        assert asyncio.get_running_loop().time() < deadline_s, f"nobody waits for {resource}"
        await asyncio.sleep(0.01)


async def cancelled(work: Awaitable[object]) -> None:
    """Cancel `work` as a task and see that it ends so."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_client_may_be_used_in_one_loop_after_another(shared: Cluster) -> None:
    client = PatientAsyncClient(shared.socket)

    async def main() -> None:
        async with client.lock("again"):
            pass
        await client.aclose()

    asyncio.run(main())
    asyncio.run(main())


# Cancelling


@asynchronous
async def test_a_cancelled_wait_leaves_nothing_behind(shared: Cluster) -> None:
    async with PatientAsyncClient(shared.socket) as client:
        held = await client.acquire("waited-for")
        waits = asyncio.ensure_future(client.acquire("waited-for", wait=LONG_S))
        await until_waiting(client, "waited-for")
        await cancelled(waits)
        await held.release()
        assert await client.holder("waited-for") is None


@asynchronous
async def test_a_cancelled_release_releases_all_the_same(shared: Cluster) -> None:
    async with PatientAsyncClient(shared.socket) as client:
        for detached, idle in ((False, True), (True, True), (True, False)):
            lease = await client.acquire("released", detached=detached)
            if not idle:
                await client.aclose()
            await cancelled(lease.release())
            await until_free(client, "released")


@asynchronous
async def test_a_cancelled_block_releases_as_usual(shared: Cluster) -> None:
    held = asyncio.Event()

    async def hold(client: Client) -> None:
        async with client.lock("block"):
            held.set()
            await asyncio.Future()

    async with PatientAsyncClient(shared.socket) as client:
        task = asyncio.ensure_future(hold(client))
        await asyncio.wait_for(held.wait(), PATIENCE_S)
        assert await client.holder("block") is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await client.holder("block") is None


@asynchronous
async def test_a_cancelled_extension_keeps_the_lease(shared: Cluster) -> None:
    async with PatientAsyncClient(shared.socket) as client, client.lock("kept", ttl=SHORTER_S) as lease:
        await cancelled(lease.extend(LONG_S))
        await until(lambda: lease.remaining() > SHORTER_S, "the extension came through")
        lease.check()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@asynchronous
async def test_cancellations_at_any_moment_leave_nothing_behind(shared: Cluster) -> None:
    async def work(client: Client) -> None:
        while True:
            async with client.lock("any-moment", wait=LONG_S):
                await asyncio.sleep(0)

    async with PatientAsyncClient(shared.socket) as client:
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

    async with PatientAsyncClient(shared.socket) as client:
        lease = await client.acquire("taken", on_lost=on_lost)
        take_away(shared, "taken")
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
        assert await lease.release() is False
