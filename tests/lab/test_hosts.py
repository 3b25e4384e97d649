"""What a host does by itself, without any play: its firewall stays, its clock is stepped at boot only, and
what hangs is started again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab import inventory
from tests.lab.conftest import Cluster
from tests.lab.host import Host
from tests.lab.lab import ADDRESSES
from tests.lab.plays import play
from tests.lab.waiting import until

MASTER_PORT, METRICS_PORT = 6379, 9480


# The kernels answer, whatever else the machine is busy with; a firewall of ours does not. So this is no limit
# of time for anybody but them.
SILENT_AFTER_S = 3


def reaches(on: Any, host: str, address: str, port: int) -> bool:
    code = f"import socket; socket.create_connection(({address!r}, {port}), timeout={SILENT_AFTER_S})"
    return bool(on(host).run(f'python3 -c "{code}"').rc == 0)


def reached(on: Any, tried: Sequence[tuple[str, str, int]]) -> set[tuple[str, str, int]]:
    """Host, address and port of those that were let in; all are tried side by side."""
    with ThreadPoolExecutor(len(tried)) as pool:
        let_in = pool.map(lambda one: reaches(on, *one), tried)
        return {one for one, inside in zip(tried, let_in, strict=True) if inside}


def is_closed(on: Any) -> bool:
    """To strangers; whom it is for gets in."""
    assert reaches(on, "a1", ADDRESSES["m1"], MASTER_PORT)
    return not reaches(on, "m2", ADDRESSES["m1"], MASTER_PORT)


# What is told to a host's firewall, by its administrator, a package or a play.
VERBS = (
    "restart nftables", "reload nftables", "stop nftables", "start nftables", "reload lockd-firewall",
    "restart lockd-firewall", "stop lockd-firewall", "start lockd-firewall",
)  # fmt: skip
RESET = "systemctl reset-failed nftables lockd-firewall || true"


@dataclass(frozen=True)
class Knocks:
    """So far."""

    tried: int
    inside: int


@contextmanager
def a_stranger_knocks(host: Host, address: str, port: int) -> Iterator[Callable[[], Knocks]]:
    """Without a pause. What is yielded says how often he has tried, and got in."""
    (host.merged / "root/knocker.py").write_text(Path(__file__).with_name("knocker.py").read_text())
    door, unit = f"/run/door-{port}", f"knocker-{port}"
    host.run("rm", "-f", door)
    words = ("python3", "/root/knocker.py", address, str(port), door)
    host.run("systemd-run", "--quiet", "--collect", f"--unit={unit}", *words)
    try:
        until(lambda: host.run("cat", door), "the stranger knocks")
        yield lambda: Knocks(*map(int, host.run("cat", door).split()))
    finally:
        host.run("systemctl", "stop", unit)


def agents_at(host: Host) -> set[str]:
    """Where the connections of agents come from: address and port."""
    lines = host.run("ss", "-Htn", "state", "established", f"sport = :{MASTER_PORT}").splitlines()
    return {line.split()[-1] for line in lines}


def test_no_stranger_gets_in_while_a_firewall_is_changed_and_no_agent_is_put_out(cluster: Cluster) -> None:
    m1, m2, a1, a2 = (cluster.lab.host(name) for name in ("m1", "m2", "a1", "a2"))
    m1.run("systemctl", "start", "nftables")
    before = until(lambda: agents_at(m1), "agents are there")
    with (
        a_stranger_knocks(m2, m1.address, MASTER_PORT) as at_the_master,
        a_stranger_knocks(a2, a1.address, METRICS_PORT) as at_the_agent,
    ):
        for host, knocks in ((m1, at_the_master), (a1, at_the_agent)):
            changes, enough = 0, knocks().tried + 100
            while changes < 5 or knocks().tried < enough:
                host.run("sh", "-c", told_to_all())
                changes += 1
        assert [at_the_master().inside, at_the_agent().inside] == [0, 0]
    assert agents_at(m1) == before


def told_to_all() -> str:
    return f"{RESET}; " + "; ".join(f"systemctl {verb}" for verb in VERBS)


def test_that_stranger_would_find_a_gap(cluster: Cluster) -> None:
    """As it was when rules were flushed, and loaded again a moment later."""
    m1, m2 = cluster.lab.host("m1"), cluster.lab.host("m2")
    gap = "nft delete table inet lockd; nft --file /etc/lockd/firewall.nft"

    def found() -> bool:
        m1.run("sh", "-c", gap)
        return knocks().inside > 0

    with a_stranger_knocks(m2, m1.address, MASTER_PORT) as knocks:
        until(found, "he is inside")
        assert knocks().inside < knocks().tried


@pytest.mark.parametrize("verb", VERBS)
def test_a_host_stays_closed_whatever_its_firewall_is_told(cluster: Cluster, on: Any, verb: str) -> None:
    on("m1").check_output(f"{RESET}; systemctl start nftables lockd-firewall; systemctl {verb}")
    assert is_closed(on)
    assert on("m1").service("lockd-master").is_running


def test_other_rules_of_the_host_stay(cluster: Cluster, on: Any) -> None:
    on("a1").check_output("nft add table inet somebodys")
    try:
        words = ("site.yml", "--tags", "firewall")
        inventory.write(cluster.lab, {"lockd_firewall_readers": ["10.77.0.99"]}, "readers")
        assert play(cluster.lab, *words, inventory_name="readers").must_work().changed_hosts == ["mon1"]
        assert "10.77.0.99" in on("mon1").check_output("nft list table inet lockd")
        play(cluster.lab, *words).must_work()
        assert "10.77.0.99" not in on("mon1").check_output("nft list table inet lockd")
        on("a1").check_output("nft list table inet somebodys")
    finally:
        on("a1").check_output("nft delete table inet somebodys")


@pytest.mark.smoke
def test_each_port_is_for_whom_it_is_for(cluster: Cluster, on: Any) -> None:
    """The master's, its host's metrics, the agent's metrics; and at the monitoring host nothing."""
    m1, a1, mon1 = (ADDRESSES[name] for name in ("m1", "a1", "mon1"))
    allowed = {
        ("a2", m1, MASTER_PORT), ("mon1", m1, 9100), ("mon1", a1, METRICS_PORT),
    }  # fmt: skip
    tried = {
        (host, address, port)
        for host in ("m2", "a2", "mon1")
        for address, port in ((m1, MASTER_PORT), (m1, 9100), (a1, METRICS_PORT))
    }
    assert reached(on, sorted(tried)) == allowed
    # Also where somebody has one of them listen to all.
    with listener(cluster.lab.host("mon1"), "0.0.0.0", 3000):
        until(lambda: reaches(on, "mon1", mon1, 3000), "somebody listens")
        assert reached(on, [("a1", mon1, port) for port in (3000, 9090, 9093, 9098)]) == set()


def reaches_as(on: Any, user: str) -> bool:
    """The agent's metrics, on its own host."""
    code = f"import socket; socket.create_connection(({ADDRESSES['a1']!r}, {METRICS_PORT}))"
    return bool(on("a1").run(f'runuser -u {user} -- python3 -c "{code}"').rc == 0)


def test_on_the_host_itself_root_and_prometheus_alone_reach_the_agents_metrics(
    cluster: Cluster, on: Any
) -> None:
    words = ("site.yml", "--tags", "firewall")
    users = ("root", "prometheus", "nobody")
    on("a1").check_output("useradd --system prometheus")
    try:
        assert [reaches_as(on, user) for user in users] == [True, False, False], "he was unknown before"
        assert play(cluster.lab, *words).must_work().changed_hosts == ["a1"]
        assert [reaches_as(on, user) for user in users] == [True, True, False]
        assert play(cluster.lab, *words).must_work().changed_hosts == []
    finally:
        on("a1").check_output("userdel prometheus")
        play(cluster.lab, *words).must_work()


def test_rules_that_somebody_flushed_are_seen_and_loaded_again(cluster: Cluster, on: Any) -> None:
    on("m1").check_output("nft flush ruleset")
    assert not is_closed(on)
    words = ("site.yml", "--tags", "firewall")
    assert play(cluster.lab, *words).must_work().changed_hosts == ["m1"]
    assert is_closed(on)
    on("m1").check_output("nft flush ruleset; systemctl restart lockd-master")
    assert not reaches(on, "m2", ADDRESSES["m1"], MASTER_PORT)


def test_a_master_does_not_start_open_to_strangers(cluster: Cluster, on: Any) -> None:
    """Rules that can't be loaded: a host that boots, or a disk that has lost them."""
    rules = "/etc/lockd/firewall.nft"
    on("m1").check_output("systemctl stop lockd-master")
    on("m1").check_output(f"mv {rules} {rules}.away")
    try:
        assert on("m1").run("systemctl start lockd-master").rc != 0
        assert not on("m1").service("lockd-master").is_running
    finally:
        on("m1").check_output(f"mv {rules}.away {rules}; systemctl start lockd-master")
    until(lambda: is_closed(on), "it runs, closed")


@contextmanager
def listener(host: Host, address: str, port: int) -> Iterator[None]:
    family = "AF_INET6" if ":" in address else "AF_INET"
    code = (
        f"import socket,time; s = socket.create_server(({address!r}, {port}), family=socket.{family});"
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
    lock = f"lockctl run --ttl {inventory.TTL} lab:hung -- true"
    until(lambda: on("a2").run(lock).rc == 0, "locks again")
    assert "watchdog" in on("a2").check_output("journalctl --no-pager -u lockd | grep -i watchdog | tail -1")
