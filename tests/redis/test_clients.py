"""What `lockd.Client` and `lockd.aio.Client` both promise, with real agents, which are killed, frozen and
restarted; in apps that fork; for many at once."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import redis

from lockd import (
    AgentUnreachable,
    Denied,
    LimitReached,
    LockdError,
    LockLost,
    NoQuorum,
    Taken,
    WaitTimeout,
)
from tests.harness.clients import KINDS, AnyClient, Losses, free, take_away, wait_until_free
from tests.harness.cluster import Cluster
from tests.harness.users import by_another_user, in_child
from tests.harness.waiting import eventually
from tests.harness.wire import as_map

PROJECT = Path(__file__).parents[2]

NewClient = Callable[..., AnyClient]

# Where an agent that refuses a connection is read from in another way by each loop.
in_either_loop = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(params=["threads", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def new_client(kind: str) -> Iterator[NewClient]:
    """`new_client(socket, **options)`: closed after the test."""
    with ExitStack() as stack:
        yield lambda *where, **options: stack.enter_context(KINDS[kind](*where, **options))


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """The same one, to be hurt: it is well again afterwards."""
    yield shared
    for process in (*shared.masters, shared.agent):
        if process.running:
            process.resume()
        else:
            process.start()
    shared.wait_voting(5)
    with shared.client() as operator:
        for row in operator.execute_command("LOCKS"):
            with suppress(redis.ResponseError):  # it may run out meanwhile
                operator.execute_command("FORCERELEASE", as_map(row)["resource"])


@pytest.fixture
def client(shared: Cluster, new_client: NewClient) -> AnyClient:
    return new_client(shared.socket)


def answers(client: AnyClient) -> bool:
    with suppress(LockdError):
        client.ping()
        return True
    return False


# Locking


@in_either_loop
def test_the_resource_is_held_in_the_block_and_free_after_it(client: AnyClient) -> None:
    with client.lock("invoice:42", ttl=5) as lease:
        holder = client.holder("invoice:42")
        assert holder is not None
        assert holder["pid"] == os.getpid()
        assert 4 < lease.remaining() <= 5
        assert not lease.lost
        lease.check()

    assert free(client, "invoice:42")


def test_a_held_resource_is_taken_and_a_wait_that_runs_out_is_no_outage(
    shared: Cluster, new_client: NewClient
) -> None:
    client = new_client(shared.socket, timeout=0.3)  # for answers: a wait is not cut short by it
    with client.lock("busy", ttl=4):
        with pytest.raises(Taken) as taken:
            client.acquire("busy")
        begun_s = time.monotonic()
        with pytest.raises(WaitTimeout):
            client.acquire("busy", wait=0.8)
        assert 0.8 <= time.monotonic() - begun_s < 3
    assert 0 < taken.value.retry_after <= 4


def test_no_agent_at_the_socket_is_told_with_its_path(folder: Path, new_client: NewClient) -> None:
    client = new_client(folder / "no.sock")
    with pytest.raises(AgentUnreachable, match=str(folder / "no.sock")) as error:
        client.acquire("x")
    assert not error.value.hangs


def test_operators_views_come_as_text(client: AnyClient) -> None:
    with client.lock("shown:1"), client.lock("shown:2"):
        assert sorted(row["resource"] for row in client.locks("shown:*")) == ["shown:1", "shown:2"]
        [row] = client.locks("shown:2", local=True)
        assert (row["pid"], row["masters"], row["of"]) == (os.getpid(), 5, 5)
    assert client.locks("shown:*") == []
    assert [master["name"] for master in client.masters()] == ["m1", "m2", "m3", "m4", "m5"]
    assert {master["state"] for master in client.masters()} == {"up"}
    assert 0 < client.ping() < 1


# Holding


def test_a_lease_is_renewed_for_as_long_as_it_is_held(client: AnyClient) -> None:
    losses = Losses()
    with (
        client.lock("long", ttl=0.5) as plain,
        client.lock("watched", ttl=0.5, on_lost=losses) as watched,
        client.lock("unwatched", ttl=0.5) as unwatched,
    ):
        until_s = time.monotonic() + 1.8
        while time.monotonic() < until_s:
            plain.check()
            watched.check()
            assert 0 < plain.remaining() <= 0.5
            time.sleep(0.01)
        unwatched.check()
        assert unwatched.remaining() > 0
    assert losses.reasons == []


def test_an_extension_never_shortens_and_of_those_at_the_same_time_the_longest_counts(
    client: AnyClient,
) -> None:
    with client.lock("extended", ttl=2) as lease:
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(lease.extend, range(5, 15)))
        assert 13 < lease.remaining() <= 14
        lease.extend(1)
        assert lease.remaining() > 12


def test_connections_are_used_again(client: AnyClient) -> None:
    for _ in range(20):
        with client.lock("again"), client.lock("again:2"):
            pass
    assert len(client._pool.all) == 2


def test_a_detached_lease_has_no_connection_and_ends_at_its_ttl(client: AnyClient) -> None:
    losses = Losses()
    lease = client.acquire("detached", ttl=3, detached=True, on_lost=losses)
    assert len(client._pool.idle) == 1
    assert not free(client, "detached")
    losses.wait()
    assert losses.left_s[0] > 0
    wait_until_free(client, "detached")
    with pytest.raises(LockLost):
        lease.check()
    with pytest.raises(LockLost):
        lease.release()


# Releasing


def test_a_lease_is_released_once(client: AnyClient) -> None:
    lease = client.acquire("once")

    assert lease.release() is True
    assert lease.release() is False
    with client.lock("once"), pytest.raises(LockLost, match="released"):
        lease.check()
    with pytest.raises(LockLost, match="released"):
        lease.extend(5)
    assert lease.remaining() == 0


def test_those_who_release_one_lease_at_the_same_time_do_so_once(client: AnyClient) -> None:
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            lease = client.acquire("once")
            released = list(pool.map(lambda _, lease=lease: lease.release(), range(8)))
            assert sorted(released) == [False] * 7 + [True]


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("held_for_s", [0, 0.2], ids=["at once", "when it listens"])
def test_a_lease_that_is_dropped_is_freed_and_complained_of(client: AnyClient, held_for_s: float) -> None:
    leases = [client.acquire("dropped", on_lost=Losses())]
    time.sleep(held_for_s)

    def drop() -> None:
        leases.clear()
        wait_until_free(client, "dropped")

    with pytest.warns(ResourceWarning, match="never released"):
        drop()


# Losing


def test_a_lease_that_was_taken_away_is_told_at_once_and_once(shared: Cluster, client: AnyClient) -> None:
    losses = Losses()
    lease = client.acquire("taken", ttl=30, on_lost=losses)
    take_away(shared, "taken")

    assert "force" in losses.wait(1)
    with pytest.raises(LockLost, match="force") as lost:
        lease.check()
    assert lost.value.reason == losses.reasons[0]
    assert lost.value.deadline_ns == lease.deadline_ns
    assert lease.lost
    assert lease.remaining() == 0
    with pytest.raises(LockLost, match="force"):
        lease.extend(30)
    with pytest.raises(LockLost, match="force"):
        lease.release()
    assert len(losses.reasons) == 1
    assert len(client._pool.idle) == 0, "its connection is not used again"


def test_a_block_whose_lease_was_lost_raises_at_its_end_or_keeps_its_own_error_with_a_note(
    shared: Cluster, client: AnyClient
) -> None:
    def work(failing: bool) -> None:
        with client.lock("taken"):
            take_away(shared, "taken")
            if failing:
                raise ZeroDivisionError

    with pytest.raises(LockLost, match="force"):
        work(failing=False)
    with pytest.raises(ZeroDivisionError) as error:
        work(failing=True)
    assert "lost" in error.value.__notes__[0]


# Agents that die, hang and stop


def test_a_killed_agent_that_none_comes_after_is_told_of_before_the_deadline(
    cluster: Cluster, new_client: NewClient
) -> None:
    losses = Losses()
    client = new_client(cluster.socket)
    lease = client.acquire("orphan", ttl=3, on_lost=losses)
    cluster.agent.kill()

    assert "no other agent took over in time" in losses.wait(5)
    assert 0.3 < losses.left_s[0] <= 0.6
    eventually(lambda: lease.lost, "the lease counts as lost")
    with pytest.raises(LockLost):
        lease.check()
    with pytest.raises(LockLost):
        lease.release()
    assert len(losses.reasons) == 1


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_a_lease_outlives_the_end_of_its_agent_and_the_next_one_renews_and_tells_of_it(
    cluster: Cluster, new_client: NewClient, end: str
) -> None:
    losses = Losses()
    client = new_client(cluster.socket)
    with client.lock("a"), client.lock("b"):
        pass
    watched, plain = client.acquire("watched", ttl=30, on_lost=losses), client.acquire("plain", ttl=30)
    granted_ns = watched.deadline_ns
    getattr(cluster.agent, end)()
    eventually(lambda: not cluster.agent.running, "it has ended")
    cluster.agent.start()
    cluster.wait_voting(5)

    eventually(lambda: watched.deadline_ns > granted_ns, "the next agent is heard by itself")
    for lease in (watched, plain):
        lease.check()
        lease.extend(40)
        assert lease.remaining() > 30
        assert not free(client, str(lease.resource))
    assert losses.reasons == []
    take_away(cluster, "watched")
    assert "force" in losses.wait(10)
    assert plain.release() is True
    assert free(client, "plain")
    with client.lock("a"), client.lock("b"), client.lock("c"):
        pass  # no connection of the killed agent is used again


def test_idle_connections_to_an_agent_that_has_ended_cost_no_request_that_comes_after(
    cluster: Cluster, new_client: NewClient
) -> None:
    client = new_client(cluster.socket)
    with client.lock("a"), client.lock("b"), client.lock("c"):
        pass
    cluster.agent.kill()
    cluster.agent.start()
    cluster.wait_voting(5)
    with client.lock("a"):
        assert client.ping() < 5


def test_a_wait_goes_on_at_the_next_agent_and_what_was_given_back_meanwhile_is_free(
    cluster: Cluster, new_client: NewClient
) -> None:
    client = new_client(cluster.socket)
    other = new_client(cluster.socket)
    lease = other.acquire("wanted", ttl=20)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(client.acquire, "wanted", wait=60)
        eventually(lambda: waiters(other, "wanted") == 1, "it waits")
        cluster.agent.kill()
        assert lease.release() is False
        cluster.agent.start()
        assert waits.result(60).release() is True
    wait_until_free(other, "wanted")


def waiters(client: AnyClient, resource: str) -> int:
    [row] = client.locks(resource, local=True)
    return int(row["waiters"])


def test_a_hanging_agent_is_noticed_before_the_deadline(cluster: Cluster, new_client: NewClient) -> None:
    losses = Losses()
    client = new_client(cluster.socket, timeout=1)
    lease = client.acquire("hung", ttl=3, on_lost=losses)
    detached = client.acquire("detached", ttl=3, detached=True)
    cluster.agent.pause()

    losses.wait()
    assert 0 < losses.left_s[0] <= 0.6
    eventually(lambda: lease.lost, "the lease is lost")
    with pytest.raises(LockLost):
        lease.release()
    with pytest.raises(AgentUnreachable) as error:
        client.acquire("other")
    assert error.value.hangs
    with pytest.raises(LockLost):
        detached.release()
    assert len(losses.reasons) == 1


def test_a_lease_whose_agent_hung_at_an_extension_is_what_it_was(
    cluster: Cluster, new_client: NewClient
) -> None:
    client = new_client(cluster.socket, timeout=0.3)
    lease = client.acquire("hung", ttl=30)
    cluster.agent.pause()
    with pytest.raises(AgentUnreachable):
        lease.extend(30)

    lease.check()
    cluster.agent.resume()
    eventually(lambda: answers(client), "the agent answers again")
    lease.extend(30)
    assert lease.release() is True


def test_nothing_that_a_hanging_agent_was_asked_for_is_stranded_when_it_wakes_up(
    cluster: Cluster, new_client: NewClient
) -> None:
    client = new_client(cluster.socket, timeout=0.3)
    lease = client.acquire("hung", ttl=30)
    cluster.agent.pause()
    assert lease.release() is False
    for resource, detached in (("late", False), ("late-too", True)):
        with pytest.raises(AgentUnreachable):
            client.acquire(resource, ttl=30, detached=detached)
    cluster.agent.resume()
    for resource in ("hung", "late", "late-too"):
        wait_until_free(new_client(cluster.socket), resource)


def test_an_outage_has_a_reason_for_each_master_that_is_missing(
    cluster: Cluster, new_client: NewClient
) -> None:
    client = new_client(cluster.socket)
    losses = Losses()
    lease = client.acquire("held", ttl=2, on_lost=losses)
    for master in cluster.masters[:3]:
        master.kill()
    cluster.wait_voting(2)

    with pytest.raises(NoQuorum) as error:
        client.acquire("other")
    assert set(error.value.reasons) == {"m1", "m2", "m3"}
    with pytest.raises(NoQuorum):
        lease.extend(2)
    assert "m1" in losses.wait()
    assert losses.left_s[0] > 0
    with pytest.raises(LockLost):
        lease.release()


@in_either_loop
def test_limits_and_policies_are_told_apart(
    make_cluster: Callable[..., Cluster], new_client: NewClient
) -> None:
    cluster = make_cluster(
        limits={"leases_per_user": 2, "connections_per_user": 3},
        classes=[{"name": "secret", "match": "secret:*", "users": ["nobody"]}],
        socket={"mode": "0666"},
    )
    cluster.folder.chmod(0o755)
    with pytest.raises(Denied):
        new_client(cluster.socket).acquire("secret:1")

    def of_one_who_is_no_operator() -> None:
        client = new_client(cluster.socket)
        with client.lock("a"), client.lock("b"):
            third = cluster.raw()
            third.sendall(b"*1\r\n$4\r\nPING\r\n")
            assert third.recv(16) == b"+PONG\r\n"
            for _ in range(50):
                with pytest.raises(LimitReached, match="connections_per_user"):
                    client.ping()
            third.close()
            eventually(lambda: answers(client), "there is room for a connection again")
            with pytest.raises(LimitReached, match="leases_per_user"):
                client.acquire("c")

    by_another_user(of_one_who_is_no_operator)


# Forks


def test_a_forked_child_holds_nothing_and_harms_nothing(client: AnyClient) -> None:
    losses = Losses()
    with client.lock("idle"):
        pass
    with client.lock("parents", ttl=1, on_lost=losses) as lease:

        def child() -> None:
            with pytest.raises(LockLost, match="forked"):
                lease.check()
            assert lease.lost
            assert lease.remaining() == 0
            with pytest.raises(LockLost):
                lease.extend(5)
            assert lease.release() is False
            lease.__exit__(None, None, None)
            assert not client._pool.idle
            gc.collect()

        granted_ns = lease.deadline_ns
        in_child(child)
        eventually(lambda: lease.deadline_ns > granted_ns, "the lease is renewed")
        lease.check()
        assert not free(client, "parents")
    assert losses.reasons == []


def test_a_forked_child_locks_through_connections_of_its_own(client: AnyClient) -> None:
    with client.lock("idle:1"), client.lock("idle:2"), client.lock("idle:3"):
        pass
    with client.lock("parents", on_lost=Losses()):

        def child() -> None:
            losses = Losses()
            assert not client._pool.idle
            with pytest.raises(Taken):
                client.acquire("parents")
            with client.lock("childs", ttl=0.6, on_lost=losses) as lease:
                holder = client.holder("childs")
                assert holder is not None
                assert holder["pid"] == os.getpid()
                lease.check()
            short = client.acquire("short", ttl=0.5, max_hold=0.5, on_lost=losses)
            losses.wait()
            eventually(lambda: short.lost, "the lease is lost")
            with pytest.raises(LockLost):
                short.release()

        in_child(child)
        assert not free(client, "parents")
    wait_until_free(client, "childs")


FORKING = """
import os, sys, time
from tests.harness.clients import KINDS

lease = KINDS[sys.argv[1]](sys.argv[2]).acquire("parents", ttl=30)
if os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_an_app_that_is_killed_frees_its_locks_at_once_though_a_child_of_its_lives_on(
    shared: Cluster, client: AnyClient, kind: str
) -> None:
    command = [sys.executable, "-c", FORKING, kind, str(shared.socket)]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            assert not free(client, "parents")
            parent.kill()
            wait_until_free(client, "parents")
        finally:
            os.kill(child, signal.SIGKILL)


# Many at once


def test_64_that_share_a_client_exclude_each_other(client: AnyClient) -> None:
    inside = 0
    most = 0
    fences: list[int] = []
    losses = Losses()

    def work(number: int) -> None:
        nonlocal inside, most
        for _ in range(3):
            with client.lock("contended", ttl=10, wait=60, on_lost=losses if number % 2 else None) as lease:
                inside += 1
                most = max(most, inside)
                fences.append(lease.fence)
                time.sleep(0.001)
                lease.check()
                inside -= 1

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(work, range(64)))

    assert most == 1
    assert len(fences) == 192
    assert fences == sorted(set(fences))
    assert losses.reasons == []


def test_64_hold_64_resources_at_once(client: AnyClient) -> None:
    everybody = threading.Barrier(64)
    losses = Losses()

    def work(number: int) -> None:
        with client.lock(f"own:{number}", ttl=1, on_lost=losses) as lease:
            everybody.wait(30)
            assert len({row["resource"] for row in client.locks("own:*", local=True)}) <= 64
            everybody.wait(30)
            lease.check()

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(work, range(64)))

    assert losses.reasons == []
    assert client.locks("own:*") == []
    assert len(client._pool.idle) <= 64
