"""What clients must not do, done: the agent says what is wrong, and other apps notice nothing.

Beside each test an ordinary app holds a lease, and another locks, unlocks and pings.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness.cluster import Cluster
from tests.harness.processes import computed_by, memory_kib
from tests.harness.waiting import eventually
from tests.harness.wire import Bystander, Wire, as_map, kind, pour, request, token_of
from tests.redis.module_cluster import module_cluster

TTL_MS = 30_000
TOKEN = "0" * 32
COMPUTED_MOST_S = 0.5
"""While one waits: of the processor's time, which is the same however busy a machine is."""
MIB = 1024
"""In KiB, as memory is counted here."""


# An agent that stood still for longer than this doesn't know for once what the masters' clocks say.
cluster = module_cluster(3, limits={"share_percent": 10_000}, clock_skew_allowance_ms=20_000)


@pytest.fixture(autouse=True)
def others_notice_nothing(cluster: Cluster) -> Iterator[None]:
    """An ordinary app keeps its lease and is answered at once; afterwards nothing is left of the test."""
    with Wire(cluster.socket) as watcher:
        with Bystander(cluster.socket) as bystander:
            yield
            eventually(lambda: bystander.went_on(3), "the bystander has had its turns")
        assert bystander.worst_ping_cpu_s < COMPUTED_MOST_S

        def nothing_is_left() -> bool:
            info = watcher.info()
            return (info["leases"], info["waiters"], info["connected_clients"]) == ("0", "0", "1")

        eventually(nothing_is_left, "no lease, waiter or connection is left")


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[Wire]:
    with Wire(cluster.socket) as connected:
        yield connected


@pytest.fixture
def connect(cluster: Cluster) -> Iterator[Callable[..., Wire]]:
    """A new connection, closed after the test."""
    with ExitStack() as stack:
        yield lambda protocol=2: stack.enter_context(Wire(cluster.socket, protocol))


def fails(wire: Wire, *words: Any, error: str = "ERR") -> str:
    """The command is refused, and the connection goes on. Returns the error."""
    reply = wire.ask(*words)
    assert kind(reply) == error, (words, reply)
    assert wire.ask("ECHO", "goes on") == b"goes on"
    return str(reply)


# Commands


NO_COMMANDS = [
    b"GET", b"EVAL", b"SHUTDOWN", b"", b"*", b"LOCK ", b" LOCK", b"LOCK\0", b"L\r\nK", b"\xff\xfe",
    "LÖCK".encode(), b"x" * 60_000, bytes(range(256)),
]  # fmt: skip


def test_an_unknown_command_is_an_error_in_one_short_line(wire: Wire) -> None:
    for name in NO_COMMANDS:
        assert len(fails(wire, name)) < 1_000
        assert len(fails(wire, name, "a", "b", "c")) < 1_000


MISUSED = [
    "LOCK", "LOCK r", "UNLOCK r", f"UNLOCK r {TOKEN} x", f"EXTEND r {TOKEN}", f"EXTEND r {TOKEN} 1000 x",
    "HOLDER", "HOLDER a b", "LOCKS a b", "LOCKS a b LOCAL", "MASTERS x", "FORCERELEASE",
    "FORCERELEASE r HOLDER", "FORCERELEASE r 00000000", f"FORCERELEASE r HOLDER {TOKEN} x", "FORM UNUSED x",
    "FORM USED", "ADMIT", "ADMIT a b", "ECHO", "ECHO a b", "SELECT", "SELECT 0 1", "CLIENT", "CLIENT ID x",
    "CLIENT SETNAME", "CLIENT SETNAME a b", "CLIENT GETNAME x", "CLIENT SETINFO LIB-NAME",
    "CLIENT SETINFO LIB-NAME a b", "CLIENT INFO x", "CLIENT NONE", "COMMAND COUNT x", "COMMAND LIST x",
    "COMMAND NONE", "COMMAND LIST FILTERBY", "COMMAND LIST FILTERBY NONE x", "HELLO 2 x", "HELLO 3 AUTH u",
    "HELLO 3 SETNAME",
]  # fmt: skip


def test_too_few_or_too_many_words_are_an_error(wire: Wire) -> None:
    for command in MISUSED:
        fails(wire, *command.split())
    for name in ("LOCK", "UNLOCK", "HOLDER", "LOCKS", "MASTERS", "FORM", "PING", "ECHO", "CLIENT"):
        fails(wire, name, *(["1000"] * 100))


BAD_NUMBERS = [
    "-1", "-0", "1.5", "1e3", "0x10", "", " ", "abc", " 1000", "1000 ", "+1000", "1_000", "1000\n",
    "\0001000", "NaN", "inf", "9223372036854775807", "9223372036854775808", "18446744073709551616",
    "-9223372036854775808", "9" * 5_000, "٣٠٠٠", "１０００", "²", b"\xff", "1000;",
]  # fmt: skip


def test_a_bad_number_of_milliseconds_is_told_with_what_would_be_right(wire: Wire) -> None:
    for number in BAD_NUMBERS:
        assert "0 to 60000" in fails(wire, "LOCK", "bad:ttl", TTL_MS, "WAIT", number)
        assert "1 to 3600000" in fails(wire, "LOCK", "bad:ttl", TTL_MS, "MAXHOLD", number)
        assert "100 to 60000" in fails(wire, "EXTEND", "bad:ttl", TOKEN, number)
    for number in (*BAD_NUMBERS, "0", "99", "60001", "600000"):
        assert "100 to 60000" in fails(wire, "LOCK", "bad:ttl", number)


def test_the_least_and_the_most_are_allowed(wire: Wire) -> None:
    for ttl_ms in (100, 60_000):
        token = token_of(wire.ask("LOCK", "bad:edge", ttl_ms, "WAIT", 0, "MAXHOLD", 3_600_000))
        assert wire.ask("UNLOCK", "bad:edge", token) == 1


BAD_OPTIONS = [
    ["WAIT"], ["MAXHOLD"], ["WAIT", "WAIT", "5"], ["NX"], [""], ["DETACHED", "5"], ["WAIT", "5", "x"],
    ["MAXHOLD", "0"], ["MAXHOLD", str(TTL_MS - 1)], ["MAXHOLD", "3600001"], ["WAIT", "60001"], ["DETACHED\0"],
    [b"\xff\0\r\n"], ["TOKEN"],
]  # fmt: skip
NO_TOKENS = [
    "", " ", "a b", "0" * 65, "0" * 32 + "\n", "٠" * 16, b"\0" * 32, b"\x7f", b"\xff" * 32, "0" * 60_000,
]  # fmt: skip


def test_options_that_are_garbage_lock_nothing(wire: Wire) -> None:
    for options in BAD_OPTIONS:
        fails(wire, "LOCK", "bad:option", TTL_MS, *options)
        assert wire.ask("HOLDER", "bad:option") is None


def test_what_is_no_token_and_no_holder_is_an_error(wire: Wire) -> None:
    for token in NO_TOKENS:
        fails(wire, "UNLOCK", "bad:token", token)
        fails(wire, "EXTEND", "bad:token", token, TTL_MS)
        fails(wire, "LOCK", "bad:token", TTL_MS, "TOKEN", token)
    for holder in ("", "0" * 7, "0" * 33, "G" * 8, "*", "0000000\n"):
        fails(wire, "FORCERELEASE", "bad:holder", "HOLDER", holder)


# Resources

RESOURCES = [
    bytes(range(256)), b"\0", b"\r\n", b" ", b"a b c", b"*", b"[a-z]", b"?*[^]\\", b"$5\r\nhello\r\n",
    b"-ERR x\r\n", b"\xff" * 512, b"x" * 512, "größe:Ω:鎖".encode(), b"lockd:lease:x",
    b"lockd:identity", b"lockd:fences", b"..", b"%s%n%x{}", b"\x1b[31m",
]  # fmt: skip


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_resource_may_have_any_bytes(connect: Callable[..., Wire], protocol: int) -> None:
    wire, other = connect(protocol), connect(protocol)
    for name in RESOURCES:
        token = token_of(wire.ask("LOCK", name, TTL_MS))
        assert kind(other.ask("LOCK", name, TTL_MS)) == "TAKEN"
        assert as_map(other.ask("HOLDER", name))[b"resource"] == name
        for local in ([], ["LOCAL"]):
            assert name in [as_map(entry)[b"resource"] for entry in other.ask("LOCKS", *local)]
        assert token_of(wire.ask("EXTEND", name, token, TTL_MS)) == token
        assert wire.ask("UNLOCK", name, token) == 1


def test_the_loss_of_such_a_resource_is_one_push_one_error_and_one_line_in_the_log(
    connect: Callable[..., Wire], cluster: Cluster
) -> None:
    resp2, resp3, operator = connect(2), connect(3), connect()
    for name in RESOURCES:
        for wire in (resp2, resp3):
            token_of(wire.ask("LOCK", name, TTL_MS, "NOTIFY"))
            operator.ask("FORCERELEASE", name)
        assert kind(resp2.ask("PING")) == "EXPIRED"
        assert resp3.push()[1] == name
    assert all(re.match(r"ts=\S+ level=", line) for line in cluster.log_text().splitlines())


# What isn't RESP

BROKEN = {
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n": b"looks like HTTP",
    bytes.fromhex("16030100f8010000f40303") + bytes(range(200)): b"looks like TLS",
    b"*1\r\n$4\r\nPING\r\n*1\r\nx": b"+PONG\r\n-ERR Protocol error: ",
    b"*1\r\n$536870912\r\n": b"-LIMIT request_bytes: ",
    b"*0\r\n" * 2_000: b"empty requests",
}


def test_what_is_not_resp_is_told_so_and_closed(cluster: Cluster) -> None:
    for stream, told in BROKEN.items():
        with Wire(cluster.socket) as wire:
            with suppress(BrokenPipeError, ConnectionResetError):
                wire.send_raw(stream)
            assert told in wire.rest()


LINES_A_SECOND = 10


def test_broken_requests_are_counted_and_do_not_fill_the_log(cluster: Cluster) -> None:
    counted = cluster.metric("lockd_protocol_errors_total")
    lines, begin_s = cluster.log_text().count("\n"), time.monotonic()
    for _ in range(1_000):
        with Wire(cluster.socket) as wire:
            wire.send_raw(b"nonsense\r\n")
            wire.rest()
    assert cluster.metric("lockd_protocol_errors_total") == counted + 1_000
    # So many at once, and so many a second: on a slow machine these are more.
    most = 200 + LINES_A_SECOND * (time.monotonic() - begin_s)
    assert cluster.log_text().count("\n") < lines + most


def test_a_request_that_is_cut_anywhere_and_left_alone_does_nothing(cluster: Cluster, wire: Wire) -> None:
    data = request("LOCK", "bad:cut", TTL_MS, "DETACHED")
    for cut in range(len(data)):
        with Wire(cluster.socket) as half:
            half.send_raw(data[:cut])
    assert wire.ask("HOLDER", "bad:cut") is None


# Memory and time


@dataclass
class Computing:
    """How much of the processor's time the agent had during a block."""

    total_s: float = 0.0


@contextmanager
def computing(cluster: Cluster) -> Iterator[Computing]:
    had, before_s = Computing(), computed_by(cluster.agent.pid)
    yield had
    had.total_s = computed_by(cluster.agent.pid) - before_s


@contextmanager
def memory_grows_by_less_than(kib: int, cluster: Cluster) -> Iterator[None]:
    """During the block, and a moment after what it did has arrived."""
    before_kib = memory_kib(cluster.agent.pid)
    yield
    with Wire(cluster.socket) as wire:
        for _ in range(20):
            assert wire.ask("PING") == b"PONG"
    grown_kib = memory_kib(cluster.agent.pid) - before_kib
    assert grown_kib < kib, f"the agent has grown by {grown_kib} KiB"


@pytest.fixture
def thousand_leases(connect: Callable[..., Wire]) -> None:
    wire = connect()
    for start in range(0, 1_000, 250):
        wire.send_raw(
            b"".join(request("LOCK", f"bad:many:{start + n}", 60_000, "WAIT", 10_000) for n in range(250))
        )
        for _ in range(250):
            token_of(wire.reply())


@pytest.mark.usefixtures("thousand_leases")
def test_big_replies_that_are_never_read_are_bounded_too(cluster: Cluster, wire: Wire) -> None:
    with memory_grows_by_less_than(64 * MIB, cluster), ExitStack() as stack:
        for _ in range(20):
            pour(stack.enter_context(Wire(cluster.socket)), request("LOCKS", "LOCAL"), 64, wire)


@pytest.mark.usefixtures("thousand_leases")
def test_listings_that_nobody_waits_for_any_more_keep_nobody_waiting(cluster: Cluster, wire: Wire) -> None:
    with computing(cluster) as for_one:
        assert len(wire.ask("LOCKS")) >= 1_000
    for _ in range(ABANDONED):
        with Wire(cluster.socket) as gone:
            gone.send("LOCKS")
    with computing(cluster) as for_one_behind_them:
        assert wire.ask("LOCKS", "nothing") == []
    assert for_one_behind_them.total_s < for_one.total_s * ABANDONED / 4


ABANDONED = 300


COSTLY = [
    b"*a" * 30_000, b"[" * 60_000, b"[a-z]*" * 9_000, b"*?" * 30_000, b"\\" * 59_999, b"*a" * 16 + b"b",
    b"[z-a]", b"[[:alpha:]]", b"\xff*\0",
]  # fmt: skip


def test_a_pattern_made_to_cost_time_costs_little(cluster: Cluster, wire: Wire) -> None:
    token_of(wire.ask("LOCK", "a" * 512, TTL_MS, "WAIT", 1_000))
    for pattern in COSTLY:
        for local in ([], ["LOCAL"]):
            with computing(cluster) as to_answer:
                wire.ask("LOCKS", pattern, *local)
            assert to_answer.total_s < COMPUTED_MOST_S


def test_a_long_pipeline_behind_a_waiting_lock_waits_with_it(connect: Callable[..., Wire]) -> None:
    holder, waiter = connect(), connect()
    token = token_of(holder.ask("LOCK", "bad:behind", TTL_MS))
    waiter.send("LOCK", "bad:behind", TTL_MS, "WAIT", 60_000)
    waiter.send_raw(b"".join(request("ECHO", number) for number in range(2_000)))
    eventually(lambda: holder.info()["waiters"] == "1", "it waits")
    assert holder.ask("UNLOCK", "bad:behind", token) == 1
    assert token_of(waiter.reply()) != token
    assert [waiter.reply() for _ in range(2_000)] == [b"%d" % number for number in range(2_000)]


def test_a_pipeline_that_is_sent_before_a_reply_is_read_finishes(connect: Callable[..., Wire]) -> None:
    """As redis-py, Jedis and others do: neither side would go on, if the agent waited for its reader."""
    wire, number = connect(), 10_000
    names = [f"bad:long:{at}" for at in range(200)]
    leases = [(name, token_of(wire.ask("LOCK", name, 60_000))) for name in names]
    unknown = [("bad:long:unknown", "0" * 32)] * 3
    sent = [(leases + unknown)[at % 203] for at in range(number)]
    wire.send_raw(b"".join(request("UNLOCK", *lease) for lease in sent))
    replies = [wire.reply() for _ in sent]
    assert replies.count(1) == len(leases)
    # Of what it doesn't know it asks the masters, who may not be heard for once: NOQUORUM.
    assert {kind(reply) for reply in replies if reply != 1} <= {"NOTHELD", "LIMIT", "NOQUORUM"}


# Many


def test_a_storm_of_connections_leaves_nothing_behind(cluster: Cluster) -> None:
    choose = random.Random(7)
    lock = request("LOCK", "bad:storm", TTL_MS, "WAIT", 10_000)
    things = [
        b"", b"", b"junk\r\n", lock, lock[:20], lock * 20, lock + request("PING") * 10,
        request("HELLO", 3) + lock, request("LOCK", "bad:storm", 100), request("HOLDER", "bad:storm"),
        request("QUIT"),
    ]  # fmt: skip
    for _ in range(2_000):
        with Wire(cluster.socket) as wire, suppress(BrokenPipeError, ConnectionResetError):
            wire.send_raw(choose.choice(things))


def test_a_storm_of_locks_that_are_dropped_at_once_leaves_nothing_on_the_masters(
    cluster: Cluster, wire: Wire
) -> None:
    for number in range(500):
        with Wire(cluster.socket) as gone:
            gone.send("LOCK", f"bad:dropped:{number}", 60_000)
    eventually(lambda: wire.ask("LOCKS", "bad:dropped:*") == [], "none is on the masters")
