"""`lockctl top` at a real terminal, over a real agent."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.harness.cluster import Cluster
from tests.harness.lockctl import LOCKCTL
from tests.harness.on_masters import paused
from tests.harness.processes import NOHUP, ignored_signals
from tests.harness.terminal import Terminal
from tests.redis.module_cluster import module_cluster

XTERM = {"TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
Top = Callable[..., Terminal]


cluster = module_cluster(3, classes=[{"name": "invoices", "match": "invoice:*"}])


@pytest.fixture
def top(cluster: Cluster) -> Iterator[Top]:
    """`lockctl top` in a terminal, behind these words."""
    command = (LOCKCTL, "--socket", cluster.socket, "top", "--interval", "200ms")
    with ExitStack() as stack:
        yield lambda *behind: stack.enter_context(Terminal(*behind, *command, environment=XTERM))


@pytest.fixture
def terminal(top: Top) -> Terminal:
    return top()


def test_it_shows_what_is_there_and_what_changes(cluster: Cluster, terminal: Terminal) -> None:
    terminal.wait_for("Locks are available: all 3 masters have a vote.")
    terminal.wait_for("no lease is held through this agent")
    client = cluster.client()
    client.execute_command("LOCK", "invoice:42", 60_000)
    terminal.wait_for("1 held.*invoice:42")
    client.close()
    terminal.wait_for("no lease is held through this agent")


def typed(keys: str) -> Callable[[Terminal], None]:
    return lambda terminal: terminal.type(keys)


def sent(number: int) -> Callable[[Terminal], None]:
    return lambda terminal: os.kill(terminal.pid, number)


@pytest.mark.parametrize(
    "end",
    [typed("q"), typed("\x03"), sent(signal.SIGTERM), sent(signal.SIGHUP)],
    ids=["q", "Ctrl-C", "SIGTERM", "SIGHUP"],
)
def test_it_ends_cleanly_and_leaves_the_terminal_as_it_was(
    terminal: Terminal, end: Callable[[Terminal], None]
) -> None:
    before = terminal.attributes()
    terminal.wait_for("Locks are available")
    assert terminal.attributes() != before
    end(terminal)
    assert terminal.end() == 0
    assert "\x1b[?1049l" in terminal.screen  # the screen as it was is shown again
    assert "\x1b[?25h" in terminal.screen  # with its cursor
    assert "Traceback" not in terminal.screen
    assert terminal.attributes() == before


def test_what_it_was_started_to_ignore_does_not_end_it(top: Top) -> None:
    terminal = top(*NOHUP)
    terminal.wait_for("Locks are available")
    assert {signal.SIGHUP, signal.SIGINT} <= ignored_signals(terminal.pid)
    terminal.type("q")
    assert terminal.end() == 0


def test_an_agent_that_restarts_or_hangs_is_said_and_waited_for(cluster: Cluster, terminal: Terminal) -> None:
    terminal.wait_for("Locks are available")
    cluster.agent.stop()
    terminal.wait_for("can't reach the agent at.*looking again. What follows is")
    cluster.agent.start()
    terminal.wait_for("Locks are available: all 3 masters have a vote.")
    with paused([cluster.agent]):
        terminal.wait_for("the agent doesn't answer; looking again")
    terminal.wait_for("Locks are")
    terminal.type("q")
    assert terminal.end() == 0


def test_it_may_be_started_before_the_agent(cluster: Cluster) -> None:
    with Terminal(LOCKCTL, "--socket", cluster.folder / "none.sock", "top", environment=XTERM) as early:
        early.wait_for("No such file or directory; looking again")
        early.type("q")
        assert early.end() == 0


def test_a_terminal_that_goes_away_ends_it(terminal: Terminal) -> None:
    terminal.wait_for("Locks are available")
    terminal.hang_up()
    assert terminal.end() == 0
