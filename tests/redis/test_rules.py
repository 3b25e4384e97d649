"""The safety rules on real masters: at least one test for each, which fails when the rule is taken out.

The numbers are those of lockd/core/__init__.py. Rules 10, 11a and 11b are the guard's, on the masters'
own hosts. When something happens (renewals, deadlines, how long a vote is lost) is tested in virtual time, in
tests/unit: here leases last for longer than a machine stands still.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hiredis
import pytest

from lockd.clock import boottime_ns
from lockd.core.fences import slot_of
from lockd.dev.processes import LOOPBACK, LocalMaster, free_ports
from lockd.masters import scripts
from tests.harness.app import App
from tests.harness.clock_shim import Clock
from tests.harness.clocks import MS
from tests.harness.cluster import Cluster
from tests.harness.masters import running_masters, short_folder
from tests.harness.on_masters import (
    MINUTE_MS,
    blocked_on,
    cut_connections,
    holding,
    holding_back_writes,
    lease_key,
    lease_on,
    on,
    paused,
    plant,
    restart_under,
)
from tests.harness.waiting import eventually

# A network that fails


class Proxy:
    """Stands before a master and does what networks do.

    While `swallowing`, the master hears everything and nobody hears the master. After `hold`, what is sent on
    the connections that are open then is on its way until `let_go`, whatever becomes of its sender.
    """

    def __init__(self, master: LocalMaster) -> None:
        self._master = master
        self._open: list[socket.socket] = []
        self._held: set[socket.socket] = set()
        self._may_go = threading.Event()
        self.swallowing = False
        self.swallowed = 0
        self.drained = 0
        self.accepted = 0
        self._listening = socket.create_server((LOOPBACK, 0))
        self.address = f"{LOOPBACK}:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Let everything through again, on new connections."""
        self.swallowing = False
        links, self._open = self._open, []
        for link in links:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def hold(self) -> None:
        self._held = set(self._open)

    def let_go(self) -> None:
        """What was held arrives now, if the master still listens. `drained`: connections that are over."""
        self._may_go.set()

    def close(self) -> None:
        self._listening.close()
        self.let_go()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection((LOOPBACK, self._master.port))
                self._open += [near, far]
                self.accepted += 1
                threading.Thread(target=self._ask, args=(near, far), daemon=True).start()
                threading.Thread(target=self._answer, args=(far, near), daemon=True).start()

    def _ask(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, suppress(OSError):
            while data := near.recv(65_536):
                if near in self._held:
                    self._may_go.wait()
                far.sendall(data)
        self.drained += near in self._held

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while data := far.recv(65_536):
                if self.swallowing:
                    self.swallowed += len(data)
                else:
                    near.sendall(data)


BehindProxies = Callable[..., tuple[Cluster, list[Proxy]]]


@pytest.fixture
def behind_proxies(make_cluster: Callable[..., Cluster]) -> Iterator[BehindProxies]:
    """`behind_proxies(**timeouts)`: a cluster of three masters whose agent reaches each through a proxy."""
    proxies: list[Proxy] = []

    def make(**timeouts: int) -> tuple[Cluster, list[Proxy]]:
        cluster = make_cluster(masters=3, start=False, timeouts=timeouts)
        proxies.extend(Proxy(master) for master in cluster.masters)
        entries = [{"name": f"m{i}", "address": proxy.address} for i, proxy in enumerate(proxies, 1)]
        cluster.write_config(masters=entries)
        cluster.agent.start()
        cluster.form()
        cluster.wait_voting(3)
        return cluster, proxies

    yield make
    for proxy in proxies:
        proxy.close()


# Five masters and agents of several tempers, for all tests that leave everything as it was


@dataclass
class Hosts:
    """Five masters and the agents of four hosts. `patient` waits long for a slow master, and `hasty` hardly.

    On a busy machine all masters are slow at times, so `hasty` is asked with WAIT.
    """

    masters: list[LocalMaster]
    here: Cluster
    there: Cluster
    patient: Cluster
    hasty: Cluster

    def settle(self) -> None:
        for agent in (self.here, self.there, self.patient, self.hasty):
            agent.wait_voting(len(self.masters))


def pass_through(agent: Cluster, resource: str) -> None:
    """Return when each master has run all that this agent sent it before now: links keep the order."""
    app = App(agent)
    lease = app.lock(resource, MINUTE_MS, "WAIT", MINUTE_MS)
    eventually(
        lambda: len(holding(agent.masters, resource, lease["token"])) == len(agent.masters),
        what="all masters have run what was sent before",
    )
    app.ask("UNLOCK", resource, lease["token"])


@pytest.fixture(scope="module")
def all_hosts(server_binary: Path) -> Iterator[Hosts]:
    delayed = {"name": "delayed", "match": "delayed/*", "lock_delay_ms": 400}
    with short_folder() as folder, running_masters(folder, 5, server_binary) as masters:
        here = Cluster(folder, masters, {"classes": [delayed]})
        try:
            here.agent.start()
            here.form()
            patient = {"master_ms": 30_000, "dead_ms": 60_000}
            yield Hosts(
                masters,
                here,
                there=here.add_agent(),
                patient=here.add_agent(timeouts=patient),
                hasty=here.add_agent(timeouts={"master_ms": 200, "dead_ms": 60_000}),
            )
        finally:
            here.close()


@pytest.fixture
def hosts(all_hosts: Hosts) -> Hosts:
    all_hosts.settle()
    return all_hosts


# Rule 1


def test_rule_1_two_of_five_may_say_no_and_three_may_not(hosts: Hosts, resource: str) -> None:
    app = App(hosts.here)
    plant(hosts.masters[:2], resource)
    granted = app.lock(resource, MINUTE_MS)
    assert len(holding(hosts.masters, resource, granted["token"])) == 3
    plant(hosts.masters[:3], resource + "/3")
    assert app.refused("LOCK", resource + "/3", MINUTE_MS).startswith("TAKEN retry-after=")


def test_rule_1_the_deadline_counts_from_before_the_first_byte_was_sent(hosts: Hosts, resource: str) -> None:
    app = App(hosts.patient)
    with paused(hosts.masters[2:]):
        app.send("LOCK", resource, MINUTE_MS)
        eventually(lambda: lease_on(hosts.masters[0], resource), what="the first master was asked")
        asked_ns = boottime_ns()
        eventually(lambda: boottime_ns() > asked_ns + 100 * MS, what="the others are late")
        assert not app.answered
    assert app.locked()["deadline_ns"] <= asked_ns + (MINUTE_MS - MINUTE_MS // 100 - 2) * MS


# Rule 2


def test_rule_2_an_extension_puts_the_lease_back_on_masters_that_lost_it(hosts: Hosts, resource: str) -> None:
    app, (m1, *_, m5) = App(hosts.here), hosts.masters
    lease = app.lock(resource, 20_000, "DETACHED")
    eventually(lambda: len(holding(hosts.masters, resource)) == 5, what="it is on all five")
    on(m1, "DEL", lease_key(resource))
    longer = app.extend(resource, lease["token"], 30_000)
    assert longer["deadline_ns"] > lease["deadline_ns"]
    assert longer["fence"] == lease["fence"]
    assert len(holding(hosts.masters, resource)) == 4, "it may be on its way out everywhere"
    granted_us = granted_us_on(m5, resource)
    eventually(lambda: time_us_of(m1) > granted_us + 300_000, "it is of some age")
    before_us = time_us_of(m1)
    app.extend(resource, lease["token"], 40_000)
    eventually(
        lambda: len(holding(hosts.masters, resource, lease["token"])) == 5, what="it is back on all five"
    )
    took_us = time_us_of(m1) - before_us
    assert granted_us_on(m1, resource) - granted_us <= took_us, (
        "it is as old as it was, but for its way there"
    )
    assert fields_on(m1, resource)[2:6] == fields_on(m5, resource)[2:6]


def fields_on(master: LocalMaster, resource: str) -> list[str]:
    return str(lease_on(master, resource)).split()


def granted_us_on(master: LocalMaster, resource: str) -> int:
    return int(fields_on(master, resource)[1])


def time_us_of(master: LocalMaster) -> int:
    seconds, micros = on(master, "TIME")
    return int(seconds) * 1_000_000 + int(micros)


def test_rule_2_what_a_quorum_lost_is_not_put_back_but_lost(hosts: Hosts, resource: str) -> None:
    # On three masters it was free for a moment: another may have held it then.
    app, asking = App(hosts.here, protocol=3), App(hosts.here)
    lease = app.lock(resource, MINUTE_MS, "NOTIFY")
    eventually(lambda: len(holding(hosts.masters, resource)) == 5, what="it is on all five")
    # At one instant, for the agent: a renewal in between would put back what fewer have lost.
    with paused([hosts.here.agent]):
        for master in hosts.masters[:3]:
            on(master, "DEL", lease_key(resource))
    assert asking.refused("EXTEND", resource, lease["token"], MINUTE_MS).startswith(("EXPIRED", "NOTHELD"))
    kind, lost, token, reason, _ = app.push()
    assert (kind, lost, token) == ("lost", resource, lease["token"])
    assert "m1, m2, m3" in reason
    app.send("UNLOCK", resource, lease["token"])
    eventually(lambda: holding(hosts.masters, resource) == [], what="what was put back is given back")


# Rule 3


def test_rule_3_what_an_app_left_behind_is_given_back_though_connections_broke(
    hosts: Hosts, resource: str
) -> None:
    # The outcome of the try is open, its app goes, and then the connections break on which it was asked.
    app, behind = App(hosts.patient), hosts.masters[2:]
    with holding_back_writes(behind):
        app.send("LOCK", resource, MINUTE_MS)
        eventually(lambda: all(blocked_on(master) for master in behind), what="the masters were asked")
        app.close()
        eventually(lambda: holding(hosts.masters[:2], resource) == [], what="given back where it was granted")
        cut_connections(behind)
    hosts.patient.wait_voting(5)
    pass_through(hosts.patient, resource + "/after")
    assert holding(hosts.masters, resource) == []


def test_rule_3_what_a_broken_connection_still_brings_does_not_run_after_the_release(
    behind_proxies: BehindProxies, resource: str
) -> None:
    # The acquire is on its way to m1 for longer than the connection lives; the release takes the next one.
    cluster, [proxy, *_] = behind_proxies(dead_ms=300)
    app, m1 = App(cluster), cluster.masters[0]
    accepted = proxy.accepted
    proxy.hold()
    lease = app.lock(resource, MINUTE_MS, "WAIT", MINUTE_MS)
    eventually(lambda: proxy.accepted > accepted, what="the connection is given up for another")
    cluster.wait_voting(3)
    app.ask("UNLOCK", resource, lease["token"])
    pass_through(cluster, resource + "/after")
    proxy.let_go()
    eventually(lambda: proxy.drained, what="the acquire has arrived")
    assert on(m1, "PING")
    assert holding([m1], resource) == []


# Rule 4


def test_rule_4_a_retry_after_a_lost_answer_is_not_beaten_by_itself(
    behind_proxies: BehindProxies, resource: str
) -> None:
    cluster, proxies = behind_proxies(master_ms=30_000, dead_ms=60_000)
    app, mute = App(cluster), proxies[:2]
    for proxy in mute:
        proxy.swallowing = True
    app.send("LOCK", resource, MINUTE_MS)
    eventually(lambda: len(holding(cluster.masters, resource)) == 3, what="all masters granted it")
    eventually(lambda: all(proxy.swallowed for proxy in mute), what="their answers are lost")
    for proxy in mute:
        proxy.cut()
    lease = app.locked()
    assert holding(cluster.masters, resource, lease["token"]) == ["m1", "m2", "m3"]


# Rule 5


def test_rule_5_a_slow_master_is_left_out_and_is_back_by_itself(hosts: Hosts, resource: str) -> None:
    app = App(hosts.hasty)
    with paused(hosts.masters[:2]):
        lease = app.lock(resource, MINUTE_MS, "WAIT", MINUTE_MS)
        eventually(
            lambda: [one["state"] for one in hosts.hasty.master_states()] == ["stalled"] * 2 + ["up"] * 3,
            what="two are left out",
        )
        app.ask("UNLOCK", resource, lease["token"])
        app.lock(resource, MINUTE_MS, "WAIT", MINUTE_MS)
    hosts.hasty.wait_voting(5)


# Rule 6


def an_hour_ahead_us() -> int:
    """A fence counter that is far ahead, and not yet so far that it costs its master the vote."""
    return (time.time_ns() + 3_600 * 1_000_000_000) // 1_000


def test_rule_6_fences_grow_with_every_grant_on_whatever_host(hosts: Hosts, resource: str) -> None:
    apps, fences = [App(hosts.here), App(hosts.there), App(hosts.hasty)], []
    for turn in range(30):
        lease = apps[turn % 3].lock(resource, MINUTE_MS, "WAIT", MINUTE_MS)
        fences.append(lease["fence"])
        apps[turn % 3].ask("UNLOCK", resource, lease["token"])
    assert fences == sorted(set(fences))
    assert fences[-1] < 2**53


def test_rule_6_a_fence_stays_the_highest_whichever_masters_are_asked_next(
    hosts: Hosts, resource: str
) -> None:
    # Two masters are far ahead. Their value becomes a fence only when a third has accepted it too; else the
    # next grant, by the other three, would be below it.
    app, (m1, m2, _m3, m4, m5) = App(hosts.patient), hosts.masters
    ahead = an_hour_ahead_us()
    for master in (m4, m5):
        on(master, "HSET", scripts.FENCES_KEY.decode(), slot_of(resource.encode()), ahead)
    fences = []
    for away in ([m1, m2], [m4, m5], [m1, m4]):
        with paused(away):
            lease = app.lock(resource, MINUTE_MS)
            app.ask("UNLOCK", resource, lease["token"])
        fences.append(lease["fence"])
    assert fences[0] > ahead
    assert fences == sorted(set(fences))


# Rule 7


def test_rule_7_a_session_lock_is_not_renewed_past_its_max_hold(hosts: Hosts, resource: str) -> None:
    app = App(hosts.here, protocol=3)
    lease = app.lock(resource, 1_500, "WAIT", MINUTE_MS, "MAXHOLD", 1_500, "NOTIFY")
    hold_until_ns = boottime_ns() + 1_500 * MS
    deadlines, message = [lease["deadline_ns"]], app.push()
    while message[0] == "renewed":
        deadlines.append(message[3])
        message = app.push()
    assert message[0] == "lost"
    assert "max_hold" in message[3]
    assert max(deadlines) <= hold_until_ns
    App(hosts.there).lock(resource, MINUTE_MS, "WAIT", MINUTE_MS // 2)


# Rule 8


def test_rule_8_a_wiped_master_has_no_vote_from_that_moment_on(
    make_cluster: Callable[..., Cluster], resource: str
) -> None:
    cluster = make_cluster(masters=3)
    holder = App(cluster)
    lease = holder.lock(resource, MINUTE_MS)
    eventually(lambda: len(holding(cluster.masters, resource)) == 3, what="it is on all three")
    for master in cluster.masters[:2]:
        on(master, "FLUSHALL")
    # Nobody has had time to look at the masters yet: it is they themselves who refuse.
    assert App(cluster).refused("LOCK", resource + "/other", MINUTE_MS).startswith("NOQUORUM")
    other = cluster.add_agent()
    assert App(other).refused("LOCK", resource, MINUTE_MS).startswith("NOQUORUM")
    assert [on(master, "DBSIZE") for master in cluster.masters[:2]] == [0, 0]
    assert holding(cluster.masters, resource) == ["m3"]
    holder.refused("EXTEND", resource, lease["token"], MINUTE_MS)
    cluster.wait_voting(1)
    assert [one["state"] for one in cluster.master_states()] == ["blank", "blank", "up"]


# Rule 9


def test_rule_9_the_masters_refuse_a_ttl_above_their_ceiling(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(masters=3, max_ttl_ms=30_000)
    mistaken = cluster.add_agent(max_ttl_ms=MINUTE_MS)
    mistaken.wait_voting(3)
    app = App(mistaken)
    assert "ttl-above-its-ceiling" in app.refused("LOCK", "long", 30_001)
    assert holding(cluster.masters, "long") == []
    lease = app.lock("short", 30_000, "DETACHED")
    assert app.refused("EXTEND", "short", lease["token"], 40_000).startswith("NOQUORUM")
    assert App(cluster).lock("another", 30_000)


# Rule 11c


def test_rule_11c_votes_of_masters_whose_clocks_jumped_do_not_count_for_as_long_as_the_masters_allow_leases(
    make_cluster: Callable[..., Cluster], wall_clock: Clock, resource: str
) -> None:
    """Not as long as this agent does: others may hold longer ones, and the jump has ended those too."""
    cluster = make_cluster(start=False)
    jumping = cluster.masters[:3]
    restart_under(wall_clock, jumping)
    cluster.agent.start()
    cluster.form()
    brief = cluster.add_agent(max_ttl_ms=1_000)
    for agent in (cluster, brief):
        agent.wait_voting(5)
    App(cluster).lock(resource, MINUTE_MS, "DETACHED")
    eventually(lambda: len(holding(cluster.masters, resource)) == 5, what="the last answers have come, too")
    wall_clock.step(2 * MINUTE_MS * MS)
    # A master looks at its clock once in a turn of its loop: it may be in the middle of one.
    eventually(lambda: holding(jumping, resource) == [], "the jump has ended it there, before its time")
    assert App(brief).refused("LOCK", resource, 1_000).startswith(("NOQUORUM", "CLOCK"))
    for state in brief.master_states()[:3]:
        assert state["reason"].startswith("clock jumped forward by")
        [left_s] = re.findall(r"no vote for another (\d+) s", state["reason"])
        assert int(left_s) > 10


# Rule 12


def test_rule_12_a_holder_learns_of_a_loss(hosts: Hosts, resource: str) -> None:
    """That it is before its deadline, tests/unit/locks/test_renewals.py says."""
    pushed, told_next = App(hosts.here, protocol=3), App(hosts.here)
    words = (2_500, "WAIT", MINUTE_MS, "NOTIFY")
    leases = {app: app.lock(f"{resource}/{n}", *words) for n, app in enumerate((pushed, told_next))}
    with paused(hosts.masters[:3]):
        message = pushed.push()
        while message[0] == "renewed":
            message = pushed.push()
        kind, lost, token, reason, _ = message
        assert (kind, lost, token) == ("lost", f"{resource}/0", leases[pushed]["token"])
        assert "could be renewed" in reason or "could not be renewed" in reason
        refusal = eventually(lambda: _refused_ping(told_next), what="the next command says so")
        assert refusal.startswith(f"EXPIRED the lease of '{resource}/1' was lost")
        assert told_next.ask("PING") == "PONG"
    assert told_next.refused("UNLOCK", f"{resource}/1", leases[told_next]["token"]).startswith(
        ("EXPIRED", "NOTHELD")
    )


def test_rule_12_who_is_told_of_a_loss_when_he_extends_has_it_until_its_deadline(
    hosts: Hosts, resource: str
) -> None:
    """His reply may wait behind others': until he has read it, he relies on what he was told before."""
    app, shared = App(hosts.here), App(hosts.here)
    app.lock(f"{resource}/first", MINUTE_MS)
    lease = shared.lock(resource, 2_500, "WAIT", MINUTE_MS)
    with paused(hosts.masters[:3]):
        eventually(lambda: _is_lost(hosts.here, resource), "it is lost")
    shared.send("LOCK", f"{resource}/first", MINUTE_MS, "WAIT", MINUTE_MS)
    shared.send("EXTEND", resource, lease["token"], 5_000)
    App(hosts.there).lock(resource, MINUTE_MS, "WAIT", MINUTE_MS // 2)
    assert boottime_ns() > lease["deadline_ns"]
    assert not shared.answered


def _is_lost(here: Cluster, resource: str) -> bool:
    """Once its deadline is over it is not shown any more."""
    rows = App(here, protocol=3).ask("LOCKS", resource, "LOCAL")
    return not rows or bool(rows[0]["lost"])


def _refused_ping(app: App) -> str | None:
    app.send("PING")
    reply = app.reply()
    return str(reply) if isinstance(reply, hiredis.ReplyError) else None


# Rule 13


def test_rule_13_a_class_with_a_lock_delay_keeps_it_that_long(hosts: Hosts, resource: str) -> None:
    app = App(hosts.here)
    lease = app.lock(f"delayed/{resource}", MINUTE_MS)
    app.ask("UNLOCK", f"delayed/{resource}", lease["token"])
    app.lock(f"delayed/{resource}", MINUTE_MS)  # at once: it was given back
    gone_ns = boottime_ns()
    app.close()
    App(hosts.there).lock(f"delayed/{resource}", MINUTE_MS, "WAIT", MINUTE_MS // 2)
    assert boottime_ns() - gone_ns >= 400 * MS


# Rule 14


def test_rule_14_settings_that_break_a_promise_cost_a_master_its_vote(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(form=False, start=False)
    m1, m2, m3, m4, m5 = cluster.masters
    wrong = {
        m1: ("appendfsync", "everysec", "always"),
        m2: ("no-appendfsync-on-rewrite", "yes", "no"),
        m3: ("maxmemory-policy", "allkeys-lru", "noeviction"),
        m4: ("appendonly", "no", "yes"),
    }
    for master, (setting, value, _) in wrong.items():
        on(master, "CONFIG", "SET", setting, value)
    on(m5, "REPLICAOF", LOOPBACK, free_ports(1)[0])
    cluster.agent.start()

    def all_judged() -> list[dict[str, Any]]:
        states = cluster.master_states()
        assert {one["state"] for one in states} == {"misconfigured"}, cluster.describe()
        return states

    reasons = [one["reason"] for one in eventually(all_judged, what="all are misconfigured")]
    for reason, (setting, value, right) in zip(reasons, wrong.values(), strict=False):
        assert reason == f"{setting}={value} (must be {right})"
    assert reasons[4] == "its role is slave, it must be master"
    refusal = App(cluster).refused("FORM", "UNUSED")
    assert all(reason in refusal for reason in reasons)
    assert [on(master, "DBSIZE") for master in cluster.masters] == [0] * 5
    for master, (setting, _, right) in wrong.items():
        on(master, "CONFIG", "SET", setting, right)
    on(m5, "REPLICAOF", "NO", "ONE")
    eventually(lambda: cluster.master_states()[4]["state"] == "copied", what="m5 was promoted, that is seen")
    m5.restart()  # it holds nothing, so nothing of what it may have copied is left
    cluster.form()
    cluster.wait_voting(5)
