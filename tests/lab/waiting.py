"""Waiting for what a host does by itself."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# The machine may be busy with other things: this only ends what hangs.
PATIENCE_S = 300.0


def until(condition: Callable[[], T], what: str) -> T:
    """The first true value of `condition`; AssertionError naming `what` when there is none in time. A command
    that fails on a host inside `condition`, one that is just booting say, means 'not yet'."""
    deadline_s = time.monotonic() + PATIENCE_S
    last: object = None
    while time.monotonic() < deadline_s:
        try:
            value = condition()
            if value:
                return value
            last = value
        except (AssertionError, RuntimeError, OSError, subprocess.SubprocessError) as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"not within {PATIENCE_S:g} s: {what} (at last: {last})")
