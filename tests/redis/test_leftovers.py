"""Nothing is left of what is over: each command many times with the collector off, then nothing to collect.

A cycle among what is over is freed only when old objects are collected, which the agent does rarely: its loop
stands still meanwhile. So 0.3 KiB a LOCK and UNLOCK were 1.7 GB before the first collection.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lockd.server.commands import catalog
from tests.harness.cluster import AS_IS, Cluster, running_cluster
from tests.harness.uses import USES, App, Use
from tests.harness.waiting import eventually
from tests.harness.wire import Wire

TIMES, MANY_TIMES = 200, 10_000
# What the event loop and the parsers keep in cycles of their own, however often a command is run.
OF_OTHERS = 40


class Uncollected:
    """A cluster whose agent collects only when it is told to (tests/harness/uncollected_agent.py)."""

    def __init__(self, cluster: Cluster, found: Path) -> None:
        self.cluster = cluster
        self._found = found

    def connect(self) -> Wire:
        return Wire(self.cluster.socket)

    def collected(self) -> Counter[str]:
        """What a collection finds now, by type."""
        self._found.unlink(missing_ok=True)
        os.kill(self.cluster.agent.pid, signal.SIGUSR2)
        eventually(self._found.exists, "the agent has collected")
        return Counter(json.loads(self._found.read_text()))


@pytest.fixture(scope="module")
def agent(server_binary: Path) -> Iterator[Uncollected]:
    with running_cluster(3, program="tests.harness.uncollected_agent", defaults=AS_IS) as cluster:
        yield Uncollected(cluster, cluster.told)


def do_it(use: Use, times: int, agent: Uncollected, apps: int = 1) -> None:
    """So often, by so many apps at once. Then none is connected any more, and nothing is held."""

    def by_one(_: int) -> None:
        with App(agent.cluster.socket) as app:
            for number in range(times // apps):
                use.once(app, number)
            assert app.asked >= use.commands, "it is not the use of these commands"

    with ThreadPoolExecutor(apps) as threads:
        assert len(list(threads.map(by_one, range(apps)))) == apps
    with agent.connect() as wire:
        eventually(lambda: wire.in_use() == ("1", "0", "0"), "all others are closed, and all has ended")


def all_commands() -> set[str]:
    """Listed or not, with subcommands as in "client|id"."""
    found = [command for group in catalog.GROUPS for command in group.commands]
    return {one.name for command in found for one in (command, *command.subcommands)}


def test_each_command_has_a_use() -> None:
    assert all_commands() - {name for use in USES.values() for name in use.commands} == set()


def times_of(use: Use, times: int) -> int:
    return times // 10 if use.slow else times


@pytest.mark.parametrize("name", USES)
def test_nothing_is_left_of_it(name: str, agent: Uncollected) -> None:
    do_it(USES[name], times_of(USES[name], TIMES), agent)
    found = agent.collected()
    assert found.total() < OF_OTHERS, found.most_common(12)


@pytest.mark.thorough
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("name", USES)
def test_nothing_is_left_of_it_when_it_is_done_ten_thousand_times(name: str, agent: Uncollected) -> None:
    """By several at once, since each waits for the masters most of the time."""
    do_it(USES[name], times_of(USES[name], MANY_TIMES), agent, apps=8)
    found = agent.collected()
    assert found.total() < OF_OTHERS, found.most_common(12)
