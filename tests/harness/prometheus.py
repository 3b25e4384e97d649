"""Prometheus's programs, the machine's own or those that `make test` unpacked, as processes on the loopback
address; and the rules it is given."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockd.dev.processes import LOOPBACK, Child, free_ports
from tests.harness.waiting import eventually

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
    """What it prints. AssertionError with all of that when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as reply:
        return reply.read().decode()


class NodeExporter(Child):
    """Of one master's host: nothing but what the guard writes there."""

    def __init__(self, folder: Path, master: str, textfiles: Path) -> None:
        [port] = free_ports(1)
        self.address = f"{LOOPBACK}:{port}"
        name = f"node-exporter-{master}"
        command = (
            program("prometheus-node-exporter"),
            f"--web.listen-address={self.address}",
            "--collector.disable-defaults",
            "--collector.textfile",
            f"--collector.textfile.directory={textfiles}",
        )
        super().__init__(name, command, folder / "log" / f"{name}.log")

    def start(self) -> None:
        super().start()
        eventually(lambda: get(f"http://{self.address}/metrics"), 15, f"{self.name} answers")


def alertmanager(folder: Path, address: str, config: Path) -> Child:
    command = (
        program("prometheus-alertmanager"),
        f"--config.file={config}",
        f"--storage.path={folder}/alertmanager",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    )
    return Child("alertmanager", command, folder / "log" / "alertmanager.log")


def prometheus(folder: Path, address: str, config: dict[str, Any], *options: str) -> Child:
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    command = (
        program("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/tsdb",
        f"--web.listen-address={address}",
        *options,
    )
    return Child("prometheus", command, folder / "log" / "prometheus.log")


def rules(kind: str) -> list[dict[str, Any]]:
    """Of all files, with the name of its group in each."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule | {"group": group["name"]} for group in groups for rule in group["rules"] if kind in rule]


ALL_ALERTS = rules("alert")
