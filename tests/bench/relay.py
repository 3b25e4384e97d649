"""The least that an agent could do: what the table's bars are held against, to tell what this machine allows.

It keeps no rule of a lock. A LOCK is one SET NX PX on each of five masters, and granted when three have said
so; an UNLOCK is one DEL on each. What is kept (`bench:kept:…`) is granted at once, without any master. It is
made of what the agent is made of, the loop of uvloop and the parser of hiredis, and sends once a turn to each
master, as the agent does. An agent that takes care of processes, fences, turns and clocks takes more.

    python -m tests.bench.relay SOCKET PORT PORT PORT PORT PORT
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis
import uvloop

from lockd.dev.processes import LOOPBACK

_QUORUM = 3
_KEPT = b"bench:kept:"
_TOKEN = b"x" * 32
_HELLO = b"%2\r\n$6\r\nserver\r\n$5\r\nrelay\r\n$5\r\nproto\r\n:3\r\n"
_FIELDS = b"$5\r\ntoken\r\n$32\r\n%b\r\n$5\r\nfence\r\n:1\r\n$11\r\nvalidity_ms\r\n:9000\r\n"
_MORE = b"$11\r\ndeadline_ns\r\n:9000000000000000000\r\n$5\r\nbound\r\n$7\r\nprocess\r\n"


class Master(asyncio.Protocol):
    def __init__(self) -> None:
        self.out: list[bytes] = []
        self.asked: deque[Ballot] = deque()
        self._reader = hiredis.Reader()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while self._reader.gets() is not False:
            self.asked.popleft().answered()

    def flush(self) -> None:
        if self.out:
            self._transport.writelines(self.out)
            self.out = []


class Ballot:
    __slots__ = ("_answers", "_tell")

    def __init__(self, tell: Callable[[], None]) -> None:
        self._answers = 0
        self._tell = tell

    def answered(self) -> None:
        self._answers += 1
        if self._answers == _QUORUM:
            self._tell()


class Relay:
    def __init__(self, masters: list[Master]) -> None:
        self._masters = masters
        self._loop = asyncio.get_running_loop()
        self._will_flush = False

    def ask(self, request: bytes, tell: Callable[[], None]) -> None:
        ballot = Ballot(tell)
        for master in self._masters:
            master.asked.append(ballot)
            master.out.append(request)
        if not self._will_flush:
            self._will_flush = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._will_flush = False
        for master in self._masters:
            master.flush()


class Session(asyncio.Protocol):
    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._reader = hiredis.Reader()
        self._maps = b"*10\r\n"

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (words := self._reader.gets()) is not False:
            self._run(words)

    def _run(self, words: list[bytes]) -> None:
        if words[0] == b"HELLO":
            self._maps = b"%5\r\n"
            self._transport.write(_HELLO)
        elif words[0] == b"LOCK":
            token = words[words.index(b"TOKEN") + 1] if b"TOKEN" in words else _TOKEN
            reply = self._maps + _FIELDS % token + _MORE
            self._answer(words[1], (b"SET", words[1], token, b"NX", b"PX", words[2]), reply)
        else:
            self._answer(words[1], (b"DEL", words[1]), b":1\r\n")

    def _answer(self, resource: bytes, request: tuple[bytes, ...], reply: bytes) -> None:
        if resource.startswith(_KEPT):
            self._transport.write(reply)
        else:
            packed: Any = hiredis.pack_command(request)
            self._relay.ask(packed, lambda: self._transport.write(reply))


async def serve(path: str, ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    masters = [(await loop.create_connection(Master, LOOPBACK, port))[1] for port in ports]
    relay = Relay(masters)
    server = await loop.create_unix_server(lambda: Session(relay), path)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], [int(port) for port in sys.argv[2:]]))
