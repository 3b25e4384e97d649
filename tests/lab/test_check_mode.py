"""What a master is asked in check mode: only what changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab.lab import REPOSITORY
from tests.lab.local_ansible import needs_ansible

pytestmark = needs_ansible

ASK = REPOSITORY / "ansible/roles/redis_master/tasks/ask.yml"


def asks(folder: Path, changed: str, *options: str) -> list[str]:
    """What a master heard that was asked for a number, where the answer `changed` says that it was
    changed."""
    master, heard = folder / "master", folder / "heard"
    master.write_text(f'#!/bin/sh\ncat >/dev/null\necho "$@" >>{heard}\necho 60000\n')
    master.chmod(0o755)
    asked: dict[str, Any] = {
        "lockd_redis_master_ask": ["TTL?"],
        "lockd_redis_master_ask_good": "^[0-9]+$",
        "lockd_redis_master_ask_changed": changed,
        "lockd_redis_master_cli": [str(master)],
        "lockd_redis_master_admin_password": "secret",
    }
    play = [
        {"hosts": "localhost", "gather_facts": False, "vars": asked, "tasks": [{"include_tasks": str(ASK)}]}
    ]
    (folder / "play.yml").write_text(json.dumps(play))
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), *options, folder / "play.yml"],
        env={**os.environ, "ANSIBLE_LOCAL_TEMP": str(folder), "ANSIBLE_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return heard.read_text().splitlines() if heard.exists() else []


@pytest.mark.smoke
def test_what_only_reads_is_asked_also_in_check_mode(tmp_path: Path) -> None:
    assert asks(tmp_path, "never", "--check") == ["TTL?"]


@pytest.mark.smoke
def test_what_may_change_something_is_not_asked_in_check_mode_and_stops_nothing(tmp_path: Path) -> None:
    assert asks(tmp_path, "60000", "--check") == []


@pytest.mark.parametrize("changed", ["never", "60000"])
def test_both_are_asked_else(tmp_path: Path, changed: str) -> None:
    assert asks(tmp_path, changed) == ["TTL?"]
