"""Connecting to a Unix socket at which many others connect. Its line is the kernel's, one for all users, and
can be full: a socket with a time limit is then refused at once (EAGAIN, unix(7)), where one on TCP would
wait. That is no agent that isn't there, so it is tried again."""

import asyncio
import socket
import time
from typing import Final

_AGAIN_S: Final = 0.005


def connected(path: str, within_s: float) -> socket.socket:
    """A socket to that path, with this time limit for what follows, too. BlockingIOError when the line was
    full all the time; OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(within_s)
        connect(sock, path, within_s)
    except BaseException:
        sock.close()
        raise
    return sock


def connect(sock: socket.socket, path: str, within_s: float) -> None:
    """Connect a socket that has a time limit."""
    until_s = time.monotonic() + within_s
    while True:
        try:
            sock.connect(path)
        except BlockingIOError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(_AGAIN_S)
        else:
            return


async def connect_async(sock: socket.socket, path: str) -> None:
    """The same for one that does not block; for how long is the caller's matter. Not by the event loop's own
    `sock_connect`: after EAGAIN it would wait for a socket that is not being connected."""
    while True:
        try:
            sock.connect(path)
        except BlockingIOError:
            await asyncio.sleep(_AGAIN_S)
        else:
            return
