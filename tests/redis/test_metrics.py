"""What a real agent counts over real masters: votes and probes, refusals, what leases were lost by."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
import redis

from tests.harness.agent_series import AgentSeries
from tests.harness.cluster import MakeCluster
from tests.harness.waiting import eventually

TTL_MS = 60_000


def test_votes_that_come_late_or_never_are_counted_as_such(make_cluster: MakeCluster) -> None:
    """Those of a stopped master come late; those that its death swallowed never come."""
    cluster = make_cluster(3, timeouts={"master_ms": 300, "dead_ms": 60_000})
    client = cluster.client()
    slow, dead, _ = cluster.masters
    slow.pause()
    eventually(lambda: client.execute_command("LOCK", "a", TTL_MS), "the two others vote in time")
    cluster.wait_voting(2)
    slow.resume()
    eventually(
        lambda: cluster.metric("lockd_master_votes_not_counted_total", master=slow.name, reason="late") >= 1
    )
    cluster.wait_voting(3)
    dead.pause()
    eventually(lambda: client.execute_command("LOCK", "b", TTL_MS), "the two others vote in time")
    dead.kill()
    lost = {"master": dead.name, "reason": "connection_lost"}
    eventually(lambda: cluster.metric("lockd_master_votes_not_counted_total", **lost) >= 1)


def test_votes_are_timed_and_refusals_and_losses_counted_each_by_their_kind(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3, classes=[{"name": "vault", "match": "vault:*", "users": ["nobody"]}])
    client, timed = cluster.client(), partial(cluster.metric, "lockd_master_round_trip_seconds_count")
    for name in ("m1", "m2", "m3"):
        eventually(lambda m=name: timed(master=m, question="probe") > 0)
    assert timed(question="vote") == 0
    taken = client.execute_command("LOCK", "a", TTL_MS)
    eventually(lambda: timed(question="vote") >= 3, what="votes are timed apart from probes")
    nobodys = b"0" * 32
    for words in (
        ("EXTEND", "a", nobodys, TTL_MS),  # NOTHELD
        ("UNLOCK", "never locked", nobodys),  # NOTHELD
        ("EXTEND", "vault:1", nobodys, TTL_MS),  # DENIED
    ):
        with pytest.raises(redis.ResponseError):
            client.execute_command(*words)
    cluster.client().execute_command("FORCERELEASE", "a")
    with pytest.raises(redis.ResponseError, match="EXPIRED"):
        client.execute_command("EXTEND", "a", taken[1], TTL_MS)

    def counted(reason: str) -> float:
        return cluster.metric("lockd_lease_refusals_total", reason=reason)

    assert [counted(why) for why in ("notheld", "denied", "expired")] == [2, 1, 1]
    assert cluster.metric("lockd_refusals_total") == 0
    assert [cluster.metric("lockd_losses_total", reason=why) for why in ("forced", "gone")] == [1, 0]


def test_an_agent_that_runs_has_the_series_that_its_number_of_classes_says(make_cluster: MakeCluster) -> None:
    """All but the ends of certificates, as those masters speak no TLS."""
    classes = [{"name": name, "match": f"{name}:*"} for name in ("a", "b")]
    cluster = make_cluster(3, classes=classes, canary_ms=200)
    cluster.client().execute_command("LOCK", "a:1", TTL_MS)
    worked = "lockd_canary_last_success_timestamp_seconds"
    eventually(lambda: cluster.metric(worked) > 0, what="the canary worked")
    expected = Counter(sample.name for sample in AgentSeries(classes=2, masters=3).samples())
    assert expected.pop("lockd_master_certificate_expiry_timestamp_seconds") == 3
    asked = "lockd_master_aof_rewrite_ok"  # every few seconds
    eventually(lambda: Counter(map(name_of, cluster.metrics()))[asked] == 3, what="masters were asked")
    assert Counter(map(name_of, cluster.metrics())) == expected


def name_of(series: str) -> str:
    return series.partition("{")[0]
