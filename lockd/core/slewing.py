"""How fast this host's clock is slewed (rule 11e).

Deadlines are kept on CLOCK_BOOTTIME. Time synchronisation slews it, as it does CLOCK_MONOTONIC, and leases
give away 1 % for that. CLOCK_MONOTONIC_RAW is not slewed: comparing with it shows the slewing, whatever the
masters say. (In suspend BOOTTIME goes on and RAW stands still, so MONOTONIC is compared: both are slewed
alike.)
"""

from collections import deque
from dataclasses import dataclass

from lockd.core.validity import NS_PER_S

MOST_PPM = 1_000
_WINDOW_NS = 10 * NS_PER_S
_LEAST_NS = NS_PER_S


@dataclass(frozen=True, slots=True)
class Reading:
    """CLOCK_MONOTONIC minus CLOCK_MONOTONIC_RAW: certainly within [low_ns, high_ns] when RAW showed
    `at_ns`."""

    low_ns: int
    high_ns: int
    at_ns: int


class Slewing:
    """`ppm`: by how much this host's clock was certainly slewed over the last ten seconds; below 0: it was
    slower than true time."""

    def __init__(self) -> None:
        self.ppm = 0
        self._readings: deque[Reading] = deque()

    def look(self, now: Reading) -> str:
        """Take a reading. Returns what is wrong, or nothing."""
        readings = self._readings
        readings.append(now)
        while len(readings) > 2 and now.at_ns - readings[1].at_ns >= _WINDOW_NS:
            readings.popleft()
        took_ns = now.at_ns - readings[0].at_ns
        if took_ns >= _LEAST_NS:
            faster_ns = max(0, now.low_ns - readings[0].high_ns)
            slower_ns = max(0, readings[0].low_ns - now.high_ns)
            self.ppm = (faster_ns - slower_ns) * 1_000_000 // took_ns
        if abs(self.ppm) <= MOST_PPM:
            return ""
        return f"this host's clock is slewed by {self.ppm} ppm ({MOST_PPM} at most)"
