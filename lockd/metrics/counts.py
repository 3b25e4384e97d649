"""What is counted, as plain ints and lists: the event loop changes them in place, a scrape reads them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from lockd.core.errors import ErrorWord, Kind, Of
from lockd.core.leases import Loss
from lockd.core.validity import NS_PER_MS

REFUSAL_CODES = ErrorWord.answering(Of.LOCK)
"""Why LOCKs are refused."""
LEASE_COMMANDS = ("extend", "unlock")
LEASE_REFUSAL_CODES = ErrorWord.answering(Of.LEASE)
"""Why commands about a lease are refused."""
UNMEANT_LOSSES = (Loss.NOT_RENEWED, Loss.GONE, Loss.CLOCKS)
"""Losses that are somebody's trouble: those by force, for max_hold or for a limit that an app ran into were
meant."""
RELEASE_REASONS = ("released", "expired", "app gone", "forced")

GRANTED, CONTENDED, UNAVAILABLE, REJECTED = OUTCOMES = ("granted", "contended", "unavailable", "rejected")
"""How a LOCK ends. Contention is no outage, and an outage no contention; rejected is what the asker did
wrong, or a limit that was hit."""
_OUTCOME_OF_KIND = {Kind.CONTENDED: CONTENDED, Kind.UNAVAILABLE: UNAVAILABLE}
_OUTCOME_OF = {word: _OUTCOME_OF_KIND.get(word.kind, REJECTED) for word in ErrorWord}
UNRELEASED = "unreleased"
CANARY_OUTCOMES = (*OUTCOMES, UNRELEASED)

NOT_COUNTED = (
    "late", "connection_lost", "error", "clock", "state",
    "no_identity", "ttl_above_ceiling", "miscounting", "nonsense",
)  # fmt: skip
"""Why the vote of a master did not count."""

# Upper bounds in seconds. A wait may be as short as a few steps of the event loop, and as long as an app's
# patience.
WAIT_S = (
    10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
HOLD_S = (
    0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0,
    300.0, 600.0, 1800.0, 3600.0, 14400.0, 86400.0,
)  # fmt: skip
ROUND_TRIP_S = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25, 0.5, 1.0, 2.0,
)  # fmt: skip
MARGIN_S = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


def outcome_of(code: ErrorWord) -> str:
    """How a LOCK ended that was refused with this first word."""
    return _OUTCOME_OF[code]


class Histogram:
    """Durations in ns, counted by upper bound; the last count is of all that were longer.

    `exemplars`: for each bucket the fence of the last lease that fell into it, and the duration.
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
        """As Prometheus wants them: every bucket holds those before it, too."""
        return list(zip(self.names, accumulate(self.counts[:]), strict=True))


class Tally(dict[str, int]):
    """Counts by a word that code chooses. Words not known at the start begin at 0."""

    def __missing__(self, word: str) -> int:
        return 0


class ClassCounts:
    """All that is counted for one class. The number of grants is that of waits that were granted.

    objective_ns: a wait that took longer is slow. unmeant_loss_ns: when a lease was last lost that should not
    have been.
    """

    __slots__ = (
        "granted_wait", "hold", "lease_refusals", "losses", "margin", "objective_ns", "refusals", "releases",
        "renewals_failed", "renewals_worked", "slow_waits", "unmeant_loss_ns", "waits",
    )  # fmt: skip

    def __init__(self, objective_ms: int) -> None:
        self.objective_ns = objective_ms * NS_PER_MS
        self.waits = {outcome: Histogram(WAIT_S) for outcome in OUTCOMES}
        self.granted_wait = self.waits[GRANTED]
        self.hold = Histogram(HOLD_S)
        self.margin = Histogram(MARGIN_S)
        self.refusals = Tally.fromkeys(REFUSAL_CODES, 0)
        self.lease_refusals = {command: Tally.fromkeys(LEASE_REFUSAL_CODES, 0) for command in LEASE_COMMANDS}
        self.releases = Tally.fromkeys(RELEASE_REASONS, 0)
        self.losses = Tally.fromkeys(Loss, 0)
        self.unmeant_loss_ns: int | None = None
        self.slow_waits = 0
        self.renewals_worked = 0
        self.renewals_failed = 0

    def grants(self) -> int:
        return sum(self.granted_wait.counts)

    def leases(self) -> int:
        """Granted and not over yet. Ends are read first, so that it can't come out below zero."""
        over = sum(self.hold.counts)
        return self.grants() - over


class ClassTable(dict[str, ClassCounts]):
    """Class names to their counts; whatever isn't configured counts as `other`."""

    def __init__(self, objectives_ms: Iterable[tuple[str, int]]) -> None:
        super().__init__((label, ClassCounts(objective_ms)) for label, objective_ms in objectives_ms)

    def __missing__(self, label: str) -> ClassCounts:
        return self["other"]


class LoopLag:
    """How late the event loop was. The most is kept for a time, not from scrape to scrape: two scrapers would
    hide it from each other."""

    _WINDOW_NS = 30_000_000_000

    def __init__(self) -> None:
        self.last_ns = 0
        self._most_ns = 0
        self._most_before_ns = 0
        self._turn_ns = 0

    def observe(self, lag_ns: int, now_ns: int) -> None:
        self.last_ns = lag_ns
        if now_ns >= self._turn_ns:
            self._turn_ns = now_ns + self._WINDOW_NS
            self._most_before_ns, self._most_ns = self._most_ns, 0
        if lag_ns > self._most_ns:
            self._most_ns = lag_ns

    @property
    def most_ns(self) -> int:
        """In the last 30 to 60 seconds."""
        return max(self._most_ns, self._most_before_ns)


class MasterCounts:
    """What is counted for one master. A probe only reads its clock; a vote comes after its fsync."""

    __slots__ = ("connects", "nonsense", "not_counted", "probes", "votes")

    def __init__(self) -> None:
        self.votes = Histogram(ROUND_TRIP_S)
        self.probes = Histogram(ROUND_TRIP_S)
        self.connects = 0
        self.nonsense = 0
        self.not_counted = Tally.fromkeys(NOT_COUNTED, 0)
