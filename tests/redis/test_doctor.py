"""`lockctl doctor` on clusters that are well, and on some that are not."""

from __future__ import annotations

from tests.harness.cluster import Cluster
from tests.harness.lockctl import lockctl
from tests.redis.module_cluster import module_cluster

WELL, WARNINGS = 0, 1
MEASURED = {"round trip", "clocks"}
"""What these find is so on a busy machine; what they make of it, tests/unit/test_doctor.py says."""

cluster = module_cluster(3)


def test_a_cluster_that_is_well_gets_no_advice(cluster: Cluster) -> None:
    done = lockctl(cluster, "doctor", "--json", "--config", cluster.config_path)
    found = done.json["checks"]
    verdicts = {one["check"]: one["verdict"] for one in found}
    assert {verdicts[check] for check in verdicts.keys() - MEASURED} == {"ok"}, found
    assert done.returncode == (WELL if set(verdicts.values()) == {"ok"} else WARNINGS), found
    checks = "socket agent configuration quorum clocks slewing lock fences boottime"
    assert set(checks.split()) <= {one["check"] for one in found}


def test_a_person_reads_a_line_for_each_check_and_what_to_do(cluster: Cluster) -> None:
    m3 = cluster.masters[2]
    m3.kill()
    try:
        cluster.wait_voting(2)
        done = lockctl(cluster, "doctor")
    finally:
        m3.start()
        cluster.wait_voting(3)
    assert done.returncode == WARNINGS
    lines = done.stdout.splitlines()
    [at] = [number for number, line in enumerate(lines) if "m3 has no vote: down" in line]
    assert lines[at].startswith("warning  master")
    assert lines[at + 1].lstrip().startswith("-> ")
