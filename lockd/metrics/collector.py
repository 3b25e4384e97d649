"""Gathers the metrics for Prometheus.

The event loop counts: plain ints and lists, changed in place, because more than ten thousand locks a second
pass here. A scrape reads them from another thread. It may see a sum that is one step ahead of its buckets,
and never anything worse: the interpreter lock makes each single read and each copy whole.

A scrape must not hold up the event loop either. It takes the interpreter lock for short times and rests in
between, since a thread that only offers the lock gets it back before the other one has woken up.

Labels are known from the start: classes, masters, and words of the code. Never a resource.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, cast

from lockd.clock import boottime_ns
from lockd.config.current import Current
from lockd.config.model import Config
from lockd.core.locks import Locks
from lockd.masters.fleet import Fleet
from lockd.metrics.agent import AgentMetrics
from lockd.metrics.canary import CanaryMetrics
from lockd.metrics.configured import ConfigMetrics
from lockd.metrics.fleet_view import FleetView
from lockd.metrics.leases import LeaseMetrics
from lockd.metrics.masters import MasterMetrics
from lockd.metrics.occupancy import NOTHING, REST_S, Occupancy, RecentOccupancy
from lockd.metrics.reload import ReloadMetrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector


class Metrics:
    """All counters, each for the part that reports to it; `registry` is what a scrape reads, from any thread.

    `attach` what is only looked at during a scrape; until then there are no metrics of masters and waiters.
    """

    def __init__(self, current: Current, now_ns: Callable[[], int] = boottime_ns) -> None:
        self._current = current
        self._now_ns = now_ns
        self._configured = ConfigMetrics(current)
        self.reload = ReloadMetrics()
        self.agent = AgentMetrics()
        self.leases = LeaseMetrics(self.agent, now_ns)
        self.masters = MasterMetrics(
            [master.name for master in current.config.masters], current.config.timeouts.master_ms
        )
        self.canary = CanaryMetrics(current)
        self.configure(current.config)
        self.occupancy = RecentOccupancy(self._uncounted, NOTHING, now_ns)
        self._fleet: Fleet | None = None

    @cached_property
    def registry(self) -> CollectorRegistry:
        """Made by the first scrape. An agent's start need not wait for Prometheus's library, which loads
        Python's web server and client, too."""
        from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

        registry = CollectorRegistry()
        registry.register(cast("Collector", self))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        return registry

    def configure(self, config: Config) -> None:
        """Call it before this configuration takes effect, so that its classes begin at 0."""
        self._configured.configure(config)
        self.leases.configure(config)

    def attach(self, fleet: Fleet, locks: Locks, connections: Callable[[], int]) -> None:
        """What a scrape looks at directly. `connections` is called from the thread of the scrape."""
        self._fleet = fleet
        self.occupancy = RecentOccupancy(self._uncounted, locks, self._now_ns)
        self.agent.count_connections = connections

    def _uncounted(self) -> Occupancy:
        config = self._current.config
        return Occupancy(self.leases.labels, len(config.masters), config.timeouts.master_ms)

    def collect(self) -> Iterator[Metric]:
        parts = (
            self._configured.collect,
            self.reload.collect,
            self.leases.collect,
            self.masters.collect,
            self._of_fleet,
            self.agent.collect,
            self.canary.collect,
            self.occupancy.collect,
        )
        for family in chain.from_iterable(part() for part in parts):
            yield family
            time.sleep(REST_S)

    def _of_fleet(self) -> Iterator[Metric]:
        if self._fleet is not None:
            yield from FleetView(self._fleet, self._now_ns()).collect()
