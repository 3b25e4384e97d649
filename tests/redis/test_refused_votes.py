"""A master that answers, and refuses every vote: full, or not allowed to write. It has none to give, and that
is said wherever one looks before it matters."""

from __future__ import annotations

import pytest

from tests.harness.cluster import Cluster
from tests.harness.on_masters import lease_key, on
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
    assert (row["state"], row["reason"]) == ("up", f"it refuses votes: {error}")
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
