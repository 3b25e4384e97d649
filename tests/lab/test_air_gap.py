"""From one archive, without package indexes: a controller is made of it, and a host gets its agent."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.lab import inventory
from tests.lab.conftest import Cluster
from tests.lab.looks import masters
from tests.lab.waiting import LIMIT_S, until

REPOSITORY = Path(__file__).resolve().parents[2]
# Whoever asks an index all the same gets no answer.
NO_INDEX = {"PIP_NO_INDEX": "1", "PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_EXTRA_INDEX_URL": ""}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("air-gap")
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    command = [sys.executable, str(REPOSITORY / "packaging/air_gap.py"), str(folder), python]
    packed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S)
    with tarfile.open(packed.stdout.splitlines()[-1]) as archive:
        archive.extractall(folder)
    [found] = [path for path in folder.iterdir() if path.is_dir()]
    return found


@pytest.fixture(scope="module")
def controller(unpacked: Path) -> Path:
    """With the words of its README."""
    subprocess.run([sys.executable, "-m", "venv", unpacked / "ansible"], check=True, timeout=LIMIT_S)
    pip = [unpacked / "ansible/bin/pip", "install", "--quiet", "--no-index", "--require-hashes"]
    pip += ["--find-links", "controller"]
    subprocess.run(
        [*pip, "-r", "controller/requirements.txt"], cwd=unpacked, env=NO_INDEX, check=True, timeout=LIMIT_S
    )
    return unpacked


def test_a_host_gets_its_agent_from_the_archive(cluster: Cluster, controller: Path, on: Any) -> None:
    on("a2").check_output("systemctl stop lockd && rm -r /opt/lockd")
    hosts = cluster.lab.folder / "inventory/hosts.yml"
    words = ["-i", hosts, "-e", f"lockd_wheelhouse={controller / 'wheels'}", "site.yml"]
    played = subprocess.run(
        cluster.lab.ours([str(word) for word in (controller / "ansible/bin/ansible-playbook", *words)]),
        cwd=controller / "lockd/ansible", env=inventory.environment(cluster.lab) | NO_INDEX,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    assert played.returncode == 0, played.stdout[-6000:]
    until(lambda: all(row["vote"] for row in masters(on, "a2")), "its agent sees five votes")


def test_it_names_what_hosts_take_from_the_distribution(unpacked: Path, on: Any) -> None:
    named = json.loads((unpacked / "packages.json").read_text())
    for group, host, one in (
        ("lock_masters", "m1", "redis-server"),
        ("lock_apps", "a1", "chrony"),
        ("lock_monitoring", "mon1", "prometheus"),
    ):
        assert one in named[group]
        for package in named[group]:
            assert on(host).package(package).is_installed
