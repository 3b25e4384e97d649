"""Before a cluster is formed or a master admitted, its masters are looked at again."""

import asyncio
from unittest.mock import Mock

from lockd.core.membership import State
from lockd.masters.changes import look_again
from lockd.masters.fleet import Fleet
from tests.harness.real_fleet import a_fleet


def blank_fleet(connect_ms: int) -> Fleet:
    fleet = a_fleet(timeouts={"connect_ms": connect_ms})
    for link in fleet.links:
        link.state = State.BLANK
        link.inspect_now = Mock(side_effect=lambda: asyncio.sleep(0))  # type: ignore[method-assign]
    return fleet


async def test_blank_masters_whose_scripts_are_being_loaded_are_waited_for() -> None:
    """An operator forms a cluster right after its agents were started."""
    fleet = blank_fleet(connect_ms=60_000)
    looks = asyncio.create_task(look_again(fleet))
    for link in fleet.links:
        await asyncio.sleep(0)
        assert not looks.done()
        link.introduced = True
    await looks
    assert all(link.inspect_now.called for link in fleet.links)  # type: ignore[attr-defined]


async def test_one_whose_scripts_never_come_is_waited_for_as_long_as_for_a_connection() -> None:
    fleet = blank_fleet(connect_ms=10)
    fleet.links[0].introduced = True
    await look_again(fleet)
    assert [link.inspect_now.called for link in fleet.links] == [True, False, False]  # type: ignore[attr-defined]
