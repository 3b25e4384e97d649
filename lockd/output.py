"""What a command prints, where that can't be done: a standard file is closed, or the disk behind it full."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from contextlib import suppress
from typing import Any

CANT_WRITE = 73
"""As in sysexits.h: EX_CANTCREAT."""
_OF_OUTPUT = (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC, errno.EPIPE)


def open_standard_files() -> None:
    """Those that are closed, so that no other file gets their numbers: what is said on stderr would go to the
    agent. What is written to stdout still fails. Programs that we start have them closed, as we had."""
    for number, name, flags in (
        (0, "stdin", os.O_RDONLY),
        (1, "stdout", os.O_RDONLY),
        (2, "stderr", os.O_WRONLY),
    ):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest number that is free.
            os.open(os.devnull, flags)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    _complain_in_vain()


class _Complaints(io.FileIO):
    """Stderr: what can't be written there is lost. There is nowhere else to say it, and the exit status still
    says how the command ended."""

    def write(self, text: Any) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)


def _complain_in_vain() -> None:
    """Nothing fails from here on because stderr does."""
    before = sys.stderr
    if before is sys.__stderr__ and isinstance(before, io.TextIOWrapper):
        sys.stderr = io.TextIOWrapper(
            _Complaints(before.fileno(), "w", closefd=False),
            before.encoding,
            before.errors,
            write_through=True,
        )


def could_not_write(error: OSError) -> int:
    """The exit status, after saying so. Raises what is no failure of the output."""
    if error.filename is not None or error.errno not in _OF_OUTPUT:
        raise error
    # Python's last flush must not fail either.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if error.errno == errno.EPIPE:
        # The reader has gone, as in `lockctl locks | head`.
        return 128 + signal.SIGPIPE
    sys.stderr.write(f"{os.path.basename(sys.argv[0])}: the output can't be written: {error.strerror}\n")
    return CANT_WRITE
