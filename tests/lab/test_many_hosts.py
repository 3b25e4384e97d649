"""What is done on every app host knows nothing of the other app hosts: otherwise a play takes longer with the
square of their number. Played on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import local_ansible
from tests.lab.inventory import ANSIBLE

pytestmark = local_ansible.needs_ansible

HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
# Whoever asks for the address of another app host gets this error.
ASKED = "{{ 1 // 0 }}"
VARIABLES = {"lockd_cluster": "test", "lockd_secrets_dir": "/nowhere", "lockd_agent_password": "secret"}
INVENTORY: dict[str, Any] = {
    "lock_masters": {"hosts": {"m1": {**HERE, "ansible_host": "192.0.2.9"}}},
    "lock_apps": {"hosts": {"web1": {**HERE, "ansible_host": "192.0.2.1"}, "web2": {"ansible_host": ASKED}}},
}


def roles_of_app_hosts() -> list[str]:
    """Those that site.yml has there."""
    plays = yaml.safe_load((ANSIBLE / "site.yml").read_text())
    return sorted(
        {role["role"] for play in plays if "lock_apps" in play["hosts"] for role in play.get("roles", [])}
    )


def validate(role: str) -> dict[str, Any]:
    """A task that evaluates all variables of the role, as is done before it runs."""
    specs = yaml.safe_load((ANSIBLE / "roles" / role / "meta/argument_specs.yml").read_text())
    options = {name: {} for name in specs["argument_specs"]["main"]["options"]}
    return {
        "name": f"Evaluate the variables of {role}",
        "ansible.builtin.validate_argument_spec": {"argument_spec": options},
    }


def evaluated(folder: Path, role: str, host: str) -> tuple[int, str]:
    """The status of a play that does so on that host, and what it said."""
    hosts, play = folder / "hosts.yml", folder / "play.yml"
    hosts.write_text(yaml.safe_dump({"all": {"children": INVENTORY}}))
    files = [ANSIBLE / "group_vars/all.yml", *sorted((ANSIBLE / "roles" / role).glob("*s/main.yml"))]
    variables = [str(path) for path in files if path.parent.name in {"group_vars", "defaults", "vars"}]
    whole = {"name": "Evaluate", "hosts": host, "gather_facts": True, "gather_subset": ["!all", "min"]}
    play.write_text(yaml.safe_dump([{**whole, "vars_files": variables, "tasks": [validate(role)]}]))
    said = json.dumps({**VARIABLES, "role_path": str(ANSIBLE / "roles" / role)})
    done = local_ansible.run("ansible-playbook", "-i", hosts, "-e", said, play)
    return done.returncode, local_ansible.said_by(done)


@pytest.mark.parametrize("role", roles_of_app_hosts())
def test_no_app_host_asks_for_another_one(tmp_path: Path, role: str) -> None:
    status, said = evaluated(tmp_path, role, "web1")
    assert status == 0, said


def test_that_would_be_seen_a_master_asks_for_all_of_them(tmp_path: Path) -> None:
    status, said = evaluated(tmp_path, "firewall", "m1")
    assert (status, "by zero" in said) == (2, True)
