"""Where lines go that nobody may read: a pipe, a terminal, or the journal's socket. Nothing here waits: an
agent whose log nobody reads would stand still, and lose its leases. A line for which there is no room is left
out, and counted.
"""

import os
import select
import socket
import stat
from typing import Final, TextIO

_AT_ONCE: Final = select.PIPE_BUF
"""If a pipe has room at all, it has room for so much."""


class Spout:
    """file: as `fileno` has it. lost: how many lines were left out."""

    def __init__(self, file: int) -> None:
        self.lost = 0
        self._file = file
        self._socket: socket.socket | None = None
        self._rest = b""
        """Of a line that was begun: it is written before the next one."""
        self._poll = select.poll()
        self._poll.register(file, select.POLLOUT)
        if stat.S_ISSOCK(os.fstat(file).st_mode):
            self._socket = socket.socket(fileno=os.dup(file))

    def write(self, line: bytes) -> bool:
        """Whether it was written, or will be. OSError: nobody can read it any more."""
        if self._rest:
            self._rest = self._written(self._rest)
        if self._rest:
            self.lost += 1
            return False
        self._rest = self._written(line)
        if self._rest == line:
            self._rest = b""
            self.lost += 1
            return False
        return True

    def _written(self, data: bytes) -> bytes:
        """Returns what there was no room for."""
        while data and self._poll.poll(0):
            try:
                written = self._write(data[:_AT_ONCE])
            except BlockingIOError:
                break
            data = data[written:]
        return data

    def _write(self, data: bytes) -> int:
        if self._socket is not None:
            return self._socket.send(data, socket.MSG_DONTWAIT)
        return os.write(self._file, data)


def spout_of(stream: TextIO) -> Spout | None:
    """None: it is no file of the system."""
    try:
        return Spout(stream.fileno())
    except (OSError, ValueError):
        return None
