"""The signals that concern the command: lockctl receives them and passes them on."""

from __future__ import annotations

import signal
import socket
from types import FrameType
from typing import Any

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
FORWARDED = (
    *ENDS,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGCONT,
)


class Signals:
    """While entered, the signals that concern the command wake the loop instead of doing anything to us.

    Signals that were ignored when lockctl was started (nohup, a shell's `&`) stay ignored, for the command
    too.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, _just_wake_up)
        # Writing a message to a terminal that is lent to the command must not stop us.
        self._before[signal.SIGTTOU] = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        return self

    def restore(self) -> None:
        """Let signals do what they did before: at the end, and in the child that becomes the command."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)

    def __exit__(self, *_: object) -> None:
        self.restore()
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        return self._reader.fileno()

    def arrived(self) -> bytes:
        """The numbers of the signals since the last time, without waiting."""
        try:
            return self._reader.recv(4096)
        except BlockingIOError:
            return b""


def _just_wake_up(number: int, frame: FrameType | None) -> None:
    """Python has written the number to the wake-up pipe: nothing else is needed."""
