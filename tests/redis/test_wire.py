"""What the agent says on its socket, word for word, in RESP2 and RESP3."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from lockd.clock import boottime_ns
from lockd.server.commands.connection import REDIS_VERSION
from tests.harness.cluster import Cluster
from tests.harness.users import Connect
from tests.harness.waiting import eventually
from tests.harness.wire import Wire, as_map, kind, request
from tests.redis.module_cluster import module_cluster

MASTERS = 5
TTL_MS, LONGER_MS = 30_000, 60_000
RENEWED_OFTEN_MS = 300
NO_TOKEN = "0" * 32
LEASE = [b"token", b"fence", b"validity_ms", b"deadline_ns", b"bound"]
HOLDER = [
    b"resource", b"holder", b"host", b"pid", b"uid", b"fence", b"kept", b"ttl_ms", b"held_ms", b"masters",
    b"of", b"quorum",
]  # fmt: skip
LOCAL = {
    b"resource", b"holder", b"class", b"pid", b"uid", b"fence", b"ttl_ms", b"held_ms", b"masters", b"of",
    b"detached", b"waiters",
}  # fmt: skip
MASTER = [
    b"name", b"address", b"state", b"vote", b"reason", b"rtt_us", b"clock_offset_us", b"version",
    b"max_ttl_ms", b"notices",
]  # fmt: skip

cluster = module_cluster(MASTERS)


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def protocol(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def wire(connect_here: Connect, protocol: int) -> Wire:
    return connect_here(protocol)


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
    before_ns, reliable_ns = boottime_ns(), (TTL_MS - TTL_MS // 100 - 2) * 1_000_000
    lease = lock(wire, "wire:lock")
    assert before_ns + reliable_ns <= lease[b"deadline_ns"] <= boottime_ns() + reliable_ns
    assert list(lease) == LEASE
    assert re.fullmatch(b"[0-9a-f]{32}", lease[b"token"])
    assert 0 < lease[b"fence"] < 2**53
    assert 0 < lease[b"validity_ms"] <= reliable_ns // 1_000_000
    assert all(type(lease[name]) is int for name in LEASE[1:4])


def test_the_case_of_commands_and_options_does_not_matter(wire: Wire) -> None:
    token = as_map(wire.ask("lOcK", "wire:case", TTL_MS, "wait", 10, "MaxHold", 60_000, "detached"))[b"token"]
    assert wire.ask("unlock", "wire:case", token) == 1


def test_only_the_holders_token_unlocks_and_extends_and_only_once(wire: Wire, other: Wire) -> None:
    token = lock(wire, "wire:token")[b"token"]
    assert kind(other.ask("UNLOCK", "wire:token", NO_TOKEN)) == "NOTHELD"
    assert kind(other.ask("EXTEND", "wire:token", NO_TOKEN, TTL_MS)) == "NOTHELD"
    assert wire.ask("UNLOCK", "wire:token", token) == 1
    assert kind(wire.ask("UNLOCK", "wire:token", token)) == "NOTHELD"


def test_extend_goes_on_with_the_same_lease(wire: Wire) -> None:
    lease = lock(wire, "wire:extend", "DETACHED")
    extended = as_map(wire.ask("EXTEND", "wire:extend", lease[b"token"], LONGER_MS))
    assert list(extended) == LEASE
    assert (extended[b"token"], extended[b"fence"]) == (lease[b"token"], lease[b"fence"])
    assert extended[b"deadline_ns"] > lease[b"deadline_ns"] + (LONGER_MS - TTL_MS) * 950_000
    assert TTL_MS < extended[b"validity_ms"] <= LONGER_MS
    assert wire.ask("UNLOCK", "wire:extend", lease[b"token"]) == 1


@pytest.fixture(scope="module")
def elsewhere(cluster: Cluster) -> Cluster:
    """An agent on another host."""
    other = cluster.add_agent()
    other.wait_voting(MASTERS)
    return other


def test_a_detached_lease_is_extended_and_released_from_another_host(
    cluster: Cluster, elsewhere: Cluster, protocol: int
) -> None:
    with Wire(cluster.socket, protocol) as here, Wire(elsewhere.socket, protocol) as there:
        token = lock(here, "wire:elsewhere", "DETACHED")[b"token"]
        extended = as_map(there.ask("EXTEND", "wire:elsewhere", token, LONGER_MS))
        assert list(extended) == LEASE
        assert extended[b"fence"] is None
        assert kind(there.ask("LOCK", "wire:elsewhere", TTL_MS)) == "TAKEN"
        assert there.ask("UNLOCK", "wire:elsewhere", token) == 1
        assert as_map(there.ask("LOCK", "wire:elsewhere", TTL_MS))[b"token"] != token
        assert kind(here.ask("UNLOCK", "wire:elsewhere", token)) in ("NOTHELD", "EXPIRED")
        eventually(lambda: here.info()["leases"] == "0", "it has forgotten the lease that ended elsewhere")
    eventually(lambda: there_is_nothing(elsewhere), "nor is one left there")


def there_is_nothing(cluster: Cluster) -> bool:
    with Wire(cluster.socket) as wire:
        return wire.info()["leases"] == "0" and wire.ask("LOCKS") == []


def test_what_is_held_is_taken_or_a_timeout_for_who_waits(wire: Wire, other: Wire) -> None:
    lock(other, "wire:taken")
    refusal = wire.ask("LOCK", "wire:taken", TTL_MS)
    found = re.match(r"TAKEN retry-after=(\d+)( |$)", str(refusal))
    assert found, refusal
    assert 0 < int(found[1]) <= TTL_MS
    start_s = time.monotonic()
    refusal = wire.ask("LOCK", "wire:taken", TTL_MS, "WAIT", 60)
    assert str(refusal).startswith("TIMEOUT waited ")
    assert time.monotonic() - start_s >= 0.06


# Order


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


# Losses and renewals


def test_a_loss_is_pushed_to_resp3(connect_here: Connect, other: Wire) -> None:
    wire = connect_here(3)
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


@pytest.mark.parametrize("not_run", ["WATCH", "SET"])
def test_no_multi_runs_that_a_loss_has_taken_a_command_from(wire: Wire, other: Wire, not_run: str) -> None:
    wire.ask("HELLO", 2)
    lock(wire, "wire:lost", "NOTIFY")
    other.ask("FORCERELEASE", "wire:lost")
    if not_run == "WATCH":
        assert kind(wire.ask("WATCH", "wire:watched")) == "EXPIRED"
    assert wire.ask("MULTI") == b"OK"
    told = wire.ask("SET", "wire:not:run", "v", "NX")
    assert told == b"QUEUED" if not_run == "WATCH" else kind(told) == "EXPIRED"
    assert kind(wire.ask("EXEC")) == "EXECABORT"
    assert other.ask("HOLDER", "wire:not:run") is None


def test_without_notify_nobody_is_told_who_does_not_name_the_lease(
    connect_here: Connect, other: Wire, protocol: int
) -> None:
    """A pool has the connection: its next command is another's."""
    wire = connect_here(protocol)
    token = lock(wire, "wire:untold")[b"token"]
    assert other.ask("FORCERELEASE", "wire:untold")
    assert wire.ask("PING") == b"PONG"
    assert wire.ask("UNLOCK", "wire:mine", lock(wire, "wire:mine")[b"token"]) == 1
    assert not wire.pushes
    for asked in (wire, connect_here(protocol), wire):
        refusal = asked.ask("UNLOCK", "wire:untold", token)
        assert str(refusal).startswith("EXPIRED the lease of 'wire:untold' was lost: released by force")
    assert "by force" in str(connect_here().ask("EXTEND", "wire:untold", token, TTL_MS))
    assert kind(other.ask("UNLOCK", "wire:untold:not", token)) == "NOTHELD"


def test_what_is_held_is_given_back_and_extended_while_a_loss_is_to_be_told(
    connect_here: Connect, other: Wire
) -> None:
    wire = connect_here(2)
    held = lock(wire, "wire:held")[b"token"]
    lock(wire, "wire:one", "NOTIFY")
    other.ask("FORCERELEASE", "wire:one")
    assert isinstance(wire.ask("EXTEND", "wire:held", held, TTL_MS), list)
    assert wire.ask("UNLOCK", "wire:held", held) == 1
    assert kind(wire.ask("PING")) == "EXPIRED"
    assert wire.ask("PING") == b"PONG"


def test_a_loss_is_told_on_another_connection_of_the_process_when_its_own_has_ended(
    connect_here: Connect, other: Wire
) -> None:
    its_own, another = connect_here(2), connect_here(3)
    lock(another, "wire:another", "NOTIFY")
    token = lock(its_own, "wire:ends", "DETACHED", "NOTIFY")[b"token"]
    its_own.close()
    eventually(lambda: int(other.info()["connected_clients"]) == 2, "it has ended")
    assert other.ask("FORCERELEASE", "wire:ends")
    assert another.push()[:3] == [b"lost", b"wire:ends", token]
    assert another.ask("PING") == b"PONG"
    assert not another.pushes


def test_renewals_are_pushed_with_notify_in_resp3_and_nowhere_else(connect_here: Connect) -> None:
    def each_hears_what_it_wants() -> bool:
        """False when a lease was lost because this machine stood still: once more."""
        told, quiet, resp2 = connect_here(3), connect_here(3), connect_here(2)
        leases = [
            lock(quiet, "wire:quiet", ttl_ms=RENEWED_OFTEN_MS),
            lock(resp2, "wire:notify2", "NOTIFY", ttl_ms=RENEWED_OFTEN_MS),
            lock(told, "wire:notify", "NOTIFY", ttl_ms=RENEWED_OFTEN_MS),
        ]
        pushes = [told.push() for _ in range(3)]
        said = [wire.ask("PING") for wire in (quiet, resp2)]
        for wire in (told, quiet, resp2):
            wire.close()
        if any(push[0] == b"lost" for push in pushes) or "EXPIRED" in str(said[1]):
            return False
        assert [push[:3] for push in pushes] == [[b"renewed", b"wire:notify", leases[-1][b"token"]]] * 3
        deadlines_ns = [leases[-1][b"deadline_ns"], *(push[3] for push in pushes)]
        assert deadlines_ns == sorted(set(deadlines_ns))
        assert said == [b"PONG", b"PONG"]
        assert not quiet.pushes
        return True

    eventually(each_hears_what_it_wants)


# Looking, and operators


def test_holder_says_who_and_on_how_many_masters(wire: Wire) -> None:
    lease = lock(wire, "wire:holder")

    def on_all() -> dict[bytes, Any]:
        row = as_map(wire.ask("HOLDER", "wire:holder"))
        assert row[b"masters"] == MASTERS
        return row

    row = eventually(on_all, "it is on all masters")
    assert list(row) == HOLDER
    assert row[b"resource"] == b"wire:holder"
    assert re.fullmatch(rb"[0-9a-f]{8}", row[b"holder"])
    assert not lease[b"token"].startswith(row[b"holder"]), "who may see it can't give it back"
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
    other.send("LOCK", "wire:local", TTL_MS, "WAIT", TTL_MS)
    eventually(lambda: wire.info()["waiters"] == "1", "another waits")
    [entry] = wire.ask("LOCKS", "wire:*", "LOCAL")
    row = as_map(entry)
    assert set(row) >= LOCAL
    shown = [row[name] for name in (b"class", b"fence", b"detached", b"waiters")]
    assert shown == [b"other", fence, 1, 1]
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


def test_forcerelease_says_on_how_many_masters_and_spares_another_holder_than_the_one_meant(
    wire: Wire, other: Wire
) -> None:
    token = lock(other, "wire:force")[b"token"]

    def on_all() -> dict[bytes, Any]:
        row = as_map(wire.ask("HOLDER", "wire:force"))
        assert row[b"masters"] == MASTERS
        return row

    holder = eventually(on_all, "it is on all masters")[b"holder"]
    assert kind(wire.ask("FORCERELEASE", "wire:force", "HOLDER", "0" * 8)) == "NOTHELD"
    assert wire.ask("FORCERELEASE", "wire:force", "HOLDER", holder) == MASTERS
    assert kind(other.ask("UNLOCK", "wire:force", token)) == "EXPIRED"
    assert kind(wire.ask("FORCERELEASE", "wire:force")) == "NOTHELD"


def test_forcerelease_of_one_lease_spares_the_next_one_of_its_host(wire: Wire, other: Wire) -> None:
    first = lock(other, "wire:next")
    shown = as_map(wire.ask("HOLDER", "wire:next"))
    assert shown[b"fence"] == first[b"fence"]
    wire.send("LOCK", "wire:next", TTL_MS, "WAIT", TTL_MS)
    eventually(lambda: other.info()["waiters"] == "1", "another waits")
    assert other.ask("UNLOCK", "wire:next", first[b"token"]) == 1
    second = as_map(wire.reply())
    now = as_map(other.ask("HOLDER", "wire:next"))
    assert (now[b"holder"], now[b"fence"]) == (shown[b"holder"], second[b"fence"]), "it was handed on"
    words = ["FORCERELEASE", "wire:next", "HOLDER", shown[b"holder"], "FENCE"]
    assert kind(other.ask(*words, shown[b"fence"])) == "NOTHELD"
    assert other.ask(*words, now[b"fence"]) > 0
    assert kind(wire.ask("UNLOCK", "wire:next", second[b"token"])) == "EXPIRED"


@pytest.mark.parametrize(
    "words", ["FENCE 1", "HOLDER 01234567 FENCE", "HOLDER 01234567 FENCE x", "FENCE 1 HOLDER 01234567"]
)
def test_forcerelease_of_nothing_that_can_be_meant_is_refused(wire: Wire, words: str) -> None:
    assert kind(wire.ask("FORCERELEASE", "wire:bad", *words.split())) == "ERR"


def test_info_is_text_as_of_redis(wire: Wire) -> None:
    text = wire.ask("INFO").decode()
    assert {"# Server", "# Agent"} <= set(text.split("\r\n"))
    info = wire.info()
    shown = [info[name] for name in ("loading", "role", "masters_voting", "quorum")]
    assert shown == ["0", "master", "5", "3"]
    assert {"leases", "waiters", "grants_total", "connected_clients", "lockd_version"} <= set(info)
    agent = wire.ask("INFO", "agent").decode()
    assert agent.startswith("# Agent\r\n")
    assert "loading" not in agent


# The connection


def test_small_talk_is_answered_as_redis_does(wire: Wire) -> None:
    assert as_sent(wire, "ECHO", "") == b"$0\r\n\r\n"
    assert as_sent(wire, "SELECT", 0) == b"+OK\r\n"
    for words in (("SELECT", 1), ("SELECT", "x")):
        assert kind(wire.ask(*words)) == "ERR"


def test_hello_agrees_on_a_protocol(connect_here: Connect) -> None:
    wire = connect_here()
    assert as_sent(wire, "HELLO").startswith(b"*14\r\n$6\r\nserver\r\n$5\r\nlockd\r\n")
    assert as_sent(wire, "HELLO", 3).startswith(b"%7\r\n")
    assert as_sent(wire, "HELLO", 2).startswith(b"*14\r\n")
    hello = as_map(wire.ask("HELLO", 3, "AUTH", "default", "whatever", "SETNAME", "app"))
    assert hello[b"proto"] == 3
    assert hello[b"version"] == REDIS_VERSION.encode()
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
