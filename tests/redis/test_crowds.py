"""Ten thousand apps of one host that want the same, or nothing; and an agent that holds much."""

from __future__ import annotations

import selectors
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cluster import Cluster, running_cluster
from tests.harness.processes import computed_by, open_files
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import Wire, as_map, kind, token_of

CROWD = 10_000
LINE, LEASES = 2_000, 3_000
TTL_MS, RENEWED_MS = 600_000, 30_000
PAIRS, PAIR_MOST_S = 50, 0.02
"""Of the processor: ten times what a lock and its release cost the agent."""
AT_A_TIME = 500
ROOM = {"files": 20_000, "share_percent": 10_000}
"""As on a host with one app."""


@pytest.fixture(scope="module")
def cluster(server_binary: Path) -> Iterator[Cluster]:
    with running_cluster(5, limits=ROOM, defaults={"max_wait_ms": TTL_MS}, max_ttl_ms=TTL_MS) as running:
        yield running


@pytest.fixture(scope="module")
def crowd(cluster: Cluster) -> Iterator[list[Wire]]:
    with ExitStack() as stack:
        stack.enter_context(open_files(CROWD + 500))
        yield [stack.enter_context(Wire(connected(cluster.socket))) for _ in range(CROWD)]


def connected(path: Path) -> socket.socket:
    """Where the line before the door is full, it waits: one with a time-out doesn't."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(str(path))
    return link


def test_of_ten_thousand_that_want_the_last_pair_of_shoes_one_gets_it_and_all_are_answered(
    crowd: list[Wire],
) -> None:
    for wire in crowd:
        wire.send("LOCK", "shoes", TTL_MS)
    replies = [wire.reply() for wire in crowd]
    refused = Counter(kind(reply) for reply in replies if not isinstance(reply, list))
    assert refused == {"TAKEN": CROWD - 1}
    [winner] = [number for number, reply in enumerate(replies) if isinstance(reply, list)]
    assert crowd[winner].ask("UNLOCK", "shoes", token_of(replies[winner])) == 1


def test_thousands_that_wait_get_it_one_after_the_other(cluster: Cluster, crowd: list[Wire]) -> None:
    """Beside the rest of the crowd, which waits for nothing."""
    line = crowd[:LINE]
    for wire in line:
        wire.send("LOCK", "line", TTL_MS, "WAIT", TTL_MS)
    fences = [fence for _, fence in unlocked_as_granted("line", line)]
    assert len(fences) == LINE
    assert fences == sorted(set(fences))
    assert cluster.metric("lockd_waiters") == 0


def unlocked_as_granted(resource: str, wires: list[Wire]) -> Iterator[tuple[Wire, int]]:
    """Each that gets it, and its fence, in that order; it is given back at once."""
    with selectors.DefaultSelector() as ready:
        for wire in wires:
            ready.register(wire, selectors.EVENT_READ)
        while ready.get_map():
            readable = ready.select(PATIENCE_S)
            assert readable, f"{len(ready.get_map())} are still without an answer"
            for key, _ in readable:
                wire: Any = key.fileobj
                lease = as_map(wire.reply())
                yield wire, lease[b"fence"]
                assert wire.ask("UNLOCK", resource, lease[b"token"]) == 1
                ready.unregister(wire)


def test_ten_thousand_that_want_nothing_are_in_nobodys_way(cluster: Cluster, crowd: list[Wire]) -> None:
    with Wire(cluster.socket) as wire:
        eventually(lambda: int(wire.info()["connected_clients"]) > len(crowd), "all are connected")
        before_s = computed_by(cluster.agent.pid)
        for _ in range(PAIRS):
            assert wire.ask("UNLOCK", "pair", token_of(wire.ask("LOCK", "pair", TTL_MS))) == 1
        assert computed_by(cluster.agent.pid) - before_s < PAIRS * PAIR_MOST_S


def test_while_thousands_of_leases_are_renewed_others_lock_and_none_is_lost(cluster: Cluster) -> None:
    with Wire(cluster.socket) as holder, Wire(cluster.socket) as other:
        for first in range(0, LEASES, AT_A_TIME):
            for number in range(first, first + AT_A_TIME):
                holder.send("LOCK", f"held:{number}", RENEWED_MS)
            for _ in range(AT_A_TIME):
                token_of(holder.reply())
        renewed = cluster.metric("lockd_renewals_total", outcome="worked")
        pairs = 0

        def each_was_renewed() -> bool:
            return cluster.metric("lockd_renewals_total", outcome="worked") - renewed >= LEASES

        def goes_on() -> bool:
            nonlocal pairs
            assert other.ask("UNLOCK", "other", token_of(other.ask("LOCK", "other", TTL_MS))) == 1
            pairs += 1
            return pairs % PAIRS == 0 and each_was_renewed()

        eventually(goes_on, "each is renewed")
        assert cluster.metric("lockd_losses_total") == 0
        assert int(holder.info()["leases"]) == LEASES
