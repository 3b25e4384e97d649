"""How attackers ask: of many connections at once, and whatever is answered."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import hiredis

from tests.bench.attack.people import connected
from tests.harness.wire import request

LINKS = 64
"""Of one attacker: on one connection, one LOCK would wait for the other."""


class Link:
    """A connection on which replies are counted and errors are answers."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(60.0)
        self._reader = hiredis.Reader()

    def hear(self) -> object:
        while (reply := self._reader.gets()) is False:
            data = self.socket.recv(65_536)
            if not data:
                raise ConnectionError("the agent closed the connection")
            self._reader.feed(data)
        return reply


def links_to(path: Path, count: int = LINKS) -> list[Link]:
    return [Link(one) for one in connected(path, count)]


def together(links: Sequence[Link], requests: Iterable[bytes]) -> Iterator[list[object]]:
    """One on each connection at a time, again and again: the replies of each round."""
    line = iter(requests)
    while some := list(islice(line, len(links))):
        for link, asked in zip(links, some, strict=False):
            link.socket.sendall(asked)
        yield [link.hear() for link in links[: len(some)]]


def worked(replies: Iterable[object]) -> int:
    return sum(not isinstance(reply, hiredis.ReplyError) for reply in replies)


LONG_LEASE_MIB = 3.4 / 1024
"""Of a session lock whose name has 512 bytes."""
_LONG = "n" * 506
_LONG_MS = 600_000


def take_long_names(links: Sequence[Link], count: int) -> int:
    """Leases with names of 512 bytes. Returns how many were taken."""
    requests = (request("LOCK", f"{_LONG}{number:06}", _LONG_MS) for number in range(count))
    return sum(worked(replies) for replies in together(links, requests))


_A_SECOND = 500
"""Leases that are surely taken in a second."""
_LEFT_S = 1.0


def take_until_all_are_due(
    links: Sequence[Link], count: int, share: float, *options: str
) -> tuple[int, float]:
    """So many leases, of which each has the TTL with which all are due at one moment: when that share of it
    is over. Returns how many were taken, and when they are due (time.monotonic)."""
    due_s = time.monotonic() + count / _A_SECOND + 2 * _LEFT_S

    def requests() -> Iterator[bytes]:
        for number in range(count):
            left_s = due_s - time.monotonic()
            if left_s < _LEFT_S:
                return
            yield request("LOCK", f"due:{number}", int(left_s / share * 1e3), *options)

    taken = sum(worked(replies) for replies in together(links, requests()))
    return taken, due_s


def wait_until(when_s: float) -> None:
    time.sleep(max(0.0, when_s - time.monotonic()))


def rest() -> None:
    """Hold what is held, until it is ended."""
    while True:
        signal.pause()
