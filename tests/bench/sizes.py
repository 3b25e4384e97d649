"""Whether things cost in the agent's memory what lockd/core/sizes.py says: python -m tests.bench.sizes

Makes thousands of each kind in a real agent, and compares how its memory grows with what it counts. The
journal is in memory, too. Exit status 1 when one kind differs by more than a fifth.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

import hiredis

from lockd.core import sizes
from tests.harness.cluster import AS_IS, Cluster, running_cluster
from tests.harness.processes import memory_kib, open_files
from tests.harness.waiting import eventually
from tests.harness.wire import Wire, Word, request

EACH = 5_000
MOST_OFF = 0.2
_TTL_MS = 3_600_000
_PIPELINED = 100
_LONG = 512
_SLOTS = 64
SETTINGS = {
    "log_level": "warning",
    "max_ttl_ms": _TTL_MS,
    "defaults": {**AS_IS, "max_wait_ms": _TTL_MS, "max_hold_ms": _TTL_MS * 2},
    "limits": {
        "memory_mib": 1 << 20, "files": 1 << 20, "renewals_per_second": 1_000_000, "share_percent": 10_000,
        "unknown_tokens_per_second": 1_000_000, "unread_ms": 600_000,
    },
}  # fmt: skip


class App:
    """In this process: what it has is there for as long as the stack."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.cluster = cluster
        self.stack = stack
        self.wires: list[Wire] = []

    def connects(self, number: int) -> list[Wire]:
        wires = [self.stack.enter_context(Wire(self._connected())) for _ in range(number)]
        for wire in wires:
            assert wire.ask("PING") == b"PONG"
        self.wires += wires
        return wires

    def _connected(self) -> socket.socket:
        link = socket.socket(socket.AF_UNIX)
        link.connect(str(self.cluster.socket))
        return link

    def asks(self, many: Iterable[Sequence[Word]]) -> None:
        """On one connection, each answered."""
        [wire] = self.connects(1)
        waiting = 0
        for words in many:
            wire.send(*words)
            waiting += 1
            if waiting == _PIPELINED:
                self._is_right(wire.reply())
                waiting -= 1
        for _ in range(waiting):
            self._is_right(wire.reply())

    def _is_right(self, reply: object) -> None:
        assert not isinstance(reply, hiredis.ReplyError) or str(reply).startswith("NOTHELD"), reply

    def waiters(self) -> int:
        return int(self.cluster.metric("lockd_waiters"))


Make = Callable[[App, int, int], None]
"""first: the number of the first of them. They are there when it returns."""


@dataclass(frozen=True)
class Kind:
    """before: what is there first, and is not measured. part: there are so many times fewer of them. own:
    what one costs, if it is no account's and belongs to the agent itself. reserved: what is counted besides,
    for what it may become."""

    name: str
    make: Make
    before: Make | None = None
    part: int = 1
    own: int = 0
    reserved: int = 0


def _connections(app: App, _first: int, number: int) -> None:
    app.connects(number)


def _processes(app: App, _first: int, number: int) -> None:
    """Each with a connection."""
    for _ in range(number):
        ours, its = os.pipe()
        if (child := os.fork()) == 0:
            link = socket.socket(socket.AF_UNIX)
            link.connect(str(app.cluster.socket))
            link.sendall(request("PING"))
            link.recv(100)
            os.set_inheritable(link.fileno(), True)
            os.write(its, b"x")
            # Little of it stays in memory.
            os.execv("/bin/sleep", ["sleep", "3600"])
        os.read(ours, 1)
        os.close(ours)
        os.close(its)
        app.stack.callback(_ends, child)


def _ends(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _leases(*options: Word, name: int = 16, ttl_ms: int = _TTL_MS) -> Make:
    def make(app: App, first: int, number: int) -> None:
        names = (f"{name}{options}:{one}:".ljust(name, "x") for one in range(first, first + number))
        app.asks(("LOCK", one, ttl_ms, *options) for one in names)

    return make


def _connected_waiters(app: App, _first: int, number: int) -> None:
    app.connects(number)


def _waiting_in(line: str, *options: Word) -> Make:
    """line: has the number of the waiter in it, or is one for all."""

    def make(app: App, first: int, number: int) -> None:
        before = app.waiters()
        for at in range(first, first + number):
            app.wires[at].send("LOCK", line.format(at), _TTL_MS, *options, "WAIT", _TTL_MS)
        each = _SLOTS if options else 1
        eventually(lambda: app.waiters() - before >= number * each, "all wait")

    return make


def _held_lines(app: App, first: int, number: int) -> None:
    """One for each waiter, on connections that come after those of the waiters."""
    app.connects(number)
    names = (("LOCK", f"line:{one}", _TTL_MS) for one in range(first, first + number))
    app.asks(names)


def _held_line(app: App, first: int, number: int) -> None:
    app.connects(number)
    if not first:
        app.asks([("LOCK", "line", _TTL_MS)])


def _held_slots(app: App, first: int, number: int) -> None:
    app.connects(number)
    if not first:
        app.asks(("LOCK", "slots", _TTL_MS, "SLOTS", _SLOTS) for _ in range(_SLOTS))


def _multis(app: App, _first: int, number: int) -> None:
    names = [b"%d" % one for one in range(126)]
    data = request("MULTI") + b"".join(request("DEL", *names) for _ in range(64))
    for wire in app.connects(number):
        wire.send_raw(data)
        for _ in range(65):
            assert wire.reply() in (b"OK", b"QUEUED")


def _behind(*words: Word) -> Make:
    """A hundred on each connection, whose first LOCK waits."""

    def make(app: App, first: int, number: int) -> None:
        wires = app.wires[first // _PIPELINED : (first + number) // _PIPELINED]
        for at, wire in enumerate(wires):
            names = [(words[0], f"behind:{at}:{one}", *words[1:]) for one in range(_PIPELINED)]
            wire.send_raw(b"".join(request(*one) for one in names))

    return make


def _blocked(app: App, first: int, number: int) -> None:
    if not first:
        app.asks([("LOCK", "line", _TTL_MS)])
    before = app.waiters()
    wires = app.connects(number // _PIPELINED)
    for wire in wires:
        wire.send("LOCK", "line", _TTL_MS, "WAIT", _TTL_MS)
    eventually(lambda: app.waiters() - before == len(wires), "all wait")


def _halves(app: App, _first: int, number: int) -> None:
    for wire in app.connects(number):
        wire.send_raw(request("ECHO", "x" * 40_000)[:15_000])
        wire.send_raw(b"x" * 15_000)


def _remembered(app: App, first: int, number: int) -> None:
    app.asks(("UNLOCK", f"gone:{one}", "a-name") for one in range(first, first + number))


_LEASE = sizes.lease(10)
_OVER = 704
"""A request that is over: core/names.py says how many are remembered."""
KINDS = (
    Kind("connection", _connections),
    Kind("process with a connection", _processes, part=2),
    Kind("lease", _leases()),
    Kind("lease, name of 512 bytes", _leases(name=_LONG)),
    Kind("waiter, all in one line", _waiting_in("line"), _held_line, reserved=_LEASE),
    Kind("waiter, each in a line of its own", _waiting_in("line:{}"), _held_lines, reserved=_LEASE),
    Kind(
        "request for one of 64 slots that waits",
        _waiting_in("slots", "SLOTS", _SLOTS),
        _held_slots,
        part=10,
        reserved=_LEASE,
    ),
    Kind("MULTI of 64 times 126 words", _multis, part=10),
    Kind("half a request of 30 kB", _halves, part=5),
    Kind("LOCK behind a WAIT", _behind("LOCK", _TTL_MS), _blocked),
    Kind("SET behind a WAIT", _behind("SET", "v", "NX", "PX", 60_000), _blocked),
    Kind("PING behind a WAIT", _behind("PING"), _blocked),
    Kind("DETACHED lease", _leases("DETACHED", ttl_ms=60_000)),
    Kind("UNLOCK remembered", _remembered, own=_OVER),
)


def memory_of(cluster: Cluster) -> tuple[int, int, int]:
    """What the agent uses, what its journal has, and what it counts."""
    journal = cluster.socket.with_name(cluster.socket.name + ".journal").stat().st_size
    counted = cluster.metric("lockd_limit_used", limit="bytes")
    return _settled(cluster.agent.pid), journal, int(counted)


def _settled(pid: int) -> int:
    """Bytes that are resident, when they don't grow any more."""
    before = -1
    while (now := memory_kib(pid) * 1024) != before:
        before = now
        time.sleep(0.5)
    return now


@dataclass(frozen=True)
class Measured:
    """Bytes, of each."""

    used: float
    journal: float
    counted: float


def in_an_agent_of_its_own(cluster: Cluster, kind: Kind, number: int) -> Measured:
    """By an app that dies afterwards: of what it held nothing is left for the next one."""
    eventually(lambda: cluster.metric("lockd_leases") == 0, "nothing is left")
    cluster.agent.restart()
    cluster.wait_voting(len(cluster.masters))
    ours, its = os.pipe()
    if (child := os.fork()) == 0:
        status = 1
        try:
            os.write(its, json.dumps(asdict(measured(cluster, kind, number))).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(its)
    with open(ours) as told:
        said = told.read()
    assert os.waitpid(child, 0)[1] == 0, f"{kind.name} could not be measured"
    return Measured(**json.loads(said))


def measured(cluster: Cluster, kind: Kind, number: int) -> Measured:
    """What is counted for a waiter is also for the lease that it may get, and that is not there yet. The
    first tenth only fills what an allocator keeps."""
    first = number // 10
    with ExitStack() as stack:
        app = App(cluster, stack)
        if kind.before is not None:
            kind.before(app, 0, first + number)
        kind.make(app, 0, first)
        before = memory_of(cluster)
        kind.make(app, first, number)
        used, journal, counted = (
            (then - now) / number for then, now in zip(memory_of(cluster), before, strict=True)
        )
    return Measured(used, journal, kind.own or counted - kind.reserved)


@contextmanager
def _an_agent() -> Iterator[Cluster]:
    with open_files(3 * EACH), running_cluster(3, **SETTINGS) as cluster:
        yield cluster


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--number", type=int, default=EACH, help="of each kind")
    parser.add_argument("--only", default="", help="kinds with this in their name")
    chosen = parser.parse_args(arguments)
    wrong = 0
    with _an_agent() as cluster:
        print(f"{'bytes each':40} {'memory':>9} {'journal':>9} {'counted':>9} {'off':>6}", flush=True)
        for kind in KINDS:
            if chosen.only in kind.name:
                number = chosen.number // kind.part // _PIPELINED * _PIPELINED
                one = in_an_agent_of_its_own(cluster, kind, number)
                off = one.counted / (one.used + one.journal) - 1
                wrong += abs(off) > MOST_OFF
                print(
                    f"{kind.name:40} {one.used:9.0f} {one.journal:9.0f} {one.counted:9.0f} {off:+6.0%}"
                    f"{'  wrong' if abs(off) > MOST_OFF else ''}",
                    flush=True,
                )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
