"""A socket of the agent with the doors behind it: who comes before they open waits in the kernel. While the
agent runs, its file is looked after."""

import socket
from collections.abc import Callable

from lockd.server.doors import AT_A_TURN, Doors
from lockd.server.log import EventLog
from lockd.server.unix_socket import CannotServe, UnixSocket
from lockd.transport import Hearer


class Entrance:
    """hearer: makes what a connection is heard by."""

    def __init__(
        self, at: UnixSocket, hearer: Callable[[], Hearer], log: EventLog, at_a_turn: int = AT_A_TURN
    ) -> None:
        self._at = at
        self._hearer = hearer
        self._log = log
        self._at_a_turn = at_a_turn
        self._listening: socket.socket | None = None
        self._doors: Doors | None = None
        self._trouble = ""
        """What the log has."""

    @property
    def is_open(self) -> bool:
        return self._doors is not None

    def trouble(self) -> str:
        """Why nobody new gets in; '' if its file leads here. From any thread."""
        return self._at.trouble()

    def make(self) -> None:
        """From now on they may come. Raises CannotServe."""
        self._listening = self._at.make_first()

    async def open(self) -> None:
        assert self._listening is not None
        self._doors = await self._open(self._listening)

    async def _open(self, listening: socket.socket) -> Doors:
        return await Doors.open(self._hearer, listening, self._at_a_turn)

    async def look_after(self) -> None:
        """Make sure that the file is there. Who is connected goes on in any case."""
        if self._doors is None:
            return
        trouble = self._at.trouble()
        if trouble and self._at.is_gone:
            try:
                await self._make_again(self._doors)
                trouble = ""
            except (OSError, CannotServe) as failure:
                trouble = str(failure)
        if trouble and trouble != self._trouble:
            self._log.error("socket_trouble", why=trouble)
        self._trouble = trouble

    async def _make_again(self, before: Doors) -> None:
        listening = self._at.make()
        try:
            self._doors = await self._open(listening)
        except BaseException:
            # Who found the file would wait for an agent that never accepts.
            self._at.remove()
            listening.close()
            raise
        before.close()
        self._log.warning("socket_made_again", socket=self._at.path)

    def close(self) -> None:
        """Nobody new is let in. The file stays for a moment."""
        if self._doors is not None:
            self._doors.close()

    def remove(self) -> None:
        self._at.remove()
