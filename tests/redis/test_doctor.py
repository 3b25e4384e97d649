"""`lockctl doctor` on clusters that are well, and on some that are not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.harness.cluster import Cluster
from tests.harness.lockctl import LOCKCTL
from tests.harness.waiting import eventually

WELL, WARNINGS, FAILURES = 0, 1, 2


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


def test_it_leaves_nothing_locked_behind(cluster: Cluster) -> None:
    doctor(cluster.socket)
    eventually(lambda: cluster.client().execute_command("LOCKS") == [], what="nothing is locked")


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


def test_a_master_that_is_down_is_a_warning_and_a_lost_quorum_a_failure(
    make_cluster: Callable[..., Cluster],
) -> None:
    own = make_cluster(masters=3)
    own.masters[0].kill()
    own.wait_voting(2)
    status, found = doctor(own.socket)
    assert status == WARNINGS
    assert "not one more may fail" in found["quorum"][0]["what"]
    assert found["lock"][0]["verdict"] == "ok"
    own.masters[1].kill()
    own.wait_voting(1)
    status, found = doctor(own.socket)
    assert status == FAILURES
    assert found["quorum"][0]["verdict"] == found["lock"][0]["verdict"] == "failure"
    assert [finding["what"].split()[0] for finding in found["master"]] == ["m1", "m2"]


def test_new_masters_want_a_cluster_and_a_wiped_one_wants_to_be_admitted(
    make_cluster: Callable[..., Cluster],
) -> None:
    own = make_cluster(masters=3, form=False)
    eventually(lambda: [one["state"] for one in own.master_states()] == ["blank"] * 3, what="all are blank")
    _, found = doctor(own.socket)
    assert {finding["next"] for finding in found["master"]} == {"lockctl cluster init"}
    own.form()
    own.wait_voting(3)
    own.masters[1].kill()
    own.masters[1].wipe()
    own.masters[1].start()
    eventually(lambda: own.master_states()[1]["state"] == "blank", 10, "m2 is blank")
    _, found = doctor(own.socket)
    assert found["master"][0]["next"] == "lockctl master admit m2"


def test_a_lease_on_fewer_than_all_masters_is_a_warning(make_cluster: Callable[..., Cluster]) -> None:
    own = make_cluster(masters=3)
    own.masters[0].kill()
    own.wait_voting(2)
    own.client().execute_command("LOCK", "thin", 60_000, "DETACHED")
    [finding] = eventually(lambda: [one for one in doctor(own.socket)[1]["leases"] if one["verdict"] != "ok"])
    assert "thin (2 of 3)" in finding["what"]


def test_a_changed_configuration_that_the_agent_has_not_read_is_a_warning(cluster: Cluster) -> None:
    cluster.write_config(max_ttl_ms=50_000)
    status, found = doctor(cluster.socket, "--config", cluster.config_path)
    assert status == WARNINGS
    assert "restart the agent" in found["configuration"][0]["next"]
    assert found["max ttl"][0]["verdict"] == "warning"
    cluster.write_config(max_ttl_ms=70_000)
    status, found = doctor(cluster.socket, "--config", cluster.config_path)
    assert status == FAILURES
    assert "60000 ms" in found["max ttl"][0]["what"]


def test_without_an_agent_it_says_what_to_do(tmp_path: Path) -> None:
    status, found = doctor(tmp_path / "none.sock")
    assert status == FAILURES
    assert found["socket"][0]["verdict"] == found["agent"][0]["verdict"] == "failure"
    assert "LOCKD_SOCKET" in found["socket"][0]["next"]


def test_a_dead_agents_socket_is_told_from_none(cluster: Cluster) -> None:
    cluster.agent.kill()
    status, found = doctor(cluster.socket)
    assert status == FAILURES
    assert found["socket"][0]["verdict"] == "ok"
    assert "Connection refused" in found["agent"][0]["what"]


def test_a_folder_that_anybody_may_write_is_a_warning(cluster: Cluster) -> None:
    os.chmod(cluster.folder, 0o777)
    status, found = doctor(cluster.socket)
    assert status == WARNINGS
    assert "chmod" in found["socket"][0]["next"]
