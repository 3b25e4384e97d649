"""The processes below one of ours: found in /proc, and sent signals.

The tree goes on changing meanwhile: it may fork faster than it is read. So a walk kills each process as it
finds it, and is repeated. It never decides that none is left. The kernel does: processes are handed to a
subreaper as their parents end (see lockctl/run/keeper.py), and that one then has no child any more.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    name: str
    parent: int
    group: int
    state: str
    """A letter, as in proc(5)."""

    @property
    def ended(self) -> bool:
        """It has ended and is not collected yet. Some of its threads may still live."""
        return self.state == "Z"

    @property
    def stopped(self) -> bool:
        return self.state == "T"

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


@dataclass(slots=True)
class Sent:
    """How many living processes got a signal, and which could not be sent it: those run as another user."""

    reached: int = 0
    spared: list[Process] = field(default_factory=list)


class Descendants:
    """All processes below `root`, except `strangers`, which it had before, and what is below those."""

    def __init__(self, root: int, strangers: Collection[int] = ()) -> None:
        self._root = root
        self._strangers = frozenset(strangers)

    def send(self, number: int, *, beside: int | None = None) -> Sent:
        """A signal to each. beside: the group that got the signal already, as a group."""
        sent, below = Sent(), {self._root}
        found: Iterable[int] = self._walk()
        if number != signal.SIGKILL:
            # A process that dies of the signal hands its children on, and they would be missed.
            found = list(found)
        for pid in found:
            below.add(pid)
            self._send_one(pid, number, below, beside, sent)
        return sent

    def _walk(self) -> Iterator[int]:
        """From the top: a process that is gone can't fork any more."""
        seen, parents = set(self._strangers), deque([self._root])
        while parents:
            for child in children_of(parents.popleft()):
                if child not in seen:
                    seen.add(child)
                    yield child
                    parents.append(child)

    def _send_one(self, pid: int, number: int, below: set[int], beside: int | None, sent: Sent) -> None:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            process = look_at(pid)
            # By now its number may belong to another process; the handle doesn't.
            if process is not None and process.parent in below and process.group != beside:
                _send_to(process, handle, number, sent)
        finally:
            os.close(handle)


def _send_to(process: Process, handle: int, number: int, sent: Sent) -> None:
    try:
        signal.pidfd_send_signal(handle, number)
        sent.reached += not process.ended
    except ProcessLookupError:
        """It has ended just now."""
    except PermissionError:
        sent.spared.append(process)


def children_of(pid: int) -> list[int]:
    """The children of all its threads, as far as they can be read while it runs."""
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def look_at(pid: int) -> Process | None:
    """None: there is no process of that number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            before, _, after = file.read().rpartition(b")")
    except OSError:
        return None
    fields = after.split()
    name = before.partition(b"(")[2].decode(errors="backslashreplace")
    return Process(pid, name, int(fields[1]), int(fields[2]), fields[0].decode())
