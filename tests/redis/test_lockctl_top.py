"""`lockctl top` at a real terminal, over a real agent."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cluster import Cluster, running_cluster
from tests.harness.lockctl import LOCKCTL
from tests.harness.processes import NOHUP, ignored_signals
from tests.harness.waiting import eventually

_ESCAPES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")


@pytest.fixture(scope="module")
def cluster(server_binary: Path) -> Iterator[Cluster]:
    with running_cluster(3, classes=[{"name": "invoices", "match": "invoice:*"}]) as own:
        yield own


class Terminal:
    """A terminal of 30 lines by 120 columns with a command in it: what it shows, and a keyboard."""

    def __init__(self, *command: str | Path) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        self._output = b""
        self._gone = threading.Event()
        environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        # setsid: it has to be the terminal's own session, so that Ctrl-C and hanging up reach it.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment | {"TERM": "xterm"},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # Never blocked in a read: that would keep the terminal open after it was closed.
        while not self._gone.is_set():
            if select.select([self._master], [], [], 0.05)[0]:
                self._output += os.read(self._master, 65_536)

    @property
    def raw(self) -> bytes:
        return self._output

    def text_since(self, mark: int) -> str:
        return _ESCAPES.sub(b"", self._output[mark:]).decode(errors="replace")

    def wait_for(self, words: str, mark: int = 0) -> int:
        """Return when it has shown these words, after `mark`; gives the mark for what comes later."""
        eventually(lambda: words in self.text_since(mark), 30, f"{words!r} is shown")
        return len(self._output)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def ended(self) -> int:
        return self.process.wait(60)

    def attributes(self) -> list[object]:
        return list(termios.tcgetattr(self._slave))

    def hang_up(self) -> None:
        """As when the window is closed or ssh breaks off."""
        self._gone.set()
        self._reader.join()
        os.close(self._slave)
        os.close(self._master)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()


@pytest.fixture
def terminal(cluster: Cluster) -> Iterator[Terminal]:
    """`lockctl top` in a terminal."""
    own = Terminal(LOCKCTL, "--socket", cluster.socket, "top", "--interval", "200ms")
    yield own
    own.close()


def test_it_shows_what_is_there_and_what_changes(cluster: Cluster, terminal: Terminal) -> None:
    mark = terminal.wait_for("Locks are available: all 3 masters have a vote.")
    terminal.wait_for("no lease is held through this agent")
    client = cluster.client()
    client.execute_command("LOCK", "invoice:42", 30_000)
    mark = terminal.wait_for("invoice:42", mark)
    terminal.wait_for("1 held", mark)
    client.close()
    terminal.wait_for("no lease is held through this agent", mark)


@pytest.mark.parametrize("key", ["q", "\x03"], ids=["q", "Ctrl-C"])
def test_it_ends_cleanly_and_leaves_the_terminal_as_it_was(terminal: Terminal, key: str) -> None:
    terminal.wait_for("Locks are available")
    assert terminal.attributes() != terminal.before
    terminal.type(key)
    assert terminal.ended() == 0
    eventually(lambda: b"\x1b[?1049l" in terminal.raw, what="the screen as it was is shown again")
    assert b"\x1b[?25h" in terminal.raw  # with its cursor
    assert b"Traceback" not in terminal.raw
    assert terminal.attributes() == terminal.before


def test_what_it_was_started_to_ignore_does_not_end_it(cluster: Cluster) -> None:
    terminal = Terminal(*NOHUP, LOCKCTL, "--socket", cluster.socket, "top", "--interval", "200ms")
    try:
        terminal.wait_for("Locks are available")
        assert {signal.SIGHUP, signal.SIGINT} <= ignored_signals(terminal.process.pid)
        terminal.type("q")
        assert terminal.ended() == 0
    finally:
        terminal.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_as_cleanly(terminal: Terminal, number: signal.Signals) -> None:
    terminal.wait_for("Locks are available")
    terminal.process.send_signal(number)
    assert terminal.ended() == 0
    assert terminal.attributes() == terminal.before


def test_other_keys_do_nothing(terminal: Terminal) -> None:
    mark = terminal.wait_for("Locks are available")
    terminal.type("x \x1b[A")
    terminal.wait_for("Locks are available", mark)
    assert terminal.process.poll() is None


def test_an_agent_that_restarts_is_said_and_waited_for(cluster: Cluster, terminal: Terminal) -> None:
    mark = terminal.wait_for("Locks are available")
    cluster.agent.stop()
    mark = terminal.wait_for("looking again. What follows is", mark)
    assert "can't reach the agent at" in terminal.text_since(0)
    cluster.agent.start()
    mark = terminal.wait_for("Locks are available: all 3 masters have a vote.", mark)
    assert terminal.process.poll() is None
    terminal.type("q")
    assert terminal.ended() == 0


def test_an_agent_that_hangs_is_said_too(cluster: Cluster, terminal: Terminal) -> None:
    mark = terminal.wait_for("Locks are available")
    os.kill(cluster.agent.pid, signal.SIGSTOP)
    try:
        mark = terminal.wait_for("the agent doesn't answer; looking again", mark)
    finally:
        os.kill(cluster.agent.pid, signal.SIGCONT)
    terminal.wait_for("Locks are", mark)


def test_it_may_be_started_before_the_agent(cluster: Cluster) -> None:
    early = Terminal(LOCKCTL, "--socket", cluster.folder / "none.sock", "top")
    early.wait_for("No such file or directory; looking again")
    early.type("q")
    assert early.ended() == 0
    early.close()


def test_a_terminal_that_goes_away_ends_it(cluster: Cluster) -> None:
    own = Terminal(LOCKCTL, "--socket", cluster.socket, "top", "--interval", "200ms")
    own.wait_for("Locks are available")
    own.hang_up()
    assert own.ended() == 0


def test_for_scripts_there_is_json(cluster: Cluster) -> None:
    app = cluster.client()
    app.execute_command("LOCK", "invoice:7", 30_000)

    def report() -> Any:
        done = subprocess.run(
            [LOCKCTL, "--socket", cluster.socket, "top", "--json"], capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    # What is counted by class may be a second old: whoever looked before had it counted.
    document = eventually(
        lambda: look if (look := report())["classes"]["invoices"]["leases"] == 1 else None,
        10,
        "it is counted",
    )
    assert document["available"]["level"] == "good"
    assert "invoice:7" in [lease["resource"] for lease in document["leases"]]
    assert len(document["masters"]) == 3
