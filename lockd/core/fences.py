"""Fences: numbers that grow with every grant of a resource, whatever else goes wrong (rule 6).

Each master counts in one of 4096 slots. Granting a vote reserves a block of values above everything that slot
gave before, and above the agent's hint, which is the same for all masters of a try. So the masters normally
name the same value, and when a quorum did, that is the fence. When they differ, the agent proposes one value
to all, and a quorum that accepts it makes it the fence.

Why it is sound: a master names and accepts increasing values only, and two quorums share a master. So of two
grants, the one that ended before the other began has the smaller fence, and no value is given twice.

Values are about as large as microseconds of the masters' clocks. One that is far ahead of these comes from a
broken clock or a broken counter, and must not spread: it would be the floor of that counter on every master,
for ever. So a hint is kept near the median of the masters' clocks, masters refuse hints that are not, and a
master that names such a fence has no vote (answers.py).
"""

from collections.abc import Iterable, Mapping
from zlib import crc32

SLOTS = 4096
BLOCK = 64
"""With a grant. So many leases of one host may follow each other before a master is asked for more."""
NEXT_BLOCK = 1024
"""When that is used up: it was a resource that is wanted."""
SANE_MOST = 1 << 52
"""No time in microseconds, and so no fence, is as large as this before the year 2112."""

_HOUR_US = 3_600_000_000
CLOCKS_APART_US = _HOUR_US
"""The wall clock of a host that is further than this from the masters' is not what hints are made of."""
COUNTER_AHEAD_US = 24 * _HOUR_US
"""A counter that is further than this ahead of its master's clock is wrong."""
HINT_AHEAD_US = COUNTER_AHEAD_US // 2
"""A hint or a proposal that would bring a counter further than this ahead of the clock is refused: what an
agent sends can't make a counter wrong."""
_HEEDED_AHEAD_US = HINT_AHEAD_US - _HOUR_US
"""A counter further than this ahead is one master's word, and no hint follows it: the other masters, whose
clocks differ a little, would not all accept a hint above it."""


def slot_of(resource: bytes) -> int:
    """The counter that serves `resource`. Several resources share one; that costs nothing but a gap in their
    numbers."""
    return crc32(resource) % SLOTS


def largest_sane(clock_us: int) -> int:
    """What a counter can be at, at most, when a clock that is right shows this."""
    return min(clock_us + COUNTER_AHEAD_US, SANE_MOST)


def is_right_counter(stored: str, most: int) -> bool:
    """Whether a counter as a master stores it can go on counting. most: the largest sane fence."""
    return stored.isascii() and stored.isdigit() and len(stored) <= 16 and int(stored) + BLOCK <= most


def largest_known(readings: Iterable[Mapping[int, int]], most: int) -> dict[int, int]:
    """By slot, the largest that any of these shows. What can't be right (above most) is not taken over."""
    largest: dict[int, int] = {}
    for reading in readings:
        for slot, value in reading.items():
            if 0 <= slot < SLOTS and largest.get(slot, 0) < value <= most:
                largest[slot] = value
    return largest


class FenceHints:
    """Proposes values above all that this agent knows of a counter, and near the other agents' proposals
    while the clocks agree."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    @property
    def seen(self) -> dict[int, int]:
        """What counters are known to have come to, by slot."""
        return dict(self._seen)

    def saw(self, slot: int, value: int, masters_us: int, size: int = BLOCK) -> None:
        """Take note of a value that a master named or accepted. Its counter is at the end of that block now:
        a proposal inside the block would be refused there, and accepted elsewhere, for ever."""
        self.saw_counter(slot, value + size - 1, masters_us)

    def saw_counter(self, slot: int, counter: int, masters_us: int) -> None:
        """Take note of what a master's counter is at, unless that can't be right for all of them.
        masters_us: the median of the masters' clocks."""
        if self._seen.get(slot, 0) < counter <= masters_us + _HEEDED_AHEAD_US:
            self._seen[slot] = counter

    def next(self, slot: int, wall_us: int, masters_us: int) -> int:
        """A value above all seen of this counter, and at least this host's wall clock in microseconds, or the
        masters' where that one is more than an hour off."""
        clock_us = wall_us if abs(wall_us - masters_us) <= CLOCKS_APART_US else masters_us
        above = self._seen.get(slot, 0) + 1
        # The masters would refuse what is further ahead: it was seen when fewer clocks were known.
        return above if clock_us < above <= masters_us + HINT_AHEAD_US else clock_us
