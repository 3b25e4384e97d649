"""Where somebody else keeps the clocks (`lockd_time_sync_enabled: false`), nothing is installed or written,
and a clock that is not in sync is refused: played on this machine, in check mode, with a chrony that says
what a test wants."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.harness.programs import loaded
from tests.lab import local_ansible
from tests.lab.inventory import ANSIBLE

ROLE = ANSIBLE / "roles/time_sync"
ASKED = "waitsync 3 0.1 0 1"

CHRONYC = """#!/bin/sh
echo "$*" >>{log}
[ "$1" = tracking ] || exit {status}
"""


def played(folder: Path, status: int, tasks_from: str = "main") -> tuple[int, str]:
    """The role where a chrony runs whose `waitsync` ends with that, and what was said, in one line."""
    (folder / "bin").mkdir()
    chronyc = folder / "bin/chronyc"
    chronyc.write_text(CHRONYC.format(log=folder / "asked", status=status))
    chronyc.chmod(0o755)
    role = {"name": "time_sync", "tasks_from": tasks_from, "rolespec_validate": tasks_from == "main"}
    task = {"name": "See to the clock", "ansible.builtin.import_role": role}
    variables = {
        "lockd_time_sync_enabled": False,
        "lockd_time_sync_servers": [],
        "lockd_time_sync_patience_s": 3,
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
    }
    play = {"name": "Clocks", "hosts": "web1", "gather_facts": False, "vars": variables, "tasks": [task]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    done = local_ansible.run(
        "ansible-playbook", "-i", "web1,", "--check", folder / "play.yml",
        PATH=f"{folder}/bin:{os.environ['PATH']}",
    )  # fmt: skip
    return done.returncode, local_ansible.said_by(done)


@local_ansible.needs_ansible
@pytest.mark.parametrize(("tasks_from", "tasks"), [("main", 3), ("preflight", 2), ("check", 2)])
def test_a_clock_in_sync_is_all_that_is_asked_for(tmp_path: Path, tasks_from: str, tasks: int) -> None:
    status, said = played(tmp_path, 0, tasks_from)
    assert status == 0, said
    # Asking and judging, in all of the role also a look at its arguments, and no task more.
    assert f"web1 : ok={tasks} changed=0" in said
    assert (tmp_path / "asked").read_text().splitlines() == ["tracking", ASKED]


@local_ansible.needs_ansible
@pytest.mark.parametrize("tasks_from", ["preflight", "check"])
def test_one_that_is_not_is_refused_and_where_to_look_is_said(tmp_path: Path, tasks_from: str) -> None:
    status, said = played(tmp_path, 1, tasks_from)
    assert status == 2
    assert "The clock of web1 is not in sync after 3 s: see `timedatectl` there" in said
    assert "UDP port 123" not in said


# Without Ansible: whom the program asks.


@pytest.fixture
def clock() -> Any:
    return loaded(ROLE / "files/clock_in_sync.py")


def ended(clock: Any, monkeypatch: pytest.MonkeyPatch, states: list[int]) -> Any:
    """What it ends with on a host without chrony, where the kernel says these, once a second."""
    now = iter(range(100))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", ["clock_in_sync.py", "3", "0.1"])
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None))
    monkeypatch.setattr(clock.ctypes, "CDLL", lambda _: SimpleNamespace(adjtimex=lambda _: states.pop(0)))
    try:
        clock.main()
    except SystemExit as end:
        return end.code
    return 0


@pytest.mark.parametrize(("states", "end"), [([0], 0), ([1], 0), ([5, 5, 0], 0)])
def test_without_chrony_the_kernel_is_asked_until_it_calls_the_clock_synchronised(
    clock: Any, monkeypatch: pytest.MonkeyPatch, states: list[int], end: int
) -> None:
    assert ended(clock, monkeypatch, states) == end
    assert states == []


def test_without_chrony_a_clock_that_the_kernel_does_not_vouch_for_is_said(
    clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ended(clock, monkeypatch, [5] * 20)
    assert said == "no chrony answers, and the kernel does not call the clock synchronised"


def test_all_but_the_look_before_is_left_out() -> None:
    steps = yaml.safe_load((ROLE / "tasks/main.yml").read_text())
    looks, *others = [(step["ansible.builtin.import_tasks"], step.get("when")) for step in steps]
    assert looks == ("preflight.yml", None)
    assert others == [
        (f"{step}.yml", "lockd_time_sync_enabled | bool") for step in ("install", "configure", "run")
    ]
