"""Redis's own lock commands on connections whose processes are made up, with the real core, and no masters
but a model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockd.clock import boottime_ns
from lockd.config.current import Current
from lockd.core.leases import Lease, Standing, owner_of
from lockd.core.owners import Process
from lockd.core.plain_values import token_of
from lockd.core.scripts.operations import State
from lockd.core.values import Bound, Refusal
from lockd.server.commands.arguments import BadRequest
from lockd.server.commands.checks import Checks
from lockd.server.commands.readings import Readings
from lockd.server.dropin.answers import FREE, Found
from lockd.server.dropin.looking import Looking, Seen
from lockd.server.dropin.performing import Ground
from lockd.server.dropin.plain_locks import GONE, PlainLock
from lockd.server.dropin.preparing import Preparing, Watched, begin
from lockd.server.dropin.script_cache import ScriptCache, digest_of
from lockd.server.dropin.signals import Signals
from lockd.server.dropin.transactions import Transaction
from lockd.server.dropin.usage import Usage
from lockd.server.session import Session, Watch
from tests.harness.clocks import MS
from tests.harness.configs import a_config
from tests.harness.fleet_model import Answer, App, Host, Time, masters_of
from tests.harness.real_fleet import a_fleet
from tests.harness.sessions import AroundSessions, Incidents, Transport
from tests.harness.waiting import eventually, until

VALUE = b"v"


class Now(Time):
    """What connections do is by the clock of the machine."""

    def __init__(self) -> None: ...

    @property
    def now_ns(self) -> int:  # type: ignore[override]
        return boottime_ns()


class Apps:
    """Connections to one agent, each of a process as it is said."""

    def __init__(self) -> None:
        self.host = Host(time := Now(), masters_of(time))
        self.current = Current(a_config())
        self.shared = AroundSessions(
            locks=self.host.locks,
            pipelines=SimpleNamespace(add=lambda _uid, _job: None),
            incidents=Incidents(),
            current=self.current,
            permissions=SimpleNamespace(may_lock=lambda *_: True),
        )
        self.transports: list[Transport] = []
        shared = cast("Any", self.shared)
        looking = self.looking = Looking(shared, a_fleet(), Readings())
        metrics = cast("Any", SimpleNamespace(asked=lambda _via: None))
        checks = Checks(self.current, shared, metrics)
        ground = Ground(
            current=self.current,
            shared=shared,
            looking=looking,
            signals=Signals(looking),
            metrics=metrics,
            usage=Usage(),
            checks=checks,
        )
        self._scripts = ScriptCache(shared)
        self.preparing = Preparing(ground, self._scripts)

    def connected(self, pid: int = 7, started: int = 1) -> Session:
        session = Session(cast("Any", self.shared), cast("Any", None))
        transport = Transport()
        session.connection_made(cast("Any", transport))
        self.transports.append(transport)
        session.ties.process = Process(pid, started, session.peer.uid)
        session.owner = owner_of(b"host", pid, session.peer.uid)
        return session

    def locked(self, session: Session, **terms: Any) -> App:
        """By this process."""
        process = session.ties.process
        assert process is not None
        return self.host.locked(
            value=token_of(VALUE), owner=session.owner, pid=process.pid, started=process.started, **terms
        )

    def lease_of(self, key: bytes) -> Lease:
        [lease] = self.host.locks.held_of(key, boottime_ns())
        return lease

    def has_read(self, session: Session, script: bytes) -> None:
        """It needs no turn then."""
        self._scripts._recognised(digest_of(script), script, "an app", session.peer, b"")

    def asks(self, session: Session, *words: bytes) -> bytes:
        """The reply."""
        said: list[Any] = []
        begin(self.preparing.prepared(session, list(words)), said.append)
        self.host.fleet.settle()
        [reply] = said
        return reply if isinstance(reply, bytes) else cast("bytes", reply())

    def plain_lock(self, session: Session, **more: Any) -> PlainLock:
        lock_class = self.current.config.class_of(b"r")
        return PlainLock(session, b"r", lock_class, 10_000, VALUE, min_validity_ms=50, via="set", **more)


@pytest.fixture
def apps() -> Any:
    apps = Apps()
    yield apps
    for transport in apps.transports:
        transport.end()


# Whose it is

TAKES_ITS_OWN = pytest.mark.parametrize("words", [(b"DEL", b"r"), (b"PEXPIRE", b"r", b"60000")])


@TAKES_ITS_OWN
@pytest.mark.parametrize("detached", [False, True])
def test_a_process_changes_on_any_connection_what_it_holds(apps: Apps, words: Any, detached: bool) -> None:
    apps.locked(apps.connected(), detached=detached)
    assert apps.asks(apps.connected(), *words) == b":1\r\n"


@TAKES_ITS_OWN
@pytest.mark.parametrize(
    "other", [{"started": 2}, {"pid": 8}], ids=["of its number, begun later", "begun with it"]
)
def test_another_process_changes_nothing_of_it(apps: Apps, words: Any, other: dict[str, int]) -> None:
    app = apps.locked(apps.connected())
    assert apps.asks(apps.connected(**other), *words) == b":0\r\n"
    assert apps.host.shown() == [app.held.nonce] * 5


@pytest.mark.parametrize(
    ("asked_by", "is_told"), [({}, True), ({"started": 2}, False), ({"pid": 8}, False)], ids=str
)
def test_what_was_taken_over_is_its_processs_once_that_has_read_its_value(
    apps: Apps, asked_by: dict[str, int], is_told: bool
) -> None:
    """Its holder is told of it no more: the agent before was to."""
    app = apps.locked(apps.connected(), reads=False)
    app.held.tenure.t1_ns = boottime_ns() + 60_000 * MS  # proven just now, however long this takes
    assert apps.asks(apps.connected(**asked_by), b"GET", b"r") == b"$1\r\nv\r\n"
    assert app.held.told is is_told


# Telling of a grant


def granted(
    apps: Apps, change: Callable[[Lease, Session], None], **more: Any
) -> tuple[list[bytes], list[Refusal], Lease]:
    """What is said of a grant behind that change, and what has become of the lease a moment later."""
    said: list[bytes] = []
    refused: list[Refusal] = []

    async def tell() -> Lease:
        session = apps.connected()
        lock = apps.plain_lock(session, **more)
        lock.answers(b"+OK\r\n", lambda reply: said.append(reply()), refused.append)  # type: ignore[operator]
        lock.asks(apps.host.time.now_ns)
        session.lock_starts(lock, lock.cost)
        lease = apps.locked(session, detached=lock.detached).held
        change(lease, session)
        lock.granted(lease, apps.host.time.now_ns)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # Its turn may come in a later one of the loop.
        await until(lambda: not session.shared.endings.busy, what="all has ended")
        apps.host.fleet.settle()
        return lease

    return said, refused, asyncio.run(tell())


BOTH = pytest.mark.parametrize("has_ttl", [False, True])


@BOTH
def test_a_grant_is_told_while_it_may_be_relied_upon(apps: Apps, has_ttl: bool) -> None:
    said, refused, lease = granted(apps, lambda *_: None, has_ttl=has_ttl)
    assert (said, refused, lease.standing) == ([b"+OK\r\n"], [], Standing.HELD)


@BOTH
def test_what_has_nearly_ended_when_it_is_told_is_not_told_and_ends(apps: Apps, has_ttl: bool) -> None:
    """Its app is told no deadline (rule 1)."""

    def nearly_ends(lease: Lease, _session: Session) -> None:
        lease.deadline_ns = boottime_ns() + 45 * MS

    said, refused, lease = granted(apps, nearly_ends, has_ttl=has_ttl)
    assert [reply.split()[0] for reply in said] == [b"-EXPIRED"]
    assert (refused, apps.host.shown(), lease.standing) == ([], [None] * 5, Standing.OVER)


def test_what_another_host_has_extended_since_stays_there_though_its_app_is_told_too_late(apps: Apps) -> None:
    """Who extended it by its value relies on that (rule 2)."""

    def nearly_ends(lease: Lease, _session: Session) -> None:
        elsewhere = Host(apps.host.time, apps.host.fleet.masters)
        app = App(elsewhere.time, b"r")
        assert elsewhere.extended(app, 10_000, lease.token).code == "done"
        lease.deadline_ns = boottime_ns() + 45 * MS

    said, _, lease = granted(apps, nearly_ends, has_ttl=True)
    assert [reply.split()[0] for reply in said] == [b"-EXPIRED"]
    assert apps.host.shown() == [lease.nonce] * 5


# EXEC


async def answered(
    apps: Apps, commands: Sequence[str], before: Callable[[], None], *, watches: bool = False
) -> bytes:
    """The reply of the EXEC of these commands, if that happens before it is written; a moment later."""
    said, session = list[Any](), apps.connected()
    queued = [command.encode().split() for command in commands]
    watch = Watch() if watches else None
    Transaction(apps.preparing, lambda _: "", session, queued, said.append, watch).begins()
    apps.host.fleet.settle()
    before()
    [reply] = said
    told: bytes = reply()
    await asyncio.sleep(0)
    await until(lambda: not apps.shared.endings.busy, what="all has ended")
    apps.host.fleet.settle()
    return told


def nearly_ends(apps: Apps, key: bytes) -> None:
    apps.lease_of(key).deadline_ns = boottime_ns() + 5 * MS


def runs_out(apps: Apps, key: bytes) -> None:
    apps.lease_of(key).deadline_ns = boottime_ns()
    assert apps.host.locks.extend(key, token_of(VALUE), 1_000, Answer(), boottime_ns()) is None


def is_lost(apps: Apps, key: bytes) -> None:
    apps.host.locks.cut_off(apps.lease_of(key), "masters were away", boottime_ns())


WHAT_BECOMES = pytest.mark.parametrize("becomes", [nearly_ends, runs_out, is_lost])
TAKEN = ("SET a v NX PX 20000", "SETNX b v", "SET c v NX PX 20000")


@WHAT_BECOMES
@pytest.mark.parametrize("key", [b"a", b"b"])
def test_exec_does_not_say_ok_of_what_is_over_when_it_is_answered(
    apps: Apps, key: bytes, becomes: Callable[[Apps, bytes], None]
) -> None:
    told = asyncio.run(answered(apps, TAKEN, lambda: becomes(apps, key))).split(b"\r\n")
    assert [one.startswith(b"-EXPIRED") for one in told[1:4]] == [key == b"a", key == b"b", False]


@WHAT_BECOMES
@pytest.mark.parametrize("key", [b"a", b"b"])
def test_nothing_stays_behind_an_exec_that_watches_and_is_answered_too_late(
    apps: Apps, key: bytes, becomes: Callable[[Apps, bytes], None]
) -> None:
    told = asyncio.run(answered(apps, TAKEN, lambda: becomes(apps, key), watches=True))
    assert told.startswith(b"-EXPIRED")
    left = {one for one in (b"a", b"b", b"c") if apps.host.shown(one) != [None] * 5}
    assert left <= ({key} if becomes is runs_out else set()), "what has run out here is over by itself"


def test_exec_does_not_say_1_of_a_ttl_that_is_over_when_it_is_answered(apps: Apps) -> None:
    """The TTLs are longer than a machine stands still, so it waits."""
    apps.locked(apps.connected(), detached=True, ttl_ms=10_000)

    def waits() -> None:
        over_ns = boottime_ns() + 11_000 * MS
        eventually(lambda: boottime_ns() > over_ns, "the first is over")

    told = asyncio.run(answered(apps, ["PEXPIRE r 11000", "PEXPIRE r 60000"], waits))
    assert told.startswith(b"*2\r\n-EXPIRED")
    assert told.endswith(b":1\r\n")


@pytest.mark.parametrize("command", ["DEL a", "DELEX a IFEQ v"])
def test_what_a_multi_takes_and_gives_back_is_told_as_that(apps: Apps, command: str) -> None:
    told = asyncio.run(answered(apps, ["SETNX a v", command], lambda: None))
    assert told == b"*2\r\n:1\r\n:1\r\n"


_NEW = b"redis.call('get', KEYS[1]) return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 20000)"
_OF_ALL = (
    b"for i = 1, #KEYS do if redis.call('exists', KEYS[i]) == 1 then return 0 end end "
    b"for i = 1, #KEYS do redis.call('set', KEYS[i], ARGV[1], 'PX', 20000) end return 1"
)
NIL = b"*-1\r\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([b"SETNX", b"a", b"v"], NIL),
        ([b"EVAL", _NEW, b"1", b"a", b"v"], NIL),
        ([b"EVAL", _OF_ALL, b"2", b"Z", b"a", b"v"], NIL),
        ([b"DEL", b"b"], NIL),
        ([b"DEL", b"b", b"Mine"], b"-EXECABORT"),
    ],
    ids=["one key", "a new script", "a script of several keys", "DEL", "DEL, of which one is done"],
)
def test_each_command_of_a_multi_sees_what_has_changed_since_its_keys_were_compared(
    apps: Apps, words: list[bytes], said: bytes
) -> None:
    """Another has taken a, which was free, and b, which was the app's, is not held any more."""

    async def carried_out() -> bytes:
        session, told, watch = apps.connected(), list[Any](), Watch()
        apps.locked(session, resource=b"Mine")
        apps.host.locked(b"a", value=token_of(b"w"), pid=9)
        watch.whose = {b"a": b"", b"b": b"its nonce"}
        watch.shown = {b"b": VALUE}
        transaction = Transaction(apps.preparing, lambda _: "", session, [words], told.append, watch)
        held = Found(State.ANOTHERS, VALUE, 1_000)
        transaction._compares({b"a": Watched(FREE, b""), b"b": Watched(held, b"its nonce")})
        while not told:
            await asyncio.sleep(0)
            apps.host.fleet.settle()
        [reply] = told
        return reply if isinstance(reply, bytes) else cast("bytes", reply())

    assert asyncio.run(carried_out())[: len(said)] == said
    assert apps.host.shown(b"Z") == [None] * 5


@BOTH
def test_what_is_granted_when_its_connection_has_ended_stands_with_a_ttl_else_it_is_given_back(
    apps: Apps, has_ttl: bool
) -> None:
    """With a TTL somebody may have extended it by its value before its own agent knew that it is held."""

    def ends(_lease: Lease, session: Session) -> None:
        session.shared.turns.may_go_first = lambda _account: False  # that it waits no more has its turn later
        session.connection_lost(None)

    _, refused, lease = granted(apps, ends, has_ttl=has_ttl)
    assert refused == ([] if has_ttl else [GONE])
    assert lease.standing is (Standing.HELD if has_ttl else Standing.OVER)
    assert apps.host.shown() == [lease.nonce if has_ttl else None] * 5


@BOTH
def test_what_is_lost_before_it_is_told_is_told_as_that(apps: Apps, has_ttl: bool) -> None:
    def is_lost(lease: Lease, _session: Session) -> None:
        apps.host.locks.cut_off(lease, "masters were away", apps.host.time.now_ns)

    said, _, _ = granted(apps, is_lost, has_ttl=has_ttl)
    assert said == [b"-EXPIRED masters were away\r\n"]


def test_a_lock_with_a_ttl_belongs_to_no_process(apps: Apps) -> None:
    session = apps.connected()
    assert apps.plain_lock(session, has_ttl=True).bound is Bound.TTL
    assert apps.plain_lock(session, has_ttl=False).bound is Bound.PROCESS


# What the masters show of it before and behind that


def found(apps: Apps, session: Session) -> list[Any]:
    """What a GET finds, where the masters show the value of its process."""
    seen, told = Seen(b"host", session.owner, 0, VALUE, None, 0), list[Any]()
    apps.looking._shown.put("an app", b"r", (boottime_ns() + 60_000 * MS, seen))
    apps.looking.look(session, b"r", told.append)
    return [None if one is None else one.value for one in told]


def test_what_is_still_tried_for_is_shown_to_nobody(apps: Apps) -> None:
    """It may come to nothing, and who has given up its connection would go on with it."""
    session = apps.connected()
    assert found(apps, session) == [VALUE], "of an agent before, say"
    apps.host.slow()
    apps.host.lock(value=token_of(VALUE), owner=session.owner)
    assert found(apps, session) == [None]
    assert found(apps, apps.connected(pid=8)) == [VALUE], "another has the same one"
    apps.host.answer_all()
    assert found(apps, session) == [VALUE]


def test_what_was_given_back_since_nobody_heard_of_it_is_shown_to_nobody(apps: Apps) -> None:
    session = apps.connected()
    apps.looking.is_given_back("an app", b"r", VALUE, session.owner)
    assert found(apps, session) == [None]
    apps.locked(session)
    assert found(apps, session) == [VALUE], "it was asked for again"


# TTLs that can't be


_FOREVER = (
    "Ask the operator to raise max_ttl_ms of this class, or lock without a TTL: then it is renewed while "
    "its process lives"
)
_SCRIPT = b"return redis.call('set', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2])"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("SET r v NX EX 3600", "EX 3600 is too long: at most 60 s"),
        ("SET r v NX px 3600000", "PX 3600000 is too long: at most 60000 ms"),
        ("SET r v XX EX 61", "EX 61 is too long: at most 60 s"),
        ("CAS r v v EX 61", "EX 61 is too long: at most 60 s"),
        ("EXPIRE r 3600", "EXPIRE 3600 is too long: at most 60 s"),
        ("pexpire r 60001", "PEXPIRE 60001 is too long: at most 60000 ms"),
        ("SET r v NX EXAT 99999999999", "EXAT 99999999999 is too long: at most 60 s"),
        ("SET r v NX PXAT 99999999999999", "PXAT 99999999999999 is too long: at most 60000 ms"),
    ],
)
def test_a_ttl_that_is_too_long_is_named_as_it_was_written_with_what_to_do(
    apps: Apps, words: str, text: str
) -> None:
    said = apps.asks(apps.connected(), *words.encode().split())
    assert said.decode() == f"-ERR the TTL {text} in class 'other'. {_FOREVER}\r\n"


@pytest.mark.parametrize("words", ["SET r v XX KEEPTTL", "SET r v IFEQ v keepttl", "CAS r v v KEEPTTL"])
def test_who_would_keep_the_ttl_is_told_to_give_one(apps: Apps, words: str) -> None:
    with pytest.raises(BadRequest, match="ERR KEEPTTL is not supported: set PX milliseconds"):
        apps.asks(apps.connected(), *words.encode().split())


def test_so_is_that_of_a_script(apps: Apps) -> None:
    session, constant = apps.connected(), _SCRIPT.replace(b"ARGV[2]", b"'61'")
    apps.has_read(session, _SCRIPT)
    apps.has_read(session, constant)
    said = apps.asks(session, b"EVAL", _SCRIPT, b"1", b"r", b"v", b"3600")
    assert said.startswith(b"-ERR the TTL ARGV[2] '3600' is too long: at most 60 s in class 'other'. Ask")
    said = apps.asks(session, b"EVAL", constant, b"1", b"r", b"v")
    assert said.startswith(b"-ERR the TTL 61 is too long: at most 60 s in class 'other'. Ask")


def test_a_ttl_that_is_too_short_is_named_so_too(apps: Apps) -> None:
    said = apps.asks(apps.connected(), b"SET", b"r", b"v", b"NX", b"PX", b"99")
    assert said == b"-ERR the TTL PX 99 is too short: it must be at least 100 ms\r\n"
