"""Forming a cluster and admitting a master: what they refuse and wait for, and that they may be repeated."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lockd.clock import boottime_ns
from lockd.core.fences import slot_of
from tests.harness.app import App, look_again
from tests.harness.cluster import Cluster, MakeCluster, running_cluster
from tests.harness.on_masters import FENCES, IDENTITY, MINUTE_MS, cut_connections, holding, on, plant
from tests.harness.waiting import eventually
from tests.redis.identities import (
    LOCK,
    MAX_TTL_MS,
    admit,
    form,
    formed_anew,
    have_identity,
    identify_by_hand,
    identity_of,
    identity_on,
    made_blank,
    state_of,
    waits_a_max_ttl,
)


@pytest.fixture(scope="module")
def three(server_binary: Path) -> Iterator[Cluster]:
    with running_cluster(3, max_ttl_ms=MAX_TTL_MS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def five(server_binary: Path) -> Iterator[Cluster]:
    with running_cluster(5, max_ttl_ms=MAX_TTL_MS) as cluster:
        yield cluster


@pytest.fixture
def unformed(three: Cluster) -> Cluster:
    """Three blank masters and an agent that knows them all."""
    made_blank(three)
    return three


@pytest.fixture
def formed(five: Cluster) -> Cluster:
    formed_anew(five)
    return five


# Forming


def test_a_cluster_is_formed_of_masters_that_are_all_there_and_blank(unformed: Cluster) -> None:
    m1, m2, m3 = unformed.masters
    on(m1, "SET", "shop:cart", "7")
    m2.kill()
    refusal = App(unformed).refused("FORM", "UNUSED")
    assert refusal.startswith("ERR to form a cluster, all masters must be up and blank. Nothing was changed")
    assert "m1: it holds 1 keys but no valid identity" in refusal
    assert "m2:" in refusal
    assert "m3:" not in refusal
    assert (on(m1, "KEYS", "*"), on(m3, "DBSIZE")) == (["shop:cart"], 0)
    assert App(unformed).refused("LOCK", "a", 500).startswith("NOQUORUM")
    on(m1, "DEL", "shop:cart")
    m2.start()
    unformed.form()
    unformed.wait_voting(3)
    identities = [identity_on(master) for master in unformed.masters]
    assert [(one.cluster, one.name, one.max_ttl_ms) for one in identities] == [
        ("test", name, MAX_TTL_MS) for name in ("m1", "m2", "m3")
    ]
    assert {str(one.members) for one in identities} == {"m1:1 m2:1 m3:1"}
    assert len({one.cluster_id for one in identities}) == 1


def test_two_clusters_from_one_template_never_accept_each_other(make_cluster: MakeCluster) -> None:
    """The same names of everything; one master of the other cluster answers in an entry of ours."""
    ours, theirs = make_cluster(masters=3), make_cluster(masters=3)
    entries = ours.config()["masters"]
    entries[0]["address"] = theirs.masters[0].address
    muddled = ours.add_agent(masters=entries)
    muddled.wait_voting(2)
    eventually(lambda: state_of(muddled, "m1") == "foreign", what="it is known to be another cluster's")
    on(theirs.masters[0], "DEL", FENCES)
    App(muddled).lock("a", MINUTE_MS)
    assert holding([theirs.masters[0]], "a") == []


def test_an_agent_with_another_list_of_masters_finds_no_quorum(formed: Cluster) -> None:
    """Or m1 to m3 and m3 to m5 were two quorums, and both granted."""
    entries = formed.config()["masters"]
    for some in (entries[:3], entries[2:]):
        other = formed.add_agent(masters=some)
        eventually(
            lambda other=other: {one["state"] for one in other.master_states()} == {"other_members"},
            what="all are of other members",
        )
        app = App(other)
        assert app.refused("LOCK", "a", 500).startswith("NOQUORUM m")
        reason = other.master_states()[0]["reason"]
        assert "its cluster has the masters m1, m2, m3, m4, m5; this agent's configuration has m" in reason
        assert "Nothing was changed" in app.refused("FORM", "UNUSED")
        assert "only a blank master can be admitted" in app.refused("ADMIT", some[0]["name"])
    App(formed).lock("a", *LOCK)


def test_forming_again_says_already_and_changes_nothing(unformed: Cluster) -> None:
    assert form(unformed, "UNUSED")["status"] == "formed"
    unformed.wait_voting(3)
    App(unformed).lock("a", *LOCK)
    plant(unformed.masters, "b")
    before = [on(master, "HGETALL", FENCES) for master in unformed.masters]
    for options in ((), ("UNUSED",)):
        assert form(unformed, *options) == {"status": "already", "remaining_ms": 0, "total_ms": 0}
    assert [on(master, "HGETALL", FENCES) for master in unformed.masters] == before
    assert holding(unformed.masters, "b") == ["m1", "m2", "m3"]


def test_forming_waits_a_max_ttl_from_when_all_were_first_seen_blank(unformed: Cluster) -> None:
    # Masters that were wiped look like new ones, and the leases from before may still be held.
    # What happened to a master while it could not be seen isn't known: its wait begins anew.
    cut_at_ns = boottime_ns()
    cut_connections(unformed.masters[:1])
    waits_a_max_ttl(lambda: form(unformed), "formed", cut_at_ns, unformed.masters)
    unformed.wait_voting(3)


def test_a_cluster_that_was_wiped_grants_nothing_until_its_old_leases_are_over_nor_a_fence_below_theirs(
    formed: Cluster,
) -> None:
    slot = slot_of(b"a")
    for master in formed.masters:  # as where an agent's own clock was half an hour ahead
        on(master, "HSET", FENCES, slot, time.time_ns() // 1000 + 1_800_000_000)
    app = App(formed)
    held = app.lock("a", *LOCK, "DETACHED")
    wiped_ns = boottime_ns()
    for master in formed.masters:
        on(master, "FLUSHALL")
    assert app.refused("LOCK", "b", MAX_TTL_MS).startswith("NOQUORUM")
    waits_a_max_ttl(lambda: form(formed), "formed", wiped_ns, formed.masters)
    # Not by what this agent knows alone: any other finds them there.
    assert min(int(on(master, "HGET", FENCES, slot)) for master in formed.masters) >= held["fence"]
    # As if it had been interrupted before m3: it is resumed until masters have voted.
    wiped_ns = boottime_ns()
    on(formed.masters[2], "FLUSHALL")
    look_again(formed)
    # It gives another agent that may be at it dead_ms to vote.
    hasty = formed.add_agent(timeouts={"dead_ms": 1_000})
    waits_a_max_ttl(lambda: form(hasty), "formed", wiped_ns, formed.masters[2:3])
    counters = [on(master, "HGETALL", FENCES) for master in formed.masters]
    assert counters[0] == counters[1] == counters[2] != {}
    formed.wait_voting(5)
    assert boottime_ns() >= held["deadline_ns"]
    assert app.lock("a", *LOCK)["fence"] > held["fence"]
    on(formed.masters[2], "FLUSHALL")
    look_again(formed)
    assert "Nothing was changed: m1: up" in app.refused("FORM")


def test_resumed_forming_waits_for_the_masters_that_are_still_blank(make_cluster: MakeCluster) -> None:
    # It gives another agent that may be at it dead_ms to vote.
    unformed = make_cluster(masters=3, form=False, timeouts={"dead_ms": 1_000})
    identify_by_hand(unformed, unformed.masters[:1])
    eventually(lambda: form(unformed)["status"] == "waiting", what="they are seen")
    assert [bool(identity_of(master)) for master in unformed.masters] == [True, False, False]
    unformed.form()
    assert all(identity_of(master) for master in unformed.masters)


# Admitting


def test_only_a_blank_master_of_this_cluster_can_be_admitted(formed: Cluster) -> None:
    app, m1 = App(formed), formed.masters[0]
    assert "there is no master 'm9' in the configuration, only m1, m2, m3" in app.refused("ADMIT", "m9")
    assert admit(formed, "m1")["status"] == "already"
    have_identity(m1, replace(identity_on(m1), name="m2"))
    look_again(formed)
    assert "only a blank master can be admitted, m1 is copied" in app.refused("ADMIT", "m1")
    on(m1, "FLUSHALL")
    on(m1, "SET", "shop:cart", "7")
    look_again(formed)
    assert "only a blank master can be admitted, m1 is unidentified" in app.refused("ADMIT", "m1")
    assert on(m1, "KEYS", "*") == ["shop:cart"]


def test_a_wiped_master_is_admitted_after_a_max_ttl_with_the_counters_of_the_others(formed: Cluster) -> None:
    m1, m2, m3, m4, m5 = formed.masters
    ahead = time.time_ns() // 1000 + 3_600_000_000
    on(m2, "HSET", FENCES, 7, ahead)
    on(m3, "HSET", FENCES, 7, ahead - 1, 8, ahead + 8)
    on(m5, "HSET", FENCES, 9, 99)
    on(m4, "HSET", FENCES, 10, 1 << 52)
    wiped_ns = boottime_ns()
    on(m1, "FLUSHALL")
    # It is looked at now: the agent looks by itself only every few seconds.
    waits_a_max_ttl(lambda: admit(formed, "m1"), "admitted", wiped_ns, [m1])
    assert (identity_on(m1).name, identity_on(m1).max_ttl_ms) == ("m1", MAX_TTL_MS)
    counters = on(m1, "HGETALL", FENCES)
    assert (counters["7"], counters["8"], counters["9"]) == (str(ahead), str(ahead + 8), "99")
    assert "10" not in counters, "a wrong one is not given on"
    formed.wait_voting(5)
    assert admit(formed, "m1")["status"] == "already"


def test_admitting_needs_a_quorum_of_the_others(formed: Cluster) -> None:
    on(formed.masters[0], "FLUSHALL")
    look_again(formed)
    assert state_of(formed, "m1") == "blank"
    for master in formed.masters[3:]:
        master.kill()
    formed.wait_voting(2)
    refusal = App(formed).refused("ADMIT", "m1")
    assert "its fence counters must come from 3 other masters, and only 2 have a vote" in refusal
    assert on(formed.masters[0], "DBSIZE") == 0


def test_admitting_waits_for_leases_from_before_the_ceiling_was_lowered(formed: Cluster) -> None:
    for master in formed.masters[1:]:
        on(master, "HSET", IDENTITY, "was_max_ttl_ms", 30_000)
    on(formed.masters[0], "FLUSHALL")
    look_again(formed)
    assert admit(formed, "m1")["total_ms"] == 31_300
