"""How much memory the agent may have, by its control group, and how much it uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from lockd.config.current import Current
from lockd.server.memory import MemoryWatch, memory_limit, resident_bytes
from lockd.server.quotas import Quotas, Room
from tests.harness.configs import a_config

MIB = 1 << 20


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    """All of the host, and in it the group of a service."""
    (tmp_path / "cgroups" / "system.slice" / "lockd.service").mkdir(parents=True)
    return tmp_path / "cgroups"


def limit_in(root: Path, path: str = "/system.slice/lockd.service", **limits: str) -> int | None:
    """limits: what `memory.max` says in each group, by its name."""
    for folder in (root, *root.rglob("*")):
        name = folder.name.removesuffix(".service").removesuffix(".slice")
        if name in limits:
            (folder / "memory.max").write_text(limits[name] + "\n")
    own = root.parent / "own"
    own.write_text(f"0::{path}\n")
    return memory_limit(root, own)


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({"lockd": str(1_750 * MIB)}, 1_750 * MIB),
        ({"lockd": "max"}, None),
        ({}, None),
        ({"lockd": str(1_750 * MIB), "system": str(512 * MIB)}, 512 * MIB),
        ({"lockd": str(256 * MIB), "system": str(512 * MIB)}, 256 * MIB),
        ({"lockd": "max", "system": str(512 * MIB)}, 512 * MIB),
        ({"lockd": "max", "cgroups": str(2_048 * MIB)}, 2_048 * MIB),
        ({"lockd": ""}, None),
    ],
)
def test_the_least_of_its_group_and_those_above_holds(
    cgroups: Path, limits: dict[str, str], limit: int | None
) -> None:
    assert limit_in(cgroups, **limits) == limit


def test_in_a_container_the_group_that_it_sees_is_its_own(cgroups: Path) -> None:
    assert limit_in(cgroups, "/", cgroups=str(512 * MIB)) == 512 * MIB


def test_a_group_outside_of_what_it_sees_says_nothing(cgroups: Path) -> None:
    """Its own is below another one's, as /proc says it in a namespace of control groups."""
    assert limit_in(cgroups, "/../elsewhere", cgroups=str(512 * MIB)) == 512 * MIB


@pytest.mark.parametrize("text", ["", "12:memory:/old\n1:name=systemd:/old\n", None])
def test_where_there_are_no_such_groups_no_limit_is_known(cgroups: Path, text: str | None) -> None:
    own = cgroups.parent / "own"
    if text is not None:
        own.write_text(text)
    assert memory_limit(cgroups, own) is None


def test_of_more_groups_than_one_it_is_the_one_of_today_that_counts(cgroups: Path) -> None:
    limit_in(cgroups, lockd=str(512 * MIB))
    own = cgroups.parent / "own"
    own.write_text("12:cpu:/elsewhere\n0::/system.slice/lockd.service\n")
    assert memory_limit(cgroups, own) == 512 * MIB


# What is used


class ALog:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def error(self, event: str, **_about: object) -> None:
        self.lines.append(event)

    always = error


class Watched:
    """An agent's memory: what it uses is said by the test."""

    def __init__(self, **limits: int) -> None:
        self.quotas = Quotas(Current(a_config(limits=limits)), Room(1_792 * MIB))
        self.log = ALog()
        self.used_mib = 60
        self.limit: int | None = 1_792 * MIB
        self.watch = MemoryWatch(
            self.quotas, cast("Any", self.log), lambda: self.used_mib * MIB, lambda: self.limit
        )

    def uses(self, mib: int) -> bool:
        """Whether accounts get more than their floors then."""
        self.used_mib = mib
        self.watch.look()
        return self.quotas.bytes.refusal("one", self.quotas.bytes.floor + 1) is None


def test_when_more_is_used_than_was_counted_accounts_get_no_more_than_their_floors_and_the_log_says_so() -> (
    None
):
    agent = Watched()
    assert agent.uses(60)
    assert not agent.uses(100)
    assert not agent.uses(2_000)
    assert agent.quotas.bytes.refusal("one", agent.quotas.bytes.floor) is None
    assert not agent.uses(90), "it does not come and go"
    assert agent.log.lines == ["memory_uncounted"]
    assert agent.uses(70)
    assert agent.uses(60)
    assert agent.log.lines == ["memory_uncounted", "memory_counted_again"]


def test_what_was_counted_may_be_used_and_may_stay_when_it_is_given_back() -> None:
    """An allocator keeps what is freed in pieces."""
    agent = Watched()
    agent.quotas.bytes.take("one", 200 * MIB)
    agent.quotas.bytes.give_back("one", 200 * MIB)
    assert agent.uses(60 + 200)
    assert agent.uses(60 + 270)
    assert not agent.uses(60 + 290)


def test_a_unit_that_gets_another_limit_while_it_runs_has_that() -> None:
    agent = Watched()
    agent.limit = 512 * MIB
    looks = 0
    while agent.quotas.bytes.total != 320 * MIB:
        agent.watch.look()
        looks += 1
        assert looks <= 40
    agent.limit = None
    for _ in range(40):
        agent.watch.look()
    assert agent.quotas.bytes.total == 1_280 * MIB


def test_what_this_process_uses_is_seen() -> None:
    before = resident_bytes()
    much = bytearray(b"x") * (64 * MIB)
    assert resident_bytes() - before > 48 * MIB
    assert len(much) == 64 * MIB
