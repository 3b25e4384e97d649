"""What apps do with an agent, one use after the other: every command of the catalog is in one.

For the tests of what is left of what is over (tests/redis/test_leftovers.py), and for the hour of mixed use
(tests/bench/soak). A use is right when it returns: what was answered is looked at here.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hiredis

from tests.harness.wire import Wire, Word, as_map, token_of

LONG_MS = 60_000
_SHORT_MS = 1_000


class Asking(Wire):
    """A connection that notes what is asked."""

    def __init__(self, path: Path, asked: set[str]) -> None:
        self.asked = asked
        super().__init__(path)

    def send(self, *words: Word) -> None:
        name, *more = (str(word).lower() for word in words)
        self.asked.add(name)
        self.asked.add(f"{name}|{more[0]}" if more else name)
        super().send(*words)


class App:
    """One app: a connection that it keeps, and names that no other has. asked: the commands that it has
    sent; with subcommands as in "client|id"."""

    def __init__(self, path: Path) -> None:
        self.asked: set[str] = set()
        self._path = path
        self._mine = f"{os.getpid()}:{secrets.token_hex(3)}"
        self._kept: dict[str, Wire] = {}
        self.wire = Asking(path, self.asked)

    def name(self, text: str) -> str:
        return f"{text}:{self._mine}"

    def connect(self) -> Asking:
        """It has been let in: who only connects and closes fills the kernel's line (EAGAIN)."""
        wire = Asking(self._path, set())
        reply = wire.ask("PING")
        assert reply == b"PONG", reply
        wire.asked = self.asked
        return wire

    def ask(self, *words: Word) -> Any:
        """What is answered, which must be no error."""
        reply = self.wire.ask(*words)
        assert not isinstance(reply, hiredis.ReplyError), (words, reply)
        return reply

    def refused(self, word: str, *words: Word) -> None:
        reply = self.wire.ask(*words)
        assert isinstance(reply, hiredis.ReplyError), (words, reply)
        assert str(reply).startswith(word), (words, reply)

    def lock(self, resource: str, *options: Word) -> bytes:
        """Its token."""
        return token_of(self.ask("LOCK", resource, LONG_MS, *options))

    def unlock(self, resource: Word, token: Word) -> None:
        assert self.ask("UNLOCK", resource, token) == 1

    def keep(self, text: str, *options: Word) -> str:
        """The name of what is held for as long as the app is there, by a connection of its own. From the
        first time on."""
        name = self.name(text)
        if name not in self._kept:
            wire = self._kept[name] = Wire(self._path)
            for _ in range(2 if "SLOTS" in options else 1):
                token_of(wire.ask("LOCK", name, LONG_MS, "CONNECTION", *options))
        return name

    def close(self) -> None:
        for wire in (self.wire, *self._kept.values()):
            wire.close()

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Once = Callable[[App, int], None]


@dataclass(frozen=True, slots=True)
class Use:
    """commands: those that it is the use of. by_operator: only they may. slow: it takes many times what
    others take, so that it is done less often."""

    name: str
    commands: frozenset[str]
    once: Once
    by_operator: bool = False
    slow: bool = False


USES: dict[str, Use] = {}


def use(*commands: str, by_operator: bool = False, slow: bool = False) -> Callable[[Once], Once]:
    def noted(once: Once) -> Once:
        name = once.__name__.replace("_", " ")
        USES[name] = Use(name, frozenset(commands), once, by_operator, slow)
        return once

    return noted


# LOCK


@use("lock", "unlock")
def lock_and_unlock(app: App, _: int) -> None:
    app.unlock(name := app.name("pair"), app.lock(name))


@use("lock")
def lock_with_notify_and_max_hold(app: App, _: int) -> None:
    """On a connection of its own: one that is told of losses is told of those of its process."""
    with app.connect() as told:
        token = token_of(told.ask("LOCK", name := app.name("told"), LONG_MS, "NOTIFY", "MAXHOLD", LONG_MS))
        assert told.ask("UNLOCK", name, token) == 1


@use("lock")
def lock_by_the_connection(app: App, _: int) -> None:
    app.unlock(name := app.name("bound"), app.lock(name, "CONNECTION"))


@use("lock")
def lock_detached_and_unlock(app: App, _: int) -> None:
    app.unlock(name := app.name("detached"), app.lock(name, "DETACHED"))


@use("lock")
def lock_detached_and_let_it_end(app: App, number: int) -> None:
    token_of(app.ask("LOCK", app.name(f"ends {number}"), _SHORT_MS, "DETACHED"))


@use("extend")
def lock_extend_and_unlock(app: App, _: int) -> None:
    token = app.lock(name := app.name("extended"))
    app.ask("EXTEND", name, token, LONG_MS)
    with app.connect() as told:
        token_of(told.ask("EXTEND", name, token, LONG_MS, "NOTIFY"))
    app.unlock(name, token)


@use("lock")
def lock_by_a_token_twice_and_unlock(app: App, number: int) -> None:
    token = f"t{number}-{secrets.token_hex(8)}"
    name = app.name("named")
    for _ in range(2):
        assert app.lock(name, "TOKEN", token) == token.encode()
    app.unlock(name, token)


@use("lock")
def withdraw_a_lock_that_waits(app: App, number: int) -> None:
    name, token = app.keep("withdrawn"), f"w{number}-{secrets.token_hex(8)}"
    app.wire.send("LOCK", name, LONG_MS, "WAIT", LONG_MS, "TOKEN", token)
    app.wire.send("UNLOCK", name, token)
    assert str(app.wire.reply()).startswith("NOTHELD")
    assert app.wire.reply() == 1


@use("lock")
def lock_what_is_taken(app: App, _: int) -> None:
    app.refused("TAKEN", "LOCK", app.keep("taken"), LONG_MS)


@use("lock")
def lock_with_a_wait_that_ends(app: App, _: int) -> None:
    app.refused("T", "LOCK", app.keep("waited for"), LONG_MS, "WAIT", 1)


@use("lock")
def lock_with_a_wait_that_is_granted(app: App, _: int) -> None:
    token = app.lock(name := app.name("handed on"))
    with app.connect() as next_one:
        next_one.send("LOCK", name, LONG_MS, "WAIT", LONG_MS)
        app.unlock(name, token)
        assert next_one.ask("UNLOCK", name, token_of(next_one.reply())) == 1


@use("lock")
def lock_a_list_and_unlock(app: App, _: int) -> None:
    names = [app.name("one"), app.name("other")]
    for lease in app.ask("LOCK", names[0], LONG_MS, "AND", names[1]):
        app.unlock(as_map(lease)[b"resource"], token_of(lease))


@use("lock")
def lock_a_list_of_which_one_is_taken(app: App, _: int) -> None:
    app.refused("T", "LOCK", app.name("a"), LONG_MS, "AND", app.keep("z"))


@use("lock")
def lock_a_slot_and_unlock(app: App, _: int) -> None:
    lease = as_map(app.ask("LOCK", app.name("gpu"), LONG_MS, "SLOTS", 4))
    app.unlock(lease[b"resource"], lease[b"token"])


@use("lock")
def lock_a_slot_with_a_wait_and_unlock(app: App, _: int) -> None:
    lease = as_map(app.ask("LOCK", app.name("gpu"), LONG_MS, "SLOTS", 4, "WAIT", LONG_MS))
    app.unlock(lease[b"resource"], lease[b"token"])


@use("lock")
def wait_for_a_slot_that_stays_taken(app: App, _: int) -> None:
    app.refused("T", "LOCK", app.keep("full", "SLOTS", 2), LONG_MS, "SLOTS", 2, "WAIT", 1)


@use("lock")
def be_refused_for_a_limit(app: App, _: int) -> None:
    app.refused("LIMIT", "LOCK", "n" * 5_000, LONG_MS)


@use("unlock")
def unlock_nothing(app: App, _: int) -> None:
    reply = app.wire.ask("UNLOCK", app.name("nothing"), "a" * 32)
    assert str(reply).startswith(("NOTHELD", "LIMIT")), reply


@use("unlock", "extend")
def unlock_and_extend_nothing_twice(app: App, number: int) -> None:
    """Each time with a token that nobody has seen, which is remembered for a while."""
    for words in (("UNLOCK",), ("EXTEND",)):
        token, ttl = f"{number}-{secrets.token_hex(8)}", (LONG_MS,) if words[0] == "EXTEND" else ()
        reply = app.wire.ask(*words, app.name("never"), token, *ttl)
        assert str(reply).startswith(("NOTHELD", "LIMIT")), reply


@use("lock", slow=True)
def lose_a_lease_and_be_told(app: App, number: int) -> None:
    """At its MAXHOLD. Asked for again where masters took longer than that."""
    name = app.name(f"lost {number}")
    with app.connect() as told:
        told.ask("HELLO", 3)
        while "NOQUORUM" in str(told.ask("LOCK", name, 200, "MAXHOLD", 200, "NOTIFY")):
            pass
        kind, lost, *_ = told.push()
        assert (kind, lost) == (b"lost", name.encode())


# Redis's own commands


@use("set", "get", "exists", "pttl", "ttl", "del")
def set_read_and_delete(app: App, _: int) -> None:
    name = app.name("plain")
    assert app.ask("SET", name, "v", "NX", "PX", LONG_MS) == b"OK"
    assert app.ask("GET", name) == b"v"
    assert app.ask("EXISTS", name) == 1
    assert app.ask("PTTL", name) > 0
    assert app.ask("TTL", name) > 0
    assert app.ask("SET", name, "v", "XX", "PX", LONG_MS) == b"OK"
    assert app.ask("DEL", name) == 1


@use("set", "get")
def set_what_is_taken(app: App, _: int) -> None:
    name = app.keep("set by another")
    assert app.ask("SET", name, "v", "NX", "PX", LONG_MS) is None
    assert app.ask("GET", name) is not None


@use("setnx", "expire", "persist", "unlink")
def setnx_expire_persist_and_unlink(app: App, _: int) -> None:
    name = app.name("without a TTL")
    assert app.ask("SETNX", name, "v") == 1
    assert app.ask("EXPIRE", name, 60) == 1
    assert app.ask("PERSIST", name) == 1
    assert app.ask("UNLINK", name) == 1


@use("pexpire")
def set_extend_and_end_by_pexpire(app: App, _: int) -> None:
    name = app.name("extended by pexpire")
    assert app.ask("SET", name, "v", "NX", "PX", LONG_MS) == b"OK"
    assert app.ask("PEXPIRE", name, LONG_MS) == 1
    assert app.ask("PEXPIRE", name, 0) == 1


def _set(app: App, text: str) -> str:
    name = app.name(text)
    assert app.ask("SET", name, "v", "NX", "PX", LONG_MS) == b"OK"
    return name


@use("delex")
def delete_by_delex(app: App, _: int) -> None:
    assert app.ask("DELEX", _set(app, "delex"), "IFEQ", "v") == 1


@use("delifeq")
def delete_by_delifeq(app: App, _: int) -> None:
    assert app.ask("DELIFEQ", _set(app, "delifeq"), "v") == 1


@use("cas", "cad")
def extend_by_cas_and_delete_by_cad(app: App, _: int) -> None:
    name = _set(app, "cas")
    assert app.ask("CAS", name, "v", "v", "PX", LONG_MS) == 1
    assert app.ask("CAD", name, "v") == 1


@use("wait")
def set_and_wait_for_masters(app: App, _: int) -> None:
    name = _set(app, "on masters")
    assert app.ask("WAIT", 1, _SHORT_MS) >= 1
    assert app.ask("DEL", name) == 1


@use("blpop")
def wait_for_a_signal_that_does_not_come(app: App, _: int) -> None:
    assert (
        app.ask("BLPOP", f"lock-signal:{app.keep('lock:signalled').removeprefix('lock:')}", "0.001") is None
    )


@use("multi", "exec")
def transact(app: App, _: int) -> None:
    app.ask("MULTI")
    app.ask("SET", name := app.name("transacted"), "v", "NX", "PX", LONG_MS)
    app.ask("DEL", name)
    assert app.ask("EXEC") == [b"OK", 1]


@use("watch", "unwatch", slow=True)  # each asks the masters about what nobody holds, and that is limited
def transact_watching(app: App, _: int) -> None:
    app.ask("WATCH", name := app.name("watched"))
    app.ask("MULTI")
    app.ask("SET", name, "v", "PX", LONG_MS)
    app.ask("DEL", name)
    assert app.ask("EXEC") == [b"OK", 1]
    app.ask("WATCH", name)
    app.ask("UNWATCH")


@use("discard")
def discard(app: App, _: int) -> None:
    app.ask("MULTI")
    app.ask("DEL", app.name("discarded"))
    assert app.ask("DISCARD") == b"OK"


_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
_READ = "return redis.call('get', KEYS[1]) == ARGV[1]"


@use("eval")
def release_by_a_script(app: App, _: int) -> None:
    assert app.ask("EVAL", _RELEASE, 1, _set(app, "by a script"), "v") == 1


@use("script", "evalsha")
def release_by_a_script_that_was_loaded(app: App, _: int) -> None:
    digest = app.ask("SCRIPT", "LOAD", _RELEASE)
    assert app.ask("SCRIPT", "EXISTS", digest) == [1]
    assert app.ask("EVALSHA", digest, 1, _set(app, "by its digest"), "v") == 1


@use("eval_ro", "evalsha_ro")
def read_by_a_script(app: App, _: int) -> None:
    app.ask("EVAL_RO", _READ, 1, app.name("read"), "v")
    app.refused("NOSCRIPT", "EVALSHA_RO", "0" * 40, 1, app.name("read"), "v")


@use("eval")
def send_a_script_that_is_new_and_is_none(app: App, number: int) -> None:
    reply = app.wire.ask("EVAL", f"return {number}", 0)
    assert str(reply).startswith(("ERR", "LIMIT")), reply


@use()
def what_is_no_command(app: App, _: int) -> None:
    app.refused("ERR", "FLUSHALL")


# Connections


@use("ping", "echo", "select", "auth", "hello")
def greet(app: App, _: int) -> None:
    assert app.ask("PING") == b"PONG"
    assert app.ask("ECHO", "hello") == b"hello"
    assert app.ask("SELECT", 0) == b"OK"
    assert app.ask("AUTH", "any", "word") == b"OK"
    app.ask("HELLO", 2)


@use("client", "client|id", "client|info", "client|setname", "client|getname", "client|setinfo")
def tell_who_one_is(app: App, number: int) -> None:
    assert app.ask("CLIENT", "ID") > 0
    app.ask("CLIENT", "INFO")
    app.ask("CLIENT", "SETNAME", f"app{number}")
    assert app.ask("CLIENT", "GETNAME") == f"app{number}".encode()
    app.ask("CLIENT", "SETINFO", "LIB-NAME", "uses")


@use("command", "command|count", "command|info", "command|docs", "command|list")
def ask_what_there_is(app: App, _: int) -> None:
    assert app.ask("COMMAND", "COUNT") == len(app.ask("COMMAND"))
    for words in (("INFO", "lock"), ("DOCS", "lock"), ("LIST",), ("LIST", "FILTERBY", "PATTERN", "l*")):
        app.ask("COMMAND", *words)


@use("quit")
def connect_and_quit(app: App, _: int) -> None:
    with app.connect() as wire:
        assert wire.ask("QUIT") == b"OK"
        assert wire.rest() == b""


@use("ping")
def connect_and_close(app: App, _: int) -> None:
    with app.connect() as wire:
        reply = wire.ask("PING")
        assert reply == b"PONG", reply


@use("lock")
def lock_and_close(app: App, number: int) -> None:
    with app.connect() as wire:
        token_of(wire.ask("LOCK", app.name(f"left {number}"), LONG_MS, "CONNECTION"))


@use("multi")
def close_behind_multi(app: App, _: int) -> None:
    with app.connect() as wire:
        wire.ask("MULTI")
        wire.ask("DEL", *(f"k{n}" for n in range(20)))


@use("unlock")
def close_with_unlocks_behind_a_wait(app: App, _: int) -> None:
    with app.connect() as behind:
        behind.send("LOCK", app.keep("long"), LONG_MS, "WAIT", LONG_MS)
        for n in range(5):
            behind.send("UNLOCK", f"long {n}", "b" * 32)
        behind.send("PING")


@use("lock", "hello")
def close_with_what_has_not_begun_behind_a_wait(app: App, _: int) -> None:
    """What begins only when all before it is answered."""
    with app.connect() as behind:
        behind.send("LOCK", app.keep("long"), LONG_MS, "WAIT", LONG_MS)
        for n in range(3):
            behind.send("LOCK", f"not begun {n}", LONG_MS)
        behind.send("HELLO", 2)
        app.ask("PING")


@use("info", "locks")
def close_with_long_replies_unread(app: App, _: int) -> None:
    with app.connect() as wire:
        for _ in range(5):
            wire.send("INFO")
            wire.send("COMMAND")
            wire.send("LOCKS", "*", "LOCAL")


@use("echo")
def close_in_the_middle_of_a_request(app: App, _: int) -> None:
    with app.connect() as wire:
        wire.ask("ECHO", "whole")
        wire.send_raw(b"*2\r\n$4\r\nECHO\r\n$60000\r\n" + b"x" * 3_000)


@use()
def send_what_is_no_request(app: App, _: int) -> None:
    with app.connect() as wire:
        wire.send_raw(b"*1\r\n!what\r\n")
        assert wire.rest().startswith(b"-ERR")


@use("lock", slow=True)
def end_a_process_that_holds(app: App, number: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            wire = app.connect()
            token_of(wire.ask("LOCK", app.name(f"of a process {number}"), LONG_MS))
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[0] == child
    app.asked.add("lock")  # by the child


# Readings


@use("holder", "get")
def read_who_holds(app: App, _: int) -> None:
    assert app.ask("HOLDER", app.keep("looked at")) is not None
    assert app.ask("HOLDER", app.name("free")) is None
    assert app.ask("GET", app.name("free")) is None


@use("locks", "masters", "info")
def listings(app: App, _: int) -> None:
    app.ask("LOCKS", app.name("*"))
    app.ask("LOCKS", "*", "LOCAL")
    assert app.ask("MASTERS")
    app.ask("INFO")
    app.ask("INFO", "classes")


# Operators


@use("forcerelease", by_operator=True)
def release_by_force(app: App, _: int) -> None:
    token_of(app.ask("LOCK", name := app.name("forced"), LONG_MS, "DETACHED"))
    assert app.ask("FORCERELEASE", name) >= 1


@use("form", by_operator=True, slow=True)
def form_what_is_formed(app: App, _: int) -> None:
    assert as_map(app.ask("FORM"))[b"status"] == b"already"


@use("admit", by_operator=True, slow=True)
def admit_who_is_a_member(app: App, _: int) -> None:
    assert as_map(app.ask("ADMIT", "m1"))[b"status"] == b"already"


@use("reload", by_operator=True, slow=True)
def reload_what_is_the_same(app: App, _: int) -> None:
    assert as_map(app.ask("RELOAD"))[b"status"] == b"unchanged"
    assert as_map(app.ask("RELOAD", "CHECK"))[b"status"] == b"unchanged"
