"""Nothing that an agent waits for may be silent for ever: a resolver, a user database, a disk. It goes on, it
ends when it is told to, and the next one has what it held.

A FIFO that nobody writes to stands for a file on a dead disk.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from lockd.dev.processes import LOOPBACK
from tests.harness.app_process import AppProcess
from tests.harness.cluster import AS_IS, Cluster, MakeCluster
from tests.harness.names_shim import Names
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import answers_ping


@pytest.fixture
def names(tmp_path: Path) -> Names:
    return Names(tmp_path / "names")


@pytest.fixture
def by_name(make_cluster: MakeCluster, names: Names) -> Cluster:
    """Its agent knows the masters by names."""
    cluster = make_cluster(3, start=False, defaults=AS_IS)
    masters = [{"name": one.name, "address": f"{one.name}-held:{one.port}"} for one in cluster.masters]
    cluster.write_config(masters=masters)
    cluster.agent.environment = names.environment()
    cluster.agent.start()
    cluster.form()
    cluster.wait_voting(3)
    return cluster


@pytest.fixture
def app() -> Iterator[Callable[[Cluster], AppProcess]]:
    with ExitStack() as stack:
        yield lambda cluster: stack.enter_context(AppProcess(cluster.socket))


def reason_of(cluster: Cluster, master: str) -> str:
    return next(str(one["reason"]) for one in cluster.master_states() if one["name"] == master)


def stops(cluster: Cluster) -> None:
    """As it is told to, and not because somebody lost patience."""
    assert cluster.agent.stop(PATIENCE_S) == 0, cluster.agent.log_tail()


def held(cluster: Cluster, app: AppProcess, resource: str) -> dict[str, Any]:
    lease = app.lock(1, resource)
    # So the agent knows that it was read.
    app.ask(1, "PING")
    return lease


def goes_on(cluster: Cluster, app: AppProcess, resource: str, lease: dict[str, Any]) -> None:
    """The next agent has it."""
    assert app.ask(2, "UNLOCK", resource, lease["token"]) == 1


def make_silent(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def test_a_silent_resolver_keeps_no_agent_from_ending(
    by_name: Cluster, names: Names, app: Callable[[Cluster], AppProcess], resource: str
) -> None:
    one = app(by_name)
    lease = held(by_name, one, resource)
    names.hold()
    by_name.masters[2].kill()
    eventually(lambda: "resolver" in reason_of(by_name, "m3"), "it is known what is waited for")
    stops(by_name)
    names.answer()
    by_name.agent.start()
    by_name.wait_voting(2)
    goes_on(by_name, one, resource, lease)


def test_an_agent_that_starts_beside_a_silent_resolver_can_be_stopped(by_name: Cluster, names: Names) -> None:
    stops(by_name)
    by_name.write_config(metrics=f"metrics-held:{by_name.metrics_port}")
    names.hold()
    by_name.agent.start()
    assert b"event=metrics_late" in by_name.agent.log(), "but apps need not wait for that"
    stops(by_name)


def test_metrics_whose_address_is_found_late_are_served_then(by_name: Cluster, names: Names) -> None:
    stops(by_name)
    by_name.write_config(metrics=f"metrics-held:{by_name.metrics_port}")
    names.hold()
    by_name.agent.start()
    names.answer()

    def is_served() -> bool:
        with suppress(OSError), socket.create_connection((LOOPBACK, by_name.metrics_port)):
            return True
        return False

    eventually(is_served, "the metrics are served")


def test_with_a_silent_user_database_leases_are_held_on_and_nobody_is_let_in(
    make_cluster: MakeCluster, names: Names, app: Callable[[Cluster], AppProcess], resource: str
) -> None:
    cluster = make_cluster(3, start=False, defaults=AS_IS, admin_group="ops-held")
    cluster.agent.environment = names.environment()
    cluster.agent.start()
    cluster.form()
    cluster.wait_voting(3)
    one = app(cluster)
    lease = held(cluster, one, resource)
    stops(cluster)
    for ends in (stops, lambda _cluster: names.answer()):
        names.hold()
        cluster.agent.start(wait=False)
        eventually(lambda: b"event=user_database_silent" in cluster.agent.log(), "it says what it waits for")
        assert b"event=took_over" in cluster.agent.log()
        assert not cluster.socket.exists()
        ends(cluster)
    eventually(lambda: answers_ping(cluster.socket), "apps are let in")
    goes_on(cluster, one, resource, lease)


def test_a_password_on_a_dead_disk_costs_new_connections_and_nothing_else(
    make_cluster: MakeCluster, tmp_path: Path, app: Callable[[Cluster], AppProcess], resource: str
) -> None:
    password = tmp_path / "password"
    password.write_text("secret")
    cluster = make_cluster(
        3,
        master_settings={"requirepass": "secret"},
        auth={"password_file": str(password)},
        defaults=AS_IS,
    )
    one = app(cluster)
    lease = held(cluster, one, resource)
    make_silent(password)
    cluster.masters[2].restart()
    eventually(lambda: "disk" in reason_of(cluster, "m3"), "it is known what is waited for")
    assert held(cluster, one, f"{resource}/next")
    stops(cluster)
    password.unlink()
    password.write_text("secret")
    cluster.agent.start()
    cluster.wait_voting(3)
    goes_on(cluster, one, resource, lease)
