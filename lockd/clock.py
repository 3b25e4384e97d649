"""The two clocks of a host. CLOCK_BOOTTIME counts the time that a machine is suspended; nobody can set it."""

from time import CLOCK_BOOTTIME, clock_gettime_ns, time_ns


def boottime_ns() -> int:
    """Nanoseconds on CLOCK_BOOTTIME, which app and agent of one host share."""
    return clock_gettime_ns(CLOCK_BOOTTIME)


def wall_ahead_ns() -> int:
    """How far the wall clock is ahead of CLOCK_BOOTTIME now."""
    return time_ns() - clock_gettime_ns(CLOCK_BOOTTIME)
