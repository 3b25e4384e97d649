"""How LOCKs and leases ended, by class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from lockd.config.model import CANARY, Config
from lockd.core.errors import ErrorWord, Kind, Of
from lockd.core.leases import Lease, Loss
from lockd.core.queues import KeptEnd
from lockd.core.tenures.places import RecallEnd
from lockd.core.validity import NS_PER_MS
from lockd.core.values import Refusal
from lockd.metrics.agent import AgentMetrics
from lockd.metrics.classes import of_apps
from lockd.metrics.counts import WAIT_S, Histogram, Tally, histograms
from lockd.metrics.families import Measured, collected, counted, counter, gauge, summed, timed

if TYPE_CHECKING:
    from prometheus_client.core import Metric

REFUSAL_CODES = ErrorWord.answering(Of.LOCK)
"""Why LOCKs are refused."""
TRY_CODES = (ErrorWord.TAKEN, ErrorWord.TIMEOUT, ErrorWord.NOQUORUM, ErrorWord.CLOCK)
"""The outcomes of a round over the masters that brings no tenure. TIMEOUT: a split vote, or reserved."""
LEASE_REFUSAL_CODES = ErrorWord.answering(Of.LEASE)
"""Why commands about a lease are refused."""
UNMEANT_LOSSES = (Loss.NOT_RENEWED, Loss.GONE, Loss.CLOCKS)
"""Losses that are a problem: those by force, for max_hold or because an app reached a limit were intended."""
RELEASE_REASONS = ("released", "released elsewhere", "expired", "app gone", "forced")

GRANTED, CONTENDED, UNAVAILABLE, REJECTED = OUTCOMES = ("granted", "contended", "unavailable", "rejected")
"""How a LOCK ends. Contention is no outage, and an outage no contention; rejected means that the request was
wrong, or that a limit was reached."""
_OUTCOME_OF_KIND = {Kind.CONTENDED: CONTENDED, Kind.UNAVAILABLE: UNAVAILABLE}
_OUTCOME_OF = {word: _OUTCOME_OF_KIND.get(word.kind, REJECTED) for word in ErrorWord}

VIAS = ("lock", "set", "script")
"""How locks are asked for: by LOCK, Redis's own commands, or scripts that are recognised."""

HOLD_S = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
TURN_S = (0.01, 0.1, 1.0)
MARGIN_S = (0.1, 1.0, 10.0)
_OF_CANARY = ("grants", "refusals")
"""What the canary's class shows, since availability is calculated from these; CanaryMetrics has the rest."""


def waits() -> dict[str, Histogram]:
    """The waits of LOCKs that were granted. A refusal comes at once, or when the app's own WAIT ends, so
    refusals are only counted."""
    return {GRANTED: Histogram(WAIT_S)}


def outcome_of(code: ErrorWord) -> str:
    """The outcome of a LOCK that was refused with this first word."""
    return _OUTCOME_OF[code]


class ClassCounts(Measured):
    """All counters of one class. The number of grants is the number of waits that were granted.

    objective_ns: a wait that took longer is slow. unmeant_loss_ns: when a lease was last lost that should not
    have been. releases, failed_tries and taken_over are exposed by TogetherCounts.
    """

    def __init__(self, of_canary: bool) -> None:
        super().__init__()
        self._of_canary = of_canary
        self.granted_wait = self.wait_seconds[GRANTED]
        self.objective_ns = 0
        self.unmeant_loss_ns: int | None = None
        self.releases = Tally(RELEASE_REASONS)
        self.failed_tries = Tally(TRY_CODES)
        self.taken_over = 0

    def shows(self, name: str) -> bool:
        return name in _OF_CANARY if self._of_canary else True

    @counter("Leases granted.")
    def grants(self) -> int:
        return sum(self.granted_wait.counts)

    refusals = counted(
        "LOCKs that were refused, by the first word of the error.",
        partial(Tally, REFUSAL_CODES),
        by="reason",
    )
    wait_seconds = timed("Time from a LOCK to its answer, for LOCKs that were granted.", waits, by="outcome")
    lease_refusals = counted(
        "EXTENDs and UNLOCKs that were refused, by the first word of the error.",
        partial(Tally, LEASE_REFUSAL_CODES),
        by="reason",
    )
    slow_waits = counted(
        "Waits longer than the class's objective, of LOCKs that were granted or ended as TIMEOUT.", int
    )
    hold_seconds = timed(
        "Time from a grant to the end of the lease, however it ended.", partial(Histogram, HOLD_S)
    )

    @gauge("Leases that were granted and are not over yet.")
    def leases(self) -> int:
        """Ends are read first, so that the result can't be below zero."""
        over = sum(self.hold_seconds.counts)
        return self.grants() + self.taken_over - over

    release_margin_seconds = timed(
        "Validity that was left when an app gave its lease back. Near 0, the release was nearly too late.",
        partial(Histogram, MARGIN_S),
    )
    renewals = counted(
        "Extensions of leases, by the agent or asked for by apps.",
        partial(Tally, ("worked", "failed")),
        by="outcome",
    )
    losses = counted(
        "Leases that were lost under their holders: not renewed in time (not_renewed), gone from the masters"
        " (gone), held for max_hold (max_hold), forced by an operator (forced), over because their host "
        "stood still or masters' clocks were set (clocks), or of an app that was cut off by a limit "
        "(cut_off).",
        partial(Tally, Loss),
        by="reason",
    )
    hand_offs = counted(
        "Leases granted under the tenure of the lease before on this host, mostly without a round trip.", int
    )

    def totals(self, now_ns: int) -> dict[str, int]:
        losses, last_ns = self.losses.copy(), self.unmeant_loss_ns
        totals = {
            "grants": self.grants(),
            "refusals": sum(self.refusals.copy().values()),
            "losses": sum(losses.values()),
            "losses_meant": sum(count for by, count in losses.items() if by not in UNMEANT_LOSSES),
        }
        return totals if last_ns is None else totals | {"last_loss_ms": max(0, now_ns - last_ns) // NS_PER_MS}


class TogetherCounts(Measured):
    """Metrics over all classes together: by class they would be a third of an agent's series, and no alert
    needs that."""

    def __init__(self, by_class: Mapping[str, ClassCounts]) -> None:
        super().__init__()
        self._by_class = by_class

    asked = counted(
        "Locks that apps asked for: with LOCK, or as from one Redis with its own commands (set) or a script.",
        partial(Tally, VIAS),
        by="via",
    )
    turn_seconds = timed(
        "Time from a recall to the return of a resource that was in use here and for which another host "
        "waits.",
        partial(Histogram, TURN_S),
    )
    recall_seconds = summed(
        "For LOCKs without WAIT in classes with keep_ms that met another host's tenure: time until the "
        "tenure was given back, was said to be in use, or its host had been silent for too long.",
        partial(histograms, RecallEnd, ()),
        by="outcome",
    )
    kept_seconds = summed(
        "How long tenures stayed without a lease (keep_ms), by what ended that: locked here again, the time "
        "was over, recalled for another host, or given back for another reason.",
        partial(histograms, KeptEnd, ()),
        by="outcome",
    )

    @counter(
        "Rounds over all masters that brought apps no tenure, by the first word of the error. Every grant "
        "that is not a hand_off took one successful round.",
        by="reason",
    )
    def failed_tries(self) -> dict[str, int]:
        return _added(of.failed_tries for of in of_apps(self._by_class).values())

    @counter("Leases taken over from the previous agent on this host.")
    def taken_over(self) -> int:
        return sum(of.taken_over for of in of_apps(self._by_class).values())

    @counter("Leases of apps that ended, by reason.", by="reason")
    def releases(self) -> dict[str, int]:
        return _added(of.releases for of in of_apps(self._by_class).values())


def _added(tallies: Iterable[Tally]) -> dict[str, int]:
    """The sum of several tallies, with the words in the form that labels have."""
    total: dict[str, int] = {}
    for tally in tallies:
        for word, count in tally.by_label().items():
            total[word] = total.get(word, 0) + count
    return total


class _ByClass(dict[str, ClassCounts]):
    """A class that isn't configured counts as `other`."""

    def __missing__(self, label: str) -> ClassCounts:
        return self["other"]


class LeaseMetrics:
    """`core.interfaces.Watcher`: core tells it what happens."""

    def __init__(self, agent: AgentMetrics, now_ns: Callable[[], int]) -> None:
        self._agent = agent
        self._now_ns = now_ns
        self._of = _ByClass()
        self.together = TogetherCounts(self._of)

    def configure(self, config: Config) -> None:
        """Count for its classes, too. Earlier classes are not forgotten: their leases have not ended, and
        counters must not go backwards when a class comes back."""
        for label in config.labels:
            objective_ns = config.class_named(label).wait_objective_ms * NS_PER_MS
            self._of.setdefault(label, ClassCounts(label == CANARY)).objective_ns = objective_ns

    @property
    def labels(self) -> tuple[str, ...]:
        """Every class that has counters."""
        return tuple(self._of)

    def asked(self, via: str) -> None:
        """An app has asked for a lock; via: one of VIAS."""
        self.together.asked[via] += 1

    def granted(self, lease: Lease, waited_ns: int) -> None:
        counts = self._of[lease.holder.label]
        counts.granted_wait.observe_lease(waited_ns, lease.fence)
        if waited_ns > counts.objective_ns:
            counts.slow_waits += 1

    def taken_over(self, lease: Lease) -> None:
        self._of[lease.holder.label].taken_over += 1

    def refused(self, label: str, refusal: Refusal, waited_ns: int) -> None:
        counts = self._of[label]
        counts.refusals[refusal.code] += 1
        # Not TAKEN: a LOCK that gets it did not wait, so it is not part of the total for the ratio of slow
        # waits.
        if refusal.code is ErrorWord.TIMEOUT and waited_ns > counts.objective_ns:
            counts.slow_waits += 1

    def lost(self, lease: Lease, reason: str) -> None:
        assert lease.lost_by is not None
        counts = self._of[lease.holder.label]
        counts.losses[lease.lost_by] += 1
        if lease.lost_by in UNMEANT_LOSSES:
            counts.unmeant_loss_ns = self._now_ns()

    def released(self, lease: Lease, why: str, now_ns: int) -> None:
        counts = self._of[lease.holder.label]
        counts.hold_seconds.observe_lease(now_ns - lease.granted_ns, lease.fence)
        counts.releases[why] += 1
        if why == "released":
            counts.release_margin_seconds.observe(max(0, lease.deadline_ns - now_ns))

    def renewed(self, lease: Lease, worked: bool) -> None:
        self._of[lease.holder.label].renewals["worked" if worked else "failed"] += 1

    def fence_round(self) -> None:
        self._agent.fence_rounds += 1

    def tried_in_vain(self, label: str, code: ErrorWord) -> None:
        self._of[label].failed_tries[code] += 1

    def handed_on(self, lease: Lease) -> None:
        self._of[lease.holder.label].hand_offs += 1

    def turn_over(self, label: str, took_ns: int) -> None:
        self.together.turn_seconds.observe(took_ns)

    def asked_back(self, label: str, end: RecallEnd, took_ns: int) -> None:
        self.together.recall_seconds[end].observe(took_ns)

    def kept_no_more(self, label: str, why: KeptEnd, for_ns: int) -> None:
        self.together.kept_seconds[why].observe(for_ns)

    def lease_refused(self, label: str, code: ErrorWord) -> None:
        """An app's EXTEND or UNLOCK of a resource of this class was refused; code: the error's first word."""
        self._of[label].lease_refusals[code] += 1

    def totals(self) -> dict[str, int]:
        """The few sums that INFO shows."""
        counts = list(self._of.values())
        return {
            "grants_total": sum(c.grants() for c in counts),
            "releases_total": sum(sum(c.releases.values()) for c in counts),
            "refusals_total": sum(sum(c.refusals.values()) for c in counts),
            "losses_total": sum(sum(c.losses.values()) for c in counts),
        }

    def totals_by_class(self) -> dict[str, dict[str, int]]:
        """The same for each class, for the status page and INFO. losses_meant: those of `losses` that an
        operator or max_hold caused; last_loss_ms: how long ago the last other one was, absent if there is
        none."""
        now_ns = self._now_ns()
        return {label: of.totals(now_ns) for label, of in list(self._of.items())}

    def collect(self) -> Iterator[Metric]:
        yield from collected(ClassCounts, [((label,), of) for label, of in list(self._of.items())], "class")
        yield from self.together.collect()
