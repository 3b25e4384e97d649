"""What happened when the masters were asked: how long they took, and which votes did not count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lockd.metrics.counts import Histogram, Tally
from lockd.metrics.families import Measured, collected, counted, timed

if TYPE_CHECKING:
    from prometheus_client.core import Metric

NOT_COUNTED = (
    "late", "connection_lost", "error", "clock", "state",
    "no_identity", "ttl_above_ceiling", "miscounting", "nonsense", "no_lease",
)  # fmt: skip
"""Why the vote of a master did not count."""


def round_trip_bounds_s(timeout_ms: int) -> dict[str, list[float]]:
    """Upper bounds in seconds, by what is asked, where a master has so long to answer.

    LockdMasterSlow fires when 1 % of the votes take longer than a quarter of that. A quantile is exact only
    where it is compared with one of the bounds.
    """
    return {
        "vote": sorted({0.001, 0.002, 0.005, 0.01, 0.03, 0.1, timeout_ms / 4e3, timeout_ms / 1e3}),
        "probe": [0.001, 0.01, 0.1],
    }


class MasterCounts(Measured):
    """All counters of one master. A probe only reads its clock; a vote comes after its fsync."""

    master_round_trip_seconds = timed(
        "Time from asking a master to its answer. A vote includes the master's fsync, a probe only reads its"
        " clock. Of votes that arrive together, one is counted. A quarter of timeouts.master_ms and all of it"
        " are bounds of the buckets of votes.",
        dict[str, Histogram],
        by="question",
    )
    master_votes_not_counted = counted(
        "Votes that a master was asked for and that did not count, by reason.",
        partial(Tally, NOT_COUNTED),
        by="reason",
    )
    master_connects = counted("Connections made to a master.", int)
    master_nonsense = counted(
        "Connections to a master that were closed because of an answer that makes no sense.", int
    )
    master_counters_fallen = counted(
        "Fence counters of a master that were lower than when this agent had read them before.", int
    )

    def __init__(self, timeout_ms: int) -> None:
        super().__init__()
        self.master_round_trip_seconds = {
            question: Histogram(bounds_s) for question, bounds_s in round_trip_bounds_s(timeout_ms).items()
        }


class MasterMetrics:
    """`masters.fleet.Gauge`: the links report to it, by their number."""

    def __init__(self, names: Sequence[str], timeout_ms: int) -> None:
        self._of = [(name, MasterCounts(timeout_ms)) for name in names]

    def votes_of(self, master: int) -> Callable[[int], None]:
        """Call it with the time from asking a master for a vote to its answer, its fsync included."""
        return self._counts(master).master_round_trip_seconds["vote"].observe

    def probed(self, master: int, ns: int) -> None:
        """The time from asking a master for its clock to its answer."""
        self._counts(master).master_round_trip_seconds["probe"].observe(ns)

    def not_counted(self, master: int, why: str) -> None:
        """A master was asked for a vote, and it did not count: why is one of NOT_COUNTED."""
        self._counts(master).master_votes_not_counted[why] += 1

    def connected(self, master: int) -> None:
        """A connection to this master was made and it said who it is."""
        self._counts(master).master_connects += 1

    def nonsense(self, master: int) -> None:
        """A connection was given up because of what its master sent on it."""
        self._counts(master).master_nonsense += 1

    def counter_fell(self, master: int, slot: int) -> None:
        """A fence counter of this master is lower than it was."""
        self._counts(master).master_counters_fallen += 1

    def _counts(self, master: int) -> MasterCounts:
        return self._of[master][1]

    def collect(self) -> Iterator[Metric]:
        return collected(MasterCounts, (((name,), of) for name, of in self._of), "master")
