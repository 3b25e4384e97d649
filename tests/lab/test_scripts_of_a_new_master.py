"""A master that is replaced while agents are of another version than the controller gets their scripts too,
from the other masters."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import local_ansible
from tests.lab.inventory import ANSIBLE

MASTERS = ("m1", "m2", "m3", "m4", "m5")
OLD, NEW, PLANTED = "0" * 40, "1" * 40, "2" * 40


def role(step: str) -> dict[str, object]:
    return {"ansible.builtin.import_role": {"name": "redis_master", "tasks_from": step}}


PLAYS = [
    {"hosts": "lock_masters:!m3", "gather_facts": False, "tasks": [role("read_scripts")]},
    {"hosts": "m3", "gather_facts": False, "tasks": [role("take_scripts")]},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the masters have, each in a folder of its name. m3 is new, with what this controller brought."""
    for name in MASTERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / (NEW if name == "m3" else OLD)).write_text("cmV0dXJuIDE= cmV0dXJuIDI=\n")
    return tmp_path


def take_over(folder: Path) -> None:
    hosts = {name: {"ansible_connection": "local"} for name in MASTERS}
    variables = {"ansible_python_interpreter": sys.executable}
    groups = {"lock_masters": {"hosts": hosts}, "lock_apps": {"hosts": {}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"vars": variables, "children": groups}}))
    (folder / "plays.yml").write_text(yaml.safe_dump(PLAYS))
    (folder / "more.yml").write_text(
        yaml.safe_dump({"lockd_redis_master_scripts_dir": f"{folder}/{{{{ inventory_hostname }}}}"})
    )
    done = local_ansible.run(
        "ansible-playbook", "-i", folder / "hosts.yml", "-e", f"@{folder}/more.yml", folder / "plays.yml"
    )
    assert done.returncode == 0, done.stdout + done.stderr


@local_ansible.needs_ansible
def test_a_new_master_has_the_scripts_of_agents_of_an_older_version(folder: Path) -> None:
    take_over(folder)
    assert {path.name for path in (folder / "m3").iterdir()} == {OLD, NEW}
    assert (folder / "m3" / OLD).read_bytes() == (folder / "m1" / OLD).read_bytes()


@local_ansible.needs_ansible
def test_one_master_alone_brings_it_no_code(folder: Path) -> None:
    (folder / "m1" / PLANTED).write_text("ZXZpbA==\n")
    (folder / "m5" / OLD).write_text("ZXZpbA==\n")
    take_over(folder)
    assert {path.name for path in (folder / "m3").iterdir()} == {NEW}


def steps_of(tasks: list[dict[str, Any]]) -> Iterator[str]:
    """Those of roles, also of files of tasks that are shared."""
    for task in tasks:
        if "ansible.builtin.import_role" in task:
            yield task["ansible.builtin.import_role"].get("tasks_from")
        elif shared := task.get("ansible.builtin.import_tasks"):
            yield from steps_of(yaml.safe_load((ANSIBLE / "tasks" / Path(shared).name).read_text()))


@pytest.mark.parametrize(
    ("playbook", "installs"),
    [
        ("replace_master.yml", "Install the new masters"),
        ("move_master.yml", "Install the new master, blank"),
    ],
)
def test_a_play_with_a_new_master_reads_them_first_and_loads_them_last(playbook: str, installs: str) -> None:
    plays = yaml.safe_load((ANSIBLE / playbook).read_text())
    steps = {play["name"]: list(steps_of(play.get("tasks", []))) for play in plays}
    assert "read_scripts" in steps["Look before anything is changed"]
    assert steps[installs] == ["take_scripts", "load_scripts"]
