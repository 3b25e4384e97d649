"""What a host does by itself, without any play: its firewall stays, its clock is stepped at boot only, and
what hangs is started again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.lab.conftest import Cluster
from tests.lab.host import Host
from tests.lab.lab import ADDRESSES
from tests.lab.plays import play
from tests.lab.waiting import until

MASTER_PORT = 6379


def reaches(on: Any, host: str, address: str, port: int) -> bool:
    code = f"import socket; socket.create_connection(({address!r}, {port}), timeout=3)"
    return bool(on(host).run(f'python3 -c "{code}"').rc == 0)


def is_closed(on: Any) -> bool:
    """To strangers; whom it is for gets in."""
    assert reaches(on, "a1", ADDRESSES["m1"], MASTER_PORT)
    return not reaches(on, "m2", ADDRESSES["m1"], MASTER_PORT)


@pytest.mark.parametrize("verb", ["restart", "reload", "stop"])
def test_a_master_stays_closed_when_the_firewall_of_its_host_is_told_to(
    cluster: Cluster, on: Any, verb: str
) -> None:
    on("m1").check_output("systemctl start nftables")
    assert is_closed(on)
    on("m1").check_output(f"systemctl {verb} nftables")
    assert is_closed(on)
    assert on("m1").service("lockd-master").is_running


def test_rules_that_somebody_flushed_are_seen_and_loaded_again(cluster: Cluster, on: Any) -> None:
    on("m1").check_output("nft flush ruleset")
    assert not is_closed(on)
    words = ("site.yml", "--tags", "redis_master")
    assert play(cluster.lab, *words).must_work().changed_hosts == ["m1"]
    assert is_closed(on)
    assert play(cluster.lab, *words).must_work().changed_hosts == []


def test_a_master_does_not_start_open_to_strangers(cluster: Cluster, on: Any) -> None:
    """Rules that can't be loaded: a host that boots, or a disk that has lost them."""
    rules = "/etc/lockd-master/firewall.nft"
    on("m1").check_output("systemctl stop lockd-master lockd-master-firewall")
    on("m1").check_output(f"mv {rules} {rules}.away")
    try:
        assert on("m1").run("systemctl start lockd-master").rc != 0
        assert not on("m1").service("lockd-master").is_running
    finally:
        on("m1").check_output(f"mv {rules}.away {rules}; systemctl start lockd-master")
    assert is_closed(on)


@contextmanager
def listener(host: Host, address: str, port: int) -> Iterator[None]:
    code = (
        f"import socket,time; s = socket.create_server(({address!r}, {port}), family=socket.AF_INET6);"
        "time.sleep(10**6)"
    )
    unit = f"lab-listener-{port}"
    host.run("systemd-run", "--quiet", f"--unit={unit}", "--collect", "python3", "-c", code)
    try:
        yield
    finally:
        host.run("systemctl", "stop", unit)


@contextmanager
def also_at(host: Host, address: str) -> Iterator[None]:
    host.run("ip", "-6", "addr", "add", f"{address}/64", "dev", "host0", "nodad")
    try:
        yield
    finally:
        host.run("ip", "-6", "addr", "del", f"{address}/64", "dev", "host0")


def test_it_is_closed_by_ipv6_too(cluster: Cluster, on: Any) -> None:
    """No address of that kind is in the inventory, so all who have one are strangers."""
    m1, a1 = cluster.lab.host("m1"), cluster.lab.host("a1")
    other_port = 7000
    with (
        also_at(m1, "fd77::11"),
        also_at(a1, "fd77::21"),
        listener(m1, "fd77::11", MASTER_PORT),
        listener(m1, "fd77::11", other_port),
    ):
        until(lambda: reaches(on, "a1", "fd77::11", other_port), "what isn't ours is open")
        until(lambda: reaches(on, "m1", "fd77::11", MASTER_PORT), "somebody listens")
        assert not reaches(on, "a1", "fd77::11", MASTER_PORT)


def test_chrony_may_step_the_clock_at_boot_and_never_later(cluster: Cluster) -> None:
    """By what each start of it is told: -R is 'only slew'."""
    host = cluster.lab.host("mon1")
    host.kill()
    host.start()
    until(lambda: host.leader() is not None, "the host boots")
    first = until(lambda: arguments_of_chrony(host), "chrony runs")
    assert "-R" not in first
    host.run("systemctl", "restart", "chrony")
    assert "-R" in arguments_of_chrony(host)
    killed = pid_of_chrony(host)
    host.run("kill", "-KILL", killed)
    until(lambda: pid_of_chrony(host) not in ("0", killed), "it is started again")
    assert "-R" in arguments_of_chrony(host)
    # At a boot it waits for the time.
    state = ("systemctl", "show", "--value", "-p", "ActiveState", "prometheus")
    until(lambda: host.run(*state).strip() == "active", "Prometheus runs")


def arguments_of_chrony(host: Host) -> list[str]:
    """Of the one that runs; none when it doesn't."""
    pid = pid_of_chrony(host)
    return [] if pid == "0" else host.run("cat", f"/proc/{pid}/cmdline").split("\0")


def pid_of_chrony(host: Host) -> str:
    return host.run("systemctl", "show", "--value", "-p", "MainPID", "chrony").strip()


def test_an_agent_that_hangs_is_started_again(cluster: Cluster, on: Any) -> None:
    def pid() -> int:
        return int(on("a2").check_output("systemctl show --value -p MainPID lockd"))

    hung = pid()
    on("a2").check_output(f"kill -STOP {hung}")
    until(lambda: pid() not in (0, hung), "another process")
    lock = "lockctl run --ttl 2s lab:hung -- true"
    until(lambda: on("a2").run(lock).rc == 0, "locks again")
    assert "watchdog" in on("a2").check_output("journalctl --no-pager -u lockd | grep -i watchdog | tail -1")
