"""What clients must not do, done: the agent says what is wrong, and other apps notice nothing.

Beside each test an ordinary app holds a session lease of two seconds and another locks, unlocks and pings.
"""

from __future__ import annotations

import os
import random
import re
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cluster import Cluster, running_cluster
from tests.harness.processes import memory_kib
from tests.harness.waiting import eventually
from tests.harness.wire import Bystander, Wire, as_map, kind, request, token_of

TTL_MS = 5_000
TOKEN = "0" * 32
CROWD = 10_000
LATENCY_MOST_S = 0.5
MIB = 1024
"""In KiB, as memory is counted here."""


@pytest.fixture(scope="module")
def cluster(server_binary: Path) -> Iterator[Cluster]:
    limits = {"connections": CROWD + 1_000, "connections_per_user": CROWD + 1_000}
    with running_cluster(3, max_ttl_ms=60_000, limits=limits) as running:
        yield running


def waited_for_processor_s(cluster: Cluster) -> float:
    """How long the agent and we were ready to run, and other programs of this machine ran."""
    tasks = (task for pid in (cluster.agent.pid, os.getpid()) for task in Path(f"/proc/{pid}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[1]) for task in tasks) / 1e9


@pytest.fixture(autouse=True)
def others_notice_nothing(cluster: Cluster) -> Iterator[None]:
    """An ordinary app keeps its lease and is answered at once; afterwards nothing is left of the test."""
    with Wire(cluster.socket) as watcher:
        with Bystander(cluster.socket) as bystander:
            waited_s = -waited_for_processor_s(cluster)
            yield
            eventually(
                lambda: bystander.trouble or bystander.rounds > 3, 10, "the bystander has had its turns"
            )
            waited_s += waited_for_processor_s(cluster)
        assert bystander.worst_ping_s < LATENCY_MOST_S + waited_s

        def nothing_is_left() -> bool:
            info = watcher.info()
            return (info["leases"], info["waiters"], info["connected_clients"]) == ("0", "0", "1")

        eventually(nothing_is_left, 10, "no lease, waiter or connection is left")


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


@pytest.mark.parametrize(
    "name",
    [b"GET", b"SET", b"EVAL", b"WATCH", b"SHUTDOWN", b"", b"*", b"LOCK ", b" LOCK", b"LOCK\0", b"L\r\nK",
     b"\xff\xfe", "LÖCK".encode(), b"x" * 60_000, bytes(range(256))],
    ids=lambda name: ascii(name[:12]),
)  # fmt: skip
def test_an_unknown_command_is_an_error_in_one_short_line(wire: Wire, name: bytes) -> None:
    assert len(fails(wire, name)) < 1_000
    assert len(fails(wire, name, "a", "b", "c")) < 1_000


WRONG_LENGTHS = [
    "LOCK", "LOCK r", "UNLOCK", "UNLOCK r", f"UNLOCK r {TOKEN} x", "EXTEND", "EXTEND r",
    f"EXTEND r {TOKEN}", f"EXTEND r {TOKEN} 1000 x", "HOLDER", "HOLDER a b", "LOCKS a b",
    "LOCKS a b LOCAL", "MASTERS x", "FORCERELEASE", "FORCERELEASE r HOLDER", "FORCERELEASE r 00000000",
    f"FORCERELEASE r HOLDER {TOKEN} x", "FORM UNUSED x", "FORM USED", "ADMIT", "ADMIT a b", "PING a b",
    "ECHO", "ECHO a b", "SELECT", "SELECT 0 1", "CLIENT", "CLIENT ID x", "CLIENT SETNAME",
    "CLIENT SETNAME a b", "CLIENT GETNAME x", "CLIENT SETINFO", "CLIENT SETINFO LIB-NAME",
    "CLIENT SETINFO LIB-NAME a b", "CLIENT INFO x", "CLIENT NONE", "COMMAND COUNT x", "COMMAND LIST x",
    "COMMAND NONE", "COMMAND LIST FILTERBY", "COMMAND LIST FILTERBY NONE x", "HELLO 2 x",
    "HELLO 3 AUTH", "HELLO 3 AUTH u", "HELLO 3 SETNAME",
]  # fmt: skip


@pytest.mark.parametrize("command", WRONG_LENGTHS)
def test_too_few_or_too_many_words_are_an_error(wire: Wire, command: str) -> None:
    fails(wire, *command.split())


@pytest.mark.parametrize(
    "name", ["LOCK", "UNLOCK", "HOLDER", "LOCKS", "MASTERS", "FORM", "PING", "ECHO", "CLIENT"]
)
def test_a_hundred_words_are_an_error(wire: Wire, name: str) -> None:
    fails(wire, name, *(["1000"] * 100))


# Numbers

BAD_NUMBERS = [
    "-1", "-0", "1.5", "1e3", "0x10", "", " ", "abc", " 1000", "1000 ", "+1000", "1_000", "1000\n",
    "\0001000", "NaN", "inf", "9223372036854775807", "9223372036854775808", "18446744073709551616",
    "-9223372036854775808", "9" * 5_000, "٣٠٠٠", "１０００", "²", b"\xff", "1000;",
]  # fmt: skip


@pytest.mark.parametrize("number", BAD_NUMBERS, ids=lambda number: ascii(number[:12]))
def test_a_bad_number_of_milliseconds_is_told_with_what_would_be_right(
    wire: Wire, number: str | bytes
) -> None:
    assert "100 to 60000" in fails(wire, "LOCK", "bad:ttl", number)
    assert "100 to 60000" in fails(wire, "EXTEND", "bad:ttl", TOKEN, number)
    assert "0 to 60000" in fails(wire, "LOCK", "bad:ttl", TTL_MS, "WAIT", number)
    assert "1 to 3600000" in fails(wire, "LOCK", "bad:ttl", TTL_MS, "MAXHOLD", number)


@pytest.mark.parametrize("ttl", ["0", "99", "60001", "600000"])
def test_a_ttl_outside_its_limits_is_refused(wire: Wire, ttl: str) -> None:
    assert "100 to 60000" in fails(wire, "LOCK", "bad:ttl", ttl)


def test_the_least_and_the_most_are_allowed(wire: Wire) -> None:
    for ttl_ms in (100, 60_000):
        token = token_of(wire.ask("LOCK", "bad:edge", ttl_ms, "WAIT", 0, "MAXHOLD", 3_600_000))
        assert wire.ask("UNLOCK", "bad:edge", token) == 1


@pytest.mark.parametrize(
    "options",
    [["WAIT"], ["MAXHOLD"], ["WAIT", "WAIT", "5"], ["NX"], [""], ["DETACHED", "5"], ["WAIT", "5", "x"],
     ["MAXHOLD", "0"], ["MAXHOLD", "4999"], ["MAXHOLD", "3600001"], ["WAIT", "60001"],
     ["DETACHED\0"], [b"\xff\0\r\n"]],
    ids=ascii,
)  # fmt: skip
def test_options_that_are_garbage_lock_nothing(wire: Wire, options: list[str]) -> None:
    fails(wire, "LOCK", "bad:option", TTL_MS, *options)
    assert wire.ask("HOLDER", "bad:option") is None


@pytest.mark.parametrize(
    "token",
    ["", "x", "0" * 31, "0" * 33, "A" * 32, "0" * 31 + "g", "0" * 32 + "\n", "0" * 31 + "\n", "٠" * 16,
     b"\0" * 32, b"\xff" * 32, "0" * 60_000],
    ids=lambda token: ascii(token[:12]) + str(len(token)),
)  # fmt: skip
def test_what_is_no_token_is_an_error(wire: Wire, token: str | bytes) -> None:
    fails(wire, "UNLOCK", "bad:token", token)
    fails(wire, "EXTEND", "bad:token", token, TTL_MS)


@pytest.mark.parametrize("holder", ["", "0" * 7, "0" * 33, "G" * 8, "*", "0000000\n"], ids=ascii)
def test_what_is_no_holder_is_an_error(wire: Wire, holder: str) -> None:
    fails(wire, "FORCERELEASE", "bad:holder", "HOLDER", holder)


# Resources

RESOURCES = [
    bytes(range(256)), b"\0", b"\r\n", b" ", b"a b c", b"*", b"[a-z]", b"?*[^]\\", b"$5\r\nhello\r\n",
    b"-ERR x\r\n", b"\xff" * 512, b"x" * 512, "größe:Ω:鎖".encode(), b"lockd:lease:x",
    b"lockd:identity", b"lockd:fences", b"..", b"%s%n%x{}", b"\x1b[31m",
]  # fmt: skip


@pytest.mark.parametrize("name", RESOURCES, ids=lambda name: ascii(name[:16]))
def test_a_resource_may_have_any_bytes(connect: Callable[..., Wire], name: bytes) -> None:
    for protocol in (2, 3):
        wire, other = connect(protocol), connect(protocol)
        token = token_of(wire.ask("LOCK", name, TTL_MS))
        assert kind(other.ask("LOCK", name, TTL_MS)) == "TAKEN"
        assert as_map(other.ask("HOLDER", name))[b"resource"] == name
        assert name in [as_map(entry)[b"resource"] for entry in other.ask("LOCKS")]
        assert name in [as_map(entry)[b"resource"] for entry in other.ask("LOCKS", "LOCAL")]
        assert token_of(wire.ask("EXTEND", name, token, TTL_MS)) == token
        assert wire.ask("UNLOCK", name, token) == 1


@pytest.mark.parametrize("name", RESOURCES, ids=lambda name: ascii(name[:16]))
def test_the_loss_of_such_a_resource_is_one_push_one_error_and_one_line_in_the_log(
    connect: Callable[..., Wire], cluster: Cluster, name: bytes
) -> None:
    resp2, resp3 = connect(2), connect(3)
    for wire in (resp2, resp3):
        token_of(wire.ask("LOCK", name, TTL_MS, "NOTIFY"))
        resp2.send("FORCERELEASE", name) if wire is resp3 else resp3.ask("FORCERELEASE", name)
    assert kind(resp2.reply()) == "EXPIRED"
    resp2.ask("FORCERELEASE", name)
    assert resp3.push()[1] == name
    assert all(re.match(r"ts=\S+ level=", line) for line in cluster.log_text().splitlines())


def test_a_resource_is_neither_empty_nor_too_long(wire: Wire) -> None:
    for name, *rest in (
        ["LOCK", TTL_MS], ["UNLOCK", TOKEN], ["EXTEND", TOKEN, TTL_MS], ["HOLDER"], ["FORCERELEASE"]
    ):  # fmt: skip
        assert "empty" in fails(wire, name, "", *rest)
        assert "512" in fails(wire, name, "x" * 513, *rest, error="LIMIT")


# What isn't RESP

BROKEN = {
    "inline": b"PING\r\n",
    "newline alone": b"*1\r\n$4\nPING\r\n",
    "null word": b"*1\r\n$-1\r\n",
    "512 MB word": b"*1\r\n$536870912\r\n",
    "2^63 byte word": b"*1\r\n$9223372036854775808\r\n",
    "a thousand million words": b"*1000000000\r\n",
    "2^64 words": b"*18446744073709551616\r\n",
    "endless count": b"*" + b"1" * 100,
    "endless length": b"*1\r\n$" + b"1" * 100,
    "integer as word": b"*1\r\n:1\r\n",
    "array as word": b"*1\r\n*1\r\n$4\r\nPING\r\n",
    "word too long for its length": b"*1\r\n$4\r\nPINGPONG\r\n",
    "length off by one": b"*1\r\n$3\r\nPING\r\n",
    "plus": b"*+1\r\n",
    "leading zero": b"*01\r\n",
    "space": b"* 1\r\n",
    "no number": b"*\r\n",
    "letters": b"*x\r\n",
    "no array": b"$4\r\nPING\r\n",
    "map": b"%1\r\n$4\r\nPING\r\n$1\r\nx\r\n",
    "push": b">1\r\n$4\r\nPING\r\n",
    "zeros": b"\0" * 64,
    "ones": b"\xff" * 64,
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": bytes.fromhex("16030100f8010000f40303") + bytes(range(200)),
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a request after a good one": b"*1\r\n$4\r\nPING\r\n*1\r\nx",
}


@pytest.mark.parametrize("stream", BROKEN.values(), ids=BROKEN.keys())
def test_what_is_not_resp_is_told_so_and_closed(cluster: Cluster, stream: bytes) -> None:
    for pieces in ([stream], [stream[at : at + 1] for at in range(len(stream))]):
        with Wire(cluster.socket) as wire:
            with suppress(BrokenPipeError, ConnectionResetError):
                for piece in pieces:
                    wire.send_raw(piece)
            *before, last = wire.rest().split(b"\r\n")[:-1]
            assert last.startswith((b"-ERR Protocol error: ", b"-LIMIT request_bytes: "))
            assert before == ([b"+PONG"] if b"PING\r\n*1" in stream else [])


def test_an_http_client_and_a_tls_client_are_told_what_they_look_like(cluster: Cluster) -> None:
    for name in ("HTTP", "TLS"):
        with Wire(cluster.socket) as wire:
            wire.send_raw(BROKEN[name])
            assert f"looks like {name}".encode() in wire.rest()


def test_broken_requests_are_counted_and_do_not_fill_the_log(cluster: Cluster) -> None:
    counted = cluster.metric("lockd_protocol_errors_total")
    lines = cluster.log_text().count("\n")
    for _ in range(1_000):
        with Wire(cluster.socket) as wire:
            wire.send_raw(b"nonsense\r\n")
            wire.rest()
    assert cluster.metric("lockd_protocol_errors_total") == counted + 1_000
    assert cluster.log_text().count("\n") < lines + 200


def test_empty_requests_are_skipped(wire: Wire) -> None:
    wire.send_raw(b"*0\r\n*-1\r\n*-2\r\n" + request("PING") + b"*0\r\n" + request("ECHO", "x"))
    assert (wire.reply(), wire.reply()) == (b"PONG", b"x")


def test_nothing_but_empty_requests_is_not_served_for_ever(wire: Wire) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(100):
            wire.send_raw(b"*0\r\n" * 1_000)
    assert b"empty requests" in wire.rest()


def test_a_request_may_be_cut_anywhere_and_finished_later(cluster: Cluster) -> None:
    data = request("ECHO", "a\r\nb") + request("PING")
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(cluster.socket)) for _ in range(len(data))]
        for cut, wire in enumerate(wires):
            wire.send_raw(data[:cut])
        for cut, wire in enumerate(wires):
            wire.send_raw(data[cut:])
        for wire in wires:
            assert (wire.reply(), wire.reply()) == (b"a\r\nb", b"PONG")


def test_a_request_that_is_cut_anywhere_and_left_alone_does_nothing(cluster: Cluster, wire: Wire) -> None:
    data = request("LOCK", "bad:cut", TTL_MS, "DETACHED")
    for cut in range(len(data)):
        with Wire(cluster.socket) as half:
            half.send_raw(data[:cut])
    assert wire.ask("HOLDER", "bad:cut") is None


def test_a_lock_of_a_client_that_has_gone_is_not_kept(cluster: Cluster, wire: Wire) -> None:
    for _ in range(100):
        with Wire(cluster.socket) as gone:
            gone.send("LOCK", "bad:gone", TTL_MS, "WAIT", 10_000)
    eventually(lambda: wire.ask("HOLDER", "bad:gone") is None, 5, "it is free")


# Memory and time


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


def pour(wire: Wire, data: bytes, times: int) -> None:
    """Send it that often, never reading, until it is all sent or is taken no more: stalled or closed."""
    wire.socket.settimeout(0.3)
    with suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
        for _ in range(times):
            wire.socket.sendall(data)


def test_announcing_much_takes_no_memory(cluster: Cluster) -> None:
    with memory_grows_by_less_than(48 * MIB, cluster), ExitStack() as stack:
        for _ in range(500):
            wire = stack.enter_context(Wire(cluster.socket))
            wire.send_raw(b"*1024\r\n$55000\r\nx")


def test_a_million_pipelined_commands_whose_replies_are_never_read_cost_nobody_anything(
    cluster: Cluster,
) -> None:
    with memory_grows_by_less_than(32 * MIB, cluster), Wire(cluster.socket) as wire:
        pour(wire, request("PING") * 1_000, 1_000)


def test_many_clients_that_never_read_are_bounded_each(cluster: Cluster) -> None:
    with memory_grows_by_less_than(64 * MIB, cluster), ExitStack() as stack:
        for _ in range(50):
            pour(stack.enter_context(Wire(cluster.socket)), request("ECHO", "x" * 10_000), 12)


@pytest.fixture
def thousand_leases(connect: Callable[..., Wire]) -> None:
    wire = connect()
    for start in range(0, 1_000, 250):
        wire.send_raw(b"".join(request("LOCK", f"bad:many:{start + n}", 60_000) for n in range(250)))
        for _ in range(250):
            token_of(wire.reply())


@pytest.mark.usefixtures("thousand_leases")
def test_big_replies_that_are_never_read_are_bounded_too(cluster: Cluster) -> None:
    with memory_grows_by_less_than(64 * MIB, cluster), ExitStack() as stack:
        for _ in range(20):
            pour(stack.enter_context(Wire(cluster.socket)), request("LOCKS", "LOCAL") * 64, 1)


@pytest.mark.usefixtures("thousand_leases")
def test_listings_that_nobody_waits_for_any_more_keep_nobody_waiting(cluster: Cluster, wire: Wire) -> None:
    for _ in range(300):
        with Wire(cluster.socket) as gone:
            gone.send("LOCKS")
    start_s = time.monotonic()
    assert wire.ask("LOCKS", "nothing") == []
    assert time.monotonic() - start_s < 1.0


@pytest.mark.parametrize(
    "pattern",
    [b"*a" * 30_000, b"[" * 60_000, b"[a-z]*" * 9_000, b"*?" * 30_000, b"\\" * 59_999, b"*a" * 16 + b"b",
     b"[z-a]", b"[[:alpha:]]", b"\xff*\0"],
    ids=lambda pattern: ascii(pattern[:10]),
)  # fmt: skip
@pytest.mark.parametrize("local", [True, False], ids=["local", "masters"])
def test_a_pattern_made_to_cost_time_costs_little(wire: Wire, pattern: bytes, local: bool) -> None:
    token_of(wire.ask("LOCK", "a" * 512, TTL_MS))
    start_s = time.monotonic()
    wire.ask("LOCKS", pattern, *(["LOCAL"] if local else []))
    assert time.monotonic() - start_s < LATENCY_MOST_S


def test_a_long_pipeline_behind_a_waiting_lock_waits_with_it(connect: Callable[..., Wire]) -> None:
    holder, waiter = connect(), connect()
    token = token_of(holder.ask("LOCK", "bad:behind", TTL_MS))
    waiter.send("LOCK", "bad:behind", TTL_MS, "WAIT", 20_000)
    waiter.send_raw(b"".join(request("ECHO", number) for number in range(2_000)))
    eventually(lambda: holder.info()["waiters"] == "1", 5, "it waits")
    assert holder.ask("UNLOCK", "bad:behind", token) == 1
    assert token_of(waiter.reply()) != token
    assert [waiter.reply() for _ in range(2_000)] == [b"%d" % number for number in range(2_000)]


def test_a_pipeline_without_end_behind_a_waiting_lock_is_bounded(
    cluster: Cluster, connect: Callable[..., Wire]
) -> None:
    holder = connect()
    token_of(holder.ask("LOCK", "bad:endless", TTL_MS))
    with memory_grows_by_less_than(32 * MIB, cluster), Wire(cluster.socket) as waiter:
        waiter.send("LOCK", "bad:endless", TTL_MS, "WAIT", 20_000)
        pour(waiter, request("PING") * 1_000, 1_000)


@pytest.mark.parametrize("number", [64, 65, 1_800, 3_000])
def test_a_connection_is_read_from_after_a_pipeline_of_any_size(
    connect: Callable[..., Wire], number: int
) -> None:
    """It ends with a question to the masters: nothing of it is pending then, and it was held back before."""
    held, watcher = connect(), connect()
    leases = [
        (name, token_of(held.ask("LOCK", name, TTL_MS))) for name in map("bad:deaf:{}".format, range(40))
    ]
    asked = [request("EXTEND", *leases[at % 40], TTL_MS) for at in range(number)]
    sender = threading.Thread(target=held.socket.sendall, args=(b"".join(asked),))
    sender.start()
    for _ in asked:
        token_of(held.reply())
    sender.join()
    assert held.ask("PING") == b"PONG"
    held.close()
    eventually(
        lambda: watcher.ask("HOLDER", "bad:deaf:0") is None, 5, "its end is seen, and its locks are free"
    )


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
    assert {kind(reply) for reply in replies if reply != 1} <= {"NOTHELD", "LIMIT"}


def test_a_pipeline_of_locks_that_is_sent_before_a_reply_is_read_finishes(
    connect: Callable[..., Wire],
) -> None:
    wire, number = connect(), 3_000
    wire.send_raw(b"".join(request("LOCK", f"bad:locks:{at:050}", 60_000) for at in range(number)))
    assert len({token_of(wire.reply()) for _ in range(number)}) == number


# Many


def test_ten_thousand_idle_connections_are_in_nobodys_way(cluster: Cluster, wire: Wire) -> None:
    with ExitStack() as stack:
        stack.enter_context(open_files(CROWD + 500))
        for _ in range(CROWD):
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(cluster.socket))
        eventually(lambda: int(wire.info()["connected_clients"]) > CROWD, 30, "all are connected")
        start_s = time.monotonic()
        for _ in range(20):
            assert wire.ask("UNLOCK", "bad:crowd", token_of(wire.ask("LOCK", "bad:crowd", TTL_MS))) == 1
        assert time.monotonic() - start_s < 20 * LATENCY_MOST_S


@contextmanager
def open_files(count: int) -> Iterator[None]:
    """Room for so many open files; the test is skipped where there can't be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"{count} files can't be open here, only {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
    eventually(lambda: wire.ask("LOCKS", "bad:dropped:*") == [], 5, "none is on the masters")


def test_busy_clients_are_fair_to_others(cluster: Cluster) -> None:
    until_s = time.monotonic() + 1.0
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(cluster.socket)) for _ in range(20)]
        while time.monotonic() < until_s:
            for wire in wires:
                wire.send_raw(request("ECHO", "x" * 100) * 200)
            for wire in wires:
                assert [wire.reply() for _ in range(200)] == [b"x" * 100] * 200
