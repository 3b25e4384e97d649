"""What the agent counts, and how Prometheus reads it.

The event loop counts: plain ints and lists, changed in place, because more than ten thousand locks a second
pass here. A scrape reads them from another thread. It may see a sum that is one step ahead of its buckets,
and never anything worse: the interpreter lock makes each single read and each copy whole.

A scrape must not hold up the event loop either. It takes the interpreter lock in small bites and rests
between them, since a thread that only offers the lock gets it back before the other one has woken up.

Labels are known from the start: classes, masters, and the words of this file. Never a resource.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from lockd import __version__
from lockd.clock import boottime_ns
from lockd.config.model import Config
from lockd.core.errors import ErrorWord
from lockd.core.interfaces import Watcher
from lockd.core.leases import Lease
from lockd.core.membership import Memory, State
from lockd.core.validity import NS_PER_MS
from lockd.core.values import Refusal
from lockd.metrics.census import Census, Counted
from lockd.metrics.counts import (
    CANARY_OUTCOMES,
    GRANTED,
    UNMEANT_LOSSES,
    UNRELEASED,
    WAIT_S,
    ClassCounts,
    ClassTable,
    Histogram,
    LoopLag,
    MasterCounts,
    Tally,
    outcome_of,
)
from lockd.metrics.families import Rows, counter, gauge, gauges, histogram

if TYPE_CHECKING:
    from lockd.core.locks import Locks
    from lockd.masters.fleet import Fleet

V = TypeVar("V")

_REST_S = 50e-6


class CanaryTrouble(NamedTuple):
    """`failures` in a row until now, and why the last one was: the first word of the error, and all of it."""

    failures: int = 0
    code: str = ""
    why: str = ""


class Metrics(Watcher, Collector):
    """Counts what happens on the event loop; `registry` is what a scrape reads, from any thread.

    `attach` what is only looked at when somebody asks; until then there is nothing of masters and waiters.
    """

    def __init__(self, config: Config, now_ns: Callable[[], int] = boottime_ns) -> None:
        self._config = config
        self._now_ns = now_ns
        self._masters = [master.name for master in config.masters]
        self._fingerprint = config.fingerprint()
        self._of = ClassTable((label, config.class_named(label).wait_objective_ms) for label in config.labels)
        self._of_master = [MasterCounts() for _ in self._masters]
        self._limits = Tally.fromkeys(type(config.limits).model_fields, 0)
        self._canary = {outcome: Histogram(WAIT_S) for outcome in CANARY_OUTCOMES}
        self._canary_worked_s: float | None = None
        self._canary_trouble = CanaryTrouble()
        self._fence_rounds = 0
        self._forced_releases = 0
        self._protocol_errors = 0
        self._internal_errors = 0
        self._lag = LoopLag()
        self._fleet: Fleet | None = None
        self._locks: Locks | None = None
        self._connections: Callable[[], int] | None = None
        self._census: Counted | None = None
        self._socket_trouble: Callable[[], str] = lambda: "not made yet"
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def attach(self, fleet: Fleet, locks: Locks, connections: Callable[[], int]) -> None:
        """What a scrape looks at by itself. `connections` is called from the thread of the scrape."""
        self._fleet, self._locks, self._connections = fleet, locks, connections
        self._census = Counted(self._new_census, locks, self._now_ns)

    def watch_socket(self, trouble: Callable[[], str]) -> None:
        """`trouble` says why no app gets in, or nothing. It is called from the thread of the scrape."""
        self._socket_trouble = trouble

    def census_steps(self) -> Iterator[None]:
        """Count what is held and waited for, unless that was done a moment ago. Rest whenever it yields."""
        if self._census is not None:
            yield from self._census.steps()

    @property
    def census(self) -> Census:
        """What was counted last."""
        return self._new_census() if self._census is None else self._census.last

    def rested_census(self) -> Census:
        """Counted from another thread than the loop's."""
        for _ in self.census_steps():
            time.sleep(_REST_S)
        return self.census

    def _new_census(self) -> Census:
        return Census(self._config.labels, len(self._masters), self._config.timeouts.master_ms)

    # core.interfaces.Watcher

    def granted(self, lease: Lease, waited_ns: int) -> None:
        counts = self._of[lease.holder.label]
        counts.granted_wait.observe_lease(waited_ns, lease.fence)
        if waited_ns > counts.objective_ns:
            counts.slow_waits += 1

    def refused(self, label: str, refusal: Refusal, waited_ns: int) -> None:
        counts = self._of[label]
        counts.refusals[refusal.code] += 1
        counts.waits[outcome_of(refusal.code)].observe(waited_ns)
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
        counts.hold.observe_lease(now_ns - lease.granted_ns, lease.fence)
        counts.releases[why] += 1
        if why == "released":
            counts.margin.observe(max(0, lease.deadline_ns - now_ns))

    def renewed(self, lease: Lease, worked: bool) -> None:
        counts = self._of[lease.holder.label]
        if worked:
            counts.renewals_worked += 1
        else:
            counts.renewals_failed += 1

    def fence_round(self) -> None:
        self._fence_rounds += 1

    # The links and the server

    def votes_of(self, master: int) -> Callable[[int], None]:
        """To be told how long each took from asking a master for a vote to its answer, its fsync included."""
        return self._of_master[master].votes.observe

    def probed(self, master: int, ns: int) -> None:
        """From asking a master for its time to its answer."""
        self._of_master[master].probes.observe(ns)

    def nonsense(self, master: int) -> None:
        """A connection was given up because of what its master said on it."""
        self._of_master[master].nonsense += 1

    def not_counted(self, master: int, why: str) -> None:
        """A master was asked for a vote, and it did not count: why is one of counts.NOT_COUNTED."""
        self._of_master[master].not_counted[why] += 1

    def connected(self, master: int) -> None:
        """A connection to this master was made and it said who it is."""
        self._of_master[master].connects += 1

    def lease_refused(self, label: str, command: str, code: ErrorWord) -> None:
        """An app's EXTEND or UNLOCK of a resource of this class was refused; code: the error's first word."""
        self._of[label].lease_refusals[command][code] += 1

    def limit_refused(self, limit: str) -> None:
        """An app ran into a limit; `limit` is its name in the configuration."""
        self._limits[limit] += 1

    def forced_release(self) -> None:
        self._forced_releases += 1

    def protocol_error(self) -> None:
        """An app sent what is no RESP request."""
        self._protocol_errors += 1

    def internal_error(self) -> None:
        """The agent itself failed at something."""
        self._internal_errors += 1

    def loop_lag(self, lag_ns: int, now_ns: int) -> None:
        """How late the event loop ran something that was due."""
        self._lag.observe(lag_ns, now_ns)

    def canary(self, refusal: Refusal | None, took_ns: int) -> None:
        """The canary's lock was taken and given back in this time (refusal None), or why not."""
        self._canary[GRANTED if refusal is None else outcome_of(refusal.code)].observe(took_ns)
        if refusal is None:
            self._canary_worked_s = time.time()
            self._canary_trouble = CanaryTrouble()
        else:
            self._canary_fails(refusal.code, str(refusal))

    def canary_unreleased(self, took_ns: int) -> None:
        """The canary's lock was taken, and giving it back was not confirmed."""
        self._canary[UNRELEASED].observe(took_ns)
        self._canary_fails("UNRELEASED", "its release was not confirmed")

    def _canary_fails(self, code: str, why: str) -> None:
        self._canary_trouble = CanaryTrouble(self._canary_trouble.failures + 1, code, why)

    @property
    def canary_trouble(self) -> CanaryTrouble:
        """How the canary is, as one piece: from any thread."""
        return self._canary_trouble

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
        return {label: _totals_of(of, now_ns) for label, of in self._of.items()}

    # What a scrape sees

    def collect(self) -> Iterator[Metric]:
        parts = (
            self._about,
            self._of_classes,
            self._of_leases,
            self._of_masters,
            self._of_fleet,
            self._of_agent,
            self._of_canary,
            self._of_locks,
        )
        for family in chain.from_iterable(part() for part in parts):
            yield family
            time.sleep(_REST_S)

    def _about(self) -> Iterator[Metric]:
        config = self._config
        yield InfoMetricFamily("lockd_build", "The version of the agent.", {"version": __version__})
        yield InfoMetricFamily(
            "lockd_config",
            "The configuration in use; two agents with one fingerprint have the same, but for secrets and "
            "for where they listen.",
            {"fingerprint": self._fingerprint, "cluster": config.cluster},
        )
        yield gauge("masters", "Masters that are configured.", len(self._masters))
        yield gauge("quorum", "How many of them a lease takes.", config.quorum)
        yield gauge("max_ttl_seconds", "The longest TTL that is granted.", config.max_ttl_ms / 1e3)
        yield gauge("master_timeout_seconds", "How long a master may take.", config.timeouts.master_ms / 1e3)
        yield gauge(
            "clock_skew_allowance_seconds",
            "How far a master's clock may be off the median before a fresh agent gives it no vote.",
            config.clock_skew_allowance_ms / 1e3,
        )
        limits = [((name,), value) for name, value in config.limits.model_dump().items()]
        yield gauges("limit", "What the agent takes before it answers LIMIT.", ("limit",), limits)
        yield from self._about_classes()

    def _about_classes(self) -> Iterator[Metric]:
        policies = [(label, self._config.class_named(label)) for label in self._config.labels]
        yield gauges(
            "class_info",
            "Always 1: whether a lost lease of this class is to wake somebody up.",
            ("class", "page_on_loss"),
            [((label, str(policy.page_on_loss).lower()), 1) for label, policy in policies],
        )
        yield gauges(
            "class_wait_objective_seconds",
            "A wait that takes longer than this counts as slow.",
            ("class",),
            [((label,), policy.wait_objective_ms / 1e3) for label, policy in policies],
        )
        yield gauges(
            "class_max_wait_seconds",
            "The longest that a LOCK may wait before it ends as TIMEOUT.",
            ("class",),
            [((label,), policy.max_wait_ms / 1e3) for label, policy in policies],
        )

    def _of_classes(self) -> Iterator[Metric]:
        rows, words = self._by_class, self._by_class_and_word
        by_class = ("class",)
        # Shares are made of these, so they are of one instant: between two families the loop may grant some.
        grants, slow_waits = rows(ClassCounts.grants), rows(lambda of: of.slow_waits)
        refusals = words(lambda of: {code.lower(): count for code, count in of.refusals.copy().items()})
        yield counter("grants", "Leases granted.", by_class, grants)
        yield counter(
            "refusals",
            "LOCKs that were refused, by the first word of the error.",
            ("class", "reason"),
            refusals,
        )
        yield histogram(
            "wait_seconds",
            "From a LOCK to its answer: granted, contended (TAKEN, TIMEOUT), unavailable (NOQUORUM, CLOCK), "
            "or rejected for what the asker did.",
            ("class", "outcome"),
            words(lambda of: of.waits),
        )
        yield counter(
            "lease_refusals",
            "EXTENDs and UNLOCKs that were refused, by the first word of the error.",
            ("class", "command", "reason"),
            [
                ((label, command, code.lower()), count)
                for label, of in self._of.items()
                for command, refusals in of.lease_refusals.items()
                for code, count in refusals.copy().items()
            ],
        )
        yield counter(
            "slow_waits",
            "Waits longer than the class's objective, of LOCKs that were granted or ended as TIMEOUT.",
            by_class,
            slow_waits,
        )

    def _of_leases(self) -> Iterator[Metric]:
        rows, words = self._by_class, self._by_class_and_word
        by_class = ("class",)
        yield histogram(
            "hold_seconds", "From a grant to its end, of any kind.", by_class, rows(lambda of: of.hold)
        )
        yield gauges("leases", "Leases granted and not over yet.", by_class, rows(ClassCounts.leases))
        yield histogram(
            "release_margin_seconds",
            "Validity that was left when an app gave its lease back: near 0 it nearly came too late.",
            by_class,
            rows(lambda of: of.margin),
        )
        yield counter(
            "renewals",
            "Extensions of leases, by the agent or asked for by apps.",
            ("class", "outcome"),
            words(lambda of: {"worked": of.renewals_worked, "failed": of.renewals_failed}),
        )
        yield counter(
            "losses",
            "Leases lost under their holders: not renewed in time, gone from the masters, over while their "
            "host stood still or masters' clocks were set (clocks), forced by an operator, held for max_hold "
            "or an app's that a limit cut off.",
            ("class", "reason"),
            words(lambda of: {str(by): count for by, count in of.losses.copy().items()}),
        )
        yield counter(
            "releases",
            "Leases that ended, by why.",
            ("class", "why"),
            words(lambda of: {why.replace(" ", "_"): count for why, count in of.releases.copy().items()}),
        )

    def _by_class(self, value: Callable[[ClassCounts], V]) -> Rows[V]:
        return [((label,), value(of)) for label, of in self._of.items()]

    def _by_class_and_word(self, values: Callable[[ClassCounts], Mapping[str, V]]) -> Rows[V]:
        return [
            ((label, word), value) for label, of in self._of.items() for word, value in values(of).items()
        ]

    def _by_master(self, values: Sequence[V]) -> Rows[V]:
        return [((name,), value) for name, value in zip(self._masters, values, strict=True)]

    def _of_masters(self) -> Iterator[Metric]:
        named = list(zip(self._masters, self._of_master, strict=True))
        yield histogram(
            "master_round_trip_seconds",
            "From asking a master to its answer. A vote comes after the master's fsync, a probe reads only "
            "its time; of votes that come together, one is counted.",
            ("master", "question"),
            [
                ((name, question), one)
                for name, of in named
                for question, one in (("vote", of.votes), ("probe", of.probes))
            ],
        )
        yield counter(
            "master_votes_not_counted",
            "Votes that a master was asked for and that did not count, by why.",
            ("master", "reason"),
            [((name, why), count) for name, of in named for why, count in of.not_counted.copy().items()],
        )
        yield counter(
            "master_connects",
            "Connections made to a master.",
            ("master",),
            self._by_master([of.connects for of in self._of_master]),
        )
        yield counter(
            "master_nonsense",
            "Connections to a master that were given up because of an answer that makes no sense.",
            ("master",),
            self._by_master([of.nonsense for of in self._of_master]),
        )

    def _of_fleet(self) -> Iterator[Metric]:
        fleet = self._fleet
        links = fleet.links if fleet is not None else []
        voting = fleet.voting() if fleet is not None else 0
        yield gauge("masters_voting", "Masters that have a vote.", voting.bit_count())
        yield gauges(
            "master_vote",
            "Whether a master has a vote: 1 or 0.",
            ("master",),
            [((link.master.name,), voting >> link.index & 1) for link in links],
        )
        yield gauges(
            "master_state",
            "What a master is to this agent: 1 for the state it is in, 0 for the others.",
            ("master", "state"),
            [((link.master.name, str(state)), int(link.state == state)) for link in links for state in State],
        )
        facts = [(link.master, link.facts) for link in links]
        yield gauges(
            "master_info",
            "Always 1: where a master is, and the version it runs (empty until it was asked).",
            ("master", "address", "version"),
            [((one.name, one.address, known.version if known else ""), 1) for one, known in facts],
        )
        yield gauges(
            "master_max_ttl_seconds",
            "The longest TTL that a master accepts, by its identity; absent when it has none.",
            ("master",),
            [
                ((one.name,), known.identity.max_ttl_ms / 1e3)
                for one, known in facts
                if known is not None and known.identity is not None
            ],
        )
        yield from self._of_memory([(one.name, known.memory) for one, known in facts if known is not None])
        yield from self._of_clocks(fleet)

    def _of_memory(self, known: Sequence[tuple[str, Memory]]) -> Iterator[Metric]:
        yield gauges(
            "master_memory_used_bytes",
            "How much memory a master uses, as it says every 5 s; absent until it was asked.",
            ("master",),
            [((name,), memory.used_bytes) for name, memory in known],
        )
        yield gauges(
            "master_memory_max_bytes",
            "Its maxmemory, 0 where it has none; absent until it was asked.",
            ("master",),
            [((name,), memory.most_bytes) for name, memory in known],
        )
        yield counter(
            "master_evicted_keys",
            "Keys that a master has evicted since it was started; absent until it was asked.",
            ("master",),
            [((name,), memory.evicted) for name, memory in known],
        )

    def _of_clocks(self, fleet: Fleet | None) -> Iterator[Metric]:
        now_ns = self._now_ns()
        clocks = fleet.clocks if fleet is not None else None
        every = range(len(self._masters)) if clocks is not None else range(0)
        offsets_us = [clocks.off_median_us(m, now_ns) for m in every] if clocks is not None else []
        yield gauges(
            "master_clock_offset_seconds",
            "How far a master's clock is ahead of the median of all; absent when it was never seen.",
            ("master",),
            [((self._masters[m],), us / 1e6) for m, us in enumerate(offsets_us) if us is not None],
        )
        yield gauges(
            "master_clock_trusted",
            "Whether a master's votes may rest on its clock: 1 or 0.",
            ("master",),
            [((self._masters[m],), int(clocks.distrust(m, now_ns) is None)) for m in every] if clocks else [],
        )
        yield counter(
            "master_clock_jumps",
            "Jumps forward of a master's clock that this agent saw.",
            ("master",),
            self._by_master([watch.jumps for watch in clocks.watches]) if clocks is not None else [],
        )
        yield gauges(
            "clock_slew_ppm",
            "How fast this host's clock is slewed, by the clock that nobody slews; below 0: slower.",
            (),
            [((), fleet.slewing.ppm)] if fleet is not None else [],
        )
        yield counter(
            "standstills",
            "How often this host stood still by the masters' clocks, as a virtual machine that is paused.",
            (),
            [((), clocks.standstills)] if clocks is not None else [],
        )
        yield counter(
            "stood_still_seconds",
            "For how long in all.",
            (),
            [((), clocks.stood_still_ns / 1e9)] if clocks is not None else [],
        )

    def _of_agent(self) -> Iterator[Metric]:
        connections = self._connections() if self._connections is not None else 0
        yield gauge("connections", "Connections of apps.", connections)
        yield gauge(
            "app_socket_ok",
            "Whether apps that come find the agent at its socket: 1 or 0.",
            int(not self._socket_trouble()),
        )
        yield counter(
            "limit_refusals",
            "What was refused because of a limit, by its name in the configuration.",
            ("limit",),
            [((limit,), count) for limit, count in self._limits.copy().items()],
        )
        for name, text, count in (
            ("fence_rounds", "Second rounds, to agree on a fence.", self._fence_rounds),
            ("forced_releases", "Releases forced by an operator.", self._forced_releases),
            ("protocol_errors", "Requests that were not RESP.", self._protocol_errors),
            ("internal_errors", "Failures of the agent itself; its log says which.", self._internal_errors),
        ):
            yield counter(name, text, (), [((), count)])
        yield gauge(
            "event_loop_lag_seconds", "How late the event loop was at the last look.", self._lag.last_ns / 1e9
        )
        yield gauge(
            "event_loop_lag_max_seconds",
            "The latest that the event loop was in the last 30 to 60 seconds.",
            self._lag.most_ns / 1e9,
        )

    def _of_canary(self) -> Iterator[Metric]:
        yield gauge(
            "canary_interval_seconds",
            "How often the agent takes and gives back a lock of its own; 0: never.",
            self._config.canary_ms / 1e3,
        )
        yield histogram(
            "canary_seconds",
            "From the canary's LOCK to the end of its UNLOCK, or to its refusal.",
            ("outcome",),
            [((outcome,), one) for outcome, one in self._canary.items()],
        )
        yield gauge(
            "canary_failures",
            "How often the canary has failed since it last worked; 0 while it works, or where there is none.",
            self._canary_trouble.failures,
        )
        worked_s = self._canary_worked_s
        yield gauges(
            "canary_last_success_timestamp_seconds",
            "When the canary last worked; absent until it did.",
            (),
            [] if worked_s is None else [((), worked_s)],
        )

    def _of_locks(self) -> Iterator[Metric]:
        locks = self._locks
        census = self.rested_census()
        classes = census.by_class.items()
        yield gauges(
            "waiters",
            "LOCKs that wait for an answer.",
            ("class",),
            [((label,), of.waiters) for label, of in classes],
        )
        yield gauges(
            "oldest_waiter_seconds",
            "How long the one that waits longest has waited, on CLOCK_BOOTTIME; 0 when nobody waits.",
            ("class",),
            [((label,), of.oldest_wait_ns / 1e9) for label, of in classes],
        )
        yield gauge(
            "leases_on_fewer_masters",
            "Held leases that not all masters have confirmed, though they had the time.",
            census.total.on_fewer,
        )
        yield gauges(
            "leases_on_masters",
            "Held leases by how many masters have confirmed them.",
            ("masters",),
            [((str(masters),), leases) for masters, leases in enumerate(census.on_masters)],
        )
        draining = locks is not None and locks.draining
        yield gauge("draining", "Whether this agent is stopping: 1 or 0.", int(draining))


def _totals_of(of: ClassCounts, now_ns: int) -> dict[str, int]:
    losses, last_ns = of.losses.copy(), of.unmeant_loss_ns
    totals = {
        "grants": of.grants(),
        "refusals": sum(of.refusals.copy().values()),
        "losses": sum(losses.values()),
        "losses_meant": sum(count for by, count in losses.items() if by not in UNMEANT_LOSSES),
    }
    return totals if last_ns is None else totals | {"last_loss_ms": max(0, now_ns - last_ns) // NS_PER_MS}
