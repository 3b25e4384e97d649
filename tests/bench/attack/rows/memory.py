"""Memory: what one user can have the agent hold, and what is left when it is over."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from functools import partial

from tests.bench.attack.asking import LONG_LEASE_MIB, Link, links_to, rest, take_long_names, together
from tests.bench.attack.bounds import NOTHING_LEFT, SLACK_MIB, Bound, memory_held
from tests.bench.attack.host import Host
from tests.bench.attack.people import GREEDY, Stage, connected, die_with_parent, uid_of
from tests.bench.attack.row import Attack, Row, Sizes
from tests.harness.attackers import say
from tests.harness.wire import request

_LONG_MS = 600_000
_WAIT_MS = 60_000
_SLOTS = 64
_SLOTS_MIB, _MULTI_MIB = 85 / 1024, 447 / 1024

# 64 commands of 126 names, of 3 bytes each: just what a MULTI takes.
_COMMANDS = 64
_MULTI = request("MULTI") + request("DEL", *(f"{number:03x}" for number in range(126))) * _COMMANDS


def _leases(sizes: Sizes) -> int:
    return sizes.of(5_000, 40_000)


def _multis(sizes: Sizes) -> int:
    return sizes.of(300, 600)


def _waiters(sizes: Sizes) -> int:
    return sizes.of(250, 312)


def _hold_twice(sizes: Sizes, host: Host, stage: Stage) -> None:
    """The first time by a child that ends."""
    said, says = os.pipe()
    child = os.fork()
    if child == 0:
        die_with_parent()
        _hold(sizes, host)
        os.write(says, b"x")
        rest()
    os.read(said, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    host.wait_given_back()
    stage.ready()
    for name, value in _hold(sizes, host).items():
        stage.tell(name, value)
    rest()


def _hold(sizes: Sizes, host: Host) -> dict[str, int]:
    links = links_to(host.socket)
    taken = take_long_names(links, _leases(sizes))
    slots = (request("LOCK", "slots", _LONG_MS, "SLOTS", _SLOTS) for _ in range(_SLOTS))
    for _ in together(links, slots):
        pass
    waits = request("LOCK", "slots", _LONG_MS, "SLOTS", _SLOTS, "WAIT", _WAIT_MS)
    _KEPT.extend(_said(host, waits) for _ in range(_waiters(sizes)))
    for _ in range(_multis(sizes)):
        _KEPT.append(_said(host, _MULTI))
        _is_taken_in(_KEPT[-1])
    return {"taken": taken, "connections": len(_KEPT)}


def _is_taken_in(multi: socket.socket) -> None:
    """Each of its commands is answered, by an error where it is refused."""
    link = Link(multi)
    with suppress(OSError):
        for _ in range(1 + _COMMANDS):
            link.hear()


_KEPT: list[socket.socket] = []
"""Of this process."""


def _said(host: Host, data: bytes) -> socket.socket:
    [link] = connected(host.socket, 1)
    say(link, data)
    return link


def _bounds(sizes: Sizes) -> list[Bound]:
    mib = _leases(sizes) * LONG_LEASE_MIB + _waiters(sizes) * _SLOTS_MIB + _multis(sizes) * _MULTI_MIB
    why = "MiB: the second time finds the pages of the first; a third, as not all of them fit"
    return [
        memory_held(mib, "leases of 3.4 KiB, waiters for slots of 85, MULTIs of 447"),
        Bound("rss_left", mib / 3 + SLACK_MIB, why),
    ]


HELD = Row(
    "memory held",
    "One user holds leases with names of 512 bytes, waits for one of 64 slots, leaves MULTIs open; twice.",
    lambda sizes: [Attack(uid_of(GREEDY), partial(_hold_twice, sizes))],
    _bounds,
    seconds=10.0,
)

_ROUNDS = 6
_PLACES = 900


def _leave(sizes: Sizes, host: Host, stage: Stage) -> None:
    """The first round is not counted: pages that are used again belong to the agent from then on."""
    [holder] = connected(host.socket, 1)
    say(holder, request("LOCK", "behind", _LONG_MS))
    behind = request("LOCK", "behind", _LONG_MS, "WAIT", _WAIT_MS) + b"".join(
        request("UNLOCK", f"never:{number}", "0" * 32) for number in range(_PLACES)
    )
    _round(sizes, host, behind)
    stage.ready()
    for number in range(_ROUNDS):
        _round(sizes, host, behind)
        stage.tell("rounds", number + 1)
    rest()


def _round(sizes: Sizes, host: Host, behind: bytes) -> None:
    """Each is taken in before it is closed, or there is nothing of it to be left."""
    for _ in range(sizes.of(60, 500)):
        with _said(host, _MULTI) as link:
            _is_taken_in(link)
    for _ in range(sizes.of(20, 100)):
        with _said(host, behind), _said(host, request("PING")) as after:
            Link(after).hear()


LEFT = Row(
    "memory left",
    "One user leaves MULTIs and UNLOCKs behind a WAIT, closes the connection, and comes again.",
    lambda sizes: [Attack(uid_of(GREEDY), partial(_leave, sizes))],
    lambda _: (
        memory_held(40, "one MULTI of 447 KiB and one connection of 89 at a time, and what remembers tokens"),
        NOTHING_LEFT,
    ),
    seconds=8.0,
)
