"""`lockd.aio.Client` with real agents, which are killed, frozen and restarted; tasks that are cancelled."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import uvloop

from lockd import AgentUnreachable, LimitReached, LockdError, LockLost, NoQuorum, Taken, WaitTimeout
from lockd.aio import Client, Lease
from lockd.clock import boottime_ns
from tests.redis.losses import ToldLosses
from tests.redis.masters import Cluster, running_cluster
from tests.redis.users import by_another_user


@pytest.fixture(scope="module")
def shared(server_binary: Path) -> Iterator[Cluster]:
    """One cluster for all the tests that do it no harm."""
    with running_cluster(5) as cluster:
        yield cluster


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Losses(ToldLosses):
    async def wait(self, within_s: float = 10.0) -> str:
        await until(lambda: self.reasons, within_s, "on_lost is called")
        return self.reasons[0]


async def until(condition: Callable[[], object], within_s: float = 5.0, what: str = "the condition") -> None:
    """Return once `condition` is true; AssertionError naming `what` when it doesn't come in time."""
    deadline_s = asyncio.get_running_loop().time() + within_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline_s, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.01)


async def until_free(client: Client, resource: str, within_s: float = 3.0) -> None:
    deadline_s = asyncio.get_running_loop().time() + within_s
    while await client.holder(resource) is not None:
        assert asyncio.get_running_loop().time() < deadline_s, f"{resource} is not free within {within_s} s"
        await asyncio.sleep(0.01)


async def cancelled(work: Awaitable[object]) -> None:
    """Cancel `work` as a task and see that it ends so."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def exit_status(pid: int) -> int:
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    return os.waitstatus_to_exitcode(status)


def take_away(cluster: Cluster, resource: str) -> None:
    with cluster.client() as operator:
        operator.execute_command("FORCERELEASE", resource)


# Locking


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_the_resource_is_held_in_the_block_and_free_after_it_in_either_loop(
    shared: Cluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def main() -> None:
        async with Client(shared.socket) as client:
            async with client.lock("invoice:42", ttl=5) as lease:
                holder = await client.holder("invoice:42")
                assert holder is not None
                assert lease.token.startswith(holder["holder"])
                assert 4 < lease.remaining() <= 5
                assert not lease.lost
                lease.check()
            assert await client.holder("invoice:42") is None
            async with client.lock("invoice:42") as next_lease:
                assert next_lease.fence > lease.fence

    run(main())


def test_a_client_may_be_used_in_one_loop_after_another(shared: Cluster) -> None:
    client = Client(shared.socket)

    async def main() -> None:
        async with client.lock("again"):
            pass
        await client.aclose()

    asyncio.run(main())
    asyncio.run(main())


@asynchronous
async def test_what_the_agent_refuses_has_the_same_types(shared: Cluster) -> None:
    async with Client(shared.socket) as client, client.lock("busy", ttl=4):
        with pytest.raises(Taken) as taken:
            await client.acquire("busy")
        assert 0 < taken.value.retry_after <= 4
        with pytest.raises(WaitTimeout):
            await client.acquire("busy", wait=0.2)
        with pytest.raises(LockdError, match="ttl must be"):
            await client.acquire("x", ttl=0.001)


@asynchronous
async def test_a_wait_is_not_cut_short_by_the_time_limit_for_answers(shared: Cluster) -> None:
    async with Client(shared.socket, timeout=0.3) as client:
        held = await client.acquire("slow")
        waiting = asyncio.ensure_future(client.acquire("slow", wait=10))
        await asyncio.sleep(0.8)
        await held.release()
        assert (await waiting).fence > held.fence
        await waiting.result().release()


@asynchronous
async def test_no_agent_at_the_socket_is_told_with_its_path(folder: Path) -> None:
    with pytest.raises(AgentUnreachable, match=str(folder / "no.sock")):
        await Client(folder / "no.sock").acquire("x")


@asynchronous
async def test_operators_views_come_as_text(shared: Cluster) -> None:
    async with Client(shared.socket) as client, client.lock("shown"):
        [row] = await client.locks("shown")
        assert row["pid"] == os.getpid()
        assert await client.locks("shown", local=True)
        assert {master["state"] for master in await client.masters()} == {"up"}
        assert 0 < await client.ping() < 1


@asynchronous
async def test_connections_are_used_again(shared: Cluster) -> None:
    async with Client(shared.socket) as client:
        for _ in range(20):
            async with client.lock("again"), client.lock("again:2"):
                pass
        assert len(client._pool.all) == 2


@asynchronous
async def test_a_lease_can_not_be_pickled(shared: Cluster) -> None:
    async with Client(shared.socket) as client, client.lock("pickled") as lease:
        with pytest.raises(TypeError, match="lives in the process"):
            pickle.dumps(lease)


# Holding and releasing


@asynchronous
async def test_a_lease_is_renewed_for_as_long_as_it_is_held(shared: Cluster) -> None:
    losses = Losses()
    async with Client(shared.socket) as client:
        async with (
            client.lock("long", ttl=0.5) as plain,
            client.lock("w", ttl=0.5, on_lost=losses) as watched,
        ):
            for _ in range(150):
                plain.check()
                watched.check()
                assert 0 < plain.remaining() <= 0.5
                await asyncio.sleep(0.01)
        assert losses.reasons == []


@asynchronous
async def test_an_extension_lasts_longer_and_goes_on_listening(shared: Cluster) -> None:
    async with Client(shared.socket) as client, client.lock("extended", ttl=0.6) as lease:
        await lease.extend(1)
        assert 0.6 < lease.remaining() <= 1
        await asyncio.sleep(0.1)
        await lease.extend(0.6)
        extended_ns = lease.deadline_ns
        await until(lambda: lease.deadline_ns > extended_ns, 3, "a renewal is heard of")
        lease.check()


@asynchronous
async def test_tasks_that_use_one_lease_at_once_take_turns(shared: Cluster) -> None:
    async with Client(shared.socket) as client:
        lease = await client.acquire("busy", ttl=5)
        await asyncio.gather(*(lease.extend(5 + number) for number in range(10)))
        assert 13 < lease.remaining() <= 14
        released = await asyncio.gather(*(lease.release() for _ in range(5)))
        assert sorted(released) == [False] * 4 + [True]
        with pytest.raises(LockLost, match="released"):
            lease.check()


@asynchronous
async def test_a_detached_lease_has_no_connection_and_ends_at_its_ttl(shared: Cluster) -> None:
    losses = Losses()
    async with Client(shared.socket) as client:
        lease = await client.acquire("detached", ttl=0.6, detached=True, on_lost=losses)
        assert len(client._pool.idle) == 1
        await losses.wait()
        assert losses.left_s[0] > 0
        await until_free(client, "detached")
        with pytest.raises(LockLost):
            await lease.release()
        async with client.lock("detached", ttl=1, detached=True) as lease:
            await lease.extend(5)
            assert lease.remaining() > 4
        assert await client.holder("detached") is None


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@asynchronous
async def test_a_lease_that_is_dropped_is_freed_and_complained_of(shared: Cluster) -> None:
    async with Client(shared.socket) as client:
        for held_for_s in (0, 0.2):
            leases = [await client.acquire("dropped", on_lost=Losses())]
            await asyncio.sleep(held_for_s)
            with pytest.warns(ResourceWarning, match="never released"):
                leases.clear()
            await until_free(client, "dropped")
        gc.collect()


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
        for detached in (False, True):
            lease = await client.acquire("released", ttl=30, detached=detached)
            await cancelled(lease.release())
            await until_free(client, "released")


@asynchronous
async def test_a_cancelled_release_without_an_idle_connection_releases_all_the_same(shared: Cluster) -> None:
    async with Client(shared.socket) as client:
        lease = await client.acquire("released", ttl=30, detached=True)
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
        await until(lambda: lease.remaining() > 7, 2, "the extension came through")
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


# Losing


@asynchronous
async def test_a_lease_that_was_taken_away_is_told_at_once_and_once(shared: Cluster) -> None:
    losses = Losses()
    async with Client(shared.socket) as client:
        lease = await client.acquire("taken", ttl=30, on_lost=losses)
        plain = await client.acquire("taken:plain", ttl=30)
        take_away(shared, "taken")
        take_away(shared, "taken:plain")

        assert "force" in await losses.wait(1)
        await until(lambda: plain.lost, 2, "the other lease is known to be lost")
        for lost in (lease, plain):
            with pytest.raises(LockLost, match="force") as error:
                lost.check()
            assert error.value.deadline_ns == lost.deadline_ns
            assert lost.remaining() == 0
            with pytest.raises(LockLost, match="force"):
                await lost.extend(30)
            with pytest.raises(LockLost, match="force"):
                await lost.release()
        assert len(losses.reasons) == 1
        assert len(client._pool.idle) == 0


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
        await asyncio.wait_for(ended.wait(), 5)
        assert await lease.release() is False


@asynchronous
async def test_a_block_whose_lease_was_lost_raises_unless_it_raised_itself(shared: Cluster) -> None:
    async def work(client: Client, error: BaseException | None) -> None:
        async with client.lock("taken"):
            take_away(shared, "taken")
            if error:
                raise error

    async with Client(shared.socket) as client:
        with pytest.raises(LockLost, match="force"):
            await work(client, None)
        with pytest.raises(ZeroDivisionError) as error:
            await work(client, ZeroDivisionError())
        assert "lost" in error.value.__notes__[0]


@asynchronous
async def test_a_killed_agent_is_noticed_at_once_and_its_lease_is_good_until_its_deadline_is_near(
    cluster: Cluster,
) -> None:
    losses = Losses()
    client = Client(cluster.socket)
    lease = await client.acquire("orphan", ttl=3, on_lost=losses)
    cluster.agent.kill()

    assert "closed the connection" in await losses.wait(1)
    assert losses.left_s[0] > 1.5
    lease.check()
    await until(lambda: lease.lost, 5, "the lease counts as lost")
    assert 0.3 < (lease.deadline_ns - boottime_ns()) / 1e9 <= 0.6
    assert len(losses.reasons) == 1
    with pytest.raises(LockLost, match="deadline is near"):
        await lease.release()


@asynchronous
async def test_an_extension_that_finds_the_agent_dead_tells_of_the_loss_to_come(cluster: Cluster) -> None:
    losses = Losses()
    client = Client(cluster.socket)
    lease = await client.acquire("orphan", ttl=10, on_lost=losses)
    cluster.agent.kill()
    with pytest.raises(AgentUnreachable):
        await lease.extend(10)

    await losses.wait(1)
    lease.check()
    assert await lease.release() is False


@asynchronous
async def test_a_lease_outlives_a_restart_of_its_agent_and_is_released_by_the_next(cluster: Cluster) -> None:
    client = Client(cluster.socket)
    async with client.lock("idle"):
        pass
    lease = await client.acquire("kept", ttl=20)
    cluster.agent.kill()
    cluster.agent.start()
    cluster.wait_voting(5)

    with pytest.raises(AgentUnreachable):
        await lease.extend(20)
    lease.check()
    assert await client.holder("kept") is not None
    assert await lease.release() is True
    assert await client.holder("kept") is None
    await client.aclose()


@asynchronous
async def test_a_hanging_agent_is_noticed_before_the_deadline(cluster: Cluster) -> None:
    losses = Losses()
    client = Client(cluster.socket, timeout=1)
    lease = await client.acquire("hung", ttl=3, on_lost=losses)
    cluster.agent.pause()

    await losses.wait()
    assert 0 < losses.left_s[0] <= 0.6
    await until(lambda: lease.lost, 2, "the lease is lost")
    with pytest.raises(LockLost):
        await lease.release()
    with pytest.raises(AgentUnreachable) as error:
        await client.acquire("other")
    assert error.value.hangs
    assert len(losses.reasons) == 1


@asynchronous
async def test_a_lease_whose_agent_hung_at_an_extension_was_given_up_and_says_so(cluster: Cluster) -> None:
    losses = Losses()
    client = Client(cluster.socket, timeout=0.3)
    lease = await client.acquire("hung", ttl=30, on_lost=losses)
    cluster.agent.pause()
    with pytest.raises(AgentUnreachable):
        await lease.extend(30)

    assert "did not answer" in await losses.wait(1)
    with pytest.raises(LockLost, match="did not answer"):
        lease.check()
    cluster.agent.resume()
    await until_free(Client(cluster.socket), "hung")


@asynchronous
async def test_an_outage_has_a_reason_for_each_master_that_is_missing(cluster: Cluster) -> None:
    client = Client(cluster.socket)
    losses = Losses()
    lease = await client.acquire("held", ttl=2, on_lost=losses)
    for master in cluster.masters[:3]:
        master.kill()
    cluster.wait_voting(2)

    with pytest.raises(NoQuorum) as error:
        await client.acquire("other")
    assert set(error.value.reasons) == {"m1", "m2", "m3"}
    assert "m1" in await losses.wait()
    assert losses.left_s[0] > 0
    with pytest.raises(LockLost):
        await lease.release()
    await client.aclose()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_limit_on_connections_is_told_as_one(
    make_cluster: Callable[..., Cluster], run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    cluster = make_cluster(limits={"connections_per_user": 1}, socket={"mode": "0666"})
    cluster.folder.chmod(0o755)

    async def main() -> None:
        async with Client(cluster.socket) as client, client.lock("a"):
            for _ in range(50):
                with pytest.raises(LimitReached, match="connections_per_user"):
                    await client.ping()

    by_another_user(lambda: run(main()))


# Forks and crowds


@asynchronous
async def test_a_forked_child_holds_nothing_and_harms_nothing(shared: Cluster) -> None:
    losses = Losses()
    async with Client(shared.socket) as client:
        async with client.lock("idle"):
            pass
        async with client.lock("parents", ttl=1, on_lost=losses) as lease:
            granted_ns = lease.deadline_ns
            pid = os.fork()
            if pid == 0:
                held_nothing = lease.lost and lease.remaining() == 0 and not client._pool.idle
                os._exit(0 if held_nothing else 1)
            assert await exit_status(pid) == 0
            await until(lambda: lease.deadline_ns > granted_ns, 3, "the lease is renewed")
            lease.check()
        assert losses.reasons == []


def in_child(client: Client, resource: str) -> bool:
    async def main() -> bool:
        async with client.lock(resource, ttl=5):
            holder = await client.holder(resource)
        await client.aclose()
        return holder is not None and holder["pid"] == os.getpid()

    return asyncio.run(main())


@asynchronous
async def test_a_forked_child_locks_through_connections_of_its_own(shared: Cluster) -> None:
    async with Client(shared.socket) as client, client.lock("parents"):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                # As in a fresh process: the parent's loop is not this one's.
                asyncio.events._set_running_loop(None)
                status = 0 if in_child(client, "childs") else 1
            finally:
                os._exit(status)
        assert await exit_status(pid) == 0
        assert await client.holder("parents") is not None


@asynchronous
async def test_64_tasks_that_share_a_client_exclude_each_other(shared: Cluster) -> None:
    inside: list[int] = []
    fences: list[int] = []

    async def work(client: Client, number: int) -> None:
        for _ in range(3):
            async with client.lock("contended", wait=60) as lease:
                inside.append(number)
                fences.append(lease.fence)
                await asyncio.sleep(0.001)
                assert inside == [number]
                inside.remove(number)
                lease.check()

    async with Client(shared.socket) as client:
        await asyncio.gather(*(work(client, number) for number in range(64)))

    assert len(fences) == 192
    assert fences == sorted(set(fences))
