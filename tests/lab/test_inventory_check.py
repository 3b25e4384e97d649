"""What plays refuse of an inventory before they ask any host: the role inventory_check, and the agent's own
code, which reads what the role lockd would write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import local_ansible
from tests.lab.inventory import ANSIBLE

CLUSTER = {"lockd_cluster": "shop", "lockd_max_ttl_ms": 60_000, "lockd_secrets_dir": "/nowhere"}
Hosts = dict[str, dict[str, Any]]

pytestmark = [local_ansible.needs_ansible, pytest.mark.smoke]


def checked(folder: Path, masters: Hosts, apps: Hosts, **variables: Any) -> subprocess.CompletedProcess[str]:
    """As tasks/preflight_cluster.yml begins."""
    groups = {"lock_masters": {"hosts": masters}, "lock_apps": {"hosts": apps}}
    inventory = {"all": {"vars": CLUSTER | variables, "children": groups}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    tasks = yaml.safe_load((ANSIBLE / "tasks/preflight_cluster.yml").read_text())[:2]
    play = {"name": "A test", "hosts": "all", "gather_facts": False, "tasks": tasks}
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


def test_what_an_agent_would_refuse_is_refused_before_any_host_is_asked(tmp_path: Path) -> None:
    """All of it at once, and as the agent says it."""
    spoilt = {
        "m 1": {"ansible_host": "m1"},
        "m2": {"lockd_master_name": "m" * 65},
        "m3": {"lockd_master_port": 65_536},
    }
    variables = {
        "lockd_cluster": 2024,
        "lockd_max_ttl_ms": 60_000.5,
        "lockd_settings": {"limits": {"files": 1}, "timeout": 1},
    }
    done = checked(tmp_path, spoilt, {"a1": {}, "a 2": {"ansible_host": "a2"}}, **variables)
    assert done.returncode != 0
    for mistake in (
        "The agent of a1 would refuse its configuration.",
        "cluster: is the number 2024; write 1 to 64 letters, digits, '.', '_' or '-', in quotes",
        'masters[0].name: is the text "m 1"',
        f'masters[1].name: is the text "{"m" * 64}"',
        'masters[2].address: is the text "m3:65536", whose port is not from 1 to 65535',
        "max_ttl_ms: is the number 60000.5",
        "limits.files: is the number 1",
        "timeout: is not a known key; did you mean timeouts?",
        "auth.username",
        "Nothing was changed",
    ):
        assert mistake in local_ansible.said_by(done)


def test_two_spellings_of_one_host_are_one_host(tmp_path: Path) -> None:
    done = checked(tmp_path, masters(ansible_host="Shop.example."), {"a1": {"ansible_host": "shop.example"}})
    assert done.returncode != 0
    assert "More than one name for one host: m2, a1 (shop.example port 22)" in done.stdout


def test_two_masters_at_one_address_are_refused(tmp_path: Path) -> None:
    """Behind one address they differ by the port of ssh, and would be asked at one."""
    of_m2 = {"ansible_host": "M1.", "ansible_port": 2222}
    done = checked(tmp_path, masters(**of_m2), {"a1": {}})
    assert done.returncode != 0
    said = 'masters[1].address: is the text "M1.:6379", the same as masters[0].address'
    assert said in local_ansible.said_by(done)
