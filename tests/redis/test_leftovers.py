"""Nothing is left of what is over: each command many times with the collector off, then nothing to collect.

A cycle among what is over is freed only when old objects are collected, which the agent does rarely: its loop
stands still meanwhile. So 0.3 KiB a LOCK and UNLOCK were 1.7 GB before the first collection.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.cluster import Cluster
from tests.harness.masters import running_masters, short_folder
from tests.harness.waiting import eventually
from tests.harness.wire import Wire, token_of

TIMES = 300
LONG_MS = 60_000
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
    with short_folder() as folder, running_masters(folder, 3, server_binary) as masters:
        cluster = Cluster(folder, masters, {})
        found = folder / "found.json"
        cluster.agent.command = (
            sys.executable, "-m", "tests.harness.uncollected_agent", str(found),
            "serve", "--config", str(cluster.config_path),
        )  # fmt: skip
        try:
            cluster.agent.start()
            cluster.form()
            cluster.wait_voting(3)
            yield Uncollected(cluster, found)
        finally:
            cluster.close()


Use = Callable[[Uncollected, Wire, int], None]
"""What an app does once: with an agent, on a connection of its own, for the n-th time."""
USES: dict[str, Use] = {}


def use(done: Use) -> Use:
    USES[done.__name__.replace("_", " ")] = done
    return done


def ok(reply: object) -> object:
    assert not isinstance(reply, Exception), reply
    return reply


@use
def lock_and_unlock(_: Uncollected, wire: Wire, number: int) -> None:
    wire.ask("UNLOCK", "pair", token_of(wire.ask("LOCK", "pair", LONG_MS)))


@use
def lock_detached_and_unlock(_: Uncollected, wire: Wire, number: int) -> None:
    wire.ask("UNLOCK", "detached", token_of(wire.ask("LOCK", "detached", LONG_MS, "DETACHED")))


@use
def lock_extend_and_unlock(_: Uncollected, wire: Wire, number: int) -> None:
    token = token_of(wire.ask("LOCK", "extended", LONG_MS))
    ok(wire.ask("EXTEND", "extended", token, LONG_MS))
    wire.ask("UNLOCK", "extended", token)


@use
def lock_by_a_token_and_unlock(_: Uncollected, wire: Wire, number: int) -> None:
    wire.ask("UNLOCK", "named", token_of(wire.ask("LOCK", "named", LONG_MS, "TOKEN", f"t{number}")))


@use
def lock_what_is_taken(agent: Uncollected, wire: Wire, number: int) -> None:
    if number == 0:
        ok(wire.ask("LOCK", "taken", LONG_MS, "DETACHED"))
    assert "TAKEN" in str(wire.ask("LOCK", "taken", LONG_MS))


@use
def lock_with_a_wait_that_ends(_: Uncollected, wire: Wire, number: int) -> None:
    if number == 0:
        ok(wire.ask("LOCK", "waited for", LONG_MS, "DETACHED"))
    assert "T" in str(wire.ask("LOCK", "waited for", LONG_MS, "WAIT", 1))


@use
def unlock_nothing(_: Uncollected, wire: Wire, number: int) -> None:
    assert "NOTHELD" in str(wire.ask("UNLOCK", "nothing", "a" * 32))


@use
def lock_a_list_and_unlock(_: Uncollected, wire: Wire, number: int) -> None:
    reply = ok(wire.ask("LOCK", "one", LONG_MS, "AND", "other"))
    assert isinstance(reply, list)
    leases = reply if isinstance(reply[0], list) else [reply]
    for lease, resource in zip(leases, ("one", "other"), strict=False):
        wire.ask("UNLOCK", resource, token_of(lease))


@use
def lock_a_slot_and_unlock(_: Uncollected, wire: Wire, number: int) -> None:
    reply = ok(wire.ask("LOCK", "gpu", LONG_MS, "SLOTS", 4))
    assert isinstance(reply, list)
    lease = dict(zip(reply[::2], reply[1::2], strict=True))
    wire.ask("UNLOCK", lease[b"resource"], lease[b"token"])


@use
def lock_a_slot_with_a_wait_and_unlock(_: Uncollected, wire: Wire, number: int) -> None:
    reply = ok(wire.ask("LOCK", "gpu", LONG_MS, "SLOTS", 4, "WAIT", LONG_MS))
    assert isinstance(reply, list)
    lease = dict(zip(reply[::2], reply[1::2], strict=True))
    wire.ask("UNLOCK", lease[b"resource"], lease[b"token"])


@use
def wait_for_a_slot_that_stays_taken(_: Uncollected, wire: Wire, number: int) -> None:
    if number == 0:
        for _slot in range(2):
            ok(wire.ask("LOCK", "full", LONG_MS, "SLOTS", 2, "DETACHED"))
    assert "T" in str(wire.ask("LOCK", "full", LONG_MS, "SLOTS", 2, "WAIT", 1))


@use
def lock_a_list_of_which_one_is_taken(_: Uncollected, wire: Wire, number: int) -> None:
    if number == 0:
        ok(wire.ask("LOCK", "z", LONG_MS, "DETACHED"))
    assert "T" in str(wire.ask("LOCK", "a", LONG_MS, "AND", "z"))


@use
def set_and_delete_by_value(_: Uncollected, wire: Wire, number: int) -> None:
    assert wire.ask("SET", "plain", "v", "NX", "PX", LONG_MS) == b"OK"
    assert wire.ask("GET", "plain") == b"v"
    wire.ask("DEL", "plain")


@use
def connect_and_close(agent: Uncollected, _: Wire, number: int) -> None:
    with agent.connect() as wire:
        wire.ask("PING")


@use
def lock_and_close(agent: Uncollected, _: Wire, number: int) -> None:
    with agent.connect() as wire:
        ok(wire.ask("LOCK", f"left {number}", LONG_MS))


@use
def transact(_: Uncollected, wire: Wire, number: int) -> None:
    wire.ask("MULTI")
    wire.ask("SET", "transacted", "v", "NX", "PX", LONG_MS)
    wire.ask("DEL", "transacted")
    ok(wire.ask("EXEC"))


@use
def close_behind_multi(agent: Uncollected, _: Wire, number: int) -> None:
    with agent.connect() as wire:
        wire.ask("MULTI")
        wire.ask("DEL", *(f"k{n}" for n in range(20)))


@use
def close_with_unlocks_behind_a_wait(agent: Uncollected, wire: Wire, number: int) -> None:
    if number == 0:
        ok(wire.ask("LOCK", "long", LONG_MS, "DETACHED"))
    with agent.connect() as behind:
        behind.send("LOCK", "long", LONG_MS, "WAIT", LONG_MS)
        for n in range(5):
            behind.send("UNLOCK", f"long {n}", "b" * 32)
        behind.send("PING")


@use
def listings(_: Uncollected, wire: Wire, number: int) -> None:
    for command in (("LOCKS",), ("MASTERS",), ("INFO",), ("HOLDER", "pair"), ("CLIENT", "LIST")):
        wire.ask(*command)


@use
def what_is_no_command(_: Uncollected, wire: Wire, number: int) -> None:
    assert "ERR" in str(wire.ask("FLUSHALL"))


@pytest.mark.parametrize("name", USES)
def test_nothing_is_left_of_it(name: str, agent: Uncollected) -> None:
    with agent.connect() as wire:
        for number in range(TIMES):
            USES[name](agent, wire, number)
    with agent.connect() as wire:
        eventually(lambda: int(wire.info()["connected_clients"]) == 1, "all others are closed")
    found = agent.collected()
    assert found.total() < OF_OTHERS, found.most_common(12)
