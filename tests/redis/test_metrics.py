"""What a real agent counts over real masters: the canary, votes not counted, what leases were lost by."""

from __future__ import annotations

import pytest
import redis

from lockd.config.model import CANARY
from tests.harness.cluster import PATIENT, Cluster, MakeCluster
from tests.harness.waiting import eventually

OFTEN = PATIENT | {"canary_ms": 50}


def test_the_canary_calls_an_outage_an_outage_and_sings_again_after_it(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, **OFTEN)
    eventually(lambda: cluster.metric("lockd_canary_seconds_count", outcome="granted") >= 3)
    assert cluster.metric("lockd_grants_total", **{"class": CANARY}) >= 3
    assert cluster.metric("lockd_grants_total", **{"class": "other"}) == 0
    for master in cluster.masters[:2]:
        master.kill()
    eventually(lambda: cluster.metric("lockd_canary_seconds_count", outcome="unavailable") >= 3)
    assert cluster.metric("lockd_canary_seconds_count", outcome="contended") == 0
    eventually(lambda: silences(cluster) == 1, what="it says so once, however often it fails")
    before = cluster.metric("lockd_canary_seconds_count", outcome="granted")
    for master in cluster.masters[:2]:
        master.start()
    eventually(lambda: cluster.metric("lockd_canary_seconds_count", outcome="granted") > before, 20)
    eventually(lambda: silences(cluster) == 0, what="it says that it works again")


def silences(cluster: Cluster) -> int:
    """How often the canary said that it fell silent, less how often that it sings again."""
    return cluster.log_text().count("event=canary_failed") - cluster.log_text().count("event=canary_works")


def test_votes_that_come_late_or_never_are_counted_as_such(make_cluster: MakeCluster) -> None:
    """Those of a stopped master come late; those that its death swallowed never come."""
    cluster = make_cluster(3, timeouts={"master_ms": 100, "dead_ms": 30_000})
    client = cluster.client()
    slow, dead, _ = cluster.masters
    slow.pause()
    client.execute_command("LOCK", "a", 5_000)
    cluster.wait_voting(2)
    slow.resume()
    eventually(
        lambda: cluster.metric("lockd_master_votes_not_counted_total", master=slow.name, reason="late") >= 1
    )
    cluster.wait_voting(3)
    dead.pause()
    client.execute_command("LOCK", "b", 5_000)
    dead.kill()
    lost = {"master": dead.name, "reason": "connection_lost"}
    eventually(lambda: cluster.metric("lockd_master_votes_not_counted_total", **lost) >= 1)


def test_votes_are_timed_apart_from_probes(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    for name in ("m1", "m2", "m3"):
        eventually(
            lambda m=name: (
                cluster.metric("lockd_master_round_trip_seconds_count", master=m, question="probe") > 0
            )
        )
    assert cluster.metric("lockd_master_round_trip_seconds_count", question="vote") == 0
    cluster.client().execute_command("LOCK", "a", 5_000)
    eventually(lambda: cluster.metric("lockd_master_round_trip_seconds_count", question="vote") == 3)


def test_refused_extends_and_unlocks_are_counted_apart_from_locks_and_losses_by_what_they_came_of(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3, classes=[{"name": "vault", "match": "vault:*", "users": ["nobody"]}], **PATIENT)
    client = cluster.client()
    taken = client.execute_command("LOCK", "a", 30_000)
    nobodys = b"0" * 32
    for words in (
        ("EXTEND", "a", nobodys, 5_000),  # NOTHELD
        ("UNLOCK", "never locked", nobodys),  # NOTHELD
        ("EXTEND", "vault:1", nobodys, 5_000),  # DENIED
    ):
        with pytest.raises(redis.ResponseError):
            client.execute_command(*words)
    cluster.client().execute_command("FORCERELEASE", "a")
    with pytest.raises(redis.ResponseError, match="EXPIRED"):
        client.execute_command("EXTEND", "a", taken[1], 5_000)

    def counted(command: str, reason: str) -> float:
        return cluster.metric("lockd_lease_refusals_total", command=command, reason=reason)

    assert [counted("extend", why) for why in ("notheld", "denied", "expired")] == [1, 1, 1]
    assert [counted("unlock", why) for why in ("notheld", "denied", "expired")] == [1, 0, 0]
    assert cluster.metric("lockd_refusals_total") == 0
    assert [cluster.metric("lockd_losses_total", reason=why) for why in ("forced", "gone")] == [1, 0]
