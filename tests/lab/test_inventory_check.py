"""What the role inventory_check refuses. It looks at the inventory alone, so no host is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import local_ansible

CLUSTER = {"lockd_cluster": "shop", "lockd_max_ttl_ms": 60_000, "lockd_secrets_dir": "/nowhere"}
Hosts = dict[str, dict[str, Any]]

pytestmark = [local_ansible.needs_ansible, pytest.mark.smoke]


def checked(folder: Path, masters: Hosts, apps: Hosts) -> subprocess.CompletedProcess[str]:
    groups = {"lock_masters": {"hosts": masters}, "lock_apps": {"hosts": apps}}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"vars": CLUSTER, "children": groups}}))
    role = {"name": "Check it", "ansible.builtin.import_role": {"name": "inventory_check"}}
    on_controller = {"delegate_to": "localhost", "run_once": True}
    play = {"name": "A test", "hosts": "all", "gather_facts": False, "tasks": [role | on_controller]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    local = f"ansible_python_interpreter={sys.executable}"
    return local_ansible.run("ansible-playbook", "-i", folder / "hosts.yml", "-e", local, folder / "play.yml")


def masters(**of_m2: Any) -> Hosts:
    return {"m1": {}, "m2": of_m2, "m3": {}}


def test_an_inventory_with_all_that_is_needed_is_accepted(tmp_path: Path) -> None:
    """m2 has an address of IPv6 for ssh, and a name for agents and monitoring."""
    of_m2 = {"ansible_host": "fd00::12", "lockd_master_address": "m2.example"}
    of_m2["lockd_node_exporter_address"] = "m2.example"
    done = checked(tmp_path, masters(**of_m2), {"a1": {}, "a2": {"lockd_metrics": "10.0.0.2:9481"}})
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("nothing", [None, ""])
def test_an_agent_without_metrics_is_refused(tmp_path: Path, nothing: str | None) -> None:
    """lockd itself can run without; but a play then never learns that the agent is ready."""
    done = checked(tmp_path, masters(), {"a1": {}, "a2": {"lockd_metrics": nothing}})
    assert done.returncode != 0
    assert "lockd_metrics is empty for a2." in done.stdout
    assert "Nothing was changed" in done.stdout


def test_ipv6_addresses_are_refused_where_a_port_is_appended(tmp_path: Path) -> None:
    done = checked(tmp_path, masters(lockd_master_address="fd00::12"), {"a1": {"ansible_host": "fd00::1"}})
    assert done.returncode != 0
    assert "m2 (fd00::12), a1 (fd00::1)" in done.stdout
