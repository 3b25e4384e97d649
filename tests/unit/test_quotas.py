"""What an account holds of each stock: it is asked for before anything is made, and given back however it
ends."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockd.config.current import Current
from lockd.core import sizes
from lockd.core.flow import UNDER_WAY_MOST
from lockd.core.stakes import FLOORS
from lockd.core.values import Bound
from lockd.server.agent import Agent
from lockd.server.heirs import Heir
from lockd.server.quotas import Cost, Holding, Quotas, Room, renewals_of
from lockd.server.unix_socket import CannotServe
from tests.harness.configs import a_config
from tests.harness.leases import a_lease
from tests.harness.whole_agent import OURS, WholeAgent, Wire, a_whole_agent

TTL_MS = 3_000
SMALL = {"memory_mib": 64, "files": 1_120, "renewals_per_second": 100, "share_percent": 1}
OTHER, GREEDY = 1_001, 1_002


def is_empty(quotas: Quotas) -> bool:
    held = [stock.held for stock in (quotas.bytes, quotas.files, quotas.renewals)]
    counts = (quotas.all.connections, quotas.all.leases, quotas.all.waiters, quotas.all.buffered_bytes)
    assert (held, counts, quotas._accounts) == ([{}] * 3, (0,) * 4, {})
    return True


def of_one(quotas: Quotas, uid: int = OURS) -> tuple[int, int]:
    """Bytes and renewals."""
    return quotas.bytes.held.get(f"uid {uid}", 0), quotas.renewals.held.get(f"uid {uid}", 0)


# What there is


@pytest.mark.parametrize(
    ("limits", "room", "total"),
    [
        ({}, Room(1_792 << 20, 10_000), (1_280 << 20, 9_840, 3_200)),
        ({}, Room(), (1_280 << 20, (1 << 20) - 160, 3_200)),
        ({"memory_mib": 512, "files": 1_000}, Room(1_792 << 20, 10_000), (320 << 20, 840, 3_200)),
        ({"memory_mib": 64, "files": 128}, Room(), (64 << 20, 64, 3_200)),
        ({"files": 20_000}, Room(1_792 << 20, 10_000), (1_280 << 20, 9_840, 3_200)),
        ({"renewals_per_second": 100}, Room(1 << 20, 100), (64 << 20, 50, 100)),
    ],
)
def test_there_is_what_the_configuration_says_else_what_the_unit_has(
    limits: dict[str, int], room: Room, total: tuple[int, int, int]
) -> None:
    quotas = Quotas(Current(a_config(limits=limits)), room)
    assert {name: most for name, (_, most) in quotas.in_use().items()} == dict(
        zip(("bytes", "files", "renewals"), total, strict=True)
    )


@pytest.mark.parametrize("most", [0, 40, 127])
def test_an_agent_for_which_there_are_too_few_files_says_so_and_does_not_serve(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (most, most))
    with pytest.raises(
        CannotServe, match=f"only {most} files may be open, and the agent needs 128: raise Lim"
    ):
        Agent._raise_file_limit(cast("Any", None))


def test_a_reload_changes_what_there_is_and_takes_nothing_away() -> None:
    current = Current(a_config())
    quotas = Quotas(current, Room(1_792 << 20, 10_000))
    usage, large = quotas.connected("one"), Cost(100, 100, 10, 1_000)
    quotas.waits(usage, large)
    held = quotas.bytes.used, quotas.files.used, quotas.renewals.used
    current.config = a_config(limits=SMALL)
    quotas.reconfigure()
    assert (quotas.bytes.used, quotas.files.used, quotas.renewals.used) == held
    refusal = quotas.refuse_lock(usage, Cost(1, 1, 1, 1_000))
    assert refusal is not None
    assert refusal.startswith("renewals: one has 300.0, and may have 1.3 ")
    current.config = a_config()
    quotas.reconfigure()
    assert quotas.refuse_lock(usage, large) is None


def test_a_short_ttl_costs_many_renewals_and_a_lease_that_is_not_renewed_costs_none() -> None:
    assert [renewals_of(ttl_ms) for ttl_ms in (60_000, 3_000, 100)] == [50, 1_000, 30_000]
    assert Cost(5, 5, 1, None).renewals == 0
    assert Cost(5, 5, 1, 3_000).renewals == 5_000
    assert Holding(1, 3_000).renewals == 1_000


# What a LOCK costs

Way = Callable[[WholeAgent, Wire], Awaitable[None]]


async def _unlocked(agent: WholeAgent, wire: Wire) -> None:
    token = await wire.locks("r", TTL_MS)
    assert of_one(agent.quotas)[1] == renewals_of(TTL_MS)
    assert b":1" in await wire.asks("UNLOCK", "r", token)


async def _dies(agent: WholeAgent, wire: Wire) -> None:
    await wire.locks("r", TTL_MS)
    await wire.locks("s", TTL_MS, "CONNECTION")
    assert agent.quotas.all.leases == 2
    await agent.passes(TTL_MS * 3)
    assert agent.quotas.all.leases == 2, "they are renewed"
    wire.closes()
    await agent.settles()
    assert agent.quotas.all.leases == 1
    agent.process_dies()


async def _detached(agent: WholeAgent, wire: Wire) -> None:
    await wire.locks("r", TTL_MS, "DETACHED")
    assert of_one(agent.quotas)[1] == 0
    assert agent.quotas.all.leases == 1
    await agent.passes(TTL_MS * 2)


async def _refused(agent: WholeAgent, wire: Wire) -> None:
    before = of_one(agent.quotas)
    for more in ((), ("WAIT", 50), ("DETACHED",), ("AND", "s", "t"), ("SLOTS", 1), ("SLOTS", 1, "WAIT", 50)):
        slot = "slot" if "SLOTS" in more else "r"
        other = agent.connects(OTHER)
        await other.locks(slot, 60_000, *more[:2] if "SLOTS" in more else ())
        wire.sends("LOCK", slot, TTL_MS, *more)
        if "WAIT" in more:
            await agent.settles()
            assert of_one(agent.quotas) > before
        await agent.passes(100)
        assert wire.transport.written.startswith((b"-TAKEN", b"-TIMEOUT")), (more, wire.transport.written)
        wire.transport.written = b""
        assert of_one(agent.quotas) == before, more
        other.closes()
        await agent.settles()


async def _no_quorum(agent: WholeAgent, wire: Wire) -> None:
    agent.host.slow()
    wire.sends("LOCK", "r", TTL_MS)
    wire.sends("SET", "v", "x", "NX", "PX", 5_000)
    assert agent.quotas.all.waiters > 0
    await agent.passes(5_000)
    assert b"-NOQUORUM" in wire.transport.written
    agent.host.answer_all()
    # The other may have been granted, unknown to its agent.
    await agent.passes(10_000)


async def _withdrawn(agent: WholeAgent, wire: Wire) -> None:
    await agent.connects(OTHER).locks("r", 60_000, "CONNECTION")
    wire.sends("LOCK", "r", TTL_MS, "WAIT", 10_000, "TOKEN", "t")
    await agent.settles()
    assert agent.quotas.all.waiters == 1
    wire.sends("UNLOCK", "r", "t")
    await agent.settles()
    assert agent.quotas.all.waiters == 0
    agent.wires[-1].closes()


async def _closed_while_it_waits(agent: WholeAgent, wire: Wire) -> None:
    other = agent.connects(OTHER)
    for name in ("r", "slot:0"):
        await other.locks(name, 60_000)
    wire.sends("LOCK", "r", TTL_MS, "WAIT", 10_000)
    wire.sends("LOCK", "a", TTL_MS, "WAIT", 10_000, "AND", "r", "b")
    wire.sends("LOCK", "slot", TTL_MS, "WAIT", 10_000, "SLOTS", 1)
    await agent.settles()
    assert agent.quotas.all.waiters >= 3
    wire.closes()
    other.closes()
    await agent.settles()


async def _cut_off(agent: WholeAgent, wire: Wire) -> None:
    await agent.connects(OTHER).locks("r", 60_000)
    wire.sends("LOCK", "r", TTL_MS, "WAIT", 10_000)
    wire.transport.is_not_read(wire.session)
    wire.sends("LOCKS")
    wire.session.cut_off("bytes: ...")
    await agent.settles()
    assert agent.quotas.all.waiters == 0


async def _closed_with_much_kept(agent: WholeAgent, wire: Wire) -> None:
    wire.transport.is_not_read(wire.session)
    wire.sends("PING", "x" * 9_000)
    assert agent.quotas.all.buffered_bytes > 9_000
    half = agent.connects()
    half.session.data_received(b"*1\r\n$9000\r\n" + b"x" * 8_000)
    assert agent.quotas.all.buffered_bytes > 17_000


async def _queues(wire: Wire) -> int:
    """In a MULTI; returns how many bytes are kept for it at least."""
    words = [b"name-%d" % number for number in range(100)]
    await wire.asks("MULTI")
    for _ in range(20):
        await wire.asks("DEL", *words)
    return 20 * sizes.request([b"DEL", *words])


async def _a_multi(agent: WholeAgent, wire: Wire) -> None:
    size = await _queues(wire)
    assert agent.quotas.all.buffered_bytes >= size
    await wire.asks("DISCARD")
    assert agent.quotas.all.buffered_bytes == 0
    await agent.connects(OTHER).locks("r", 60_000, "CONNECTION")
    wire.sends("LOCK", "r", TTL_MS, "WAIT", 10_000)
    for _ in range(3):
        await _queues(wire)
        wire.sends("EXEC")
    assert agent.quotas.all.buffered_bytes >= 3 * size, "until they run"
    agent.wires[-1].closes()
    await agent.passes(5_000)
    assert agent.quotas.all.buffered_bytes == 0
    await _queues(wire)


async def _behind_a_wait(agent: WholeAgent, wire: Wire) -> None:
    await agent.connects(OTHER).locks("r", 60_000, "CONNECTION")
    wire.sends("LOCK", "r", TTL_MS, "WAIT", 10_000)
    for number in range(100):
        wire.sends("LOCK", f"{number}", TTL_MS, "CONNECTION")
    await agent.settles()
    assert agent.quotas.all.buffered_bytes > 100 * sizes.COMMAND


async def _several(agent: WholeAgent, wire: Wire) -> None:
    before = of_one(agent.quotas)
    reply = await wire.asks("LOCK", "a", TTL_MS, "TOKEN", "t", "AND", "b", "c")
    assert reply.count(b"token") == 3
    _, renewals = of_one(agent.quotas)
    assert renewals == 3 * renewals_of(TTL_MS)
    for name in "abc":
        await wire.asks("UNLOCK", name, "t")
    assert of_one(agent.quotas) == before


async def _one_of_slots(agent: WholeAgent, wire: Wire) -> None:
    reply = await wire.asks("LOCK", "slot", TTL_MS, "SLOTS", 3, "TOKEN", "t")
    assert b"slot" in reply
    assert of_one(agent.quotas)[1] == renewals_of(TTL_MS), "of one, whatever it has tried"
    for number in range(3):
        await wire.asks("UNLOCK", f"slot:{number}", "t")


async def _lost(agent: WholeAgent, wire: Wire) -> None:
    await wire.locks("r", TTL_MS)
    agent.host.slow()
    await agent.passes(TTL_MS * 3)
    assert agent.quotas.all.leases == 0
    agent.host.answer_all()


async def _a_plain_value(agent: WholeAgent, wire: Wire) -> None:
    assert await wire.asks("SET", "r", "v", "NX", "PX", 5_000) == b"+OK\r\n"
    assert agent.quotas.all.leases == 1
    await agent.passes(10_000)


async def _asked_again(agent: WholeAgent, wire: Wire) -> None:
    await wire.locks("r", TTL_MS, "TOKEN", "t")
    before = of_one(agent.quotas)
    second = agent.connects()
    await second.locks("r", TTL_MS, "TOKEN", "t")
    second.closes()
    assert of_one(agent.quotas) == before, "it is one lease"
    await wire.asks("UNLOCK", "r", "t")


WAYS: dict[str, Way] = {
    "it is unlocked": _unlocked,
    "its app dies": _dies,
    "its TTL ends": _detached,
    "it is refused": _refused,
    "the masters don't answer": _no_quorum,
    "it is withdrawn": _withdrawn,
    "its connection closes while it waits": _closed_while_it_waits,
    "its connection is cut off": _cut_off,
    "its connection closes with replies unread": _closed_with_much_kept,
    "its connection closes with a MULTI": _a_multi,
    "its connection closes with more behind it": _behind_a_wait,
    "several are": _several,
    "it is one of several slots": _one_of_slots,
    "it is lost": _lost,
    "it is a plain value": _a_plain_value,
    "it was asked for twice": _asked_again,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_what_a_lock_costs_is_given_back_however_it_ends(way: Way) -> None:
    async def all_of_it() -> None:
        with a_whole_agent() as agent:
            wire = agent.connects()
            await way(agent, wire)
            for one in agent.wires:
                one.closes()
            await agent.settles()
            agent.process_dies()
            await agent.settles()
            assert agent.incidents.failures == []
            assert is_empty(agent.quotas)

    asyncio.run(all_of_it())


def test_what_an_app_gave_back_before_it_closed_counts_until_that_is_done_some_at_a_time() -> None:
    """Behind a LOCK that waits: thousands of connections may end so, and then the same again."""

    async def all_of_it() -> None:
        with a_whole_agent() as agent:
            await agent.connects(OTHER).locks("r", 60_000)
            wire = agent.connects()
            await wire.asks("SETNX", "k", "v")
            wire.sends("LOCK", "r", TTL_MS, "WAIT", 60_000)
            await agent.settles()
            for _ in range(400):
                wire.sends("DEL", *range(64))
            wire.sends("DEL", "k")
            kept, session = agent.quotas.all.buffered_bytes, wire.session
            wire.closes()
            assert agent.quotas.all.buffered_bytes > kept // 2 > 50_000
            under_way = 0
            for _ in range(200):
                agent.host.locks.turns.run(agent.host.time.now_ns)
                await asyncio.sleep(0)
                under_way = max(under_way, session._giving_back)
            await agent.settles()
            assert 0 < under_way <= UNDER_WAY_MOST
            assert agent.quotas.all.buffered_bytes == 0
            assert agent.host.shown(b"k") == [None] * 5

    asyncio.run(all_of_it())


def test_what_was_taken_over_is_counted_until_it_ends() -> None:
    """For an account that may have no connection yet."""
    with a_whole_agent() as agent:
        held = SimpleNamespace(
            resource=b"r", now=SimpleNamespace(ttl_ms=TTL_MS), lock_delay_ms=0, max_hold_ms=60_000,
            token=b"t", owner=b"host 7 1001", pid=7, started=1, bound=Bound.PROCESS, notify=False,
        )  # fmt: skip
        heir = Heir(cast("Any", agent.shared), cast("Any", held), "test", None)
        assert of_one(agent.quotas, OTHER) == (sizes.lease(1), renewals_of(TTL_MS))
        assert agent.quotas.all.leases == 1
        heir.ended(a_lease())
        assert is_empty(agent.quotas)


def test_an_account_that_is_here_again_is_counted_in_one_place() -> None:
    """What it had when its last connection closed may end later than a new one comes."""
    quotas = Quotas(Current(a_config()))
    first = quotas.connected("one")
    quotas.disconnected(first)
    quotas.holds(first, Holding(1, TTL_MS))
    second = quotas.connected("one")
    quotas.holds_no_more(first, Holding(1, TTL_MS))
    assert quotas.connected("one") is second


# Asked before


def used_up(agent: WholeAgent, *stocks: str, by: int = GREEDY) -> None:
    """As much as the account may have of it."""
    for name in stocks:
        stock = getattr(agent.quotas, name)
        stock.take(f"uid {by}", stock.most_of(f"uid {by}") - stock.held.get(f"uid {by}", 0))


ASKED = [
    ("LOCK", "r", TTL_MS),
    ("LOCK", "r", TTL_MS, "WAIT", 1_000),
    ("LOCK", "r", TTL_MS, "CONNECTION"),
    ("LOCK", "r", TTL_MS, "AND", "s"),
    ("LOCK", "r", TTL_MS, "SLOTS", 3),
    ("SET", "r", "v", "NX"),
]
RENEWED = pytest.mark.parametrize("words", ASKED, ids=lambda words: " ".join(map(str, words)))


@pytest.mark.parametrize("stock", ["bytes", "renewals"])
@RENEWED
def test_an_account_over_its_stake_gets_limit_before_anything_is_made_and_others_do_not(
    words: tuple[object, ...], stock: str
) -> None:
    async def all_of_it() -> None:
        with a_whole_agent() as agent:
            greedy, other = agent.connects(GREEDY), agent.connects(OTHER)
            # What is not seen to be of a process is locked for the connection: by LOCK only.
            greedy, other = (agent.connects(), other) if words[0] == "SET" else (greedy, other)
            used_up(agent, stock, by=greedy.uid)
            before = of_one(agent.quotas, greedy.uid)
            reply = await greedy.asks(*words)
            assert reply.startswith(b"-LIMIT %b: uid %d has " % (stock.encode(), greedy.uid)), reply
            assert of_one(agent.quotas, greedy.uid) == before
            assert agent.host.locks.held == agent.host.locks.waiting == len(agent.host.fleet.asked) == 0
            await other.locks("r", TTL_MS)

    asyncio.run(all_of_it())


def test_a_lease_that_is_not_renewed_needs_no_renewals() -> None:
    async def all_of_it() -> None:
        with a_whole_agent() as agent:
            wire = agent.connects()
            used_up(agent, "renewals", by=OURS)
            await wire.locks("r", TTL_MS, "DETACHED")
            assert await wire.asks("SET", "s", "v", "NX", "PX", 5_000) == b"+OK\r\n"

    asyncio.run(all_of_it())


def test_whatever_others_hold_one_below_its_floor_gets_what_it_asks_for() -> None:
    async def all_of_it() -> None:
        with a_whole_agent(limits=SMALL) as agent:
            for _ in range(20):
                for greedy in range(2_000, 2_000 + FLOORS - 2):
                    used_up(agent, "bytes", "files", "renewals", by=greedy)
            quotas, granted = agent.quotas, 0
            # Its floor of renewals is 781 thousandths: of two leases of 8 s, and of one that is asked for.
            for number in range(2):
                wire = agent.connects(OTHER)
                granted += bool(await wire.locks(f"r{number}", 8_000))
            floors = [stock.floor for stock in (quotas.bytes, quotas.files, quotas.renewals)]
            held = [stock.held["uid 1001"] for stock in (quotas.bytes, quotas.files, quotas.renewals)]
            assert granted == 2
            assert all(map(int.__le__, held, floors))
            # The test would be empty if there were enough for all.
            for stock in (quotas.bytes, quotas.files, quotas.renewals):
                assert stock.most_of("uid 1001") < 2 * stock.floor

    asyncio.run(all_of_it())


def test_of_several_that_are_taken_one_by_one_none_is_counted_twice() -> None:
    """Below its floor an account could be refused for what one request has got so far."""

    async def all_of_it() -> None:
        with a_whole_agent() as agent:
            await agent.connects(OTHER).locks("c", 60_000)
            wire = agent.connects()
            before = of_one(agent.quotas)
            wire.sends("LOCK", "a", TTL_MS, "WAIT", 60_000, "AND", "b", "c")
            asked = of_one(agent.quotas)
            await agent.settles()
            assert agent.quotas.all.leases == 3, "of the other, and two of three"
            assert of_one(agent.quotas) == asked
            assert asked[1] - before[1] == 3 * renewals_of(TTL_MS)
            # One is lost while the masters are away: it begins again.
            agent.host.slow()
            await agent.passes(TTL_MS * 2)
            agent.host.answer_all()
            await agent.passes(TTL_MS)
            assert of_one(agent.quotas)[1] == asked[1]

    asyncio.run(all_of_it())


# A process for which there is no file


def test_a_connection_for_whose_process_there_is_no_file_is_refused_and_its_locks_not_made_weaker() -> None:
    async def all_of_it() -> None:
        with a_whole_agent() as agent:
            files = agent.quotas.files
            files.take("uid 0", files.most_of("uid 0") - 1)
            refused, other = agent.connects(), agent.connects(OTHER)
            assert refused.transport.written.startswith(b"-LIMIT files: uid 0 has ")
            assert refused.transport.closed
            assert b"connection" in await other.asks("LOCK", "o", TTL_MS), "its process is not on this host"
            files.give_back("uid 0", 2)
            refused.session.data_received(b"PING\r\n")
            assert list(agent.shared.processes.all) == [], "its number may be another's by now"
            first = agent.connects()
            assert b"process" in await first.asks("LOCK", "r", TTL_MS), "there is room again"
            [process] = agent.shared.processes.all
            [lease] = process.leases
            assert lease.holder.started == process.started > 0, "the next agent knows it by this"
            first.closes()
            await agent.settles()
            assert list(process.leases) == [lease], "it outlives its connection"

    asyncio.run(all_of_it())


def test_when_the_user_database_answers_for_one_that_was_refused_the_others_hear_of_it_too() -> None:
    async def all_of_it() -> None:
        with a_whole_agent() as agent:
            agent.quotas.files.take("uid 0", agent.quotas.files.most_of("uid 0"))
            refused = agent.connects()
            refused.session._is_of("uid 1001")
            assert refused.session._account == "uid 1001"

    asyncio.run(all_of_it())


# At the end of everything


RESOURCES = ("r", "s", "slot:0", "slot:1")
LOCKS = st.builds(
    lambda name, ttl_ms, *more: ("LOCK", name, ttl_ms, *(word for words in more for word in words)),
    st.sampled_from(RESOURCES),
    st.sampled_from([500, 3_000, 60_000]),
    st.sampled_from([(), ("WAIT", 50), ("WAIT", 5_000)]),
    st.sampled_from([(), ("DETACHED",), ("CONNECTION",)]),
    st.sampled_from([(), ("NOTIFY",), ("TOKEN", "t"), ("TOKEN", "u")]),
    st.sampled_from([(), (), ("SLOTS", 2), ("AND", "s", "x")]),
)
WORDS = st.one_of(
    LOCKS,
    st.tuples(st.just("UNLOCK"), st.sampled_from(RESOURCES), st.sampled_from(["t", "u"])),
    st.tuples(st.just("EXTEND"), st.sampled_from(RESOURCES), st.sampled_from(["t", "u"]), st.just(5_000)),
    st.sampled_from(
        [
            ("SET", "r", "v", "NX", "PX", 2_000),
            ("SET", "s", "v", "NX"),
            ("DEL", "r", "s"),
            ("MULTI",),
            ("EXEC",),
            ("DEL", *(f"name-{number}" for number in range(100))),
            ("PING", "x" * 5_000),
        ]
    ),
)
EVENTS = st.one_of(
    st.tuples(st.just("sends"), st.integers(0, 5), WORDS),
    st.tuples(st.just("sends"), st.integers(0, 5), WORDS),
    st.tuples(st.just("connects"), st.sampled_from([OURS, OTHER, GREEDY]), st.none()),
    st.tuples(
        st.sampled_from(["closes", "is not read", "is read", "is cut off"]), st.integers(0, 5), st.none()
    ),
    st.tuples(st.just("passes"), st.sampled_from([0, 20, 1_000, 20_000]), st.none()),
    st.tuples(st.sampled_from(["slow", "quick", "the process dies"]), st.just(0), st.none()),
)


async def happens(agent: WholeAgent, kind: str, number: int, words: Any) -> None:
    open_ = [wire for wire in agent.wires if not wire.session.is_gone]
    match kind:
        case "connects" if len(open_) < 8:
            agent.connects(number)
        case "passes":
            await agent.passes(number)
        case "slow":
            agent.host.slow()
        case "quick":
            agent.host.answer_all()
        case "the process dies":
            for one in open_:
                if one.uid == OURS:
                    one.closes()
            agent.process_dies()
        case _ if open_:
            happens_on(open_[number % len(open_)], kind, words)


def happens_on(wire: Wire, kind: str, words: Any) -> None:
    match kind:
        case "sends":
            wire.sends(*words)
        case "closes":
            wire.closes()
        case "is cut off":
            wire.session.cut_off("bytes: a test")
        case "is not read":
            wire.transport.is_not_read(wire.session)
        case "is read" if wire.transport.is_stuck:
            wire.transport.is_read()


@given(st.lists(EVENTS, max_size=40))
def test_at_the_end_of_everything_nothing_is_held(events: list[tuple[str, int, Any]]) -> None:
    async def all_of_it() -> None:
        with a_whole_agent() as agent:
            for uid in (OURS, OURS, OTHER):
                agent.connects(uid)
            for event in events:
                await happens(agent, *event)
                await agent.settles()
                open_ = [wire for wire in agent.wires if not wire.session.is_gone]
                assert agent.quotas.all.connections == len(open_)
                kept = sum(wire.session.kept_bytes for wire in open_)
                assert agent.quotas.all.buffered_bytes == kept
            for wire in agent.wires:
                wire.closes()
            agent.process_dies()
            agent.host.answer_all()
            await agent.passes(150_000)
            assert agent.incidents.failures == []
            assert is_empty(agent.quotas)

    asyncio.run(all_of_it())
