"""What all playbooks have in common, seen without any host."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest
import yaml

from tests.lab.lab import REPOSITORY

ANSIBLE = REPOSITORY / "ansible"
PLAYBOOKS = sorted(ANSIBLE.glob("*.yml"))
TASKS = [*PLAYBOOKS, *ANSIBLE.glob("tasks/*.yml"), *ANSIBLE.glob("roles/*/tasks/*.yml")]
DAY2 = (
    "rolling_restart", "rotate_passwords", "rotate_ca", "change_max_ttl",
    "replace_master", "upgrade_redis", "upgrade_lockd",
)  # fmt: skip
PREFLIGHT = {"ansible.builtin.import_tasks": "tasks/preflight_day2.yml"}


def lines_with(word: str) -> list[str]:
    return [
        f"{path.relative_to(ANSIBLE)}: {line.strip()}"
        for path in TASKS
        for line in path.read_text().splitlines()
        if word in line
    ]


def test_no_play_is_of_the_controller_alone_as_a_limit_would_skip_it() -> None:
    plays: list[dict[str, Any]] = [one for path in PLAYBOOKS for one in yaml.safe_load(path.read_text())]
    assert len(plays) > 20
    assert [one["name"] for one in plays if one.get("hosts") == "localhost"] == []


def test_every_playbook_begins_with_masters_and_app_hosts_as_a_limit_would_skip_all_of_it() -> None:
    """One that is for one kind of host only ends with success where --limit names a host of the other."""
    for path in PLAYBOOKS:
        first = yaml.safe_load(path.read_text())[0]["hosts"].split(":")
        assert first == ["all"] or {"lock_masters", "lock_apps"} <= set(first), path.name


def test_a_rotation_that_is_over_on_the_controller_says_that_site_yml_is_left() -> None:
    """Run again, rotate_ca.yml would introduce a third authority."""
    text = (ANSIBLE / "rotate_ca.yml").read_text()
    *_, removes, last = yaml.safe_load(text)
    assert removes["tasks"][0]["vars"]["lockd_cluster_secrets_rotate"] == "forget"
    assert "{{ lockd_play }} site.yml" in removes["tasks"][-1]["ansible.builtin.debug"]["msg"]
    assert last["ansible.builtin.import_playbook"] == "site.yml"
    assert "interrupted in the last site.yml, run site.yml instead" in text


def test_every_play_of_day_2_looks_at_all_of_the_cluster_before_anything_else() -> None:
    """What is found then, and that nothing was changed: test_prechecks.py."""
    for name in DAY2:
        first = yaml.safe_load((ANSIBLE / f"{name}.yml").read_text())[0]
        assert (first["hosts"], first["any_errors_fatal"]) == ("lock_masters:lock_apps", True), name
        tasks = first["tasks"]
        look = next(n for n, task in enumerate(tasks) if PREFLIGHT.items() <= task.items())
        assert all(only_looks(task) for task in tasks[:look]), name


def only_looks(task: dict[str, Any]) -> bool:
    if of_others := task.get("ansible.builtin.import_tasks"):
        return all(only_looks(one) for one in yaml.safe_load((ANSIBLE / of_others).read_text()))
    return bool({"ansible.builtin.assert", "ansible.builtin.stat"} & task.keys())


def test_secrets_are_shown_only_to_who_says_true() -> None:
    lines = lines_with("lockd_show_secrets")
    assert len(lines) > 5
    assert [one for one in lines if "not lockd_show_secrets | default(false) | bool" not in one] == []


def test_no_secret_is_in_the_environment_of_a_task_as_sudo_logs_that() -> None:
    assert [one for one in lines_with("environment:") if re.search("password|secret|auth", one, re.I)] == []


def blocks_with_rescue(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [one for one in tasks if "rescue" in one]
    return found + [inner for one in tasks for inner in blocks_with_rescue(one.get("block", []))]


def test_a_host_that_fails_sends_no_other_of_its_batch_into_the_rescue() -> None:
    """Where any error is fatal, all hosts of the batch enter it: 124 agents that run well would be
    stopped and put back for one that does not."""
    blocks = [
        one
        for path in ANSIBLE.glob("tasks/*.yml")
        for one in blocks_with_rescue(yaml.safe_load(path.read_text()))
    ]
    assert blocks
    assert [one["name"] for one in blocks if one.get("any_errors_fatal") is not False] == []


def test_a_master_that_moves_is_retired_only_after_a_look_at_its_new_host() -> None:
    plays = [one["name"] for one in yaml.safe_load((ANSIBLE / "move_master.yml").read_text())]
    looks, retires = "Check the new host before the old one is retired", "Retire the old master"
    assert plays.index(looks) < plays.index(retires) < plays.index("Install the new master, blank")


def test_no_play_says_where_a_host_is_by_what_host_vars_would_overrule() -> None:
    """add_host's variables count less than host_vars/NAME.yml."""
    found = re.compile(r"add_host:\n(?: +(?:name|groups):.*\n)* +\w*(?:ansible_host|address):")
    assert [path.name for path in TASKS if found.search(path.read_text())] == []


def test_what_a_hint_says_can_be_pasted_where_the_plays_are_a_collection() -> None:
    rewritten = runpy.run_path(str(REPOSITORY / "packaging" / "collection.py"))["rewritten"]
    hints = [path.read_text() for path in (*TASKS, ANSIBLE / "group_vars" / "all.yml")]
    hint = re.compile(r"lockd_play(?: }}| *\n? *~ ') [\w.]+")
    found = [one for text in hints for one in hint.findall(text)]
    assert len(found) > 3
    assert [one for text in hints for one in hint.findall(rewritten(text)) if one.endswith(".yml")] == []


def test_a_play_of_day_2_asks_a_few_before_it_asks_all() -> None:
    """Each of 500 agents would wait for a master that is down, and each host for a time server."""
    tasks = yaml.safe_load((ANSIBLE / "tasks/preflight_day2.yml").read_text())
    asked = [one for one in tasks if one.get("ansible.builtin.import_tasks", "").endswith("_well.yml")]
    assert [(one["ansible.builtin.import_tasks"], one.get("run_once")) for one in asked] == [
        ("witnesses_well.yml", True),
        ("every_agent_well.yml", None),
    ]
    clocks = [one for one in tasks if one.get("ansible.builtin.import_role", {}).get("name") == "time_sync"]
    assert [one.get("run_once") for one in clocks] == [True, None]


@pytest.mark.parametrize("name", ["add_apps", "remove_app"])
def test_app_hosts_that_come_or_go_are_those_that_are_named(name: str) -> None:
    """The monitoring host is present in these plays too, and may be an app host that is neither."""
    plays = yaml.safe_load((ANSIBLE / f"{name}.yml").read_text())
    assert [one["name"] for one in plays if "lock_apps" in str(one["hosts"])] == []
