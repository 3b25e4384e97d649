"""Scripts that an agent has not read yet: one at a time, and what came behind them finds what they left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockd.clock import boottime_ns
from lockd.config.current import Current
from lockd.core.leases import owner_of
from lockd.core.owners import Process
from lockd.core.plain_values import token_of
from lockd.core.scripts.operations import NotRecognised, Recognised
from lockd.core.turns import Turns
from lockd.core.values import Refusal
from lockd.server import turns as turns_module
from lockd.server.commands import plain, scripting
from lockd.server.commands.arguments import BadRequest
from lockd.server.commands.checks import Checks
from lockd.server.commands.readings import Readings
from lockd.server.dropin.looking import Looking
from lockd.server.dropin.performing import Ground
from lockd.server.dropin.preparing import Preparing
from lockd.server.dropin.script_cache import ScriptCache, digest_of
from lockd.server.dropin.signals import Signals
from lockd.server.dropin.usage import Usage
from lockd.server.peer import Peer
from lockd.server.session import Session
from lockd.server.turns import BITE_NS, TURN_NS, LoopTurns
from tests.harness.clocks import Clock
from tests.harness.configs import a_config
from tests.harness.fleet_model import App, Host, Time, masters_of
from tests.harness.lock_scripts import RELEASES
from tests.harness.real_fleet import a_fleet
from tests.harness.sessions import AroundSessions, Incidents, Transport

A_READING_NS = BITE_NS // 4
COUNTS = b"return redis.call('incr', KEYS[1]) -- %d"
RELEASE = RELEASES["redis.io"].encode()
TAKE = b"return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 5000)"
PEER = Peer(7, 1000, frozenset())


def of(uid: int) -> Peer:
    return Peer(7, uid, frozenset())


async def until(is_so: Callable[[], bool], turn: Callable[[], None] = lambda: None) -> None:
    """turn: is called in each turn of the loop."""
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0)
            turn()


# The cache alone


def _raise(failure: Exception) -> None:
    raise failure


class ACache:
    """read: of which users scripts were read. To read one takes a bite by this clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.read = list[int]()
        self.refusals = list[str]()
        log = SimpleNamespace(warning=self._was_read)
        incidents = SimpleNamespace(limit_hit=lambda refusal, _peer: self.refusals.append(refusal))
        around = SimpleNamespace(log=log, incidents=incidents, turns=LoopTurns(Turns(clock), _raise))
        self.scripts = ScriptCache(cast("Any", around))
        self.told = list[Recognised | NotRecognised | Refusal]()

    def _was_read(self, _event: str, **fields: Any) -> None:
        self.clock.now_ns += A_READING_NS
        self.read.append(fields["uid"])

    def asks(self, number: int, uid: int = 1000) -> None:
        self.scripts.read(COUNTS % number, f"uid {uid}", of(uid), b"", self.told.append)

    def refused(self) -> list[Refusal]:
        return [told for told in self.told if isinstance(told, Refusal)]


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> ACache:
    clock = Clock()
    monkeypatch.setattr(turns_module, "perf_counter_ns", clock)
    return ACache(clock)


async def test_however_many_come_together_others_have_turns_between(cache: ACache) -> None:
    for number in range(40):
        cache.asks(number, uid=1000 + number // 8)
    assert cache.read == [], "not before others had a turn"
    turns, before = list[int](), 0

    def turn() -> None:
        nonlocal before
        turns.append(len(cache.read) - before)
        before = len(cache.read)

    await until(lambda: len(cache.told) == 40, turn)
    assert len(cache.read) == 40
    assert max(turns) <= (TURN_NS + BITE_NS) // A_READING_NS


async def test_who_brings_many_waits_behind_himself_and_not_before_others(cache: ACache) -> None:
    for number in range(12):
        cache.asks(number, uid=1)
    cache.asks(100, uid=2)
    await until(lambda: 2 in cache.read)
    assert cache.read.index(2) <= 1


async def test_what_several_bring_is_read_once(cache: ACache) -> None:
    for uid in (1, 1, 1, 2):
        cache.asks(7, uid)
    await until(lambda: len(cache.told) == 4)
    assert len(cache.read) == 1
    cache.asks(7, uid=3)
    assert len(cache.told) == 5, "known: at once"


async def test_of_each_account_so_many_wait_to_be_read(cache: ACache) -> None:
    """A dozen is what a library brings at its start."""
    for number in range(100):
        cache.asks(number)
    assert len(cache.refused()) == 36
    assert str(cache.refused()[0]).startswith("LIMIT scripts: ")
    assert "Pass values in ARGV: each different text is a new script" in cache.refusals[0]
    for uid in range(2_000, 2_100):
        cache.asks(1_000 + uid, uid)
    assert len(cache.refused()) == 36, "others' are read"
    await until(lambda: len(cache.told) == 200)
    for number in range(64):
        cache.asks(number)
    assert len(cache.refused()) == 36, "those that are known go on"
    assert not cache.scripts._waiting


async def test_a_failure_of_ours_is_told_and_the_next_is_read() -> None:
    incidents = Incidents()

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no log")

    turns = LoopTurns(Turns(), incidents.failures.append)
    shared = SimpleNamespace(log=SimpleNamespace(warning=fails), incidents=incidents, turns=turns)
    scripts, told = ScriptCache(cast("Any", shared)), list[Any]()
    scripts.read(COUNTS % 1, "an app", PEER, b"", told.append)
    scripts.read(RELEASE, "an app", PEER, b"", told.append)
    await until(lambda: len(told) == 2)
    assert str(told[0]).startswith("ERR internal error of the agent")
    assert isinstance(told[1], Recognised)
    assert len(incidents.failures) == 1


# On connections


class Commands:
    """Those of scripts, and DEL."""

    brings_no_loss = frozenset[bytes]()

    def __init__(self, preparing: Preparing, scripts: ScriptCache) -> None:
        of_scripts = scripting.COMMANDS.handlers(scripting.Scripting(preparing, scripts))
        of_keys = plain.COMMANDS.handlers(plain.Plain(preparing))
        self._handlers = {
            command.name.upper().encode(): handler for command, handler in (*of_scripts, *of_keys)
        }

    def run(self, session: Session, words: list[bytes]) -> bytes | None:
        if words == [b"PING"]:
            return b"+PONG\r\n"
        try:
            return cast("bytes | None", self._handlers[words[0]](session, words))
        except BadRequest as bad:
            return b"-%b\r\n" % str(bad).encode()

    def give_back(self, session: Session, words: list[bytes]) -> None:
        self.run(session, words)

    def waits_for_all_before(self, words: list[bytes]) -> bool:
        return False


class AnAgent:
    """Of one connection, whose process holds r with the value v."""

    def __init__(self) -> None:
        self.host = Host(time := Time(boottime_ns()), masters_of(time))
        current = Current(a_config())
        shared = cast(
            "Any",
            AroundSessions(
                locks=self.host.locks,
                incidents=Incidents(),
                current=current,
                permissions=SimpleNamespace(may_lock=lambda *_: True),
            ),
        )
        metrics = cast("Any", SimpleNamespace())
        looking = Looking(shared, a_fleet(), Readings())
        ground = Ground(
            current=current,
            shared=shared,
            looking=looking,
            signals=Signals(looking),
            metrics=metrics,
            usage=Usage(),
            checks=Checks(current, shared, metrics),
        )
        self.scripts = ScriptCache(shared)
        self.session = Session(shared, Commands(Preparing(ground, self.scripts), self.scripts))
        self.transport = Transport()
        self.session.connection_made(cast("Any", self.transport))
        self.session.ties.process = Process(7, 1, self.session.peer.uid)
        self.session.owner = owner_of(b"host", 7, self.session.peer.uid)

    def locked(self) -> App:
        owner = self.session.owner
        return self.host.locked(value=token_of(b"v"), owner=owner, pid=7, started=1, detached=True)

    def sends(self, *requests: tuple[bytes, ...]) -> None:
        def request(words: tuple[bytes, ...]) -> bytes:
            return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)

        self.session.data_received(b"".join(map(request, requests)))

    async def replies(self, number: int) -> list[bytes]:
        """So many lines."""
        await until(lambda: self.transport.written.count(b"\r\n") >= number, self.host.fleet.settle)
        written, self.transport.written = self.transport.written, b""
        return written.splitlines()


@pytest.fixture
def agent() -> Iterator[AnAgent]:
    it = AnAgent()
    yield it
    it.transport.end()


RELEASES_R = (b"EVAL", RELEASE, b"1", b"r", b"v")


async def test_a_new_script_keeps_its_place_and_what_is_behind_it_finds_what_it_left(agent: AnAgent) -> None:
    agent.sends((b"SCRIPT", b"LOAD", RELEASE))
    await agent.replies(2)
    agent.locked()
    new = (b"EVAL", b"%b -- new" % RELEASE, *RELEASES_R[2:])
    agent.sends(new, RELEASES_R, (b"PING",))
    assert await agent.replies(3) == [b":1", b":0", b"+PONG"]


async def test_what_is_loaded_is_there_for_what_is_behind_it(agent: AnAgent) -> None:
    agent.locked()
    sha = digest_of(RELEASE)
    agent.sends(
        (b"SCRIPT", b"LOAD", RELEASE),
        (b"SCRIPT", b"EXISTS", sha),
        (b"EVALSHA", sha, b"1", b"r", b"v"),
        (b"SCRIPT", b"LOAD", COUNTS % 1),
        (b"PING",),
    )
    *told, refused, pong = await agent.replies(7)
    assert told == [b"$40", sha, b"*1", b":1", b":1"]
    assert refused.startswith(b"-ERR lockd does not recognise this script as a lock operation")
    assert pong == b"+PONG"


async def test_one_that_is_known_is_answered_in_the_same_turn(agent: AnAgent) -> None:
    agent.sends((b"SCRIPT", b"LOAD", RELEASE))
    await agent.replies(2)
    agent.locked()
    for request in (RELEASES_R, (b"EVALSHA", digest_of(RELEASE), b"1", b"r", b"v")):
        agent.sends(request)
        agent.host.fleet.settle()
    assert agent.transport.written == b":1\r\n:0\r\n"
    agent.transport.written = b""
    agent.sends((b"SCRIPT", b"LOAD", RELEASE))
    assert agent.transport.written.startswith(b"$40")


async def test_what_gives_back_does_so_though_its_app_has_closed_before_it_was_read(agent: AnAgent) -> None:
    agent.locked()
    agent.sends(RELEASES_R)
    agent.session.connection_lost(None)
    await until(lambda: agent.host.shown() == [None] * 5, agent.host.fleet.settle)


async def test_what_takes_is_not_begun_when_its_app_has_closed_before_it_was_read(agent: AnAgent) -> None:
    take, told = (b"EVAL", TAKE, b"1", b"r", b"v"), list[Any]()
    agent.sends(take)
    agent.session.connection_lost(None)
    agent.scripts.read(TAKE, "an app", agent.session.peer, b"", told.append)
    await until(lambda: bool(told), agent.host.fleet.settle)
    assert agent.host.shown() == [None] * 5
    assert agent.session.shared.quotas.all.waiters == 0
