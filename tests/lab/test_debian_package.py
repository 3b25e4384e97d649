"""The agent as a Debian package, on a host that Ansible never touched: installed, configured and started by
hand, with what its README.Debian says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.conftest import Cluster
from tests.lab.host import Host
from tests.lab.inventory import MAX_TTL_MS, PATIENT, TTL
from tests.lab.lab import MASTERS
from tests.lab.looks import masters
from tests.lab.waiting import LIMIT_S, until

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = "/root/lockd.deb"
HOST = "a2"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = REPOSITORY / "packaging/deb/build.py"
    command = [sys.executable, str(program), str(tmp_path_factory.mktemp("deb"))]
    built = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S)
    return Path(built.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def bare(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Another machine in the place of an app host, which the masters know already."""
    lab, shelf = cluster.lab, cluster.lab.folder / "a2-of-ansible"
    host = lab.host(HOST)
    host.kill()
    lab.new_machine(HOST, shelf)
    host.start()
    host.wait_booted()
    yield host
    host.kill()
    lab.swap_machines(HOST, shelf)
    host.start()
    host.wait_booted()


@pytest.fixture(scope="module")
def installed(cluster: Cluster, bare: Host, package: Path) -> Host:
    give(bare, PACKAGE, package.read_bytes())
    said = bare.run("dpkg", "-i", PACKAGE)
    assert "systemctl enable --now lockd" in said
    return bare


def give(host: Host, path: str, content: bytes) -> None:
    """A file, as scp would bring it."""
    (host.merged / path.lstrip("/")).write_bytes(content)


@pytest.fixture(scope="module")
def running(cluster: Cluster, installed: Host) -> Host:
    """Word by word what README.Debian says."""
    secrets = cluster.lab.folder / "secrets"
    give(installed, "/root/a2.password", (secrets / "agents/a2.password").read_bytes())
    for name in ("ca.pem", "a2.pem", "a2.key"):
        give(installed, f"/root/{name}", (secrets / "tls" / name).read_bytes())
    give(installed, "/etc/lockd/lockd.yml", yaml.safe_dump(configuration()).encode())
    for line in (
        "install -o lockd -g root -m 0400 a2.password /etc/lockd/masters.password",
        "install -o root -g root -m 0644 ca.pem /etc/lockd/ca.pem",
        "cat a2.pem a2.key | install -o lockd -g root -m 0400 /dev/stdin /etc/lockd/agent.pem",
        "lockd check-config /etc/lockd/lockd.yml",
        "systemctl enable --now lockd",
    ):
        installed.run("sh", "-c", f"cd /root; {line}")
    return installed


def configuration() -> dict[str, Any]:
    agent = "/etc/lockd/agent.pem"
    return {
        "cluster": "lab",
        "masters": [{"name": name, "address": f"{address}:6379"} for name, address in MASTERS.items()],
        "max_ttl_ms": MAX_TTL_MS,
        **PATIENT,
        "auth": {"username": "agent-a2", "password_file": "/etc/lockd/masters.password"},
        "tls": {
            "ca_file": "/etc/lockd/ca.pem",
            "cert_file": agent,
            "key_file": agent,
            "server_name": "{name}",
        },
        "socket": {"group": "lockd-apps"},
    }


def test_it_is_installed_and_neither_enabled_nor_started(installed: Host) -> None:
    assert installed.run("sh", "-c", "systemctl is-enabled lockd || true").strip() == "disabled"
    assert installed.run("sh", "-c", "systemctl is-active lockd || true").strip() == "inactive"
    assert installed.run("stat", "-c", "%U %G %a", "/etc/lockd/lockd.yml").split() == ["root", "lockd", "640"]
    assert installed.run("dpkg", "--verify", "lockd").strip() == ""
    assert "lockd-apps" in installed.run("id", "lockd")


def test_its_manual_says_what_help_says(installed: Host) -> None:
    page = installed.run("zcat", "/usr/share/man/man1/lockctl-run.1.gz").replace("\\", "")
    for line in installed.run("lockctl", "run", "--help").splitlines():
        if line.lstrip().startswith("--"):
            assert line.split()[0] in page


def test_with_what_its_readme_says_it_takes_locks(running: Host, on: Any) -> None:
    until(lambda: all(row["vote"] for row in masters(on, HOST)), "it sees five votes")
    assert "lab:deb" in running.run("lockctl", "run", "--ttl", TTL, "lab:deb", "--", "lockctl", "locks")
    assert on(HOST).check_output("systemctl show -P User lockd") == "lockd"


def test_an_upgrade_ends_no_lock_and_leaves_its_configuration(running: Host, on: Any) -> None:
    before = running.run("cat", "/etc/lockd/lockd.yml")
    pid = running.run("systemctl", "show", "-P", "MainPID", "lockd")
    running.run(
        "systemd-run",
        "--collect",
        "--unit=holds",
        "lockctl",
        "run",
        "--ttl",
        TTL,
        "lab:kept",
        "--",
        "sleep",
        "infinity",
    )
    until(lambda: "lab:kept" in running.run("lockctl", "locks", "--local"), "it holds a lock")
    running.run("dpkg", "-i", PACKAGE)
    assert running.run("systemctl", "show", "-P", "MainPID", "lockd") != pid
    assert running.run("cat", "/etc/lockd/lockd.yml") == before
    until(lambda: "lab:kept" in running.run("lockctl", "locks", "--local"), "the new agent has taken it over")
    assert running.run("systemctl", "is-active", "holds").strip() == "active"
    running.run("systemctl", "stop", "holds")


def test_it_is_removed_and_purged(running: Host) -> None:
    running.run("dpkg", "--purge", "lockd")
    left = "ls -d /opt/lockd /etc/lockd /run/lockd /usr/bin/lockctl 2>/dev/null || true"
    assert running.run("sh", "-c", left).strip() == ""


def test_a_host_that_ansible_has_is_left_alone(cluster: Cluster, package: Path) -> None:
    host = cluster.lab.host("a1")
    give(host, PACKAGE, package.read_bytes())
    said = host.run("sh", "-c", f"dpkg -i {PACKAGE} 2>&1; dpkg --purge lockd >/dev/null 2>&1; rm {PACKAGE}")
    assert "was installed by Ansible" in said
    assert host.run("systemctl", "is-active", "lockd").strip() == "active"
