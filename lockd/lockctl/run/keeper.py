"""The command of `lockctl run`, and the keeper that keeps everything it starts within reach.

    lockctl ──▶ keeper ──▶ the command ──▶ … what it starts, even daemons and processes that left its group

The keeper is a process of ours that does nothing else. A process below it that loses its parent becomes its
child (the keeper is a subreaper). So nothing that the command has started can hide from a walk down from the
keeper, and the kernel tells the keeper when the last one is gone. When lockctl is killed with -9, the keeper
lives on until it has ended them all, which takes a moment. Until then it keeps the connection to the agent
open: the lock isn't free before. It has inherited the first connection; a later one, to another agent, is in
a socket that it never reads.

When the keeper is killed, the processes are handed to lockctl. When both are killed at once, the first
process of the command gets SIGKILL from the kernel because its parent has ended. Its group gets it because of
the lifeline, a pipe that it inherits, whose writer, lockctl, is gone. Only in that case are processes out of
reach that have left the group, or closed the pipe.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from lockd.lockctl.errors import CannotExecute
from lockd.lockctl.run.descendants import Descendants, Process, Sent, children_of, look_at
from lockd.lockctl.run.signals import ENDS
from lockd.lockctl.run.terminal import say

PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_NUMBER = struct.Struct("=i")
# Between two walks that kill: processes that were killed need a moment to be gone.
_WALK_AGAIN_S = 0.002
_PARENT_ENDED = signal.SIGTERM


@dataclass(frozen=True, slots=True)
class Start:
    """The command, its whole environment, and what its first process does just before it becomes the
    command."""

    command: Sequence[str]
    environment: Mapping[bytes, bytes]
    prepare: Callable[[], None]


class CommandProcess:
    """The command and everything that it has started. `id` is its first process, and its group."""

    def __init__(self, start: Start) -> None:
        """Raises CannotExecute."""
        self._strangers = children_of(os.getpid())
        if not self._strangers:
            # A shell that became lockctl by `exec` may have left us children. They don't belong to the
            # command.
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._lifeline, self._held_end = os.pipe()
        self._statuses, statuses_end = os.pipe()
        self._keeps, self._kept = socket.socketpair()
        report, report_end = os.pipe()
        ours = os.getpid()
        self._keeper = os.fork()
        if self._keeper == 0:
            for file in (self._held_end, self._statuses, report):
                os.close(file)
            _Keeper(ours, start, self._lifeline, statuses_end).run(report_end)
        os.close(statuses_end)
        os.close(report_end)
        failure = os.read(report, _NUMBER.size)
        os.close(report)
        self.id = self._number() or 0
        if failure:
            os.waitpid(self._keeper, 0)
            raise CannotExecute(start.command[0], _NUMBER.unpack(failure)[0], self.id)
        os.set_blocking(self._statuses, False)
        self.kept = True
        """The keeper is there. False: everything has ended, or the keeper was killed."""
        self.gone = False
        """Nothing of it is left."""
        self.keeper_got: set[int] = set()
        """Signals that end commands. Who sends one to the keeper sends it to all, as systemd does."""
        self._ended = False
        self._keeps_one = False
        self._below_keeper = Descendants(self._keeper)
        self._below_us = Descendants(ours, self._strangers)

    def keep_open(self, file: int) -> None:
        """Have the keeper keep this connection open, instead of the one before."""
        self._keeps.setblocking(False)
        self._kept.setblocking(False)
        with suppress(OSError):
            socket.send_fds(self._keeps, [b"."], [file])
        if self._keeps_one:
            for before in socket.recv_fds(self._kept, 1, 1)[1]:
                os.close(before)
        self._keeps_one = True

    def fileno(self) -> int:
        """Readable when `changes` has something to report."""
        return self._statuses

    def changes(self) -> Iterator[int]:
        """How its first process has stopped or ended since the last time, as wait statuses."""
        with suppress(BlockingIOError):
            while (status := self._number()) is not None:
                if status < 0:
                    self.keeper_got.add(-status)
                    continue
                self._ended |= not os.WIFSTOPPED(status)
                if not (os.WIFSTOPPED(status) and self._goes_on()):
                    yield status
            self._lose_keeper()
        if not self.kept and not self.gone:
            yield from self._own_changes()

    def _goes_on(self) -> bool:
        """It was continued after the keeper saw that it had stopped: the kernel would not report such a
        stop."""
        first = look_at(self.id)
        return first is not None and not first.stopped

    def _number(self) -> int | None:
        """The keeper's next message; None when it has ended."""
        data = os.read(self._statuses, _NUMBER.size)
        return _NUMBER.unpack(data)[0] if data else None

    def _lose_keeper(self) -> None:
        if self.kept:
            self.kept = False
            _, status = os.waitpid(self._keeper, 0)
            self.gone = status == 0

    def _own_changes(self) -> Iterator[int]:
        """The keeper was killed, and with it the command's first process. The other processes are handed to
        us."""
        if not self._ended:
            self._ended = True
            yield int(signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                """Collected."""
        except ChildProcessError:
            self.gone = True

    def send_group(self, number: int) -> None:
        """A signal to its group, as a terminal sends it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.id, number)

    def send_all(self, number: int) -> Sent:
        """A signal to everything that it has started: to its group at once, then to the others."""
        self.send_group(number)
        beside = None if number == signal.SIGKILL else self.id
        sent = (self._below_keeper if self.kept else self._below_us).send(number, beside=beside)
        # If there are strangers, no process is handed to us, and only a walk can tell. Otherwise the kernel
        # does, in _own_changes: a process that ends during the walk hands its children to us without notice.
        if self._strangers and not (self.kept or sent.reached or sent.spared):
            self.gone = True
        return sent

    def let_go(self) -> None:
        """What the command has left in the background may outlive us."""
        fcntl.fcntl(self._lifeline, fcntl.F_SETFL, 0)
        if self.kept:
            self.kept = False
            os.kill(self._keeper, signal.SIGKILL)
            os.waitpid(self._keeper, 0)


class _Keeper:
    """The keeper's side, in a process that never returns to the caller."""

    def __init__(self, parent: int, start: Start, lifeline: int, statuses: int) -> None:
        self._parent = parent
        self._start = start
        self._lifeline = lifeline
        self._statuses = statuses
        self._command = 0

    def run(self, report: int) -> NoReturn:
        """0: everything has ended."""
        status = 1
        try:
            self._begin(report)
            self._watch()
            status = 0
        except OSError as error:
            _report(report, error)
        finally:
            os._exit(status)

    def _begin(self, report: int) -> None:
        """It reacts only to the end of a child and of its parent, and is out of reach of the terminal."""
        signal.set_wakeup_fd(-1)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        os.setpgid(0, 0)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(PR_SET_PDEATHSIG, _PARENT_ENDED)
        if os.getppid() != self._parent:
            return  # it was killed before we could be told
        ours = os.getpid()
        self._command = os.fork()
        if self._command == 0:
            _become(self._start, ours, self._lifeline, report, before)
        os.write(self._statuses, _NUMBER.pack(self._command))
        os.close(report)

    def _watch(self) -> None:
        """Until the last process has ended. Processes that are left when lockctl has ended are ended here."""
        while self._collect():
            if os.getppid() != self._parent:
                self._end_all()
                return
            number = signal.sigwait((signal.SIGCHLD, *ENDS))
            if number != signal.SIGCHLD and os.getppid() == self._parent:
                self._report(-number)

    def _report(self, number: int) -> None:
        """A wait status, or the negative number of a signal."""
        with suppress(OSError):
            os.write(self._statuses, _NUMBER.pack(number))

    def _collect(self) -> bool:
        """Collect processes that have ended, and report how the command ended. False: none is left."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                if pid == 0:
                    return True
                if pid == self._command:
                    self._report(status)
        return False

    def _end_all(self) -> None:
        below, before = Descendants(os.getpid()), Sent(reached=1)
        while self._collect():
            sent = below.send(signal.SIGKILL)
            # A process that a walk missed, because its parent ended meanwhile, is found by the next one.
            if sent.spared and not (before.reached or sent.reached):
                say(f"it was killed. {cannot_be_ended(sent.spared)}")
                return
            before = sent
            time.sleep(_WALK_AGAIN_S)


def cannot_be_ended(processes: Sequence[Process]) -> str:
    names = ", ".join(map(str, processes))
    if len(processes) == 1:
        return f"{names} runs as another user and can't be killed: it goes on without the lock"
    return f"{names} run as other users and can't be killed: they go on without the lock"


def _become(start: Start, parent: int, lifeline: int, report: int, mask: Iterable[int]) -> NoReturn:
    """In the child of the keeper: turn into the command. mask: the signals that were blocked before."""
    try:
        os.setpgid(0, 0)
        start.prepare()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            _tie_group_to(lifeline)
            # Python ignores these two, and the command would inherit that.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            os.execvpe(start.command[0], list(start.command), start.environment)
    except OSError as error:
        _report(report, error)
    finally:
        os._exit(127)


def _tie_group_to(lifeline: int) -> None:
    """Have our group killed when the lifeline loses its writer. The command inherits it."""
    os.set_inheritable(lifeline, True)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.FASYNC)


def _prctl(option: int, value: int) -> None:
    # Only here: it loads a library, and most that import this start nothing.
    import ctypes

    ctypes.CDLL(None).prctl(option, int(value), 0, 0, 0)


def _report(report: int, error: OSError) -> None:
    with suppress(OSError):
        os.write(report, _NUMBER.pack(error.errno or errno.EIO))
