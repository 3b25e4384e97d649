"""How much memory the agent may have: what its control group says."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockd.server.memory import memory_limit

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
