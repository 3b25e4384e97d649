"""The terminal on which a command runs: its foreground, and a line for its user."""

from __future__ import annotations

import os
import signal
import stat
import sys
from contextlib import suppress

from lockd.spout import Spout
from lockd.text import ESCAPED, printable

_STDERR = Spout(2)


class Terminal:
    """The terminal that controls our session, or none (file -1).

    Its foreground is lent to the command, so that what is typed, Ctrl-C and Ctrl-Z reach the command.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self.lent = False

    @property
    def there(self) -> bool:
        return self._file >= 0

    def ours(self) -> bool:
        """Are we its foreground?"""
        return self._foreground() == os.getpgrp()

    def lend(self, group_id: int) -> None:
        """Make the command's group its foreground."""
        self.lent = True
        self._give(group_id)

    def take_back(self, group_id: int) -> None:
        """Be its foreground again, if that group is."""
        if self._foreground() == group_id:
            self._give(os.getpgrp())
        self.lent = False

    def _foreground(self) -> int:
        with suppress(OSError):
            return os.tcgetpgrp(self._file)
        return -1

    def _give(self, group_id: int) -> None:
        """The kernel stops processes that do this from the background, unless they block SIGTTOU."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        with suppress(OSError):
            os.tcsetpgrp(self._file, group_id)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def controlling_terminal() -> Terminal:
    """The terminal of this session, wherever stdin comes from; one without a file when there is none."""
    try:
        return Terminal(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return Terminal(-1)


def in_a_pipeline() -> bool:
    """Another process of our job may need the terminal: in `lockctl run … | less`, less reads the keys."""
    for file in (0, 1):
        with suppress(OSError):
            if stat.S_ISFIFO(os.fstat(file).st_mode):
                return True
    return False


def say(text: str) -> None:
    """A line on stderr, unless nobody reads it: waiting for a reader could mean missing the deadline."""
    _STDERR.write(f"lockctl: {printable(text)}\n".encode(sys.stderr.encoding, ESCAPED))
