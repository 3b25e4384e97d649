"""Where many others connect, one waits."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lockd.client import in_line
from lockd.client.connection import AgentConnection
from lockd.lockctl.errors import Unreachable
from lockd.lockctl.patient import pool_of
from lockd.lockctl.run.connection import JobConnection


class Agent:
    """Its line has room for one, and it lets nobody in until it is told so."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "s")
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(self.path)
        self.listening.listen(0)
        self.others = list[socket.socket]()
        self.let_in = list[socket.socket]()
        self._ends = threading.Event()
        self._letting_in: threading.Thread | None = None

    def is_full(self) -> None:
        while True:
            other = socket.socket(socket.AF_UNIX)
            other.setblocking(False)
            try:
                other.connect(self.path)
            except BlockingIOError:
                other.close()
                return
            self.others.append(other)

    def lets_all_in_soon(self) -> None:
        """From now on."""
        self._letting_in = threading.Thread(target=self._lets_in)
        self._letting_in.start()

    def _lets_in(self) -> None:
        self.listening.settimeout(0.05)
        while not self._ends.wait(0.01):
            with suppress(TimeoutError):
                self.let_in.append(self.listening.accept()[0])

    def end(self) -> None:
        self._ends.set()
        if self._letting_in is not None:
            self._letting_in.join()
        for one in (*self.others, *self.let_in, self.listening):
            one.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    one = Agent(tmp_path)
    one.is_full()
    yield one
    one.end()


def test_a_client_waits_where_the_line_is_full_and_is_let_in(agent: Agent) -> None:
    with socket.socket(socket.AF_UNIX) as app:
        app.settimeout(30)
        with pytest.raises(BlockingIOError):
            app.connect(agent.path)
        agent.lets_all_in_soon()
        in_line.connect(app, agent.path, 30)
        assert app.getpeername() == agent.path


async def test_so_does_one_on_an_event_loop(agent: Agent) -> None:
    with socket.socket(socket.AF_UNIX) as app:
        app.setblocking(False)
        waits = asyncio.ensure_future(in_line.connect_async(app, agent.path))
        done, _ = await asyncio.wait([waits], timeout=0.05)
        assert not done
        agent.lets_all_in_soon()
        await waits
        assert app.getpeername() == agent.path


def test_a_line_that_stays_full_is_told_when_the_time_is_over(agent: Agent) -> None:
    with socket.socket(socket.AF_UNIX) as app:
        app.settimeout(30)
        with pytest.raises(BlockingIOError):
            in_line.connect(app, agent.path, 0.02)
    with pytest.raises(Unreachable, match="temporarily unavailable"):
        JobConnection(agent.path, within_s=0.02)


def test_the_clients_and_the_programs_wait_in_line(agent: Agent) -> None:
    agent.lets_all_in_soon()
    job = JobConnection(agent.path, within_s=30)
    connection = AgentConnection(agent.path, 30)
    sock = connection._connect()
    with pool_of(agent.path, 30).make_connection()._connect() as asked:
        assert {one.getpeername() for one in (sock, asked)} == {agent.path}
    job.close()
    sock.close()
