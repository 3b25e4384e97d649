"""A host keeps what it has unlocked, for classes that say so, with real masters."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.cluster import Cluster, running_cluster
from tests.harness.lockctl import lockctl
from tests.harness.on_masters import paused
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import Wire, as_map, kind, token_of

TTL_MS = LONG_MS = 60_000
SHORT_MS = 50
RECALL_MS = 300
CLASSES = [
    {"name": "kept", "match": "kept:*", "keep_ms": LONG_MS},
    {"name": "soon", "match": "soon:*", "keep_ms": SHORT_MS},
]


@pytest.fixture(scope="module")
def running(server_binary: Any) -> Iterator[Cluster]:
    with running_cluster(5, classes=CLASSES, recall_ms=RECALL_MS) as cluster:
        yield cluster


@pytest.fixture
def wire(running: Cluster) -> Iterator[Wire]:
    with Wire(running.socket) as wire:
        yield wire


@pytest.fixture(scope="module")
def other(running: Cluster) -> Cluster:
    """A second agent of the same masters."""
    other = running.add_agent()
    other.wait_voting(5)
    return other


@pytest.fixture
def another(other: Cluster) -> Iterator[Wire]:
    with Wire(other.socket) as wire:
        yield wire


def once(wire: Wire, resource: str) -> dict[bytes, Any]:
    lease = as_map(wire.ask("LOCK", resource, TTL_MS))
    assert wire.ask("UNLOCK", resource, lease[b"token"]) == 1
    return lease


def keep(wire: Wire, resource: str) -> None:
    """It is locked again soon enough, whatever else the machine does."""
    for _ in range(20):
        once(wire, resource)
        if is_kept(wire, resource):
            return
    raise AssertionError("it is not kept")


def holder(wire: Wire, resource: str) -> dict[bytes, Any]:
    found = wire.ask("HOLDER", resource)
    return as_map(found) if found else {}


def is_kept(wire: Wire, resource: str) -> bool:
    return holder(wire, resource).get(b"kept") == 1


def test_what_is_kept_is_shown_as_kept_by_its_host_and_not_as_held(running: Cluster, wire: Wire) -> None:
    keep(wire, "kept:shown")
    lease = once(wire, "kept:shown")
    [row] = [as_map(one) for one in wire.ask("LOCKS", "kept:shown", "LOCAL")]
    assert (row[b"kept"], row[b"lost"], row[b"bound"], row[b"fence"]) == (1, 0, None, lease[b"fence"])
    assert row[b"uid"] == os.getuid()
    host = holder(wire, "kept:shown")[b"host"].decode()
    assert f"kept by {host}" in lockctl(running, "holder", "kept:shown").stdout
    assert "kept" in lockctl(running, "locks", "--local", "kept:shown").stdout
    held = token_of(wire.ask("LOCK", "kept:shown", TTL_MS))
    assert holder(wire, "kept:shown")[b"kept"] == 0
    assert wire.ask("UNLOCK", "kept:shown", held) == 1


def test_another_agent_knows_only_whose_tenure_it_is(wire: Wire, another: Wire) -> None:
    keep(wire, "kept:elsewhere")
    shown = holder(another, "kept:elsewhere")
    assert (shown[b"host"], shown[b"fence"], shown[b"kept"]) == (
        holder(wire, "kept:elsewhere")[b"host"], None, None,
    )  # fmt: skip


def test_it_is_counted(running: Cluster, wire: Wire) -> None:
    keep(wire, "kept:counted")
    handed = running.metric("lockd_hand_offs_total", **{"class": "kept"})
    locked = running.metric("lockd_kept_seconds_count", outcome="locked")
    for _ in range(10):
        once(wire, "kept:counted")
    eventually(
        lambda: running.metric("lockd_hand_offs_total", **{"class": "kept"}) >= handed + 10,
        what="they are handed on",
    )
    assert running.metric("lockd_kept_seconds_count", outcome="locked") >= locked + 10
    eventually(lambda: running.metric("lockd_kept_tenures", **{"class": "kept"}) >= 1, what="it is kept")


def test_it_is_given_back_when_its_time_is_over(wire: Wire) -> None:
    for _ in range(3):
        once(wire, "soon:1")
    eventually(lambda: holder(wire, "soon:1") == {}, what="it is free")


def test_nothing_is_kept_that_no_class_says(wire: Wire) -> None:
    for _ in range(3):
        once(wire, "other")
    assert holder(wire, "other") == {}


def test_an_operator_takes_it_away(running: Cluster, wire: Wire) -> None:
    keep(wire, "kept:forced")
    assert lockctl(running, "force-release", "--yes", "kept:forced").returncode == 0
    assert holder(wire, "kept:forced") == {}


def test_another_host_that_does_not_wait_gets_what_is_only_kept(wire: Wire, another: Wire) -> None:
    kept_s = time.monotonic()
    keep(wire, "kept:wanted")
    # Where its host is slow to answer the recall, it is told so first.
    lease = eventually(lambda: as_map(another.ask("LOCK", "kept:wanted", TTL_MS)), not_yet=(TypeError,))
    assert time.monotonic() - kept_s < LONG_MS / 1_000, "it would be free then"
    assert kind(wire.ask("LOCK", "kept:wanted", TTL_MS)) == "TAKEN"
    assert another.ask("UNLOCK", "kept:wanted", lease[b"token"]) == 1


def test_another_host_that_waits_gets_what_is_only_kept(wire: Wire, another: Wire) -> None:
    keep(wire, "kept:waited")
    lease = as_map(another.ask("LOCK", "kept:waited", TTL_MS, "WAIT", LONG_MS // 2))
    assert another.ask("UNLOCK", "kept:waited", lease[b"token"]) == 1


def test_an_agent_that_keeps_it_and_does_not_answer_is_waited_for_as_long_as_the_configuration_says(
    running: Cluster, wire: Wire, another: Wire
) -> None:
    keep(wire, "kept:silent")
    with paused([running.agent]):
        asked_s = time.monotonic()
        answer = another.ask("LOCK", "kept:silent", TTL_MS)
        waited_s = time.monotonic() - asked_s
    assert kind(answer) == "TAKEN"
    assert "and its agent did not say whether it is in use" in str(answer)
    assert waited_s >= RECALL_MS / 1_000


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_an_agent_that_stops_gives_it_back_and_one_that_dies_leaves_that_to_the_next(
    running: Cluster, how: signal.Signals
) -> None:
    with Wire(running.socket) as wire:
        keep(wire, "kept:restart")
        keep(wire, "kept:held")
        held = token_of(wire.ask("LOCK", "kept:held", TTL_MS))
        if how is signal.SIGKILL:
            running.agent.kill()
        else:
            running.agent.stop(PATIENCE_S)
    running.agent.start()
    running.wait_voting(5)
    with Wire(running.socket) as wire:
        eventually(lambda: holder(wire, "kept:restart") == {}, what="it is free")
        assert wire.ask("UNLOCK", "kept:held", held) == 1


def test_a_reload_gives_it_back(running: Cluster, wire: Wire) -> None:
    keep(wire, "kept:reload")
    assert lockctl(running, "reload").returncode == 0
    eventually(lambda: holder(wire, "kept:reload") == {}, what="it is free")
