"""What `site.yml` makes of bare hosts: a cluster that grants locks, closed to strangers, and left alone
by a second run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.conftest import Cluster
from tests.lab.lab import APPS, MASTERS
from tests.lab.looks import votes
from tests.lab.plays import play
from tests.lab.report import REPORT

# systemd's own measure, 0 (safe) to 10; what it calls OK ends at 5.
MOST_EXPOSED = 3.0


def test_the_first_run_ends_with_locks_being_taken_from_each_app_host(cluster: Cluster, on: Any) -> None:
    for name in APPS:
        ran = on(name).run("lockctl run --ttl 2s lab:first -- printenv LOCKD_FENCE")
        assert ran.rc == 0, ran.stderr
        assert int(ran.stdout) > 0


def test_all_masters_have_a_vote(cluster: Cluster, on: Any) -> None:
    assert votes(on) == dict.fromkeys(MASTERS, 1)


def test_the_second_run_changes_nothing(cluster: Cluster) -> None:
    again = play(cluster.lab, "site.yml").must_work()
    REPORT.ran("site.yml, for the second time", again.took_s, again.recap)
    assert again.changed_hosts == [], again.output[-5000:]


def test_check_mode_on_what_is_finished_finds_nothing_to_do(cluster: Cluster) -> None:
    checked = play(cluster.lab, "site.yml", "--check", "--diff").must_work()
    assert checked.changed_hosts == [], checked.output[-5000:]


@pytest.mark.parametrize("host", ["m1", "m5"])
def test_the_stock_service_is_masked_and_ours_runs(cluster: Cluster, on: Any, host: str) -> None:
    assert on(host).service("redis-server").is_masked
    assert on(host).service("lockd-master").is_running
    assert on(host).service("lockd-master").is_enabled
    assert on(host).service("lockd-guard-watch").is_running


@pytest.mark.parametrize(
    ("host", "unit"), [("m1", "lockd-master"), ("a1", "lockd"), ("m1", "lockd-guard-watch")]
)
def test_each_service_is_in_a_sandbox(cluster: Cluster, on: Any, host: str, unit: str) -> None:
    rated = on(host).check_output(f"systemd-analyze security --no-pager {unit}.service | tail -1")
    exposure = float(rated.split(":")[1].split()[0])
    assert exposure <= MOST_EXPOSED, rated


def test_only_agents_and_monitoring_reach_a_master(cluster: Cluster, on: Any) -> None:
    knock = "timeout 3 bash -c '</dev/tcp/10.77.0.11/6379'"
    assert on("a1").run(knock).rc == 0
    assert on("mon1").run(knock).rc == 0
    assert on("m2").run(knock).rc != 0


def test_nobody_gets_in_without_a_password(cluster: Cluster, on: Any) -> None:
    assert "NOAUTH" in on("m1").run("redis-cli -h 10.77.0.11 DBSIZE").stdout


def test_secrets_are_in_no_file_or_unit_that_everybody_can_read(cluster: Cluster, on: Any) -> None:
    password = (cluster.lab.folder / "secrets/agent.password").read_text().strip()
    found = on("a1").run(
        f"grep -rl --exclude-dir=proc {password} /etc /run /opt/lockd/current/.complete /usr/local"
    )
    assert found.stdout.split() == ["/etc/lockd/masters.password"]
    assert on("a1").file("/etc/lockd/masters.password").mode == 0o400
    assert password not in on("a1").check_output("ps -eo args")


def test_the_agent_sees_no_more_than_it_needs(cluster: Cluster, on: Any) -> None:
    password = (cluster.lab.folder / "secrets/agent.password").read_text().strip()
    cli = f"REDISCLI_AUTH={password} redis-cli --user lockd -h 10.77.0.11"
    for refused in ("CONFIG SET maxmemory 1", "FLUSHALL", "KEYS x", "REPLICAOF 10.0.0.1 1", "SET other 1"):
        assert "NOPERM" in on("m1").run(f"{cli} {refused}").stdout, refused


def test_an_app_outside_the_group_gets_no_socket(cluster: Cluster, on: Any) -> None:
    socket = on("a1").file("/run/lockd/lockd.sock")
    assert (socket.mode, socket.group) == (0o660, "lockd-apps")
    assert on("a1").run("runuser -u nobody -- lockctl ping").rc != 0
