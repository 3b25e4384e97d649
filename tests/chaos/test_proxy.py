"""The proxy of campaigns is part of their proof: it cuts, delays and reorders as it says. (No campaign is
needed for that: these are in `make test`.)"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from lockd.clock import boottime_ns
from lockd.dev.processes import LOOPBACK
from tests.chaos.hosts import until
from tests.chaos.proxy import Line, Way
from tests.chaos.wire import Connection, Disconnected
from tests.harness.masters import running_masters
from tests.harness.waiting import PATIENCE_S


def through_a_line(folder: Path, binary: Path, script: Callable[[Line, int], Awaitable[None]]) -> None:
    """A line to one master; the script gets it, and the master's own port."""

    async def play(port: int) -> None:
        line = Line(lambda: port)
        await line.listen()
        try:
            await script(line, port)
        finally:
            line.close()

    with running_masters(folder, 1, binary) as [master]:
        uvloop.run(play(master.port))


@pytest.mark.parametrize("way", Way)
def test_what_waits_on_a_cut_line_arrives_later_and_in_its_order(
    way: Way, folder: Path, server_binary: Path
) -> None:
    async def cut(line: Line, port: int) -> None:
        connection, direct = await Connection.to_port(LOOPBACK, line.port), await straight(port)
        await connection.ask("PING")
        line.hold((way,))
        asked = [asyncio.ensure_future(connection.ask("RPUSH", "list", n)) for n in range(100)]
        [passage] = line.passages
        flow = passage.there if way is Way.THERE else passage.back
        await until(lambda: flow.waiting > 0, "something waits in the line")
        arrived = (await direct.ask("LLEN", "list")).value
        assert arrived == 0 if way is Way.THERE else arrived > 0
        assert not any(one.done() for one in asked)
        line.heal()
        assert [(await one).value for one in asked] == list(range(1, 101))

    through_a_line(folder, server_binary, cut)


def test_data_of_an_old_connection_can_arrive_after_that_of_a_new_one(
    folder: Path, server_binary: Path
) -> None:
    async def late(line: Line, port: int) -> None:
        old = await Connection.to_port(LOOPBACK, line.port)
        await old.ask("SET", "key", "first")
        [passage] = line.hold_connections()
        asking = asyncio.ensure_future(old.ask("SET", "key", "old"))
        await until(lambda: passage.there.waiting > 0, "it waits in the line")
        passage.let_agent_go()
        with pytest.raises(Disconnected):
            await asking
        new, direct = await Connection.to_port(LOOPBACK, line.port), await straight(port)
        assert (await new.ask("SET", "key", "new", "GET")).value == b"first"
        passage.let_go_on()
        await passage.master_end.ended
        assert (await direct.ask("GET", "key")).value == b"old"

    through_a_line(folder, server_binary, late)


def test_a_slow_line_is_slow_and_a_reset_one_ends(folder: Path, server_binary: Path) -> None:
    async def slow(line: Line, port: int) -> None:
        connection = await Connection.to_port(LOOPBACK, line.port)
        line.slow(Way.BACK, 0.3)
        before_ns = boottime_ns()
        answer = await connection.ask("PING")
        # The loop counts whole milliseconds, from when its turn began.
        assert answer.read_ns - before_ns >= 290_000_000
        line.reset()
        await asyncio.wait_for(connection.closed, PATIENCE_S)

    through_a_line(folder, server_binary, slow)


async def straight(port: int) -> Connection:
    return await Connection.to_port(LOOPBACK, port)
