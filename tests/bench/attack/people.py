"""Processes of other users, each with a line to the one that has started it. All end with it."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pwd
import signal
import socket
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.harness.processes import children_of, state_of
from tests.harness.users import become

_FORK = multiprocessing.get_context("fork")
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

VICTIMS = ("www-data", "mail", "news")
GREEDY = "games"
GREEDY_USERS = (
    "games", "daemon", "bin", "sys", "man", "lp", "uucp", "proxy", "backup", "list", "irc", "nobody",
)  # fmt: skip
"""Of each Debian's user database: each is an account of its own."""
FIRST_OF_MANY = 100_000
"""Uids that one user gets by a user namespace (/etc/subuid)."""


def uid_of(name: str) -> int:
    return pwd.getpwnam(name).pw_uid


class Stage:
    """How a child says what it has done."""

    def __init__(self, line: Connection) -> None:
        self._line = line

    def ready(self) -> None:
        """It is at its height from now on: what victims see is measured."""
        self._line.send(("ready", time.monotonic()))

    def tell(self, name: str, value: float) -> None:
        """A figure for the row."""
        self._line.send((name, value))

    def give(self, result: Any) -> None:
        self._line.send(("result", result))

    def told_to_stop(self, within_s: float = 0.0) -> bool:
        return self._line.poll(within_s)


Work = Callable[[Stage], None]


class Person:
    """A process that does its work as a user; None: as the one who runs this."""

    def __init__(self, uid: int | None, work: Work, nice: int = 0) -> None:
        self._line, its = _FORK.Pipe()
        self._process = _FORK.Process(target=_live, args=(uid, work, nice, its), daemon=True)
        self._process.start()
        its.close()
        self.said: dict[str, Any] = {}

    def hear(self, wanted: str, within_s: float) -> Any:
        """What it says under that name; None when it has not in that time. RuntimeError: it has failed."""
        until_s = time.monotonic() + within_s
        while wanted not in self.said and self._line.poll(max(0.0, until_s - time.monotonic())):
            self._listen()
        return self.said.get(wanted)

    def listen(self) -> None:
        """To all that it has said until now."""
        while self._line.poll():
            self._listen()

    def _listen(self) -> None:
        try:
            name, value = self._line.recv()
        except EOFError:
            raise RuntimeError("a victim or an attacker has ended: see its traceback above") from None
        self.said[name] = value

    def stop(self) -> None:
        """It looks at `told_to_stop`."""
        self._line.send("stop")

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._line.close()


def start(stack: ExitStack, uid: int | None, work: Work, nice: int = 0) -> Person:
    person = Person(uid, work, nice)
    stack.callback(person.end)
    return person


def _live(uid: int | None, work: Work, nice: int, line: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(nice)
    if uid is not None:
        become(uid)
    die_with_parent()
    work(Stage(line))


def die_with_parent() -> None:
    """Behind every change of user, which takes it back."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def take_in_orphans() -> None:
    """Children of attackers that were ended become this process's, wherever there is no init that waits for
    the dead."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def bury_orphans(known: Collection[int]) -> None:
    """All dead children but those that are known here: whoever has started those waits for them."""
    for pid in children_of(os.getpid()):
        if pid not in known and state_of(pid) == "Z":
            os.waitpid(pid, 0)


def connected(path: Path, count: int) -> list[socket.socket]:
    links = []
    for _ in range(count):
        link = socket.socket(socket.AF_UNIX)
        links.append(link)
        link.connect(str(path))
    return links


def connected_by(uid: int, path: Path, count: int) -> list[socket.socket]:
    """Connections that a child of that user has made and handed over. It lives as long as this process: the
    agent knows it, as it knows any process of that user."""
    ours, its = socket.socketpair(socket.AF_UNIX)
    if os.fork() == 0:
        _hand_over(uid, path, count, its)
    its.close()
    links: list[socket.socket] = []
    with ours:
        while len(links) < count:
            _, files, _, _ = socket.recv_fds(ours, 16, _FILES_AT_ONCE)
            if not files:
                break
            links += [socket.socket(fileno=file) for file in files]
    return links


_FILES_AT_ONCE = 200  # the kernel hands over at most 253


def _hand_over(uid: int, path: Path, count: int, to: socket.socket) -> None:
    """In a child, which never returns. What others have handed over must not stay open here."""
    try:
        os.closerange(3, to.fileno())
        os.closerange(to.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        become(uid)
        die_with_parent()
        links = connected(path, count)
        for first in range(0, count, _FILES_AT_ONCE):
            some = [link.fileno() for link in links[first : first + _FILES_AT_ONCE]]
            socket.send_fds(to, [b"here"], some)
        for link in links:
            link.close()
        to.close()
        signal.pause()
    finally:
        os._exit(1)
