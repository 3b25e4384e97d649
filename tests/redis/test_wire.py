"""What the agent says on its socket, word for word, in RESP2 and RESP3."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockd import __version__
from lockd.clock import boottime_ns
from tests.harness.cluster import Cluster, running_cluster
from tests.harness.waiting import eventually
from tests.harness.wire import Wire, as_map, kind, request

MASTERS = 5
TTL_MS = 5_000
NO_TOKEN = "0" * 32
LEASE = [b"token", b"fence", b"validity_ms", b"deadline_ns"]
HOLDER = [
    b"resource",
    b"holder",
    b"host",
    b"pid",
    b"uid",
    b"ttl_ms",
    b"held_ms",
    b"masters",
    b"of",
    b"quorum",
]
LOCAL = {
    b"resource", b"holder", b"class", b"pid", b"uid", b"fence", b"ttl_ms", b"held_ms", b"masters", b"of",
    b"detached", b"waiters",
}  # fmt: skip
MASTER = [
    b"name", b"address", b"state", b"vote", b"reason", b"rtt_us", b"clock_offset_us", b"version",
    b"max_ttl_ms",
]  # fmt: skip
COMMANDS = {
    b"lock", b"unlock", b"extend", b"holder", b"locks", b"masters", b"forcerelease", b"form", b"admit",
    b"info", b"ping", b"echo", b"quit", b"select", b"hello", b"client", b"command", b"auth",
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(server_binary: Path) -> Iterator[Cluster]:
    with running_cluster(MASTERS) as running:
        yield running


@pytest.fixture
def connect(cluster: Cluster) -> Iterator[Callable[..., Wire]]:
    """`connect(protocol=2)`: a new connection, closed after the test. Then nothing is held or waited for."""
    wires: list[Wire] = []

    def new(protocol: int = 2) -> Wire:
        wires.append(Wire(cluster.socket, protocol))
        return wires[-1]

    yield new
    for wire in wires:
        wire.close()
    with Wire(cluster.socket) as last:
        eventually(lambda: last.info()["leases"] == last.info()["waiters"] == "0", 5, "nothing is left")


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def protocol(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def wire(connect: Callable[..., Wire], protocol: int) -> Wire:
    return connect(protocol)


@pytest.fixture
def other(connect: Callable[..., Wire]) -> Wire:
    """Another app."""
    return connect()


def lock(wire: Wire, resource: str | bytes, *options: str | int, ttl_ms: int = TTL_MS) -> dict[bytes, Any]:
    reply = wire.ask("LOCK", resource, ttl_ms, *options)
    assert isinstance(reply, list | dict), reply
    return as_map(reply)


def as_sent(wire: Wire, *words: str | int, ends: bytes = b"\r\n") -> bytes:
    """The bytes of a reply, up to the first `ends`."""
    wire.send(*words)
    got = b""
    while not got.endswith(ends):
        got += wire.socket.recv(65_536)
    return got


# Leases


def test_lock_gives_a_token_a_fence_a_validity_and_a_deadline_on_boottime(wire: Wire) -> None:
    before_ns = boottime_ns()
    lease = lock(wire, "wire:lock")
    assert list(lease) == LEASE
    assert re.fullmatch(b"[0-9a-f]{32}", lease[b"token"])
    assert 0 < lease[b"fence"] < 2**53
    assert 0 < lease[b"validity_ms"] <= TTL_MS * 0.99 - 2
    assert boottime_ns() < lease[b"deadline_ns"] <= before_ns + (TTL_MS + 1_000) * 1_000_000
    assert all(type(lease[name]) is int for name in LEASE[1:])


def test_a_lease_is_a_map_in_resp3_and_a_flat_array_in_resp2(wire: Wire, protocol: int) -> None:
    wire.send("LOCK", "wire:map", TTL_MS)
    head = b"%4\r\n$5\r\ntoken\r\n$32\r\n" if protocol == 3 else b"*8\r\n$5\r\ntoken\r\n$32\r\n"
    assert wire.socket.recv(65_536).startswith(head)


def test_the_case_of_commands_and_options_does_not_matter(wire: Wire) -> None:
    token = as_map(wire.ask("lOcK", "wire:case", TTL_MS, "wait", 10, "MaxHold", 60_000, "detached"))[b"token"]
    assert wire.ask("unlock", "wire:case", token) == 1


def test_fences_of_a_resource_rise(wire: Wire) -> None:
    fences = []
    for _ in range(5):
        lease = lock(wire, "wire:fences")
        fences.append(lease[b"fence"])
        assert wire.ask("UNLOCK", "wire:fences", lease[b"token"]) == 1
    assert fences == sorted(set(fences))


def test_unlock_says_1_and_the_second_time_that_it_is_not_held(wire: Wire) -> None:
    token = lock(wire, "wire:unlock")[b"token"]
    assert wire.ask("UNLOCK", "wire:unlock", token) == 1
    assert kind(wire.ask("UNLOCK", "wire:unlock", token)) == "NOTHELD"


def test_a_token_that_is_not_the_holders_unlocks_and_extends_nothing(wire: Wire, other: Wire) -> None:
    token = lock(wire, "wire:token")[b"token"]
    assert kind(other.ask("UNLOCK", "wire:token", NO_TOKEN)) == "NOTHELD"
    assert kind(other.ask("EXTEND", "wire:token", NO_TOKEN, TTL_MS)) == "NOTHELD"
    assert wire.ask("UNLOCK", "wire:token", token) == 1


def test_extend_goes_on_with_the_same_lease(wire: Wire) -> None:
    lease = lock(wire, "wire:extend", "DETACHED", ttl_ms=2_000)
    extended = as_map(wire.ask("EXTEND", "wire:extend", lease[b"token"], 10_000))
    assert list(extended) == LEASE
    assert (extended[b"token"], extended[b"fence"]) == (lease[b"token"], lease[b"fence"])
    assert extended[b"deadline_ns"] > lease[b"deadline_ns"] + 5_000_000_000
    assert extended[b"validity_ms"] > 8_000
    assert wire.ask("UNLOCK", "wire:extend", lease[b"token"]) == 1


def test_extend_never_shortens(wire: Wire) -> None:
    lease = lock(wire, "wire:shorten", "DETACHED", ttl_ms=20_000)
    extended = as_map(wire.ask("EXTEND", "wire:shorten", lease[b"token"], 1_000))
    assert extended[b"deadline_ns"] >= lease[b"deadline_ns"]
    assert as_map(wire.ask("HOLDER", "wire:shorten"))[b"ttl_ms"] > 15_000
    assert wire.ask("UNLOCK", "wire:shorten", lease[b"token"]) == 1


def test_a_detached_lease_is_extended_and_released_from_another_host(cluster: Cluster, protocol: int) -> None:
    elsewhere = cluster.add_agent()
    elsewhere.wait_voting(MASTERS)
    with Wire(cluster.socket, protocol) as here, Wire(elsewhere.socket, protocol) as there:
        token = lock(here, "wire:elsewhere", "DETACHED", ttl_ms=1_000)[b"token"]
        extended = as_map(there.ask("EXTEND", "wire:elsewhere", token, 4_000))
        assert list(extended) == LEASE
        assert extended[b"fence"] is None
        assert kind(there.ask("LOCK", "wire:elsewhere", TTL_MS)) == "TAKEN"
        assert there.ask("UNLOCK", "wire:elsewhere", token) == 1
        assert as_map(there.ask("LOCK", "wire:elsewhere", TTL_MS))[b"token"] != token
    eventually(
        lambda: here_holds_nothing(cluster), 5, "the agent has forgotten the lease that ended elsewhere"
    )
    elsewhere.agent.stop()


def here_holds_nothing(cluster: Cluster) -> bool:
    with Wire(cluster.socket) as wire:
        return wire.info()["leases"] == "0"


def test_what_is_held_is_taken_and_says_when_to_come_back(wire: Wire, other: Wire) -> None:
    lock(other, "wire:taken")
    refusal = wire.ask("LOCK", "wire:taken", TTL_MS)
    found = re.match(r"TAKEN retry-after=(\d+)( |$)", str(refusal))
    assert found, refusal
    assert 0 < int(found[1]) <= TTL_MS


def test_a_wait_that_runs_out_is_a_timeout(wire: Wire, other: Wire) -> None:
    lock(other, "wire:timeout")
    start_s = time.monotonic()
    refusal = wire.ask("LOCK", "wire:timeout", TTL_MS, "WAIT", 60)
    assert str(refusal).startswith("TIMEOUT waited ")
    assert time.monotonic() - start_s >= 0.06


def test_a_waiter_gets_it_when_it_is_released(wire: Wire, other: Wire) -> None:
    held = lock(other, "wire:wait")
    wire.send("LOCK", "wire:wait", TTL_MS, "WAIT", 10_000)
    eventually(lambda: other.info()["waiters"] == "1", 5, "it waits")
    other.ask("UNLOCK", "wire:wait", held[b"token"])
    assert as_map(wire.reply())[b"fence"] > held[b"fence"]


def test_a_session_lock_ends_with_its_connection_and_a_detached_lease_does_not(
    connect: Callable[..., Wire], other: Wire, protocol: int
) -> None:
    wire = connect(protocol)
    lock(wire, "wire:session")
    token = lock(wire, "wire:detached", "DETACHED")[b"token"]
    wire.close()
    eventually(lambda: other.ask("HOLDER", "wire:session") is None, 5, "the session lock is free")
    assert as_map(other.ask("HOLDER", "wire:detached"))[b"holder"] == token[:8]
    assert other.ask("UNLOCK", "wire:detached", token) == 1


# Order


def test_replies_come_in_the_order_of_the_commands(wire: Wire, other: Wire) -> None:
    lock(other, "wire:order")
    refused_at_once = request("LOCK", "wire:order", TTL_MS)
    wire.send_raw(
        request("PING", "1") + refused_at_once + request("PING", "2") + refused_at_once + request("PING")
    )
    assert wire.reply() == b"1"
    assert kind(wire.reply()) == "TAKEN"
    assert wire.reply() == b"2"
    assert kind(wire.reply()) == "TAKEN"
    assert wire.reply() == b"PONG"


def test_commands_of_every_speed_keep_their_order(wire: Wire) -> None:
    for number in range(60):
        wire.send("ECHO", number)
        wire.send(
            *[("HOLDER", "wire:x"), ("INFO",), ("LOCKS",), ("UNLOCK", "wire:x", NO_TOKEN), ("GET", "x")][
                number % 5
            ]
        )
    for number in range(60):
        assert wire.reply() == b"%d" % number
        wire.reply()


def test_quit_answers_all_that_came_before_it(wire: Wire) -> None:
    wire.send_raw(request("PING") + request("ECHO", "x") + request("QUIT") + request("ECHO", "too late"))
    assert wire.rest() == b"+PONG\r\n$1\r\nx\r\n+OK\r\n"


def test_a_request_may_come_byte_by_byte(wire: Wire) -> None:
    for byte in request("ECHO", b"a\r\n$3\r\nb") + request("PING"):
        wire.send_raw(bytes([byte]))
    assert wire.reply() == b"a\r\n$3\r\nb"
    assert wire.reply() == b"PONG"


def test_five_hundred_commands_in_one_write_get_five_hundred_replies(wire: Wire) -> None:
    wire.send_raw(b"".join(request("ECHO", number) for number in range(500)))
    assert [wire.reply() for _ in range(500)] == [b"%d" % number for number in range(500)]


def test_a_waiting_lock_holds_up_its_own_connection_and_no_other(
    wire: Wire, other: Wire, connect: Any
) -> None:
    token = lock(other, "wire:waits")[b"token"]
    wire.send("LOCK", "wire:waits", TTL_MS, "WAIT", 20_000)
    wire.send("ECHO", "after")
    eventually(lambda: other.info()["waiters"] == "1", 5, "it waits")
    third = connect()
    for _ in range(20):
        assert third.ask("PING") == b"PONG"
        assert third.ask("UNLOCK", "wire:elsewhere", lock(third, "wire:elsewhere")[b"token"]) == 1
    assert wire.reply_that_is_here() is None
    assert other.ask("UNLOCK", "wire:waits", token) == 1
    assert list(as_map(wire.reply())) == LEASE
    assert wire.reply() == b"after"


# Losses and renewals


def test_a_loss_is_pushed_to_resp3(connect: Callable[..., Wire], other: Wire) -> None:
    wire = connect(3)
    lease = lock(wire, "wire:lost", "NOTIFY")
    other.ask("FORCERELEASE", "wire:lost")
    [what, resource, token, reason, deadline_ns] = wire.push()
    assert (what, resource, token) == (b"lost", b"wire:lost", lease[b"token"])
    assert b"force" in reason
    assert deadline_ns <= boottime_ns(), "what is gone from the masters has no validity left"
    assert wire.ask("PING") == b"PONG"
    assert not wire.pushes


def test_a_loss_is_an_error_on_the_next_command_of_resp2_which_is_not_run(wire: Wire, other: Wire) -> None:
    resp2 = wire
    resp2.ask("HELLO", 2)
    lock(resp2, "wire:lost:1", "NOTIFY")
    lock(resp2, "wire:lost:2")
    other.ask("FORCERELEASE", "wire:lost:1")
    other.ask("FORCERELEASE", "wire:lost:2")
    first, second = (resp2.ask("LOCK", "wire:not:run", TTL_MS) for _ in range(2))
    assert kind(first) == kind(second) == "EXPIRED"
    assert "wire:lost:1" in str(first)
    assert "wire:lost:2" in str(second)
    assert other.ask("HOLDER", "wire:not:run") is None
    assert resp2.ask("PING") == b"PONG"


def test_hello_and_quit_are_not_used_up_by_a_loss(connect: Callable[..., Wire], other: Wire) -> None:
    wire = connect()
    lock(wire, "wire:quit", "NOTIFY")
    other.ask("FORCERELEASE", "wire:quit")
    assert isinstance(wire.ask("HELLO"), list)
    assert kind(wire.ask("PING")) == "EXPIRED"
    lock(wire, "wire:quit", "NOTIFY")
    other.ask("FORCERELEASE", "wire:quit")
    assert wire.ask("QUIT") == b"OK"


def test_unlocking_what_was_lost_says_expired_once(wire: Wire, other: Wire) -> None:
    token = lock(wire, "wire:gone", "NOTIFY")[b"token"]
    other.ask("FORCERELEASE", "wire:gone")
    assert kind(wire.ask("UNLOCK", "wire:gone", token)) == "EXPIRED"
    assert wire.ask("PING") == b"PONG"


def test_a_loss_that_was_told_where_its_lease_was_named_is_told_on_no_other_connection_of_the_process(
    connect: Callable[..., Wire], other: Wire
) -> None:
    its_own, another = connect(2), connect(2)
    token = lock(its_own, "wire:once", "NOTIFY")[b"token"]
    other.ask("FORCERELEASE", "wire:once")
    assert kind(another.ask("EXTEND", "wire:once", token, TTL_MS)) == "EXPIRED"
    assert its_own.ask("PING") == b"PONG"


def test_a_loss_is_told_on_its_own_connection_while_the_reply_that_says_it_waits_on_another(
    connect: Callable[..., Wire], other: Wire
) -> None:
    its_own, another = connect(2), connect(2)
    busy = lock(other, "wire:busy")[b"token"]
    token = lock(its_own, "wire:waits", "NOTIFY")[b"token"]
    other.ask("FORCERELEASE", "wire:waits")
    another.send("LOCK", "wire:busy", TTL_MS, "WAIT", 60_000)
    another.send("EXTEND", "wire:waits", token, TTL_MS)
    assert other.ask("PING") == b"PONG"
    assert kind(its_own.ask("PING")) == "EXPIRED"
    assert other.ask("UNLOCK", "wire:busy", busy) == 1
    assert another.reply()
    assert kind(another.reply()) == "EXPIRED"


def test_without_notify_nobody_is_told_who_does_not_name_the_lease(
    connect: Callable[..., Wire], other: Wire, protocol: int
) -> None:
    """A pool has the connection: its next command is another's."""
    wire = connect(protocol)
    token = lock(wire, "wire:untold")[b"token"]
    assert other.ask("FORCERELEASE", "wire:untold")
    assert wire.ask("PING") == b"PONG"
    assert wire.ask("UNLOCK", "wire:mine", lock(wire, "wire:mine")[b"token"]) == 1
    assert not wire.pushes
    for asked in (wire, connect(protocol), wire):
        refusal = asked.ask("UNLOCK", "wire:untold", token)
        assert str(refusal).startswith("EXPIRED the lease of 'wire:untold' was lost: released by force")
    assert "by force" in str(connect().ask("EXTEND", "wire:untold", token, TTL_MS))
    assert kind(other.ask("UNLOCK", "wire:untold:not", token)) == "NOTHELD"


def test_what_is_held_is_given_back_and_extended_while_a_loss_is_to_be_told(
    connect: Callable[..., Wire], other: Wire
) -> None:
    wire = connect(2)
    held = lock(wire, "wire:held")[b"token"]
    lock(wire, "wire:one", "NOTIFY")
    other.ask("FORCERELEASE", "wire:one")
    assert isinstance(wire.ask("EXTEND", "wire:held", held, TTL_MS), list)
    assert wire.ask("UNLOCK", "wire:held", held) == 1
    assert kind(wire.ask("PING")) == "EXPIRED"
    assert wire.ask("PING") == b"PONG"


@pytest.mark.parametrize("protocols", [(2, 3), (3, 2)], ids=str)
def test_a_loss_is_told_on_another_connection_of_the_process_when_its_own_has_ended(
    connect: Callable[..., Wire], other: Wire, protocols: tuple[int, int]
) -> None:
    its_own, another = map(connect, protocols)
    lock(another, "wire:another", "NOTIFY")
    token = lock(its_own, "wire:ends", "DETACHED", "NOTIFY")[b"token"]
    its_own.close()
    eventually(lambda: int(other.info()["connected_clients"]) == 2, 5, "it has ended")
    assert other.ask("FORCERELEASE", "wire:ends")
    if protocols[1] == 3:
        assert another.push()[:3] == [b"lost", b"wire:ends", token]
    else:
        assert "'wire:ends' was lost" in str(another.ask("PING"))
    assert another.ask("PING") == b"PONG"
    assert not another.pushes


def test_what_a_connection_was_not_told_before_it_ended_another_is_told(
    connect: Callable[..., Wire], other: Wire
) -> None:
    its_own, another = connect(2), connect(3)
    lock(another, "wire:another", "NOTIFY")
    lock(its_own, "wire:silent", "NOTIFY")
    assert other.ask("FORCERELEASE", "wire:silent")
    its_own.close()
    assert another.push()[:2] == [b"lost", b"wire:silent"]


def test_extending_what_was_lost_says_expired(wire: Wire, other: Wire) -> None:
    token = lock(wire, "wire:gone2")[b"token"]
    other.ask("FORCERELEASE", "wire:gone2")
    assert kind(wire.ask("EXTEND", "wire:gone2", token, TTL_MS)) == "EXPIRED"


def test_the_end_of_maxhold_is_told_before_the_deadline(connect: Callable[..., Wire]) -> None:
    wire = connect(3)
    lock(wire, "wire:hold", "MAXHOLD", 600, "NOTIFY", ttl_ms=300)
    while (push := wire.push())[0] == b"renewed":
        pass
    [what, resource, _, reason, deadline_ns] = push
    assert boottime_ns() < deadline_ns
    assert (what, resource) == (b"lost", b"wire:hold")
    assert b"max_hold" in reason


def test_renewals_are_pushed_with_notify_and_deadlines_rise(connect: Callable[..., Wire]) -> None:
    wire = connect(3)
    lease = lock(wire, "wire:notify", "NOTIFY", ttl_ms=150)
    deadlines_ns = [lease[b"deadline_ns"]]
    for _ in range(3):
        [what, resource, token, deadline_ns] = wire.push()
        assert (what, resource, token) == (b"renewed", b"wire:notify", lease[b"token"])
        deadlines_ns.append(deadline_ns)
    assert deadlines_ns == sorted(set(deadlines_ns))


def test_without_notify_renewals_are_silent(connect: Callable[..., Wire]) -> None:
    quiet, told = connect(3), connect(3)
    lock(quiet, "wire:quiet", ttl_ms=100)
    lock(told, "wire:told", "NOTIFY", ttl_ms=300)
    told.push()
    told.push()
    assert quiet.ask("PING") == b"PONG"
    assert not quiet.pushes


def test_in_resp2_notify_brings_no_renewals(connect: Callable[..., Wire], other: Wire) -> None:
    wire, told = connect(2), connect(3)
    lock(wire, "wire:notify2", "NOTIFY", ttl_ms=100)
    lock(told, "wire:told2", "NOTIFY", ttl_ms=300)
    told.push()
    told.push()
    assert wire.ask("PING") == b"PONG"


# MULTI


@pytest.mark.parametrize("at_once", [True, False], ids=["in one piece", "one by one"])
@pytest.mark.parametrize(("end", "ends"), [("EXEC", "EXECABORT"), ("DISCARD", "OK")])
def test_all_from_multi_to_its_end_is_refused(wire: Wire, at_once: bool, end: str, ends: str) -> None:
    token = lock(wire, "wire:before")[b"token"]
    inside = [
        ("LOCK", "wire:multi", TTL_MS),
        ("UNLOCK", "wire:before", token),
        ("HELLO", 2),
        ("PING",),
        ("MULTI",),
    ]
    commands = [("MULTI",), *inside, (end,)]
    if at_once:
        wire.send_raw(b"".join(request(*words) for words in commands))
        replies = [wire.reply() for _ in commands]
    else:
        replies = [wire.ask(*words) for words in commands]
    assert "there is no MULTI" in str(replies[0])
    assert [kind(reply) for reply in replies[1:-1]] == ["ERR"] * len(inside)
    assert (replies[-1].decode() if end == "DISCARD" else kind(replies[-1])) == ends
    assert wire.ask("HOLDER", "wire:multi") is None
    assert wire.ask("UNLOCK", "wire:before", token) == 1
    assert kind(wire.ask(end)) == "ERR", "it has no end twice"


def test_a_loss_to_be_told_lets_nothing_in_a_multi_run(connect: Callable[..., Wire], other: Wire) -> None:
    wire = connect(2)
    lock(wire, "wire:multi:lost", "NOTIFY")
    other.ask("FORCERELEASE", "wire:multi:lost")
    replies = [wire.ask(*words) for words in (("MULTI",), ("LOCK", "wire:multi", TTL_MS), ("EXEC",))]
    assert "there is no MULTI" in str(replies[0])
    assert kind(replies[2]) == "EXECABORT"
    assert other.ask("HOLDER", "wire:multi") is None


def test_a_password_is_taken_by_auth_as_by_hello(wire: Wire) -> None:
    assert wire.ask("AUTH", "whatever") == b"OK"
    assert wire.ask("AUTH", "app", "whatever") == b"OK"
    assert kind(wire.ask("AUTH")) == "ERR"
    assert kind(wire.ask("AUTH", "a", "b", "c")) == "ERR"


# Looking, and operators


def test_holder_is_nil_when_free(wire: Wire, protocol: int) -> None:
    assert as_sent(wire, "HOLDER", "wire:free") == (b"_\r\n" if protocol == 3 else b"$-1\r\n")


def test_holder_says_who_and_on_how_many_masters(wire: Wire) -> None:
    lease = lock(wire, "wire:holder")

    def on_all() -> dict[bytes, Any]:
        row = as_map(wire.ask("HOLDER", "wire:holder"))
        assert row[b"masters"] == MASTERS
        return row

    row = eventually(on_all, 5, "it is on all masters")
    assert list(row) == HOLDER
    assert row[b"resource"] == b"wire:holder"
    assert row[b"holder"] == lease[b"token"][:8]
    assert row[b"pid"] > 0
    assert row[b"uid"] >= 0
    assert 0 < row[b"ttl_ms"] <= TTL_MS
    assert 0 <= row[b"held_ms"] < 60_000
    assert (row[b"of"], row[b"quorum"]) == (MASTERS, 1)


def test_locks_lists_what_matches(wire: Wire) -> None:
    for resource in ("wire:a1", "wire:a2", "wire:b1"):
        lock(wire, resource)
    everything, some, none = (wire.ask("LOCKS", *words) for words in ((), ("wire:a*",), ("nothing*",)))
    assert {as_map(entry)[b"resource"] for entry in everything} == {b"wire:a1", b"wire:a2", b"wire:b1"}
    assert {as_map(entry)[b"resource"] for entry in some} == {b"wire:a1", b"wire:a2"}
    assert (len(everything), len(some)) == (3, 2)
    assert none == []
    assert list(as_map(some[0])) == HOLDER


def test_locks_local_lists_the_leases_of_this_agent(wire: Wire, other: Wire) -> None:
    fence = lock(wire, "wire:local", "DETACHED")[b"fence"]
    other.send("LOCK", "wire:local", TTL_MS, "WAIT", 5_000)
    eventually(lambda: wire.info()["waiters"] == "1", 5, "another waits")
    [entry] = wire.ask("LOCKS", "wire:*", "LOCAL")
    row = as_map(entry)
    assert set(row) >= LOCAL
    assert (row[b"class"], row[b"fence"], row[b"detached"], row[b"waiters"]) == (
        b"other",
        fence,
        1,
        1,
    )
    assert wire.ask("FORCERELEASE", "wire:local") > 0
    assert list(as_map(other.reply())) == LEASE


def test_masters_says_how_each_is(wire: Wire) -> None:
    rows = [as_map(entry) for entry in wire.ask("MASTERS")]
    assert [entry[b"name"] for entry in rows] == [b"m%d" % number for number in range(1, MASTERS + 1)]
    for entry in rows:
        assert list(entry) == MASTER
        assert (entry[b"state"], entry[b"vote"], entry[b"reason"]) == (b"up", 1, b"")
        assert re.search(rb"\d+\.\d+\.\d+$", entry[b"version"])
        assert entry[b"max_ttl_ms"] == 60_000
        assert type(entry[b"rtt_us"]) is type(entry[b"clock_offset_us"]) is int


def test_forcerelease_says_on_how_many_masters_it_was_deleted(wire: Wire, other: Wire) -> None:
    lock(other, "wire:force", "DETACHED")
    eventually(
        lambda: as_map(wire.ask("HOLDER", "wire:force"))[b"masters"] == MASTERS, 5, "it is on all masters"
    )
    assert wire.ask("FORCERELEASE", "wire:force") == MASTERS
    assert kind(wire.ask("FORCERELEASE", "wire:force")) == "NOTHELD"


def test_forcerelease_spares_another_holder_than_the_one_that_was_meant(wire: Wire, other: Wire) -> None:
    token = lock(other, "wire:meant")[b"token"]
    assert kind(wire.ask("FORCERELEASE", "wire:meant", "HOLDER", "0" * 8)) == "NOTHELD"
    assert wire.ask("FORCERELEASE", "wire:meant", "HOLDER", token[:8]) > 0
    assert kind(other.ask("UNLOCK", "wire:meant", token)) == "EXPIRED"


def test_forming_and_admitting_again_is_harmless(wire: Wire) -> None:
    for words in (("FORM",), ("FORM", "UNUSED"), ("ADMIT", "m1")):
        assert as_map(wire.ask(*words)) == {b"status": b"already", b"remaining_ms": 0, b"total_ms": 0}
    assert "m9" in str(wire.ask("ADMIT", "m9"))


def test_info_is_text_as_of_redis(wire: Wire) -> None:
    text = wire.ask("INFO").decode()
    assert {"# Server", "# Agent"} <= set(text.split("\r\n"))
    info = wire.info()
    assert (info["loading"], info["role"], info["masters_voting"], info["quorum"]) == (
        "0",
        "master",
        "5",
        "3",
    )
    assert {"leases", "waiters", "grants_total", "connected_clients", "lockd_version"} <= set(info)
    agent = wire.ask("INFO", "agent").decode()
    assert agent.startswith("# Agent\r\n")
    assert "loading" not in agent


# The connection


def test_ping_and_echo(wire: Wire) -> None:
    assert as_sent(wire, "PING") == b"+PONG\r\n"
    assert as_sent(wire, "PING", "hello") == b"$5\r\nhello\r\n"
    assert as_sent(wire, "ECHO", "") == b"$0\r\n\r\n"
    assert kind(wire.ask("PING", "a", "b")) == "ERR"


def test_select_knows_database_0_alone(wire: Wire) -> None:
    assert as_sent(wire, "SELECT", 0) == b"+OK\r\n"
    assert kind(wire.ask("SELECT", 1)) == "ERR"
    assert kind(wire.ask("SELECT", "x")) == "ERR"


def test_hello_agrees_on_a_protocol(connect: Callable[..., Wire]) -> None:
    wire = connect()
    assert as_sent(wire, "HELLO").startswith(b"*14\r\n$6\r\nserver\r\n$5\r\nlockd\r\n")
    assert as_sent(wire, "HELLO", 3).startswith(b"%7\r\n")
    assert as_sent(wire, "HELLO", 2).startswith(b"*14\r\n")
    hello = as_map(wire.ask("HELLO", 3, "AUTH", "default", "whatever", "SETNAME", "app"))
    assert hello[b"proto"] == 3
    assert hello[b"version"] == __version__.encode()
    assert (hello[b"mode"], hello[b"role"], hello[b"modules"]) == (b"standalone", b"master", [])
    assert wire.ask("CLIENT", "GETNAME") == b"app"
    assert wire.ask("CLIENT", "ID") == hello[b"id"]


def test_a_hello_that_fails_changes_nothing(wire: Wire, protocol: int) -> None:
    assert kind(wire.ask("HELLO", 4)) == "NOPROTO"
    for words in ((3, "AUTH", "a"), (2, "SETNAME"), (2, "SETNAME", "two words"), (5 - protocol, "WHAT")):
        assert kind(wire.ask("HELLO", *words)) == "ERR"
    assert as_map(wire.ask("HELLO"))[b"proto"] == protocol
    assert wire.ask("CLIENT", "GETNAME") is None


def test_client_knows_its_name_id_and_library(wire: Wire, other: Wire) -> None:
    assert wire.ask("CLIENT", "GETNAME") is None
    assert wire.ask("CLIENT", "SETNAME", "app-1") == b"OK"
    assert wire.ask("CLIENT", "GETNAME") == b"app-1"
    assert kind(wire.ask("CLIENT", "SETNAME", "two words")) == "ERR"
    assert kind(wire.ask("CLIENT", "SETNAME", "two\nlines")) == "ERR"
    assert wire.ask("CLIENT", "SETINFO", "LIB-NAME", "x") == b"OK"
    assert wire.ask("CLIENT", "SETINFO", "LIB-VER", "1.2") == b"OK"
    assert wire.ask("CLIENT", "ID") != other.ask("CLIENT", "ID")
    assert b"name=app-1" in wire.ask("CLIENT", "INFO")
    assert kind(wire.ask("CLIENT", "KILL", "x")) == "ERR"


def test_quit_says_ok_and_closes(wire: Wire) -> None:
    wire.send("QUIT")
    assert wire.rest() == b"+OK\r\n"


def test_command_lists_documents_and_counts_the_commands(wire: Wire) -> None:
    assert wire.ask("COMMAND", "COUNT") == len(COMMANDS)
    assert {info[0] for info in wire.ask("COMMAND")} == COMMANDS
    assert set(wire.ask("COMMAND", "LIST")) >= COMMANDS
    docs = as_map(wire.ask("COMMAND", "DOCS"))
    assert set(docs) == COMMANDS
    assert as_map(docs[b"unlock"])[b"summary"] == b"Releases a lease."
    [lock_info, unknown] = wire.ask("COMMAND", "INFO", "lock", "get")
    assert lock_info[:2] == [b"lock", -3]
    assert lock_info[3:6] == [1, 1, 1]
    assert unknown is None


def test_flags_are_simple_strings_because_redis_cli_insists(connect: Callable[..., Wire]) -> None:
    assert b"+write\r\n" in as_sent(connect(), "COMMAND", "INFO", "unlock")


# Other kinds of trouble


def test_without_a_quorum_it_says_which_masters_are_missing(server_binary: Path, protocol: int) -> None:
    with running_cluster(3) as small, Wire(small.socket, protocol) as wire:
        for master in small.masters[:2]:
            master.kill()
        refusal = wire.ask("LOCK", "wire:noquorum", TTL_MS)
        assert re.match(r"NOQUORUM .*m1=\S+.*m2=\S+", str(refusal)), refusal
        assert "m3=" not in str(refusal)


def test_an_agent_that_stops_grants_nothing_and_lets_what_is_held_be_released(server_binary: Path) -> None:
    with running_cluster(3) as small, Wire(small.socket) as holder, Wire(small.socket, 3) as wire:
        token = lock(holder, "wire:drain")[b"token"]
        wire.send("LOCK", "wire:drain", TTL_MS, "WAIT", 60_000)
        eventually(lambda: holder.info()["waiters"] == "1", 5, "it waits")
        small.agent.terminate()
        assert kind(wire.reply()) == "DRAINING"
        assert kind(wire.ask("LOCK", "wire:new", TTL_MS)) == "DRAINING"
        assert holder.ask("UNLOCK", "wire:drain", token) == 1
        assert wire.rest() == b""
        assert small.agent.wait(10)
        assert small.agent.exit_status == 0
