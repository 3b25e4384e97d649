"""A program at a terminal of its own, which is typed at and read from."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.harness.processes import children_of
from tests.harness.waiting import eventually

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
FEW_BYTES = 40
"""Less than any line."""


@contextmanager
def unread_terminal() -> Iterator[int]:
    """Nobody reads it. It is writable, but with room for a few bytes only."""
    shown, its = pty.openpty()
    writer = os.open(os.ttyname(its), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    _fill(writer)

    def room_again() -> int:
        """Read until there is some, and fill it. The kernel moves what was written on when it likes."""
        return eventually(lambda: os.read(shown, 64) and _fill(writer), "there is room again")

    def has_room_for_few() -> bool:
        room = room_again()
        eventually(lambda: os.read(shown, 64) and _fill(writer, 1), "there is as much room again")
        _fill(writer, room - 1 - FEW_BYTES)
        return bool(select.select([], [its], [], 0)[1])

    eventually(has_room_for_few)
    yield its
    for file in (shown, its, writer):
        os.close(file)


def _fill(file: int, most: int = 1 << 20) -> int:
    """How many bytes it takes."""
    for written in range(most):
        try:
            os.write(file, b"x")
        except BlockingIOError:
            return written
    return most


class Terminal:
    """`screen`: all that it has shown. columns: how wide it is, where it says so."""

    def __init__(self, *command: str | Path, columns: int = 0, environment: Mapping[str, str] = {}) -> None:
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40 if columns else 0, columns, 0, 0))
            os.environ |= environment
            os.execvp(command[0], [str(word) for word in command])
        self.screen = ""
        self._found = 0
        self._status: int | None = None

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def type(self, text: str) -> None:
        os.write(self._file, text.encode())

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return once it shows that, colours aside, behind what was waited for before."""
        try:
            found = eventually(lambda: self._look_for(pattern), f"it shows {pattern!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\nshown: {self.screen!r}") from None
        self._found += found.end()
        return found

    def end(self) -> int:
        """Its exit status; what it showed last is read."""
        status = eventually(lambda: self._ended() and (self._status,), "it ends")
        self._read()
        return os.waitstatus_to_exitcode(*status)

    def foreground(self) -> int:
        return os.tcgetpgrp(self._file)

    def attributes(self) -> list[object]:
        """How it treats what is typed."""
        return list(termios.tcgetattr(self._file))

    def hang_up(self) -> None:
        """As when the window is closed or ssh breaks off."""
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, self._file)
        os.close(nothing)

    def close(self) -> None:
        if not self._ended():
            for pid in (*children_of(self.pid), self.pid):
                with suppress(ProcessLookupError):  # it may end by itself meanwhile
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._file)

    def _ended(self) -> bool:
        if self._status is None:
            self._read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is not None

    def _look_for(self, pattern: str) -> re.Match[str] | None:
        self._read()
        return re.compile(pattern, re.DOTALL).search(_COLOURS.sub("", self.screen)[self._found :])

    def _read(self) -> None:
        while select.select([self._file], [], [], 0)[0]:
            try:
                data = os.read(self._file, 65_536)
            except OSError:  # Linux's way to say that the other side is closed
                return
            if not data:
                return
            self.screen += data.decode(errors="replace")
