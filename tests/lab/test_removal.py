"""The end of a cluster, and a new one on the same hosts, this time with TLS."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab import inventory
from tests.lab.conftest import Cluster
from tests.lab.lab import APPS, MASTERS
from tests.lab.looks import votes
from tests.lab.plays import play

READ = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=20).read().decode())"


def test_a_cluster_is_destroyed_only_when_it_is_named(cluster: Cluster, on: Any) -> None:
    refused = play(cluster.lab, "remove_cluster.yml")
    refused.must_stop_with("every lock in it is forgotten", "-e remove_cluster=lab", "Nothing was changed")
    play(cluster.lab, "remove_cluster.yml", "-e", "remove_cluster=other").must_stop_with(
        "Nothing was changed"
    )
    assert on("m1").service("lockd-master").is_running


# What `systemctl edit lockd-master` leaves.
EDIT_A_UNIT = (
    "mkdir /etc/systemd/system/lockd-master.service.d"
    " && printf '[Service]\\nNice=1\\n' >/etc/systemd/system/lockd-master.service.d/override.conf"
)


@pytest.fixture(scope="module")
def removed(cluster: Cluster, on: Any) -> Cluster:
    on("m3").check_output(EDIT_A_UNIT)
    play(cluster.lab, "remove_cluster.yml", "-e", "remove_cluster=lab").must_work()
    return cluster


# blockdev is the distribution's.
LOOK_FOR_REMAINS = (
    "find / -xdev -path /proc -prune -o -path /srv -prune -o -path /var/log -prune"
    " -o -name '*lockd*' ! -name 'blockdev*' -print;"
    "ls -A /var/lib/lockd-master 2>/dev/null || true"
)


def test_nothing_of_it_is_left(removed: Cluster, on: Any) -> None:
    for name in (*MASTERS, *APPS):
        left = on(name).check_output(LOOK_FOR_REMAINS)
        # A disk of its own stays, empty.
        assert left in ("", "/var/lib/lockd-master"), f"{name}:\n{left}"
        assert on(name).run("ss --no-header -tln | grep -E ':(6379|9480|9121) '").stdout == ""


def test_what_was_there_before_is_as_it_was_before(removed: Cluster, on: Any) -> None:
    for name in MASTERS:
        assert not on(name).service("redis-server").is_masked
        assert not on(name).service("redis-server").is_enabled
    for name in APPS:
        assert not on(name).user("lockd").exists
        assert not on(name).group("lockd-apps").exists
    for name in (*MASTERS, *APPS, "mon1"):
        assert not on(name).file("/etc/systemd/system/chrony.service.d/never-step.conf").exists
        assert not on(name).file("/etc/systemd/system/nftables.service.d/lockd-master.conf").exists


def test_nobody_is_called_for_a_cluster_that_is_no_more(removed: Cluster, on: Any) -> None:
    for service in ("prometheus", "prometheus-alertmanager"):
        assert not on("mon1").service(service).is_running
        assert not on("mon1").service(service).is_enabled
    assert on("mon1").run("grep -rl lockd /etc/prometheus /etc/default").stdout == ""


FEWER = {"lock_masters": ["m1", "m2", "m3"], "lock_apps": ["a1"], "lock_monitoring": []}


@pytest.fixture(scope="module")
def with_tls(removed: Cluster) -> Cluster:
    """Three of the masters' hosts and one app host are a new cluster."""
    secrets = removed.lab.folder / "secrets-tls"
    changes = {"lockd_tls": True, "lockd_secrets_dir": str(secrets), "lockd_cluster_unused": True}
    document = inventory.document(removed.lab, changes)
    for group, members in FEWER.items():
        hosts = document["all"]["children"][group]["hosts"]
        document["all"]["children"][group]["hosts"] = {name: hosts[name] for name in members}
    inventory.write_document(removed.lab.folder / "tls", document)
    play(removed.lab, "site.yml", inventory_name="tls").must_work()
    return removed


def test_with_tls_locks_are_taken_and_nothing_else_is_spoken(with_tls: Cluster, on: Any) -> None:
    assert votes(on) == dict.fromkeys(FEWER["lock_masters"], 1)
    assert on("a1").run("lockctl run --ttl 2s lab:tls -- true").rc == 0
    # To Redis itself this would be NOAUTH.
    assert "NOAUTH" not in on("m1").run("redis-cli -h 10.77.0.11 PING 2>&1").stdout
    assert on("m1").file("/etc/lockd-master/tls/master.key").mode == 0o640
    password = (with_tls.lab.folder / "secrets-tls/admin.password").read_text().strip()
    cli = f"REDISCLI_AUTH={password} redis-cli --no-auth-warning --user lockd_admin -h 10.77.0.11 --tls"
    assert on("m1").run(f"{cli} --cacert /etc/lockd-master/tls/ca.pem PING").stdout.strip() == "PONG"
    # Somebody else's authority is not believed.
    assert "PONG" not in on("m1").run(f"{cli} --cacert /etc/ssl/certs/ca-certificates.crt PING").stdout
    # So does the exporter, whose metrics say that it gets through.
    assert "redis_up 1" in on("m1").check_output(f'python3 -c "{READ}" http://10.77.0.11:9121/metrics')
