"""The connection of `lockctl run` to the agent."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import hiredis

from lockd.client import in_line
from lockd.lockctl.errors import Refused, Unreachable

ANSWER_WITHIN_S = 5.0


class JobConnection:
    """A connection to the agent: replies are waited for, pushes are kept until they are read."""

    _NOTHING: Any = object()

    def __init__(self, path: str, within_s: float = ANSWER_WITHIN_S) -> None:
        """Connects. within_s: 0 if there is no time to wait. Raises Unreachable."""
        self.open = True
        self._path = path
        self._reader: Any = hiredis.Reader(notEnoughData=self._NOTHING)
        self._pushes: list[list[Any]] = []
        self._asked = ""
        try:
            self._socket = in_line.connected(path, within_s)
        except OSError as error:
            raise Unreachable(f"can't connect to {path}: {_reason(error)}") from error

    def anew(self) -> JobConnection:
        """Another one to the agent that is there now, without waiting. Raises Unreachable."""
        return JobConnection(self._path, within_s=0)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self.open = False
        self._socket.close()

    def send(self, *commands: list[bytes], within_s: float = ANSWER_WITHIN_S) -> None:
        """Send commands, all at once. Raises Unreachable."""
        self._asked = commands[-1][0].decode()
        self._socket.settimeout(within_s)
        try:
            self._socket.sendall(b"".join(map(_packed, commands)))
        except OSError as error:
            self.open = False
            raise Unreachable(f"the connection to the agent broke: {_reason(error)}") from error

    def reply(self, within_s: float) -> Any:
        """The next reply. Raises Refused when it is an error, Unreachable when it doesn't come."""
        self._socket.settimeout(within_s)
        while (answer := self._next()) is self._NOTHING:
            self._receive()
        if isinstance(answer, hiredis.ReplyError):
            raise Refused.by(str(answer), self._asked)
        return answer

    def replies(self, number: int, within_s: float) -> None:
        """This many replies, none of them an error. Raises as `reply` does, once all have come; of several
        errors, the last."""
        refused: Refused | None = None
        for _ in range(number):
            try:
                self.reply(within_s)
            except Refused as one:
                refused = one
        if refused is not None:
            raise refused

    def arrived(self) -> tuple[list[list[Any]], list[Any]]:
        """The pushes and replies that have arrived since the last time, without waiting. `open` is False once
        the agent has closed."""
        with suppress(Unreachable):
            while self.open:
                self._socket.setblocking(False)
                self._receive()
        replies = []
        while (reply := self._next()) is not self._NOTHING:
            replies.append(reply)
        pushes, self._pushes = self._pushes, []
        return pushes, replies

    def forget_pushes(self) -> None:
        """Drop the pushes that came before the reply that was read last; later ones stay. Those before the
        reply to a LOCK are about an earlier lease of its token: an agent that is gone had granted it, and
        nobody was told of it."""
        self._pushes.clear()

    def _next(self) -> Any:
        """The next reply that has arrived, or _NOTHING."""
        while isinstance(message := self._reader.gets(), hiredis.PushNotification):
            self._pushes.append(message)
        return message

    def _receive(self) -> None:
        try:
            data = self._socket.recv(65_536)
        except (BlockingIOError, TimeoutError) as error:
            raise Unreachable("the agent doesn't answer") from error
        except OSError as error:
            self.open = False
            raise Unreachable(f"the connection to the agent broke: {_reason(error)}") from error
        if not data:
            self.open = False
            raise Unreachable("the agent closed the connection: it was stopped or killed")
        self._reader.feed(data)


def _packed(words: list[bytes]) -> bytes:
    packed: bytes = hiredis.pack_command(tuple(words))  # type: ignore[arg-type]  # its stub says one word
    return packed


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
