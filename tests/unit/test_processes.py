"""Processes behind connections, by their pidfds; and what the kernel tells of the other end of a socket."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from lockd.config.current import Current
from lockd.core.owners import Connection, Delivery, Ends, Process
from lockd.core.takeover import CannotTell
from lockd.server import processes as processes_module
from lockd.server.deliveries import delivery_to, is_open
from lockd.server.peer import Peer, start_ticks
from lockd.server.processes import NoRoom, Processes
from lockd.server.quotas import Quotas
from tests.harness.configs import a_config
from tests.harness.waiting import until


class Child:
    """A process with a connection to us. It does nothing until it is ended."""

    def __init__(self, listening: socket.socket) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            with socket.socket(socket.AF_UNIX) as link:
                link.connect(listening.getsockname())
                signal.pause()
            os._exit(0)
        self.connection = listening.accept()[0]
        self.peer = Peer.of(self.connection)

    def end(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("")  # the kernel finds it a name
        one.listen()
        yield one


@pytest.fixture
def child(listening: socket.socket) -> Iterator[Child]:
    one = Child(listening)
    yield one
    one.end()
    one.connection.close()


@pytest.fixture
def ended() -> list[Ends]:
    return []


ACCOUNT = "an app"


@pytest.fixture
def quotas() -> Quotas:
    """One account may have a few files more than its floor, which is 8."""
    return Quotas(Current(a_config(limits={"files": 1_120, "share_percent": 2})))


@pytest.fixture
def processes(ended: list[Ends], quotas: Quotas) -> Processes:
    return Processes(ended.append, quotas, lambda _uid, pid, _changed: ACCOUNT if pid else "not seen")


def behind(processes: Processes, child: Child, peer: Peer | None = None) -> tuple[Process | None, str]:
    return processes.behind(child.connection, peer or child.peer, lambda _account: None)


def known_of(processes: Processes, child: Child) -> Process:
    """The process behind its connection."""
    known, account = behind(processes, child)
    assert known is not None
    assert account == ACCOUNT
    return known


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_of_a_process_one_file_is_open_until_there_is_nothing_to_know_it_for(
    processes: Processes, child: Child
) -> None:
    before = files()
    known = known_of(processes, child)
    assert (known.pid, known.started > 0) == (child.pid, True)
    assert known_of(processes, child) is known
    assert files() == before + 1
    processes.forget(known)
    processes.forget(known)
    assert files() == before
    assert list(processes.all) == []


def test_who_cannot_be_seen_or_is_dead_already_is_nobody(
    processes: Processes, quotas: Quotas, child: Child
) -> None:
    before = files()
    assert behind(processes, child, Peer(0, 0, frozenset())) == (None, "not seen")
    child.end()
    assert behind(processes, child) == (None, "not seen")
    assert list(processes.all) == []
    assert quotas.files.held == {}
    assert files() == before


@pytest.mark.parametrize("is_known", [True, False])
def test_a_connection_of_one_that_has_ended_is_none_of_who_has_its_number_now(
    processes: Processes, listening: socket.socket, child: Child, monkeypatch: Any, is_known: bool
) -> None:
    """It would be charged for the connection, and what it held would be kept while that is open."""
    other, file_of_child = Child(listening), os.pidfd_open(child.pid)
    known = known_of(processes, other) if is_known else None
    try:
        child.end()
        monkeypatch.setattr(processes_module, "pidfd_of", lambda *_: file_of_child)
        assert behind(processes, child, other.peer) == (None, "not seen")
        assert list(processes.all) == ([known] if known else [])
    finally:
        other.end()
        other.connection.close()


def test_a_connection_for_whose_process_its_account_has_no_file_left_is_not_let_in(
    processes: Processes, quotas: Quotas, child: Child
) -> None:
    """Its locks would belong to the connection, which is weaker than asked; and when there is room again,
    its number may be another's."""
    quotas.files.take(ACCOUNT, quotas.files.most_of(ACCOUNT) - 1)
    before = files()
    with pytest.raises(NoRoom, match=r"^files: an app has "):
        behind(processes, child)
    assert (files(), list(processes.all)) == (before, [])
    quotas.files.give_back(ACCOUNT, 1)
    known = known_of(processes, child)
    assert known_of(processes, child) is known, "it takes no other file"


def test_where_the_agent_can_open_no_more_files_nobody_is_taken_for_one_that_cannot_be_seen(
    processes: Processes, child: Child, monkeypatch: Any
) -> None:
    def fails(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(processes_module, "pidfd_of", fails)
    with pytest.raises(NoRoom, match=r"^files: the agent can't open any more \(Too many open files\)"):
        behind(processes, child)


def test_whatever_others_have_each_account_has_files_for_its_processes(
    processes: Processes, quotas: Quotas, child: Child
) -> None:
    for greedy in range(30):
        while quotas.refuse_connection(f"greedy {greedy}", of_new_process=False) is None:
            quotas.connected(f"greedy {greedy}")
    for _ in range(quotas.files.floor - 2):
        quotas.connected(ACCOUNT)
    assert known_of(processes, child)


def test_a_process_is_a_file_of_its_account_until_there_is_nothing_to_know_it_for(
    processes: Processes, quotas: Quotas, child: Child
) -> None:
    known = known_of(processes, child)
    assert quotas.files.held == {ACCOUNT: 1}
    known.account = "another, as the user database has said since"
    processes.forget(known)
    processes.forget(known)
    assert quotas.files.held == quotas.bytes.held == {}


def test_of_one_that_is_known_and_that_proc_did_not_tell_of_nobody_can_say_whether_it_is_that_one(
    processes: Processes, child: Child, monkeypatch: Any
) -> None:
    """A lease of it in a journal that this agent got late is not that of a dead one."""
    with monkeypatch.context() as patch:
        patch.setattr(processes_module, "start_ticks", lambda _pid: int("no files left"))
        known_of(processes, child)
    with pytest.raises(CannotTell):
        processes.adopt(child.pid, start_ticks(child.pid), 0)


@pytest.mark.parametrize("pidfds_of_peers", [True, False])
def test_another_process_of_the_same_number_is_another_one(
    processes: Processes, listening: socket.socket, child: Child, monkeypatch: Any, pidfds_of_peers: bool
) -> None:
    if not pidfds_of_peers:
        monkeypatch.setattr(processes_module, "pidfd_of", lambda _connection, pid: os.pidfd_open(pid))
    first = known_of(processes, child)
    other = Child(listening)
    try:
        child.end()
        as_the_first = Peer(child.peer.pid, 0, frozenset())
        monkeypatch.setattr(processes_module, "pidfd_of", lambda *_: os.pidfd_open(other.pid))
        second, _ = behind(processes, other, as_the_first)
        assert second is not None
        assert second is not first
        processes.forget(first)
        assert behind(processes, other, as_the_first)[0] is second, "the end of the first is none of its"
    finally:
        other.end()
        other.connection.close()


async def test_its_death_ends_what_it_held_and_is_told_of_once(
    processes: Processes, child: Child, ended: list[Ends]
) -> None:
    loop = asyncio.get_running_loop()
    processes.start(loop)
    process, lease = known_of(processes, child), object()
    process.leases[lease] = None  # type: ignore[index]
    child.end()
    await until(lambda: ended, what="its end is told of")
    assert [list(ends) for ends in ended] == [[lease]]
    assert list(processes.all) == []
    processes.stop(loop)


def test_the_last_connection_tells_of_a_death_before_it_was_heard_of(
    processes: Processes, child: Child
) -> None:
    process = known_of(processes, child)
    port: Any = SimpleNamespace()
    connections = [Connection(port, process) for _ in range(2)]
    child.end()
    processes.left(process)
    assert not process.dead, "there is another one"
    connections.pop().closed(Delivery.READ)
    processes.left(process)
    assert process.dead


@pytest.mark.parametrize(
    ("failure", "tells"),
    [
        (ProcessLookupError(), True),
        (OSError(errno.EMFILE, "no more files"), False),
        (PermissionError(), False),
    ],
    ids=["there is none", "no more files", "not permitted"],
)
def test_only_where_there_is_no_such_process_is_it_known_to_be_dead(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, failure: OSError, tells: bool
) -> None:
    def fails(_pid: int) -> int:
        raise failure

    monkeypatch.setattr(processes_module.os, "pidfd_open", fails)
    if tells:
        assert processes.adopt(4711, 1, 0) is None
    else:
        with pytest.raises(CannotTell):
            processes.adopt(4711, 1, 0)


# What the kernel tells

Ends_ = Callable[[socket.socket, socket.socket], object]


def _reset(_ours: socket.socket, its: socket.socket) -> None:
    its.close()


def _shut_both_ways(_ours: socket.socket, its: socket.socket) -> None:
    its.shutdown(socket.SHUT_RDWR)


def _shut_writing(_ours: socket.socket, its: socket.socket) -> None:
    its.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    ("read_bytes", "ending", "delivery", "open_"),
    [
        (9, None, Delivery.READ, True),
        (4, None, Delivery.UNREAD, True),
        (9, _shut_writing, Delivery.READ, True),
        (0, _shut_writing, Delivery.UNREAD, True),
        (9, _reset, Delivery.READ, False),
        (4, _reset, Delivery.CUT, False),
        (9, _shut_both_ways, Delivery.READ, False),
        (0, _shut_both_ways, Delivery.CUT, False),
    ],
)
def test_what_was_written_is_known_to_be_read_or_not_by_who_has_closed_or_not(
    read_bytes: int, ending: Ends_ | None, delivery: Delivery, open_: bool
) -> None:
    ours, its = socket.socketpair(socket.AF_UNIX)
    with ours, its:
        ours.sendall(b"nine more")
        if read_bytes:
            its.recv(read_bytes)
        if ending is not None:
            ending(ours, its)
        assert (delivery_to(ours.fileno()), is_open(ours.fileno())) == (delivery, open_)
