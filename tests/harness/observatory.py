"""Everything that an operator would have, on this machine and for real: masters with their guards, agents,
the exporters beside the masters, a Prometheus that scrapes all of it and evaluates the rules of alerts/, and
an Alertmanager that tells nobody.

Used by the tests of the dashboards and by their preview. The programs are Debian's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
from lockd.guard.one_file import shipped
from tests.harness.cluster import PATIENT, Cluster, merged
from tests.harness.masters import running_masters, short_folder
from tests.harness.prometheus import CHAIN, RULES, program
from tests.harness.waiting import eventually

MAXMEMORY = "64mb"


def need_programs() -> None:
    """Skips the test where one of Debian's programs is missing, or the machine has no id for the guard."""
    for name in CHAIN:
        program(name)
    if not Path("/etc/machine-id").exists():
        pytest.skip("no /etc/machine-id: without it the guard lets no Redis start")


class Guarded:
    """A master behind its guard, as its unit has it: first `enter`, then Redis."""

    def __init__(self, master: LocalMaster, folder: Path, max_ttl_ms: int) -> None:
        self.master = master
        self.textfiles = folder / f"{master.name}.textfiles"
        self.textfiles.mkdir()
        self._config = folder / f"{master.name}.guard.conf"
        self._config.write_text(
            f"[guard]\nmax_ttl_ms = {max_ttl_ms}\ndata_dir = {master.folder}\nunit = {master.name}.service\n"
            f"state_dir = {folder / master.name}.guard\ntextfile = {self.textfiles / 'lockd_guard.prom'}\n"
        )
        self._program = folder / f"{master.name}.guard.py"
        self._program.write_text(shipped())
        self._log = folder / "log" / f"{master.name}.guard.log"
        self._watch = self._run("watch")
        self._entering: subprocess.Popen[bytes] | None = None

    def enter(self) -> subprocess.Popen[bytes]:
        """The guard, before Redis: it ends when Redis may start."""
        self._entering = self._run("enter")
        return self._entering

    def _run(self, command: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", self._program, command, "--config", self._config],
                env=os.environ | {"INVOCATION_ID": "0" * 32},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def crash(self) -> None:
        """kill -9, and the unit starts it again: into quarantine."""
        self.master.kill()
        self.enter()

    def come_back(self, within_s: float) -> None:
        """Return when the quarantine is over and Redis runs."""
        assert self._entering is not None
        assert self._entering.wait(within_s) == 0
        self.master.start()

    def close(self) -> None:
        for process in (self._watch, self._entering):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


class Observatory:
    """A cluster `shop` that is watched. `agents`: as on so many hosts."""

    def __init__(self, folder: Path, guarded: list[Guarded], agents: list[Cluster], scrape_s: int) -> None:
        self.guarded = guarded
        self.agents = agents
        self.began_s = time.time()
        self._folder = folder
        exporters = free_ports(len(guarded) + 2, avoid=[one.master.port for one in guarded])
        self._port, self._alertmanager_port, *self._node_ports = exporters
        self.children: list[Child] = [self._node_exporter(i) for i in range(len(guarded))]
        self.children += [self._alertmanager(), self._prometheus(scrape_s)]

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def masters(self) -> list[LocalMaster]:
        return [one.master for one in self.guarded]

    def start(self) -> None:
        for child in self.children:
            child.start()
        eventually(self._ready, 60, "Prometheus is ready")

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

    def _ready(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as reply:
            return bool(reply.status == 200)

    def _node_exporter(self, i: int) -> Child:
        command = (
            program("prometheus-node-exporter"),
            "--collector.disable-defaults",
            "--collector.textfile",
            f"--collector.textfile.directory={self.guarded[i].textfiles}",
            f"--web.listen-address={LOOPBACK}:{self._node_ports[i]}",
        )
        return Child(f"node-exporter-{i}", command, self._folder / "log" / f"node-exporter-{i}.log")

    def _alertmanager(self) -> Child:
        config = self._folder / "alertmanager.yml"
        config.write_text(json.dumps({"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]}))
        command = (
            program("prometheus-alertmanager"),
            f"--config.file={config}",
            f"--storage.path={self._folder / 'alertmanager'}",
            f"--web.listen-address={LOOPBACK}:{self._alertmanager_port}",
            "--cluster.listen-address=",
        )
        return Child("alertmanager", command, self._folder / "log" / "alertmanager.log")

    def _prometheus(self, scrape_s: int) -> Child:
        config = self._folder / "prometheus.yml"
        config.write_text(json.dumps(self._scraping(scrape_s)))  # JSON is YAML
        command = (
            program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'tsdb'}",
            f"--web.listen-address={LOOPBACK}:{self._port}",
            "--enable-feature=exemplar-storage",
            "--log.level=warn",
        )
        return Child("prometheus", command, self._folder / "log" / "prometheus.log")

    def _scraping(self, scrape_s: int) -> dict[str, Any]:
        """As alerts/METRICS.md asks for it: two jobs, the labels cluster and master, an instance a host.
        And Alertmanager."""
        agents = [
            _target(agent.metrics_port, instance=f"web{i}:9480")
            for i, agent in enumerate(self.agents, start=1)
        ]
        names = [one.master.name for one in self.guarded]
        alertmanager = {"targets": [f"{LOOPBACK}:{self._alertmanager_port}"]}
        jobs = {
            "alertmanager": [alertmanager],
            "lockd": agents,
            "node": [_target(p, master=m) for p, m in zip(self._node_ports, names, strict=True)],
        }
        return {
            "global": {"scrape_interval": f"{scrape_s}s", "evaluation_interval": f"{scrape_s}s"},
            "rule_files": [str(path) for path in RULES],
            "alerting": {"alertmanagers": [{"static_configs": [alertmanager]}]},
            "scrape_configs": [{"job_name": job, "static_configs": targets} for job, targets in jobs.items()],
        }


def _target(port: int, **labels: str) -> dict[str, Any]:
    return {"targets": [f"{LOOPBACK}:{port}"], "labels": {"cluster": "shop", **labels}}


@contextmanager
def running_observatory(
    *, masters: int = 5, agents: int = 2, max_ttl_ms: int = 1_000, scrape_s: int = 1, **overrides: Any
) -> Iterator[Observatory]:
    """All of it, formed and with all masters voting. Each master's first start was a quarantine."""
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        settings: dict[str, str | None] = {"maxmemory": MAXMEMORY}
        running = stack.enter_context(running_masters(folder, masters, default_server(), settings))
        guarded = [Guarded(master, folder, max_ttl_ms) for master in running]
        for one in guarded:
            stack.callback(one.close)
        for master in running:
            master.stop()
        for process in [one.enter() for one in guarded]:
            assert process.wait(max_ttl_ms / 1000 + 60) == 0
        for master in running:
            master.start()
        # Before that a crash would find data of which nothing says that it was written here.
        marks = [folder / f"{master.name}.guard" / "mark.json" for master in running]
        eventually(lambda: all(mark.exists() for mark in marks), 60, "the guards have noted what is there")
        own = {"cluster": "shop", "max_ttl_ms": max_ttl_ms, "canary_ms": 1_000}
        first = Cluster(folder, running, merged(merged(PATIENT, own), overrides))
        stack.callback(first.close)
        first.agent.start(wait=False)
        first.agent.wait_ready(60)
        first.form(within_s=60)
        hosts = [first, *(first.add_agent() for _ in range(agents - 1))]
        for host in hosts:
            host.wait_voting(masters, 60)
        observatory = Observatory(folder, guarded, hosts, scrape_s)
        for child in observatory.children:
            stack.callback(child.kill)
        observatory.start()
        yield observatory
