"""`lockctl doctor` on clusters that are well, and on some that are not."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.harness.cluster import Cluster
from tests.harness.lockctl import LOCKCTL

WELL, WARNINGS = 0, 1


def doctor(socket_path: Path, *options: str | Path) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Its exit status, and what it has found by check."""
    command = [LOCKCTL, "--socket", socket_path, "doctor", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(done.stdout)["checks"]:
        found.setdefault(finding["check"], []).append(finding)
    return done.returncode, found


def test_a_cluster_that_is_well_gets_no_advice(cluster: Cluster) -> None:
    status, found = doctor(cluster.socket, "--config", cluster.config_path)
    assert status == WELL, found
    assert {finding["verdict"] for findings in found.values() for finding in findings} == {"ok"}
    assert {
        "socket",
        "agent",
        "configuration",
        "quorum",
        "clocks",
        "slewing",
        "lock",
        "fences",
        "boottime",
    } <= found.keys()


def test_a_person_reads_a_line_for_each_check_and_what_to_do(make_cluster: Callable[..., Cluster]) -> None:
    own = make_cluster(masters=3)
    own.masters[2].kill()
    own.wait_voting(2)
    command = [LOCKCTL, "--socket", own.socket, "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == WARNINGS
    lines = done.stdout.splitlines()
    [at] = [number for number, line in enumerate(lines) if "m3 has no vote: down" in line]
    assert lines[at].startswith("warning  master")
    assert lines[at + 1].lstrip().startswith("-> ")
