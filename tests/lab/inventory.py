"""The lab's inventory, written for Ansible; and how a playbook is run on it."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.lab.lab import APPS, GATEWAY, MASTERS, MONITORING, REPOSITORY, Lab

ANSIBLE = REPOSITORY / "ansible"

# Short, so that a whole quarantine (max TTL × 1.01 + 1 s) can be waited out in a test.
MAX_TTL_MS = 5000

VARIABLES: Mapping[str, Any] = {
    "ansible_user": "ops",
    "lockd_cluster": "lab",
    "lockd_max_ttl_ms": MAX_TTL_MS,
    "lockd_time_sync_servers": [GATEWAY],
    # Compiling takes two minutes for each of the versions that tests make: one of them is for that.
    "lockd_compiled": False,
    # There is no package of it in a distribution, and the lab has no way out.
    "lockd_grafana_enabled": False,
}


def write(lab: Lab, changes: Mapping[str, Any] | None = None, name: str = "inventory") -> Path:
    """The folder `name` of the lab with hosts.yml; `changes` are laid over the variables of all hosts."""
    folder = lab.folder / name
    folder.mkdir(exist_ok=True)
    write_document(folder, document(lab, changes or {}))
    return folder


def write_document(folder: Path, inventory: Mapping[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory, sort_keys=False))


def document(lab: Lab, changes: Mapping[str, Any], apps: Mapping[str, str] = APPS) -> dict[str, Any]:
    groups = {"lock_masters": MASTERS, "lock_apps": apps, "lock_monitoring": MONITORING}
    return {
        "all": {
            "vars": {
                **VARIABLES,
                "ansible_ssh_common_args": f"-F {lab.folder}/ssh_config.ops",
                # Each lab has secrets of its own, kept like those of a real cluster: beside the inventory.
                "lockd_secrets_dir": str(lab.folder / "secrets"),
                # As it was when the lab was started: somebody may be at work on the repository meanwhile.
                "lockd_source": str(lab.source),
                "lockd_restart_guard_source": str(lab.source / "lockd" / "guard"),
                "lockd_redis_master_scripts_source": str(lab.source / "lockd" / "masters" / "scripts"),
                "lockd_wheelhouse": str(lab.folder.parent.parent / "wheels"),
                **changes,
            },
            "children": {
                group: {"hosts": {name: {"ansible_host": address} for name, address in members.items()}}
                for group, members in groups.items()
            },
        }
    }


def playbook_command(lab: Lab, words: Sequence[str], inventory: str = "inventory") -> list[str]:
    program = Path(sys.executable).with_name("ansible-playbook")
    found = str(program) if program.exists() else shutil.which("ansible-playbook") or "ansible-playbook"
    return [found, "-i", str(lab.folder / inventory / "hosts.yml"), *words]


def environment(lab: Lab) -> dict[str, str]:
    return {
        **lab.environment(),
        "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        # All labs have the same addresses: a connection of one must not be taken for that of another.
        "ANSIBLE_SSH_CONTROL_PATH": f"/run/{lab.name}-ansible-%%C",
    }


def environment_of_mitogen(lab: Lab) -> dict[str, str]:
    """The same plays and modules for a third of the work: one Python on each host runs them all, instead of
    ssh, sudo and a fresh Python for each."""
    return {
        **environment(lab),
        "ANSIBLE_STRATEGY": "mitogen_linear",
        "ANSIBLE_STRATEGY_PLUGINS": str(_mitogen() / "plugins" / "strategy"),
        # It asks ssh for that itself, and not by our ssh_config.
        "ANSIBLE_HOST_KEY_CHECKING": "False",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
    }


def _mitogen() -> Path:
    spec = importlib.util.find_spec("ansible_mitogen")
    assert spec is not None, "Mitogen is not installed: make test-lab"
    assert spec.origin is not None
    return Path(spec.origin).parent
