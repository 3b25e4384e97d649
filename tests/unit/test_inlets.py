"""What apps send is read in their accounts' turns, and the end of a connection that is not read from is
seen."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from lockd.core.leases import Lease
from lockd.core.locks import Locks
from lockd.core.turns import Turns
from lockd.server import inlets as inlets_module
from lockd.server import session as session_module
from lockd.server.endings import Endings
from lockd.server.inlets import Inlet, Inlets
from lockd.server.session import Session
from lockd.server.turns import AT_ONCE_NS, BITE_NS, TURN_NS, LoopTurns
from tests.harness.clocks import Clock
from tests.harness.leases import a_lease
from tests.harness.sessions import AroundSessions, Incidents
from tests.harness.waiting import until

STEP_NS = BITE_NS // 4
IN_A_TURN = (TURN_NS + 2 * BITE_NS) // STEP_NS
"""With a bite at once before it."""
AT_ONCE = AT_ONCE_NS // STEP_NS
PING = b"*1\r\n$4\r\nPING\r\n"


class Connection:
    """What happens to it is written down. Each reading takes a while."""

    inlet: Inlet | None = None
    failure: Exception | None = None

    def __init__(self, clock: Clock, log: list[Any], account: str) -> None:
        self.account = account
        self.ours, self.its = socket.socketpair()
        self.ours.setblocking(False)
        self._clock, self._log = clock, log

    def takes(self, data: bytes) -> bool:
        self._clock.now_ns += STEP_NS
        self._says("read")
        if self.failure is not None:
            raise self.failure
        return data == PING

    def sent_all(self, reset: bool) -> None:
        self._clock.now_ns += STEP_NS
        self._says("reset" if reset else "end")
        self.around.take_out(self)

    def hung_up(self) -> None:
        self._says("hung up")

    def broke(self, failure: Exception) -> None:
        self._says(failure)
        self.around.take_out(self)

    def _says(self, what: object) -> None:
        self._log.append((what, self))

    around: Inlets


class Around:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.log = list[Any]()
        self.turns = LoopTurns(Turns(clock), self.log.append, Running(clock))
        self.inlets = Inlets(self.turns)
        self.connections = list[Connection]()

    def connected(self, number: int = 1, account: str = "greedy", reads: bool = True) -> list[Connection]:
        self.inlets.start(asyncio.get_running_loop())
        new = [Connection(self.clock, self.log, account) for _ in range(number)]
        for connection in new:
            connection.around = self.inlets
            assert self.inlets.put(connection, connection.ours.fileno(), reads)
        self.connections += new
        return new

    def about(self, connection: Connection) -> list[object]:
        return [what for what, of in self.log if of is connection]

    @property
    def read(self) -> list[Connection]:
        return [of for what, of in self.log if what == "read"]

    async def most_in_a_turn(self, number: int) -> int:
        """Until so many were read: how many of them in one turn of the loop at most."""
        most = before = len(self.read)
        for _ in range(10_000):
            if len(self.read) >= number:
                return most
            await asyncio.sleep(0)
            most, before = max(most, len(self.read) - before), len(self.read)
        raise AssertionError(f"only {len(self.read)} of {number} were ever read")

    def end(self) -> None:
        self.inlets.stop()
        for connection in self.connections:
            connection.ours.close()
            connection.its.close()


class Running(SimpleNamespace):
    """The loop that runs, where only work takes time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(now_ns=clock, worked_ns=clock)

    def call_later(self, _delay_s: float, call: Any) -> Any:
        return asyncio.get_running_loop().call_later(0, call)

    def call_soon(self, call: Any) -> Any:
        return asyncio.get_running_loop().call_soon(call)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    it = Clock()
    for module in (inlets_module, session_module):
        monkeypatch.setattr(module, "perf_counter_ns", it)
    return it


@pytest.fixture
def around(clock: Clock) -> Iterator[Around]:
    it = Around(clock)
    yield it
    it.end()


async def turns(number: int = 20) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


# In turn


async def test_single_bytes_on_many_connections_leave_the_loop_to_others_in_between(around: Around) -> None:
    """At first so many as one bite has time for, and then as many as an account's turn has time for."""
    for connection in around.connected(200):
        connection.its.send(b"*")
    assert await around.most_in_a_turn(200) <= IN_A_TURN
    assert Counter(around.read) == Counter(around.connections)


async def test_each_connection_is_read_once_before_one_is_read_twice(around: Around) -> None:
    for connection in around.connected(100):
        connection.its.send(b"x" * 20_000)
    await around.most_in_a_turn(300)
    for began in (0, 100, 200):
        assert len({*around.read[began : began + 100]}) == 100


async def test_one_that_was_named_and_is_to_be_read_from_no_more_is_not(around: Around) -> None:
    """Nor is another with the number of one that has ended."""
    *others, still, ended = around.connected(30)
    for connection in around.connections:
        connection.its.send(b"*")
    await around.most_in_a_turn(1)
    before = set(around.read)
    assert len(before) < 20
    for connection in others:
        assert connection.inlet is not None
        connection.inlet.reads(connection, False)
    around.inlets.take_out(ended)
    await turns()
    assert set(around.read) - before <= {still}


async def test_a_calm_account_is_read_at_once_however_many_wait_of_a_greedy_one(around: Around) -> None:
    greedy, [calm] = around.connected(500), around.connected(account="calm")
    for connection in greedy:
        connection.its.send(b"*")
    await around.most_in_a_turn(100)
    before = len(around.read)
    calm.its.send(PING)
    await until(lambda: calm in around.read)
    assert around.read.index(calm) - before <= 2 * IN_A_TURN


async def test_of_eight_greedy_accounts_each_is_read_from_as_much_as_the_others(around: Around) -> None:
    for number in range(8):
        for connection in around.connected(60, f"greedy {number}"):
            connection.its.send(b"*")
    assert await around.most_in_a_turn(240) <= IN_A_TURN + 8 * BITE_NS // STEP_NS
    of_each = Counter(connection.account for connection in around.read)
    assert len(of_each) == 8
    assert max(of_each.values()) - min(of_each.values()) <= IN_A_TURN


async def test_whole_requests_that_come_together_are_run_at_once_up_to_a_bound(around: Around) -> None:
    for connection in around.connected(100):
        connection.its.send(PING)
    await around.most_in_a_turn(1)
    assert IN_A_TURN < len(around.read) <= AT_ONCE
    assert await around.most_in_a_turn(100) <= AT_ONCE + IN_A_TURN


async def test_what_is_read_is_charged(around: Around) -> None:
    for connection in around.connected(50):
        connection.its.send(b"*")
    await around.most_in_a_turn(50)
    of = around.turns.of
    assert of._used_ns("greedy") >= 50 * STEP_NS


async def test_one_whose_reading_fails_does_not_keep_others_from_being_read(around: Around) -> None:
    bad, *others = around.connected(50)
    bad.failure = ValueError()
    for connection in around.connections:
        connection.its.send(b"*")
    await around.most_in_a_turn(50)
    assert around.about(bad) == ["read", bad.failure]
    assert bad.inlet is None
    others[0].its.send(b"*")
    await around.most_in_a_turn(51)


async def test_when_its_account_is_known_it_is_read_in_that_one_s_turns(around: Around) -> None:
    connection, other = around.connected(2, "strangers")
    connection.account = "games"
    for one in (connection, other):
        one.its.send(b"*")
    await around.most_in_a_turn(2)
    assert connection.inlet is not None
    assert connection.inlet.account == "games"
    assert other.inlet is not None
    assert other.inlet.account == "strangers"


async def test_where_no_file_is_left_the_transport_reads(
    around: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inlets_module, "Inlet", lambda *_: (_ for _ in ()).throw(OSError(24, "no file")))
    around.inlets.start(asyncio.get_running_loop())
    connection = Connection(around.clock, around.log, "new")
    around.connections.append(connection)
    assert not around.inlets.put(connection, connection.ours.fileno(), True)
    assert connection.inlet is None


# The end


async def test_the_end_comes_after_all_that_was_sent_before_it(around: Around) -> None:
    [connection] = around.connected()
    connection.its.send(b"x" * 10_000)
    connection.its.close()
    await until(lambda: connection.inlet is None)
    assert around.about(connection) == ["read", "read", "end"]


async def test_ends_that_come_together_leave_the_loop_to_others_in_between(around: Around) -> None:
    ends = list[int]()
    for connection in around.connected(200):
        connection.its.close()
    before = 0
    while len(around.log) < 200:
        await asyncio.sleep(0)
        ends.append(len(around.log) - before)
        before = len(around.log)
    assert max(ends) <= IN_A_TURN


async def test_a_reset_is_told_as_one(around: Around) -> None:
    [connection] = around.connected()
    connection.ours.send(b"unread")
    connection.its.close()
    await until(lambda: connection.inlet is None)
    assert around.about(connection) == ["reset"]


async def test_of_one_that_is_not_read_from_the_end_is_told_once_however_much_was_sent(
    around: Around,
) -> None:
    connection, other = around.connected(2, reads=False)
    connection.its.sendall(b"x" * 50_000)
    await turns()
    assert not around.log, "it has only sent something"
    connection.its.shutdown(socket.SHUT_WR)
    await turns()
    assert not around.log, "it wants its replies"
    connection.its.close()
    await until(lambda: around.log)
    await turns()
    assert around.log == [("hung up", connection)]
    assert not around.about(other)


async def test_one_that_is_read_from_again_is_read_to_its_end(around: Around) -> None:
    [connection] = around.connected(reads=False)
    connection.its.send(b"last words")
    connection.its.close()
    await until(lambda: around.log)
    assert connection.inlet is not None
    connection.inlet.reads(connection, True)
    await until(lambda: connection.inlet is None)
    assert around.about(connection) == ["hung up", "read", "end"]


async def test_connections_may_end_after_the_agent_has(around: Around) -> None:
    connection, other = around.connected(2)
    connection.its.send(b"*")
    around.inlets.stop()
    await turns()
    around.inlets.take_out(connection)
    assert connection.inlet is None
    assert not around.log
    assert other.inlet is not None
    other.inlet.reads(other, False)
    around.inlets.take_out(other)


async def test_of_an_account_without_connections_nothing_is_left(around: Around) -> None:
    [connection] = around.connected()
    first = connection.inlet
    around.inlets.take_out(connection)
    around.inlets.take_out(connection)
    [again] = around.connected()
    assert again.inlet is not first
    again.its.send(b"*")
    await around.most_in_a_turn(1)


# With real connections


@pytest.fixture
def agent() -> AroundSessions:
    return AroundSessions(locks=SimpleNamespace(), incidents=Incidents())


async def test_a_session_is_read_in_turn_answers_and_ends(agent: AroundSessions) -> None:
    loop = asyncio.get_running_loop()
    agent.inlets.start(loop)
    ran = list[list[bytes]]()

    def run(_session: Session, words: list[bytes]) -> bytes:
        ran.append(words)
        return b"+PONG\r\n"

    ours, its = socket.socketpair()
    commands = SimpleNamespace(run=run, waits_for_all_before=lambda _words: False)
    _, session = await loop.connect_accepted_socket(partial(Session, agent, commands), its)  # type: ignore[arg-type]
    await until(lambda: session.inlet is not None)
    ours.send(PING)
    await until(lambda: ran)
    for piece in (PING[:5], PING[5:] + PING, b"*1\r\n"):
        ours.send(piece)
        await turns()
    await until(lambda: len(ran) == 3)
    assert ours.recv(100) == b"+PONG\r\n" * 3
    ours.close()
    await until(lambda: session.is_gone)
    assert session.inlet is None
    assert not agent.sessions
    agent.inlets.stop()


async def test_what_the_end_of_a_session_takes_is_done_as_it_is_read(agent: AroundSessions) -> None:
    """And not for all that were read, in one turn of the loop. Its transport tells of it once more."""
    loop = asyncio.get_running_loop()
    for reset in (False, True):
        ours, its = socket.socketpair()
        _, session = await loop.connect_accepted_socket(partial(Session, agent, SimpleNamespace()), its)  # type: ignore[arg-type]
        session.sent_all(reset)
        assert session.is_gone
        assert agent.quotas.all.connections == 0
        await turns()
        ours.close()
    assert agent.quotas.all.connections == 0
    assert not agent.incidents.failures


class UntoldLocks(Locks):
    """What core would do with a lease of which its app has not read is only noted."""

    def __init__(self, untold: Callable[[Lease], None]) -> None:
        self._untold = untold

    def untold(self, lease: Lease, now_ns: int) -> None:
        self._untold(lease)


async def test_one_whose_write_has_failed_has_not_read_it_though_its_end_is_clean(
    agent: AroundSessions,
) -> None:
    """It closed before that was written, and both come to light in one turn of the loop. Only its transport
    knows, and tells so in the next one."""
    given_back = list[Lease]()
    agent.endings = Endings(UntoldLocks(given_back.append), agent.turns)
    loop = asyncio.get_running_loop()
    agent.inlets.start(loop)
    ours, its = socket.socketpair()
    _, session = await loop.connect_accepted_socket(partial(Session, agent, SimpleNamespace()), its)  # type: ignore[arg-type]
    await until(lambda: session.inlet is not None)
    lease = a_lease()
    session.ties.granted(lease)
    session.ties.tells(lease, b"+OK\r\n")
    ours.close()
    session.send(b"+OK\r\n")
    session.sent_all(False)
    await until(lambda: session.is_gone and (given_back or lease.told))
    assert given_back == [lease]
    agent.inlets.stop()
