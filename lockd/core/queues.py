"""Who waits for a resource on this host: first come, first served, with one campaign for all of them."""

from collections import OrderedDict

from lockd.core.ballots.attempt import Attempt
from lockd.core.leases import Holder, Lease
from lockd.core.timers import Timer
from lockd.core.values import Refusal


class Queue:
    """One resource on this host: its lease if it is held here, else the campaign for the first in line.

    At most one of `lease`, `attempt` and `rest` is set: it is held here, being tried for, or left alone until
    the next try.
    """

    __slots__ = (
        "attempt",
        "lease",
        "refusal",
        "resource",
        "rest",
        "tried_for",
        "tries",
        "waiters",
    )

    def __init__(self, resource: bytes) -> None:
        self.resource = resource
        # Ordered, and quick to leave in the middle: a waiter may give up or its app may go.
        self.waiters: OrderedDict[Holder, Timer | None] = OrderedDict()
        self.lease: Lease | None = None
        self.attempt: Attempt | None = None
        self.tried_for: Holder | None = None
        """Whose attempt it is."""
        self.rest: Timer | None = None
        self.tries = 0
        self.refusal: Refusal | None = None

    @property
    def idle(self) -> bool:
        return self.lease is None and self.attempt is None and self.rest is None

    def first(self) -> Holder | None:
        return next(iter(self.waiters), None)
