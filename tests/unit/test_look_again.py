"""Before a cluster is formed or a master admitted, its masters are looked at again."""

import asyncio

import pytest

from lockd.core.membership import State
from lockd.masters.changes import look_again
from lockd.masters.fleet import Fleet
from lockd.masters.link import Link
from tests.harness.real_fleet import a_fleet


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the masters that were."""
    seen: list[int] = []

    async def inspect_now(link: Link) -> None:
        seen.append(link.index)

    monkeypatch.setattr(Link, "inspect_now", inspect_now)
    return seen


def blank_fleet(connect_ms: int) -> Fleet:
    fleet = a_fleet(timeouts={"connect_ms": connect_ms})
    for link in fleet.links:
        link.state = State.BLANK
    return fleet


async def test_blank_masters_whose_scripts_are_being_loaded_are_waited_for(looked_at: list[int]) -> None:
    """An operator forms a cluster right after its agents were started."""
    fleet = blank_fleet(connect_ms=60_000)
    looks = asyncio.create_task(look_again(fleet))
    for link in fleet.links:
        await asyncio.sleep(0)
        assert not looks.done()
        link.introduced = True
    await looks
    assert looked_at == [0, 1, 2]


async def test_one_whose_scripts_never_come_is_waited_for_as_long_as_for_a_connection(
    looked_at: list[int],
) -> None:
    fleet = blank_fleet(connect_ms=10)
    fleet.links[0].introduced = True
    await look_again(fleet)
    assert looked_at == [0]
