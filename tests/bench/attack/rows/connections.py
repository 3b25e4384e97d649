"""Connections: all that there are, and the line in which all users wait to be let in."""

from __future__ import annotations

import socket
from contextlib import suppress
from functools import partial

from tests.bench.attack.asking import rest
from tests.bench.attack.bounds import Bound, memory_held
from tests.bench.attack.host import Host
from tests.bench.attack.people import FIRST_OF_MANY, GREEDY, VICTIMS, Stage, connected_by, uid_of
from tests.bench.attack.row import Attack, Row, Sizes, spread
from tests.bench.attack.victims import Seen, comes_as_operator, comes_newly

_CONNECTION_MIB = 5.0 / 1024
_UIDS, _OF_EACH = 10, 1_024

NEWCOMER_P99 = Bound(
    "newcomer_p99", 250, "ms: to connect, lock and unlock. The kernel's line is one for all and is not held, "
    "so a client may have to try again after a pause",
)  # fmt: skip
OPERATORS = (
    Bound("operator_p99", 100, "ms: for an operator to come in, and to be told of the masters"),
    Bound("operator_failures", 0, "operators come in, whatever apps do"),
)


def _newcomers(seen: dict[str, Seen], _: Host) -> dict[str, float]:
    newcomers = seen["newcomers"]
    came = len(newcomers.times) + newcomers.failures.total()
    return (
        spread("newcomer", [took_s for _, took_s in newcomers.times])
        | spread("operator", [took_s for _, took_s in seen["operator"].times])
        | {"newcomers": came, "operator_failures": seen["operator"].failures.total()}
    )


def _take_all(sizes: Sizes, host: Host, stage: Stage) -> None:
    taken = [link for uid in range(FIRST_OF_MANY, FIRST_OF_MANY + _UIDS)
             for link in connected_by(uid, host.socket, sizes.of(_OF_EACH, _OF_EACH))]  # fmt: skip
    stage.tell("connected", len(taken))
    stage.ready()
    rest()


def _come_and_go(host: Host, stage: Stage) -> None:
    stage.ready()
    path = str(host.socket)
    while True:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as link:
            link.setblocking(False)
            link.connect(path)


_BESIDES = {"newcomers": (uid_of(VICTIMS[0]), comes_newly), "operator": (None, comes_as_operator)}

ALL_CONNECTIONS = Row(
    "all connections",
    "Ten uids of one user open as many connections as there may be; others connect newly for each lock.",
    lambda sizes: [Attack(None, partial(_take_all, sizes))],
    lambda sizes: (
        NEWCOMER_P99,
        *OPERATORS,
        memory_held(_UIDS * sizes.of(_OF_EACH, _OF_EACH) * _CONNECTION_MIB, "connections of 5 KiB"),
    ),
    besides=_BESIDES,
    figures_of=_newcomers,
)

FLOOD = Row(
    "connect flood",
    "One process connects and closes as fast as it can; others connect newly for each lock.",
    lambda _: [Attack(uid_of(GREEDY), _come_and_go)],
    lambda _: (NEWCOMER_P99, *OPERATORS, memory_held(0, "nothing that lasts")),
    besides=_BESIDES,
    figures_of=_newcomers,
)
