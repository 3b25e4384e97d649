"""Newcomers are let in soon, however many came before them."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import uvloop

from lockd.config.model import Socket
from lockd.server.doors import Doors
from lockd.server.unix_socket import AppSocket

APPS = 320


class Guest(asyncio.Protocol):
    let_in = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Guest.let_in += 1
        transport.close()


async def turns_until_all_are_in(path: Path) -> int:
    listening = AppSocket(Socket(path=path)).make_first()
    apps = [socket.socket(socket.AF_UNIX) for _ in range(APPS)]
    for app in apps:
        app.connect(str(path))
    doors, turns = await Doors.open(Guest, listening), 0
    while Guest.let_in < APPS:
        turns += 1
        await asyncio.sleep(0)
    doors.close()
    for app in apps:
        app.close()
    return turns


def test_many_are_let_in_at_each_turn_of_the_event_loop(tmp_path: Path) -> None:
    """One at a turn, as libuv does it, would keep newcomers of all users behind the flood of one."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(turns_until_all_are_in(tmp_path / "s")) < APPS / 2
