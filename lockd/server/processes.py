"""The processes behind the connections, each known by a pidfd. So the end of a process is seen whatever
happens to its connections, and another process that gets its number later is not mistaken for it.

There is one pidfd for each process, from its first connection on until it has neither connections nor leases.
They are in a separate epoll, which costs the event loop nothing until a process dies.
"""

import asyncio
import errno
import os
import select
import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from lockd.core.owners import Ends, Process
from lockd.core.takeover import CannotTell
from lockd.server.accounts import AccountOf, by_uid
from lockd.server.peer import Peer, has_ended, pidfd_of, start_ticks

_AT_ONCE = 64
_NO_MORE_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class NoRoom(Exception):
    """No file may be opened for a connection or its process; the text says why."""


class Files(Protocol):
    """How many files each account may have open."""

    def refuse_connection(self, account: str, *, of_new_process: bool) -> str | None: ...

    def watches(self, account: str) -> None: ...

    def watches_no_more(self, account: str) -> None: ...


class Processes:
    """ended: called with the leases of a process that has. files: each process is an open file, for which its
    account pays. account_of: as `Accounts.of`."""

    def __init__(
        self,
        ended: Callable[[Ends], None],
        files: Files,
        account_of: AccountOf = by_uid,
    ) -> None:
        self._shared_files = files
        self._account_of = account_of
        self._ended = ended
        self._epoll = select.epoll()
        self._latest: dict[int, Process] = {}
        """By number: the process that has it, or had it last."""
        self._watched: dict[int, Process] = {}
        self._files: dict[Process, tuple[int, str]] = {}
        """The file of each, and who pays for it."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_reader(self._epoll.fileno(), self._look)

    def stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """More connections and processes may still end."""
        loop.remove_reader(self._epoll.fileno())

    @property
    def all(self) -> Iterable[Process]:
        return self._files.keys()

    def behind(
        self, connection: socket.socket, peer: Peer, changed: Callable[[str], None]
    ) -> tuple[Process | None, str]:
        """The process that has opened this connection, and the account that pays. It is looked for when the
        connection is let in, and never again: later its number may be another's. None when it can't be seen,
        or is dead already: what is locked by a child that goes on with the connection ends with that (rule
        13). changed: as for `Accounts.of`. Raises NoRoom."""
        file = _file_of(connection, peer.pid)
        try:
            process = None if file is None else self._seen(file, peer, changed)
            account = self._account_of(peer.uid, 0, changed) if process is None else process.account
            new = process if process not in self._files else None
            refusal = self._shared_files.refuse_connection(account, of_new_process=new is not None)
            if refusal is not None:
                raise NoRoom(refusal)
            if file is not None and new is not None:
                self._watch(new, file)
                file = None
            return process, account
        finally:
            if file is not None:
                os.close(file)

    def _seen(self, file: int, peer: Peer, changed: Callable[[str], None]) -> Process | None:
        """file: of the process that has connected."""
        process = self._living(peer.pid)
        if process is None:
            account = self._account_of(peer.uid, peer.pid, changed)
            process = Process(peer.pid, _started(peer.pid), peer.uid, account)
        # After all that was looked up by its number, which was its own only if it is alive.
        return None if has_ended(file) else process

    def _living(self, pid: int) -> Process | None:
        known = self._latest.get(pid)
        return known if known is not None and not self._has_ended(known) else None

    def _made(self, pid: int, started: int, uid: int) -> Process:
        process = Process(pid, started, uid)
        process.account = self._account_of(uid, pid, lambda account: setattr(process, "account", account))
        return process

    def adopt(self, pid: int, started: int, uid: int) -> int | None:
        """Watch the process that holds leases of the previous agent, if it is the one that began at that
        time. Returns when the process of that number began, None when there is none. Raises CannotTell."""
        known = self._living(pid)
        if known is not None:
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
        self._files[process] = file, process.account
        self._shared_files.watches(process.account)
        self._watched[file] = process
        self._epoll.register(file, select.EPOLLIN)

    def _has_ended(self, process: Process) -> bool:
        """Even before its end was heard of here."""
        return process.dead or has_ended(self._files[process][0])

    def left(self, process: Process) -> None:
        """A connection of it is ending."""
        process.is_left(partial(self._has_ended, process))

    def forget(self, process: Process) -> None:
        """It is idle, unless it was forgotten before."""
        if process not in self._files:
            return
        file, account = self._files.pop(process)
        self._shared_files.watches_no_more(account)
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


def _file_of(connection: socket.socket, pid: int) -> int | None:
    """A file for the process that has connected; None when there is none any more, or it can't be seen.
    Raises NoRoom."""
    if not pid:
        return None
    try:
        return pidfd_of(connection, pid)
    except OSError as failure:
        if failure.errno in _NO_MORE_FILES:
            raise NoRoom(f"files: the agent can't open any more ({failure.strerror})") from failure
        return None


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
