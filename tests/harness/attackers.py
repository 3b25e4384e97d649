"""Users of this machine who do their worst at the agent's socket, each in a process of his own."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.harness.users import become
from tests.harness.wire import request

HALF = b"*2\r\n$4\r\nECHO\r\n$65000\r\n" + b"x" * 64_000
LONG = request("COMMAND", "INFO", *["client"] * 120)
ALL_OF_IT = request("COMMAND", "DOCS") * 20


def say(link: socket.socket, data: bytes) -> None:
    """As much as is taken at once."""
    link.setblocking(False)
    with suppress(OSError):
        while data:
            data = data[link.send(data) :]


def unread(links: list[socket.socket]) -> None:
    for link in links:
        say(link, ALL_OF_IT + LONG)


def echo(links: list[socket.socket]) -> None:
    for link in links:
        say(link, request("ECHO", "x" * 65_000) * 8)


def half(links: list[socket.socket]) -> None:
    for link in links:
        say(link, HALF)


def behind(links: list[socket.socket]) -> None:
    say(links[0], request("LOCK", "behind", 60_000))
    for link in links[1:]:
        say(link, request("LOCK", "behind", 60_000, "WAIT", 60_000) + request("ECHO", "x" * 60_000) * 2)


def lost(links: list[socket.socket]) -> None:
    """Leases with long names that end while nobody asks after them."""
    for number, link in enumerate(links):
        names = (b"\xff" * 500 + b"%d" % (number * 20 + at) for at in range(20))
        say(link, b"".join(request("LOCK", name, 100, "MAXHOLD", 100, "NOTIFY") for name in names))


def unlock(links: list[socket.socket]) -> None:
    """For as long as it is let."""
    asked = request("UNLOCK", "never", "0" * 32) * 16
    while True:
        for link in links:
            say(link, asked)
        for link in select.select(links, [], [], 1)[0]:
            with suppress(OSError):
                link.recv(65_536)


def connect(links: list[socket.socket]) -> None:
    path = links[0].getpeername()
    while True:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as link:
            link.connect(path)


ATTACKS: dict[str, Callable[[list[socket.socket]], None]] = {
    "idle": lambda links: None, "unread": unread, "echo": echo, "half": half, "behind": behind,
    "lost": lost, "unlock": unlock, "connect": connect,
}  # fmt: skip


@contextmanager
def attacker(uid: int, path: Path, connections: int, attack: str) -> Iterator[Callable[[], None]]:
    """A process of that user with so many connections, for as long as the context lasts. What is yielded
    waits until he has said all that is taken, for an attack that ends."""
    theirs, its = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            become(uid)
            links = connected(path, connections, its)
            ATTACKS[attack](links)
            os.write(its, b"x")
            signal.pause()
            status = 0
        finally:
            os._exit(status)
    os.close(its)
    os.read(theirs, 1)

    def said_all() -> None:
        os.read(theirs, 1)

    try:
        yield said_all
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(theirs)


def connected(path: Path, connections: int, ready: int) -> list[socket.socket]:
    links = []
    for _ in range(connections):
        link = socket.socket(socket.AF_UNIX)
        link.connect(str(path))
        links.append(link)
    os.write(ready, b"x")
    return links
