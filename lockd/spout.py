"""Where lines go that nobody may take: a pipe or a terminal that is not read, the journal's socket, a file on
a disk that is dead. An agent that waited there would lose its leases, and `lockctl run` would let its command
outlive one.

No test of a file tells whether a write to it will wait: a terminal is writable with room for one byte,
another program may fill a pipe in between, and a file on a disk always seems writable. So a thread writes,
and for that nobody waits long. Until it has written one line, the next ones are left out.
"""

import os
import select
import signal
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic
from typing import Final, TextIO

_PATIENCE_S: Final = 0.02
"""A line is there when `write` returns, if it takes no longer than this."""
_PATIENT_AGAIN_S: Final = 1.0
"""A reader that is only slow must not cost that much with each line."""


class Spout:
    """file: as `fileno` has it."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._line = b""
        self._idle, self._has_line = Lock(), Lock()
        self._process = 0
        """Where its thread is: in no child of a fork."""
        self._patient_from_s = 0.0

    def write(self, line: bytes) -> bool:
        """Whether it was written, or will be once there is room."""
        if not (self._is_begun() and self._idle.acquire(blocking=False)):
            return False
        self._line = line
        self._has_line.release()
        if monotonic() >= self._patient_from_s:
            if self._idle.acquire(timeout=_PATIENCE_S):
                self._idle.release()
            else:
                self._patient_from_s = monotonic() + _PATIENT_AGAIN_S
        return True

    def _is_begun(self) -> bool:
        if self._process != os.getpid():
            self._idle, self._has_line = Lock(), Lock()
            self._has_line.acquire()
            try:
                Thread(target=self._write_for_ever, daemon=True).start()
            except RuntimeError:  # this process may have no more threads
                return False
            self._process = os.getpid()
        return True

    def _write_for_ever(self) -> None:
        # Signals are for the main thread. Were SIGTTOU not blocked, it could stop all of us: who writes to a
        # terminal from its background may get it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            self._has_line.acquire()
            with suppress(OSError):  # nobody can read it any more
                _write(self._file, self._line)
            self._idle.release()


def spout_of(stream: TextIO) -> Spout | None:
    """None: it is no file of the system."""
    try:
        return Spout(stream.fileno())
    except (OSError, ValueError):
        return None


def _write(file: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(file, data) :]
        except BlockingIOError:
            select.select([], [file], [])
