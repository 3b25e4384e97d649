"""Operators get in by a socket of their own, whatever apps do at theirs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lockd.server.operators import PLACES
from tests.harness.cluster import Cluster, merged
from tests.harness.greed import CROWDED, GREEDY, is_let_in, is_refused, takes_everything
from tests.harness.lockctl import LOCKCTL, lockctl
from tests.harness.users import (
    CONTAINERS,
    DAEMON,
    NOBODY,
    become,
    cluster_for_all_users,
    in_child,
    living_as,
    name_of_group,
)
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import Wire, kind

TTL_MS = 30_000
GAMES = 60
MAN = 12
NO_APP_IS_LET_IN = """
from lockd.server.doors import AT_A_TURN, Doors

opened = Doors.open

async def open(hearer, listening, at_a_turn=AT_A_TURN):
    if at_a_turn != AT_A_TURN:
        return await opened(hearer, listening, at_a_turn)
    listening.listen(4)
    return Doors()

Doors.open = open
from lockd.cli import main
main()
"""
"""At the socket for apps, as if there were too many of them."""
FREE = 1

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")


@pytest.fixture(scope="module")
def running(server_binary: Path) -> Iterator[Cluster]:
    with cluster_for_all_users(limits=CROWDED, admin_group=name_of_group(GAMES)) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """With the configuration that it was started with, and nobody at the operators' socket."""
    with running.configuration_kept():
        yield running
    eventually(lambda: lockctl(running, "reload").returncode == 0)


def is_kept_out(path: Path, uid: int, *groups: int) -> None:
    def tries() -> None:
        become(uid, groups)
        with pytest.raises(PermissionError):
            Wire(path)

    in_child(tries)


def gets_in(path: Path, uid: int, *groups: int) -> None:
    def tries() -> None:
        become(uid, groups)
        with Wire(path) as wire:
            assert wire.ask("PING") == b"PONG"

    in_child(tries)


# Who


def test_root_and_members_of_the_admin_group_get_in_and_the_kernel_keeps_all_others_out(
    cluster: Cluster,
) -> None:
    path = cluster.operators_socket
    for member in ((0,), (NOBODY, GAMES), (DAEMON, MAN, GAMES)):
        gets_in(path, *member)
    for other in ((NOBODY,), (DAEMON, MAN)):
        is_kept_out(path, *other)
        gets_in(cluster.socket, *other)


def test_a_reload_lets_members_of_another_group_in(cluster: Cluster) -> None:
    def reload_with(**settings: Any) -> None:
        cluster.config_path.write_text(json.dumps(merged(cluster.config(), settings)))
        assert lockctl(cluster, "reload").returncode == 0

    path = cluster.operators_socket
    reload_with(admin_group=name_of_group(MAN))
    gets_in(path, NOBODY, MAN)
    is_kept_out(path, NOBODY, GAMES)
    reload_with(admin_group=None)
    is_kept_out(path, NOBODY, MAN)
    is_kept_out(path, NOBODY, GAMES)
    gets_in(path, 0)


CONNECTS = """
import socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect(sys.argv[1])
    print(link.recv(4096).decode())
"""


def said_in(where: str, *words: str | Path) -> str:
    """By a command of root's there."""
    command = [*CONTAINERS[where], *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("where", CONTAINERS)
def test_root_in_a_container_gets_in_where_apps_do(cluster: Cluster, where: str) -> None:
    said = said_in(where, sys.executable, "-c", CONNECTS, cluster.operators_socket)
    assert said.startswith("-DENIED only for operators on this host")
    assert f"it has a separate {where}" in said
    assert "m1" in said_in(where, LOCKCTL, "--socket", cluster.socket, "masters")


# Whatever apps do


def test_with_all_files_used_up_by_other_accounts_and_by_roots_own_apps_an_operator_gets_in(
    cluster: Cluster,
) -> None:
    with ExitStack() as stack:
        for uid in (0, *GREEDY):
            stack.enter_context(living_as(uid, partial(takes_everything, cluster.socket)))
        assert is_refused(stack.enter_context(Wire(cluster.socket)), "files")
        listed = lockctl(cluster, "locks", "--json")
        assert {row["uid"] for row in listed.json} == {0, *GREEDY}
        assert lockctl(cluster, "masters").returncode == 0


def test_where_no_app_is_let_in_and_their_line_is_full_an_operator_is(running: Cluster) -> None:
    other = running.add_agent()
    agent = other.agent
    agent.stop()
    agent.command = (sys.executable, "-c", NO_APP_IS_LET_IN, *agent.command[3:])
    agent.start(wait=False)
    eventually(other.operators_socket.exists)
    with ExitStack() as stack:

        def is_full() -> bool:
            app = stack.enter_context(socket.socket(socket.AF_UNIX))
            app.setblocking(False)
            try:
                app.connect(str(other.socket))
            except BlockingIOError:
                return True
            return False

        eventually(is_full, "no more may wait")
        eventually(lambda: lockctl(other, "masters", "--json").json[0]["vote"] == 1)
        assert lockctl(other, "force-release", "nobodys", "--yes").returncode == FREE
        assert is_full()


def test_what_operators_leave_open_gives_way_to_one_that_asks(cluster: Cluster) -> None:
    with ExitStack() as stack:

        def asks() -> Wire | None:
            wire = stack.enter_context(Wire(cluster.operators_socket))
            return wire if is_let_in(wire) else None

        first, second, *_ = [eventually(asks, "there is room") for _ in range(PLACES)]
        assert first.ask("PING") == b"PONG"
        eventually(asks, "one gives way")
        assert second.rest() == b"-LIMIT files: another operator has connected\r\n"
        assert first.ask("PING") == b"PONG"


# What


def test_nothing_is_locked_there_and_lockctl_locks_where_apps_do(cluster: Cluster) -> None:
    with Wire(cluster.operators_socket) as wire:
        for words in (("LOCK", "op", TTL_MS), ("SET", "op", "1", "NX", "PX", TTL_MS)):
            reply = wire.ask(*words)
            assert kind(reply) == "DENIED"
            assert "lock on the socket for apps" in str(reply)
        assert wire.ask("HOLDER", "op") is None
    assert lockctl(cluster, "run", "op", "--", "true").returncode == 0
    token = lockctl(cluster, "lock", "op").stdout.split()[0]
    assert lockctl(cluster, "extend", "op", token).returncode == 0
    assert lockctl(cluster, "unlock", "op", token).returncode == 0


def test_its_connections_are_none_whose_process_is_unseen(cluster: Cluster) -> None:
    with Wire(cluster.operators_socket) as wire:
        assert b"unseen_connections:0\r\n" in wire.ask("INFO", "processes")


def test_lockctl_asks_where_apps_do_if_there_is_no_such_socket_or_nobody_behind_it(cluster: Cluster) -> None:
    path = cluster.operators_socket
    aside = path.with_name("aside")
    with socket.socket(socket.AF_UNIX) as dead, Wire(cluster.socket) as app:
        path.replace(aside)
        dead.bind(str(path))
        assert lockctl(cluster, "ping").returncode == 0
        path.unlink()
        assert lockctl(cluster, "ping").returncode == 0
        assert app.ask("PING") == b"PONG"
        eventually(path.exists, "the agent makes it again")
