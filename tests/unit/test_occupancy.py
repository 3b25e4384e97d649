"""Counting what is held and waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from lockd.core.leases import Standing
from lockd.core.queues import Queue
from lockd.metrics.occupancy import KEPT_NS, Occupancy, RecentOccupancy
from tests.harness.clocks import MS
from tests.harness.leases import a_lease

NOW_NS = 1_000_000 * MS
ALL, QUORUM = 0b111, 0b011


class Waiter(SimpleNamespace):
    """A queue has its waiters as keys."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def held(resource: bytes, label: str = "jobs", held_ms: int = 1_000, **more: Any) -> Any:
    at_ns = NOW_NS - held_ms * MS
    return a_lease(label, resource=resource, granted_ns=at_ns, t1_ns=at_ns, **more)


def a_queue(resource: bytes, lease: Any = None, waited_ms: tuple[int, ...] = ()) -> Queue:
    queue = Queue(resource)
    queue.lease = lease
    for ms in waited_ms:
        queue.waiters[Waiter(label="jobs", asked_ns=NOW_NS - ms * MS)] = None  # type: ignore[index]
    return queue


def an_occupancy() -> Occupancy:
    return Occupancy(("jobs", "other"), masters=3, timeout_ms=250)


def occupancy_of(*queues: Queue, detached: tuple[Any, ...] = ()) -> Occupancy:
    occupancy = an_occupancy()
    by_resource = {queue.resource: queue for queue in queues}
    by_token = {b"%d" % number: lease for number, lease in enumerate(detached)}
    for _ in occupancy.steps(by_resource, by_token, NOW_NS):
        pass
    return occupancy


def test_leases_and_waiters_are_counted_by_class_also_those_behind_another_host() -> None:
    occupancy = occupancy_of(
        a_queue(b"a", held(b"a"), (300, 200)),
        a_queue(b"b", held(b"b", "other")),
        a_queue(b"of a class that nobody configured", held(b"c", "gone")),
        a_queue(b"far", None, (900, 10)),
        a_queue(b"idle"),
        detached=(held(b"d"),),
    )
    jobs, other, total = occupancy.by_class["jobs"], occupancy.by_class["other"], occupancy.total
    assert [(one.leases, one.waiters) for one in (jobs, other, total)] == [(2, 4), (2, 0), (4, 4)]
    assert (jobs.oldest_wait_ns, other.oldest_wait_ns) == (900 * MS, 0)


def test_lost_leases_and_those_on_fewer_masters_are_counted() -> None:
    occupancy = occupancy_of(
        a_queue(b"lost", held(b"lost", standing=Standing.LOST)),
        a_queue(b"fewer", held(b"fewer", proven=QUORUM)),
        a_queue(b"fresh", held(b"fresh", proven=QUORUM, held_ms=1)),
    )
    assert occupancy.total.lost == 1
    assert occupancy.total.on_fewer == 1  # the fresh one's other masters have not had the time yet


def test_a_line_that_moves_on_while_it_is_looked_at_is_left_for_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Queue, "oldest", Mock(side_effect=RuntimeError("OrderedDict mutated")))
    assert occupancy_of(a_queue(b"moving", None, (0,))).total.waiters == 0


class Walked(dict[bytes, Any]):
    """Counts how often all of it was looked at."""

    walks = 0

    def values(self) -> Any:
        self.walks += 1
        return super().values()


def test_who_asks_all_the_time_has_it_walked_once_in_a_while() -> None:
    queues, now_ns = Walked({b"a": a_queue(b"a", held(b"a"))}), NOW_NS
    counted = RecentOccupancy(
        an_occupancy,
        SimpleNamespace(queues=queues, detached={}, draining=False, draining_since_ns=None),
        lambda: now_ns,
    )
    for _ in range(100):
        assert list(counted.steps()) == []
    assert (counted.last.total.leases, queues.walks) == (1, 1)
    queues.update({b"%d" % n: a_queue(b"%d" % n, held(b"%d" % n)) for n in range(999)})
    now_ns += KEPT_NS
    steps = counted.steps()
    next(steps)
    assert (counted.last.total.leases, queues.walks) == (1, 2), "the last one until this is over"
    assert len(list(steps)) >= 4, "it offers a rest every few leases"
    assert (counted.last.total.leases, queues.walks) == (1_000, 2)
