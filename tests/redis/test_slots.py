"""`LOCK … SLOTS n`: one of n equal locks, over the socket of a real agent, with both clients and lockctl."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lockd import AgentUnreachable, Taken, WaitTimeout
from tests.harness.app_process import AppProcess
from tests.harness.clients import KINDS, AnyClient, wait_until_free
from tests.harness.cluster import AS_IS, Cluster
from tests.harness.lockctl import LOCKCTL, lockctl
from tests.harness.on_masters import MINUTE_MS
from tests.harness.users import DAEMON, Connect, cluster_for_all_users
from tests.harness.waiting import eventually
from tests.harness.wire import Wire, as_map, kind
from tests.redis.module_cluster import module_cluster

TTL_MS, WAIT_MS = 60_000, 60_000
CLASSES = [
    {"name": "gpus", "match": "gpu", **AS_IS},
    {"name": "roots", "match": "roots", **AS_IS, "users": ["root"]},
]

cluster = module_cluster(3, classes=CLASSES, limits={"slots": 8}, defaults=AS_IS)


def slot(reply: Any) -> dict[bytes, Any]:
    assert isinstance(reply, list | dict), reply
    return as_map(reply)


def unlock(wire: Wire, lease: dict[bytes, Any]) -> None:
    assert wire.ask("UNLOCK", lease[b"resource"], lease[b"token"]) == 1


def held(wire: Wire, resource: str) -> list[bytes]:
    return [as_map(one)[b"resource"] for one in wire.ask("LOCKS", f"{resource}:slot:*", "LOCAL")]


@pytest.mark.parametrize("protocol", [2, 3])
def test_the_reply_says_which_slot_and_its_name_which_is_of_its_resources_class(
    connect_here: Connect, wire: Wire, protocol: int
) -> None:
    asker = connect_here(protocol)
    leases = [slot(asker.ask("LOCK", "gpu", TTL_MS, "SLOTS", 2)) for _ in range(2)]
    assert sorted(lease[b"slot"] for lease in leases) == [0, 1]
    assert all(lease[b"resource"] == b"gpu:slot:%d" % lease[b"slot"] for lease in leases)
    taken = wire.ask("LOCK", "gpu", TTL_MS, "SLOTS", 2)
    assert kind(taken) == "TAKEN"
    assert "all 2 slots" in str(taken)
    listed = [as_map(one) for one in wire.ask("LOCKS", "gpu:slot:*", "LOCAL")]
    assert {row[b"class"] for row in listed} == {b"gpus"}
    assert wire.ask("HOLDER", "gpu") is None, "that is another lock"
    assert as_map(wire.ask("HOLDER", "gpu:slot:1"))[b"holder"]
    assert slot(wire.ask("LOCK", "gpu", TTL_MS, "SLOTS", 3))[b"slot"] == 2, "who says 3 shares the first two"
    assert wire.ask("FORCERELEASE", "gpu:slot:2") == 3
    for lease in leases:
        unlock(wire, lease)
    assert held(wire, "gpu") == []


def test_waiters_get_what_is_freed_first_in_their_order(connect_here: Connect, wire: Wire) -> None:
    holders = [slot(wire.ask("LOCK", "order", TTL_MS, "SLOTS", 3)) for _ in range(3)]
    waiting = [connect_here() for _ in range(3)]
    for number, one in enumerate(waiting):
        one.send("LOCK", "order", TTL_MS, "WAIT", WAIT_MS, "SLOTS", 3)
        eventually(lambda n=number: wire.info()["waiters"] == str(3 * n + 3), what="it waits in all lines")
    for holder, one in zip(reversed(holders), waiting, strict=True):
        unlock(wire, holder)
        granted = slot(one.reply())
        assert granted[b"resource"] == holder[b"resource"]
    assert wire.info()["waiters"] == "0"
    for name in held(wire, "order"):
        wire.ask("FORCERELEASE", name)


def test_a_token_finds_its_slot_by_the_name_that_was_asked_for(wire: Wire, other: Wire) -> None:
    words = ("LOCK", "named", TTL_MS, "SLOTS", 4, "TOKEN", "mine")
    lease = slot(wire.ask(*words))
    assert slot(other.ask(*words))[b"fence"] == lease[b"fence"]
    assert as_map(other.ask("EXTEND", "named", "mine", TTL_MS))[b"fence"] == lease[b"fence"]
    assert [other.ask("UNLOCK", "named", "mine") for _ in range(2)] == [1, 1]
    assert kind(wire.ask(*words)) == "NOTHELD"
    holder = slot(wire.ask("LOCK", "named", TTL_MS, "SLOTS", 1))
    wire.send("LOCK", "named", TTL_MS, "WAIT", WAIT_MS, "SLOTS", 1, "TOKEN", "later")
    eventually(lambda: other.info()["waiters"] == "1", what="it waits")
    assert other.ask("UNLOCK", "named", "later") == 1
    assert kind(wire.reply()) == "NOTHELD"
    unlock(wire, holder)


@pytest.mark.parametrize(("number", "others"), [(3, 0), (1, 0), (3, 2)])
@pytest.mark.parametrize("wait", [(), ("WAIT", WAIT_MS)])
def test_one_token_on_four_connections_at_once_has_one_slot_and_its_unlock_leaves_none(
    connect_here: Connect, wire: Wire, number: int, others: int, wait: tuple[object, ...]
) -> None:
    theirs = [slot(wire.ask("LOCK", "once", TTL_MS, "SLOTS", number)) for _ in range(others)]
    wires = [connect_here() for _ in range(4)]
    for at in range(20):
        token = f"{number}-{others}-{len(wait)}-{at}"
        for one in wires:
            one.send("LOCK", "once", TTL_MS, *wait, "TOKEN", token, "SLOTS", number)
        assert len({slot(one.reply())[b"resource"] for one in wires}) == 1
        assert kind(wire.ask("LOCK", "once", TTL_MS, "TOKEN", token, "SLOTS", number + 1)) == "ERR"
        assert kind(wire.ask("LOCK", "once", TTL_MS, "TOKEN", token)) == "ERR"
        assert wires[0].ask("UNLOCK", "once", token) == 1
        assert len(held(wire, "once")) == others
    for lease in theirs:
        unlock(wire, lease)


def test_a_connection_that_ends_leaves_no_slot_held_and_none_waited_for(cluster: Cluster, wire: Wire) -> None:
    holder = slot(wire.ask("LOCK", "ends", MINUTE_MS, "SLOTS", 1))
    with AppProcess(cluster.socket) as app:
        app.send(1, "LOCK", "ends", TTL_MS, "WAIT", WAIT_MS, "SLOTS", 2)
        app.wait_unread(1)
        app.send(2, "LOCK", "ends", TTL_MS, "WAIT", WAIT_MS, "SLOTS", 2)
        eventually(lambda: wire.info()["waiters"] == "2", what="the second waits")
        app.close(2)
        app.close(1)
        eventually(lambda: wire.info()["waiters"] == "0", what="it waits no more")
        eventually(lambda: held(wire, "ends") == [b"ends:slot:0"], what="the unread one is given back")
    unlock(wire, holder)


def test_a_detached_slot_is_one(wire: Wire) -> None:
    leases = [slot(wire.ask("LOCK", "plain", TTL_MS, "SLOTS", 2, "DETACHED")) for _ in range(2)]
    assert [lease[b"bound"] for lease in leases] == [b"ttl", b"ttl"]
    assert {lease[b"slot"] for lease in leases} == {0, 1}
    assert kind(wire.ask("LOCK", "plain", TTL_MS, "SLOTS", 2, "WAIT", 100)) == "TIMEOUT"
    for lease in leases:
        unlock(wire, lease)


@pytest.mark.parametrize(
    ("words", "word", "text"),
    [
        (("SLOTS",), "ERR", "SLOTS must be a whole number"),
        (("SLOTS", "0"), "ERR", "SLOTS must be a whole number"),
        (("SLOTS", "x"), "ERR", "not 'x'"),
        (("SLOTS", "9"), "LIMIT", "slots: 9 are requested, at most 8 are allowed"),
        (("SLOTS", "2", "AND", "b"), "ERR", "SLOTS can't be combined with AND"),
    ],
)
def test_what_is_wrong_is_said(wire: Wire, words: tuple[str, ...], word: str, text: str) -> None:
    refusal = wire.ask("LOCK", "a", TTL_MS, *words)
    assert kind(refusal) == word
    assert text in str(refusal)
    assert str(wire.ask("LOCK", "x" * 510, TTL_MS, "SLOTS", 1)).startswith("LIMIT resource_bytes")


def test_the_policy_of_the_class_and_the_limits_of_a_user_hold(server_binary: Path, connect: Connect) -> None:
    limits = {"renewals_per_second": 100, "share_percent": 1}
    with cluster_for_all_users(classes=CLASSES, limits=limits, defaults=AS_IS) as running:
        wire = connect(running, DAEMON)
        assert kind(wire.ask("LOCK", "roots", TTL_MS, "SLOTS", 2)) == "DENIED"
        # Of one, however many it stands in line for; 1.2 renewals a second are allowed.
        assert str(wire.ask("LOCK", "a", 2_000, "SLOTS", 4)).startswith("LIMIT renewals: uid 1 has 0.0")
        unlock(wire, slot(wire.ask("LOCK", "a", 3_000, "SLOTS", 4)))


def test_a_refused_request_is_counted_once(cluster: Cluster, wire: Wire) -> None:
    for _ in range(2):
        slot(wire.ask("LOCK", "gpu", TTL_MS, "SLOTS", 2, "TOKEN", f"count-{_}"))
    before = int(wire.info()["refusals_total"])
    assert kind(wire.ask("LOCK", "gpu", TTL_MS, "SLOTS", 2)) == "TAKEN"
    assert kind(wire.ask("LOCK", "gpu", TTL_MS, "SLOTS", 2, "WAIT", 50)) == "TIMEOUT"
    assert int(wire.info()["refusals_total"]) == before + 2
    assert [wire.ask("UNLOCK", "gpu", f"count-{_}") for _ in range(2)] == [1, 1]


# Clients


@pytest.fixture(params=["threads", "asyncio"])
def new_client(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Callable[..., AnyClient]]:
    with ExitStack() as stack:
        new = KINDS[request.param]
        yield lambda **options: stack.enter_context(new(cluster.socket, **options))


def test_clients_have_slots(new_client: Callable[..., AnyClient]) -> None:
    client = new_client()
    with client.lock("client", slots=2) as one, client.lock("client", slots=2) as other:
        assert {one.slot, other.slot} == {0, 1}
        assert (one.resource, list(one.fences)) == ("client", ["client"])
        one.extend(60)
        with pytest.raises(Taken):
            client.acquire("client", slots=2)
        with pytest.raises(WaitTimeout):
            client.acquire("client", slots=2, wait=0.1)
    with client.lock("client") as plain:
        assert plain.slot is None
    for wrong in ({"slots": 0}, {"slots": -1}):
        with pytest.raises(ValueError, match="slots"):
            client.acquire("client", **wrong)


def test_a_client_that_times_out_leaves_no_slot_held(
    cluster: Cluster, new_client: Callable[..., AnyClient]
) -> None:
    hasty, other = new_client(timeout=0.3), new_client()
    cluster.agent.pause()
    with pytest.raises(AgentUnreachable):
        hasty.acquire("late", slots=2)
    cluster.agent.resume()
    for number in range(2):
        wait_until_free(other, f"late:slot:{number}")


def test_lockctl_runs_a_command_under_a_slot(cluster: Cluster) -> None:
    done = lockctl(
        cluster, "run", "--slots", "1", "job", "--", "sh", "-c", "echo $LOCKD_SLOT $LOCKD_RESOURCE"
    )
    assert done.stdout == "0 job:slot:0\n"
    with cluster.client() as client:
        client.execute_command("LOCK", "job", TTL_MS, "SLOTS", 1, "DETACHED")
        assert lockctl(cluster, "run", "--slots", "1", "job", "--", "true").returncode == 75
        assert client.execute_command("FORCERELEASE", "job:slot:0") == 3
    assert lockctl(cluster, "run", "--slots", "1", "job", "other", "--", "true").returncode == 64


def test_a_command_that_runs_another_under_a_lock_tells_it_nothing_of_its_own(cluster: Cluster) -> None:
    ours = "|".join(name for name in os.environ if name.startswith("LOCKD_"))
    told = f'env | cut -d= -f1 | grep ^LOCKD_ | grep -vxE "(LOCKD_SOCKET|{ours})" | sort | xargs'
    inner = f"{LOCKCTL} --socket {cluster.socket} run inner -- sh -c '{told}'"
    only_its_own = "LOCKD_DEADLINE_NS LOCKD_FENCE LOCKD_RESOURCE LOCKD_TOKEN\n"
    for outer in (["--slots", "2", "outer"], ["first", "second"]):
        assert lockctl(cluster, "run", *outer, "--", "sh", "-c", inner).stdout == only_its_own
