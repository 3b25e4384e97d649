"""Those who use the agent as it should be used, each in a process of its own, and what becomes of them.

A victim works until it is told to stop, and then gives its `Seen`.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import hiredis

from lockd import Client
from lockd.config.socket import operators_socket
from tests.bench.attack.people import Stage
from tests.harness.wire import Wire, as_map, token_of

HELD_MS = (300, 600, 1_000, 2_000, 4_000)
"""TTLs of what is held all the time: the shortest are renewed ten times a second."""
_TTL_MS = 10_000
_PAIR_PAUSE_S, _PING_PAUSE_S = 0.002, 0.005
_LOOK_S = 0.01


@dataclass(slots=True)
class Seen:
    """times: when something began and what it took, in seconds. failures: by their first word. lost, of: the
    leases that were held. counts: what else is counted."""

    times: list[tuple[float, float]] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    of: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def since(self, began_s: float) -> list[float]:
        return [took_s for at_s, took_s in self.times if at_s >= began_s]


class Failed(Exception):
    """An error that was answered: its first word, and that of the limit."""


def ok(reply: Any) -> Any:
    if isinstance(reply, hiredis.ReplyError):
        words = str(reply).split()
        raise Failed(" ".join(words[:2] if words[0] == "LIMIT" else words[:1]).rstrip(":"))
    return reply


def word_of(failure: Exception) -> str:
    return str(failure) if isinstance(failure, Failed) else type(failure).__name__


def repeat(once: Callable[[], object], pause_s: float, stage: Stage) -> None:
    """And measure each. What fails is counted, and the next one is tried."""
    seen = Seen()
    stage.ready()
    while not stage.told_to_stop(pause_s):
        began_s = time.monotonic()
        try:
            once()
        except Exception as failure:
            seen.failures[word_of(failure)] += 1
        else:
            seen.times.append((began_s, time.monotonic() - began_s))
    stage.give(seen)


# Those who hold


def holds(path: Path, stage: Stage) -> None:
    """Session locks of all TTLs, with NOTIFY. What is told as lost, or is not there at the end, is lost."""
    with Wire(path, protocol=3) as wire:
        held = {f"held:{ttl_ms}": token_of(wire.ask("LOCK", f"held:{ttl_ms}", ttl_ms, "NOTIFY"))
                for ttl_ms in HELD_MS}  # fmt: skip
        stage.ready()
        lost = set[str]()
        while not stage.told_to_stop():
            if select.select([wire], [], [], 0.1)[0] and not _hear(wire, lost):
                break
        for name, token in held.items():
            if name not in lost and wire.ask("UNLOCK", name, token) != 1:
                lost.add(name)
    stage.give(Seen(lost=len(lost), of=len(held)))


def _hear(wire: Wire, lost: set[str]) -> bool:
    """False when the connection is closed: then nothing is told any more."""
    is_open = wire.feed_once()
    wire.reply_that_is_here()
    while wire.pushes:
        kind, name, *_ = wire.pushes.popleft()
        if kind == b"lost":
            lost.add(name.decode())
    return is_open


# Those who ask


def locks_and_unlocks(path: Path, stage: Stage) -> None:
    wire = Wire(path)

    def once() -> None:
        token = token_of(ok(wire.ask("LOCK", "pairs", _TTL_MS)))
        ok(wire.ask("UNLOCK", "pairs", token))

    repeat(once, _PAIR_PAUSE_S, stage)


def pings_as_the_agent_works(path: Path, stage: Stage) -> None:
    """How long the agent itself has worked before it answers: no other load of the machine is in that."""
    wire, seen = Wire(path), Seen()
    peer = wire.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    worked = Path(f"/proc/{int.from_bytes(peer[:4], sys.byteorder)}/schedstat")
    stage.ready()
    while not stage.told_to_stop(_PING_PAUSE_S):
        began_s, began_ns = time.monotonic(), int(worked.read_text().split()[0])
        ok(wire.ask("PING"))
        seen.times.append((began_s, (int(worked.read_text().split()[0]) - began_ns) / 1e9))
    stage.give(seen)


def pings(path: Path, stage: Stage) -> None:
    wire = Wire(path)
    repeat(lambda: ok(wire.ask("PING")), _PING_PAUSE_S, stage)


def comes_newly(path: Path, stage: Stage) -> None:
    """lockd's own client, new for each lock."""

    def once() -> None:
        with Client(path) as client:
            client.acquire("newly", ttl=_TTL_MS / 1e3).release()

    repeat(once, 0.02, stage)


def reads(path: Path, stage: Stage) -> None:
    wire = Wire(path)

    def once() -> None:
        ok(wire.ask("HOLDER", "read"))
        ok(wire.ask("GET", "read"))

    repeat(once, 0.01, stage)


def lists(path: Path, stage: Stage) -> None:
    """As an operator does who wants to know what goes on."""
    wire = Wire(Path(operators_socket(str(path))))
    repeat(lambda: ok(wire.ask("LOCKS")), 0.1, stage)


def comes_as_operator(path: Path, stage: Stage) -> None:
    """As `lockctl` does, for each question anew."""

    def once() -> None:
        with Wire(Path(operators_socket(str(path)))) as wire:
            ok(wire.ask("MASTERS"))

    repeat(once, 0.02, stage)


_SCRIPT = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end -- {}"
)
SCRIPTS = 16
"""What a library has, that is loaded one by one."""


def loads_a_library(path: Path, stage: Stage) -> None:
    """Scripts that are new to the agent, slowly; no more of them than a library has."""
    wire, seen = Wire(path), Seen()
    stage.ready()
    for number in range(SCRIPTS):
        if stage.told_to_stop(0.25):
            break
        seen.counts["scripts"] += 1
        reply = wire.ask("EVAL", _SCRIPT.format(f"{os.getpid()} {number}"), 1, "library", "value")
        if isinstance(reply, hiredis.ReplyError):
            seen.counts["scripts refused"] += 1
    while not stage.told_to_stop(0.1):
        pass
    stage.give(seen)


def locks_in_new_processes(path: Path, stage: Stage) -> None:
    """What a LOCK of a process that the agent has not seen is bound to."""
    seen = Seen()
    stage.ready()
    while not stage.told_to_stop(0.1):
        seen.counts["new processes"] += 1
        seen.counts[_bound_in_a_new_process(path)] += 1
    stage.give(seen)


def _bound_in_a_new_process(path: Path) -> str:
    said, says = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(says, _bound(path).encode())
        finally:
            os._exit(0)
    os.close(says)
    try:
        os.waitpid(child, 0)
        return os.read(said, 200).decode() or "no answer"
    finally:
        os.close(said)


def _bound(path: Path) -> str:
    try:
        with Wire(path) as wire:
            lease = as_map(ok(wire.ask("LOCK", f"new:{os.getpid()}", _TTL_MS)))
            return f"bound {lease[b'bound'].decode()}"
    except Exception as failure:
        return f"refused {word_of(failure)}"


def is_logged(path: Path, stage: Stage) -> None:
    """Refused once a second, by a command that is for operators: a line each time."""
    wire, seen = Wire(path), Seen()
    stage.ready()
    while not stage.told_to_stop(1.0):
        wire.ask("FORCERELEASE", "logged")
        seen.counts["lines"] += 1
    stage.give(seen)


# The machine itself


def watches_the_machine(stage: Stage) -> None:
    """How late somebody is who asks the agent for nothing."""
    stage.ready()
    seen, looked_s = Seen(), time.monotonic()
    while not stage.told_to_stop():
        time.sleep(_LOOK_S)
        now_s = time.monotonic()
        seen.times.append((looked_s, now_s - looked_s - _LOOK_S))
        looked_s = now_s
    stage.give(seen)


Victim = Callable[[Path, Stage], None]


def at(path: Path, victim: Victim) -> Callable[[Stage], None]:
    return partial(victim, path)
