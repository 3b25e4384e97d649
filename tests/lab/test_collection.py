"""The roles and plays as a collection: packed, installed from its archive, and run from there, without this
repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import inventory
from tests.lab.conftest import Cluster
from tests.lab.plays import Played
from tests.lab.waiting import LIMIT_S

REPOSITORY = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where collections are, and this one among them."""
    folder = tmp_path_factory.mktemp("collections")
    packed = run(BIN / "python", REPOSITORY / "packaging/collection.py", folder / "packed").strip()
    run(BIN / "ansible-galaxy", "collection", "install", "--no-deps", "-p", folder, packed)
    return folder


def run(*command: object) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S).stdout


def test_the_plays_of_the_collection_find_the_cluster_as_those_of_the_repository_made_it(
    cluster: Cluster, installed: Path
) -> None:
    """So it has the same roles, sources, scripts, rules, runbooks and dashboards, and finds all of them."""
    site = play(cluster, installed, "lockd.lockd.site")
    assert site.must_work().changed_hosts == []
    assert "yes" in play(cluster, installed, "lockd.lockd.health").must_work().said


def test_a_play_of_the_collection_names_plays_as_they_are_called_there(
    cluster: Cluster, installed: Path
) -> None:
    refused = play(cluster, installed, "lockd.lockd.replace_master", "-e", "replace_master=m1,m2,m3")
    assert refused.status != 0
    assert "lockd.lockd.recover_cluster -e recover_cluster=lab" in refused.said


def play(cluster: Cluster, installed: Path, name: str, *words: str) -> Played:
    config = installed / "ansible.cfg"
    config.write_text("[defaults]\nforks = 20\n")
    environment = {
        **inventory.environment_of_mitogen(cluster.lab),
        "ANSIBLE_CONFIG": str(config),
        "ANSIBLE_COLLECTIONS_PATH": str(installed),
    }
    command = inventory.playbook_command(cluster.lab, [name, *words])
    done = subprocess.run(
        command, cwd=installed, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    return Played(name, done.returncode, done.stdout, 0.0)
