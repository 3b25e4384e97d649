"""Processes: each that has a lease is a file of the agent's, with or without a connection."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

from tests.bench.attack.asking import Link, rest
from tests.bench.attack.bounds import Bound, memory_held
from tests.bench.attack.host import Host
from tests.bench.attack.people import GREEDY, VICTIMS, Stage, connected, die_with_parent, uid_of
from tests.bench.attack.row import Attack, Row, Sizes
from tests.bench.attack.victims import Seen, locks_in_new_processes
from tests.harness.wire import request

_FILES = 664
"""A host's limits, made small: 400 connections, and 200 processes."""
_PROCESS_MIB = 12 / 1024
WEAKER = Bound("weaker", 0, "nobody's lock is bound to less than it was asked for")
REFUSED = Bound("refused", 0, "who has one process is below its floor")


def _leave_processes(sizes: Sizes, host: Host, stage: Stage) -> None:
    count = sizes.of(300, 660)
    for number in range(count):
        said, says = os.pipe()
        if os.fork() == 0:
            _hold_without_a_connection(host.socket, number, says)
        os.close(says)
        os.read(said, 1)
        os.close(said)
    stage.tell("processes", count)
    stage.ready()
    rest()


def _hold_without_a_connection(path: Path, number: int, says: int) -> None:
    try:
        die_with_parent()
        link = Link(connected(path, 1)[0])
        link.socket.sendall(request("LOCK", f"process:{number}", 60_000))
        link.hear()
        # Whoever asks again has read what was answered: then the lease is the process's.
        link.socket.sendall(request("PING"))
        link.hear()
        link.socket.close()
        os.close(says)
        signal.pause()
    finally:
        os._exit(0)


def _figures(seen: dict[str, Seen], _: Host) -> dict[str, float]:
    counts = seen["new processes"].counts
    bound = {word: number for word, number in counts.items() if word.startswith("bound ")}
    well = bound.pop("bound process", 0)
    every = counts["new processes"]
    return {
        "new processes": every,
        "weaker": sum(bound.values()),
        "refused": every - well - sum(bound.values()),
    }


PROCESSES = Row(
    "processes",
    "One user leaves hundreds of processes with a lease and no connection, on an agent with few files.",
    lambda sizes: [Attack(uid_of(GREEDY), partial(_leave_processes, sizes))],
    lambda sizes: (
        WEAKER,
        REFUSED,
        memory_held(sizes.of(300, 660) * _PROCESS_MIB, "processes and leases of 12 KiB"),
    ),
    besides={"new processes": (uid_of(VICTIMS[0]), locks_in_new_processes)},
    figures_of=_figures,
    files=_FILES,
)
