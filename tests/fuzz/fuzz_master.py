"""Plays a bad master of five to a whole agent, and stops at the first broken promise.

    python -m tests.fuzz.fuzz_master --seconds 30 [--seed N]

Four masters answer as the scripts do; the first says anything: valid answers with bytes changed, values that
no script gives, shapes that no script gives, answers to nothing, headers that promise gigabytes, errors of
any length, half an answer, nothing, or all of that late. The promises: LOCK, EXTEND and UNLOCK work; fences
are sane, grow and are given once; a session lease beside them is kept; the links to the other four stay; the
agent counts no internal error, and its memory is bounded.

The seed reproduces what is said, not how it falls together. An agent leaves a master alone for up to half a
minute that talked nonsense; here for a moment only, so that there is much to be heard.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from lockd.core.fences import COUNTER_AHEAD_US, SANE_MOST, slot_of
from tests.fuzz.command_line import BrokenPromiseError, GoesOn, for_seconds, run
from tests.harness.cluster import Cluster
from tests.harness.masters import short_folder
from tests.harness.modelled import ModelledMaster, encoded, modelled_masters, serving
from tests.harness.processes import memory_kib
from tests.harness.waiting import eventually
from tests.harness.wire import Bystander, Wire, as_map

MEMORY_MOST_KIB = 64 * 1024
LEASE_MS, EXTENDED_MS = 30_000, 40_000
MIND_MOST = 150
"""After so many questions at most it tells other kinds of lies."""
HANGS_UP_MOST = 30
"""So many questions after a lie it hangs up, if the agent has not: a patient agent waits for the rest of an
answer for longer than a test may take."""
HASTY_AGENT = """
from lockd.masters import link
link._LEFT_ALONE_MOST_S = 0.02
from lockd.cli import main
main()
"""


# What is said

NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    4,
    5,
    -2,
    -3,
    -4,
    -5,
    63,
    1 << 31,
    86_400_001,
    SANE_MOST,
    (1 << 53) - 1,
    1 << 62,
    -(1 << 63),
)
ATOMS = (
    b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"_\r\n", b"#t\r\n", b"#f\r\n", b",nan\r\n", b"$0\r\n\r\n",
    b"(" + b"9" * 60 + b"\r\n", b"+OK\r\n", b"=7\r\ntxt:abc\r\n", b">1\r\n:1\r\n", b"%1\r\n:1\r\n:1\r\n",
    b"%1\r\n*0\r\n:1\r\n", b"~1\r\n*0\r\n", b"-ERR no\r\n", b"|1\r\n+a\r\n:1\r\n",
)  # fmt: skip
HEADERS = (
    b"*2147483647\r\n", b"$536870912\r\n", b"%2147483647\r\n", b"~99999999\r\n", b">2147483647\r\n",
    b"*32768\r\n", b"*1\r\n" * 2000, b"$1048576\r\n", b"*?\r\n", b"$?\r\n", b"*-7\r\n",
)  # fmt: skip
ERRORS = (
    b"LOADING",
    b"BUSY",
    b"READONLY",
    b"NOPERM",
    b"OOM",
    b"MISCONF",
    b"NOSCRIPT",
    b"NOAUTH",
    b"\x1b[2J",
    b"",
)


class Liar:
    """Says something else than `reply` at times; which kinds of lies there are changes as it goes."""

    def __init__(self, master: ModelledMaster, seed: int) -> None:
        self.told: Counter[str] = Counter()
        self._master = master
        self._choose = random.Random(seed)
        self._asked = 0
        self._until = 0
        self._hangs_up: int | None = None
        self._share = 0.0
        self._kinds: list[Callable[[bytes], bytes | None]] = []
        master.lie = self.lie
        master.pace = self._pace

    def lie(self, words: list[bytes], reply: bytes) -> bytes | None:
        choose = self._choose
        self._asked += 1
        if self._asked > self._until:
            self._change_its_mind()
        if self._hangs_up is not None and self._asked > self._hangs_up:
            self._hangs_up = None
            return None
        # A handshake that never succeeds says nothing more.
        share = self._share if words[0] in (b"EVALSHA", b"TIME") else self._share / 30
        if choose.random() >= share:
            return reply
        kind = choose.choice(self._kinds)
        self.told[kind.__name__.strip("_")] += 1
        if self._hangs_up is None:
            self._hangs_up = self._asked + choose.randint(0, HANGS_UP_MOST)
        return kind(reply)

    def _change_its_mind(self) -> None:
        choose = self._choose
        self._until = self._asked + choose.randint(10, MIND_MOST)
        self._share = choose.choice((0.01, 0.1, 1.0))
        self._kinds = choose.sample(self._all(), choose.randint(1, 3))
        self._slow_s = choose.choice((0.0, 0.0, 0.0, 0.01, 0.1))
        counters = self._master.store.counters
        if choose.random() < 0.3:
            counters[slot_of(b"fuzzed")] = choose.choice((SANE_MOST, (1 << 53) - 1, _far()))
        else:
            counters.pop(slot_of(b"fuzzed"), None)

    def _all(self) -> list[Callable[[bytes], bytes | None]]:
        return [
            self._mutated, self._cut, self._twice, self._number, self._vote, self._shape, self._header,
            self._error, self._flood, self._hang_up, self._bytes, self._pieces,
        ]  # fmt: skip

    async def _pace(self) -> None:
        if self._slow_s:
            await asyncio.sleep(self._choose.random() * self._slow_s)

    def _some_number(self) -> int:
        near = (_now_us(), _now_us() + COUNTER_AHEAD_US, _now_us() - COUNTER_AHEAD_US)
        return self._choose.choice((*NUMBERS, *near)) + self._choose.choice((0, 0, 1, -1))

    def _mutated(self, reply: bytes) -> bytes:
        stream = bytearray(reply)
        for _ in range(self._choose.randint(1, 3)):
            at = self._choose.randrange(len(stream) + 1)
            piece = self._choose.choice(
                (b"", b"\r\n", b"*", b"$", b":", b"-", b"9", b"\xff", stream[at : at + 9])
            )
            stream[at : at + self._choose.randint(0, 3)] = piece
        return bytes(stream)

    def _cut(self, reply: bytes) -> bytes:
        return reply[: self._choose.randrange(len(reply))]

    def _twice(self, reply: bytes) -> bytes:
        return reply * self._choose.choice((2, 3, 500))

    def _number(self, _reply: bytes) -> bytes:
        return b":%d\r\n" % self._some_number()

    def _vote(self, _reply: bytes) -> bytes:
        """Of the right form, with any values: but never 'yes' where it was not so, which nobody could see."""
        status = self._choose.choice([number for number in NUMBERS if number != 1])
        value = self._some_number()
        if self._choose.random() < 0.4:
            status, value = (1, self._choose.choice((0, -5, SANE_MOST, 1 << 62, _far())))
        time_us = self._choose.choice((_now_us(), _now_us(), self._some_number()))
        return encoded([status, value, time_us])

    def _shape(self, _reply: bytes) -> bytes:
        words = [b":1\r\n", b":%d\r\n" % _now_us(), b":%d\r\n" % _now_us()]
        words[self._choose.randrange(3)] = self._choose.choice(ATOMS)
        if self._choose.random() < 0.3:
            words = words[: self._choose.randrange(3)] + self._choose.choices(
                ATOMS, k=self._choose.randrange(3)
            )
        if self._choose.random() < 0.2:
            return self._choose.choice(ATOMS)
        return b"*%d\r\n" % len(words) + b"".join(words)

    def _header(self, reply: bytes) -> bytes:
        header = self._choose.choice(HEADERS)
        return self._choose.choice((header, reply + header, b"*3\r\n:1\r\n" + header, header + reply * 100))

    def _error(self, _reply: bytes) -> bytes:
        text = bytes(self._choose.randbytes(self._choose.choice((0, 5, 300, 20_000)))).translate(
            None, b"\r\n"
        )
        return b"-%b %b\r\n" % (self._choose.choice(ERRORS), text)

    def _flood(self, reply: bytes) -> bytes:
        many = self._choose.choice(
            (b">2\r\n+gone\r\n+r\r\n", b":1\r\n", reply, b"$4096\r\n" + b"x" * 4096 + b"\r\n")
        )
        return self._choose.choice((b"", b"*32000\r\n")) + many * self._choose.choice((10, 1000))

    def _bytes(self, _reply: bytes) -> bytes:
        return self._choose.randbytes(self._choose.choice((1, 10, 1000, 100_000)))

    def _pieces(self, _reply: bytes) -> bytes:
        return b"".join(self._choose.choices((*ATOMS, *HEADERS), k=self._choose.randint(1, 6)))

    def _hang_up(self, _reply: bytes) -> None:
        return None


def _far() -> int:
    return _now_us() + 2 * COUNTER_AHEAD_US


def _now_us() -> int:
    return time.time_ns() // 1000


# Who uses the agent meanwhile


class User:
    """Locks, extends and unlocks; every answer has to be the right one."""

    def __init__(self, wire: Wire) -> None:
        self.leases = 0
        self._wire = wire
        self._fence = 0

    def step(self) -> None:
        lease = self._taken(self._wire.ask("LOCK", "fuzzed", LEASE_MS, "DETACHED"), "LOCK")
        fence, token = lease[b"fence"], lease[b"token"]
        if not self._fence < fence < _now_us() + COUNTER_AHEAD_US:
            raise BrokenPromiseError(f"the fence {fence} after {self._fence}")
        self._fence = fence
        extended = self._taken(self._wire.ask("EXTEND", "fuzzed", token, EXTENDED_MS), "EXTEND")
        if not 0 < extended[b"validity_ms"] <= EXTENDED_MS:
            raise BrokenPromiseError(f"EXTEND gave {extended}")
        released = self._wire.ask("UNLOCK", "fuzzed", token)
        if released != 1:
            raise BrokenPromiseError(f"UNLOCK got {released!r}")
        self.leases += 1

    def _taken(self, reply: Any, what: str) -> dict[bytes, Any]:
        if not isinstance(reply, list):
            raise BrokenPromiseError(f"{what} got {reply!r}")
        return as_map(reply)


# The whole


def fuzz(goes_on: GoesOn, seed: int) -> str:
    """Run until it gave so many leases. What was done, in a line; AssertionError when a promise is broken."""
    masters = modelled_masters(5)
    with short_folder() as folder, serving(masters):
        cluster = Cluster(folder, masters, {})  # type: ignore[arg-type]  # it needs their names and addresses
        agent = cluster.agent
        agent.command = (sys.executable, "-c", HASTY_AGENT, "serve", "--config", str(cluster.config_path))
        agent.start()
        try:
            cluster.wait_voting(5)
            return _watched(cluster, Liar(masters[0], seed), goes_on)
        except AssertionError as broken:
            raise BrokenPromiseError(f"{broken}\n{agent.log_tail(20)}") from broken
        finally:
            cluster.close()


def _watched(cluster: Cluster, liar: Liar, goes_on: GoesOn) -> str:
    with Wire(cluster.socket) as watcher:
        pid = watcher.agent_pid()
    kib = memory_kib(pid)
    with Wire(cluster.socket) as wire, Bystander(cluster.socket) as bystander:
        user = User(wire)
        while goes_on(user.leases):
            user.step()
    grown_kib = memory_kib(pid) - kib
    _promises_kept(cluster, grown_kib)
    connects = cluster.metric("lockd_master_connects_total", master="m1")
    kinds = ", ".join(f"{kind} {count}" for kind, count in liar.told.most_common())
    return (
        f"{liar.told.total()} lies ({kinds}), "
        f"{connects:.0f} connections; {user.leases} leases beside them, {bystander.rounds} of a bystander, "
        f"{bystander.worst_s * 1e3:.0f} ms at worst; memory grew by {grown_kib} KiB"
    )


def _promises_kept(cluster: Cluster, grown_kib: int) -> None:
    for name in ("m2", "m3", "m4", "m5"):
        connects = cluster.metric("lockd_master_connects_total", master=name)
        if connects != 1:
            raise BrokenPromiseError(f"the link to {name}, which is honest, was made {connects:.0f} times")
    if cluster.metric("lockd_internal_errors_total"):
        raise BrokenPromiseError("the agent counted an internal error")
    if grown_kib > MEMORY_MOST_KIB:
        raise BrokenPromiseError(f"the agent has grown by {grown_kib} KiB")
    eventually(lambda: cluster.voting() >= 4, "the four that are honest vote")


if __name__ == "__main__":
    about = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sys.exit(run(about, lambda options: fuzz(for_seconds(options.seconds), options.seed)))
