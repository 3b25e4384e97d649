"""One connection that speaks RESP: an app's to its agent, and the campaign's own to the masters. Whatever is
read comes with the time at which it was read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hiredis

from lockd.clock import boottime_ns
from tests.harness.wire import as_map


class Disconnected(Exception):
    """The connection is not there any more; what was asked on it may have been done or not."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply, and when it was read. An error reply is a value here."""

    value: Any
    read_ns: int

    @property
    def error(self) -> str:
        """The text of an error reply; '' when it is none."""
        return str(self.value) if isinstance(self.value, hiredis.ReplyError) else ""

    @property
    def lease(self) -> dict[bytes, Any]:
        return as_map(self.value)


Heard = Callable[[list[Any], int], None]


class Connection(asyncio.Protocol):
    """`heard` gets pushes, and everything else that nobody asked for (the lines of MONITOR)."""

    def __init__(self, heard: Heard = lambda _push, _read_ns: None) -> None:
        self._heard = heard
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Answer]] = deque()
        self._transport: asyncio.Transport | None = None
        self.closed = asyncio.get_running_loop().create_future()

    @classmethod
    async def to_socket(cls, path: Path, heard: Heard = lambda _push, _read_ns: None) -> Connection:
        """Raises Disconnected when nobody answers there."""
        connection = cls(heard)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: connection, str(path))
        except OSError as error:
            raise Disconnected(str(error)) from error
        return connection

    @classmethod
    async def to_port(cls, host: str, port: int, heard: Heard = lambda _push, _read_ns: None) -> Connection:
        """Raises Disconnected when nobody answers there."""
        connection = cls(heard)
        try:
            await asyncio.get_running_loop().create_connection(lambda: connection, host, port)
        except OSError as error:
            raise Disconnected(str(error)) from error
        return connection

    @property
    def open(self) -> bool:
        return self._transport is not None

    async def ask(self, *words: bytes | str | int) -> Answer:
        """Raises Disconnected when the connection ends before the answer came."""
        if self._transport is None:
            raise Disconnected("not connected")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._transport.write(hiredis.pack_command(words))  # type: ignore[arg-type]  # its stub knows one word
        return await answer

    def abort(self) -> None:
        """End it without a word, as a process that dies does."""
        if self._transport is not None:
            self._transport.abort()

    def look_away(self) -> None:
        """Read nothing for a while."""
        if self._transport is not None:
            self._transport.pause_reading()

    def look_again(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports don't derive from asyncio's

    def data_received(self, data: bytes) -> None:
        read_ns = boottime_ns()
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, hiredis.PushNotification) or not self._waiting:
                self._heard(reply, read_ns)
                continue
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_result(Answer(reply, read_ns))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(Disconnected(str(exc or "closed")))
                answer.exception()  # seen: whoever waited may be gone himself
        self._waiting.clear()
        if not self.closed.done():
            self.closed.set_result(None)
