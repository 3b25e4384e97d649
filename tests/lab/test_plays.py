"""What all playbooks have in common, seen without any host."""

from __future__ import annotations

import re
from typing import Any

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


def test_every_play_of_day_2_looks_at_all_of_the_cluster_before_anything_else() -> None:
    """What is found then, and that nothing was changed: test_prechecks.py."""
    only_looks = {"ansible.builtin.assert", "ansible.builtin.stat"}
    for name in DAY2:
        first = yaml.safe_load((ANSIBLE / f"{name}.yml").read_text())[0]
        assert (first["hosts"], first["any_errors_fatal"]) == ("lock_masters:lock_apps", True), name
        tasks = first["tasks"]
        look = next(n for n, task in enumerate(tasks) if PREFLIGHT.items() <= task.items())
        assert all(only_looks & task.keys() for task in tasks[:look]), name


def test_secrets_are_shown_only_to_who_says_true() -> None:
    lines = lines_with("lockd_show_secrets")
    assert len(lines) > 5
    assert [one for one in lines if "not lockd_show_secrets | default(false) | bool" not in one] == []


def test_no_secret_is_in_the_environment_of_a_task_as_sudo_logs_that() -> None:
    assert [one for one in lines_with("environment:") if re.search("password|secret|auth", one, re.I)] == []
