"""A process that connected and has ended: its number may be another's by now, who is not taken for it.

Two things tell, each where the other can't: a pidfd of the peer, which older kernels don't give, and the
start of the process that has the number now, which says nothing when that began within the same hundredth of
a second.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

from lockd.clock import boottime_ns
from lockd.server import namespaces
from lockd.server.namespaces import why_not_here
from lockd.server.peer import peer_pidfd

ENDED = "the process that connected has ended"


def knows_pidfds_of_peers() -> bool:
    ours, its = socket.socketpair()
    with ours, its:
        found = peer_pidfd(ours)
        if found is not None:
            os.close(found)
        return found is not None


class Peer:
    """A process at the other end of a connection. It does nothing until it is ended."""

    def __init__(self) -> None:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind("")  # the kernel finds it a name
        listening.listen()
        self.pid = os.fork()
        if self.pid == 0:
            with socket.socket(socket.AF_UNIX) as link:
                link.connect(listening.getsockname())
                signal.pause()
            os._exit(0)
        self.connection = listening.accept()[0]
        self.connected_ns = boottime_ns()
        listening.close()

    def end(self) -> None:
        """Ended and collected: its number is free."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


@pytest.fixture
def peer() -> Iterator[Peer]:
    one = Peer()
    yield one
    one.end()
    one.connection.close()


@pytest.fixture
def later(peer: Peer) -> Iterator[int]:
    """The number of a process that began after the peer had connected, by the clock of /proc."""
    while boottime_ns() < peer.connected_ns + 2 * namespaces._TICK_NS:
        pass
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


def test_one_that_lives_is_seen_to_be_here(peer: Peer) -> None:
    assert why_not_here(peer.connection, peer.pid, peer.connected_ns) is None


def test_without_a_pidfd_it_is_the_start_that_tells_another_process_of_the_same_number(
    peer: Peer, later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "peer_pidfd", lambda _connection: None)
    peer.end()
    assert why_not_here(peer.connection, later, peer.connected_ns) == ENDED


@pytest.mark.skipif(not knows_pidfds_of_peers(), reason="this kernel gives no pidfd of a peer (before 6.5)")
def test_one_that_began_in_the_same_moment_is_told_by_the_pidfd(
    peer: Peer, later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "start_ticks", lambda _pid: 0)
    peer.end()
    assert why_not_here(peer.connection, later, peer.connected_ns) is not None


@pytest.mark.skipif(not knows_pidfds_of_peers(), reason="this kernel gives no pidfd of a peer (before 6.5)")
def test_one_that_ends_while_it_is_looked_at_was_perhaps_not_what_was_looked_at(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = namespaces._looked_at

    def look(pid: int, connected_ns: int) -> str | None:
        told = looked_at(pid, connected_ns)
        peer.end()
        return told

    monkeypatch.setattr(namespaces, "_looked_at", look)
    assert why_not_here(peer.connection, peer.pid, peer.connected_ns) == ENDED
