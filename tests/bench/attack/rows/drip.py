"""Requests that never end: one byte at a time, on as many connections as there may be."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count

from tests.bench.attack.asking import rest
from tests.bench.attack.bounds import Bound, Figures, memory_held
from tests.bench.attack.host import Host
from tests.bench.attack.people import GREEDY, GREEDY_USERS, VICTIMS, Stage, connected, uid_of
from tests.bench.attack.row import Attack, Row, Sizes, spread
from tests.bench.attack.victims import Seen, pings_as_the_agent_works
from tests.harness.wire import request

_UNFINISHED = request("ECHO", "x" * 60_000)
_BEGUN = 20
"""Its headers and a little more."""
_CONNECTION_KIB = 9
"""A connection, and half a request of some bytes."""

_BESIDES = {"worked": (uid_of(VICTIMS[0]), pings_as_the_agent_works)}


def _drip(connections: int, host: Host, stage: Stage) -> None:
    links = connected(host.socket, connections)
    for link in links:
        link.sendall(_UNFINISHED[:_BEGUN])
        link.setblocking(False)
    stage.ready()
    for at in count(_BEGUN):
        if at == len(_UNFINISHED):
            rest()
        for link in links:
            with suppress(OSError):
                link.send(_UNFINISHED[at : at + 1])


def _worked(seen: dict[str, Seen], _: Host) -> Figures:
    return spread("worked", [took_s for _, took_s in seen["worked"].times])


def _bounds(connections: int, p50_ms: float) -> Sequence[Bound]:
    return (
        Bound(
            "worked_p50", p50_ms,
            "ms of work by the agent before it answers a PING: no other load of the machine is in it, but "
            "the time until the victim itself runs",
        ),
        memory_held(connections * _CONNECTION_KIB / 1024, "connections with half a request"),
    )  # fmt: skip


_ONE, _OF_EIGHT = (2_500, 12_000), (600, 1_500)


def _row(name: str, sentence: str, users: Sequence[str], connections: tuple[int, int], p50_ms: float) -> Row:
    def of(sizes: Sizes) -> int:
        return sizes.of(*connections)

    return Row(
        name,
        sentence,
        lambda sizes: [Attack(uid_of(user), partial(_drip, of(sizes))) for user in users],
        lambda sizes: _bounds(len(users) * of(sizes), p50_ms),
        besides=_BESIDES,
        figures_of=_worked,
        files=65_536 if connections is _ONE else 20_000,
    )


DRIP = _row(
    "drip", "One user sends single bytes of requests that never end, on thousands of connections.",
    [GREEDY], _ONE, 3,
)  # fmt: skip

DRIP_OF_EIGHT = _row(
    "drip of eight users", "Eight users do so, on hundreds of connections each.",
    GREEDY_USERS[:8], _OF_EIGHT, 8,
)  # fmt: skip
