"""Everything that an operator would have, on this machine and for real: masters with their guards, agents,
the exporters beside the masters, a Prometheus that scrapes all of it and evaluates the rules of alerts/, and
an Alertmanager that tells nobody.

Used by the tests of the dashboards and by their preview. The programs are Debian's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lockd.dev.processes import LOOPBACK, default_server
from tests.harness.cluster import Cluster, merged
from tests.harness.guard_unit import Unit, come_back
from tests.harness.masters import short_folder
from tests.harness.prometheus import CHAIN, Monitoring, Target, node_exporters, program
from tests.harness.waiting import eventually


def need_programs() -> None:
    """Skips the test where one of Debian's programs is missing, or the machine has no id for the guard."""
    for name in CHAIN:
        program(name)
    if not Path("/etc/machine-id").exists():
        pytest.skip("no /etc/machine-id: without it the guard lets no Redis start")


class Observatory(Monitoring):
    """A cluster `shop` that is watched as alerts/METRICS.md asks for it: two jobs, the labels cluster and
    master, an instance a host. `agents`: as on so many hosts."""

    def __init__(
        self, folder: Path, units: list[Unit], agents: list[Cluster], nodes: list[Target], scrape_s: int
    ) -> None:
        self.units = units
        self.masters = [unit.master for unit in units]
        self.agents = agents
        self.began_s = time.time()
        targets = [
            Target(
                "lockd", f"{LOOPBACK}:{agent.metrics_port}", {"cluster": "shop", "instance": f"web{i}:9480"}
            )
            for i, agent in enumerate(agents, start=1)
        ]
        routes = json.dumps({"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]})
        exemplars = "--enable-feature=exemplar-storage"
        super().__init__(folder, [*targets, *nodes], routes, exemplars, scrape_s=scrape_s)

    def series(self, expr: str, step_s: int = 1) -> list[dict[str, Any]]:
        """What an expression was since this began."""
        times = {"start": self.began_s, "end": time.time(), "step": step_s}
        return list(self.ask("query_range", query=expr, **times)["result"])

    def value(self, expr: str) -> float:
        """The one present value of an expression."""
        found = self.now(expr)
        assert len(found) == 1, f"{expr}: {len(found)} series"
        return float(found[0]["value"][1])

    def exemplars(self, expr: str) -> list[dict[str, str]]:
        """The labels of all exemplars that belong to an expression."""
        found = self.ask("query_exemplars", query=expr, start=self.began_s, end=time.time())
        return [exemplar["labels"] for series in found for exemplar in series["exemplars"]]


@contextmanager
def running_observatory(
    *, masters: int = 5, agents: int = 2, max_ttl_ms: int = 1_000, scrape_s: int = 1, **overrides: Any
) -> Iterator[Observatory]:
    """All of it, formed and with all masters voting. Each master's first start was a quarantine."""
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        units = [Unit(folder / f"m{i}", default_server(), f"m{i}", max_ttl_ms) for i in range(1, masters + 1)]
        for unit in units:
            stack.callback(unit.close)
            unit.master.settings["maxmemory"] = "64mb"
        come_back(units)
        for unit in units:
            unit.run("watch")
        # Before that a crash would find data of which there is no record that it was written here.
        marks = [unit.folder / "state" / "mark.json" for unit in units]
        eventually(lambda: all(mark.exists() for mark in marks), "the guards have noted what is there")
        own = {"cluster": "shop", "max_ttl_ms": max_ttl_ms, "canary_ms": 1_000}
        first = Cluster(folder, [unit.master for unit in units], merged(own, overrides))
        stack.callback(first.close)
        first.agent.start(wait=False)
        first.agent.wait_ready()
        first.form()
        hosts = [first, *(first.add_agent() for _ in range(agents - 1))]
        for host in hosts:
            host.wait_voting(masters)
        nodes = stack.enter_context(node_exporters(folder, units, "shop"))
        observatory = Observatory(folder, units, hosts, nodes, scrape_s)
        stack.callback(observatory.close)
        observatory.start()
        yield observatory
