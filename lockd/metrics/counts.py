"""Counters as plain ints and lists: the event loop changes them in place, a scrape reads them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

WAIT_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.5, 10.0, 60.0)
"""Upper bounds in seconds. A wait may be as short as a few steps of the event loop, and as long as an app's
patience."""


class Histogram:
    """Durations in ns, counted by upper bound; the last count is for all that were longer.

    `exemplars`: for each bucket, the fence of the last lease that fell into it, and the duration.
    """

    __slots__ = ("_bounds_ns", "counts", "exemplars", "names", "sum_ns")

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_ns = [round(bound * 1e9) for bound in bounds_s]
        self.names = [*map(repr, bounds_s), "+Inf"]
        self.counts = [0] * len(self.names)
        self.exemplars: list[tuple[int, int] | None] = [None] * len(self.names)
        self.sum_ns = 0

    def observe(self, ns: int) -> None:
        self.counts[bisect_left(self._bounds_ns, ns)] += 1
        self.sum_ns += ns

    def observe_lease(self, ns: int, fence: int) -> None:
        bucket = bisect_left(self._bounds_ns, ns)
        self.counts[bucket] += 1
        self.exemplars[bucket] = (fence, ns)
        self.sum_ns += ns

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus wants them: every bucket includes those before it."""
        return list(zip(self.names, accumulate(self.counts[:]), strict=True))


def histograms(words: Iterable[str], bounds_s: Sequence[float]) -> dict[str, Histogram]:
    return {word: Histogram(bounds_s) for word in words}


class Tally(dict[str, int]):
    """Counts by a word that code chooses. Words not known at the start begin at 0."""

    def __init__(self, words: Iterable[str]) -> None:
        super().__init__((word, 0) for word in words)

    def __missing__(self, word: str) -> int:
        return 0

    def by_label(self) -> dict[str, int]:
        """At one instant, with the words in the form that labels have."""
        return {word.lower().replace(" ", "_"): count for word, count in self.copy().items()}
