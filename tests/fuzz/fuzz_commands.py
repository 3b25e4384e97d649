"""Throws random commands at a running agent over several connections, and stops at the first broken promise.

    python -m tests.fuzz.fuzz_commands --seconds 30 [--seed N] [--socket PATH]

Requests are right, slightly wrong, mutated byte by byte, cut, and left half-sent. The promises: the agent
stays alive; each complete request is answered once, in order, and as its command should be; what isn't RESP
is told so and closed; a fence is given once; meanwhile another connection locks and unlocks as ever, a third
keeps its session lease, and the agent's memory is bounded; in the end no lease, waiter or connection is left.

Which requests a mutated stream holds is decided by the agent's own exact parser, which fuzz_resp.py tests.
Without --socket a cluster is started. The seed reproduces what is sent, not how it falls together.
"""

import argparse
import random
import re
import select
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path
from typing import Any

import hiredis

from lockd.core.errors import ErrorWord
from lockd.server.resp import requests
from tests.fuzz.command_line import BrokenPromiseError, GoesOn, for_seconds, run
from tests.harness.cluster import running_cluster
from tests.harness.processes import memory_kib
from tests.harness.waiting import PATIENCE_S, eventually
from tests.harness.wire import Bystander, Wire, as_map, request

ERRORS = frozenset(map(str, ErrorWord)) | {"NOPROTO", "NOSCRIPT", "EXECABORT"}
LEASE_KEYS = {b"token", b"fence", b"validity_ms", b"deadline_ns", b"bound"}
CONNECTIONS = 6
UNANSWERED_MOST = 40
BURSTS = (*range(1, 13),) * 10 + (64, 65, 2_500)
"""Requests at a time: the last is more than the agent reads ahead."""
_MANY = 1_000
"""In so many none waits and none is the last: each of Redis's own commands takes its turn, behind all before
it, and what is sent behind a QUIT is not waited for."""
MEMORY_MOST_KIB = 96 * 1024
LONGEST_TTL_MS = 2_000
_NAME = b"fuzz-"
RESOURCES = [b"fuzz:%d" % number for number in range(6)] + [b"fuzz:\r\n\0 \xff", b"fuzz:" + b"x" * 500]


# What is sent


@dataclass
class Known:
    """What the connections share: the choices, the tokens seen, and the fences given."""

    choose: random.Random
    tokens: deque[tuple[bytes, bytes]] = field(default_factory=lambda: deque([(b"fuzz:0", b"0" * 32)], 64))
    fences: dict[tuple[bytes, int], bytes] = field(default_factory=dict)
    requests: int = 0
    grants: int = 0
    plain_grants: int = 0
    broken: int = 0


def random_request(known: Known, burst: int = 1) -> list[bytes]:
    """A command that is right, or that has one word wrong, missing or too many; of so many at a time."""
    words = _right_request(known, burst)
    choose = known.choose
    if choose.random() < 0.15:
        _spoil(words, choose)
    return words or [b""]


def _right_request(known: Known, burst: int) -> list[bytes]:
    choose = known.choose
    resource = choose.choice(RESOURCES)
    owned, token = choose.choice(known.tokens)
    ttl = b"%d" % choose.choice((100, 150, 300, 1_000, LONGEST_TTL_MS))
    are_few = burst < _MANY
    makers: list[tuple[int, Callable[[], list[bytes]]]] = [
        (30, lambda: [b"LOCK", resource, ttl, *_lock_options(choose, waits=are_few)]),
        (15, lambda: [b"UNLOCK", owned, token]),
        (6, lambda: [b"EXTEND", owned, token, ttl]),
        (30, lambda: [b"ECHO", b"%032x" % choose.getrandbits(128)]),
        (4, lambda: [b"HOLDER", resource]),
        (2, lambda: [b"LOCKS", b"fuzz:*", *([b"LOCAL"] if choose.random() < 0.5 else [])]),
        (3, lambda: [b"FORCERELEASE", resource]),
        (2, lambda: [b"FORCERELEASE", owned, b"HOLDER", token[:8]]),
        (10, lambda: choose.choice(_SMALL)[:]),
        (40, lambda: _as_redis_has_it(resource, ttl, choose)),
        (2 if are_few else 0, lambda: choose.choice(_WAITING)(resource)),
        (1 if are_few else 0, lambda: [choose.choice((b"QUIT", b"quit"))]),
    ]
    [make] = choose.choices([maker for _, maker in makers], [weight for weight, _ in makers])
    return make()


_VALUES = (b"1", b"locked", b"worker 7", b"", b"\0", b"x" * 512)
_SCRIPTS = (
    b"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
    b"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) "
    b"else return 0 end",
    b"return redis.call('flushall')",
)
_WITH_VALUE = (b"SETNX", b"DELIFEQ", b"CAD")
_OF_KEY = (b"GET", b"EXISTS", b"TTL", b"PTTL", b"PERSIST", b"DEL", b"UNLINK")
INTEGERS = frozenset((*_WITH_VALUE, *_OF_KEY, b"DELEX", b"CAS", b"EXPIRE", b"PEXPIRE", b"WAIT")) - {b"GET"}


def _as_redis_has_it(resource: bytes, ttl: bytes, choose: random.Random) -> list[bytes]:
    value = choose.choice(_VALUES)
    px = choose.choice(([], [b"PX", ttl], [b"EX", b"1"]))
    condition = choose.choice(([b"NX"], [b"NX"], [b"nx", b"GET"], [b"XX"], [b"IFEQ", value], []))
    script, sha = choose.choice(_SCRIPTS), b"%040x" % choose.getrandbits(160)
    return choose.choice(
        (
            [b"SET", resource, value, *condition, *px],
            [b"SET", resource, value, *condition, *px],
            [choose.choice(_WITH_VALUE), resource, value],
            [choose.choice(_OF_KEY), resource],
            [choose.choice((b"DEL", b"UNLINK")), *choose.choices(RESOURCES, k=3)],
            [b"DELEX", resource, b"IFEQ", value],
            [b"CAS", resource, value, value, *px],
            [choose.choice((b"EXPIRE", b"PEXPIRE")), resource, ttl[:-3] or b"1"],
            [b"EVAL", script, b"1", resource, value, ttl],
            [b"EVAL_RO", script, b"1", resource, value],
            [b"EVALSHA", choose.choice((sha, sha1(script).hexdigest().encode())), b"1", resource, value, ttl],
            [b"SCRIPT", *choose.choice(([b"LOAD", script], [b"EXISTS", sha], [b"FLUSH"]))],
            [choose.choice((b"MULTI", b"EXEC", b"EXEC", b"DISCARD"))],
        )
    )


_WAITING: tuple[Callable[[bytes], list[bytes]], ...] = (
    lambda _resource: [b"WAIT", b"3", b"10"],
    lambda resource: [b"BLPOP", b"lock-signal:" + resource, b"0.01"],
)
_SMALL = [
    line.split()
    for line in (
        b"PING", b"PING m", b"INFO", b"INFO agent", b"MASTERS", b"SELECT 0", b"FORM", b"FORM UNUSED",
        b"ADMIT m1", b"HELLO", b"HELLO 2", b"HELLO 3", b"CLIENT ID", b"CLIENT GETNAME", b"CLIENT INFO",
        b"CLIENT SETNAME fuzz", b"CLIENT SETINFO LIB-NAME f", b"COMMAND", b"COMMAND COUNT", b"COMMAND LIST",
        b"COMMAND DOCS LOCK", b"GET x",
        b"SUBSCRIBE x", b"CLIENT TRACKING ON", b"HSET x y z", b"WATCH x", b"UNWATCH",
    )
]  # fmt: skip


def _lock_options(choose: random.Random, *, waits: bool) -> list[bytes]:
    wait = b"%d" % choose.choice((0, 1, 20, 200))
    name = _NAME + b"%d" % choose.randrange(50)
    options = [[b"MAXHOLD", b"5000"], [b"DETACHED"], [b"NOTIFY"], [b"TOKEN", name]]
    options += [[b"WAIT", wait]] if waits else []
    return [word for option in options if choose.random() < 0.3 for word in option]


_BAD_WORDS = (b"", b"-1", b"0", b"9" * 20, b"\xff\0\r\n", b"1.5", b"x" * 513, "٣".encode(), b"WAIT", b"*")


def _spoil(words: list[bytes], choose: random.Random) -> None:
    bad = choose.choice(_BAD_WORDS)
    place = choose.randrange(len(words) + 1)
    action = choose.randrange(3)
    if action == 0 or place == len(words):
        words.insert(place, bad)
    elif action == 1:
        words[place] = bad
    else:
        del words[place]


_BAD_PIECES = (b"\r\n", b"*1\r\n", b"$", b"*0\r\n", b"0", b"-", b"$-1\r\n", b"\0")


def mutated(data: bytes, choose: random.Random) -> bytes:
    """A few bytes changed, doubled, dropped or put in."""
    stream = bytearray(data)
    for _ in range(choose.randint(1, 4)):
        place = choose.randrange(len(stream) + 1)
        action = choose.randrange(4)
        if action == 0:
            stream[place : place + 1] = bytes([choose.randrange(256)])
        elif action == 1:
            stream[place:place] = choose.choice(_BAD_PIECES)
        elif action == 2:
            del stream[place : place + choose.randint(1, 8)]
        else:
            stream[place:place] = stream[place : place + choose.randint(1, 40)]
    return bytes(stream)


# Who sends it, and looks at the answers


class Talker:
    """One connection after another, and what each is still owed."""

    def __init__(self, path: str, known: Known) -> None:
        self._path = path
        self._known = known
        self._connect()

    def _connect(self) -> None:
        self.wire = Wire(self._path)
        self._oracle = requests.ExactParser(65_536)
        self._owed: deque[list[bytes]] = deque()
        self._answered: deque[tuple[list[bytes], Any]] = deque(maxlen=4)
        self._ending = False
        self._sent = bytearray()
        self._since_s = time.monotonic()

    def step(self) -> None:
        """Send some more, or go away."""
        choose = self._known.choose
        if choose.random() < 0.01:
            self.wire.close()
            self._connect()
        elif not self._ending and len(self._owed) < UNANSWERED_MOST:
            burst = choose.choice(BURSTS)
            data = b"".join(request(*random_request(self._known, burst)) for _ in range(burst))
            if choose.random() < 0.03:
                data = mutated(data, choose)
            elif choose.random() < 0.02:
                data = data[: choose.randrange(len(data))]
            self._send(data)

    def _send(self, data: bytes) -> None:
        if not self._owed:
            self._since_s = time.monotonic()
        self._sent += data
        self._foresee(data)
        cut = self._known.choose.randrange(len(data) + 1)
        try:
            self._send_whole(data[:cut])
            self._send_whole(data[cut:])
        except (ConnectionResetError, BrokenPipeError):
            if not self._ending:
                self._fail("the agent closed the connection")

    def _send_whole(self, data: bytes) -> None:
        """Before anything is read. Thousands of requests take their time: it is enough that it goes on."""
        while data:
            data = data[self.wire.socket.send(data) :]

    def _foresee(self, data: bytes) -> None:
        """Which requests the agent finds in this; an empty one stands for what isn't RESP."""
        self._oracle.feed(data)
        try:
            while not self._ending and (words := self._oracle.next()) is not None:
                self._owed.append(words)
                self._ending = words[0].upper() == b"QUIT"
        except requests.ProtocolError:
            self._owed.append([])
            self._ending = True

    def read(self) -> None:
        """Take what has come."""
        is_open = self.wire.feed_once()
        while (reply := self.wire.reply_that_is_here()) is not None:
            if not self._owed:
                self._fail(f"a reply to nothing: {reply[0]!r}")
            words = self._owed.popleft()
            self._answered.append((words, reply[0]))
            self._check(words, reply[0])
            self._since_s = time.monotonic()
        while self.wire.pushes:
            self._check_push(self.wire.pushes.popleft())
        if not is_open:
            if not self._ending or self._owed:
                first = list(self._owed)[:1]
                self._fail(
                    f"closed with {len(self._owed)} requests unanswered, of which the first is {first}"
                )
            self.wire.close()
            self._connect()

    def impatient(self) -> None:
        """Has something been owed for too long?"""
        waited_s = time.monotonic() - self._since_s
        if waited_s > PATIENCE_S and (self._owed or self._ending):
            self._fail(f"no answer for {waited_s:.1f} s to {list(self._owed)[:1]}")

    def _check(self, words: list[bytes], reply: Any) -> None:
        known = self._known
        known.requests += 1
        if not words:
            known.broken += 1
            if not re.match("ERR Protocol error|LIMIT request_bytes", str(reply)):
                self._fail(f"what isn't RESP got {reply!r}")
            return
        if isinstance(reply, hiredis.ReplyError):
            self._check_error(words, str(reply))
            return
        name = words[0].upper()
        if reply == b"QUEUED":
            return
        known.plain_grants += (name == b"SET" and reply == b"OK") or (name == b"SETNX" and reply == 1)
        if name in INTEGERS and not isinstance(reply, int):
            self._fail(f"{words} got {reply!r}, which is no number")
        if name in (b"SET", b"GET") and not isinstance(reply, bytes | None):
            self._fail(f"{words} got {reply!r}")
        if name == b"ECHO" and reply != words[1]:
            self._fail(f"{words} got {reply!r}: an answer of another command")
        if name == b"PING" and reply != (words[1] if len(words) > 1 else b"PONG"):
            self._fail(f"{words} got {reply!r}: an answer of another command")
        if name == b"QUIT" and reply != b"OK":
            self._fail(f"QUIT got {reply!r}")
        if name in (b"LOCK", b"EXTEND"):
            self._check_lease(words, reply)

    def _check_error(self, words: list[bytes], text: str) -> None:
        kind = text.split(" ", 1)[0]
        if kind not in ERRORS or "internal error of the agent" in text:
            self._fail(f"{words} got -{text}")
        if words[0].upper() in (b"ECHO", b"PING") and kind not in ("EXPIRED", "ERR"):
            self._fail(f"{words} got -{text}: an answer of another command")

    def _check_lease(self, words: list[bytes], reply: Any) -> None:
        lease = as_map(reply) if isinstance(reply, list | dict) else {}
        if set(lease) != LEASE_KEYS or lease[b"validity_ms"] < 0:
            self._fail(f"{words} got {reply!r}")
        if words[0].upper() == b"LOCK":
            self._known.grants += 1
            self._known.tokens.append((words[1], lease[b"token"]))
            token, fence = lease[b"token"], lease[b"fence"]
            before = self._known.fences.setdefault((words[1], fence), token)
            if before is not token and (before != token or not token.startswith(_NAME)):
                self._fail(f"the fence {fence} of {words[1]!r} was given twice")

    def _check_push(self, push: list[Any]) -> None:
        sizes = {b"lost": 5, b"renewed": 4}
        if sizes.get(push[0]) != len(push):
            self._fail(f"a push like no other: {push!r}")

    def _fail(self, why: str) -> None:
        why += f"\nThe last answers: {list(self._answered)}"
        raise BrokenPromiseError(f"{why}\nThe last bytes of this connection: {bytes(self._sent[-2_000:])!r}")


# The whole


def fuzz(path: Path | str, goes_on: GoesOn, seed: int) -> str:
    """Run until so many requests were answered. What was done, in a line; AssertionError when a promise is
    broken."""
    known = Known(random.Random(seed))
    with Wire(path) as watcher:
        pid, before = watcher.agent_pid(), watcher.info()
        kib = memory_kib(pid)
        with Bystander(path) as bystander:
            talk(str(path), known, goes_on)
        _release_without_ttl(watcher)
        grown_kib = memory_kib(pid) - kib
        if grown_kib > MEMORY_MOST_KIB:
            raise BrokenPromiseError(f"the agent has grown by {grown_kib} KiB")
        nothing_is_left(watcher, before)
    return (
        f"{known.requests} requests, {known.grants} leases, {known.plain_grants} SETs, "
        f"{known.broken} broken streams; "
        f"{bystander.rounds} locks beside them, {bystander.worst_s * 1e3:.0f} ms at worst; "
        f"memory grew by {grown_kib} KiB"
    )


def talk(path: str, known: Known, goes_on: GoesOn) -> None:
    talkers = [Talker(path, known) for _ in range(CONNECTIONS)]
    try:
        while goes_on(known.requests):
            known.choose.choice(talkers).step()
            for talker in _readable(talkers, 0.001):
                talker.read()
            for talker in talkers:
                talker.impatient()
    finally:
        for talker in talkers:
            talker.wire.close()


def _readable(talkers: list[Talker], timeout_s: float) -> list[Talker]:
    by_socket = {talker.wire.fileno(): talker for talker in talkers}
    readable, _, _ = select.select(list(by_socket), [], [], timeout_s)
    return [by_socket[number] for number in readable]


def _release_without_ttl(watcher: Wire) -> None:
    """What was locked so lives with its process, which is this one."""
    for lease in watcher.ask("LOCKS", "*", "LOCAL"):
        watcher.ask("DEL", as_map(lease)[b"resource"])


def nothing_is_left(watcher: Wire, before: dict[str, str]) -> None:
    """Return when there are as many leases (some take their TTL, and a mutated number may be a long one),
    waiters and connections as before."""
    kept = ("leases", "waiters", "connected_clients")

    def as_before() -> bool:
        now = watcher.info()
        assert {name: now[name] for name in kept} == {name: before[name] for name in kept}
        return True

    eventually(as_before, f"{', '.join(kept)} are as they were before")


def fuzz_as_told(options: argparse.Namespace) -> str:
    """The agent of --socket, else one of its own."""
    if options.socket:
        return fuzz(options.socket, for_seconds(options.seconds), options.seed)
    with running_cluster() as cluster:
        return fuzz(cluster.socket, for_seconds(options.seconds), options.seed)


if __name__ == "__main__":
    about = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    about.add_argument("--socket", type=Path, help="of a running agent; without it a cluster is started")
    sys.exit(run(about, fuzz_as_told))
