"""Plays that end in the middle, and the same command once more: whatever was left is done then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.lab import inventory
from tests.lab.conftest import Cluster
from tests.lab.host import Host
from tests.lab.lab import APPS, MASTERS
from tests.lab.load import at_work
from tests.lab.looks import votes
from tests.lab.plays import play
from tests.lab.waiting import PATIENCE_S, until


def property_of(on: Any, host: str, unit: str, name: str) -> str:
    return str(on(host).check_output(f"systemctl show --value -p {name} {unit}"))


# What a play writes on a master's host besides the master's own configuration, and which unit runs with that.
CHANGES = {
    "lockd_node_exporter_arguments": ["--no-collector.zfs"],
    "lockd_time_sync_max_slew_ppm": 400,
    "lockd_restart_guard_delay_ms": 30_000,
    "lockd_firewall_rules": [
        {"ports": [6379], "from": list(APPS.values())},
        {"ports": [9100, 9199], "from": ["10.77.0.31"]},
    ],
}
UNITS = ("prometheus-node-exporter", "chrony", "lockd-guard-watch")
WRITTEN = (
    ("node_exporter", "configure"), ("time_sync", "configure"),
    ("restart_guard", "install"), ("restart_guard", "configure"),
)  # fmt: skip
TAGS = "node_exporter,time_sync,restart_guard,firewall"


def play_that_fails_when_all_is_written() -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = [{"ansible.builtin.setup": {"gather_subset": ["!all", "min", "virtual"]}}]
    tasks += [{"ansible.builtin.include_role": {"name": role, "tasks_from": step}} for role, step in WRITTEN]
    tasks.append({"ansible.builtin.fail": {"msg": "as a host that is lost here"}})
    return [{"hosts": "m1", "become": True, "gather_facts": False, "tasks": tasks}]


@pytest.fixture
def changed(cluster: Cluster) -> Iterator[str]:
    """The name of an inventory with other settings; afterwards, the old ones are in force again."""
    inventory.write(cluster.lab, CHANGES, "changed")
    yield "changed"
    play(cluster.lab, "site.yml", "--tags", TAGS).must_work()


def test_what_was_written_by_a_play_that_failed_is_heeded_after_the_next(
    cluster: Cluster, on: Any, changed: str
) -> None:
    def runs() -> dict[str, str]:
        return {unit: property_of(on, "m1", unit, "InvocationID") for unit in UNITS}

    before = runs()
    half = cluster.lab.folder / "half.yml"
    half.write_text(yaml.safe_dump(play_that_fails_when_all_is_written()))
    failed = play(cluster.lab, str(half), inventory_name=changed)
    assert "as a host that is lost here" in failed.said
    assert runs() == before
    done = play(cluster.lab, "site.yml", "--tags", TAGS, inventory_name=changed).must_work()
    assert {unit for unit, run in runs().items() if run == before[unit]} == set(), done.output[-3000:]
    assert json.loads(on("m1").run("lockd-guard status --json").stdout)["delay_s"] == 30
    assert "9199" in on("m1").check_output("nft list table inet lockd")


# Bumps the version of the packages that m5 has, and offers them to it alone.
OFFER = """
set -e; cd "$1/srv"; rm -rf repo-own unpacked; mkdir -p repo-own unpacked
for package in redis-server redis-tools; do
  dpkg-deb -R repo-next/"$package"_*.deb unpacked/"$package"
  sed -i -E "s/^(Version: .*)$/\\1$2/" unpacked/"$package"/DEBIAN/control
  sed -i -E "s/(redis-tools \\(= [^)]*)\\)/\\1$2)/" unpacked/"$package"/DEBIAN/control
  dpkg-deb -b unpacked/"$package" repo-own/ >/dev/null
done
rm -r unpacked; cd repo-own; dpkg-scanpackages --multiversion . >Packages 2>/dev/null
echo "deb [trusted=yes] file:/srv/repo-own ./" >"$1/etc/apt/sources.list.d/own.list"
"""


def offer_redis(host: Host, suffix: str) -> None:
    """A later build of Redis is in the repository of this host only."""
    subprocess.run(["bash", "-c", OFFER, "offer", str(host.merged), suffix], check=True, timeout=PATIENCE_S)


def redis_version(on: Any, host: str) -> str:
    return str(on(host).package("redis-server").version)


def play_until(cluster: Cluster, playbook: str, condition: Callable[[], Any], what: str) -> None:
    """Its controller is killed, with all that it has started here, as soon as the condition holds."""
    log = cluster.lab.folder / "interrupted.log"
    with log.open("w") as out:
        running = subprocess.Popen(
            inventory.playbook_command(cluster.lab, [playbook]),
            cwd=inventory.ANSIBLE, env=inventory.environment(cluster.lab),
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
        try:
            until(condition, f"{what}; the play said {log}")
        finally:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait(PATIENCE_S)


def test_a_master_that_was_being_upgraded_is_back_after_the_next_run(cluster: Cluster, on: Any) -> None:
    m5 = cluster.lab.host("m5")
    offer_redis(m5, "+lab2")

    def stopped_for_it() -> bool:
        held = "test -e /run/lockd-master.held && ! systemctl is-active --quiet lockd-master && echo held"
        return "held" in m5.run("sh", "-c", held)

    with at_work(cluster.lab, "upgrade_redis.yml, its controller killed in the middle, and again") as work:
        play_until(cluster, "upgrade_redis.yml", stopped_for_it, "m5 is stopped for its upgrade")
        until(lambda: not busy(m5), "what it had begun there has ended")
        assert not on("m5").service("lockd-master").is_running
        play(cluster.lab, "upgrade_redis.yml").must_work()
    assert redis_version(on, "m5").endswith("+lab2")
    assert not on("m5").file("/run/lockd-master.held").exists
    assert votes(on) == dict.fromkeys(MASTERS, 1)
    work.must_be_flawless()


def busy(host: Host) -> bool:
    return "apt-get" in host.run("ps", "-eo", "args")


def test_a_master_is_not_stopped_for_a_package_that_cannot_be_had(cluster: Cluster, on: Any) -> None:
    m5 = cluster.lab.host("m5")
    offer_redis(m5, "+lab3")
    for package in (m5.merged / "srv/repo-own").glob("*.deb"):
        package.unlink()
    before = property_of(on, "m5", "lockd-master", "InvocationID")
    try:
        assert play(cluster.lab, "upgrade_redis.yml").status != 0
    finally:
        (m5.merged / "etc/apt/sources.list.d/own.list").unlink()
        m5.run("apt-get", "-qq", "update")
    assert property_of(on, "m5", "lockd-master", "InvocationID") == before
    assert votes(on) == dict.fromkeys(MASTERS, 1)


def test_an_upgrade_does_not_end_well_with_a_master_that_is_down(cluster: Cluster, on: Any) -> None:
    on("m5").check_output("systemctl stop lockd-master")
    try:
        refused = play(cluster.lab, "upgrade_redis.yml", "-e", "all_well_patience_s=2")
        refused.must_stop_with("m5 has no vote", "the play stops")
    finally:
        on("m5").check_output("systemctl start lockd-master")
    until(lambda: votes(on) == dict.fromkeys(MASTERS, 1), "m5 has its vote")


@pytest.fixture
def newer(cluster: Cluster) -> Iterator[None]:
    """lockd's code has changed since."""
    path = cluster.lab.source / "lockd/newer.py"
    path.write_text('"""Something that the version before did not have."""\n')
    yield
    path.unlink()
    play(cluster.lab, "upgrade_lockd.yml").must_work()


def version_that_runs(on: Any, host: str) -> str:
    """The folder of the program of the agent, whatever the link says by now."""
    pid = property_of(on, host, "lockd", "MainPID")
    return str(on(host).check_output(f"grep -o '/opt/lockd/[^/]*' /proc/{pid}/maps | sort -u"))


def test_a_canary_that_is_no_app_host_is_refused(cluster: Cluster) -> None:
    refused = play(cluster.lab, "upgrade_lockd.yml", "-e", "upgrade_lockd_canary=ap1")
    refused.must_stop_with("upgrade_lockd_canary is ap1, which isn't an app host", "Nothing was changed")


def test_an_agent_that_was_pointed_to_a_version_and_not_restarted_gets_it_by_the_next_run(
    cluster: Cluster, on: Any, newer: None
) -> None:
    old = version_that_runs(on, "a1")
    point_to_the_newest(cluster, "a1")
    assert on("a1").file("/opt/lockd/current").linked_to != old
    assert version_that_runs(on, "a1") == old
    play(cluster.lab, "upgrade_lockd.yml").must_work()
    for name in APPS:
        assert version_that_runs(on, name) == on(name).file("/opt/lockd/current").linked_to != old
        assert not on(name).file("/opt/lockd/previous").exists


def point_to_the_newest(cluster: Cluster, host: str) -> None:
    """As far as upgrade_lockd.yml comes before it restarts the agent."""
    link = {"dest": "/opt/lockd/current", "src": "/opt/lockd/{{ lockd_version }}", "state": "link"}
    tasks = [
        {"ansible.builtin.setup": {"gather_subset": ["!all", "min", "virtual"]}},
        {"ansible.builtin.include_role": {"name": "lockd", "tasks_from": "version"}},
        {"ansible.builtin.command": "cp -P /opt/lockd/current /opt/lockd/previous"},
        {"ansible.builtin.file": link},
    ]
    half = cluster.lab.folder / "pointed.yml"
    half.write_text(yaml.safe_dump([{"hosts": host, "become": True, "gather_facts": False, "tasks": tasks}]))
    play(cluster.lab, str(half)).must_work()


def test_a_precheck_that_fails_touches_no_agent(cluster: Cluster, on: Any, newer: None) -> None:
    def agents() -> dict[str, tuple[str, str]]:
        look = property_of
        return {
            name: (look(on, name, "lockd", "InvocationID"), on(name).file("/opt/lockd/current").linked_to)
            for name in APPS
        }

    before = agents()
    on("a1").check_output("cp -p /etc/lockd/lockd.yml /root/ && echo 'no_such_key: 1' >>/etc/lockd/lockd.yml")
    try:
        stopped = play(cluster.lab, "upgrade_lockd.yml")
    finally:
        on("a1").check_output("mv /root/lockd.yml /etc/lockd/")
    assert stopped.status != 0
    assert "no_such_key" in stopped.said
    assert "did not get ready" not in stopped.said
    assert agents() == before
