"""Fences: numbers that grow with every grant of a resource, whatever else goes wrong (rule 6).

Each master counts in one of 4096 slots. Granting a vote reserves a block of values above everything that slot
gave before, and above the agent's hint, which is the same for all masters of a try. So the masters normally
name the same value, and when a quorum did, that is the fence. When they differ, the agent proposes one value
to all, and a quorum that accepts it makes it the fence.

Why it is sound: a master names and accepts increasing values only, and two quorums share a master. So of two
grants, the one that ended before the other began has the smaller fence, and no value is given twice.
"""

from zlib import crc32

SLOTS = 4096
BLOCK = 64
CEILING = 1 << 53

# A hint beyond this (the year 2112 in microseconds) comes from a broken clock: it would use up the counters
# for ever.
_SANE_CLOCK_US = 1 << 52


def slot_of(resource: bytes) -> int:
    """The counter that serves `resource`. Several resources share one; that costs nothing but a gap in their
    numbers."""
    return crc32(resource) % SLOTS


class FenceHints:
    """Proposes values above all counters that this agent knows of, and near the other agents' proposals while
    the clocks agree."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = 0

    def saw(self, value: int) -> None:
        """Take note of a value that a master named or accepted. Its counter is at the end of that block now:
        a proposal inside the block would be refused there, and accepted elsewhere, for ever."""
        self.saw_counter(value + BLOCK - 1)

    def saw_counter(self, counter: int) -> None:
        """Take note of what a master's counter is at."""
        if counter > self._seen:
            self._seen = counter

    def next(self, wall_us: int) -> int:
        """A value above all seen; the wall clock in microseconds when that is larger and sane."""
        above = self._seen + 1
        return wall_us if above < wall_us < _SANE_CLOCK_US else above
