"""Fences: numbers that grow with every grant of a resource, even when everything else goes wrong (rule 6).

Each master counts in one of 4096 slots. Granting a vote reserves a block of values above everything that the
slot gave before, and above the agent's hint, which is the same for all masters of a try. So the masters
normally name the same value, and when a quorum did, that is the fence. When they differ, the agent proposes
one value to all of them, and a quorum that accepts it makes it the fence.

Why it is sound: a master names and accepts increasing values only, and two quorums share a master. So of two
grants, the one that ended before the other began has the smaller fence, and no value is given twice.

Values are about as large as microseconds of the masters' clocks. A value far ahead of these comes from a
broken clock or a broken counter, and must not spread: it would be the floor of that counter on every master,
for ever. So hints stay near the median of the masters' clocks, masters refuse hints that don't, and a master
that names such a fence has no vote (answers.py).
"""

from collections.abc import Iterable, Mapping
from zlib import crc32

SLOTS = 4096
BLOCK = 64
"""The block that comes with a grant: how many leases of one host may follow each other before a master is
asked for more."""
NEXT_BLOCK = 1024
"""The block after that: the resource is in demand."""
SANE_MOST = 1 << 52
"""Larger than any time in microseconds before the year 2112, and so than any fence."""

_HOUR_US = 3_600_000_000
CLOCKS_APART_US = _HOUR_US
"""Hints are not made from the wall clock of a host that is further than this from the masters' clocks."""
COUNTER_AHEAD_US = 24 * _HOUR_US
"""A counter that is more than this ahead of its master's clock is wrong."""
HINT_AHEAD_US = COUNTER_AHEAD_US // 2
"""A hint or a proposal is refused that would bring a counter more than this ahead of the clock: what an agent
sends can't make a counter wrong."""
_HEEDED_AHEAD_US = HINT_AHEAD_US - _HOUR_US
"""If a counter is more than this ahead, that is one master's word, and hints don't follow it: the other
masters' clocks differ a little, so not all of them would accept a hint above it."""


def slot_of(resource: bytes) -> int:
    """The counter that serves `resource`. Several resources share one; that costs nothing but a gap in their
    numbers."""
    return crc32(resource) % SLOTS


def largest_sane(clock_us: int) -> int:
    """The largest value that a counter can have when a correct clock shows this."""
    return min(clock_us + COUNTER_AHEAD_US, SANE_MOST)


def is_right_counter(stored: str, most: int) -> bool:
    """Whether a counter can go on counting from the value that a master stores. most: the largest sane
    fence."""
    return stored.isascii() and stored.isdigit() and len(stored) <= 16 and int(stored) + BLOCK <= most


def largest_known(readings: Iterable[Mapping[int, int]], most: int) -> dict[int, int]:
    """By slot, the largest value that any of these shows. Values that can't be right (above most) are left
    out."""
    largest: dict[int, int] = {}
    for reading in readings:
        for slot, value in reading.items():
            if 0 <= slot < SLOTS and largest.get(slot, 0) < value <= most:
                largest[slot] = value
    return largest


class FenceHints:
    """Proposes values above everything that this agent knows of a counter, and near other agents' proposals
    while the clocks agree."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    @property
    def seen(self) -> dict[int, int]:
        """The values that counters are known to have reached, by slot."""
        return dict(self._seen)

    def saw(self, slot: int, value: int, masters_us: int, size: int = BLOCK) -> None:
        """Note a value that a master named or accepted. The counter is now at the end of that block: a
        proposal inside the block would be refused by this master and accepted by others, for ever."""
        self.saw_counter(slot, value + size - 1, masters_us)

    def saw_counter(self, slot: int, counter: int, masters_us: int) -> None:
        """Note the value of a master's counter, unless it can't be right. masters_us: the median of the
        masters' clocks."""
        if self._seen.get(slot, 0) < counter <= masters_us + _HEEDED_AHEAD_US:
            self._seen[slot] = counter

    def next(self, slot: int, wall_us: int, masters_us: int) -> int:
        """A value above everything seen of this counter. It is also at least this host's wall clock in
        microseconds, or the masters' where that clock is more than an hour off."""
        clock_us = wall_us if abs(wall_us - masters_us) <= CLOCKS_APART_US else masters_us
        above = self._seen.get(slot, 0) + 1
        # Masters would refuse a value further ahead: it was seen when fewer clocks were known.
        return above if clock_us < above <= masters_us + HINT_AHEAD_US else clock_us
