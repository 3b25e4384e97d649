"""Ansible on this machine, as on a controller, without a lab: for plays that need no host, or this one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.inventory import ANSIBLE
from tests.lab.waiting import LIMIT_S

PROGRAMS = Path(sys.executable).parent
needs_ansible = pytest.mark.usefixtures("ansible")


def run(program: str, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """One of Ansible's programs, with the configuration that users have; `environment` is laid over that."""
    return subprocess.run(
        [PROGRAMS / program, *words],
        cwd=ANSIBLE,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "COLUMNS": "1000",
            **environment,
        },
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip


def said_by(done: subprocess.CompletedProcess[str]) -> str:
    """All of it, in one line."""
    return " ".join((done.stdout + done.stderr).split())
