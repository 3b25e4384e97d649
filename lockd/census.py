"""What is held and waited for on this host, counted by class, and the few leases that matter most.

There may be a hundred thousand leases. They are walked in bites: between two of them whoever walks has to
rest, the event loop to serve apps, another thread to leave the interpreter to the loop. What is kept for
showing is bounded, whatever there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from lockd.core.leases import Lease, Standing
from lockd.core.validity import NS_PER_MS

if TYPE_CHECKING:
    from lockd.core.queues import Queue

V = TypeVar("V")

_BITE = 200


@dataclass
class ClassCensus:
    """One class at this instant. `oldest_wait_ns`: how long the one that waits longest has waited."""

    leases: int = 0
    waiters: int = 0
    oldest_wait_ns: int = 0
    lost: int = 0
    on_fewer: int = 0


class Place(NamedTuple):
    """A resource that is held or waited for on this host. `lease` None: it is held elsewhere, or being tried
    for. The order is that of importance."""

    waiters: int
    lost: bool
    on_fewer: bool
    held_ns: int
    resource: bytes
    label: str
    oldest_wait_ns: int
    lease: Lease | None


class Census:
    """Counts in `by_class`; `places` are the first `keep` by importance: much waited for, lost, held long."""

    def __init__(self, labels: Iterable[str], masters: int, timeout_ms: int, keep: int) -> None:
        self.by_class = {label: ClassCensus() for label in labels}
        self.on_masters = [0] * (masters + 1)
        """Held leases, by how many masters have confirmed them."""
        self._all_masters = masters
        self._timeout_ns = timeout_ms * NS_PER_MS
        self._keep = keep
        self._places: list[Place] = []

    def steps(
        self, queues: Mapping[bytes, Queue], detached: Mapping[bytes, Lease], now_ns: int
    ) -> Iterator[None]:
        """Take it. Rest whenever it yields; it is complete when it ends."""
        of_queues = ((queue.lease, queue) for queue in _values(queues))
        of_detached = ((lease, None) for lease in _values(detached))
        for number, (lease, queue) in enumerate(chain(of_queues, of_detached), start=1):
            self._take(lease, queue, now_ns)
            if number % _BITE == 0:
                yield

    @property
    def places(self) -> Sequence[Place]:
        return nlargest(self._keep, self._places, key=_importance)

    @property
    def total(self) -> ClassCensus:
        everyone = list(self.by_class.values())
        return ClassCensus(
            sum(of.leases for of in everyone),
            sum(of.waiters for of in everyone),
            max((of.oldest_wait_ns for of in everyone), default=0),
            sum(of.lost for of in everyone),
            sum(of.on_fewer for of in everyone),
        )

    def _take(self, lease: Lease | None, queue: Queue | None, now_ns: int) -> None:
        waiters, label, oldest_ns = _waiting(queue, now_ns)
        if lease is not None:
            label = lease.holder.label
        elif not waiters:
            return
        of = self.by_class.get(label) or self.by_class["other"]
        of.waiters += waiters
        of.oldest_wait_ns = max(of.oldest_wait_ns, oldest_ns)
        lost = lease is not None and lease.standing is Standing.LOST
        fewer = lease is not None and self._is_on_fewer(lease, now_ns)
        if lease is not None and lease.standing is Standing.HELD:
            self.on_masters[lease.proven.bit_count()] += 1
        of.leases += lease is not None
        of.lost += lost
        of.on_fewer += fewer
        resource = lease.resource if lease is not None else queue.resource if queue is not None else b""
        held_ns = now_ns - lease.granted_ns if lease is not None else 0
        self._places.append(Place(waiters, lost, fewer, held_ns, resource, label, oldest_ns, lease))
        if len(self._places) >= 4 * self._keep:
            self._places = nlargest(self._keep, self._places, key=_importance)

    def _is_on_fewer(self, lease: Lease, now_ns: int) -> bool:
        """Not all masters have confirmed it, though they had the time: the quorum decides, the others come a
        moment later."""
        if lease.standing is not Standing.HELD or lease.proven.bit_count() == self._all_masters:
            return False
        return now_ns - lease.t1_ns > min(self._timeout_ns, lease.ttl_ms * NS_PER_MS // 4)


def _importance(place: Place) -> tuple[int, bool, bool, int]:
    return place.waiters, place.lost, place.on_fewer, place.held_ns


def _values(table: Mapping[bytes, V]) -> list[V]:
    """All values of a moment, also for another thread: the copy is one step of the interpreter. If it ever is
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
        first = queue.first()
    except RuntimeError:  # its line moved on between two steps of the interpreter: look at it next time
        first = None
    if first is None:
        return 0, "", 0
    return len(queue.waiters), first.label, max(0, now_ns - first.asked_ns)
