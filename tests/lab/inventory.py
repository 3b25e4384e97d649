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
from tests.lab.waiting import PATIENCE_S

ANSIBLE = REPOSITORY / "ansible"

# What is held with this TTL outlasts the restart of an agent on a machine that stands still for ten seconds
# meanwhile. And whole quarantines (max TTL × 1.01 + 1 s) are waited out in tests.
MAX_TTL_MS = 20_000
LONGER_MAX_TTL_MS = MAX_TTL_MS + 2_000
TTL = f"{MAX_TTL_MS}ms"
"""Of all that tests lock, as `lockctl --ttl` has it."""

# A machine that is busy with other things is no master in trouble.
PATIENT = {
    "timeouts": {"master_ms": 5_000, "connect_ms": 5_000, "dead_ms": 20_000},
    "clock_skew_allowance_ms": 5_000,
}

VARIABLES: Mapping[str, Any] = {
    "ansible_user": "ops",
    "lockd_cluster": "lab",
    "lockd_max_ttl_ms": MAX_TTL_MS,
    "lockd_settings": PATIENT,
    # As the inventory for Vagrant has it. Forming that waits: test_prechecks.py.
    "lockd_cluster_unused": True,
    "lockd_time_sync_servers": [GATEWAY],
    # Compiling takes two minutes for each of the versions that tests make: one of them is for that.
    "lockd_compiled": False,
    # There is no package of it in a distribution, and the lab has no way out.
    "lockd_grafana_enabled": False,
    # For what a host does by itself, plays have as much patience as tests.
    **dict.fromkeys(
        (
            "all_well_patience_s",
            "lockd_ready_patience_s",
            "lockd_redis_master_patience_s",
            "lockd_time_sync_patience_s",
            "lockd_prometheus_patience_s",
            "lockd_alertmanager_patience_s",
        ),
        int(PATIENCE_S),
    ),
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
    return lab.ours([found, "-i", str(lab.folder / inventory / "hosts.yml"), *words])


def environment(lab: Lab) -> dict[str, str]:
    return {
        **lab.environment(),
        "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        # All labs have the same addresses: a connection of one must not be taken for that of another.
        "ANSIBLE_SSH_CONTROL_PATH": f"{lab.sockets}/a-%%C",
        # Until a host answers, and until sudo does.
        "ANSIBLE_TIMEOUT": f"{PATIENCE_S:.0f}",
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
