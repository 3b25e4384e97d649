"""Accounts that take all they get."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from tests.harness.wire import Wire

CROWDED = {
    "memory_mib": 64, "files": 416, "renewals_per_second": 100, "share_percent": 10_000, "unread_ms": 600_000,
}  # fmt: skip
"""One account gets nearly all that is common. A floor of files is two: a connection, and its process."""
GREEDY = (2, 3, 4, 7)
"""Users of this machine."""


def is_refused(wire: Wire, limit: str) -> bool:
    """Was this connection told of the limit, and closed?"""
    return wire.rest().startswith(f"-LIMIT {limit}: ".encode())


def is_let_in(wire: Wire) -> bool:
    with suppress(BrokenPipeError, ConnectionResetError):
        wire.send("PING")
    return bool(wire.reply() == b"PONG")


_KEPT = list[Wire]()
"""In the process of who is greedy."""


def takes_everything(path: Path) -> int:
    """As many files and renewals as one account gets, which it keeps. Returns how many connections it got."""
    wires = _KEPT
    while is_let_in(wire := Wire(path)):
        wires.append(wire)
    if wires:
        while isinstance(wires[0].ask("LOCK", f"mine:{os.getuid()}:{time.monotonic_ns()}", 10_000), list):
            pass
    return len(wires)
