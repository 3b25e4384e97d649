"""Everything that an operator would have, on this machine and for real: masters with their guards, agents,
the exporters beside the masters, a Prometheus that scrapes all of it and evaluates the rules of alerts/, and
an Alertmanager that tells nobody.

Used by the tests of the dashboards and by their preview. The programs are Debian's.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lockd.dev.processes import LOOPBACK, Child, LocalMaster, default_server, free_ports
from tests.harness.cluster import PATIENT, Cluster, merged
from tests.harness.guard_unit import Unit
from tests.harness.masters import short_folder
from tests.harness.prometheus import CHAIN, RULES, NodeExporter, alertmanager, get, program, prometheus
from tests.harness.waiting import eventually

MAXMEMORY = "64mb"


def need_programs() -> None:
    """Skips the test where one of Debian's programs is missing, or the machine has no id for the guard."""
    for name in CHAIN:
        program(name)
    if not Path("/etc/machine-id").exists():
        pytest.skip("no /etc/machine-id: without it the guard lets no Redis start")


class Observatory:
    """A cluster `shop` that is watched. `agents`: as on so many hosts."""

    def __init__(self, folder: Path, units: list[Unit], agents: list[Cluster], scrape_s: int) -> None:
        self.units = units
        self.agents = agents
        self.began_s = time.time()
        self._folder = folder
        self._address, self._alertmanager = (f"{LOOPBACK}:{port}" for port in free_ports(2))
        self._exporters = [NodeExporter(folder, unit.master.name, unit.folder) for unit in units]
        routes = folder / "alertmanager.yml"
        routes.write_text(json.dumps({"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]}))
        options = ("--enable-feature=exemplar-storage", "--log.level=warn")
        self.children: list[Child] = [
            *self._exporters,
            alertmanager(folder, self._alertmanager, routes),
            prometheus(folder, self._address, self._scraping(scrape_s), *options),
        ]

    @property
    def url(self) -> str:
        return f"http://{self._address}"

    @property
    def masters(self) -> list[LocalMaster]:
        return [unit.master for unit in self.units]

    def start(self) -> None:
        for child in self.children:
            child.start()
        eventually(lambda: get(f"{self.url}/-/ready"), 60, "Prometheus is ready")

    def series(self, expr: str, step_s: int = 1) -> list[dict[str, Any]]:
        """What an expression was since this began; AssertionError when Prometheus finds it wrong."""
        asked = {"query": expr, "start": self.began_s, "end": time.time(), "step": step_s}
        return list(self._ask("query_range", asked)["result"])

    def now(self, expr: str) -> list[dict[str, Any]]:
        return list(self._ask("query", {"query": expr})["result"])

    def value(self, expr: str) -> float:
        """The one present value of an expression."""
        found = self.now(expr)
        assert len(found) == 1, f"{expr}: {len(found)} series"
        return float(found[0]["value"][1])

    def exemplars(self, expr: str) -> list[dict[str, str]]:
        """The labels of all exemplars that belong to an expression."""
        asked = {"query": expr, "start": self.began_s, "end": time.time()}
        found = self._ask("query_exemplars", asked)
        return [exemplar["labels"] for series in found for exemplar in series["exemplars"]]

    def _ask(self, path: str, parameters: Mapping[str, Any]) -> Any:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters['query']}: {error.read().decode()}") from None

    def _scraping(self, scrape_s: int) -> dict[str, Any]:
        """As alerts/METRICS.md asks for it: two jobs, the labels cluster and master, an instance a host.
        And Alertmanager."""
        agents = [
            _target(f"{LOOPBACK}:{agent.metrics_port}", instance=f"web{i}:9480")
            for i, agent in enumerate(self.agents, start=1)
        ]
        alertmanager = {"targets": [self._alertmanager]}
        nodes = zip(self._exporters, self.masters, strict=True)
        jobs = {
            "alertmanager": [alertmanager],
            "lockd": agents,
            "node": [_target(exporter.address, master=master.name) for exporter, master in nodes],
        }
        return {
            "global": {"scrape_interval": f"{scrape_s}s", "evaluation_interval": f"{scrape_s}s"},
            "rule_files": [str(path) for path in RULES],
            "alerting": {"alertmanagers": [{"static_configs": [alertmanager]}]},
            "scrape_configs": [{"job_name": job, "static_configs": targets} for job, targets in jobs.items()],
        }


def _target(address: str, **labels: str) -> dict[str, Any]:
    return {"targets": [address], "labels": {"cluster": "shop", **labels}}


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
            unit.master.settings["maxmemory"] = MAXMEMORY
        entering = [unit.enters() for unit in units]
        for unit, process in zip(units, entering, strict=True):
            unit.starts(process)
            unit.run("watch")
        # Before that a crash would find data of which nothing says that it was written here.
        marks = [unit.folder / "state" / "mark.json" for unit in units]
        eventually(lambda: all(mark.exists() for mark in marks), 60, "the guards have noted what is there")
        own = {"cluster": "shop", "max_ttl_ms": max_ttl_ms, "canary_ms": 1_000}
        first = Cluster(folder, [unit.master for unit in units], merged(merged(PATIENT, own), overrides))
        stack.callback(first.close)
        first.agent.start(wait=False)
        first.agent.wait_ready(60)
        first.form(within_s=60)
        hosts = [first, *(first.add_agent() for _ in range(agents - 1))]
        for host in hosts:
            host.wait_voting(masters, 60)
        observatory = Observatory(folder, units, hosts, scrape_s)
        for child in observatory.children:
            stack.callback(child.kill)
        observatory.start()
        yield observatory
