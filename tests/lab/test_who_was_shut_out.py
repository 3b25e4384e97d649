"""An app host that revoke_agent.yml has shut out is not let in again by the next play that anybody runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.lab import local_ansible
from tests.lab.inventory import ANSIBLE

LOOK = [
    {
        "hosts": "lock_apps",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.import_tasks": f"{ANSIBLE}/tasks/none_shut_out.yml"}],
    }
]


@pytest.fixture
def look(tmp_path: Path, ansible: None) -> Callable[[], tuple[bool, str]]:
    """A part of what every play looks at first: whether it goes on, and what it says."""
    (tmp_path / "agents").mkdir()
    groups = {"lock_apps": {"hosts": {"a1": {}, "a2": {}}}}
    variables = {"lockd_secrets_dir": str(tmp_path), "ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"vars": variables, "children": groups}}))
    (tmp_path / "look.yml").write_text(yaml.safe_dump(LOOK))

    def run() -> tuple[bool, str]:
        done = local_ansible.run("ansible-playbook", "-i", tmp_path / "hosts.yml", tmp_path / "look.yml")
        return done.returncode == 0, local_ansible.said_by(done)

    return run


def test_a_host_that_was_shut_out_stops_the_plays_until_somebody_says_that_it_is_ours_again(
    look: Callable[[], tuple[bool, str]], tmp_path: Path
) -> None:
    note = tmp_path / "agents/a2.revoked"
    note.touch()
    works, said = look()
    assert not works
    assert "still in lock_apps: a2." in said
    assert f"delete {note}" in said
    note.unlink()
    assert look()[0]


def test_one_that_is_in_the_inventory_no_more_stops_nobody(
    look: Callable[[], tuple[bool, str]], tmp_path: Path
) -> None:
    (tmp_path / "agents/a9.revoked").touch()
    works, said = look()
    assert works, said


def test_every_play_that_changes_a_cluster_looks_for_that() -> None:
    tasks = ANSIBLE / "tasks"
    assert "none_shut_out.yml" in (tasks / "preflight_cluster.yml").read_text()
    for name in ("preflight_site.yml", "preflight_day2.yml"):
        assert "preflight_cluster.yml" in (tasks / name).read_text()
