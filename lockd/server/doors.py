"""Where connections are let in. libuv takes one connection of each file in a turn of the event loop, and all
users wait in one line. With turns of some milliseconds, hundreds of connections that one user opens at once
would keep everybody else's out for seconds. So the apps' socket is listened on by several files."""

import asyncio
import socket
from collections.abc import Callable
from typing import Self

from lockd.server.unix_socket import BACKLOG
from lockd.transport import Hearer, for_loop

AT_A_TURN = 8


class Doors:
    def __init__(self) -> None:
        self._servers: list[asyncio.AbstractServer] = []

    @classmethod
    async def open(
        cls, hearer: Callable[[], Hearer], listening: socket.socket, at_a_turn: int = AT_A_TURN
    ) -> Self:
        """They own the socket from now on; if this fails, the caller does again."""
        doors, loop = cls(), asyncio.get_running_loop()
        try:
            for file in [*(listening.dup() for _ in range(at_a_turn - 1)), listening]:
                server = await loop.create_unix_server(for_loop(hearer), sock=file, backlog=BACKLOG)
                doors._servers.append(server)
        except BaseException:
            doors.close()
            raise
        return doors

    def close(self) -> None:
        for server in self._servers:
            server.close()
