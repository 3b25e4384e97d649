"""What costs the agent the most for each request, again and again, or on many connections at once."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle

from tests.bench.attack.asking import links_to, together
from tests.bench.attack.bounds import memory_held
from tests.bench.attack.host import Host
from tests.bench.attack.people import GREEDY, GREEDY_USERS, Stage, uid_of
from tests.bench.attack.row import Attack, Row
from tests.harness.wire import Word, request

_STARS = b"*" * 8
_IN_TURN = b"*".join([b"a" * 30] * 8) + b"x"
_WORST = b"*a" * 63 + b"?x"
"""Of 128 bytes."""

COMMANDS: Sequence[Sequence[Word]] = (
    ("LOCKS", _WORST),
    ("LOCKS", _STARS + b"a" * 119 + b"x"),
    ("LOCKS", _IN_TURN, "LOCAL"),
    ("LOCKS", _WORST, "LOCAL"),
    ("LOCKS",),
    ("LOCKS", "*", "LOCAL"),
    ("HOLDER", "attacked"),
    ("INFO", "classes"),
    ("INFO",),
    ("MASTERS",),
    ("COMMAND",),
    ("COMMAND", "DOCS"),
    ("COMMAND", "LIST", "FILTERBY", "PATTERN", _STARS + b"[a-z]" * 20),
)
_AT_ONCE: Sequence[Sequence[Word]] = (
    ("PING",), ("LOCK", "crowd", 60_000), ("UNLOCK", "crowd", b"0" * 32), ("COMMAND", "DOCS"),
)  # fmt: skip
_CROWD = 500


def _ask(commands: Sequence[Sequence[Word]], connections: int, host: Host, stage: Stage) -> None:
    """Each on all connections at one moment. One that is closed for its unread replies is no matter."""
    links = links_to(host.socket, connections)
    stage.ready()
    with suppress(OSError):
        for _ in together(
            links, (one for command in cycle(commands) for one in [request(*command)] * connections)
        ):
            pass
    signal.pause()


def _by(users: Sequence[str], commands: Sequence[Sequence[Word]], connections: int) -> list[Attack]:
    return [Attack(uid_of(user), partial(_ask, commands, connections)) for user in users]


_BOUNDS = [memory_held(64, "replies that are being written, 32 MiB of each user")]

COSTLY = Row(
    "costly commands",
    "Two connections of one user ask for what costs the most, again and again.",
    lambda _: _by([GREEDY] * 2, COMMANDS, 1),
    lambda _: _BOUNDS,
    leases=lambda sizes: sizes.of(500, 500),
)

CROWD = Row(
    "1,000 connections",
    "One user asks on a thousand connections at one moment, again and again.",
    lambda _: _by([GREEDY] * 2, _AT_ONCE, _CROWD),
    lambda _: _BOUNDS,
)

EIGHT_USERS = Row(
    "eight greedy users",
    "Eight users, each on sixteen connections, ask as fast as they are answered.",
    lambda _: _by(GREEDY_USERS[:8], _AT_ONCE, 16),
    lambda _: _BOUNDS,
)
