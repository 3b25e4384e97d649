"""The processes behind the connections, each known by a pidfd. So the end of a process is seen whatever
happens to its connections, and another process that gets its number later is not mistaken for it.

There is one pidfd for each process, from its first connection on until it has neither connections nor leases.
They are in a separate epoll, which costs the event loop nothing until a process dies.
"""

import asyncio
import os
import select
import socket
from collections.abc import Callable, Iterable
from functools import partial

from lockd.core.owners import Ends, Process
from lockd.core.takeover import CannotTell
from lockd.server.accounts import AccountOf, by_uid
from lockd.server.peer import Peer, has_ended, pidfd_of, start_ticks

_AT_ONCE = 64


class Processes:
    """ended: called with the leases of a process that has. account_of: as `Accounts.of`. most: how many may
    be watched now, since each is an open file; beyond that, leases belong to their connections. None: any
    number."""

    def __init__(
        self,
        ended: Callable[[Ends], None],
        most: Callable[[], int | None] = lambda: None,
        account_of: AccountOf = by_uid,
    ) -> None:
        self._most = most
        self._account_of = account_of
        self._ended = ended
        self._epoll = select.epoll()
        self._latest: dict[int, Process] = {}
        """By number: the process that has it, or had it last."""
        self._watched: dict[int, Process] = {}
        self._files: dict[Process, int] = {}

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_reader(self._epoll.fileno(), self._look)

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """More connections and processes may still end."""
        loop.remove_reader(self._epoll.fileno())

    @property
    def all(self) -> Iterable[Process]:
        return self._files.keys()

    def of(self, connection: socket.socket, peer: Peer) -> Process | None:
        """The process that has opened this connection; None when it can't be seen, or is dead already."""
        known = self._latest.get(peer.pid)
        if known is not None and not self._has_ended(known):
            return known
        return self._open(connection, peer) if peer.pid and self._has_room() else None

    def _has_room(self) -> bool:
        most = self._most()
        return most is None or len(self._files) < most

    def _open(self, connection: socket.socket, peer: Peer) -> Process | None:
        try:
            file = pidfd_of(connection, peer.pid)
        except OSError:
            return None
        process = self._made(peer.pid, _started(peer.pid), peer.uid)
        # After the look at its start: it really was at this process.
        if has_ended(file):
            os.close(file)
            return None
        self._watch(process, file)
        return process

    def _made(self, pid: int, started: int, uid: int) -> Process:
        process = Process(pid, started, uid)
        process.account = self._account_of(uid, pid, lambda account: setattr(process, "account", account))
        return process

    def adopt(self, pid: int, started: int, uid: int) -> int | None:
        """Watch the process that holds leases of the previous agent, if it is the one that began at that
        time. Returns when the process of that number began, None when there is none. Raises CannotTell."""
        known = self._latest.get(pid)
        if known is not None and not self._has_ended(known):
            if not known.started:
                raise CannotTell(f"/proc/{pid} did not say when it began")
            return known.started
        opened = _opened(pid)
        if opened is None:
            return None
        file, began = opened
        if began == started:
            self._watch(self._made(pid, began, uid), file)
        else:
            os.close(file)
        return began

    def living(self, pid: int, started: int) -> Process | None:
        """One that is watched."""
        known = self._latest.get(pid)
        return known if known is not None and known.started == started else None

    def _watch(self, process: Process, file: int) -> None:
        self._latest[process.pid] = process
        self._files[process] = file
        self._watched[file] = process
        self._epoll.register(file, select.EPOLLIN)

    def _has_ended(self, process: Process) -> bool:
        """Even before its end was heard of here."""
        return process.dead or has_ended(self._files[process])

    def left(self, process: Process) -> None:
        """A connection of it is ending."""
        process.is_left(partial(self._has_ended, process))

    def forget(self, process: Process) -> None:
        """It is idle, unless it was forgotten before."""
        file = self._files.pop(process, None)
        if file is None:
            return
        if self._latest.get(process.pid) is process:
            del self._latest[process.pid]
        if self._watched.pop(file, None) is not None:
            self._epoll.unregister(file)
        os.close(file)

    def _look(self) -> None:
        for file, _ in self._epoll.poll(0, _AT_ONCE):
            # It stays readable, and should be reported once.
            self._epoll.unregister(file)
            process = self._watched.pop(file)
            self._ended(process.died())
            if process.idle:
                self.forget(process)


def _started(pid: int) -> int:
    """0 if /proc is hidden from the agent."""
    try:
        return start_ticks(pid)
    except (OSError, ValueError, IndexError):
        return 0


def _opened(pid: int) -> tuple[int, int] | None:
    """A file for the process of that number, and when it began; None: there is none. Raises CannotTell."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    except OSError as failure:
        raise CannotTell(str(failure)) from failure
    began = _started(pid)
    # After the look at its start: it really was at this process.
    ended = has_ended(file)
    if began and not ended:
        return file, began
    os.close(file)
    if ended:
        return None
    raise CannotTell(f"/proc/{pid} does not say when it began")
