"""remove_cluster.yml leaves no file on the monitoring host that the roles wrote there. No host is needed."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.lab import REPOSITORY
from tests.lab.tasks import read, tasks_of

ANSIBLE = REPOSITORY / "ansible"
ROLES = ("alertmanager", "grafana", "node_exporter", "prometheus", "runbooks")
REMOVAL = (ANSIBLE / "remove_cluster.yml").read_text()
VARIABLE = re.compile(r"\{\{ (\w+)(?: \| (?:dirname|default\('[^']*'\)))? }}")
# Of the masters alone, so remove_master.yml removes them.
ON_MASTERS = ("/etc/prometheus/lockd-exporter",)


def values_of(role: str) -> dict[str, Any]:
    folder = ANSIBLE / "roles" / role
    return read(folder / "defaults/main.yml") | read(folder / "vars/main.yml")


def resolved(text: str, values: dict[str, Any]) -> str:
    """A path with the roles' variables put in. What a filter does to one doesn't matter here."""
    return VARIABLE.sub(lambda found: str(values.get(found[1], found[0])), text)


def lists_of_files(part: Any) -> list[dict[str, Any]]:
    """Whatever has a path and a content, wherever it is."""
    if isinstance(part, list):
        return [found for one in part for found in lists_of_files(one)]
    if not isinstance(part, dict):
        return []
    own = [part] if {"path", "content"} <= part.keys() else []
    return own + [found for one in part.values() for found in lists_of_files(one)]


def written_by(role: str) -> set[str]:
    folder, values = ANSIBLE / "roles" / role, values_of(role)
    parts = [read(path) for path in (*folder.glob("tasks/*.yml"), folder / "vars/main.yml")]
    return {resolved(one["path"], values) for part in parts for one in lists_of_files(part)}


def folders_of(role: str) -> set[str]:
    """Folders of lockd's, which may have files whose names are made by Jinja."""
    folder, values = ANSIBLE / "roles" / role, values_of(role)
    tasks = [task for path in folder.glob("tasks/*.yml") for task in tasks_of(read(path))]
    made = [one["path"] for task in tasks for one in folders_in(task)]
    return {path for path in (resolved(one, values) for one in made) if "lockd" in path}


def folders_in(task: dict[str, Any]) -> list[dict[str, Any]]:
    folders = task.get("lockd_files", {}).get("folders", [])
    return folders if isinstance(folders, list) else []


def removed_paths() -> list[str]:
    values = {name: value for role in ROLES for name, value in values_of(role).items()}
    (removing,) = (
        task
        for play in yaml.safe_load(REMOVAL)
        for task in play["tasks"]
        if "remove_of_grafana" in task.get("vars", {})
    )
    lists = {name: value for name, value in removing["vars"].items() if name.startswith("remove_of_")}
    assert [name for name in lists if name not in removing["vars"]["remove_paths"]] == []
    paths = [resolved(path, values) for paths in lists.values() for path in paths]
    return paths + [f"/etc/systemd/system/{unit}" for unit in removing["vars"]["remove_units"]]


def is_removed(path: str) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in (*removed_paths(), *ON_MASTERS))


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_of_monitoring_writes_is_removed(role: str) -> None:
    written = written_by(role)
    assert len(written) > 1
    assert [path for path in sorted(written | folders_of(role)) if not is_removed(path)] == []


@pytest.mark.parametrize("role", ROLES)
def test_a_program_that_lockd_installed_is_stopped(role: str) -> None:
    marks = [path for path in written_by(role) if path.endswith(".service.d/lockd.conf")]
    assert marks or role == "runbooks"  # its unit is lockd's, so it is removed
    (look,) = (
        task
        for play in yaml.safe_load(REMOVAL)
        for task in play["tasks"]
        if task.get("register") == "remove_watches"
    )
    for mark in marks:
        assert Path(mark).parent.name.removesuffix(".service.d") in look["loop"]


def test_what_the_role_of_grafanas_collection_writes_is_removed() -> None:
    """With the variables that are set here it writes no others: no dashboards, LDAP or notifications."""
    spec = find_spec("ansible_collections.grafana.grafana")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("no collection of Grafana's here: make test-lab")
    tasks = Path(spec.submodule_search_locations[0], "roles/grafana/tasks")
    for name, path in (
        ("configure.yml", "/etc/grafana/grafana.ini"),
        ("datasources.yml", "/etc/grafana/provisioning/datasources/ansible.yml"),
    ):
        assert f'dest: "{path}"' in (tasks / name).read_text()
        assert is_removed(path)
