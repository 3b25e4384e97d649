"""Whose a lock is (rule 13): real processes, with connections that they open, share and lose."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lockd.clock import boottime_ns
from tests.harness.app import App
from tests.harness.app_process import AppProcess, end
from tests.harness.clocks import MS
from tests.harness.cluster import AS_IS, Cluster
from tests.harness.on_masters import MINUTE_MS, paused
from tests.harness.users import NOBODY, Connect, cluster_for_all_users
from tests.harness.waiting import eventually

Started = Callable[..., AppProcess]
TTL_MS = 1_000
SOON_MS = 20_000
"""A WAIT of so long ends before a lease of AppProcess.lock would that nobody gives back."""


class Watch:
    """What the agent knows, asked on a connection of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = cluster.client(protocol=3)
        self._connections = self.connections

    @property
    def connections(self) -> int:
        return int(self._client.info("clients")["connected_clients"])

    def saw_an_end(self) -> None:
        """The agent has seen as many connections end as were opened since."""
        eventually(lambda: self.connections == self._connections, what="the connection has ended")

    def lease(self, resource: str) -> dict[str, Any] | None:
        rows = self._client.execute_command("LOCKS", resource.replace("[", r"\["), "LOCAL")
        return next(iter(rows), None)

    def wait_until_free(self, resource: str) -> None:
        eventually(lambda: self.lease(resource) is None, what=f"{resource} is free")

    def wait_until_granted(self, resource: str) -> None:
        eventually(lambda: self.lease(resource), what=f"{resource} is granted")


@pytest.fixture(scope="module")
def shared(server_binary: Path) -> Iterator[Cluster]:
    tied = {"name": "tied", "match": "tied/*", "bound": "connection"}
    with cluster_for_all_users(classes=[tied], defaults=AS_IS) as cluster:
        yield cluster


@pytest.fixture
def watch(shared: Cluster) -> Watch:
    return Watch(shared)


@pytest.fixture
def app(shared: Cluster) -> Iterator[Started]:
    """Apps in processes of their own, by the words of a command that becomes each."""
    with ExitStack() as stack:
        yield lambda *before: stack.enter_context(AppProcess(shared.socket, *before))


def test_a_pool_that_recycles_a_connection_keeps_what_was_locked_on_it(
    app: Started, watch: Watch, resource: str
) -> None:
    one = app()
    lease = one.lock(1, resource)
    assert lease["bound"] == "process"
    one.close(1)
    watch.saw_an_end()
    assert one.ask(2, "EXTEND", resource, lease["token"], 40_000)[-2:] == ["bound", "process"]
    assert watch.lease(resource)["bound"] == "process"
    assert one.ask(3, "UNLOCK", resource, lease["token"]) == 1


@pytest.mark.parametrize("recycled", [False, True])
def test_a_killed_app_frees_what_it_held_at_once_whatever_became_of_its_connections(
    app: Started, watch: Watch, shared: Cluster, resource: str, recycled: bool
) -> None:
    one, resources = app(), [f"{resource}/{n}" for n in range(3)]
    for number, each in enumerate(resources):
        one.lock(number, each)
        if recycled:
            one.close(number)
    one.kill()
    for each in resources:
        App(shared).lock(each, MINUTE_MS, "WAIT", SOON_MS, "CONNECTION")


def test_a_child_goes_on_with_the_connection_of_a_dead_app_and_its_lock(
    app: Started, watch: Watch, resource: str
) -> None:
    one = app()
    one.lock(1, resource)
    child = one.fork()
    one.kill()
    assert watch.lease(resource)
    end(child)
    watch.wait_until_free(resource)


def test_what_was_granted_to_a_client_that_has_timed_out_is_given_back(
    app: Started, watch: Watch, resource: str
) -> None:
    one = app()
    one.send(1, "LOCK", resource, 30_000)
    one.wait_unread(1)
    one.close(1)
    watch.wait_until_free(resource)


def test_what_is_given_back_behind_an_extension_by_who_closes_at_once_is_given_back(
    app: Started, watch: Watch, resource: str
) -> None:
    one = app()
    for _ in range(20):
        lease = one.lock(1, resource)
        one.ask(1, "PING")
        one.send(1, "EXTEND", resource, lease["token"], 40_000)
        one.send(1, "UNLOCK", resource, lease["token"])
        one.close(1)
        watch.wait_until_free(resource)


def test_a_push_that_was_not_read_costs_no_lock(app: Started, watch: Watch, resource: str) -> None:
    """redis-py 8 takes one that waits for a broken connection, and opens another."""
    one, other = app(), f"{resource}/other"
    one.ask(1, "HELLO", 3)
    token = one.ask(1, "LOCK", resource, MINUTE_MS, "NOTIFY")["token"]
    one.ask(1, "LOCK", other, MINUTE_MS, "NOTIFY")
    one.ask(2, "FORCERELEASE", other)
    one.close(2)
    one.wait_unread(1)
    one.close(1)
    watch.saw_an_end()
    assert watch.lease(resource)["bound"] == "process"
    assert one.ask(2, "UNLOCK", resource, token) == 1


@pytest.mark.parametrize("ending", ["close", "shut"])
def test_a_lock_of_which_nobody_knows_whether_it_was_told_ends_at_its_deadline(
    app: Started, watch: Watch, resource: str, ending: str
) -> None:
    """Something came behind its reply, or its app may still read it. It is renewed no more."""
    one, asked_ns = app(), boottime_ns()
    one.send(1, "LOCK", resource, TTL_MS)
    granted = one.wait_unread(1)
    if ending == "close":
        one.send(1, "PING")
        one.wait_unread(1, more_than=granted)
    getattr(one, ending)(1)
    watch.wait_until_free(resource)
    assert boottime_ns() >= asked_ns + (TTL_MS - TTL_MS // 100 - 2) * MS


def test_what_was_asked_for_twice_and_never_read_is_given_back_with_the_last_of_its_connections(
    app: Started, watch: Watch, shared: Cluster, resource: str
) -> None:
    """A client that has timed out, and asks again with its TOKEN on another connection."""
    one = app()
    for connection in (1, 2):
        one.send(connection, "LOCK", resource, 30_000, "TOKEN", "named")
        one.wait_unread(connection)
    one.close(1)
    eventually(lambda: connections_of(shared, one.pid) == 1, what="its end is seen")
    assert watch.lease(resource), "the other may read it"
    one.close(2)
    watch.wait_until_free(resource)


@pytest.mark.parametrize("by", ["its own app", "another"])
def test_a_lock_that_was_extended_elsewhere_stays_when_the_first_reply_was_not_read(
    app: Started, watch: Watch, connect: Connect, shared: Cluster, resource: str, by: str
) -> None:
    one = app()
    one.send(1, "LOCK", resource, MINUTE_MS, "TOKEN", "named")
    one.wait_unread(1)
    other = one if by == "its own app" else app()
    assert other.ask(2, "EXTEND", resource, "named", MINUTE_MS)
    one.close(1)
    one.ask(3, "PING")
    eventually(lambda: connections_of(shared, one.pid) == (2 if other is one else 1), what="its end is seen")
    assert watch.lease(resource)


def test_a_lock_that_is_being_extended_elsewhere_stays_when_the_first_reply_was_not_read(
    app: Started, watch: Watch, shared: Cluster, resource: str
) -> None:
    one = app()
    one.send(1, "LOCK", resource, 30_000, "TOKEN", "named")
    one.wait_unread(1)
    one.ask(2, "PING")
    with paused(shared.masters[1:]):
        one.send(2, "EXTEND", resource, "named", MINUTE_MS)
        one.close(1)
        eventually(lambda: connections_of(shared, one.pid) == 1, what="its end is seen")
    one.wait_unread(2)
    assert "token" in one.ask(2, "PING"), "the reply of its EXTEND"
    assert watch.lease(resource)


def test_a_detached_lock_lasts_though_who_asks_for_it_again_reads_nothing(
    app: Started, watch: Watch, shared: Cluster, resource: str
) -> None:
    one = app()
    one.lock(1, resource, "DETACHED", "TOKEN", "named")
    one.send(2, "LOCK", resource, 30_000, "DETACHED", "TOKEN", "named")
    one.wait_unread(2)
    one.close(2)
    eventually(lambda: connections_of(shared, one.pid) == 1, what="its end is seen")
    assert watch.lease(resource)["bound"] == "ttl"
    assert one.ask(1, "UNLOCK", resource, "named") == 1


def test_news_of_a_lock_are_for_who_has_locked_it(
    app: Started, watch: Watch, shared: Cluster, resource: str
) -> None:
    one, other = app(), app()
    token = one.lock(1, resource)["token"]
    tied = one.lock(1, f"tied/{resource}")["token"]
    assert other.ask(1, "EXTEND", resource, token, 30_000, "NOTIFY").startswith(
        "ERR NOTIFY is only for the holder"
    )
    assert one.ask(2, "EXTEND", f"tied/{resource}", tied, 30_000, "NOTIFY").startswith(
        "ERR NOTIFY is only for the holder"
    )
    assert "token" in other.ask(1, "EXTEND", resource, token, 30_000)
    assert "token" in one.ask(2, "EXTEND", resource, token, 30_000, "NOTIFY")
    assert "token" in one.ask(1, "EXTEND", f"tied/{resource}", tied, 30_000, "NOTIFY")
    shared.client().execute_command("FORCERELEASE", resource)
    assert other.ask(1, "PING") == "PONG"
    assert one.ask(2, "PING").startswith("EXPIRED")


def connections_of(cluster: Cluster, pid: int) -> int:
    return int(cluster.client().execute_command("INFO", "processes")[f"process_{pid}"]["connections"])


def test_a_lock_with_connection_lives_as_long_as_that(app: Started, watch: Watch, resource: str) -> None:
    one = app()
    assert one.lock(1, resource, "CONNECTION")["bound"] == "connection"
    assert one.lock(1, f"tied/{resource}")["bound"] == "connection"
    assert one.lock(1, f"{resource}/detached", "DETACHED")["bound"] == "ttl"
    assert one.ask(1, "LOCK", resource, 1_000, "CONNECTION", "DETACHED").startswith("ERR syntax error")
    one.close(1)
    watch.wait_until_free(resource)
    watch.wait_until_free(f"tied/{resource}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes pid namespaces")
def test_of_an_app_that_cannot_be_seen_a_lock_lives_with_its_connection(
    make_cluster: Callable[..., Cluster], resource: str
) -> None:
    """The agent is in a container, and the app is not in it."""
    cluster = make_cluster(masters=1, defaults=AS_IS)
    cluster.agent.stop()
    cluster.agent.command = ("unshare", "--pid", "--fork", "--kill-child", *cluster.agent.command)
    cluster.agent.start()
    cluster.wait_voting(1)
    app = App(cluster)
    assert app.lock(resource, MINUTE_MS)["bound"] == "connection"
    app.close()
    App(cluster).lock(resource, MINUTE_MS, "WAIT", SOON_MS)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes pid namespaces")
def test_an_app_in_a_container_is_seen_by_an_agent_on_the_host(
    app: Started, watch: Watch, resource: str
) -> None:
    one = app("unshare", "--pid", "--fork", "--kill-child")
    assert one.lock(1, resource)["bound"] == "process"
    one.close(1)
    watch.saw_an_end()
    assert watch.lease(resource)
    one.kill()
    watch.wait_until_free(resource)


def test_doctor_is_told_who_is_connected_and_who_cannot_be_seen(
    app: Started, shared: Cluster, connect: Connect, resource: str
) -> None:
    one = app()
    one.lock(1, resource)
    one.ask(2, "PING")
    shown = shared.client().execute_command("INFO", "processes")
    assert shown["unseen_connections"] == 0
    assert shown[f"process_{one.pid}"] == {"uid": os.geteuid(), "connections": 2, "leases": 1}
    others = connect(shared, NOBODY).ask("INFO", "processes").decode()
    assert f"process_{one.pid}" not in others, "operators see all, others their own"
    assert f"uid={NOBODY},connections=1,leases=0" in others
