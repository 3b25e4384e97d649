"""Apps that put all their commands on one connection, as ioredis, node-redis, redis-rs and Lettuce do.

Replies come in the order of the commands; what is done is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster, running_cluster
from tests.harness.waiting import eventually
from tests.harness.wire import Wire, as_map, kind, token_of

TTL_MS, WAIT_MS = 5_000, 20_000


@pytest.fixture(scope="module")
def cluster(server_binary: Path) -> Iterator[Cluster]:
    with running_cluster(3) as running:
        yield running


@pytest.fixture
def connect(cluster: Cluster) -> Iterator[Callable[[], Wire]]:
    wires: list[Wire] = []

    def new() -> Wire:
        wires.append(Wire(cluster.socket))
        return wires[-1]

    yield new
    for wire in wires:
        wire.close()
    with Wire(cluster.socket) as last:
        eventually(lambda: last.info()["leases"] == last.info()["waiters"] == "0", 5, "nothing is left")


@pytest.fixture
def shared(connect: Callable[[], Wire]) -> Wire:
    """The one connection of an app."""
    return connect()


@pytest.fixture
def other(connect: Callable[[], Wire]) -> Wire:
    return connect()


def lock(wire: Wire, resource: str) -> None:
    wire.send("LOCK", resource, TTL_MS, "WAIT", WAIT_MS)


def waiters(wire: Wire, number: int) -> None:
    eventually(lambda: wire.info()["waiters"] == str(number), 5, f"{number} wait")


def test_many_tasks_that_want_one_resource_each_get_their_turn(shared: Wire) -> None:
    """More of them than a connection may have masters asked about."""
    tasks = 300
    for _ in range(tasks):
        lock(shared, "shared:one")
    fences = []
    for _ in range(tasks):
        lease = as_map(shared.reply())
        fences.append(lease[b"fence"])
        shared.send("UNLOCK", "shared:one", lease[b"token"])
    assert [shared.reply() for _ in range(tasks)] == [1] * tasks
    assert fences == sorted(set(fences))


def test_what_is_free_is_not_granted_before_it_can_be_told_and_others_get_it(
    shared: Wire, other: Wire, connect: Callable[[], Wire]
) -> None:
    token = token_of(other.ask("LOCK", "shared:held", TTL_MS))
    lock(shared, "shared:held")
    lock(shared, "shared:free")
    waiters(other, 2)
    free = token_of(connect().ask("LOCK", "shared:free", TTL_MS))
    assert other.ask("UNLOCK", "shared:held", token) == 1
    mine = token_of(shared.reply())
    assert other.info()["waiters"] == "1"
    assert other.ask("UNLOCK", "shared:free", free) == 1
    assert token_of(shared.reply()) not in (mine, free)


def test_each_wait_begins_when_it_comes_and_its_end_is_told_in_its_place(shared: Wire, other: Wire) -> None:
    token = token_of(other.ask("LOCK", "shared:waits", TTL_MS))
    lock(shared, "shared:waits")
    shared.send("LOCK", "shared:unused", TTL_MS, "WAIT", 50)
    shared.send("LOCK", "shared:waits", TTL_MS)
    waiters(other, 2)
    waiters(other, 1)
    assert other.ask("UNLOCK", "shared:waits", token) == 1
    token = token_of(shared.reply())
    refusal = shared.reply()
    assert kind(refusal) == "TIMEOUT"
    assert "a connection of its own" in str(refusal)
    assert kind(shared.reply()) == "TAKEN", "a single try begins in its turn"
    assert shared.ask("UNLOCK", "shared:waits", token) == 1


def test_an_app_that_closes_while_several_of_its_locks_wait_leaves_none(shared: Wire, other: Wire) -> None:
    token = token_of(other.ask("LOCK", "shared:closes", TTL_MS))
    for resource in ("closes", "closes", "a", "b", "c", "d", "e"):
        lock(shared, f"shared:{resource}")
    waiters(other, 7)
    shared.close()
    waiters(other, 0)
    assert other.ask("UNLOCK", "shared:closes", token) == 1
