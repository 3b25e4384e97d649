"""Has the wall clock been stepped, or slewed too fast (rules 11b and 11e)?"""

from __future__ import annotations

import ctypes
import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from .delay import NS_PER_MS
from .host import Host

# More than this is not drift of a sound clock; many small steps are found as surely as a large one.
DRIFT_PER_MILLE = 1


@dataclass(frozen=True)
class Offset:
    """REALTIME - BOOTTIME as read at `at_ns` on BOOTTIME: certainly within [low_ns, high_ns]."""

    low_ns: int
    high_ns: int
    at_ns: int


def read_offset(host: Host) -> Offset:
    """How far the wall clock is ahead of BOOTTIME."""
    return _offset(host.wall_ns, host.boottime_ns)


def read_slewing(host: Host) -> Offset:
    """How far the clocks are ahead of the one that is never slewed, because of slewing alone."""
    return _offset(host.monotonic_ns, host.raw_ns)


def _offset(of_ns: Callable[[], int], from_ns: Callable[[], int]) -> Offset:
    """A pause in between widens the bounds: it tries again."""
    best: Offset | None = None
    for _ in range(5):
        before_ns = from_ns()
        read_ns = of_ns()
        after_ns = from_ns()
        if best is None or after_ns - before_ns < best.high_ns - best.low_ns:
            best = Offset(read_ns - after_ns, read_ns - before_ns, after_ns)
        if best.high_ns - best.low_ns < NS_PER_MS // 10:
            break
    assert best is not None
    return best


def allowed_rise_ns(clock_step_ms: int, elapsed_ns: int, longest_ns: int) -> int:
    """How much REALTIME - BOOTTIME may have risen in `elapsed_ns` without a step that could end a lease
    early. No lease is older than `longest_ns`, so drift does not add up for longer."""
    watched_ns = min(max(elapsed_ns, 0), longest_ns)
    return clock_step_ms * NS_PER_MS + watched_ns * DRIFT_PER_MILLE // 1000


class WallClock:
    """Has the wall clock been stepped? The lowest offset that it can have had, rising with drift, is a floor.
    An offset that is certainly above the floor, by more than the tolerance, is a step forward (as in lockd's
    agents)."""

    def __init__(self, first: Offset, clock_step_ms: int, longest_ns: int) -> None:
        self._tolerance_ns = clock_step_ms * NS_PER_MS
        self._longest_ns = longest_ns
        self._floor_ns = first.high_ns
        self._low_ns = first.low_ns
        self._at_ns = first.at_ns

    def look(self, now: Offset) -> int:
        """The step found, in nanoseconds: above 0 forward, below 0 backward, 0 when there is none."""
        drift_ns = allowed_rise_ns(0, now.at_ns - self._at_ns, self._longest_ns)
        floor_ns, low_ns = self._floor_ns + drift_ns, self._low_ns - drift_ns
        self._at_ns = now.at_ns
        forward_ns, backward_ns = now.low_ns - floor_ns, low_ns - now.high_ns
        if max(forward_ns, backward_ns) > self._tolerance_ns:
            self._floor_ns, self._low_ns = now.high_ns, now.low_ns
            return forward_ns if forward_ns > 0 else -backward_ns
        self._floor_ns, self._low_ns = min(floor_ns, now.high_ns), max(low_ns, now.low_ns)
        return 0


_TFD_TIMER_ABSTIME, _TFD_TIMER_CANCEL_ON_SET = 1, 2


class ClockAlarm:
    """Wakes up when the wall clock is set: this cancels a timer of the kernel. Without such a timer it only
    sleeps; the caller looks at the clock either way."""

    def __init__(self) -> None:
        self._file = -1
        self._poll = select.poll()
        with suppress(OSError, AttributeError):
            self._libc = ctypes.CDLL(None, use_errno=True)
            # Its struct is written here as four longs, which it is where a long has 64 bits.
            if ctypes.sizeof(ctypes.c_long) == 8:
                flags = os.O_CLOEXEC | os.O_NONBLOCK
                self._file = self._libc.timerfd_create(time.CLOCK_REALTIME, flags)
        self._arm()
        if self._file >= 0:
            self._poll.register(self._file, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Return after that time, or as soon as the clock is set."""
        if self._poll.poll(seconds * 1000):
            with suppress(OSError):  # ECANCELED: that is the news
                os.read(self._file, 8)
            self._arm()

    def _arm(self) -> None:
        if self._file < 0:
            return
        never = (ctypes.c_long * 4)(0, 0, 2**40, 0)
        flags = _TFD_TIMER_ABSTIME | _TFD_TIMER_CANCEL_ON_SET
        if self._libc.timerfd_settime(self._file, flags, ctypes.byref(never), None) != 0:
            self.close()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
