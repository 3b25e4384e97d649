"""An agent's metrics without an agent: those that it begins with, and all that can ever be.

    python tests/harness/agent_series.py CLASSES

prints what a scrape gets. It needs little of the package, so that it can be asked of older ones, too.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from prometheus_client import generate_latest

from lockd.config.current import Current
from lockd.config.model import Config
from lockd.core.clocks import Clocks
from lockd.core.membership import State
from lockd.core.slewing import Slewing
from lockd.core.stakes import STOCKS
from lockd.metrics.collector import Metrics
from lockd.metrics.counts import Histogram, Tally
from lockd.metrics.families import Measured

MS = 1_000_000
NOW_NS = 1_000_000 * MS


class AgentSeries:
    """Of an agent with so many classes, which has a vote of each of its masters."""

    def __init__(self, classes: int, masters: int = 5) -> None:
        self.config = _config(classes, masters)
        self.metrics = Metrics(Current(self.config), now_ns=lambda: NOW_NS)
        self.metrics.attach(_a_fleet(self.config), _no_locks(), lambda: 40)
        limits = dict.fromkeys(STOCKS, (1, 1000))
        self.metrics.agent.limits_in_use = lambda: limits
        self.metrics.agent.socket_trouble = self.metrics.agent.journal_trouble = lambda: ""
        self.metrics.canary.worked(3 * MS)

    def everything(self) -> None:
        """Whatever has a word was counted under each, in every class and of every master, whether or not one
        agent could ever see all of it."""
        self.metrics.reload.refused(("max_ttl_ms", "timeouts.master_ms"))
        for measured in self._measured():
            _count_everything(vars(measured))

    def _measured(self) -> list[Measured]:
        metrics = self.metrics
        of_classes = [metrics.leases._of[label] for label in self.config.labels]
        of_masters = [counts for _, counts in metrics.masters._of]
        return [metrics.agent, metrics.canary, metrics.leases.together, *of_classes, *of_masters]

    def samples(self) -> list[Any]:
        return [sample for family in self.metrics.registry.collect() for sample in family.samples]

    @property
    def count(self) -> int:
        """As Prometheus counts: one for each line that is no comment."""
        return len(self.samples())


def _config(classes: int, masters: int) -> Config:
    return Config.read(
        {
            "cluster": "shop",
            "masters": [{"name": f"m{i}", "address": f"10.0.0.{i}:6379"} for i in range(1, masters + 1)],
            "classes": [{"name": f"class{i}", "match": f"c{i}:*"} for i in range(classes)],
        }
    )


def _a_fleet(config: Config) -> Any:
    clocks = Clocks(
        len(config.masters), max_ttl_ms=config.max_ttl_ms, allowance_ms=config.clock_skew_allowance_ms
    )
    for watch in clocks.watches:
        watch.observe(NOW_NS - MS, NOW_NS, NOW_NS // 1000)
    memory = SimpleNamespace(used_bytes=30_000_000, most_bytes=256_000_000, evicted=0)
    facts = SimpleNamespace(
        version="8.0.2",
        identity=SimpleNamespace(max_ttl_ms=config.max_ttl_ms),
        memory=memory,
        aof_rewrite_ok=True,
    )
    links = [
        SimpleNamespace(
            index=i, state=State.UP, master=master, facts=facts, certificate_end_s=2_000_000_000.0
        )
        for i, master in enumerate(config.masters)
    ]
    votes = (1 << len(links)) - 1
    return SimpleNamespace(links=links, clocks=clocks, slewing=Slewing(), giving=lambda: votes)


def _no_locks() -> Any:
    return SimpleNamespace(queues={}, detached={}, waiting=0, draining=False, draining_since_ns=None)


def _count_everything(counters: dict[str, Any]) -> None:
    for name, value in list(counters.items()):
        if isinstance(value, Histogram):
            value.observe(30 * MS)
        elif isinstance(value, Tally):
            for word in list(value):
                value[word] += 1
        elif isinstance(value, dict):
            _count_everything(value)
        elif type(value) is int and not name.startswith("_"):
            counters[name] = value + 1


if __name__ == "__main__":
    print(generate_latest(AgentSeries(int(sys.argv[1])).metrics.registry).decode(), end="")
