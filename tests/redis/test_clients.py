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
from typing import Any

import pytest

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
from lockd.clock import boottime_ns
from tests.harness.clients import (
    KINDS,
    LONG_S,
    AnyClient,
    Losses,
    free,
    take_all_away,
    take_away,
    wait_until_free,
)
from tests.harness.clocks import S
from tests.harness.cluster import Cluster
from tests.harness.users import by_another_user, cluster_for_all_users, in_child
from tests.harness.waiting import PATIENCE_S, eventually

PROJECT = Path(__file__).parents[2]

NewClient = Callable[..., AnyClient]

LOST_S = 5
"""A TTL of what gets lost, a fifth of it before its end: tests/unit/test_client_state.py has that in virtual
time. Here it is real, and fails on a machine that stands still for so long."""
LOOKS_S = 5
"""A client that hears nothing looks at a long lease so long before its end."""
RENEWED_S = 24
"""A TTL that is renewed after a third of it, and bears a machine that stands still when that is due."""

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
    take_all_away(shared)


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
    with client.lock("invoice:42", ttl=60) as lease:
        holder = client.holder("invoice:42")
        assert holder is not None
        assert holder["pid"] == os.getpid()
        assert 30 < lease.remaining() <= 60
        assert not lease.lost
        lease.check()

    assert free(client, "invoice:42")


def test_a_held_resource_is_taken_and_a_wait_that_runs_out_is_no_outage(
    shared: Cluster, new_client: NewClient
) -> None:
    client, hasty = new_client(shared.socket), new_client(shared.socket, timeout=0.3)
    with client.lock("busy", ttl=LONG_S):
        with pytest.raises(Taken) as taken:
            client.acquire("busy")
        begun_s = time.monotonic()
        # Its time-out is for answers: a wait is not cut short by it.
        eventually(lambda: waits_in_vain(hasty, "busy"), "it is told that its wait is over")
        assert time.monotonic() - begun_s >= 0.8
    assert 0 < taken.value.retry_after <= LONG_S


def waits_in_vain(client: AnyClient, resource: str) -> bool:
    """False where the agent had not the time to answer, on a machine that stood still."""
    try:
        client.acquire(resource, wait=0.8)
    except WaitTimeout:
        return True
    except AgentUnreachable:
        return False
    raise AssertionError("it is held by another")


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
    assert client.ping() > 0


# Holding


def test_a_lease_is_renewed_for_as_long_as_it_is_held(client: AnyClient) -> None:
    """That nobody gets it meanwhile is told of core: here, that each kind of lease hears of its renewals."""
    losses = Losses()
    with (
        client.lock("long", ttl=RENEWED_S) as plain,
        client.lock("watched", ttl=RENEWED_S, on_lost=losses) as watched,
        client.lock("unwatched", ttl=RENEWED_S) as unwatched,
    ):
        leases = plain, watched, unwatched
        granted_ns = [lease.deadline_ns for lease in leases]

        def heard() -> bool:
            plain.check()
            return plain.deadline_ns > granted_ns[0] and watched.deadline_ns > granted_ns[1]

        eventually(heard, "both are renewed")
        unwatched.check()
        assert all(0 < lease.remaining() <= RENEWED_S for lease in leases)
    assert losses.reasons == []


def test_an_extension_never_shortens_and_of_those_at_the_same_time_the_longest_counts(
    client: AnyClient,
) -> None:
    with client.lock("extended", ttl=30) as lease:
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(lease.extend, range(31, 61, 3)))
        assert lease.deadline_ns <= boottime_ns() + 60 * S
        longest_ns = lease.deadline_ns
        lease.extend(1)
        assert lease.deadline_ns >= longest_ns


def test_connections_are_used_again(client: AnyClient) -> None:
    for _ in range(20):
        with client.lock("again"), client.lock("again:2"):
            pass
    assert len(client._pool.all) == 2


def test_a_detached_lease_has_no_connection(client: AnyClient) -> None:
    lease = client.acquire("detached", detached=True)
    assert len(client._pool.idle) == 1
    assert not free(client, "detached")
    assert lease.release() is True


def test_a_detached_lease_ends_at_its_ttl(client: AnyClient) -> None:
    losses = Losses()
    lease = client.acquire("ends", ttl=1, detached=True, on_lost=losses)
    assert losses.wait() == "its TTL ends"
    wait_until_free(client, "ends")
    eventually(lambda: lease.lost, "its deadline has passed")
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
        for _ in range(10):
            lease = client.acquire("once")
            released = list(pool.map(lambda _, lease=lease: lease.release(), range(8)))
            assert sorted(released) == [False] * 7 + [True]


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("listens", [False, True], ids=["at once", "when it listens"])
def test_a_lease_that_is_dropped_is_freed_and_complained_of(client: AnyClient, listens: bool) -> None:
    leases = [client.acquire("dropped", on_lost=Losses())]
    assert not listens or client.ping()

    def drop() -> None:
        leases.clear()
        wait_until_free(client, "dropped")

    with pytest.warns(ResourceWarning, match="never released"):
        drop()


# Losing


def test_a_lease_that_was_taken_away_is_told_at_once_and_once(shared: Cluster, client: AnyClient) -> None:
    losses = Losses()
    lease = client.acquire("taken", on_lost=losses)
    deadline_ns = lease.deadline_ns
    take_away(shared, "taken")

    assert "force" in losses.wait()
    assert losses.told_ns[0] < deadline_ns - LOOKS_S * S
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
    lease = client.acquire("orphan", ttl=LOST_S, on_lost=losses)
    cluster.agent.kill()

    assert "no other agent took over in time" in losses.wait()
    assert 0 < losses.left_s[0] <= LOST_S / 5
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
    watched, plain = client.acquire("watched", on_lost=losses), client.acquire("plain")
    granted_ns = watched.deadline_ns
    getattr(cluster.agent, end)()
    eventually(lambda: not cluster.agent.running, "it has ended")
    cluster.agent.start()
    cluster.wait_voting(5)

    eventually(lambda: watched.deadline_ns > granted_ns, "the next agent is heard by itself")
    for lease in (watched, plain):
        lease.check()
        extended_ns = boottime_ns() + (LONG_S - 1) * S
        lease.extend(LONG_S)
        assert lease.deadline_ns > extended_ns
        assert not free(client, str(lease.resource))
    assert losses.reasons == []
    take_away(cluster, "watched")
    assert "force" in losses.wait()
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
        assert client.ping() > 0


def test_a_wait_goes_on_at_the_next_agent_and_what_was_given_back_meanwhile_is_free(
    cluster: Cluster, new_client: NewClient
) -> None:
    client = new_client(cluster.socket)
    other = new_client(cluster.socket)
    lease = other.acquire("wanted")
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(client.acquire, "wanted", wait=LONG_S)
        eventually(lambda: waiters(other, "wanted") == 1, "it waits")
        cluster.agent.kill()
        assert lease.release() is False
        cluster.agent.start()
        assert waits.result(PATIENCE_S).release() is True
    wait_until_free(other, "wanted")


def waiters(client: AnyClient, resource: str) -> int:
    [row] = client.locks(resource, local=True)
    return int(row["waiters"])


def hasty(new_client: NewClient, cluster: Cluster) -> AnyClient:
    """A client that soon takes an agent for a hanging one, and has spoken with it."""
    client = new_client(cluster.socket, timeout=0.3)
    eventually(lambda: answers(client), "the agent answers")
    return client


def acquired(client: AnyClient, resource: str, **options: Any) -> Any:
    """By a hasty client: a machine that stands still is a hanging agent to it."""
    return eventually(lambda: client.acquire(resource, **options), "it is granted", not_yet=(LockdError,))


def test_a_hanging_agent_is_noticed_before_the_deadline(cluster: Cluster, new_client: NewClient) -> None:
    losses = Losses()
    client = hasty(new_client, cluster)
    lease = acquired(client, "hung", ttl=LOST_S, on_lost=losses)
    detached = acquired(client, "detached", ttl=1, detached=True)
    cluster.agent.pause()

    losses.wait()
    assert 0 < losses.left_s[0] <= LOST_S / 5
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
    client = hasty(new_client, cluster)
    lease = acquired(client, "hung")
    cluster.agent.pause()
    with pytest.raises(AgentUnreachable):
        lease.extend(LONG_S)

    lease.check()
    cluster.agent.resume()
    eventually(lambda: answers(client), "the agent answers again")
    eventually(lambda: lease.extend(LONG_S) is None, "it extends", not_yet=(AgentUnreachable,))
    lease.check()


def test_nothing_that_a_hanging_agent_was_asked_for_is_stranded_when_it_wakes_up(
    cluster: Cluster, new_client: NewClient
) -> None:
    client = hasty(new_client, cluster)
    lease = acquired(client, "hung")
    cluster.agent.pause()
    assert lease.release() is False
    for resource, detached in (("late", False), ("late-too", True)):
        with pytest.raises(AgentUnreachable):
            client.acquire(resource, detached=detached)
    cluster.agent.resume()
    for resource in ("hung", "late", "late-too"):
        wait_until_free(new_client(cluster.socket), resource)


def test_an_outage_has_a_reason_for_each_master_that_is_missing(
    cluster: Cluster, new_client: NewClient
) -> None:
    client = new_client(cluster.socket)
    losses = Losses()
    lease = client.acquire("held", ttl=LOST_S, on_lost=losses)
    longer = client.acquire("held-longer")
    for master in cluster.masters[:3]:
        master.kill()
    cluster.wait_voting(2)

    with pytest.raises(NoQuorum) as error:
        client.acquire("other")
    assert set(error.value.reasons) == {"m1", "m2", "m3"}
    with pytest.raises(NoQuorum):
        longer.extend(LONG_S)
    assert "m1" in losses.wait()
    with pytest.raises(LockLost):
        lease.release()


@pytest.fixture(scope="module")
def strict(server_binary: Path) -> Iterator[Cluster]:
    """It grants little, and nothing of one class: to one account four files, which are a process and three
    connections, and 1.2 renewals a second."""
    limits = {"files": 672, "renewals_per_second": 100, "share_percent": 1}
    classes = [{"name": "secret", "match": "secret:*", "users": ["nobody"]}]
    with cluster_for_all_users(limits=limits, classes=classes) as cluster:
        yield cluster


@in_either_loop
def test_limits_and_policies_are_told_apart(strict: Cluster, new_client: NewClient) -> None:
    with pytest.raises(Denied):
        new_client(strict.socket).acquire("secret:1")

    def of_one_who_is_no_operator() -> None:
        client = new_client(strict.socket)
        with client.lock("a", ttl=6), client.lock("b", ttl=6):
            third = strict.raw()
            third.sendall(b"*1\r\n$4\r\nPING\r\n")
            assert third.recv(16) == b"+PONG\r\n"
            for _ in range(20):
                with pytest.raises(LimitReached, match="files: uid"):
                    client.ping()
            third.close()
            eventually(lambda: answers(client), "there is room for a connection again")
            with pytest.raises(LimitReached, match="renewals: uid"):
                client.acquire("c", ttl=6)

    by_another_user(of_one_who_is_no_operator)


# Forks


def test_a_forked_child_holds_nothing_and_harms_nothing(shared: Cluster, client: AnyClient) -> None:
    losses = Losses()
    with client.lock("idle"):
        pass
    lease = client.acquire("parents", on_lost=losses)

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

    in_child(child)
    lease.extend(LONG_S)
    lease.check()
    assert not free(client, "parents")
    assert losses.reasons == []
    deadline_ns = lease.deadline_ns
    take_away(shared, "parents")
    assert "force" in losses.wait()
    assert losses.told_ns[0] < deadline_ns - LOOKS_S * S, "it still hears what its agent says"
    with pytest.raises(LockLost, match="force"):
        lease.release()


def test_a_forked_child_locks_through_connections_of_its_own(client: AnyClient) -> None:
    with client.lock("idle:1"), client.lock("idle:2"), client.lock("idle:3"):
        pass
    with client.lock("parents", on_lost=Losses()):

        def child() -> None:
            losses = Losses()
            assert not client._pool.idle
            with pytest.raises(Taken):
                client.acquire("parents")
            with client.lock("childs", on_lost=losses) as lease:
                holder = client.holder("childs")
                assert holder is not None
                assert holder["pid"] == os.getpid()
                lease.check()
            short = acquired(client, "short", ttl=0.5, max_hold=0.5, on_lost=losses)
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

lease = KINDS[sys.argv[1]](sys.argv[2]).acquire("parents")
if os.fork() == 0:
    print(os.getpid(), flush=True)
time.sleep(600)
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
            with client.lock("contended", wait=60, on_lost=losses if number % 2 else None) as lease:
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
        with client.lock(f"own:{number}", on_lost=losses) as lease:
            everybody.wait(PATIENCE_S)
            assert len({row["resource"] for row in client.locks("own:*", local=True)}) == 64
            everybody.wait(PATIENCE_S)
            lease.check()

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(work, range(64)))

    assert losses.reasons == []
    assert client.locks("own:*") == []
    assert len(client._pool.idle) <= 64
