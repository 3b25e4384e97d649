"""One master of five says anything: what the other four say goes on to count, and their links stay.

Real links and the real core; the masters are modelled, so that one can say what no Redis does. The fuzzer
(tests/fuzz/fuzz_master.py) says what nobody has thought of, to a whole agent.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
import sys
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lockd.clock import boottime_ns, wall_ahead_ns
from lockd.config.model import Timeouts
from lockd.core.ballots.ballot import Ballot
from lockd.core.fences import COUNTER_AHEAD_US, SANE_MOST, slot_of
from lockd.core.leases import Lease
from lockd.core.locks import Locks
from lockd.core.membership import State, highest_counters
from lockd.core.values import Bound, Chance, Extended, RedlockParameters, Refusal
from lockd.dev.processes import LOOPBACK
from lockd.masters import changes, scripts
from lockd.masters.aside import Credentials, ask_as
from lockd.masters.failures import MasterError
from lockd.server.tokens import fresh_token
from tests.harness.fleet_model import Watched, break_tries_for
from tests.harness.modelled import Lie, ModelledMaster, encoded, modelled_masters, serving
from tests.harness.real_fleet import NoGauge, a_fleet
from tests.harness.waiting import PATIENCE_S, until

R = b"r"
VOTES = (scripts.ACQUIRE.digest, scripts.EXTEND.digest, scripts.PROPOSE.digest)


class CountingGauge(NoGauge):
    def __init__(self) -> None:
        self.connects: Counter[int] = Counter()
        self.offences: Counter[int] = Counter()
        self.refused: Counter[tuple[int, str]] = Counter()

    def connected(self, master: int) -> None:
        self.connects[master] += 1

    def nonsense(self, master: int) -> None:
        self.offences[master] += 1

    def not_counted(self, master: int, why: str) -> None:
        self.refused[master, why] += 1


class Asker:
    """core.leases.Holder and Reply: what came of one request, as a future."""

    label = "test"
    max_hold_ms = 60_000
    lock_delay_ms = keep_ms = 0
    owner = b"host 1 0"
    account = "a test"
    pid = started = 1
    counted = True
    bound = Bound.PROCESS
    named = False
    value = b""
    give_up_ns: int | None = None

    def __init__(self, resource: bytes = R, *, detached: bool = True, ttl_ms: int = 30_000) -> None:
        self.resource = resource
        self.detached = detached
        self.ttl_ms = ttl_ms
        self.asked_ns = boottime_ns()
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.answers = 0

    def granted(self, lease: Lease, now_ns: int) -> None:
        self._answered(lease)

    def done(self, lease: Extended | None) -> None:
        self._answered(lease)

    def refused(self, refusal: Refusal) -> None:
        self._answered(refusal)

    def _answered(self, what: object) -> None:
        self.answers += 1
        if not self.outcome.done():
            self.outcome.set_result(what)

    def renewed(self, lease: Lease) -> None: ...

    def lost(self, lease: Lease, reason: str) -> None: ...

    def ended(self, lease: Lease) -> None: ...


class NotKept:
    """core's `Journal`, that notes nothing. `Unkept` does no more, but compiled none of its methods can be
    made to fail."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


class World:
    """An agent without its server, over four honest masters and one, `bad`, that a test makes lie."""

    def __init__(self, masters: list[ModelledMaster]) -> None:
        self.masters = masters
        self.bad = masters[0]  # it is asked and heard first
        self.gauge = CountingGauge()
        self.broken: list[Exception] = []
        timeouts = {"master_ms": 15_000, "dead_ms": 15_000, "connect_ms": 15_000}
        self.fleet = a_fleet(
            *(master.address for master in masters),
            gauge=self.gauge,
            broke=self._broke,
            timeouts=timeouts,
            clock_skew_allowance_ms=15_000,
        )
        parameters = RedlockParameters(len(masters), 10, 15_000)
        self.watched, self.journal = Watched(), NotKept()
        self.locks = Locks(parameters, self.fleet, self.watched, Chance(fresh_token), self.journal)
        self.locks.wall_ahead_ns = wall_ahead_ns()

    def _broke(self, ballot: Ballot, failure: Exception, now_ns: int) -> None:
        self.broken.append(failure)
        self.locks.broke(ballot, now_ns)

    @property
    def bad_link(self) -> Any:
        return self.fleet.links[0]

    async def tick(self) -> None:
        while True:
            self.locks.turns.run(boottime_ns())
            await asyncio.sleep(0.005)

    async def lock(self, resource: bytes = R, ttl_ms: int = 30_000, *, detached: bool = True) -> Any:
        """The lease, or the refusal."""
        asker = Asker(resource, ttl_ms=ttl_ms, detached=detached)
        self.locks.lock(asker, boottime_ns())
        return await asyncio.wait_for(asker.outcome, PATIENCE_S)

    async def unlock(self, lease: Lease) -> Any:
        asker = Asker(lease.resource)
        self.locks.unlock(lease.resource, lease.token, asker, boottime_ns())
        return await asyncio.wait_for(asker.outcome, PATIENCE_S)

    async def extend(self, lease: Lease) -> Any:
        """Asked again where this host stood still: what was on its way then proves nothing."""
        while True:
            asker = Asker(lease.resource)
            self.locks.extend(lease.resource, lease.token, 60_000, asker, boottime_ns())
            said = await asyncio.wait_for(asker.outcome, PATIENCE_S)
            if not (isinstance(said, Refusal) and "m5=clock-not-watched-yet" in said.text):
                return said

    async def works(self, times: int = 5, resource: bytes = R) -> None:
        """LOCK, EXTEND and UNLOCK do what they should, with fences as they should be."""
        last = 0
        for _ in range(times):
            lease = await self.lock(resource)
            assert isinstance(lease, Lease), lease
            assert last < lease.fence < time.time_ns() // 1000 + COUNTER_AHEAD_US
            last = lease.fence
            extended = await self.extend(lease)
            assert isinstance(extended, Extended), extended
            assert extended.deadline_ns < boottime_ns() + 60_000_000_000
            assert await self.unlock(lease) is None
        self.others_are_well()

    def others_are_well(self) -> None:
        assert [self.gauge.connects[m] for m in range(1, 5)] == [1, 1, 1, 1], "the links to the others stayed"
        assert all(self.gauge.offences[m] == 0 for m in range(1, 5))
        assert not any(master for master, _ in self.gauge.refused), self.gauge.refused
        assert self.broken == []
        assert self.fleet.voting() & 0b11110 == 0b11110


@asynccontextmanager
async def beside_a_bad_master(**more: Any) -> AsyncIterator[World]:
    """A world in which all five vote. more: of the bad master, which need not vote then."""
    masters = modelled_masters(5)
    for name, value in more.items():
        setattr(masters[0], name, value)
    servers = [await master.serve() for master in masters]
    world = World(masters)
    world.fleet.start()
    ticking = asyncio.get_running_loop().create_task(world.tick())
    try:
        wanted = 0b11110 if more else 0b11111
        await until(lambda: world.fleet.voting() & wanted == wanted, what="the masters vote")
        yield world
    finally:
        ticking.cancel()
        await world.fleet.stop()
        for server in servers:
            server.close()
        await until(lambda: not any(master.open for master in masters), what="the connections end")


def to_votes(reply: bytes | Callable[[list[bytes]], bytes]) -> Lie:
    """Says this whenever it is asked for a vote."""

    def lie(words: list[bytes], true: bytes) -> bytes:
        if words[0] != b"EVALSHA" or words[1] not in VOTES:
            return true
        return reply(words) if callable(reply) else reply

    return lie


def now() -> int:
    return time.time_ns() // 1000


# One of each kind: what else makes no sense is told by tests/unit/test_answers.py and test_framing.py.
NONSENSE_VOTES = [
    b"*3\r\n:1\r\n$-1\r\n:NOW\r\n",  # [1, nil, time]: it hung LOCKs, and took down honest links
    b"*3\r\n:1\r\n:1\r\n(1208925819614629174706176\r\n",
    b"*3\r\n:77\r\n:1\r\n:NOW\r\n",
    b"*3\r\n,1.5\r\n:1\r\n:NOW\r\n",
    b"*0\r\n",
    b"+OK\r\n",
    b"%1\r\n*0\r\n:1\r\n",
    b">3\r\n:1\r\n:1\r\n:NOW\r\n",
    b"*1\r\n" * 100_000,
    b"*3\r\n:1\r\n*2147483647\r\n",
    b"$536870912\r\n",
    b"\x00\xff\r\n",
    b"$3\r\nabcdef\r\n",
]


@pytest.mark.parametrize("reply", NONSENSE_VOTES, ids=lambda reply: repr(reply[:24]))
async def test_a_vote_that_makes_no_sense_costs_that_master_its_connection_and_nobody_else(
    reply: bytes,
) -> None:
    async with beside_a_bad_master() as world:
        world.bad.lie = to_votes(reply.replace(b"NOW", b"%d" % now()))
        await world.works()
        await until(lambda: world.gauge.offences[0] >= 1, what="it is seen")
        assert world.bad_link.reason.startswith(("it talks nonsense", "connection lost", "no answer"))
        assert len(world.bad_link.reason) < 300


@pytest.mark.parametrize("reply", [b":2\r\n", b"$-1\r\n", b"*3\r\n:1\r\n:1\r\n:1\r\n"])
async def test_an_answer_to_a_release_that_makes_no_sense_confirms_nothing(reply: bytes) -> None:
    def lie(words: list[bytes], true: bytes) -> bytes:
        return reply if words[:2] == [b"EVALSHA", scripts.RELEASE.digest] else true

    async with beside_a_bad_master() as world:
        world.bad.lie = lie
        await world.works()
        await until(lambda: world.gauge.offences[0] >= 1, what="it is seen")


@pytest.mark.parametrize("fence", [0, -1, SANE_MOST, (1 << 53) - 1, (1 << 63) - 1, "a day ahead"], ids=str)
async def test_a_fence_beyond_sane_costs_that_master_its_vote_and_is_passed_on_to_nobody(
    fence: int | str,
) -> None:
    """Today one bad counter makes every LOCK of every host NOQUORUM for ever."""
    value = now() + COUNTER_AHEAD_US + 60_000_000 if isinstance(fence, str) else fence

    async with beside_a_bad_master() as world:
        world.bad.lie = to_votes(lambda _: encoded([1, value, now()]))
        await world.works()
        assert world.bad_link.state is State.MISCOUNTING
        assert "fence counter" in world.bad_link.reason
        assert "wipe it" in world.bad_link.reason
        assert world.gauge.refused[0, "miscounting"] >= 1
        assert world.gauge.offences[0] == 0, "it is no nonsense, its connection stays"
        for master in world.masters[1:]:
            assert max(master.store.counters.values()) < now() + COUNTER_AHEAD_US


async def test_a_counter_that_was_wrong_gives_the_vote_back_when_it_is_right_again() -> None:
    async with beside_a_bad_master() as world:
        world.bad.store.counters[slot_of(R)] = SANE_MOST + 5
        await world.works(2)
        assert world.bad_link.state is State.MISCOUNTING
        await world.bad_link.inspect_now()
        assert world.bad_link.state is State.MISCOUNTING, "it is looked at again, and still wrong"
        assert str(SANE_MOST + 5) in world.bad_link.reason
        world.bad.store.counters[slot_of(R)] = now()
        await world.bad_link.inspect_now()
        assert world.fleet.voting() == 0b11111
        await world.works(2)


async def test_a_master_with_one_wrong_counter_is_none_that_an_admitted_one_begins_from() -> None:
    async with beside_a_bad_master() as world:
        await world.works(2)
        wiped = world.masters[4]
        counter = wiped.store.counters[slot_of(R)]
        world.bad.store.counters[slot_of(R) ^ 1] = SANE_MOST + 5
        others = world.fleet.links[:4]
        readings = await asyncio.gather(*(changes.counters_of(link) for link in others))
        most = world.fleet.clocks.largest_sane_fence(boottime_ns())
        counters = highest_counters(readings, world.fleet.clocks.quorum, most)
        assert counters[slot_of(R)] >= counter
        assert max(counters.values()) < now() + COUNTER_AHEAD_US


async def slowly() -> None:
    """After the bad one has answered."""
    await asyncio.sleep(0.05)


@pytest.mark.parametrize("ahead_h", [11.9, 13, 23])
async def test_a_fence_hours_ahead_is_named_by_one_master_and_the_others_go_on(ahead_h: float) -> None:
    """Where the others' counters differ, and are ahead of the clock, a value above theirs is proposed."""
    async with beside_a_bad_master() as world:
        ahead_us = int(ahead_h * 3_600_000_000)
        for number, master in enumerate(world.masters[1:]):
            master.store.counters[slot_of(R)] = now() + 600_000_000 + 1_000 * (number // 2)
            master.pace = slowly
        world.bad.lie = to_votes(lambda _: encoded([1, now() + ahead_us, now()]))
        await world.works()
        world.others_are_well()


async def test_scripts_that_are_gone_once_are_loaded_at_once_however_much_was_on_its_way() -> None:
    async with beside_a_bad_master() as world:
        gone = 0

        def lie(words: list[bytes], true: bytes) -> bytes:
            nonlocal gone
            gone += words[0] == b"EVALSHA"
            if words[0] != b"EVALSHA" or world.bad.connections > 1:
                return true
            # Both at once, as Redis answers what came in one piece.
            return b"" if gone == 1 else 2 * b"-NOSCRIPT No matching script.\r\n"

        world.bad.lie = lie
        for outcome in await asyncio.gather(world.lock(b"one"), world.lock(b"two")):
            assert isinstance(outcome, Lease)
        await until(lambda: world.gauge.connects[0] == 2, what="it is connected again")
        assert world.gauge.offences[0] == 0
        world.others_are_well()


@pytest.mark.parametrize(
    "reply",
    [
        b"*2147483647\r\n",
        b"$536870912\r\n",
        b"%1\r\n*0\r\n:1\r\n",
        b"+" + b"x" * 2_000_000 + b"\r\n",
        b"*32768\r\n" + b"$60\r\n" + b"x" * 60 + b"\r\n",
        b"hello\r\n",
        b"-NOPERM \x1b[2J" + b"z" * 3_000 + b"\r\n",
    ],
    ids=lambda reply: repr(reply[:16]),
)
async def test_what_an_operators_connection_is_told_is_looked_at_too(reply: bytes) -> None:
    async with beside_a_bad_master() as world:
        world.bad.lie = lambda words, true: reply if words[0] == b"AUTH" else true
        timeouts = Timeouts(connect_ms=1_000)  # some of these answers have no end
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(MasterError) as failed:
            await ask_as(Credentials("operator", b"secret"), world.fleet.links[0].approach, timeouts, "PING")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < peak_kib + 64_000
        assert len(str(failed.value)) < 300
        assert str(failed.value).isprintable()
        world.others_are_well()


def answering(command: bytes, reply: bytes) -> Lie:
    return lambda words, true: reply if words[0] == command else true


HANDSHAKES = [
    (b"INFO", encoded(b"\xff\x00" * 1000)),
    (b"INFO", encoded(b"run_id:a\r\nrole:" + b"x" * 500_000)),
    (b"CLIENT", encoded(-1)),
    (b"CONFIG", encoded([1, 2])),
    (b"CONFIG", encoded(7)),
    (b"DBSIZE", encoded(-1)),
    (b"HGETALL", encoded([[b"cluster"], b"test"])),
    (b"HGETALL", b"%1\r\n$1\r\na\r\n:1\r\n"),
    (b"HGETALL", encoded([b"cluster", b"test", b"name", b"m1", b"max_ttl_ms", b"1" + b"0" * 15])),
    (b"HGETALL", encoded([b"cluster", b"test", b"name", b"m1", b"max_ttl_ms", b"-1"])),
    (b"HGETALL", encoded([b"cluster", b"test", b"name", b"x\r\n-ERR y" * 100, b"max_ttl_ms", b"60000"])),
    (b"TIME", encoded([b"-1", b"0"])),
    (b"TIME", encoded([b"9" * 400, b"0"])),
    (b"SCRIPT", b"-ERR \x1b[31m\x07" + b"y" * 3000 + b"\r\n"),
]


@pytest.mark.parametrize(("command", "reply"), HANDSHAKES, ids=lambda word: repr(word[:24]))
async def test_whatever_a_master_says_of_itself_the_others_serve(command: bytes, reply: bytes) -> None:
    async with beside_a_bad_master(lie=answering(command, reply)) as world:
        await world.works()
        assert not world.fleet.voting() & 1
        assert len(world.bad_link.reason) < 300
        assert world.bad_link.reason.isprintable()


async def test_a_ceiling_that_one_master_makes_up_makes_nobody_wait() -> None:
    async with beside_a_bad_master() as world:
        fields = {**world.bad.store.identity, "max_ttl_ms": "86400000"}
        identity = [word.encode() for pair in fields.items() for word in pair]
        world.bad.lie = answering(b"HGETALL", encoded(identity))
        await world.bad_link.inspect_now()
        longest_ms = [link.facts.identity.longest_ttl_ms for link in world.fleet.links]
        assert longest_ms == [86_400_000] + [60_000] * 4
        assert world.fleet.clocks._settle_ns < 62_000_000_000


@pytest.mark.parametrize(
    "stream",
    [
        b":1\r\n" * 1000,
        b">2\r\n+gone\r\n+r\r\n" * 100,
        b"*3\r\n:1\r\n:1\r\n:1\r\n",
        b"$1000000\r\n" + b"x" * 100_000,
    ],
    ids=lambda stream: repr(stream[:16]),
)
async def test_answers_to_nothing_are_the_end_of_a_connection_and_not_of_an_agent(stream: bytes) -> None:
    async with beside_a_bad_master() as world:
        world.bad.say(stream)
        await world.works()
        await until(lambda: world.gauge.offences[0] >= 1 or stream[:1] == b"$", what="it is seen")


async def test_an_agent_stops_also_in_the_moment_in_which_a_link_is_called_to_look_closer() -> None:
    async with beside_a_bad_master() as world:
        await world.works(1)
        await until(lambda: not world.bad_link._in_flight, what="the link rests")
        world.bad_link._look_closer.set()
        await asyncio.wait_for(world.fleet.stop(), PATIENCE_S)


async def test_an_answer_without_an_end_is_not_kept() -> None:
    """Pieces of texts that are within bounds, and a list that is, and never a whole answer."""
    async with beside_a_bad_master() as world:
        world.bad.lie = to_votes(b"*30000\r\n" + (b"$1000\r\n" + b"x" * 1000 + b"\r\n") * 2000)
        await world.works(1)
        await until(lambda: world.gauge.offences[0] >= 1, what="it is given up")
        assert "an answer of more than" in world.bad_link.reason or world.bad_link.state is State.DOWN


@pytest.mark.parametrize("reply", [b"+OK\r\n", b"-NOSCRIPT No matching script.\r\n"])
async def test_a_master_that_always_talks_nonsense_or_has_lost_its_scripts_is_left_alone(
    reply: bytes,
) -> None:
    async with beside_a_bad_master() as world:
        world.bad.lie = to_votes(reply)
        began_s, rounds = time.monotonic(), 0
        while rounds < 20 or time.monotonic() < began_s + 2:
            await world.works(1)
            rounds += 1
        seconds = time.monotonic() - began_s
        assert world.bad.connections <= 5 + 3 * seconds, "not a thousand connections a second"
        assert world.gauge.offences[0] <= 5 + seconds


@pytest.mark.parametrize("error", [b"-BUSY x", b"-MISCONF x", b"-" + b"z" * 4000])
async def test_errors_of_any_kind_and_length_cost_only_that_vote(error: bytes) -> None:
    async with beside_a_bad_master() as world:
        world.bad.lie = to_votes(error + b"\r\n")
        await world.works()
        assert world.gauge.refused[0, "error"] >= 1


async def test_a_mistake_where_an_answer_is_counted_is_that_requests_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is raised where the quorum happened to complete: on the link of an honest master."""
    async with beside_a_bad_master() as world:
        break_tries_for(b"cursed", monkeypatch)
        cursed = [await world.lock(b"cursed") for _ in range(3)]
        assert [refusal.code for refusal in cursed] == ["ERR"] * 3
        assert {type(failure) for failure in world.broken} == {ZeroDivisionError}
        assert world.locks.waiting == 0
        assert b"cursed" not in world.locks.queues
        monkeypatch.undo()
        assert isinstance(await world.lock(b"cursed"), Lease), "what it had left was given back"
        world.broken.clear()
        await world.works()


@pytest.mark.parametrize("command", ["extend", "unlock"])
async def test_a_mistake_in_an_extension_or_a_release_is_answered_too(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Where its answers were counted, and it is noted for the next agent."""

    def raising(*_: object) -> None:
        raise ZeroDivisionError("a mistake of ours")

    async with beside_a_bad_master() as world:
        lease = await world.lock(detached=False)
        noted = "moved" if command == "extend" else "ended"
        monkeypatch.setattr(world.journal, noted, raising, raising=False)
        refusal = await getattr(world, command)(lease)
        assert refusal.code == "ERR"
        monkeypatch.undo()
        assert [world.gauge.connects[m] for m in range(5)] == [1] * 5
        world.broken.clear()
        await world.works(resource=b"another")


# Those who play the masters here


def test_masters_that_are_modelled_end_with_their_loop_and_leave_nothing_to_the_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: said.append(what.exc_value))
    [master] = modelled_masters(1)
    with serving([master]) as loop, socket.create_connection((LOOPBACK, master.port), 10) as link:
        link.sendall(b"*1\r\n$4\r\nPING\r\n")
        assert link.recv(64) == b"+OK\r\n"
    assert loop.is_closed()
    assert not master.open
    del loop
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        gc.collect()
    assert (said, [str(one.message) for one in warned]) == ([], [])
