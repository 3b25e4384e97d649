"""How LOCKs and leases ended, by class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from prometheus_client.core import Metric

from lockd.config.model import Config
from lockd.core.errors import ErrorWord, Kind, Of
from lockd.core.leases import Lease, Loss
from lockd.core.queues import KeptEnd
from lockd.core.tenures.places import RecallEnd
from lockd.core.validity import NS_PER_MS
from lockd.core.values import Refusal
from lockd.metrics.agent import AgentMetrics
from lockd.metrics.counts import WAIT_S, Histogram, Tally, histograms
from lockd.metrics.families import Measured, collected, counted, counter, gauge, timed

REFUSAL_CODES = ErrorWord.answering(Of.LOCK)
"""Why LOCKs are refused."""
TRY_CODES = (ErrorWord.TAKEN, ErrorWord.TIMEOUT, ErrorWord.NOQUORUM, ErrorWord.CLOCK)
"""What a round over the masters that brings no tenure comes to. TIMEOUT: a split vote, or reserved."""
LEASE_COMMANDS = ("extend", "unlock")
LEASE_REFUSAL_CODES = ErrorWord.answering(Of.LEASE)
"""Why commands about a lease are refused."""
UNMEANT_LOSSES = (Loss.NOT_RENEWED, Loss.GONE, Loss.CLOCKS)
"""Losses that are somebody's trouble: those by force, for max_hold or for a limit that an app ran into were
meant."""
RELEASE_REASONS = ("released", "released elsewhere", "expired", "app gone", "forced")

GRANTED, CONTENDED, UNAVAILABLE, REJECTED = OUTCOMES = ("granted", "contended", "unavailable", "rejected")
"""How a LOCK ends. Contention is no outage, and an outage no contention; rejected is what the asker did
wrong, or a limit that was hit."""
_OUTCOME_OF_KIND = {Kind.CONTENDED: CONTENDED, Kind.UNAVAILABLE: UNAVAILABLE}
_OUTCOME_OF = {word: _OUTCOME_OF_KIND.get(word.kind, REJECTED) for word in ErrorWord}

VIAS = ("lock", "set", "script")
"""What locks are asked for by: LOCK, Redis's own commands, scripts that are recognised."""

_HOLD_S = (
    0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0,
    300.0, 600.0, 1800.0, 3600.0, 14400.0, 86400.0,
)  # fmt: skip
_KEPT_S = (0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
_MARGIN_S = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


def outcome_of(code: ErrorWord) -> str:
    """How a LOCK ended that was refused with this first word."""
    return _OUTCOME_OF[code]


def _named(kind: Kind) -> str:
    return ", ".join(ErrorWord.answering(Of.LOCK, kind))


def _tallies_of_commands() -> dict[str, Tally]:
    return {command: Tally(LEASE_REFUSAL_CODES) for command in LEASE_COMMANDS}


class ClassCounts(Measured):
    """All that is counted for one class. The number of grants is that of waits that were granted.

    objective_ns: a wait that took longer is slow. unmeant_loss_ns: when a lease was last lost that should not
    have been.
    """

    def __init__(self) -> None:
        super().__init__()
        self.granted_wait = self.wait_seconds[GRANTED]
        self.objective_ns = 0
        self.unmeant_loss_ns: int | None = None

    @counter("Leases granted.")
    def grants(self) -> int:
        return sum(self.granted_wait.counts)

    asked = counted(
        "Locks that apps asked for, by what: LOCK, or as of one Redis by its own commands (set) or a script.",
        partial(Tally, VIAS),
        by="via",
    )
    refusals = counted(
        "LOCKs that were refused, by the first word of the error.",
        partial(Tally, REFUSAL_CODES),
        by="reason",
    )
    wait_seconds = timed(
        f"From a LOCK to its answer: granted, contended ({_named(Kind.CONTENDED)}), unavailable "
        f"({_named(Kind.UNAVAILABLE)}), or rejected for what the asker did.",
        partial(histograms, OUTCOMES, WAIT_S),
        by="outcome",
    )
    lease_refusals = counted(
        "EXTENDs and UNLOCKs that were refused, by the first word of the error.",
        _tallies_of_commands,
        by=("command", "reason"),
    )
    slow_waits = counted(
        "Waits longer than the class's objective, of LOCKs that were granted or ended as TIMEOUT.", int
    )
    hold_seconds = timed("From a grant to its end, of any kind.", partial(Histogram, _HOLD_S))

    @gauge("Leases granted and not over yet.")
    def leases(self) -> int:
        """Ends are read first, so that it can't come out below zero."""
        over = sum(self.hold_seconds.counts)
        return self.grants() + self.taken_over - over

    release_margin_seconds = timed(
        "Validity that was left when an app gave its lease back: near 0 it nearly came too late.",
        partial(Histogram, _MARGIN_S),
    )
    renewals = counted(
        "Extensions of leases, by the agent or asked for by apps.",
        partial(Tally, ("worked", "failed")),
        by="outcome",
    )
    losses = counted(
        "Leases lost under their holders: not renewed in time, gone from the masters, over while their host "
        "stood still or masters' clocks were set (clocks), forced by an operator, held for max_hold or an "
        "app's that a limit cut off.",
        partial(Tally, Loss),
        by="reason",
    )
    hand_offs = counted(
        "Leases granted under the tenure of the one before on this host, mostly with no round trip.", int
    )
    turn_seconds = timed(
        "From a recall of what was in use here, as another host waits for it, to its being given back.",
        partial(Histogram, _KEPT_S),
    )
    failed_tries = counted(
        "Rounds over all masters that brought no tenure, by the first word of what they came to. Of grants, "
        "those that are no hand_offs took one round that did.",
        partial(Tally, TRY_CODES),
        by="reason",
    )
    recall_seconds = timed(
        "From a LOCK without WAIT, of a class with keep_ms, that met another host's tenure to what came of "
        "that: given back, in use, or silent, since no answer came in time.",
        partial(histograms, RecallEnd, _KEPT_S),
        by="end",
    )
    kept_seconds = timed(
        "For how long tenures stayed when nobody had them (keep_ms), by what ended that: locked here once "
        "more, time, recalled for another host, or given back for another reason.",
        partial(histograms, KeptEnd, _KEPT_S),
        by="end",
    )
    taken_over = counted("Leases taken over from the agent that was on this host before.", int)
    releases = counted("Leases that ended, by why.", partial(Tally, RELEASE_REASONS), by="why")

    def totals(self, now_ns: int) -> dict[str, int]:
        losses, last_ns = self.losses.copy(), self.unmeant_loss_ns
        totals = {
            "grants": self.grants(),
            "refusals": sum(self.refusals.copy().values()),
            "losses": sum(losses.values()),
            "losses_meant": sum(count for by, count in losses.items() if by not in UNMEANT_LOSSES),
        }
        return totals if last_ns is None else totals | {"last_loss_ms": max(0, now_ns - last_ns) // NS_PER_MS}


class _ByClass(dict[str, ClassCounts]):
    """Whatever isn't configured counts as `other`."""

    def __missing__(self, label: str) -> ClassCounts:
        return self["other"]


class LeaseMetrics:
    """`core.interfaces.Watcher`: core tells it what happens."""

    def __init__(self, agent: AgentMetrics, now_ns: Callable[[], int]) -> None:
        self._agent = agent
        self._now_ns = now_ns
        self._of = _ByClass()

    def configure(self, config: Config) -> None:
        """Count for its classes, too. None is forgotten that there was before: its leases have not ended, and
        counters must not go backwards when it comes back."""
        for label in config.labels:
            objective_ns = config.class_named(label).wait_objective_ms * NS_PER_MS
            self._of.setdefault(label, ClassCounts()).objective_ns = objective_ns

    @property
    def labels(self) -> tuple[str, ...]:
        """Every class that is counted for."""
        return tuple(self._of)

    def asked(self, label: str, via: str) -> None:
        """An app has asked for a lock of this class; via: one of VIAS."""
        self._of[label].asked[via] += 1

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
        counts.wait_seconds[outcome_of(refusal.code)].observe(waited_ns)
        # Not TAKEN: who gets that did not ask to wait, and is not among those that slow waits are a share of.
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
        self._of[label].turn_seconds.observe(took_ns)

    def asked_back(self, label: str, end: RecallEnd, took_ns: int) -> None:
        self._of[label].recall_seconds[end].observe(took_ns)

    def kept_no_more(self, label: str, why: KeptEnd, for_ns: int) -> None:
        self._of[label].kept_seconds[why].observe(for_ns)

    def lease_refused(self, label: str, command: str, code: ErrorWord) -> None:
        """An app's EXTEND or UNLOCK of a resource of this class was refused; code: the error's first word."""
        self._of[label].lease_refusals[command][code] += 1

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
        """The same for each class: what the status page and INFO show. losses_meant: those of `losses` that
        an operator or max_hold wanted; last_loss_ms: how long ago the last other one was, absent without one.
        """
        now_ns = self._now_ns()
        return {label: of.totals(now_ns) for label, of in list(self._of.items())}

    def collect(self) -> Iterator[Metric]:
        return collected(ClassCounts, [((label,), of) for label, of in list(self._of.items())], "class")
