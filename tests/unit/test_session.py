"""A connection and the leases that it holds, with the real core, and no sockets but its own."""

import asyncio
import socket
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from lockd.config.model import Limits
from lockd.core.flow import Place
from lockd.core.owners import Delivery
from lockd.core.values import Bound
from lockd.server.lease_requests import LockRequest, UnlockOrExtend
from lockd.server.session import AHEAD_MOST, READINGS_MOST, Session
from lockd.transport import for_loop
from tests.harness.fleet_model import Host, cluster
from tests.harness.sessions import AroundSessions, Incidents, Transport, TurnsByHand
from tests.harness.waiting import until
from tests.harness.wire import request

R = b"r"


def around(host: Host) -> AroundSessions:
    return AroundSessions(locks=host.locks, turns=TurnsByHand(), incidents=Incidents())


def connected(host: Host, agent: AroundSessions | None = None) -> tuple[Session, Any]:
    commands = SimpleNamespace(
        brings_no_loss=frozenset((b"EXTEND", b"UNLOCK")), is_not_run=lambda _session, _words: None
    )
    session, transport = Session(agent or around(host), commands), Transport()  # type: ignore[arg-type]
    session.connection_made(transport)  # type: ignore[arg-type]
    return session, transport


def test_between_the_reset_of_a_connection_and_its_end_nothing_counts_as_read() -> None:
    """The kernel tells of that error once, and has thrown away what was not read."""
    session, transport = connected(cluster())
    transport.app_closes()
    assert session.delivery() is Delivery.UNREAD
    transport.end()


@pytest.mark.parametrize("sent", [b"", b"*1\r\n"])
def test_who_closed_before_it_was_let_in_is_looked_at_only_if_it_had_sent_something(sent: bytes) -> None:
    """Thousands that one app opens and closes are in the line in which all users wait. What an app gives back
    as its last word is read."""
    agent = around(cluster())
    session, transport = Session(agent, SimpleNamespace()), Transport()  # type: ignore[arg-type]
    transport.leaves(sent)
    session.connection_made(transport)  # type: ignore[arg-type]
    assert (session in agent.sessions) == (not transport.closed) == bool(sent)
    transport.end()


def lock(session: Session, host: Host, name: bytes = b"") -> None:
    lock_class = SimpleNamespace(
        name="test", lock_delay_ms=0, keep_ms=0, max_hold_ms=60_000, bound=Bound.PROCESS
    )
    now_ns = host.time.now_ns
    request = LockRequest(session, R, lock_class, 10_000)  # type: ignore[arg-type]
    request.wait_ms, request.value, request.named = 60_000, name, bool(name)
    session.flow.begin(request)
    request.begins(now_ns, ready=True)


def test_a_lock_that_waits_when_its_connection_is_cut_off_is_not_granted_any_more():
    """Before the connection has ended its turn may come: nobody would be told, nobody would end it, and the
    agent would renew it until max_hold."""
    host = cluster()
    holder = host.locked(R)
    session, transport = connected(host)
    lock(session, host)
    session.cut_off("bytes: ...")
    host.unlock(holder)
    host.fleet.settle()
    assert not session.ties.held
    session.connection_lost(None)
    transport.end()
    host.fleet.settle()
    assert host.locks.held == host.locks.waiting == 0
    assert session.shared.quotas.all.waiters == 0
    assert host.locked(R).held, "it is free for the next"


def test_what_is_granted_between_the_end_that_was_read_and_that_of_the_connection_is_given_back():
    """Its reply is written nowhere: nothing of it is unread either."""
    host = cluster()
    holder = host.locked(R)
    session, transport = connected(host)
    lock(session, host)
    session.eof_received()
    transport.close()
    host.unlock(holder)
    host.fleet.settle()
    assert host.locks.held == 1
    session.connection_lost(None)
    transport.end()
    host.fleet.settle()
    assert host.locks.held == host.locks.waiting == 0


def test_a_user_has_masters_asked_about_so_much_at_a_time_on_all_his_connections():
    host = cluster()
    session, transport = connected(host)
    begun: list[UnlockOrExtend] = []

    def unlock(token: bytes) -> None:
        session.at_once(UnlockOrExtend(session, "unlock", R, token), begun.append)

    for number in range(AHEAD_MOST + 3):
        unlock(b"%032d" % number)
    assert len(begun) == session.usage.ahead == AHEAD_MOST
    while begun:
        begun.pop(0).done(None)
        if not begun and session.shared.turns.jobs:
            session.shared.turns.jobs.pop()(1 << 62)
    assert session.usage.ahead == 0
    assert transport.written == b":1\r\n" * (AHEAD_MOST + 3)
    transport.end()


def test_two_commands_that_name_one_lease_run_one_after_the_other():
    host = cluster()
    session, transport = connected(host)
    begun: list[UnlockOrExtend] = []
    for _ in range(3):
        session.at_once(UnlockOrExtend(session, "extend", R, b"t"), begun.append)
    for number in range(1, 4):
        assert len(begun) == number
        begun[-1].done(None)
        if session.shared.turns.jobs:
            session.shared.turns.jobs.pop()(1 << 62)
    assert transport.written == b":1\r\n" * 3
    assert not session._named
    transport.end()


async def test_an_unlock_that_waits_for_its_turn_when_its_app_closes_is_run_all_the_same():
    """Behind another command of its lease, or behind those of its user that masters are asked about."""
    host = cluster()
    session, transport = connected(host, AroundSessions(locks=host.locks, incidents=Incidents()))
    begun: list[UnlockOrExtend] = []
    for command in ("extend", "extend", "unlock"):
        session.at_once(UnlockOrExtend(session, command, R, b"t"), begun.append)
    for number in range(AHEAD_MOST + 3):
        session.at_once(UnlockOrExtend(session, "unlock", R, b"%d" % number), begun.append)
    assert [one.gives_back for one in begun] == [False] + [True] * (AHEAD_MOST - 1)
    session.connection_lost(None)
    await until(lambda: not session.shared.endings.busy)
    assert len(begun) == AHEAD_MOST + 5
    assert [one.lease for one in begun if one.gives_back].count((R, b"t")) == 1
    transport.end()


@pytest.mark.parametrize("kept_reading", [True, False], ids=["reading", "not reading"])
def test_an_unlock_that_was_not_read_when_its_connection_ended_is_run_all_the_same(kept_reading: bool):
    """Its app closes at once, and a reply that is written then ends the connection before all was read."""
    ran: list[bytes] = []

    async def play() -> None:
        ours, app = socket.socketpair()
        ours.setblocking(False)
        around_it = AroundSessions(locks=cluster().locks, incidents=Incidents())

        def run(session: Session, words: list[bytes]) -> bytes:
            ran.append(words[0])
            if words[0] == b"EXTEND":
                if not kept_reading:
                    session.read(on=False)
                app.sendall(request("UNLOCK", "r", "t") + request("UNLOCK", "q", "t"))
                app.close()
            return b":1\r\n"

        commands = SimpleNamespace(
            brings_no_loss=frozenset((b"EXTEND", b"UNLOCK")),
            is_not_run=lambda _session, _words: None,
            run=run,
            give_back=lambda _session, words: ran.append(words[0]),
        )
        session = Session(around_it, commands)  # type: ignore[arg-type]
        await asyncio.get_running_loop().connect_accepted_socket(for_loop(lambda: session), ours)
        app.sendall(request("EXTEND", "r", "t", 1_000))
        await until(lambda: session.is_gone)
        await until(lambda: not around_it.endings.busy)

    uvloop.run(play())
    assert ran == [b"EXTEND", b"UNLOCK", b"UNLOCK"]


def test_where_nothing_is_left_to_be_done_the_end_of_the_app_is_the_end_of_its_connection():
    """It is not read from, so nothing else would tell."""
    host = cluster()
    session, transport = connected(host)
    command = UnlockOrExtend(session, "unlock", R, b"t")
    session.at_once(command, lambda _command: None)
    session.flow.clogged(2 * Limits().unread_bytes)
    assert not transport.reading
    session.hung_up()
    assert not transport.aborted, "masters are asked still"
    command.done(None)
    assert transport.aborted
    transport.end()


def holding(host: Host) -> tuple[Session, Any, bytes]:
    """A connection that has said NOTIFY in RESP2, and the token of its lease."""
    session, transport = connected(host)
    session.notify()
    lock(session, host)
    host.fleet.settle()
    (lease,) = session.ties.process.leases
    return session, transport, lease.token


def assert_told_once(session: Session, transport: Any) -> None:
    """The reply told the loss: no later command on the connection is to tell it once more."""
    assert transport.written.count(b"-EXPIRED") == 1
    assert session._report_loss([b"PING"]) is None


def extend(session: Session, host: Host, token: bytes) -> None:
    def start(command: UnlockOrExtend) -> None:
        host.locks.extend(R, token, 20_000, command, host.time.now_ns)

    session.at_once(UnlockOrExtend(session, "extend", R, token), start)


def test_the_extend_that_finds_the_loss_out_tells_it_and_no_command_after_it_does():
    host = cluster()
    session, transport, token = holding(host)
    for master in host.fleet.masters[:3]:
        master.forget(R)
    extend(session, host, token)
    host.fleet.settle()
    assert_told_once(session, transport)
    transport.end()


@pytest.mark.parametrize("granted", [False, True], ids=["under way", "granted already"])
def test_an_extend_whose_lease_is_lost_before_its_answer_is_written_tells_it_then_and_nothing_after_it_does(
    granted: bool,
):
    """Not before: its connection may end, and another one of its process has to tell it."""
    host = cluster()
    session, transport, token = holding(host)
    before = Place()
    session.flow.begin(before)
    extend(session, host, token)
    if granted:
        host.fleet.settle()
    (lease,) = session.ties.process.leases
    host.locks.take_away(R, {lease.nonce}, "released by force", host.time.now_ns)
    assert b"-EXPIRED" not in transport.written
    assert (R, token) in session._untold
    session.answer(before, b"+OK\r\n")
    assert_told_once(session, transport)
    transport.end()


async def test_a_listing_behind_a_lock_that_waits_is_made_as_it_comes_and_many_of_a_user_one_by_one():
    """It tells of the moment at which it was asked for, in its place."""
    host = cluster()
    host.locked(R)
    session, transport = connected(host)
    lock(session, host)
    go, begun = asyncio.Event(), 0

    async def listing(_place: Place) -> bytes:
        nonlocal begun
        begun += 1
        await go.wait()
        return b"+" + b"x" * 500 + b"\r\n"

    for _ in range(READINGS_MOST + 2):
        session.later(listing)
    await asyncio.sleep(0)
    assert begun == session.usage.readings == READINGS_MOST
    go.set()
    await until(lambda: not session.usage.readings)
    assert transport.written == b"", "the LOCK is not answered yet"
    assert session.usage.buffered_bytes > 500 * READINGS_MOST
    transport.end()


def test_a_lease_that_two_requests_share_is_one_and_is_told_to_each_as_it_is_by_then():
    host = cluster()
    agent = around(host)
    (session, transport), (other, others) = connected(host, agent), connected(host, agent)
    before = Place()
    other.flow.begin(before)
    for one in (session, other):
        lock(one, host, b"name")
        host.fleet.settle()
    assert agent.quotas.all.leases == 1
    assert transport.written.startswith(b"*10")
    (lease,) = session.ties.process.leases if session.ties.process else session.ties.leases
    host.locks.take_away(R, {lease.nonce}, "released by force", host.time.now_ns)
    other.answer(before, b"+OK\r\n")
    assert others.written == b"+OK\r\n-EXPIRED released by force\r\n"
    for end in (transport, others):
        end.end()


def test_a_request_that_waits_while_the_lease_of_its_name_is_lost_is_not_taken_for_that_one():
    """It could be neither extended nor given back: who names it would be told of the loss of the other."""
    host = cluster()
    session, transport = connected(host)
    lock(session, host, b"name")
    host.fleet.settle()
    [first] = session.ties.process.leases if session.ties.process else session.ties.leases
    host.time.now_ns = first.promised_ns
    lock(session, host, b"name")
    host.pass_ms(1)
    [again] = session.ties.process.leases if session.ties.process else session.ties.leases
    assert again.fence > first.fence
    assert "renewed" in first.loss
    assert session.shared.losses.of((R, b"name")) is None
    transport.end()


async def test_of_a_connection_that_is_closed_at_once_no_reading_is_begun():
    """One that was made and never run is told of as a mistake, in the log."""
    session, transport = connected(cluster())
    begun: list[Place] = []

    async def reading() -> bytes:
        return b"+OK\r\n"

    def begin(place: Place) -> Any:
        begun.append(place)
        return reading()

    session.later(begin)
    transport.end()
    session.connection_lost(None)
    await asyncio.sleep(0)
    assert begun == []


async def two_listings(session: Session, size: int) -> list[str]:
    """Of that size, asked for by one who does not read. Which of them were made, as it goes on."""
    made: list[str] = []

    async def listing(name: str, place: Place) -> None:
        async with session.large_reply():
            made.append(name)
            session.hand_over(place, b"x" * size)

    for name in ("first", "second"):
        session.later(partial(listing, name))
    for _ in range(2):
        await asyncio.sleep(0)
        while session.shared.turns.jobs:
            session.shared.turns.jobs.pop()(1 << 62)
    await asyncio.sleep(0)
    return made


async def test_a_listing_is_made_once_the_one_before_it_was_read():
    session, transport = connected(cluster())
    transport.is_not_read(session)
    size = Limits().unread_bytes + 1
    made = await two_listings(session, size)
    assert size <= session.flow.kept_bytes < 2 * size
    assert made == ["first"]
    transport.is_read()
    for _ in range(2):
        await asyncio.sleep(0)
    assert made == ["first", "second"]
    transport.end()


async def test_who_sends_all_before_he_reads_is_not_waited_for_while_there_is_room():
    """The second listing would wait for the first one's turn, that for its reader, and he for the agent,
    which reads no more behind it."""
    session, transport = connected(cluster())
    transport.is_not_read(session)
    assert await two_listings(session, 10_000) == ["first", "second"]
    transport.end()


def test_a_command_of_many_that_fails_in_a_way_nobody_foresaw_is_the_last_one():
    """Else each reply after it would be taken for the one before."""

    def run(_session: Session, words: list[bytes]) -> bytes:
        if words == [b"BROKEN"]:
            raise RuntimeError("a mistake")
        return b"+%b\r\n" % words[0]

    session, transport = connected(cluster())
    shared: Any = session.shared
    session._commands = SimpleNamespace(run=run, waits_for_all_before=lambda _: False)
    session.data_received(b"*1\r\n$3\r\nONE\r\n*1\r\n$6\r\nBROKEN\r\n*1\r\n$5\r\nTHREE\r\n")
    while shared.turns.jobs:
        shared.turns.jobs.pop()(1 << 62)
    assert transport.written == b"+ONE\r\n"
    assert transport.closed
    assert len(shared.incidents.failures) == 1
    transport.end()
