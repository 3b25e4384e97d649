"""Prometheus's programs, the machine's own or those that `make test` unpacked, as processes on the loopback
address; and the rules it is given."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockd.dev.processes import LOOPBACK, Child, free_ports
from tests.harness.guard_unit import Unit
from tests.harness.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "alerts"
RULES = sorted(ALERTS.glob("lockd.*.yml"))
UNPACKED = ROOT / "tests" / ".prometheus" / "usr" / "bin"
CHAIN = ("prometheus", "prometheus-alertmanager", "prometheus-node-exporter")


def find(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), str(UNPACKED)]))


def program(name: str) -> str:
    """Where it is. Skips the test that asks when it is not on this machine."""
    found = find(name)
    if found is None:
        pytest.skip(f"no {name} on this machine (make test unpacks it from Debian's packages)")
    return found


def output_of(*command: str) -> str:
    """What it prints. AssertionError with all of that when it fails. It may compute for as long as it takes:
    what hangs is ended by the time-out of its test."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait_ready(url: str) -> None:
    eventually(lambda: get(f"{url}/-/ready"), f"{url} is ready")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as reply:
        return reply.read().decode()


@dataclass(frozen=True)
class Target:
    """What Prometheus scrapes, and the labels that it puts on all of it."""

    job: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def node_exporters(folder: Path, units: Sequence[Unit], cluster: str) -> Iterator[list[Target]]:
    """One on each master's host, of what the guard writes there, its disks and its clock."""
    with ExitStack() as stack:
        targets = []
        for unit, port in zip(units, free_ports(len(units)), strict=True):
            name, address = f"node-exporter-{unit.master.name}", f"{LOOPBACK}:{port}"
            command = (
                program("prometheus-node-exporter"),
                f"--web.listen-address={address}",
                "--collector.disable-defaults",
                "--collector.textfile",
                "--collector.filesystem",
                "--collector.timex",
                f"--collector.textfile.directory={unit.folder}",
            )
            exporter = Child(name, command, folder / "log" / f"{name}.log")
            stack.callback(exporter.kill)
            exporter.start()
            targets.append(Target("lockd-masters", address, {"cluster": cluster, "master": unit.master.name}))
        yield targets


def alertmanager(folder: Path, address: str, config: Path) -> Child:
    command = (
        program("prometheus-alertmanager"),
        f"--config.file={config}",
        f"--storage.path={folder}/alertmanager",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    )
    return Child("alertmanager", command, folder / "log" / "alertmanager.log")


class Monitoring:
    """A fresh Prometheus over some targets, and a fresh Alertmanager, which is one more of them."""

    def __init__(
        self,
        folder: Path,
        targets: Sequence[Target],
        routes: str,
        *options: str,
        rules: Sequence[Path] = RULES,
        scrape_s: int = 1,
    ) -> None:
        prometheus, managing = (f"{LOOPBACK}:{port}" for port in free_ports(2))
        self.url, self.alertmanager_url = f"http://{prometheus}", f"http://{managing}"
        self._targets = [*targets, Target("alertmanager", managing)]
        command = (
            program("prometheus"),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/tsdb",
            f"--web.listen-address={prometheus}",
            "--log.level=warn",
            *options,
        )
        self._processes = [
            alertmanager(folder, managing, folder / "alertmanager.yml"),
            Child("prometheus", command, folder / "log" / "prometheus.log"),
        ]
        config = {
            "global": {"scrape_interval": f"{scrape_s}s", "evaluation_interval": f"{scrape_s}s"},
            "rule_files": [str(path) for path in rules],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [managing]}]}]},
            "scrape_configs": [
                {"job_name": job, "static_configs": self._of(job)}
                for job in sorted({target.job for target in self._targets})
            ],
        }
        (folder / "alertmanager.yml").write_text(routes)
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML

    def _of(self, job: str) -> list[dict[str, Any]]:
        ours = (target for target in self._targets if target.job == job)
        return [{"targets": [target.address], "labels": dict(target.labels)} for target in ours]

    def start(self) -> None:
        for process in self._processes:
            process.start()
        wait_ready(self.alertmanager_url)
        wait_ready(self.url)
        eventually(lambda: len(self.now("up == 1")) == len(self._targets), "every target is scraped")

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()

    def now(self, expr: str) -> list[dict[str, Any]]:
        return list(self.ask("query", query=expr)["result"])

    def ask(self, path: str, **parameters: Any) -> Any:
        """AssertionError with the query when Prometheus finds it wrong."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            return json.loads(get(url))["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters['query']}: {error.read().decode()}") from None


def rules(kind: str) -> list[dict[str, Any]]:
    """Of all files, with the name of its group in each."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule | {"group": group["name"]} for group in groups for rule in group["rules"] if kind in rule]


ALL_ALERTS = rules("alert")
