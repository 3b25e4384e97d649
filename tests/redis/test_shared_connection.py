"""Apps that put all their commands on one connection, as ioredis, node-redis, redis-rs and Lettuce do; and
those that name their requests, since they give up on a connection, or send again on another one.

Replies come in the order of the commands; what is done is not.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.harness.cluster import AS_IS, Cluster
from tests.harness.users import Connect
from tests.harness.waiting import eventually
from tests.harness.wire import Wire, as_map, kind, token_of
from tests.redis.module_cluster import module_cluster

TTL_MS, WAIT_MS = 60_000, 60_000

cluster = module_cluster(3, classes=[{"name": "named", "match": "named:*", **AS_IS}])


@pytest.fixture
def shared(connect_here: Connect) -> Wire:
    """The one connection of an app."""
    return connect_here()


def lock(wire: Wire, resource: str) -> None:
    wire.send("LOCK", resource, TTL_MS, "WAIT", WAIT_MS)


def waiters(wire: Wire, number: int) -> None:
    eventually(lambda: wire.info()["waiters"] == str(number), f"{number} wait")


def refusals(wire: Wire) -> int:
    return int(wire.info()["refusals_total"])


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
    shared: Wire, other: Wire, connect_here: Connect
) -> None:
    token = token_of(other.ask("LOCK", "shared:held", TTL_MS))
    lock(shared, "shared:held")
    lock(shared, "shared:free")
    waiters(other, 2)
    free = token_of(connect_here().ask("LOCK", "shared:free", TTL_MS))
    assert other.ask("UNLOCK", "shared:held", token) == 1
    mine = token_of(shared.reply())
    assert other.info()["waiters"] == "1"
    assert other.ask("UNLOCK", "shared:free", free) == 1
    assert token_of(shared.reply()) not in (mine, free)


def test_each_wait_begins_when_it_comes_and_its_end_is_told_in_its_place(shared: Wire, other: Wire) -> None:
    token = token_of(other.ask("LOCK", "shared:waits", TTL_MS))
    lock(shared, "shared:waits")
    refused = refusals(other)
    shared.send("LOCK", "shared:unused", TTL_MS, "WAIT", 50)
    shared.send("LOCK", "shared:waits", TTL_MS)
    eventually(lambda: refusals(other) > refused, "its wait is over")
    assert other.ask("UNLOCK", "shared:waits", token) == 1
    token = token_of(shared.reply())
    refusal = shared.reply()
    assert kind(refusal) == "TIMEOUT"
    assert "a separate connection" in str(refusal)
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


# LOCK … TOKEN


NAME = "01JD3Q-printable:{any}"


def test_a_lock_that_is_sent_again_on_another_connection_gets_its_lease(shared: Wire, other: Wire) -> None:
    """redis-py, Lettuce and others do that when a reply has been lost."""
    lease, again = (
        as_map(wire.ask("LOCK", "named:again", TTL_MS, "TOKEN", NAME)) for wire in (shared, other)
    )
    assert lease[b"token"] == NAME.encode()
    assert (again[b"token"], again[b"fence"]) == (lease[b"token"], lease[b"fence"])
    assert as_map(other.ask("EXTEND", "named:again", NAME, TTL_MS))[b"fence"] == lease[b"fence"]
    assert other.ask("HOLDER", "named:again") is not None
    assert [wire.ask("UNLOCK", "named:again", NAME) for wire in (other, shared)] == [1, 1]
    assert other.ask("HOLDER", "named:again") is None
    assert kind(shared.ask("LOCK", "named:again", TTL_MS, "TOKEN", NAME)) == "NOTHELD"


def test_a_lease_that_was_told_on_another_connection_stays_when_the_first_ends_unread(
    shared: Wire, other: Wire
) -> None:
    """Of that alone it would be given back: nobody would know of it."""
    shared.send("LOCK", "named:unread", TTL_MS, "TOKEN", NAME)
    eventually(lambda: other.ask("HOLDER", "named:unread"), "it is held")
    fence = as_map(other.ask("LOCK", "named:unread", TTL_MS, "TOKEN", NAME))[b"fence"]
    shared.close()
    eventually(lambda: other.info()["connected_clients"] == "1", "its end is seen")
    assert as_map(other.ask("EXTEND", "named:unread", NAME, TTL_MS))[b"fence"] == fence
    assert other.ask("UNLOCK", "named:unread", NAME) == 1


def test_who_gives_up_on_a_lock_withdraws_it_from_another_connection(
    shared: Wire, other: Wire, connect_here: Connect
) -> None:
    """redis-rs waits for 500 ms, whatever was asked."""
    token = token_of(other.ask("LOCK", "shared:late", TTL_MS))
    shared.send("LOCK", "shared:late", TTL_MS, "WAIT", WAIT_MS, "TOKEN", NAME)
    waiters(other, 1)
    assert connect_here().ask("UNLOCK", "shared:late", NAME) == 1
    assert kind(shared.reply()) == "NOTHELD"
    assert other.ask("UNLOCK", "shared:late", token) == 1
    assert other.ask("HOLDER", "shared:late") is None


def test_a_lock_that_comes_behind_the_unlock_that_withdrew_it_is_refused(shared: Wire, other: Wire) -> None:
    assert kind(other.ask("UNLOCK", "shared:behind", NAME)) == "NOTHELD"
    assert kind(shared.ask("LOCK", "shared:behind", TTL_MS, "WAIT", WAIT_MS, "TOKEN", NAME)) == "NOTHELD"


def test_a_name_of_several_resources_is_one_of_each(shared: Wire, other: Wire) -> None:
    """Their UNLOCKs run as they come: here one of them is what the LOCK before it waits for."""
    for resource in ("shared:a", "shared:b"):
        assert token_of(shared.ask("LOCK", resource, TTL_MS, "TOKEN", NAME)) == NAME.encode()
    lock(other, "shared:b")
    waiters(shared, 1)
    lock(shared, "shared:b")
    for resource in ("shared:a", "shared:b"):
        shared.send("UNLOCK", resource, NAME)
    theirs = token_of(other.reply())
    assert other.ask("UNLOCK", "shared:b", theirs) == 1
    assert token_of(shared.reply())
    assert [shared.reply() for _ in range(2)] == [1, 1]


def test_a_lease_of_a_name_that_was_lost_is_another_than_the_next_of_that_name(
    shared: Wire, other: Wire
) -> None:
    for _ in range(2):
        assert token_of(shared.ask("LOCK", "shared:lost", TTL_MS, "TOKEN", NAME)) == NAME.encode()
        assert other.ask("FORCERELEASE", "shared:lost") >= 2
    assert token_of(shared.ask("LOCK", "shared:lost", TTL_MS, "TOKEN", NAME)) == NAME.encode()
    assert other.ask("UNLOCK", "shared:lost", NAME) == 1


_ASK = """
import sys
from tests.harness.wire import Wire
print(Wire(sys.argv[1]).ask("LOCK", "shared:process", 60000, "TOKEN", sys.argv[2]))
"""


def test_another_process_does_not_get_the_lease_of_that_name(cluster: Cluster, shared: Wire) -> None:
    token_of(shared.ask("LOCK", "shared:process", TTL_MS, "TOKEN", NAME))
    asked = subprocess.run(
        [sys.executable, "-c", _ASK, str(cluster.socket), NAME], capture_output=True, text=True, check=True
    )
    assert asked.stdout.startswith("ERR that token belongs to a request of another process"), asked.stdout
