"""The processes below one of ours: found in /proc, and sent signals.

The tree is not held still meanwhile: it may fork faster than it is read. So a walk that kills does so as it
finds, is repeated, and never decides that nobody is left: that is the kernel's word, when the process that
they are handed to as their parents end (a subreaper, see lockctl/run/keeper.py) has no child any more.
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
        """Nobody has collected it yet. Threads of it may live on."""
        return self.state == "Z"

    @property
    def stopped(self) -> bool:
        return self.state == "T"

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


@dataclass(slots=True)
class Sent:
    """How many that live got a signal, and who could not be sent it: those run as another user."""

    reached: int = 0
    spared: list[Process] = field(default_factory=list)


class Descendants:
    """All below `root`, but for `strangers`, which it had before, and what is below those."""

    def __init__(self, root: int, strangers: Collection[int] = ()) -> None:
        self._root = root
        self._strangers = frozenset(strangers)

    def send(self, number: int, *, beside: int | None = None) -> Sent:
        """A signal to each. beside: not to that group, which got it together."""
        sent, below = Sent(), {self._root}
        found: Iterable[int] = self._walk()
        if number != signal.SIGKILL:
            # One that ends of it hands its children on, and they would be missed.
            found = list(found)
        for pid in found:
            below.add(pid)
            self._send_one(pid, number, below, beside, sent)
        return sent

    def _walk(self) -> Iterator[int]:
        """From the top: who is not there any more can't fork."""
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
            # Its number could be somebody else's by now; the handle is not.
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
    """Of all its threads, as far as it goes without holding them still."""
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def look_at(pid: int) -> Process | None:
    """None: there is none of that number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            before, _, after = file.read().rpartition(b")")
    except OSError:
        return None
    fields = after.split()
    name = before.partition(b"(")[2].decode(errors="backslashreplace")
    return Process(pid, name, int(fields[1]), int(fields[2]), fields[0].decode())
