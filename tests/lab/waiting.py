"""Waiting for what a host does by itself.

Nothing of the lab rests on how fast this machine is. There is one patience for all that is waited for: for a
condition, for a command to end, for a host to boot, and for what plays wait for.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 600.0
"""It ends what hangs, and says what that was. A play or a test may wait for several things: LIMIT_S."""

LIMIT_S = 3600.0

_EVERY_S = 0.1
_NOT_YET = (AssertionError, OSError, RuntimeError, StopIteration, subprocess.SubprocessError)


def until(condition: Callable[[], T], what: str) -> T:
    """The first true value of `condition`; AssertionError naming `what` when there is none in time.

    A command that fails on a host, one that is just booting say, is not there yet.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    last: object = None
    while True:
        try:
            if last := condition():
                return last
        except _NOT_YET as error:
            last = error
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {PATIENCE_S:g} s: {what} (last: {last!r})")
        time.sleep(_EVERY_S)
