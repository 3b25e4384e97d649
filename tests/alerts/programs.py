"""Prometheus's programs: the machine's own, or those that `make test` unpacked beside these tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "alerts"
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
