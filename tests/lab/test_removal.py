"""The end of a cluster, and a new one on the same hosts, this time without TLS."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab import inventory
from tests.lab.conftest import Cluster
from tests.lab.lab import APPS, MASTERS
from tests.lab.looks import votes
from tests.lab.plays import play
from tests.lab.waiting import PATIENCE_S

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


# blockdev is the distribution's. /run is a file system of its own; systemd keeps in it what it has seen.
LOOK_FOR_REMAINS = (
    "find / /run -xdev -path /run/systemd -prune"
    " -o -path /proc -prune -o -path /srv -prune -o -path /var/log -prune"
    " -o -name '*lockd*' ! -name 'blockdev*' -print;"
    "ls -A /var/lib/lockd-master 2>/dev/null || true"
)


def test_nothing_of_it_is_left(removed: Cluster, on: Any) -> None:
    for name in (*MASTERS, *APPS):
        left = on(name).check_output(LOOK_FOR_REMAINS)
        # A disk of its own stays, empty.
        assert left in ("", "/var/lib/lockd-master"), f"{name}:\n{left}"
        assert on(name).run("ss --no-header -tln | grep -E ':(6379|9100|9480) '").stdout == ""


def test_what_was_there_before_is_as_it_was_before(removed: Cluster, on: Any) -> None:
    for name in MASTERS:
        assert not on(name).service("redis-server").is_masked
        assert not on(name).service("redis-server").is_enabled
    for name in APPS:
        assert not on(name).user("lockd").exists
        assert not on(name).group("lockd-apps").exists
    for name in (*MASTERS, *APPS, "mon1"):
        assert not on(name).file("/etc/systemd/system/chrony.service.d/never-step.conf").exists
        assert on(name).run("nft list table inet lockd").rc != 0
        assert not on(name).file("/etc/systemd/system/nftables.service.d/lockd.conf").exists


def test_nobody_is_called_for_a_cluster_that_is_no_more(removed: Cluster, on: Any) -> None:
    for service in ("prometheus", "prometheus-alertmanager", "prometheus-node-exporter"):
        assert not on("mon1").service(service).is_running
        assert not on("mon1").service(service).is_enabled
    assert on("mon1").run("grep -rl lockd /etc/prometheus /etc/default").stdout == ""
    assert not on("mon1").file("/etc/systemd/system/lockd-runbooks.service").exists
    assert on("mon1").run("ss --no-header -tln | grep -E ':(9090|9093|9098|9100) '").stdout == ""


FEWER = {"lock_masters": ["m1", "m2", "m3"], "lock_apps": ["a1"], "lock_monitoring": []}


@pytest.fixture(scope="module")
def without_tls(removed: Cluster) -> Cluster:
    """Three of the masters' hosts and one app host are a new cluster, on a network of its own."""
    secrets = removed.lab.folder / "secrets-plain"
    changes = {"lockd_tls": False, "lockd_secrets_dir": str(secrets), "lockd_cluster_unused": True}
    document = inventory.document(removed.lab, changes)
    for group, members in FEWER.items():
        hosts = document["all"]["children"][group]["hosts"]
        document["all"]["children"][group]["hosts"] = {name: hosts[name] for name in members}
    inventory.write_document(removed.lab.folder / "plain", document)
    play(removed.lab, "site.yml", inventory_name="plain").must_work()
    return removed


def test_without_tls_locks_are_taken_and_no_certificate_is_made(without_tls: Cluster, on: Any) -> None:
    assert votes(on) == dict.fromkeys(FEWER["lock_masters"], 1)
    assert on("a1").run(f"lockctl run --ttl {inventory.TTL} lab:plain -- true").rc == 0
    talk = "exec 3<>/dev/tcp/10.77.0.11/6379; printf 'PING\\r\\n' >&3; head -1 <&3"
    assert "NOAUTH" in on("a1").check_output(f'timeout {PATIENCE_S:g} bash -c "{talk}"')
    assert not (without_tls.lab.folder / "secrets-plain/tls").exists()
    assert not on("a1").file("/etc/lockd/agent.pem").exists
