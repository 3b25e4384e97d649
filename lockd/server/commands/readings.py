"""Slow readings: a few at a time."""

from lockd.server.concurrency import ConcurrencyLimit


class Readings:
    """Shared by all commands that read. surveys: each of them reads all leases of all masters. signals:
    clients that wait for a lock look at it again and again."""

    def __init__(self) -> None:
        self.listings = ConcurrencyLimit(at_once=8, per_user=2)
        self.signals = ConcurrencyLimit(at_once=2, per_user=1)
        self.surveys = ConcurrencyLimit(at_once=1, per_user=1)
