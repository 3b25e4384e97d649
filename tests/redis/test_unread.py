"""Users who don't read what they asked for, or never end what they ask: it costs them, and nobody else."""

from __future__ import annotations

import array
import fcntl
import os
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockd.config.current import Current
from lockd.server.quotas import Quotas
from tests.harness.attackers import attacker
from tests.harness.cluster import Cluster
from tests.harness.configs import a_config
from tests.harness.processes import memory_kib, stopped
from tests.harness.terminal import unread_terminal
from tests.harness.users import DAEMON, NOBODY, Connect, cluster_for_all_users, refusals
from tests.harness.waiting import eventually
from tests.harness.wire import Bystander, Wire, kind, request, token_of

MIB = 1 << 20
MEMORY_MOST_KIB = 16 * 1024
"""Far below what is thrown at it, which was kept once: 80 MiB and more."""
LIMITS = {
    "memory_mib": 200,
    "files": 100_000,
    "share_percent": 2,
    "renewals_per_second": 1_000_000,
    "unread_bytes": MIB // 2,
    "unread_ms": 60_000,
}
MOST = Quotas(Current(a_config(limits=LIMITS))).bytes.most_of("uid 1")
CONNECTIONS = 200
DEAF_MS = 600
RENEWED_OFTEN_MS = 1_500
TTL_MS = 30_000
LONG = request("COMMAND", "DOCS") * 20


@pytest.fixture(scope="module")
def cluster(server_binary: Path) -> Iterator[Cluster]:
    with cluster_for_all_users(limits=LIMITS) as running:
        yield running


@pytest.fixture(scope="module")
def impatient(server_binary: Path) -> Iterator[Cluster]:
    with cluster_for_all_users(limits={**LIMITS, "unread_ms": DEAF_MS}) as running:
        yield running


def buffered(wire: Wire) -> int:
    return int(wire.info()["buffered_bytes"])


def connections(wire: Wire) -> int:
    return int(wire.info()["connected_clients"])


def unread_bytes(wire: Wire) -> int:
    """What the kernel keeps of replies that nobody has read."""
    unread = array.array("i", [0])
    fcntl.ioctl(wire.socket, termios.FIONREAD, unread)
    return unread[0]


@pytest.mark.parametrize("attack", ["unread", "echo", "half", "behind"])
def test_however_much_is_asked_for_or_half_asked_for_only_so_much_is_kept(
    cluster: Cluster, connect: Connect, attack: str
) -> None:
    before, before_kib = refusals(cluster, "bytes"), memory_kib(cluster.agent.pid)
    other = connect(cluster, DAEMON)
    half = request("ECHO", "x" * 60_000)
    other.send_raw(half[:50_000])
    with Wire(cluster.socket) as watcher, Bystander(cluster.socket) as bystander:
        eventually(lambda: buffered(watcher) >= 50_000, "half of another's request is kept")
        others = connections(watcher)
        with attacker(NOBODY, cluster.socket, CONNECTIONS, attack) as has_said_all:
            with stopped(cluster.agent.pid):  # it finds all of it at once
                has_said_all()
            kept = [0]

            def is_cut_off() -> bool:
                kept.append(buffered(watcher))
                return refusals(cluster, "bytes") > before

            eventually(is_cut_off, "he is over his share")
            rounds = bystander.rounds
            eventually(lambda: is_cut_off() and bystander.went_on(3, rounds), "others go on")
            assert connections(watcher) < others + CONNECTIONS, "he has lost some"
            assert max(kept) <= MOST + 64_000
            assert memory_kib(cluster.agent.pid) - before_kib < MEMORY_MOST_KIB
        eventually(lambda: buffered(watcher) < 60_000, "nothing of his is kept any more")
    other.send_raw(half[50_000:])
    assert other.reply() == b"x" * 60_000


def test_the_kernel_keeps_little_for_one_who_does_not_read(cluster: Cluster, connect: Connect) -> None:
    wire, watcher = connect(cluster, NOBODY), connect(cluster)
    wire.send_raw(LONG)
    eventually(lambda: unread_bytes(wire) > 0 and buffered(watcher) > 0, "more than the kernel took")
    # Twice what it is told to keep, and what was written at once before it said no.
    assert unread_bytes(wire) <= 3 * 16_384


def test_losses_that_nobody_asks_about_are_kept_within_the_same_bound(
    cluster: Cluster, connect: Connect
) -> None:
    before, watcher, kept = refusals(cluster, "bytes"), connect(cluster), [0]

    def is_refused() -> bool:
        kept.append(buffered(watcher))
        return refusals(cluster, "bytes") > before

    with attacker(NOBODY, cluster.socket, 160, "lost"):
        eventually(is_refused, "he may have no more, leases and losses together")
        assert is_refused()
    assert max(kept) <= MOST


def test_one_who_does_not_read_in_time_is_closed_and_told_of_in_the_log(
    impatient: Cluster, connect: Connect
) -> None:
    before = refusals(impatient, "unread_ms")
    deaf, reads = connect(impatient, NOBODY), connect(impatient, NOBODY)
    deaf.send_raw(LONG)
    eventually(lambda: refusals(impatient, "unread_ms") == before + 1, "it is closed")
    assert deaf.rest()
    assert reads.ask("PING") == b"PONG"
    told = f'event=limit limit="unread_ms: it did not read its replies for {DEAF_MS} ms"'
    assert told in impatient.log_text()


def test_what_a_closed_one_held_is_nobody_elses_before_the_deadline_that_it_was_told(
    impatient: Cluster, connect: Connect
) -> None:
    before = refusals(impatient, "unread_ms")
    deaf, other = connect(impatient, NOBODY), connect(impatient, DAEMON)
    token_of(deaf.ask("LOCK", "deaf", TTL_MS))
    deaf.send_raw(LONG)
    eventually(lambda: refusals(impatient, "unread_ms") == before + 1, "it is closed")
    assert kind(other.ask("LOCK", "deaf", TTL_MS)) == "TAKEN"
    assert impatient.metric("lockd_losses_total", reason="cut_off") == 1
    # That it ends then, and not before, is shown in tests/unit/locks/test_renewals.py, where nobody waits.
    assert connect(impatient).ask("FORCERELEASE", "deaf") > 0
    token_of(other.ask("LOCK", "deaf", TTL_MS, "WAIT", TTL_MS))


def test_a_holder_need_not_read_what_it_is_told_while_it_works(impatient: Cluster, connect: Connect) -> None:
    def renewals() -> float:
        return impatient.metric("lockd_renewals_total", outcome="worked")

    def all_are_kept() -> bool:
        """False when some were lost because this machine stood still, which they can't outlast: once more."""
        wire = connect(impatient, NOBODY)
        wire.ask("HELLO", 3)
        names = [f"work {number}" for number in range(50)]
        tokens = [token_of(wire.ask("LOCK", name, RENEWED_OFTEN_MS, "NOTIFY")) for name in names]
        before = renewals()
        # It is told of each; the kernel takes some forty, and what comes after them would be unread for long.
        eventually(lambda: renewals() > before + 300, "they are renewed")
        kept = [wire.ask("UNLOCK", *lease) for lease in zip(names, tokens, strict=True)]
        assert len(wire.pushes) > 10
        return kept == [1] * len(names)

    eventually(all_are_kept, "he has kept all that he held")


def test_an_agent_whose_terminal_nobody_reads_goes_on(impatient: Cluster) -> None:
    """Its first line finds no room."""
    agent = impatient.agent
    agent.stop()
    with unread_terminal() as terminal, pytest.MonkeyPatch.context() as patch:
        writes_there = ("sh", "-c", 'exec "$@" 2>"$0"', os.ttyname(terminal), *agent.command)
        patch.setattr(agent, "command", writes_there)
        agent.start()
        assert agent.stop() == 0
    agent.start()
