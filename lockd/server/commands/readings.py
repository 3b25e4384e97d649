"""Slow readings: so many at a time, and what takes the event loop's time in bites, see lanes.py."""

from lockd.server.concurrency import ConcurrencyLimit
from lockd.server.lanes import Lane

_RESTS = 3


class Readings:
    """One for all commands that read. surveys: each of them reads all leases of all masters. signals: who
    waits for a lock looks at it again and again."""

    def __init__(self) -> None:
        self.listings = ConcurrencyLimit(at_once=8, per_user=2)
        self.signals = ConcurrencyLimit(at_once=2, per_user=1)
        self.surveys = ConcurrencyLimit(at_once=1, per_user=1)
        self.lane = Lane(_RESTS)
