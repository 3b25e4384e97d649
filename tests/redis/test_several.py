"""`LOCK … AND …`: several resources in one request, over the socket of a real agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.app_process import AppProcess
from tests.harness.cluster import AS_IS, Cluster
from tests.harness.users import DAEMON, Connect, cluster_for_all_users
from tests.harness.waiting import eventually
from tests.harness.wire import Wire, as_map, kind
from tests.redis.module_cluster import module_cluster

TTL_MS, WAIT_MS = 60_000, 60_000
CLASSES = [
    {"name": "short", "match": "short:*", **AS_IS, "max_ttl_ms": 1_000},
    {"name": "roots", "match": "roots:*", **AS_IS, "users": ["root"]},
]

cluster = module_cluster(3, classes=CLASSES, limits={"resources_per_lock": 4}, defaults=AS_IS)


def several(reply: Any) -> list[dict[bytes, Any]]:
    assert isinstance(reply, list), reply
    return [as_map(one) for one in reply]


def unlock(wire: Wire, lease: dict[bytes, Any]) -> None:
    assert wire.ask("UNLOCK", lease[b"resource"], lease[b"token"]) == 1


def is_held(wire: Wire, resource: str) -> bool:
    return bool(wire.ask("LOCKS", resource, "LOCAL"))


def waiters(wire: Wire, number: int) -> None:
    eventually(lambda: wire.info()["waiters"] == str(number), f"{number} wait")


@pytest.mark.parametrize("protocol", [2, 3])
def test_each_has_a_map_with_its_resource_in_the_order_of_asking_and_is_a_lease_of_its_own(
    connect_here: Connect, protocol: int
) -> None:
    wire = connect_here(protocol)
    reply = wire.ask("LOCK", "b", TTL_MS, "MAXHOLD", 60_000, "AND", "a", "c")
    assert {type(one) for one in reply} == {list if protocol == 2 else dict}
    leases = several(reply)
    assert [lease[b"resource"] for lease in leases] == [b"b", b"a", b"c"]
    assert len({lease[b"token"] for lease in leases}) == 3
    assert {lease[b"bound"] for lease in leases} == {b"process"}
    assert as_map(wire.ask("EXTEND", "a", leases[1][b"token"], TTL_MS))[b"fence"] == leases[1][b"fence"]
    unlock(wire, leases[0])
    assert (is_held(wire, "b"), is_held(wire, "a")) == (False, True)
    unlock(wire, leases[1])
    unlock(wire, leases[2])


def test_all_or_none_and_the_wait_is_for_the_whole(wire: Wire, other: Wire) -> None:
    holder = as_map(other.ask("LOCK", "b", TTL_MS))
    taken = wire.ask("LOCK", "a", TTL_MS, "AND", "b")
    assert kind(taken) == "TAKEN"
    assert "retry-after=" in str(taken)
    assert str(taken).endswith("('b')")
    assert not is_held(other, "a")
    assert kind(wire.ask("LOCK", "a", TTL_MS, "WAIT", 50, "AND", "b")) == "TIMEOUT"
    assert not is_held(other, "a")
    wire.send("LOCK", "a", TTL_MS, "WAIT", WAIT_MS, "AND", "b", "c")
    eventually(lambda: is_held(other, "a"), what="the first is held while it waits for the second")
    assert other.info()["waiters"] == "1"
    unlock(other, {b"resource": b"b", b"token": holder[b"token"]})
    for lease in several(wire.reply()):
        unlock(wire, lease)


def test_a_connection_that_ends_while_it_waits_gives_all_back(connect_here: Connect, other: Wire) -> None:
    """As that of a client does that has timed out."""
    holder = as_map(other.ask("LOCK", "b", TTL_MS))
    waiting = connect_here()
    waiting.send("LOCK", "a", TTL_MS, "WAIT", WAIT_MS, "AND", "b")
    eventually(lambda: is_held(other, "a"), what="it has the first")
    waiting.close()
    eventually(lambda: not is_held(other, "a"), what="it is given back")
    unlock(other, {b"resource": b"b", b"token": holder[b"token"]})
    eventually(lambda: not is_held(other, "b"), what="nobody waits for it")


def test_a_reply_that_was_not_read_gives_all_back(cluster: Cluster, wire: Wire) -> None:
    """Rule 13. The process lives on."""
    with AppProcess(cluster.socket) as app:
        app.send(1, "LOCK", "a", 60_000, "AND", "b", "c")
        app.wait_unread(1)
        assert all(is_held(wire, one) for one in "abc")
        app.close(1)
        eventually(lambda: not any(is_held(wire, one) for one in "abc"), what="all are given back")
        assert app.ask(2, "PING") == "PONG"


def test_a_reply_that_was_read_has_all_belong_to_the_process(cluster: Cluster, wire: Wire) -> None:
    with AppProcess(cluster.socket) as app:
        assert len(app.ask(1, "LOCK", "a", 60_000, "AND", "b")) == 2
        app.close(1)
        assert app.ask(2, "PING") == "PONG"
        assert is_held(wire, "a")
        assert is_held(wire, "b")
        app.kill()
        eventually(lambda: not (is_held(wire, "a") or is_held(wire, "b")), what="both are free with it")


def test_what_is_written_behind_an_unread_reply_leaves_none_of_them_to_be_taken_from_a_living_app(
    cluster: Cluster, wire: Wire
) -> None:
    with AppProcess(cluster.socket) as app:
        app.send(1, "LOCK", "short:a", 400, "AND", "short:b")
        before = app.wait_unread(1)
        app.send(1, "PING")
        app.wait_unread(1, before)
        app.close(1)

        def lost() -> set[object]:
            return {as_map(one)[b"lost"] for one in wire.ask("LOCKS", "short:*", "LOCAL")}

        eventually(lambda: lost() <= {1}, what="none is renewed")
        eventually(lambda: not wire.ask("LOCKS", "short:*", "LOCAL"), what="they end at their deadlines")


@pytest.mark.parametrize("named", ["a", "b"])
def test_an_unlock_of_its_token_withdraws_it(wire: Wire, other: Wire, named: str) -> None:
    holder = as_map(other.ask("LOCK", "b", TTL_MS))
    wire.send("LOCK", "b", TTL_MS, "WAIT", WAIT_MS, "TOKEN", f"mine-{named}", "AND", "a")
    eventually(lambda: is_held(other, "a"), what="it has the first")
    assert other.ask("UNLOCK", named, f"mine-{named}") == 1
    assert kind(wire.reply()) == "NOTHELD"
    eventually(lambda: not is_held(other, "a"), what="it is given back")
    assert kind(wire.ask("LOCK", "b", TTL_MS, "TOKEN", f"mine-{named}", "AND", "a")) == "NOTHELD"
    unlock(other, {b"resource": b"b", b"token": holder[b"token"]})


def test_asked_again_by_its_token_on_another_connection_it_is_the_same_and_the_first_may_go(
    connect_here: Connect, other: Wire
) -> None:
    holder = as_map(other.ask("LOCK", "b", TTL_MS))
    words = ("LOCK", "a", TTL_MS, "WAIT", WAIT_MS, "TOKEN", "again", "AND", "b")
    first, second = connect_here(), connect_here()
    first.send(*words)
    eventually(lambda: is_held(other, "a"), what="it has the first")
    fence = as_map(other.ask("LOCKS", "a", "LOCAL")[0])[b"fence"]
    second.send(*words)
    waiters(other, 2)
    first.close()
    waiters(other, 1)
    unlock(other, {b"resource": b"b", b"token": holder[b"token"]})
    leases = several(second.reply())
    assert leases[0][b"fence"] == fence
    for lease in leases:
        unlock(second, lease)


def test_each_of_them_that_is_lost_is_told_of_with_its_resource(connect_here: Connect, other: Wire) -> None:
    wire = connect_here(3)
    leases = several(wire.ask("LOCK", "a", TTL_MS, "NOTIFY", "AND", "b"))
    other.ask("FORCERELEASE", "b")
    assert wire.push()[:3] == [b"lost", b"b", leases[1][b"token"]]
    assert kind(wire.ask("UNLOCK", "b", leases[1][b"token"])) == "EXPIRED"
    unlock(wire, leases[0])


@pytest.mark.parametrize(
    ("words", "word", "text"),
    [
        (("AND",), "ERR", "AND names no other resource"),
        (("AND", "b", "a"), "ERR", "'a' is named twice"),
        (("AND", "b", ""), "ERR", "the resource has an empty name"),
        (("AND", "b", "x" * 600), "LIMIT", "resource_bytes"),
        (("AND", "b", "c", "d", "e"), "LIMIT", "resources_per_lock: 5 are named, at most 4 are allowed"),
        (("AND", "lockd:canary:x"), "DENIED", "are reserved for agents"),
        (("AND", "short:x"), "ERR", "class 'short'"),
        (("DETACHED", "AND", "b"), "ERR", "DETACHED can't be combined with AND"),
        (("TOKEN", "AND", "AND"), "ERR", "AND names no other resource"),
    ],
)
def test_what_is_wrong_with_one_is_said_before_any_is_taken(
    wire: Wire, words: tuple[str, ...], word: str, text: str
) -> None:
    refusal = wire.ask("LOCK", "a", TTL_MS, *words)
    assert kind(refusal) == word
    assert text in str(refusal)
    assert not is_held(wire, "a")


def test_who_may_not_lock_one_of_them_gets_none(server_binary: Path, connect: Connect) -> None:
    with cluster_for_all_users(
        classes=CLASSES, limits={"renewals_per_second": 100, "share_percent": 1}, defaults=AS_IS
    ) as running:
        wire = connect(running, DAEMON)
        assert kind(wire.ask("LOCK", "a", TTL_MS, "AND", "roots:b")) == "DENIED"
        # 1.2 renewals a second are allowed.
        refusal = wire.ask("LOCK", "a", 6_000, "AND", "b", "c")
        assert str(refusal).startswith("LIMIT renewals: uid 1 has 0.0"), "each counts"
        assert wire.info()["leases"] == "0"
        for lease in several(wire.ask("LOCK", "a", 6_000, "AND", "b")):
            unlock(wire, lease)


def test_they_outlive_their_agent_as_any_lease_does(cluster: Cluster) -> None:
    with AppProcess(cluster.socket) as app:
        app.ask(1, "LOCK", "a", TTL_MS, "TOKEN", "t", "AND", "b")
        cluster.agent.restart()
        with Wire(cluster.socket) as wire:
            eventually(lambda: is_held(wire, "a") and is_held(wire, "b"), what="the next agent has both")

            def asked_again() -> list[Any] | None:
                reply = app.ask(2, "LOCK", "a", TTL_MS, "TOKEN", "t", "AND", "b")
                return reply if isinstance(reply, list) else None

            again = [as_map(one)["resource"] for one in eventually(asked_again, what="it has proven both")]
            assert again == ["a", "b"]
            assert [app.ask(2, "UNLOCK", one, "t") for one in again] == [1, 1]


def test_asked_again_by_its_token_of_the_next_agent_an_unlock_withdraws_it(cluster: Cluster) -> None:
    """The first of its leases is one that was taken over."""
    with AppProcess(cluster.socket) as app:
        app.ask(1, "LOCK", "a", TTL_MS, "TOKEN", "taken-over")
        cluster.agent.restart()
        with Wire(cluster.socket) as other:
            eventually(lambda: is_held(other, "a"), what="the next agent has it")
            holder = as_map(other.ask("LOCK", "b", TTL_MS))
            app.send(2, "LOCK", "a", TTL_MS, "WAIT", WAIT_MS, "TOKEN", "taken-over", "AND", "b")
            waiters(other, 1)
            assert other.ask("UNLOCK", "a", "taken-over") == 1
            waiters(other, 0)
            unlock(other, {b"resource": b"b", b"token": holder[b"token"]})


def test_an_unlock_of_a_lock_withdraws_the_list_of_its_name_that_waits(wire: Wire, other: Wire) -> None:
    holder = as_map(other.ask("LOCK", "b", TTL_MS))
    wire.ask("LOCK", "a", TTL_MS, "TOKEN", "before")
    wire.send("LOCK", "a", TTL_MS, "WAIT", WAIT_MS, "TOKEN", "before", "AND", "b")
    waiters(other, 1)
    assert other.ask("UNLOCK", "a", "before") == 1
    assert kind(wire.reply()) == "NOTHELD"
    unlock(other, {b"resource": b"b", b"token": holder[b"token"]})


def test_what_it_had_when_its_agent_was_killed_is_renewed_for_nobody(cluster: Cluster) -> None:
    """Its process lives, and was told of none of it."""
    with AppProcess(cluster.socket) as app, Wire(cluster.socket) as other:
        holder = as_map(other.ask("LOCK", "b", TTL_MS, "DETACHED"))
        app.send(1, "LOCK", "a", 1_500, "WAIT", WAIT_MS, "AND", "b")
        eventually(lambda: is_held(other, "a"), what="it has the first")
        cluster.agent.kill()
        cluster.agent.start()
        cluster.wait_voting(3)
        assert app.ask(2, "PING") == "PONG"
        with Wire(cluster.socket) as next_one:
            eventually(lambda: not is_held(next_one, "a"), what="it has ended")
            unlock(next_one, {b"resource": b"b", b"token": holder[b"token"]})
