"""Memory: what one user can have the agent hold, and what is left when it is over."""

from __future__ import annotations

import socket
from functools import partial

from tests.bench.attack.asking import LINKS, Link, rest, together, worked
from tests.bench.attack.bounds import memory_held, memory_left
from tests.bench.attack.host import Host
from tests.bench.attack.people import GREEDY, Stage, connected, uid_of
from tests.bench.attack.row import Attack, Row, Sizes
from tests.harness.attackers import say
from tests.harness.wire import request

_LONG_MS = 600_000
_WAIT_MS = 60_000
_SLOTS = 64
_LEASE_MIB, _SLOTS_MIB, _MULTI_MIB = 3.4 / 1024, 85 / 1024, 447 / 1024

# 64 commands of 126 names, of 3 bytes each: just what a MULTI takes.
_MULTI = request("MULTI") + request("DEL", *(f"{number:03x}" for number in range(126))) * 64


def _leases(sizes: Sizes) -> int:
    return sizes.of(5_000, 40_000)


def _multis(sizes: Sizes) -> int:
    return sizes.of(300, 600)


def _waiters(sizes: Sizes) -> int:
    return sizes.of(250, 312)


def _hold(sizes: Sizes, host: Host, stage: Stage) -> None:
    links = [Link(one) for one in connected(host.socket, LINKS)]
    long = "n" * 506
    names = (request("LOCK", f"{long}{number:06}", _LONG_MS) for number in range(_leases(sizes)))
    stage.tell("taken", sum(worked(replies) for replies in together(links, names)))
    slots = (request("LOCK", "slots", _LONG_MS, "SLOTS", _SLOTS) for _ in range(_SLOTS))
    for _ in together(links, slots):
        pass
    kept = [_said(host, request("LOCK", "slots", _LONG_MS, "SLOTS", _SLOTS, "WAIT", _WAIT_MS))
            for _ in range(_waiters(sizes))]  # fmt: skip
    kept += [_said(host, _MULTI) for _ in range(_multis(sizes))]
    stage.tell("connections", len(kept))
    stage.ready()
    rest()


def _said(host: Host, data: bytes) -> socket.socket:
    [link] = connected(host.socket, 1)
    say(link, data)
    return link


HELD = Row(
    "memory held",
    "One user holds leases with names of 512 bytes, waits for one of 64 slots, and leaves MULTIs open.",
    lambda sizes: [Attack(uid_of(GREEDY), partial(_hold, sizes))],
    lambda sizes: (
        memory_held(
            _leases(sizes) * _LEASE_MIB + _waiters(sizes) * _SLOTS_MIB + _multis(sizes) * _MULTI_MIB,
            "leases of 3.4 KiB, waiters for slots of 85, MULTIs of 447",
        ),
        memory_left(),
    ),
    seconds=3.0,
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
    for _ in range(_ROUNDS):
        _round(sizes, host, behind)
    stage.tell("rounds", _ROUNDS)
    rest()


def _round(sizes: Sizes, host: Host, behind: bytes) -> None:
    """Each is read before it is closed, or there is nothing of it to be left."""
    for data, times in ((_MULTI, sizes.of(60, 500)), (behind, sizes.of(20, 100))):
        for _ in range(times):
            with Link(_said(host, data)).socket as link:
                _until_taken_in(link, data is _MULTI)


def _until_taken_in(link: socket.socket, answers: bool) -> None:
    """A MULTI answers each of its commands; behind a WAIT nothing is answered: the agent has read it when
    the next connection's PING is answered."""
    if answers:
        link.recv(65_536)
        return
    with socket.socket(socket.AF_UNIX) as other:
        other.settimeout(60.0)
        other.connect(link.getpeername())
        other.sendall(request("PING"))
        other.recv(64)


LEFT = Row(
    "memory left",
    "One user leaves MULTIs and UNLOCKs behind a WAIT, closes the connection, and comes again.",
    lambda sizes: [Attack(uid_of(GREEDY), partial(_leave, sizes))],
    lambda _: (
        memory_held(40, "one MULTI of 447 KiB and one connection of 89 at a time, and what remembers tokens"),
        memory_left(),
    ),
    seconds=8.0,
)
