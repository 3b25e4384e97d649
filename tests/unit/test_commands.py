"""The table of commands: a descriptor stands with its handler, and what it says is what is done."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lockd.config.current import Current
from lockd.core.flow import Place
from lockd.core.owners import Connection
from lockd.server import session as session_module
from lockd.server.commands import catalog
from lockd.server.commands.instead import _INSTEAD
from lockd.server.commands.table import Commands
from lockd.server.commands.transactions import QUEUED_MOST
from lockd.server.losses import Losses
from lockd.server.quotas import Quotas
from tests.harness.configs import a_config
from tests.harness.fleet_model import cluster
from tests.harness.real_fleet import a_fleet
from tests.harness.sessions import TurnsByHand
from tests.harness.waiting import until

CURRENT = Current(a_config())


class Session(session_module.Session):
    """A connection that writes down what is begun on it."""

    def __init__(self) -> None:
        told = ("operator_denied", "denied", "lease_refused", "limit_hit")
        incidents = SimpleNamespace(**dict.fromkeys(told, lambda *_: None))
        permissions = SimpleNamespace(
            is_admin=lambda peer: peer.uid == 0, may_lock=lambda peer, lock_class: True
        )
        self.shared = SimpleNamespace(  # type: ignore[assignment]
            current=CURRENT, incidents=incidents, permissions=permissions, locks=cluster().locks,
            quotas=Quotas(CURRENT), losses=Losses(), host=b"web1", log=None, processes=None, sessions=(),
            turns=TurnsByHand(),
        )  # fmt: skip
        self.peer = SimpleNamespace(pid=7, uid=1000)  # type: ignore[assignment]
        self.ties = Connection(self, None)
        self._account = "uid 1000"
        self.multi, self.name, self.library, self.id, self.protocol = None, b"", b"", 3, 2
        self.watch = None
        self.begun: list[tuple[Any, bool]] = []

    def later(self, work: Any, *, finish: bool = False) -> None:
        self.begun.append((work, finish))

    def why_no_operator(self) -> str:
        return "" if self.peer.uid == 0 else "not one of them"

    def quit(self) -> bytes:
        return b"+OK\r\n"


def commands_for(session: Session) -> Commands:
    metrics = SimpleNamespace(leases=SimpleNamespace(refused=lambda *_: None), agent=None)
    return Commands(CURRENT, session.shared, a_fleet(), metrics, reloading=None)  # type: ignore[arg-type]


def run(session: Session, *words: bytes) -> bytes | None:
    return commands_for(session).run(session, list(words))  # type: ignore[arg-type]


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        ("PING", b"+PONG\r\n"),
        ("ping a", b"$1\r\na\r\n"),
        ("PING a b", b"-ERR wrong number of arguments for 'ping' command: PING [message]\r\n"),
        ("UNLOCK a", b"-ERR wrong number of arguments for 'unlock' command: UNLOCK resource token\r\n"),
        ("LOCKS a b", b"-ERR syntax error: LOCKS [pattern] [<LOCAL | NOLEASE>]\r\n"),
        ("AUTH a b c", b"-ERR syntax error: AUTH [username] password\r\n"),
        (
            "HELLO 3 X",
            b"-ERR syntax error in HELLO: HELLO [protover [AUTH username password] [SETNAME clientname]]\r\n",
        ),
        (
            "NOSUCH",
            b"-ERR unknown command 'NOSUCH': this is a lock agent. "
            b"It stores only locks; COMMAND LIST lists its commands\r\n",
        ),
        ("CLIENT ID", b":3\r\n"),
        ("client setname x", b"+OK\r\n"),
        ("CLIENT GETNAME", b"$-1\r\n"),
        ("CLIENT ID x", b"-ERR wrong number of arguments for 'client|id' command\r\n"),
        (
            "CLIENT KILL",
            b"-ERR unknown subcommand 'KILL': this is a lock agent. Try "
            b"CLIENT <GETNAME | ID | INFO | SETINFO | SETNAME>\r\n",
        ),
        ("EXEC", b"-ERR EXEC without MULTI\r\n"),
        (
            "LOCK lockd:canary:a 1000",
            b"-DENIED resources that begin with 'lockd:canary:' are reserved for agents\r\n",
        ),
        ("AUTH x", b"+OK\r\n"),
        ("AUTH a b", b"+OK\r\n"),
    ],
)
def test_what_is_wrong_is_told_with_the_usage_of_the_descriptor_and_nobody_locks_what_is_the_agents_own(
    session: Session, words: str, reply: bytes
) -> None:
    assert run(session, *(word.encode() for word in words.split())) == reply


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("SUBSCRIBE a", b"It has no publish and subscribe: wait with LOCK resource ttl-ms WAIT ms"),
        ("psubscribe a", b"It has no publish and subscribe"),
        ("PUBLISH a b", b"It has no publish and subscribe"),
        ("SSUBSCRIBE a", b"It has no publish and subscribe"),
        ("UNSUBSCRIBE", b"It has no publish and subscribe"),
        ("CLIENT TRACKING ON", b"turn client-side caching off. Try CLIENT <GETNAME"),
        ("client caching YES", b"turn client-side caching off. Try CLIENT <GETNAME"),
        ("HSET a b c", b"It stores only locks: there are no hashes: a lock is one key with one value"),
        ("MSETNX a b", b"It stores only locks: several locks at once are LOCK resource ttl-ms AND resource"),
        ("LPUSH a b", b"It stores only locks"),
        ("ZADD a 1 b", b"there are no sorted sets: LOCK resource ttl-ms SLOTS n takes one of n equal locks"),
        ("INCR a", b"there are no counters: LOCK resource ttl-ms SLOTS n takes one of n equal locks"),
        ("SET a b", b"a SET without NX would take a lock from its holder"),
        ("SETEX a 10 b", b"That would take a lock from its holder: take it with SET key value NX PX"),
        (
            "GETDEL a",
            b"That would release it, no matter who holds it: release your own lock with DELEX key IFEQ value",
        ),
        (
            "FLUSHALL",
            b"That would release every lock, no matter who holds it: release your own locks with DELEX key",
        ),
        ("flushdb ASYNC", b"That would release every lock"),
        ("FCALL a 0", b"Functions are not supported"),
        (
            "PEXPIREAT a 1",
            b"Absolute times are supported only in SET: use PEXPIRE key milliseconds, and PTTL",
        ),
        ("EXPIRETIME a", b"Absolute times are supported only in SET"),
        ("GETEX a EX 10", b"Read with GET key, and extend with PEXPIRE key milliseconds"),
        ("SCAN 0", b"LOCKS [pattern] lists what is locked"),
    ],
)
def test_what_is_no_lock_is_told_that_this_is_a_lock_agent_and_what_to_do_instead(
    session: Session, words: str, instead: bytes
) -> None:
    reply = run(session, *(word.encode() for word in words.split())) or b""
    assert reply.startswith(b"-ERR ")
    assert b"his is a lock agent" in reply
    assert instead in reply
    assert len(reply) < 300


def test_what_is_told_instead_is_of_no_command_that_there_is() -> None:
    assert not {name.lower() for name in _INSTEAD} & set(catalog.command_list())


@pytest.mark.parametrize("words", ["FORCERELEASE a", "FORM", "ADMIT m1"])
def test_what_is_flagged_admin_is_for_operators(session: Session, words: str) -> None:
    asked = [word.encode() for word in words.split()]
    reply = run(session, *asked)
    assert reply is not None
    assert reply.startswith(b"-DENIED only for operators on this host")
    assert reply.endswith(b"(not one of them)\r\n")
    session.peer.uid = 0
    assert run(session, *asked) is None
    [(_, finish)] = session.begun
    assert finish, "a change is carried through"


def test_in_a_multi_redis_own_commands_wait_for_its_exec(session: Session) -> None:
    assert run(session, b"MULTI") == b"+OK\r\n"
    assert run(session, b"SETNX", b"a", b"v") == b"+QUEUED\r\n"
    assert run(session, b"PEXPIRE", b"a", b"1000") == b"+QUEUED\r\n"
    assert session.multi is not None
    assert session.multi.queued == [[b"SETNX", b"a", b"v"], [b"PEXPIRE", b"a", b"1000"]]
    assert run(session, b"DISCARD") == b"+OK\r\n"
    assert run(session, b"PING") == b"+PONG\r\n"


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        ("LOCK a 1000", b"-ERR 'LOCK' can't be used in a MULTI"),
        ("PING", b"-ERR 'PING' can't be used in a MULTI"),
        ("MULTI", b"-ERR 'MULTI' can't be used in a MULTI"),
        ("NOSUCH", b"-ERR unknown command 'NOSUCH': this is a lock agent"),
        (
            "SUBSCRIBE a",
            b"-ERR unknown command 'SUBSCRIBE': this is a lock agent. It has no publish and subscribe",
        ),
        ("GET", b"-ERR wrong number of arguments for 'get' command"),
        ("SETNX lockd:canary:a v", b"-DENIED "),
    ],
)
def test_what_can_not_be_in_a_multi_breaks_it_and_nothing_of_it_is_run(
    session: Session, words: str, reply: bytes
) -> None:
    run(session, b"MULTI")
    run(session, b"SETNX", b"a", b"v")
    assert (run(session, *[word.encode() for word in words.split()]) or b"").startswith(reply)
    assert run(session, b"quit") == b"+OK\r\n"
    assert (run(session, b"EXEC") or b"").startswith(b"-EXECABORT")
    assert run(session, b"PING") == b"+PONG\r\n"


def test_a_multi_has_an_end(session: Session) -> None:
    run(session, b"MULTI")
    for _ in range(QUEUED_MOST):
        assert run(session, b"GET", b"a") == b"+QUEUED\r\n"
    assert (run(session, b"GET", b"a") or b"").startswith(b"-LIMIT multi")
    assert (run(session, b"EXEC") or b"").startswith(b"-EXECABORT")


async def test_command_is_answered_in_a_turn_of_its_own(session: Session) -> None:
    assert run(session, b"COMMAND", b"COUNT") is None
    [(work, finish)] = session.begun
    assert not finish
    turns: Any = session.shared.turns
    answer = asyncio.ensure_future(work(Place()))
    await until(lambda: turns.jobs, "it has a job in line")
    turns.jobs.pop()(1 << 62)
    assert await answer == b":%d\r\n" % len(catalog.COMMANDS)


def test_what_is_listed_is_answered_and_so_is_what_clients_send_out_of_habit(session: Session) -> None:
    listed = {command.name for command in catalog.COMMANDS}
    described = {command for group in catalog.GROUPS for command in group.commands}
    out_of_habit = {"evalsha_ro"}
    assert {command.name for command in described} == listed | out_of_habit
    assert {command for command, *_ in commands_for(session)._table.values()} == described


OF_A_RESOURCE = {
    command.name: command for group in catalog.GROUPS for command in group.commands if command.key_access
}


def words_of(name: str, resource: bytes = b"a word") -> list[bytes]:
    command = OF_A_RESOURCE[name]
    if command.arguments[0].type == "key":
        return [name.encode(), resource, *[b"a word"] * (abs(command.arity) - 2)]
    return [name.encode(), b"a script", b"1", resource]


@pytest.mark.parametrize("name", OF_A_RESOURCE)
def test_a_resource_has_a_name_that_is_not_too_long(name: str) -> None:
    operator = Session()
    operator.peer.uid = 0
    assert run(operator, *words_of(name, b"")) == b"-ERR the resource has an empty name\r\n"
    longest = b"r" * CURRENT.config.limits.resource_bytes
    assert (run(operator, *words_of(name, longest + b"r")) or b"").startswith(
        b"-LIMIT resource_bytes: the resource has "
    )
    assert operator.begun == []


def test_what_grants_or_extends_is_for_those_who_may_lock(session: Session) -> None:
    """Of Redis's own commands that depends on what they do: that is asked behind the table."""
    session.shared.permissions.may_lock = lambda peer, lock_class: False
    denied = {
        name
        for name, command in OF_A_RESOURCE.items()
        if command.group not in ("redis", "scripting", "transactions")
        and (run(session, *words_of(name)) or b"").startswith(b"-DENIED uid 1000 may not lock")
    }
    assert denied == {"lock", "extend"}


@pytest.mark.parametrize("name", ["eval", "evalsha", "eval_ro"])
def test_the_keys_of_a_script_are_resources_like_any(name: str) -> None:
    session, longest = Session(), b"r" * CURRENT.config.limits.resource_bytes

    def said(*keys: bytes) -> bytes:
        return run(session, name.encode(), b"script", b"%d" % len(keys), *keys, b"argument") or b""

    assert said(b"a", b"").startswith(b"-ERR the resource has an empty name")
    assert said(b"a", longest + b"r").startswith(b"-LIMIT resource_bytes")
    assert (run(session, name.encode(), b"script", b"9", b"a") or b"").startswith(b"-ERR Number of keys")


def test_what_holds_for_a_command_is_read_from_its_descriptor(session: Session) -> None:
    commands = commands_for(session)
    waiting = {
        name for name in (b"HELLO", b"AUTH", b"QUIT", b"LOCK") if commands.waits_for_all_before([name])
    }
    assert waiting == {b"HELLO", b"AUTH", b"QUIT"}
    bringing_none = {b"UNLOCK", b"EXTEND", b"HELLO", b"AUTH", b"QUIT", b"MULTI", b"EXEC", b"DISCARD"}
    assert bringing_none <= commands.brings_no_loss
    assert not {b"LOCK", b"PING", b"HOLDER"} & commands.brings_no_loss


def test_of_one_whose_app_has_closed_what_gives_back_is_run_and_nothing_else(session: Session) -> None:
    commands = commands_for(session)
    ran = list[bytes]()
    commands._table = {
        name: (command, (), lambda _session, words: ran.append(words[0]))
        for name, (command, _, _) in commands._table.items()
    }
    asked = (
        "UNLOCK r t",
        "EXTEND r t 1",
        "DEL r",
        "del r q",
        "SET r v NX",
        "DELEX r IFEQ v",
        "CAD r v",
        "MULTI",
    )
    for words in asked:
        commands.give_back(session, [word.encode() for word in words.split()])
    assert ran == [b"UNLOCK", b"DEL", b"del", b"DELEX", b"CAD"]


def test_an_agent_that_stops_reads_no_configuration(session: Session) -> None:
    session.peer.uid, session.shared.locks.draining = 0, True
    assert run(session, b"RELOAD") is None
    [(work, _)] = session.begun
    assert asyncio.run(work(None)).startswith(b"-DRAINING ")
