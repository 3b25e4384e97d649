"""Fence counters of a cluster that begins anew after a quorum of its masters lost their data (rule 6).

What the last fences were, only a quorum could say. But fences are microseconds of clocks: one is given at
most as far ahead of the masters' clocks as a host's clock may be before the masters' is taken instead
(fences.py), and by the time that all leases are over, those clocks have gone on. So all counters begin above
that, and above what the masters show that still have theirs.

It is not above all earlier fences where a counter was further ahead than that and no master is left that
shows it (somebody wrote it there, or 15,000 grants a second shared it for long), nor where the clocks of most
masters were set back since.
"""

from collections.abc import Iterable, Mapping, Sequence

from lockd.core.fences import CLOCKS_APART_US, SLOTS
from lockd.core.identities import Identity
from lockd.core.membership import State

_WITH_DATA = (State.UP, State.OUTDATED, State.REPLACED)


def is_left(state: State | None, identity: Identity | None, cluster: str) -> bool:
    """Whether this is a master with what is left of a cluster. Also where they don't vote together (two
    admissions at once, of which the first was lost again, leave such lists; beginning anew that was broken
    off leaves another id of the same cluster and members): none of them makes a quorum, and all get a new
    identity."""
    if state is State.FOREIGN:
        return identity is not None and identity.cluster == cluster
    return state in _WITH_DATA


def largest_known(readings: Iterable[Mapping[int, int]], most: int) -> dict[int, int]:
    """By slot, the largest that any of these shows. What can't be right (above most) is not taken over."""
    largest: dict[int, int] = {}
    for reading in readings:
        for slot, value in reading.items():
            if 0 <= slot < SLOTS and largest.get(slot, 0) < value <= most:
                largest[slot] = value
    return largest


def counters_after_loss(readings: Sequence[Mapping[int, int]], masters_us: int, most: int) -> dict[int, int]:
    """The counters that all masters begin with, by slot. readings: of those that still have theirs;
    masters_us: the median of the masters' clocks. What can't be right (above most) is not taken over."""
    floor = masters_us + CLOCKS_APART_US
    return largest_known([dict.fromkeys(range(SLOTS), floor), *readings], most)
