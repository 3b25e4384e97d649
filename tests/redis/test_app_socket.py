"""Where apps come in: when it opens, and what becomes of it when its file is deleted under a running agent.

The masters are modelled: they answer as slowly as a test wants, and need no Redis.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockd.dev.processes import LOOPBACK
from tests.harness.cluster import Cluster
from tests.harness.masters import short_folder
from tests.harness.modelled import ModelledMaster, modelled_masters, serving
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import Wire, as_map, kind

SLOWLY_S = 0.03
NEVER_S = 3_600.0
TTL_MS = 30_000
PATIENT_AGENT = """
from lockd.server import agent
agent._FIRST_LOOK_S = 3_600.0
from lockd.cli import main
main()
"""

SURPRISED_AGENT = """
import asyncio, threading
from lockd.server import agent, reload
agent._FIRST_LOOK_S = 0
looks, look_up = threading.Event(), reload.Permissions
def answers_while_it_looks(config):
    looks.wait()
    return look_up(config)
async def look(self, loop):
    looks.set()
    while self._reload._one_at_a_time.locked():
        await asyncio.sleep(0.001)
reload.Permissions = answers_while_it_looks
agent.Agent._first_look = look
from lockd.cli import main
main()
"""


class World:
    """An agent over three modelled masters, and the socket of a systemd that it tells how it is."""

    def __init__(self, folder: Path, masters: list[ModelledMaster]) -> None:
        self.folder = folder / "run"
        self.folder.mkdir()
        self._manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._manager.bind(str(folder / "notify"))
        self.masters = masters
        # A master that doesn't answer is one that was not looked at, for as long as a test may take.
        settings = {
            "socket": {"path": str(self.folder / "s"), "mode": "0606"},
            "timeouts": {"connect_ms": 60_000, "dead_ms": 60_000},
        }
        self.cluster = Cluster(folder, masters, settings)  # type: ignore[arg-type]
        self.cluster.socket = self.folder / "s"
        self.agent = self.cluster.agent
        self.agent.socket_path = self.cluster.socket
        self.agent.environment["NOTIFY_SOCKET"] = str(folder / "notify")

    def let_masters_answer_after(self, seconds: float) -> None:
        async def pace() -> None:
            await asyncio.sleep(seconds)

        for master in self.masters:
            master.pace = pace

    def start_patiently(self) -> None:
        """An agent that looks at its masters first for as long as that takes."""
        self.start_as(PATIENT_AGENT)

    def start_as(self, program: str) -> None:
        self.agent.command = (sys.executable, "-c", program, *self.agent.command[3:])
        self.agent.start(wait=False)

    def wait_ready(self) -> None:
        """Until it tells systemd so."""
        self._manager.settimeout(PATIENCE_S)
        while self._manager.recv(4_096) != b"READY=1":
            pass

    def readiness(self) -> tuple[int, str]:
        url = f"http://{LOOPBACK}:{self.cluster.metrics_port}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def shown_ok(self) -> float:
        """As Prometheus gets it."""
        return self.cluster.metrics()["lockd_app_socket_ok"]

    def close(self) -> None:
        self.cluster.close()
        self._manager.close()


@pytest.fixture
def world() -> Iterator[World]:
    masters = modelled_masters(3)
    with short_folder() as folder, serving(masters):
        own = World(folder, masters)
        try:
            yield own
        finally:
            own.close()


@pytest.fixture
def ready(world: World) -> World:
    world.agent.start()
    world.cluster.wait_voting(3)
    eventually(lambda: world.readiness()[0] == 200, what="it is ready")
    return world


# When it opens


def test_an_app_that_is_there_before_the_masters_were_looked_at_waits_and_gets_its_lock(world: World) -> None:
    world.let_masters_answer_after(SLOWLY_S)
    world.start_patiently()
    wire = eventually(lambda: Wire(world.cluster.socket), "somebody listens")
    with wire:
        assert as_map(wire.ask("LOCK", "early", TTL_MS))[b"fence"] > 0


def test_masters_that_do_not_answer_keep_nobody_waiting_for_long(world: World) -> None:
    world.let_masters_answer_after(NEVER_S)
    world.agent.start(wait=False)
    world.wait_ready()
    with Wire(world.cluster.socket) as wire:
        assert kind(wire.ask("LOCK", "nobody", TTL_MS)) == "NOQUORUM"


def test_one_silent_master_of_three_is_not_waited_for(world: World) -> None:
    world.let_masters_answer_after(SLOWLY_S)
    world.masters[0].lie = lambda _words, _reply: b""
    world.start_patiently()
    world.wait_ready()
    with Wire(world.cluster.socket) as wire:
        assert as_map(wire.ask("LOCK", "two will do", TTL_MS))[b"fence"] > 0


def test_a_user_database_that_answers_during_the_look_lets_apps_in_behind_it(world: World) -> None:
    world.start_as(SURPRISED_AGENT)
    world.wait_ready()
    with Wire(world.cluster.socket) as wire:
        assert wire.ask("PING") == b"PONG"


def test_until_then_it_is_not_ready_and_says_so_and_a_stop_is_a_stop(world: World) -> None:
    world.let_masters_answer_after(NEVER_S)
    world.start_patiently()
    readiness = eventually(world.readiness, "it answers")
    assert readiness == (503, "starting: the first look at the masters is not over\n")
    os.kill(world.agent.pid, signal.SIGTERM)
    eventually(lambda: world.agent.exit_status == 0, "it has ended")
    assert not world.cluster.socket.exists()


# When its file is deleted


def test_a_socket_that_was_deleted_is_made_again_and_who_is_connected_goes_on(ready: World) -> None:
    path = ready.cluster.socket
    with Wire(path) as before:
        token = as_map(before.ask("LOCK", "kept", TTL_MS))[b"token"]
        path.unlink()
        with eventually(lambda: Wire(path), "new apps get in") as after:
            assert kind(after.ask("LOCK", "kept", TTL_MS)) == "TAKEN"
            assert before.ask("UNLOCK", "kept", token) == 1
            assert as_map(after.ask("LOCK", "kept", TTL_MS))[b"fence"] > 0
    path.unlink()
    eventually(lambda: Wire(path), "it is made again each time").close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o606
    assert f"event=socket_made_again socket={path}" in ready.cluster.log_text()
    assert ready.readiness()[0] == 200
    assert ready.agent.stop() == 0
    assert not path.exists(), "it makes no other"


def test_where_it_cannot_be_made_again_it_is_not_ready_and_says_why_until_it_can(ready: World) -> None:
    shutil.rmtree(ready.folder)
    assert ready.readiness() == (503, f"the socket {ready.cluster.socket} is gone\n")
    eventually(lambda: "event=socket_trouble" in ready.cluster.log_text(), "it is in the log")
    assert ready.shown_ok() == 0
    ready.folder.mkdir()
    with eventually(lambda: Wire(ready.cluster.socket), "new apps get in") as wire:
        assert wire.ask("PING") == b"PONG"
    eventually(lambda: ready.readiness()[0] == 200, what="it is ready")
    assert ready.shown_ok() == 1
    for path in (ready.cluster.socket, ready.cluster.operators_socket):
        assert ready.cluster.log_text().count(f'event=socket_trouble why="the socket {path} can') == 1


def test_something_else_in_its_place_is_told_of_and_left_alone(ready: World) -> None:
    path = ready.cluster.socket
    other = ready.folder / "other"
    other.write_text("somebody's")
    other.replace(path)
    told = f"something else is at {path}: remove it, and the agent makes its socket again"
    assert ready.readiness() == (503, f"{told}\n")
    eventually(lambda: told in ready.cluster.log_text(), "it is in the log")
    assert path.read_text() == "somebody's"
    assert ready.shown_ok() == 0
    path.unlink()
    with eventually(lambda: Wire(path), "new apps get in") as wire:
        assert wire.ask("PING") == b"PONG"
