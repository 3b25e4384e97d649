"""Hosts take turns, on real masters of each flavour."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockd.dev.processes import LocalMaster
from tests.harness.app import App
from tests.harness.cluster import Cluster
from tests.harness.masters import running_masters, short_folder
from tests.harness.on_masters import MINUTE_MS, on
from tests.harness.waiting import eventually


@pytest.fixture(scope="module")
def hosts(any_server: Path) -> Iterator[tuple[Cluster, Cluster]]:
    """The agents of two hosts, over masters of each flavour."""
    with short_folder() as folder, running_masters(folder, 3, any_server) as masters:
        cluster = Cluster(folder, masters, {})
        try:
            cluster.agent.start()
            cluster.form()
            other = cluster.add_agent()
            for host in (cluster, other):
                host.wait_voting(3)
            yield cluster, other
        finally:
            cluster.close()


def locks_and_unlocks(app: App, resource: str) -> None:
    lease = app.lock(resource, MINUTE_MS, "WAIT", MINUTE_MS)
    app.ask("UNLOCK", resource, lease["token"])


def tries_of(master: LocalMaster) -> int:
    """How often any agent has asked it for a vote."""
    return on(master, "INFO", "commandstats")["cmdstat_evalsha"]["calls"]


def test_an_app_alone_on_its_host_gets_it_beside_three_that_pass_it_on(
    hosts: tuple[Cluster, Cluster],
) -> None:
    """Without turns it starves: release and next local grant leave in one write."""
    here, there = hosts
    busy, lone, done = [App(here) for _ in range(3)], App(there), threading.Event()

    def again_and_again(app: App) -> None:
        while not done.is_set():
            locks_and_unlocks(app, "turns:busy")

    threads = [threading.Thread(target=again_and_again, args=(app,)) for app in busy]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            locks_and_unlocks(lone, "turns:busy")
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_who_waits_is_told_and_does_not_ask_again_and_again(
    hosts: tuple[Cluster, Cluster],
) -> None:
    cluster, other = hosts
    [first, *_] = cluster.masters
    here, there = App(cluster), App(other)
    held = here.lock("turns:held", MINUTE_MS)
    there.send("LOCK", "turns:held", MINUTE_MS, "WAIT", MINUTE_MS)
    eventually(lambda: on(first, "EXISTS", "lockd:places:turns:held"), what="its place is there")
    before = tries_of(first)
    assert here.ask("UNLOCK", "turns:held", held["token"]) == 1
    assert there.locked()["fence"] > held["fence"]
    assert tries_of(first) - before < 20
    eventually(lambda: not waits(cluster, "turns:held"), what="nobody has a place any more")


def waits(cluster: Cluster, resource: str) -> list[str]:
    places = [on(master, "HKEYS", f"lockd:places:{resource}") for master in cluster.masters]
    return [name for names in places for name in names if name != "recalled"]
