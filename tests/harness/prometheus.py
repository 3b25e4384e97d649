"""Prometheus's programs, the machine's own or those that `make test` unpacked; and the rules it is given."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def rules(kind: str) -> list[dict[str, Any]]:
    """Of all files, with the name of its group in each."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule | {"group": group["name"]} for group in groups for rule in group["rules"] if kind in rule]


ALL_ALERTS = rules("alert")
