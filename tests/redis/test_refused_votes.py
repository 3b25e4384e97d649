"""A master that answers, and refuses what it is asked for: full, or not allowed to do it. It has no vote to
give, and that is said wherever one looks before it matters. It may refuse one kind of request alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from lockd.dev.processes import LocalMaster
from tests.harness.cluster import Cluster, MakeCluster
from tests.harness.on_masters import holding, lease_key, on
from tests.harness.users import Connect
from tests.harness.waiting import eventually
from tests.harness.wire import token_of

REFUSALS = {
    "OOM": (("maxmemory", "1"), ("maxmemory", "0")),
    "NOREPLICAS": (("min-replicas-to-write", "3"), ("min-replicas-to-write", "0")),
}


def votes(cluster: Cluster) -> list[int]:
    return [row["vote"] for row in cluster.master_states()]


@pytest.mark.parametrize("error", REFUSALS)
def test_a_master_that_refuses_votes_has_none_until_it_gives_one(
    error: str, cluster: Cluster, connect_here: Connect
) -> None:
    wire = connect_here()
    refuse, give = REFUSALS[error]
    m1 = cluster.masters[0]
    on(m1, "CONFIG", "SET", *refuse)
    token = token_of(wire.ask("LOCK", "r", 60_000))
    eventually(lambda: votes(cluster) == [0, 1, 1, 1, 1], "m1 is known to refuse")
    [row] = [row for row in cluster.master_states() if row["name"] == m1.name]
    assert (row["state"], row["reason"]) == ("up", f"it refuses LOCK: {error}")
    assert cluster.metric("lockd_masters_voting") == 4
    assert wire.ask("UNLOCK", "r", token) == 1
    on(m1, "CONFIG", "SET", *give)
    wire.ask("UNLOCK", "r", token_of(wire.ask("LOCK", "r", 60_000)))
    eventually(lambda: votes(cluster) == [1] * 5, "m1 votes again")


def test_an_agent_whose_masters_refuse_votes_is_not_ready_and_is_again_once_they_give_them(
    cluster: Cluster, connect_here: Connect
) -> None:
    wire = connect_here()
    for master in cluster.masters[:3]:
        on(master, "CONFIG", "SET", "maxmemory", "1")
    refusal = str(wire.ask("LOCK", "r", 60_000))
    assert refusal.startswith("NOQUORUM")
    assert "OOM" in refusal
    eventually(lambda: sum(votes(cluster)) == 2, "three are known to refuse")
    for master in cluster.masters[:3]:
        on(master, "CONFIG", "SET", "maxmemory", "0")
    token = token_of(wire.ask("LOCK", "r", 60_000))
    assert wire.ask("UNLOCK", "r", token) == 1
    eventually(lambda: sum(votes(cluster)) == 5, "they vote again")


@pytest.mark.parametrize("wrong", [("HSET", "a", "b"), ("SET", "no lease")])
def test_a_key_that_is_no_lease_costs_its_master_no_vote(
    wrong: tuple[str, ...], cluster: Cluster, connect_here: Connect
) -> None:
    wire = connect_here()
    command, *words = wrong
    for master in cluster.masters[:3]:
        on(master, command, lease_key("poison"), *words)
    assert isinstance(wire.ask("LOCK", "poison", 60_000), Exception)
    assert votes(cluster) == [1] * 5
    assert [row["state"] for row in cluster.master_states()] == ["up"] * 5
    assert wire.ask("UNLOCK", "good", token_of(wire.ask("LOCK", "good", 60_000))) == 1


@contextmanager
def without(command: str, masters: Sequence[LocalMaster]) -> Iterator[None]:
    """The agent's user may not run it there."""
    for master in masters:
        on(master, "ACL", "SETUSER", "default", f"-{command}")
    try:
        yield
    finally:
        for master in masters:
            on(master, "ACL", "SETUSER", "default", f"+{command}")


def reason_of(cluster: Cluster, master: LocalMaster) -> str:
    [reason] = [row["reason"] for row in cluster.master_states() if row["name"] == master.name]
    return str(reason)


@pytest.mark.parametrize(("kind", "command"), [("LOCK", "set"), ("EXTEND", "pexpire"), ("UNLOCK", "del")])
def test_a_host_without_apps_knows_which_kind_a_master_refuses_and_when_it_does_it_again(
    kind: str, command: str, make_cluster: MakeCluster
) -> None:
    """Its canary asks for each, and what the others of them find says nothing about this one."""
    cluster = make_cluster(masters=3, canary_ms=50)
    m1 = cluster.masters[0]
    with without(command, [m1]):
        eventually(lambda: reason_of(cluster, m1) == f"it refuses {kind}: NOPERM", "m1 is known to refuse")

        def sung() -> float:
            return cluster.metric("lockd_canary_seconds_count", outcome="granted")

        then = sung()
        eventually(lambda: sung() > then + 3, "its canary goes on by the other two")
        assert votes(cluster) == [0, 1, 1]
        assert reason_of(cluster, m1) == f"it refuses {kind}: NOPERM"
    eventually(lambda: votes(cluster) == [1] * 3, "m1 does it again")


def test_where_nothing_can_be_renewed_session_locks_are_refused_and_detached_leases_are_granted(
    cluster: Cluster, connect_here: Connect
) -> None:
    wire = connect_here()
    token = token_of(wire.ask("LOCK", "before", 60_000))
    with without("pexpire", cluster.masters[:3]):
        assert str(wire.ask("EXTEND", "before", token, 60_000)).startswith("NOQUORUM")
        assert sum(votes(cluster)) == 2
        why = "NOQUORUM it could not be renewed: m1=error-NOPERM m2=error-NOPERM m3=error-NOPERM"
        assert str(wire.ask("LOCK", "r", 60_000)) == why
        eventually(lambda: holding(cluster.masters, "r") == [], "what was tried is given back")
        detached = token_of(wire.ask("LOCK", "r", 60_000, "DETACHED"))
        assert wire.ask("UNLOCK", "r", detached) == 1
    assert wire.ask("UNLOCK", "r", token_of(wire.ask("LOCK", "r", 60_000))) == 1
    assert wire.ask("UNLOCK", "before", token) == 1
    assert votes(cluster) == [1] * 5


@pytest.mark.parametrize("command", ["del", "get"])
def test_an_unlock_that_most_masters_refuse_is_no_success_until_they_do_it(
    command: str, cluster: Cluster, connect_here: Connect
) -> None:
    """What they may not read is not gone: nothing is said of lost data."""
    wire = connect_here()
    token = token_of(wire.ask("LOCK", "r", 60_000))
    with without(command, cluster.masters[:3]):
        refused = str(wire.ask("UNLOCK", "r", token))
        assert refused.startswith("NOQUORUM m1=error-NOPERM m2=error-NOPERM m3=error-NOPERM")
        assert reason_of(cluster, cluster.masters[0]) == "it refuses UNLOCK: NOPERM"
        assert str(wire.ask("UNLOCK", "r", token)).startswith("NOQUORUM")
        if command == "del":  # else the test may not look either
            assert holding(cluster.masters, "r") == ["m1", "m2", "m3"]
    eventually(lambda: holding(cluster.masters, "r") == [], "its agent has gone on asking")
    assert wire.ask("UNLOCK", "s", token_of(wire.ask("LOCK", "s", 60_000))) == 1
    eventually(lambda: votes(cluster) == [1] * 5, "they do it again")


def test_a_counter_that_may_not_be_read_is_not_wrong(cluster: Cluster, connect_here: Connect) -> None:
    """Its master would have to be wiped."""
    wire = connect_here()
    with without("hget", cluster.masters[:1]):
        token = token_of(wire.ask("LOCK", "r", 60_000))
        eventually(lambda: votes(cluster)[0] == 0)
        assert cluster.master_states()[0]["state"] != "miscounting"
    assert wire.ask("UNLOCK", "r", token) == 1
    eventually(lambda: bool(wire.ask("LOCK", "s", 60_000)) and votes(cluster) == [1] * 5, "m1 votes again")
