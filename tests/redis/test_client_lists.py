"""Both clients lock several resources in one call, with a real agent."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from lockd import AgentUnreachable, LockLost, Taken
from tests.harness.clients import (
    KINDS,
    LONG_S,
    AnyClient,
    Losses,
    free,
    take_away,
    wait_until_free,
)
from tests.harness.cluster import AS_IS, Cluster
from tests.harness.waiting import eventually
from tests.redis.module_cluster import module_cluster

cluster = module_cluster(3, defaults=AS_IS)
"""One for all tests here: each locks resources of its own, and leaves the agent running."""

SHORTER_S = 30
NewClient = Callable[..., AnyClient]


@pytest.fixture(params=["threads", "asyncio"])
def new_client(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[NewClient]:
    with ExitStack() as stack:
        new = KINDS[request.param]
        yield lambda **options: stack.enter_context(new(cluster.socket, **options))


@pytest.fixture
def client(new_client: NewClient) -> AnyClient:
    return new_client()


def test_all_are_held_in_the_block_each_with_a_fence_and_free_after_it(client: AnyClient) -> None:
    with client.lock(["block:b", "block:a"], ttl=SHORTER_S) as lease:
        assert lease.resource == ["block:b", "block:a"]
        assert list(lease.fences) == ["block:b", "block:a"]
        assert not free(client, "block:a")
        assert not free(client, "block:b")
        lease.check()
        assert 0 < lease.remaining() <= SHORTER_S
        lease.extend(LONG_S)
        assert SHORTER_S < lease.remaining() <= LONG_S
        with pytest.raises(ValueError, match="too many"):
            _ = lease.fence
    assert free(client, "block:a")
    assert free(client, "block:b")


def test_of_one_in_a_list_all_is_as_of_more(client: AnyClient) -> None:
    with client.lock([b"one"]) as lease:
        assert lease.fences == {b"one": lease.fence}


def test_all_or_none_and_the_wait_is_for_the_whole(client: AnyClient) -> None:
    held = client.acquire("whole:b")
    with pytest.raises(Taken, match="whole:b") as taken:
        client.acquire(["whole:a", "whole:b"])
    assert taken.value.retry_after > 0
    assert free(client, "whole:a")
    held.release()
    assert client.acquire(["whole:a", "whole:b"], wait=LONG_S).release()


def test_with_one_the_whole_is_lost_and_the_rest_is_given_back(cluster: Cluster, client: AnyClient) -> None:
    losses = Losses()
    lease = client.acquire(["lost:a", "lost:b"], on_lost=losses)
    take_away(cluster, "lost:b")
    assert "lost:b" in losses.wait()
    eventually(lambda: lease.lost, what="it knows")
    with pytest.raises(LockLost, match="by force"):
        lease.release()
    assert free(client, "lost:a")


def test_they_go_on_at_the_next_agent(cluster: Cluster, client: AnyClient) -> None:
    losses = Losses()
    lease = client.acquire(["next:a", "next:b"], ttl=LONG_S, on_lost=losses)
    granted_ns = lease.deadline_ns
    cluster.agent.restart()
    cluster.wait_voting(3)
    lease.extend(LONG_S)
    assert lease.deadline_ns > granted_ns
    assert lease.release()
    assert losses.reasons == []


def test_a_call_that_times_out_leaves_nothing_held(cluster: Cluster, new_client: NewClient) -> None:
    """As of a pooled client: its process lives on."""
    hasty, other = new_client(timeout=0.3), new_client()
    cluster.agent.pause()
    with pytest.raises(AgentUnreachable):
        hasty.acquire(["late:a", "late:b"])
    cluster.agent.resume()
    for resource in ("late:a", "late:b"):
        wait_until_free(other, resource)
    assert other.acquire(["late:a", "late:b"], wait=LONG_S).release()


def test_a_process_that_is_killed_frees_all(cluster: Cluster, client: AnyClient) -> None:
    child = os.fork()
    if child == 0:
        lease = KINDS["threads"](cluster.socket).acquire(["killed:a", "killed:b"])
        assert lease
        signal.pause()
    eventually(lambda: not free(client, "killed:b"), what="it holds them")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_until_free(client, "killed:a")
    wait_until_free(client, "killed:b")


@pytest.mark.parametrize(("resources", "options"), [([], {}), (["a", "b"], {"detached": True})])
def test_what_makes_no_sense_is_a_value_error(
    client: AnyClient, resources: list[str], options: dict[str, bool]
) -> None:
    with pytest.raises(ValueError, match=r"named|detached"):
        client.acquire(resources, **options)


def test_names_that_can_be_read_only_once_are_all_held_and_all_given_back(client: AnyClient) -> None:
    names = ["once:a", "once:b"]
    with client.lock(name for name in names) as lease:
        assert list(lease.fences) == names
    lease = client.acquire(name for name in names)
    assert [free(client, name) for name in names] == [False, False]
    lease.release()
    assert [free(client, name) for name in names] == [True, True]


def test_a_list_that_is_changed_later_is_locked_as_it_was(client: AnyClient) -> None:
    names = ["changed:a", "changed:b"]
    block = client.lock(names)
    names.clear()
    with block as lease:
        assert list(lease.fences) == ["changed:a", "changed:b"]
    with pytest.raises(ValueError, match="no resource"):
        client.acquire(iter(names))
