"""Nobody waits for thousands of others whose requests, closings or timers come at one moment."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from lockd.config.model import LockClass
from lockd.core.leases import Holder, Lease, Tenure
from lockd.core.locks import Locks
from lockd.core.owners import Fate
from lockd.core.turns import Turns
from lockd.server import endings
from lockd.server import session as session_module
from lockd.server import turns as turns_module
from lockd.server.endings import Endings
from lockd.server.lease_requests import LockRequest
from lockd.server.session import Session
from lockd.server.turns import AT_ONCE_NS, BITE_NS, LoopTurns
from tests.harness.ballots import an_attempt
from tests.harness.clocks import Clock
from tests.harness.leases import a_lease
from tests.harness.sessions import AroundSessions

PING = b"*1\r\n$4\r\nPING\r\n"
STEP_NS = BITE_NS // 4
AT_ONCE = AT_ONCE_NS // STEP_NS
"""What is done in a turn of the loop, when each takes so long."""


class CountedLocks(Locks):
    """What core would do at the end of a lease or of a LOCK that waits is only counted."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended

    def untold(self, lease: Lease, now_ns: int) -> None:
        self._ended()

    def holder_gone(self, lease: Lease, now_ns: int) -> None:
        self._ended()

    def cut_off(self, lease: Lease, reason: str, now_ns: int) -> None:
        self._ended()

    def gone(self, holder: Holder, now_ns: int) -> bool:
        self._ended()
        return True


def _raise(failure: Exception) -> None:
    raise failure


class AnAgent(AroundSessions):
    """What core and the commands do is written down."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(
            turns=LoopTurns(Turns(clock), _raise),
            incidents=SimpleNamespace(limit_hit=lambda *_about: None),
        )
        self.done = list[str]()
        self.links = list[socket.socket]()
        self._clock = clock
        self.locks = CountedLocks(lambda: self._took_a_while("ended"))
        self.endings = Endings(self.locks, self.turns)
        self.commands = SimpleNamespace(run=self._run)

    async def connected(self, number: int) -> list[Session]:
        loop, sessions = asyncio.get_running_loop(), []
        for _ in range(number):
            ours, its = socket.socketpair(socket.AF_UNIX)
            self.links.append(ours)
            _, session = await loop.connect_accepted_socket(partial(Session, self, self.commands), its)  # type: ignore[arg-type]
            sessions.append(session)
        return sessions

    def _run(self, _session: Session, _words: list[bytes]) -> bytes:
        self._took_a_while("ran")
        return b"+PONG\r\n"

    def _took_a_while(self, what: str) -> None:
        self._clock.now_ns += STEP_NS
        self.done.append(what)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    it = Clock()
    for module in (turns_module, endings, session_module):
        monkeypatch.setattr(module, "perf_counter_ns", it)
    return it


@pytest.fixture
def agent(clock: Clock) -> Iterator[AnAgent]:
    it = AnAgent(clock)
    yield it
    for link in it.links:
        link.close()


def is_one_of_many(session: Session) -> None:
    """Of its account: its end comes later."""
    turns: Any = session.shared.turns
    turns._at_once_ns = AT_ONCE_NS


async def most_in_a_turn(agent: AnAgent, number: int) -> int:
    """Until so much is done: how much of it in one turn of the loop at most."""
    most = before = len(agent.done)
    for _ in range(10_000):
        if len(agent.done) >= number:
            return most
        await asyncio.sleep(0)
        most, before = max(most, len(agent.done) - before), len(agent.done)
    raise AssertionError(f"only {len(agent.done)} of {number} were ever done")


Ending = Callable[[Session], Any]
ENDINGS: dict[str, Ending] = {
    "closed": lambda session: session.connection_lost(None),
    "cut off": lambda session: (setattr(session, "_cut_off", "unread_ms"), session.connection_lost(None)),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("connections", "leases"), [(1, 200), (50, 4), (1, 2)])
async def test_many_leases_that_end_together_leave_the_loop_to_others_in_between(
    agent: AnAgent, ending: str, connections: int, leases: int
) -> None:
    sessions = await agent.connected(connections)
    for session in sessions:
        session.ties.leases = {a_lease(): None for _ in range(leases)}
    for session in sessions:
        ENDINGS[ending](session)
    number = connections * leases
    assert len(agent.done) <= AT_ONCE * 4
    assert agent.endings.busy == (number > AT_ONCE), "a few end at once"
    assert await most_in_a_turn(agent, number) <= AT_ONCE * 4
    assert not agent.endings.busy
    assert agent.done == ["ended"] * number


@pytest.mark.parametrize(("connections", "waiters"), [(50, 1), (1, 50)])
async def test_many_that_wait_and_close_together_leave_the_loop_to_others_in_between(
    agent: AnAgent, connections: int, waiters: int
) -> None:
    sessions = await agent.connected(connections)
    for session in sessions * waiters:
        request = LockRequest(session, b"r", LockClass(name="a", match="*"), 1_000)
        session.lock_starts(request, request.cost)
    for session in sessions:
        session.connection_lost(None)
    assert len(agent.done) <= AT_ONCE
    assert await most_in_a_turn(agent, 50) <= AT_ONCE
    assert not any(session.waiting for session in sessions)
    assert agent.quotas.all.waiters == 0


@pytest.mark.parametrize("shared", [False, True])
async def test_what_is_granted_to_one_who_is_gone_already_is_ended_if_nobody_else_was_told(
    agent: AnAgent, shared: bool
) -> None:
    session, other = await agent.connected(2)
    of_class = LockClass(name="a", match="*")
    request = LockRequest(session, b"late", of_class, 1_000)
    request.asks(0)
    session.lock_starts(request, request.cost)
    is_one_of_many(session)
    session.connection_lost(None)
    lease = Lease(Tenure(an_attempt(resource=b"late")), request, b"1" * 32, 1, began_ns=0, now_ns=0)
    request.granted(lease, 0)
    if shared:
        again = LockRequest(other, b"late", of_class, 1_000)
        other.flow.begin(again)
        other.lock_starts(again, again.cost)
        again.granted(lease, 0)
    assert agent.done == [], "core is in the middle of its work"
    for _ in range(3):
        await asyncio.sleep(0)
    assert agent.done == ([] if shared else ["ended"])


async def test_of_requests_that_come_together_a_few_are_run_at_once_and_the_others_in_turns(
    agent: AnAgent,
) -> None:
    sessions = await agent.connected(100)
    for session in sessions:
        session.data_received(PING)
    assert len(agent.done) == AT_ONCE
    assert await most_in_a_turn(agent, 100) <= AT_ONCE + 4
    sessions[0].data_received(PING)
    assert len(agent.done) == 101, "one that comes alone does not wait"


async def test_what_an_app_has_given_back_before_it_closed_is_given_back_also_in_a_crowd(
    agent: AnAgent,
) -> None:
    """It belongs to its process, which lives on: the end of the connection gives back nothing."""
    ran = list[list[bytes]]()
    agent.commands.give_back = lambda _session, words: ran.append(words)
    [session] = await agent.connected(1)
    is_one_of_many(session)
    session.data_received(PING + b"*3\r\n$6\r\nunlock\r\n$1\r\nr\r\n$1\r\nt\r\n" + PING)
    session.connection_lost(None)
    for _ in range(100):
        await asyncio.sleep(0)
    assert ran == [[b"PING"], [b"unlock", b"r", b"t"], [b"PING"]], "which of them that are they say"


async def test_an_agent_that_stops_ends_before_that_what_is_nobodys(agent: AnAgent) -> None:
    leases = [a_lease() for _ in range(500)]
    agent.endings.end(dict.fromkeys(leases, Fate.UNTOLD))
    assert agent.done == []
    await agent.endings.finish(10)
    assert len(agent.done) == 500
    much = [True]

    def work(until_ns: int) -> bool:
        agent._clock.now_ns += BITE_NS
        return bool(much)

    agent.endings.add("one", work)
    await agent.endings.finish(0.05)
    assert agent.endings.busy, "not for long: what is left its process's end, or its deadline, frees"
    much.clear()
    await agent.endings.finish(10)
    waits = [3, 2, 1]
    await agent.endings.finish(10, lambda: bool(waits.pop()) and bool(waits))
    assert waits == [], "as is what others still do"
