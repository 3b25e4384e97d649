"""Whatever tags are asked for or left out: what a task goes by has been looked at by one that runs too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.lab import REPOSITORY

ANSIBLE = REPOSITORY / "ansible"
SITE = ANSIBLE / "site.yml"
Mapping = dict[str, Any]
BUILTIN = "ansible.builtin."
IN_A_BLOCK = ("block", "rescue", "always")


@dataclass(frozen=True)
class Task:
    """One task of a play. tags: its own, and those of each task that it was included by. notes: the names
    that it leaves to others. goes_by: those that it can't do without, what its blocks say among them."""

    where: str
    tags: tuple[frozenset[str], ...]
    notes: frozenset[str]
    goes_by: frozenset[str]

    def runs(self, wanted: Sequence[str], unwanted: Sequence[str]) -> bool:
        if any(tags & set(unwanted) for tags in self.tags):
            return False
        return not wanted or all(tags & {"always", *wanted} for tags in self.tags)


def noted_by(task: Mapping) -> set[str]:
    facts = task.get(f"{BUILTIN}set_fact", {})
    return {name for name in (task.get("register"), *facts) if name}


def in_all_files() -> set[str]:
    files = [*ANSIBLE.glob("tasks/*.yml"), *ANSIBLE.glob("roles/*/tasks/*.yml")]
    return {
        name for path in files for task in flat(yaml.safe_load(path.read_text())) for name in noted_by(task)
    }


def flat(tasks: Sequence[Mapping]) -> Iterator[Mapping]:
    for task in tasks:
        yield task
        for part in IN_A_BLOCK:
            yield from flat(task.get(part) or ())


# Where a host is the inventory says; move_master.yml says it anew.
OF_THE_INVENTORY = {"ansible_host", "lockd_master_address"}
NOTED = in_all_files() - OF_THE_INVENTORY
NAME = re.compile(
    r"\b(" + "|".join(sorted(NOTED, key=len, reverse=True)) + r")\b(?![\w.]* *\| *default| is (un)?defined)"
)


def names_in(*said: Any) -> set[str]:
    return {found.group(1) for one in said for found in NAME.finditer(yaml.safe_dump(one, width=10**6))}


@dataclass(frozen=True)
class Around:
    """What is around a task: where its files are, and what it has from there."""

    folder: Path
    tags: frozenset[str] = frozenset()
    conditions: tuple[Any, ...] = ()
    includes: tuple[frozenset[str], ...] = ()

    def within(self, task: Mapping, *, reached: bool = False) -> Around:
        """reached: what it includes is looked for when it is reached, and does not get its tags."""
        tags = self.tags | tags_of(task)
        conditions = (*self.conditions, task.get("when", True))
        if reached:
            return Around(self.folder, self.tags, conditions, (*self.includes, tags))
        return Around(self.folder, tags, conditions, self.includes)

    def at(self, folder: Path) -> Around:
        return replace(self, folder=folder)

    def task(self, where: str, tags: frozenset[str], notes: set[str], goes_by: set[str]) -> Task:
        return Task(where, (*self.includes, tags), frozenset(notes), frozenset(goes_by))


def tags_of(task: Mapping) -> frozenset[str]:
    tags = task.get("tags", [])
    return frozenset([tags] if isinstance(tags, str) else tags)


def tasks_in(tasks: Sequence[Mapping], around: Around) -> Iterator[Task]:
    for task in tasks:
        if any(part in task for part in IN_A_BLOCK):
            for part in IN_A_BLOCK:
                yield from tasks_in(task.get(part) or (), around.within(task))
            continue
        yield one_task(task, around)
        for kind in ("import", "include"):
            yield from included(task, kind, around)


def one_task(task: Mapping, around: Around) -> Task:
    said = {key: value for key, value in task.items() if key not in ("register", "name", "tags")}
    own = noted_by(task)
    goes_by = names_in(said, template_of(task, around.folder), *around.conditions) - own
    return around.task(f"{around.folder.name}: {task['name']}", around.tags | tags_of(task), own, goes_by)


def template_of(task: Mapping, folder: Path) -> str:
    source = task.get(f"{BUILTIN}template", {}).get("src", "{{")
    return "" if "{{" in source else (folder.parent / "templates" / source).read_text()


def included(task: Mapping, kind: str, around: Around) -> Iterator[Task]:
    """The tasks of another file, or of a role."""
    inner = around.within(task, reached=kind == "include")
    if file := task.get(f"{BUILTIN}{kind}_tasks"):
        path = around.folder / file
        yield from tasks_in(read(path), inner.at(path.parent))
    if role := task.get(f"{BUILTIN}{kind}_role"):
        yield from role_tasks(role["name"], role.get("tasks_from", "main"), inner)


def role_tasks(name: str, tasks_from: str, around: Around) -> Iterator[Task]:
    folder = ANSIBLE / "roles" / name / "tasks"
    if not folder.exists():
        # Of a collection.
        return
    # Its arguments are checked whatever the tags are, if the conditions around it say so.
    yield around.task(f"{name}: its arguments", frozenset({"always"}), set(), names_in(*around.conditions))
    yield from tasks_in(read(folder / f"{tasks_from}.yml"), around.at(folder))


def read(path: Path) -> list[Mapping]:
    found: list[Mapping] = yaml.safe_load(path.read_text())
    return found


def all_tasks() -> list[Task]:
    """As site.yml has them, in its order."""
    found: list[Task] = []
    for play in read(SITE):
        around = Around(ANSIBLE, tags_of(play))
        for one in play.get("roles", []):
            found += role_tasks(one["role"], "main", around.within(one))
        for part in ("tasks", "post_tasks"):
            found += tasks_in(play.get(part, []), around)
    return found


TASKS = all_tasks()
TAGS = sorted({tag for task in TASKS for tags in task.tags for tag in tags} - {"always"})


def missed(wanted: Sequence[str], unwanted: Sequence[str]) -> list[str]:
    """Each task that goes by what nobody has noted before it."""
    known: set[str] = set()
    wrong = []
    for task in TASKS:
        if task.runs(wanted, unwanted):
            wrong += [f"{task.where} goes by {name}" for name in sorted(task.goes_by - known)]
            known |= task.notes
    return wrong


def test_all_tasks_of_the_site_are_looked_at_here() -> None:
    assert len(TASKS) > 200
    assert {"lockd_current", "lockd_redis_master_version", "lockd_prometheus_written"} <= NOTED
    assert {"configure", "lockd", "run", "monitoring"} <= set(TAGS)
    assert missed([], []) == []


@pytest.mark.parametrize("tag", TAGS)
def test_a_tag_alone_has_all_that_its_tasks_go_by(tag: str) -> None:
    assert missed([tag], []) == []


@pytest.mark.parametrize("tag", TAGS)
def test_what_is_left_without_a_tag_has_all_that_it_goes_by(tag: str) -> None:
    assert missed([], [tag]) == []
