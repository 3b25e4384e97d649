"""Whether this machine stood still: a thread that is due every few milliseconds looks how late it is.

Tests with real processes have leases, time-outs and deadlines of real clocks. None of them may depend on how
fast a machine is; but on one that stood still (paused, or busy with others for as long) a lease ends that
should not have. Such a test is run once more, visibly. A failure without a stall is a failure.
"""

from __future__ import annotations

import threading
import time

_LOOK_S = 0.02
STALL_S = 0.3
"""What the shortest time-outs of tests with real processes bear, with something to spare."""


class StallWatch(threading.Thread):
    """Starts with `start`; `forget` begins a test."""

    def __init__(self) -> None:
        super().__init__(name="stall watch", daemon=True)
        self._longest_s = 0.0
        self._looked_s = time.monotonic()

    def run(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            now_s = time.monotonic()
            self._longest_s = max(self._longest_s, now_s - self._looked_s - _LOOK_S)
            self._looked_s = now_s

    def forget(self) -> None:
        self._longest_s = 0.0

    def seen(self) -> bool:
        """Whether there was a stall since `forget`; a look that is overdue counts."""
        overdue_s = time.monotonic() - self._looked_s - _LOOK_S
        return max(self._longest_s, overdue_s) > STALL_S
