"""The same topology in virtual machines: what can be known of it without any."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.lab.lab import REPOSITORY
from tests.lab.waiting import PATIENCE_S

INVENTORIES = REPOSITORY / "ansible" / "inventories"


@pytest.fixture
def vagrant(tmp_path: Path) -> list[str]:
    program = shutil.which("vagrant")
    if program is None:
        pytest.skip("vagrant is not installed (Debian: vagrant)")
    return [program]


def test_vagrant_finds_nothing_wrong(vagrant: list[str], tmp_path: Path) -> None:
    checked = subprocess.run(
        [*vagrant, "validate", "--ignore-provider"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        env={**os.environ, "VAGRANT_HOME": str(tmp_path / "home"),
             "VAGRANT_DOTFILE_PATH": str(tmp_path / "machines"), "VAGRANT_CHECKPOINT_DISABLE": "1"},
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "validated successfully" in checked.stdout


def hosts(inventory: str) -> dict[str, list[str]]:
    document = yaml.safe_load((INVENTORIES / inventory / "hosts.yml").read_text())
    return {group: list(members["hosts"]) for group, members in document["all"]["children"].items()}


def test_its_hosts_are_those_of_the_example() -> None:
    assert hosts("vagrant") == hosts("example")
