"""Plays on a cluster that isn't there: what they refuse before they ask any host. Nobody listens where the
hosts are said to be, so that nothing is done to this machine, whatever a play is up to.

Tasks that only judge what was found run on this machine, with what a test says was found."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.lab import local_ansible
from tests.lab.inventory import ANSIBLE

MASTERS = {f"m{number}": {"ansible_host": f"127.0.1.{number}"} for number in range(1, 6)}
APPS = {f"a{number}": {"ansible_host": f"127.0.2.{number}"} for number in range(1, 4)}
MONITORING = {"mon1": {"ansible_host": "127.0.3.1"}}

Hosts = Mapping[str, Mapping[str, Any]]


def inventory(
    folder: Path,
    masters: Hosts = MASTERS,
    apps: Hosts = APPS,
    monitoring: Hosts = MONITORING,
    **variables: Any,
) -> Path:
    groups = {"lock_masters": masters, "lock_apps": apps, "lock_monitoring": monitoring}
    path = folder / "hosts.yml"
    of_all = {
        "lockd_cluster": "shop",
        "lockd_max_ttl_ms": 60_000,
        "lockd_secrets_dir": str(folder / "secrets"),
        "ansible_port": 1,
        **variables,
    }
    children = {
        group: {"hosts": {name: dict(host) for name, host in hosts.items()}}
        for group, hosts in groups.items()
    }
    path.write_text(yaml.safe_dump({"all": {"vars": of_all, "children": children}}))
    return path


def run(hosts: Path, playbook: Path, *words: str, **environment: str) -> str:
    """All that it says, in one line. Programs in the folder of the inventory are found before others."""
    done = local_ansible.run(
        "ansible-playbook", "-i", hosts, "-e", f"ansible_playbook_python={sys.executable}", *words, playbook,
        ANSIBLE_HOME=str(hosts.parent / "home"), PATH=f"{hosts.parent}:{os.environ['PATH']}",
        **environment,
    )  # fmt: skip
    return f"status {done.returncode}: {local_ansible.said_by(done)}"


def refused(hosts: Path, playbook: str, *words: str) -> str:
    """What a play of ours says that stops, as every play does here."""
    said = run(hosts, ANSIBLE / playbook, *words)
    assert not said.startswith("status 0"), said
    assert re.search("changed=[1-9]", said) is None, said
    return said


def judged(folder: Path, tasks: str, found: Hosts, **variables: Any) -> str:
    """What a file of tasks says on hosts on which that was found, where it touches none."""
    task = {"name": "Judge it", "ansible.builtin.include_tasks": str(ANSIBLE / tasks)}
    return played(folder, task, found, variables)


def told(folder: Path, text: str, **variables: Any) -> str:
    """What the plays would say by one of the variables that they share."""
    return played(folder, {"name": "Tell", "ansible.builtin.debug": {"msg": text}}, {"m1": {}}, variables)


def rendered(hosts: Path, role: str, **expressions: str) -> dict[str, str]:
    """What these are on the monitoring host, in a role whose defaults, variables and templates are the real
    ones, and whose tasks only write that here."""
    root = Path(tempfile.mkdtemp(dir=hosts.parent))
    roles = root / "ansible/roles"
    roles.mkdir(parents=True)
    for name in ("alerts", "dashboards"):
        (root / name).symlink_to(ANSIBLE.parent / name)
    for path in (ANSIBLE / "roles").iterdir():
        (roles / path.name).symlink_to(path)
    (roles / role).unlink()
    (roles / role / "tasks").mkdir(parents=True)
    for part in ("defaults", "vars", "templates"):
        (roles / role / part).symlink_to(ANSIBLE / "roles" / role / part)
    write = {"content": "{{ item.value }}", "dest": str(root / "{{ item.key }}"), "mode": "0600"}
    task = {"name": "Write it", "ansible.builtin.copy": write, "loop": "{{ wanted | dict2items }}"}
    here = {"delegate_to": "localhost", "vars": {"wanted": expressions}}
    (roles / role / "tasks/main.yml").write_text(yaml.safe_dump([task | here]))
    play = {"name": "A test", "hosts": "mon1", "gather_facts": False, "roles": [role]}
    (root / "play.yml").write_text(yaml.safe_dump([play]))
    said = run(hosts, root / "play.yml", ANSIBLE_ROLES_PATH=str(roles))
    assert said.startswith("status 0"), said
    return {name: (root / name).read_text() for name in expressions}


def played(folder: Path, task: Mapping[str, Any], found: Hosts, variables: Mapping[str, Any]) -> str:
    play = {
        "name": "A test",
        "hosts": ",".join(found),
        "gather_facts": False,
        "vars": dict(variables),
        "vars_files": [str(ANSIBLE / "group_vars/all.yml")],
        "tasks": [task],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    groups = [{name: {**host, **found.get(name, {})} for name, host in of.items()} for of in (MASTERS, APPS)]
    return run(inventory(folder, *groups), folder / "play.yml")
