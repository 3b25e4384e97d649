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
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from lockd import __version__
from lockd.clock import boottime_ns
from lockd.config import Config
from lockd.core.leases import Lease, Standing
from lockd.core.membership import State
from lockd.core.ports import Refusal, Watcher
from lockd.core.validity import NS_PER_MS

if TYPE_CHECKING:
    from lockd.core.clocks import Clocks
    from lockd.core.locks import Locks
    from lockd.core.queues import Queue
    from lockd.masters.fleet import Fleet

REFUSAL_CODES = (
    "TAKEN", "NOQUORUM", "TIMEOUT", "NOTHELD", "EXPIRED", "DENIED", "LIMIT", "DRAINING", "CLOCK", "ERR",
)  # fmt: skip
RELEASE_REASONS = ("released", "expired", "app gone", "forced")

# Upper bounds in seconds. A wait may be as short as a hand-off, and as long as an app's patience.
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

V = TypeVar("V")
Rows = Sequence[tuple[tuple[str, ...], V]]
"""Label values, and what is so labelled."""

_REST_S = 50e-6
_BITE = 500
_LAG_WINDOW_NS = 30_000 * NS_PER_MS


class Histogram:
    """Durations in ns, counted by upper bound; the last count is of all that were longer."""

    __slots__ = ("_bounds_ns", "counts", "names", "sum_ns")

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_ns = [round(bound * 1e9) for bound in bounds_s]
        self.names = [*map(repr, bounds_s), "+Inf"]
        self.counts = [0] * len(self.names)
        self.sum_ns = 0

    def observe(self, ns: int) -> None:
        self.counts[bisect_left(self._bounds_ns, ns)] += 1
        self.sum_ns += ns

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus wants them: every bucket holds those before it, too."""
        return list(zip(self.names, accumulate(self.counts[:]), strict=True))


class Tally(dict[str, int]):
    """Counts by a word that code chooses. Words not known at the start begin at 0."""

    def __missing__(self, word: str) -> int:
        return 0


class ClassCounts:
    """All that is counted for one class. The number of grants is that of waits that were granted."""

    __slots__ = (
        "hold", "losses", "refusals", "refused_wait", "releases",
        "renewals_failed", "renewals_worked", "wait",
    )  # fmt: skip

    def __init__(self) -> None:
        self.wait = Histogram(WAIT_S)
        self.refused_wait = Histogram(WAIT_S)
        self.hold = Histogram(HOLD_S)
        self.refusals = Tally.fromkeys(REFUSAL_CODES, 0)
        self.releases = Tally.fromkeys(RELEASE_REASONS, 0)
        self.renewals_worked = 0
        self.renewals_failed = 0
        self.losses = 0

    def leases(self) -> int:
        """Granted and not over yet. Ends are read first, so that it can't come out below zero."""
        over = sum(self.hold.counts)
        return sum(self.wait.counts) - over


class ClassTable(dict[str, ClassCounts]):
    """Class names to their counts; whatever isn't configured counts as `other`."""

    def __missing__(self, label: str) -> ClassCounts:
        return self["other"]


class Metrics(Watcher, Collector):
    """Counts what happens on the event loop; `registry` is what a scrape reads, from any thread.

    `attach` what is only looked at when somebody asks; until then there is nothing of masters and waiters.
    """

    def __init__(self, config: Config, now_ns: Callable[[], int] = boottime_ns) -> None:
        self._config = config
        self._now_ns = now_ns
        self._masters = [master.name for master in config.masters]
        self._fingerprint = config.fingerprint()
        labels = [*(one.name for one in config.classes), "other"]
        self._of = ClassTable((label, ClassCounts()) for label in labels)
        self._round_trips = [Histogram(ROUND_TRIP_S) for _ in self._masters]
        self._connects = [0] * len(self._masters)
        self._limits = Tally.fromkeys(type(config.limits).model_fields, 0)
        self._fence_rounds = 0
        self._forced_releases = 0
        self._protocol_errors = 0
        self._lag_ns = 0
        self._lag_most_ns = 0
        self._lag_most_before_ns = 0
        self._lag_turn_ns = 0
        self._fleet: Fleet | None = None
        self._locks: Locks | None = None
        self._connections: Callable[[], int] | None = None
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def attach(self, fleet: Fleet, locks: Locks, connections: Callable[[], int]) -> None:
        """What a scrape looks at by itself. `connections` is called from the thread of the scrape."""
        self._fleet, self._locks, self._connections = fleet, locks, connections

    # core.ports.Watcher

    def granted(self, lease: Lease, waited_ns: int) -> None:
        self._of[lease.holder.label].wait.observe(waited_ns)

    def refused(self, label: str, refusal: Refusal, waited_ns: int) -> None:
        counts = self._of[label]
        counts.refusals[refusal.code] += 1
        counts.refused_wait.observe(waited_ns)

    def lost(self, lease: Lease, reason: str) -> None:
        self._of[lease.holder.label].losses += 1

    def released(self, lease: Lease, why: str, now_ns: int) -> None:
        counts = self._of[lease.holder.label]
        counts.hold.observe(now_ns - lease.granted_ns)
        counts.releases[why] += 1

    def renewed(self, lease: Lease, worked: bool) -> None:
        counts = self._of[lease.holder.label]
        if worked:
            counts.renewals_worked += 1
        else:
            counts.renewals_failed += 1

    def fence_round(self) -> None:
        self._fence_rounds += 1

    # The links and the server

    def round_trip(self, master: int, ns: int) -> None:
        """From asking a master to its answer: of a probe, or of a vote."""
        self._round_trips[master].observe(ns)

    def connected(self, master: int) -> None:
        """A connection to this master was made and it said who it is."""
        self._connects[master] += 1

    def limit_refused(self, limit: str) -> None:
        """An app ran into a limit; `limit` is its name in the configuration."""
        self._limits[limit] += 1

    def forced_release(self) -> None:
        self._forced_releases += 1

    def protocol_error(self) -> None:
        """An app sent what is no RESP request."""
        self._protocol_errors += 1

    def loop_lag(self, lag_ns: int, now_ns: int) -> None:
        """How late the event loop ran something that was due.

        The most is kept for a time, not from scrape to scrape: two scrapers would hide it from each other.
        """
        self._lag_ns = lag_ns
        if now_ns >= self._lag_turn_ns:
            self._lag_turn_ns = now_ns + _LAG_WINDOW_NS
            self._lag_most_before_ns, self._lag_most_ns = self._lag_most_ns, 0
        if lag_ns > self._lag_most_ns:
            self._lag_most_ns = lag_ns

    def totals(self) -> dict[str, int]:
        """The few sums that INFO shows."""
        counts = list(self._of.values())
        return {
            "grants_total": sum(sum(c.wait.counts) for c in counts),
            "releases_total": sum(sum(c.releases.values()) for c in counts),
            "refusals_total": sum(sum(c.refusals.values()) for c in counts),
            "losses_total": sum(c.losses for c in counts),
        }

    # What a scrape sees

    def collect(self) -> Iterator[Metric]:
        parts = (
            self._about,
            self._of_classes,
            self._of_masters,
            self._of_fleet,
            self._of_agent,
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
            "The configuration in use; two agents with one fingerprint have the same, but for secrets.",
            {"fingerprint": self._fingerprint, "cluster": config.cluster},
        )
        yield _gauge("masters", "Masters that are configured.", len(self._masters))
        yield _gauge("quorum", "How many of them a lease takes.", config.quorum)
        yield _gauge("max_ttl_seconds", "The longest TTL that is granted.", config.max_ttl_ms / 1e3)
        yield _gauge("master_timeout_seconds", "How long a master may take.", config.timeouts.master_ms / 1e3)

    def _of_classes(self) -> Iterator[Metric]:
        rows, words = self._by_class, self._by_class_and_word
        by_class = ("class",)
        yield _counter("grants", "Leases granted.", by_class, rows(lambda of: sum(of.wait.counts)))
        yield _counter(
            "refusals",
            "LOCKs that were refused, by the first word of the error.",
            ("class", "reason"),
            words(lambda of: {code.lower(): count for code, count in of.refusals.copy().items()}),
        )
        yield _histogram(
            "wait_seconds",
            "From a LOCK to its answer.",
            ("class", "outcome"),
            words(lambda of: {"granted": of.wait, "refused": of.refused_wait}),
        )
        yield _histogram(
            "hold_seconds", "From a grant to its end, of any kind.", by_class, rows(lambda of: of.hold)
        )
        yield _gauges("leases", "Leases granted and not over yet.", by_class, rows(ClassCounts.leases))
        yield _counter(
            "renewals",
            "Extensions of leases, by the agent or asked for by apps.",
            ("class", "outcome"),
            words(lambda of: {"worked": of.renewals_worked, "failed": of.renewals_failed}),
        )
        yield _counter("losses", "Leases lost under their holders.", by_class, rows(lambda of: of.losses))
        yield _counter(
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
        yield _histogram(
            "master_round_trip_seconds",
            "From asking a master to its answer, its fsync included.",
            ("master",),
            self._by_master(self._round_trips),
        )
        connects = self._by_master(self._connects)
        yield _counter("master_connects", "Connections made to a master.", ("master",), connects)

    def _of_fleet(self) -> Iterator[Metric]:
        fleet = self._fleet
        links = fleet.links if fleet is not None else []
        voting = fleet.voting() if fleet is not None else 0
        yield _gauge("masters_voting", "Masters that have a vote.", voting.bit_count())
        yield _gauges(
            "master_vote",
            "Whether a master has a vote: 1 or 0.",
            ("master",),
            [((link.master.name,), voting >> link.index & 1) for link in links],
        )
        yield _gauges(
            "master_state",
            "What a master is to this agent: 1 for the state it is in, 0 for the others.",
            ("master", "state"),
            [((link.master.name, str(state)), int(link.state == state)) for link in links for state in State],
        )
        yield from self._of_clocks(fleet.clocks if fleet is not None else None)

    def _of_clocks(self, clocks: Clocks | None) -> Iterator[Metric]:
        now_ns = self._now_ns()
        offsets_us = (
            [clocks.off_median_us(m, now_ns) for m in range(len(self._masters))] if clocks is not None else []
        )
        yield _gauges(
            "master_clock_offset_seconds",
            "How far a master's clock is ahead of the median of all; absent when it was never seen.",
            ("master",),
            [((self._masters[m],), us / 1e6) for m, us in enumerate(offsets_us) if us is not None],
        )
        yield _counter(
            "master_clock_jumps",
            "Jumps forward of a master's clock that this agent saw.",
            ("master",),
            self._by_master([watch.jumps for watch in clocks.watches]) if clocks is not None else [],
        )

    def _of_agent(self) -> Iterator[Metric]:
        connections = self._connections() if self._connections is not None else 0
        yield _gauge("connections", "Connections of apps.", connections)
        yield _counter(
            "limit_refusals",
            "What was refused because of a limit, by its name in the configuration.",
            ("limit",),
            [((limit,), count) for limit, count in self._limits.copy().items()],
        )
        yield _counter("fence_rounds", "Second rounds, to agree on a fence.", (), [((), self._fence_rounds)])
        yield _counter(
            "forced_releases", "Releases forced by an operator.", (), [((), self._forced_releases)]
        )
        yield _counter("protocol_errors", "Requests that were not RESP.", (), [((), self._protocol_errors)])
        yield _gauge(
            "event_loop_lag_seconds", "How late the event loop was at the last look.", self._lag_ns / 1e9
        )
        yield _gauge(
            "event_loop_lag_max_seconds",
            "The latest that the event loop was in the last 30 to 60 seconds.",
            max(self._lag_most_ns, self._lag_most_before_ns) / 1e9,
        )

    def _of_locks(self) -> Iterator[Metric]:
        locks = self._locks
        waiting = locks.waiting if locks is not None else 0
        draining = locks is not None and locks.draining
        queues = _copied(locks.queues) if locks is not None else []
        leases = [queue.lease for queue in queues if queue.lease is not None]
        leases += _copied(locks.detached) if locks is not None else []
        fewer = _on_fewer_masters(leases, self._config, self._now_ns())
        oldest_wait_ns = _oldest_wait_ns(queues, self._now_ns())
        yield _gauge("waiters", "LOCKs that wait for an answer.", waiting)
        yield _gauge(
            "oldest_waiter_seconds",
            "How long the one that waits longest has waited, on CLOCK_BOOTTIME; 0 when nobody waits.",
            oldest_wait_ns / 1e9,
        )
        yield _gauge("leases_on_fewer_masters", "Leases that not all masters have confirmed.", fewer)
        yield _gauge("draining", "Whether this agent is stopping: 1 or 0.", int(draining))


def _copied(table: Mapping[bytes, V]) -> list[V]:
    """All values of a moment. The copy is one step of the interpreter; if it ever is not, try again."""
    for _ in range(10):
        try:
            return list(table.values())
        except RuntimeError:  # it changed while it was copied
            time.sleep(_REST_S)
    return []


def _in_bites(everything: Sequence[V]) -> Iterator[V]:
    """One after the other, with rests in which the event loop gets the interpreter."""
    for start in range(0, len(everything), _BITE):
        yield from everything[start : start + _BITE]
        time.sleep(_REST_S)


def _on_fewer_masters(leases: Sequence[Lease], config: Config, now_ns: int) -> int:
    """How many leases not all masters have confirmed."""
    timeout_ns = config.timeouts.master_ms * NS_PER_MS
    return sum(_is_on_fewer(lease, len(config.masters), timeout_ns, now_ns) for lease in _in_bites(leases))


def _oldest_wait_ns(queues: Sequence[Queue], now_ns: int) -> int:
    """For how long the oldest waiter has waited; 0 when nobody waits."""
    asked = (_asked_ns(queue, now_ns) for queue in _in_bites(queues) if queue.waiters)
    return now_ns - min(asked, default=now_ns)


def _is_on_fewer(lease: Lease, masters: int, timeout_ns: int, now_ns: int) -> bool:
    """Not all masters have confirmed it, though they had the time: the quorum decides, the others come a
    moment later."""
    if lease.standing is not Standing.HELD or lease.proven.bit_count() == masters:
        return False
    return now_ns - lease.t1_ns > min(timeout_ns, lease.ttl_ms * NS_PER_MS // 4)


def _asked_ns(queue: Queue, now_ns: int) -> int:
    try:
        first = queue.first()
    except RuntimeError:  # its line moved on between two steps of the interpreter: it isn't stuck, then
        return now_ns
    return now_ns if first is None else first.asked_ns


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"lockd_{name}", text, value=value)


def _gauges(name: str, text: str, labels: Sequence[str], rows: Rows[float]) -> Metric:
    family = GaugeMetricFamily(f"lockd_{name}", text, labels=labels)
    for words, value in rows:
        family.add_metric(words, value)
    return family


def _counter(name: str, text: str, labels: Sequence[str], rows: Rows[int]) -> Metric:
    """The name is without its `_total`, which the exposition adds."""
    family = CounterMetricFamily(f"lockd_{name}", text, labels=labels)
    for words, value in rows:
        family.add_metric(words, value)
    return family


def _histogram(name: str, text: str, labels: Sequence[str], rows: Rows[Histogram]) -> Metric:
    family = HistogramMetricFamily(f"lockd_{name}", text, labels=labels)
    for words, histogram in rows:
        family.add_metric(words, buckets=histogram.buckets(), sum_value=histogram.sum_ns / 1e9)
    return family
