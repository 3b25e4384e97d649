"""The two clocks of a host. CLOCK_BOOTTIME counts the time that a machine is suspended; nobody can set it."""

from time import CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, clock_gettime_ns, time_ns


def boottime_ns() -> int:
    """Nanoseconds on CLOCK_BOOTTIME, which app and agent of one host share."""
    return clock_gettime_ns(CLOCK_BOOTTIME)


def wall_ahead_ns() -> int:
    """How far the wall clock is ahead of CLOCK_BOOTTIME now."""
    return time_ns() - clock_gettime_ns(CLOCK_BOOTTIME)


def slewed_by_now_ns() -> tuple[int, int, int]:
    """How far CLOCK_MONOTONIC, which is slewed as BOOTTIME is, is ahead of CLOCK_MONOTONIC_RAW, which nobody
    slews: at least and at most; and what RAW showed."""
    best = (0, 1 << 62, 0)
    for _ in range(3):
        before_ns = clock_gettime_ns(CLOCK_MONOTONIC)
        raw_ns = clock_gettime_ns(CLOCK_MONOTONIC_RAW)
        after_ns = clock_gettime_ns(CLOCK_MONOTONIC)
        if after_ns - before_ns < best[1] - best[0]:
            best = (before_ns - raw_ns, after_ns - raw_ns, raw_ns)
    return best
