"""What all roles have in common: specifications that agree with the defaults, and a README of both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lab.lab import REPOSITORY
from tests.lab.tasks import read, tasks_of

NOTED = r"template_vars=\{'note': '([a-z-]+)'|lockd_started_with_note: ([a-z-]+)"
# A variable that may be missing; not `host.name` and not `map('first') | first | default`.
TAKEN = re.compile(r"(?<![.\w])(?!(?:first|last)\b)([a-z_]\w*) \| default\(")
ROLES = sorted(path for path in (REPOSITORY / "ansible/roles").iterdir() if path.is_dir())


@pytest.fixture(params=ROLES, ids=lambda path: path.name)
def role(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_specification_and_defaults_name_the_same_variables(role: Path) -> None:
    options = read(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = read(role / "defaults/main.yml")
    assert set(defaults) <= set(options)
    of_who_uses_it = set(options) - set(defaults)
    assert [name for name in of_who_uses_it if not options[name].get("required")] == []


def test_a_default_in_the_specification_is_the_one_that_counts(role: Path) -> None:
    options = read(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = read(role / "defaults/main.yml")
    said = {name: option["default"] for name, option in options.items() if "default" in option}
    # A default that is computed can't be said there.
    computed = {name for name in said if isinstance(defaults[name], str) and "{{" in defaults[name]}
    assert {name: value for name, value in said.items() if name not in computed} == {
        name: defaults[name] for name in said if name not in computed
    }


def test_variables_carry_the_name_of_their_role(role: Path) -> None:
    prefix = "lockd_" if role.name == "lockd" else f"lockd_{role.name}_"
    assert [name for name in read(role / "defaults/main.yml") if not name.startswith(prefix)] == []


def test_what_a_role_takes_from_outside_carries_the_name_of_lockd(role: Path) -> None:
    """A variable of somebody else's could otherwise switch off what a role checks."""
    files = [path for path in role.rglob("*") if path.suffix in (".yml", ".j2")]
    taken = {name for path in files for name in TAKEN.findall(path.read_text())}
    of_others = {"ansible_host", "revoke_agent"}  # Ansible's; what revoke_agent.yml was called with
    assert [name for name in sorted(taken - of_others) if not name.startswith("lockd_")] == []


def test_main_is_a_list_of_tagged_steps(role: Path) -> None:
    steps = read(role / "tasks/main.yml")
    if role.name not in ("inventory_check", "cluster_secrets"):  # on the controller, always and whole
        assert [step["name"] for step in steps if role.name not in step.get("tags", [])] == []
    assert len(steps) <= 6


def test_the_readme_tells_of_the_variables_that_matter(role: Path) -> None:
    text = (role / "README.md").read_text()
    assert text.startswith(f"# {role.name}\n")
    assert "| variable | default | meaning |" in text or role.name == "inventory_check"


def test_what_units_note_is_what_plays_compare_and_what_is_removed_at_the_end() -> None:
    ansible = REPOSITORY / "ansible"
    noted = [
        (path.parents[1], note)
        for path in (*ansible.glob("roles/*/templates/*.j2"), *ansible.glob("roles/*/tasks/configure.yml"))
        for note in map("".join, re.findall(NOTED, path.read_text()))
    ]
    assert len(noted) == 8
    removing = (ansible / "remove_cluster.yml", *ansible.glob("tasks/remove_*.yml"))
    removed = "".join(path.read_text() for path in removing)
    for role, note in noted:
        compared = (path for path in role.glob("tasks/*.yml") if path.name != "configure.yml")
        tasks = "".join(path.read_text() for path in compared)
        assert f"lockd_started_with_note: {note}\n" in tasks
        assert f"- /run/{note}.started-with\n" in removed


def test_no_play_reads_to_the_end_what_a_master_or_an_agent_may_have_planted() -> None:
    """A file of a terabyte, or a FIFO, where root only wants to know whether something is there."""
    looked = 0
    for path in (REPOSITORY / "ansible").rglob("*.yml"):
        for task in tasks_of(read(path)):
            text = str(task)
            theirs = "/var/lib/lockd-master" in text or "/run/lockd/" in text
            if theirs and "ansible.builtin.stat" in task:
                looked += 1
                assert task["ansible.builtin.stat"].get("get_checksum") is False, task["name"]
            if theirs and "tasks" not in task and "block" not in task:
                for module in ("slurp", "fetch", "copy", "template", "lineinfile"):
                    assert f"ansible.builtin.{module}" not in task, task["name"]
                assert "sha256sum" not in text, task["name"]
    assert looked == 2


def test_nothing_is_done_as_root_on_the_controller() -> None:
    """Where the inventory says `ansible_become: true` for all, the secrets would be root's."""
    there = [
        task
        for path in (REPOSITORY / "ansible").rglob("*.yml")
        for item in tasks_of(read(path))
        for task in (item, *(role for role in item.get("roles", []) if isinstance(role, dict)))
        if task.get("delegate_to") == "localhost"
    ]
    assert len(there) > 10
    assert [task for task in there if task.get("become") is not False] == []


@pytest.mark.parametrize(
    ("role", "file"), [("prometheus", "prometheus.yml"), ("alertmanager", "alertmanager.yml")]
)
def test_a_configuration_that_may_have_passwords_is_shown_to_nobody_else(role: str, file: str) -> None:
    tasks = read(REPOSITORY / f"ansible/roles/{role}/tasks/configure.yml")
    written = [one for task in tasks for one in task.get("lockd_files", {}).get("files", [])]
    (it,) = (one for one in written if one["path"] == f"/etc/prometheus/{file}")
    assert (it["group"], it["mode"]) == ("prometheus", "0640")
    assert it["secret"] == "{{ not lockd_show_secrets | default(false) | bool }}"
