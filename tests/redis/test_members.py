"""Admission numbers at work: a replaced machine that comes back, one that was away meanwhile, a majority that
was wiped, and identities of an earlier format (rule 8)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lockd.clock import boottime_ns
from lockd.core.fences import CLOCKS_APART_US, SLOTS, slot_of
from lockd.dev.processes import LOOPBACK, LocalMaster, free_ports
from tests.harness.app import App, look_again
from tests.harness.cluster import Cluster, MakeCluster, running_cluster
from tests.harness.on_masters import FENCES, IDENTITY, MINUTE_MS, holding, on
from tests.harness.waiting import eventually
from tests.redis.identities import (
    LOCK,
    MAX_TTL_MS,
    admit,
    form,
    formed_anew,
    have_identity,
    identity_of,
    identity_on,
    state_of,
    waits_a_max_ttl,
)


@pytest.fixture(scope="module")
def five(server_binary: Path) -> Iterator[Cluster]:
    with running_cluster(5, max_ttl_ms=MAX_TTL_MS) as cluster:
        yield cluster


@pytest.fixture
def formed(five: Cluster) -> Cluster:
    formed_anew(five)
    return five


def members_of(*masters: LocalMaster) -> list[str]:
    return [str(identity_on(master).members) for master in masters]


def admitted(cluster: Cluster, name: str, status: str = "admitted") -> None:
    eventually(lambda: admit(cluster, name)["status"] == status, f"{name} is {status}")


def wipe(*masters: LocalMaster) -> None:
    for master in masters:
        on(master, "FLUSHALL")


def reason_of(cluster: Cluster, name: str) -> str:
    return next(str(one["reason"]) for one in cluster.master_states() if one["name"] == name)


def seeing(cluster: Cluster, *seen: int, **elsewhere: LocalMaster) -> Cluster:
    """An agent that reaches only these masters, by number; `elsewhere`: what answers it under a name."""
    dead = free_ports(5, avoid=[master.port for master in cluster.masters])
    entries = cluster.config()["masters"]
    for number, entry in enumerate(entries, 1):
        if entry["name"] in elsewhere:
            entry["address"] = elsewhere[entry["name"]].address
        elif number not in seen:
            entry["address"] = f"{LOOPBACK}:{dead[number - 1]}"
    return cluster.add_agent(masters=entries)


# Replaced


def test_an_old_machine_that_comes_back_finds_no_quorum(formed: Cluster, make_cluster: MakeCluster) -> None:
    """Two agents reach one half of the others each, and one of them reaches the old m3 in its place: both had
    a quorum, were it not for the numbers. A third reaches the old one and all others, and votes on without
    it."""
    [new] = make_cluster(masters=1, form=False).masters
    operator = seeing(formed, 1, 2, 4, 5, m3=new)
    eventually(lambda: state_of(operator, "m3") == "blank", "the new one is seen")
    admitted(operator, "m3")
    operator.wait_voting(5)
    assert (
        members_of(*formed.masters)
        == ["m1:1 m2:1 m3:2 m4:1 m5:1"] * 2 + ["m1:1 m2:1 m3:1 m4:1 m5:1"] + ["m1:1 m2:1 m3:2 m4:1 m5:1"] * 2
    )
    eventually(lambda: state_of(formed, "m3") == "replaced", "the old one has no vote here")
    formed.wait_voting(4)
    App(formed).lock("b", *LOCK)
    here, there = seeing(formed, 1, 2, m3=new), seeing(formed, 3, 4, 5)
    here.wait_voting(3)
    eventually(lambda: state_of(there, "m3") == "replaced", "the old one has no vote")
    assert "admission 1, and 2 was admitted since" in reason_of(there, "m3")
    App(here).lock("a", *LOCK)
    refusal = App(there).refused("LOCK", "a", MAX_TTL_MS)
    assert refusal.startswith("NOQUORUM")
    assert "m3=replaced:" in refusal
    # Nothing brings its list up to date: it has to be wiped.
    assert "only a blank master can be admitted, m3 is replaced" in App(there).refused("ADMIT", "m3")


@contextmanager
def locking_all_the_time(cluster: Cluster, pause_s: float = 0.0) -> Iterator[list[str]]:
    """An app that locks and unlocks, never waiting; what it was refused with.

    Not where that took as long as the lease lasts: then the machine stood still.
    """
    refusals, done = list[str](), list[str]()
    over = threading.Event()

    def run() -> None:
        app, number = App(cluster), 0
        while not over.wait(pause_s):
            number += 1
            resource, began_s = f"{cluster.name}:{number % 7}", time.monotonic()
            try:
                app.ask("UNLOCK", resource, app.lock(resource, MAX_TTL_MS)["token"])
                done.append(resource)
            except AssertionError as refused:
                if time.monotonic() - began_s < MAX_TTL_MS / 1_000:
                    refusals.append(str(refused))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield refusals
    finally:
        over.set()
        thread.join()
    assert done


def test_nobody_is_refused_while_a_master_is_admitted(formed: Cluster) -> None:
    """Each of the others refuses once, of every agent, what was meant for it before it was told the new
    number."""
    seldom = formed.add_agent()
    seldom.wait_voting(5)
    wipe(formed.masters[2])
    look_again(formed)
    with locking_all_the_time(formed) as often, locking_all_the_time(seldom, 0.3) as now_and_then:
        admitted(formed, "m3")
        formed.wait_voting(5)
        admitted(formed, "m3", "already")
    assert (often, now_and_then) == ([], [])
    assert set(members_of(*formed.masters)) == {"m1:1 m2:1 m3:2 m4:1 m5:1"}


# Away


def test_a_master_that_was_away_while_another_was_admitted_is_told_by_the_operator(formed: Cluster) -> None:
    *_, m5 = formed.masters
    m5.kill()
    wipe(formed.masters[0])
    look_again(formed)
    admitted(formed, "m1")
    formed.wait_voting(4)
    m5.start()
    eventually(lambda: state_of(formed, "m5") == "outdated", "m5 is seen")
    assert "m1 is of admission 2): lockctl master admit m5" in reason_of(formed, "m5")
    lease = App(formed).lock("a", *LOCK, "DETACHED")
    assert "m5" not in holding(formed.masters, "a", lease["token"])
    assert admit(formed, "m5")["status"] == "updated"
    formed.wait_voting(5)
    assert set(members_of(*formed.masters)) == {"m1:2 m2:1 m3:1 m4:1 m5:1"}


# Copies


def copy_of(original: LocalMaster, copy: LocalMaster) -> None:
    """The copy has the data of the original, now."""
    on(original, "CONFIG", "SET", "repl-diskless-sync-delay", 0)
    on(copy, "REPLICAOF", LOOPBACK, original.port)
    eventually(lambda: identity_of(copy) == identity_of(original) != {}, "it has taken over the data")


def test_a_master_that_is_made_a_replica_has_no_vote_and_stays_a_copy_when_it_is_one_no_more(
    formed: Cluster,
) -> None:
    """Nor has the one that it copies, as long as it is attached."""
    m3, m4 = formed.masters[2:4]
    copy_of(m4, m3)
    look_again(formed)
    assert reason_of(formed, "m3") == "its role is slave, it must be master"
    assert "1 replicas are attached to it" in reason_of(formed, "m4")
    formed.wait_voting(3)
    on(m3, "REPLICAOF", "NO", "ONE")
    look_again(formed)
    formed.wait_voting(4)
    assert (state_of(formed, "m3"), state_of(formed, "m4")) == ("copied", "up")
    m3.restart()  # which forgets what it was
    eventually(lambda: state_of(formed, "m3") == "copied", "it is seen again")
    assert "Stop it, wipe its data" in reason_of(formed, "m3")
    m3.kill()
    m3.wipe()
    m3.start()
    eventually(lambda: state_of(formed, "m3") == "blank", "it is blank")
    admitted(formed, "m3")
    formed.wait_voting(5)


def test_a_promoted_copy_that_lags_behind_gives_no_vote_away(make_cluster: MakeCluster) -> None:
    """It has the identity of the master in whose place it answers, and not its last leases: with it another
    agent had a quorum for what is held."""
    formed = make_cluster()
    m3 = formed.masters[2]
    [copy] = make_cluster(masters=1, form=False).masters
    copy_of(m3, copy)
    on(copy, "REPLICAOF", "NO", "ONE")
    here, there = seeing(formed, 1, 2, 3), seeing(formed, 4, 5, m3=copy)
    here.wait_voting(3)
    App(here).lock("a", MINUTE_MS, "DETACHED")
    assert holding(formed.masters, "a") == ["m1", "m2", "m3"]
    assert holding([copy], "a") == []
    eventually(lambda: state_of(there, "m3") == "copied", "it is seen")
    assert App(there).refused("LOCK", "a", MINUTE_MS).startswith("NOQUORUM")
    # An agent has written it down there, so a restart brings no vote either.
    copy.restart()
    eventually(lambda: state_of(there, "m3") == "copied", "it is seen again")
    assert App(there).refused("LOCK", "a", MINUTE_MS).startswith("NOQUORUM")


def test_a_copy_that_was_wiped_and_not_restarted_is_not_taken_for_new(formed: Cluster) -> None:
    m3, m4 = formed.masters[2:4]
    copy_of(m4, m3)
    on(m3, "REPLICAOF", "NO", "ONE")
    look_again(formed)
    wipe(m3)
    look_again(formed)
    assert state_of(formed, "m3") == "copied"
    assert "only a blank master can be admitted, m3 is copied" in App(formed).refused("ADMIT", "m3")
    m3.restart()
    eventually(lambda: state_of(formed, "m3") == "blank", "it is blank")


# A wiped majority


def test_a_wiped_majority_starts_anew_with_what_is_left_and_above_all_fences_of_hosts_with_fast_clocks(
    formed: Cluster,
) -> None:
    app = App(formed)
    far = time.time_ns() // 1000 + 2 * CLOCKS_APART_US
    on(formed.masters[3], "HSET", FENCES, slot_of(b"far"), far)
    held = app.lock("a", *LOCK, "DETACHED")
    other_slot = app.lock("b", *LOCK, "DETACHED")
    before, wiped_ns = identity_on(formed.masters[3]), boottime_ns()
    wipe(*formed.masters[:3])
    look_again(formed)
    assert "lockctl cluster recover" in app.refused("ADMIT", "m1")
    assert "lockctl cluster recover" in app.refused("FORM", "UNUSED")
    assert app.refused("LOCK", "c", 500).startswith("NOQUORUM")
    waits_a_max_ttl(lambda: form(formed, "RECOVER"), "recovered", wiped_ns, formed.masters[:3])
    assert boottime_ns() >= max(held["deadline_ns"], other_slot["deadline_ns"])
    least = time.time_ns() // 1000 + CLOCKS_APART_US - 60_000_000
    for master in formed.masters:
        counters = {int(slot): int(value) for slot, value in on(master, "HGETALL", FENCES).items()}
        assert len(counters) == SLOTS
        assert min(counters.values()) > least
        assert counters[slot_of(b"far")] == far
    formed.wait_voting(5)
    identities = [identity_on(master) for master in formed.masters]
    assert {str(one.members) for one in identities} == {"m1:1 m2:1 m3:1 m4:1 m5:1"}
    assert len({one.cluster_id for one in identities} | {before.cluster_id}) == 2
    assert app.lock("a", *LOCK)["fence"] > held["fence"]
    assert app.lock("b", *LOCK)["fence"] > other_slot["fence"]


def test_nothing_is_started_anew_where_the_fences_of_one_that_has_them_can_not_be_read(
    formed: Cluster,
) -> None:
    wipe(*formed.masters[:3])
    look_again(formed)
    m4 = formed.masters[3]
    on(m4, "HSET", FENCES, slot_of(b"a"), "spoilt")
    unreadable = "the fence counters of m4 can't be read"
    eventually(lambda: unreadable in App(formed).refused("FORM", "RECOVER"), "the wait is over")
    assert [on(master, "DBSIZE") for master in formed.masters[:3]] == [0, 0, 0]


def test_starting_anew_is_refused_where_there_is_another_way_or_a_master_is_missing(formed: Cluster) -> None:
    app = App(formed)
    assert "all masters have data" in app.refused("FORM", "RECOVER")
    wipe(*formed.masters[:2])
    look_again(formed)
    assert "admit the blank ones (m1, m2) one by one" in app.refused("FORM", "RECOVER")
    wipe(formed.masters[2])
    formed.masters[4].kill()
    look_again(formed)
    missed = "all masters must be up, each blank or with its data. Nothing was changed: m5: "
    eventually(lambda: missed in app.refused("FORM", "RECOVER"), what="m5 is missed")
    formed.masters[4].start()
    wipe(*formed.masters[3:])
    eventually(
        lambda: "form the cluster again (lockctl cluster init)" in app.refused("FORM", "RECOVER"),
        what="nobody has data",
    )


def test_what_belongs_to_another_cluster_is_not_started_anew_with(formed: Cluster) -> None:
    wipe(*formed.masters[:3])
    m5 = formed.masters[4]
    have_identity(m5, replace(identity_on(m5), cluster="other"))
    look_again(formed)
    assert "Nothing was changed: m5: it belongs to the cluster 'other'" in App(formed).refused(
        "FORM", "RECOVER"
    )


def test_what_is_left_need_not_vote_together(make_cluster: MakeCluster) -> None:
    """Two agents admitted m1 at once, so m2 knows a later number than m1 has; then m3 was lost."""
    cluster = make_cluster(masters=3, max_ttl_ms=MAX_TTL_MS)
    m1, m2, m3 = cluster.masters
    identity = identity_on(m1)
    have_identity(m1, identity.with_members(identity.members.with_number("m1", 2)))
    have_identity(m2, identity_on(m2).with_members(identity.members.with_number("m1", 3)))
    wipe(m3)
    look_again(cluster)
    assert {state_of(cluster, "m1"), state_of(cluster, "m2")} <= {"up", "outdated", "replaced"}
    assert App(cluster).refused("LOCK", "a", 500).startswith("NOQUORUM")
    assert "lockctl cluster recover" in App(cluster).refused("ADMIT", "m3")
    eventually(lambda: form(cluster, "RECOVER")["status"] == "recovered", "it starts anew")
    cluster.wait_voting(3)


# An earlier format


def in_old_format(*masters: LocalMaster) -> None:
    for master in masters:
        on(master, "HDEL", IDENTITY, "format", "cluster_id", "members", "electorate", "begun_from")
        assert set(identity_of(master)) == {"cluster", "name", "max_ttl_ms"}


def test_identities_of_an_earlier_format_are_told_apart_and_brought_up_to_date(formed: Cluster) -> None:
    app = App(formed)
    lease, written_ns = app.lock("a", *LOCK, "DETACHED"), boottime_ns()
    in_old_format(*formed.masters)
    look_again(formed)
    assert {one["state"] for one in formed.master_states()} == {"other_format"}
    assert reason_of(formed, "m1").endswith("lockctl cluster upgrade")
    assert app.refused("LOCK", "b", 500).startswith("NOQUORUM m1=other_format:")
    waits_a_max_ttl(lambda: form(formed, "UPGRADE"), "upgraded", written_ns)
    formed.wait_voting(5)
    assert form(formed, "UPGRADE")["status"] == "already"
    assert {identity_on(master).cluster for master in formed.masters} == {"test"}
    assert len({identity_on(master).cluster_id for master in formed.masters}) == 1
    # Nobody knows whether each has all that it had: they go on above that.
    assert all(int(on(master, "HGET", FENCES, slot_of(b"a"))) > lease["fence"] for master in formed.masters)
    assert App(formed).lock("a", *LOCK)["fence"] > lease["fence"]


def test_an_identity_of_a_later_format_is_left_alone(formed: Cluster) -> None:
    on(formed.masters[0], "HSET", IDENTITY, "format", "3")
    look_again(formed)
    assert state_of(formed, "m1") == "other_format"
    assert reason_of(formed, "m1").endswith("upgrade the agent")
    assert "m1: its identity is of format 3" in App(formed).refused("FORM", "UPGRADE")
