"""What came of asking the masters: how long they took, and which votes did not count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from prometheus_client.core import Metric

from lockd.metrics.counts import Tally, histograms
from lockd.metrics.families import Measured, collected, counted, timed

NOT_COUNTED = (
    "late", "connection_lost", "error", "clock", "state",
    "no_identity", "ttl_above_ceiling", "miscounting", "nonsense",
)  # fmt: skip
"""Why the vote of a master did not count."""

_ROUND_TRIP_S = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.5, 1.0, 2.0,
)  # fmt: skip


class MasterCounts(Measured):
    """What is counted for one master. A probe only reads its clock; a vote comes after its fsync."""

    master_round_trip_seconds = timed(
        "From asking a master to its answer. A vote comes after the master's fsync, a probe reads only its "
        "time; of votes that come together, one is counted.",
        partial(histograms, ("vote", "probe"), _ROUND_TRIP_S),
        by="question",
    )
    master_votes_not_counted = counted(
        "Votes that a master was asked for and that did not count, by why.",
        partial(Tally, NOT_COUNTED),
        by="reason",
    )
    master_connects = counted("Connections made to a master.", int)
    master_nonsense = counted(
        "Connections to a master that were given up because of an answer that makes no sense.", int
    )


class MasterMetrics:
    """`masters.fleet.Gauge`: the links tell it what happens, by their number."""

    def __init__(self, names: Sequence[str]) -> None:
        self._of = [(name, MasterCounts()) for name in names]

    def votes_of(self, master: int) -> Callable[[int], None]:
        """To be told how long each took from asking a master for a vote to its answer, its fsync included."""
        return self._counts(master).master_round_trip_seconds["vote"].observe

    def probed(self, master: int, ns: int) -> None:
        """From asking a master for its time to its answer."""
        self._counts(master).master_round_trip_seconds["probe"].observe(ns)

    def not_counted(self, master: int, why: str) -> None:
        """A master was asked for a vote, and it did not count: why is one of NOT_COUNTED."""
        self._counts(master).master_votes_not_counted[why] += 1

    def connected(self, master: int) -> None:
        """A connection to this master was made and it said who it is."""
        self._counts(master).master_connects += 1

    def nonsense(self, master: int) -> None:
        """A connection was given up because of what its master said on it."""
        self._counts(master).master_nonsense += 1

    def _counts(self, master: int) -> MasterCounts:
        return self._of[master][1]

    def collect(self) -> Iterator[Metric]:
        return collected(MasterCounts, (((name,), of) for name, of in self._of), "master")
