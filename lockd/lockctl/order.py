"""What `lockctl top` shows first, and which classes it shows at all. Pure.

A host may have hundreds of classes and leases, and a terminal has 24 lines. What is wrong comes first, then
what apps wait for, then what is busy.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lockd.health import loss_is_news, unmeant_losses

Numbers = Mapping[str, int]
Lease = Mapping[str, Any]


class ClassLine(NamedTuple):
    """A class with its numbers, and its grants and refusals per second."""

    name: str
    now: Numbers
    grants: float = 0.0
    refusals: float = 0.0

    @property
    def lost_lately(self) -> bool:
        return loss_is_news(self.now["lost"], self.now)

    @property
    def lost(self) -> int:
        return unmeant_losses(self.now)


class Order(NamedTuple):
    """How classes and leases are sorted: the smallest key comes first."""

    classes: Callable[[ClassLine], tuple[float, ...]]
    leases: Callable[[Lease], tuple[float, ...]]


def _waited_for(line: ClassLine) -> tuple[float, ...]:
    return (-line.now["waiters"], -line.now["oldest_wait_ms"])


def _busy(line: ClassLine) -> tuple[float, ...]:
    return (-line.grants - line.refusals, -line.now["grants"])


def _worst(line: ClassLine) -> tuple[float, ...]:
    wrong = (-int(line.lost_lately), -line.now["on_fewer_masters"])
    return (*wrong, *_waited_for(line), *_busy(line), -line.now["leases"])


def _worst_lease(lease: Lease) -> tuple[float, ...]:
    return (-lease["lost"], -lease["waiters"], lease["masters"] - lease["of"], -lease["held_ms"])


ORDERS: Mapping[str, Order] = {
    "worst": Order(_worst, _worst_lease),
    "waiting": Order(_waited_for, lambda lease: (-lease["waiters"], -lease["held_ms"])),
    "held": Order(lambda line: (-line.now["leases"],), lambda lease: (-lease["held_ms"],)),
    "busy": Order(_busy, lambda lease: (lease["held_ms"],)),
    "name": Order(lambda _: (), lambda _: ()),
}
"""By the words of `--sort`. Equals are sorted by name."""


def sorted_classes(lines: Sequence[ClassLine], order: str) -> list[ClassLine]:
    return sorted(lines, key=lambda line: (*ORDERS[order].classes(line), line.name))


def sorted_leases(leases: Sequence[Lease], order: str) -> list[Lease]:
    return sorted(leases, key=lambda lease: (*ORDERS[order].leases(lease), str(lease["resource"])))


def is_chosen(name: str, patterns: Sequence[str]) -> bool:
    """Whether a class is shown: without patterns every one is."""
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def shares(lines: int, wanted: Sequence[int]) -> list[int]:
    """How many of the lines each table gets: what it wants, and no more than its fair share of the rest."""
    given = [0] * len(wanted)
    for number, at in enumerate(sorted(range(len(wanted)), key=lambda at: wanted[at])):
        given[at] = min(wanted[at], max(0, lines - sum(given)) // (len(wanted) - number))
    return given
