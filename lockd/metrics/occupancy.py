"""What is held and waited for on this host, counted by class.

There may be a hundred thousand leases, so they are counted a few at a time. In between, the counting thread
has to rest: the event loop so that it serves apps, another thread so that it leaves the interpreter to the
loop. The result is kept for a while, so that frequent readers don't cause a new count each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lockd.core.leases import Lease, Standing
from lockd.core.queues import Queue
from lockd.core.validity import NS_PER_MS, NS_PER_S
from lockd.metrics.classes import of_apps
from lockd.metrics.families import Measured, gauge

if TYPE_CHECKING:
    from prometheus_client.core import Metric

V = TypeVar("V")

KEPT_NS = NS_PER_S
_BITE = 200
REST_S = 50e-6
"""The rest of a thread that is not the event loop's: long enough for the loop to wake up."""


@dataclass
class ClassOccupancy:
    """One class at this instant. `oldest_wait_ns`: how long the one that waits longest has waited."""

    leases: int = 0
    kept: int = 0
    waiters: int = 0
    oldest_wait_ns: int = 0
    lost: int = 0
    on_fewer: int = 0


class Occupancy:
    """The counts in `by_class`, and over all classes."""

    def __init__(self, labels: Iterable[str], masters: int, timeout_ms: int) -> None:
        self.by_class = {label: ClassOccupancy() for label in labels}
        self.on_masters = [0] * (masters + 1)
        """Held leases, by how many masters have confirmed them."""
        self._all_masters = masters
        self._timeout_ns = timeout_ms * NS_PER_MS

    def steps(
        self, queues: Mapping[bytes, Queue], detached: Mapping[Any, Lease], now_ns: int
    ) -> Iterator[None]:
        """Count. Rest whenever it yields; the count is complete when it ends."""
        of_queues = ((queue.lease, queue) for queue in _values(queues))
        of_detached = ((lease, None) for lease in _values(detached))
        for number, (lease, queue) in enumerate(chain(of_queues, of_detached), start=1):
            self._take(lease, queue, now_ns)
            if number % _BITE == 0:
                yield

    @property
    def total(self) -> ClassOccupancy:
        everyone = list(self.by_class.values())
        return ClassOccupancy(
            sum(of.leases for of in everyone),
            sum(of.kept for of in everyone),
            sum(of.waiters for of in everyone),
            max((of.oldest_wait_ns for of in everyone), default=0),
            sum(of.lost for of in everyone),
            sum(of.on_fewer for of in everyone),
        )

    def _take(self, lease: Lease | None, queue: Queue | None, now_ns: int) -> None:
        waiters, label, oldest_ns = _waiting(queue, now_ns)
        kept = queue.kept if queue is not None else None
        if lease is not None:
            label = lease.holder.label
        elif kept is not None:
            label = kept.label
        elif not waiters:
            return
        of = self.by_class.get(label) or self.by_class["other"]
        of.kept += kept is not None
        of.waiters += waiters
        of.oldest_wait_ns = max(of.oldest_wait_ns, oldest_ns)
        if lease is None:
            return
        of.leases += 1
        of.lost += lease.standing is Standing.LOST
        of.on_fewer += self._is_on_fewer(lease, now_ns)
        if lease.standing is Standing.HELD:
            self.on_masters[lease.proven.bit_count()] += 1

    def _is_on_fewer(self, lease: Lease, now_ns: int) -> bool:
        """Not all masters have confirmed it, though they had the time: the quorum decides, the others follow
        a moment later."""
        if lease.standing is not Standing.HELD or lease.proven.bit_count() == self._all_masters:
            return False
        return now_ns - lease.t1_ns > min(self._timeout_ns, lease.ttl_ms * NS_PER_MS // 4)


class Held(Protocol):
    """What is counted: core.locks.Locks has it."""

    @property
    def queues(self) -> Mapping[bytes, Queue]: ...
    @property
    def detached(self) -> Mapping[Any, Lease]: ...
    @property
    def draining(self) -> bool: ...
    @property
    def draining_since_ns(self) -> int | None: ...


class _Nothing:
    queues: Mapping[bytes, Queue] = {}
    detached: Mapping[Any, Lease] = {}
    draining = False
    draining_since_ns: int | None = None


NOTHING = _Nothing()


class RecentOccupancy:
    """What is held now, or was KEPT_NS ago at most."""

    def __init__(self, new: Callable[[], Occupancy], held: Held, now_ns: Callable[[], int]) -> None:
        self._new = new
        self._held = held
        self._now_ns = now_ns
        self._last = new()
        self._good_until_ns = -1

    @property
    def last(self) -> Occupancy:
        """The last one that was completed; an empty one at first."""
        return self._last

    def steps(self) -> Iterator[None]:
        """Make sure that `last` is recent. Rest whenever it yields. Several threads may count at once."""
        begun_ns = self._now_ns()
        if begun_ns < self._good_until_ns:
            return
        occupancy = self._new()
        yield from occupancy.steps(self._held.queues, self._held.detached, begun_ns)
        self._last, self._good_until_ns = occupancy, begun_ns + KEPT_NS

    def rested(self) -> Occupancy:
        """A count by another thread than the loop's."""
        for _ in self.steps():
            time.sleep(REST_S)
        return self.last

    def collect(self) -> Iterator[Metric]:
        since_ns = self._held.draining_since_ns
        draining_ns = 0 if since_ns is None else self._now_ns() - since_ns
        return OccupancyMetrics(self.rested(), self._held.draining, draining_ns).collect()


class OccupancyMetrics(Measured):
    def __init__(self, occupancy: Occupancy, draining: bool, draining_ns: int) -> None:
        self._occupancy = occupancy
        self._of_apps = of_apps(occupancy.by_class)
        self._draining = draining
        self._draining_ns = draining_ns

    @gauge("Tenures that are kept here without a lease (keep_ms).", by="class")
    def kept_tenures(self) -> dict[str, int]:
        return {label: of.kept for label, of in self._of_apps.items()}

    @gauge("LOCKs that are waiting for an answer.", by="class")
    def waiters(self) -> dict[str, int]:
        return {label: of.waiters for label, of in self._of_apps.items()}

    @gauge("How long the oldest waiting LOCK has waited, on CLOCK_BOOTTIME; 0 when none waits.", by="class")
    def oldest_waiter_seconds(self) -> dict[str, float]:
        return {label: of.oldest_wait_ns / 1e9 for label, of in self._of_apps.items()}

    @gauge("Held leases that some masters have not confirmed, though they had the time.")
    def leases_on_fewer_masters(self) -> int:
        return self._occupancy.total.on_fewer

    @gauge("Held leases by how many masters have confirmed them.", by="masters")
    def leases_on_masters(self) -> dict[str, int]:
        return {str(masters): leases for masters, leases in enumerate(self._occupancy.on_masters)}

    @gauge("Whether this agent is stopping: 1 or 0.")
    def draining(self) -> int:
        return int(self._draining)

    @gauge("How long this agent has been stopping, on CLOCK_BOOTTIME; 0 while it is not.")
    def draining_seconds(self) -> float:
        return self._draining_ns / 1e9


def _values(table: Mapping[Any, V]) -> list[V]:
    """All values at one moment, for any thread: the interpreter makes the copy in one step. If it ever does
    not, try again."""
    for _ in range(10):
        try:
            return list(table.values())
        except RuntimeError:  # it changed while it was copied
            continue
    return []


def _waiting(queue: Queue | None, now_ns: int) -> tuple[int, str, int]:
    """How many wait there, the class of the first, and for how long it has waited in ns."""
    if queue is None or not queue.waiters:
        return 0, "", 0
    try:
        first = queue.oldest()
    except RuntimeError:  # its line moved on between two steps of the interpreter: look at it next time
        first = None
    if first is None:
        return 0, "", 0
    return len(queue.waiters), first.label, max(0, now_ns - first.asked_ns)
