"""A process that holds locks, in the way of one kind of client, until it is killed; it kills itself, too.

Its locks are bound to it, as is the rule. What happens to it goes to its standard output (`Notebook`).
SIGTERM: it locks nothing more, and lives on, so that what is held then is held for nobody.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
import traceback
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from socket import recv_fds
from socket import socket as Socket
from typing import Any, NoReturn

import hiredis
import redis

from lockd import AgentUnreachable, Client, LockdError, LockLost
from lockd.clock import boottime_ns
from lockd.lockctl.run.keeper import PR_SET_PDEATHSIG
from tests.chaos.holders.notebook import Begot, Held, Notebook, Terms, write_to
from tests.harness.history import Abandoned, Extended, Missed, Unlocked
from tests.harness.wire import Wire, as_map

_GONE = ("NOTHELD", "EXPIRED")
_AWAY = (OSError, EOFError, redis.ConnectionError, redis.TimeoutError)
"""No agent is there just now, or it takes too long."""
_UNLOCK_WITHIN_S = 10.0
_LOOK_AGAIN_S = 0.1
FAILED = b"failed\n"
"""The last line of one that ended by a mistake of its own: its log says which."""


class Life:
    """What such a process does all day. Each kind has a way to lock; the rest is alike."""

    def __init__(
        self,
        book: Notebook,
        socket: str,
        resources: Sequence[bytes],
        dice: Random,
        max_ttl_ms: int,
        max_hold_ms: int,
    ) -> None:
        self.book = book
        self.socket = socket
        self.dice = dice
        self.stopping = False
        self._resources = resources
        self._max_ttl_ms = max_ttl_ms
        self._max_hold_ms = max_hold_ms

    def run(self) -> None:
        while not self.stopping:
            self.round()
            time.sleep(self.dice.expovariate(1 / 0.1))
        while True:
            signal.pause()

    def terms(self) -> Terms:
        dice, most_ms = self.dice, self._max_ttl_ms
        ttl_ms = dice.choice((most_ms, most_ms, most_ms // 2, 1_000))
        return Terms(dice.choice(self._resources), ttl_ms, dice.choice((0, 300, 2_000)), self._max_hold_ms)

    def seconds(self) -> float:
        """For how long it holds: mostly briefly, and now and then for longer than a restart takes."""
        return self.dice.choice((0.02, 0.2, 1.0, 4.0)) * self.dice.uniform(0.5, 1.2)

    def die(self, held: Held) -> None:
        """With no time to say anything to anybody."""
        self.book.lets_go(held, "died")
        os.kill(os.getpid(), signal.SIGKILL)

    @abstractmethod
    def round(self) -> None: ...


class Plain(Life):
    """One that says LOCK, EXTEND and UNLOCK itself, over whatever connections it likes."""

    def round(self) -> None:
        terms = self.terms()
        held = self.lock(terms)
        if held is None:
            return
        self.hold(held)
        if held.over:
            return
        if self.dice.random() < 0.15:
            self.die(held)
        self.unlock(held)

    @abstractmethod
    def lock(self, terms: Terms) -> Held | None: ...

    @abstractmethod
    def ask(self, *words: bytes | str | int) -> Any:
        """The reply; an error of the agent's is a value. Raises one of `_AWAY`."""

    def stir(self) -> None:
        """What else it may do with its connections while it holds something."""

    def start_afresh(self) -> None:
        """Ask nothing more on a connection that may have ended."""

    def answered(self, request: int, terms: Terms, reply: Any) -> Held | None:
        if is_error(reply):
            self.book.was_refused(request, str(reply))
            return None
        lease = as_map(reply)
        return self.book.was_granted(request, terms, lease[b"token"], lease[b"fence"], lease[b"deadline_ns"])

    def hold(self, held: Held) -> None:
        end_ns = boottime_ns() + int(self.seconds() * 1e9)
        while boottime_ns() < end_ns and not held.over:
            time.sleep(min(self.dice.uniform(0.02, 0.4), max(0.0, (end_ns - boottime_ns()) / 1e9)))
            self.stir()
            if self.dice.random() < 0.4:
                self.extend(held)

    def extend(self, held: Held) -> None:
        with suppress(*_AWAY):
            reply = self.ask("EXTEND", held.resource, held.token, held.ttl_ms)
            if is_error(reply):
                self.judge(held, reply)
            else:
                deadline_ns = as_map(reply)[b"deadline_ns"]
                self.book.note(Extended(boottime_ns(), held.token, deadline_ns, asked=True))

    def judge(self, held: Held, error: Exception) -> None:
        if str(error).startswith(_GONE):
            self.book.note(Missed(boottime_ns(), held.token, str(error)))
            self.book.lets_go(held, "lost")
            held.over = True

    def unlock(self, held: Held) -> None:
        """Until somebody has answered. What an agent says behind one that gave no answer tells nothing: it
        may have been given back by then."""
        self.book.lets_go(held, "unlock")
        self.start_afresh()
        in_doubt, end_s = False, time.monotonic() + _UNLOCK_WITHIN_S
        while time.monotonic() < end_s:
            try:
                reply = self.ask("UNLOCK", held.resource, held.token)
            except _AWAY as error:
                in_doubt |= not _nobody_was_there(error)
            else:
                if reply == 1:
                    self.book.note(Unlocked(boottime_ns(), held.token))
                    return
                if str(reply).startswith(_GONE):
                    if not in_doubt:
                        self.judge(held, reply)
                    return
            time.sleep(_LOOK_AGAIN_S)


class Pool(Plain):
    """redis-py with its pool, whose connections come and go."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._redis = redis.Redis(
            unix_socket_path=self.socket,
            protocol=self.dice.choice((2, 3)),
            socket_timeout=20,
            retry=None,  # type: ignore[arg-type]  # its stub knows no None
            retry_on_error=[],
        )

    def ask(self, *words: bytes | str | int) -> Any:
        try:
            return self._redis.execute_command(*words)  # type: ignore[no-untyped-call]
        except redis.ResponseError as error:
            return error

    def stir(self) -> None:
        if self.dice.random() < 0.3:
            self._redis.connection_pool.disconnect()

    def start_afresh(self) -> None:
        self._redis.connection_pool.disconnect()

    def lock(self, terms: Terms) -> Held | None:
        words = ["WAIT", terms.wait_ms] if terms.wait_ms else []
        request = self.book.asks(terms)
        try:
            reply = self.ask("LOCK", terms.resource, terms.ttl_ms, *words)
        except _AWAY:
            self.book.withdraws(request)
            time.sleep(_LOOK_AGAIN_S)
            return None
        return self.answered(request, terms, reply)


class Impatient(Plain):
    """One that waits for no answer for long. It closes the connection then, or leaves it open as it is; and
    asks again by the same TOKEN, or takes it back, or goes its way."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._left: list[Wire] = []
        self._wire: Wire | None = None

    def ask(self, *words: bytes | str | int) -> Any:
        """Over one connection, as long as it answers."""
        self._wire = self._wire or self._connected(10.0)
        try:
            return self._wire.ask(*words)
        except _AWAY:
            self._wire.close()
            self._wire = None
            raise

    def start_afresh(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _connected(self, patience_s: float) -> Wire:
        wire = Wire(self.socket)
        wire.socket.settimeout(patience_s)
        return wire

    def lock(self, terms: Terms) -> Held | None:
        token = b"%032x" % self.dice.getrandbits(128)
        request = self.book.asks(terms)
        for _ in range(self.dice.choice((1, 1, 2, 4))):
            reply = self._try(terms, token)
            if reply is not None and not str(reply).startswith("DRAINING"):
                return self._answered(request, terms, reply)
        self._give_up(request, terms, token)
        return None

    def _try(self, terms: Terms, token: bytes) -> Any:
        """None: no answer was read."""
        patience_s = self.dice.choice((0.005, 0.1, 0.6))
        try:
            wire = self._connected(patience_s)
        except OSError:
            time.sleep(_LOOK_AGAIN_S)
            return None
        self._left.append(wire)
        try:
            wire.send("LOCK", terms.resource, terms.ttl_ms, "WAIT", 2_000, "TOKEN", token)
            if self.dice.random() < 0.3:
                # Its patience ends just when the answer is there.
                select.select([wire], [], [], patience_s)
            else:
                return wire.reply()
        except _AWAY:
            pass
        if self.dice.random() < 0.5:
            wire.close()
        return None

    def _answered(self, request: int, terms: Terms, reply: Any) -> Held | None:
        held = self.answered(request, terms, reply)
        if self.dice.random() < 0.5:
            self._close_all()
        return held

    def _give_up(self, request: int, terms: Terms, token: bytes) -> None:
        self.book.withdraws(request)
        if self.dice.random() < 0.5:
            self.unlock(Held(terms.resource, token, 0, terms.ttl_ms))
        self._close_all()
        self.book.note(Abandoned(boottime_ns(), token, self.book.app))

    def _close_all(self) -> None:
        while self._left:
            self._left.pop().close()

    def unlock(self, held: Held) -> None:
        super().unlock(held)
        self._close_all()


class Parent(Plain):
    """One that forks and dies: its child goes on with its lock, on its connection, and dies as well."""

    def ask(self, *words: bytes | str | int) -> Any:
        return self._wire.ask(*words)

    def lock(self, terms: Terms) -> Held | None:
        request = self.book.asks(terms)
        try:
            self._wire = Wire(self.socket)
            wait = ("WAIT", terms.wait_ms) if terms.wait_ms else ()
            reply = self._wire.ask("LOCK", terms.resource, terms.ttl_ms, *wait)
        except _AWAY:
            self.book.withdraws(request)
            time.sleep(_LOOK_AGAIN_S)
            return None
        return self.answered(request, terms, reply)

    def hold(self, held: Held) -> None:
        parent = os.getpid()
        if os.fork() == 0:
            self._outlive(parent, held)
        time.sleep(self.dice.uniform(0.0, 0.3))
        os.kill(parent, signal.SIGKILL)

    def _outlive(self, parent: int, held: Held) -> None:
        """The connection is all that the child has: with it the lock is gone."""
        self.book.note(Begot(boottime_ns(), held.token, os.getpid()))
        end_ns = boottime_ns() + int(self.seconds() * 1e9)
        ended = select.poll()
        ended.register(self._wire, select.POLLIN)
        while os.getppid() == parent or boottime_ns() < end_ns:
            if ended.poll(20):
                self.book.lets_go(held, "left")
                os._exit(0)
            if self.dice.random() < 0.05:
                self.extend(held)
        self.die(held)


class Library(Life):
    """lockd's own client: it connects to the next agent by itself, and knows what it holds."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._client = Client(self.socket)

    def round(self) -> None:
        terms = self.terms()
        request = self.book.asks(terms)
        try:
            watched = {"on_lost": lambda _lease, _why: None} if self.dice.random() < 0.5 else {}
            lease = self._client.acquire(
                terms.resource, ttl=terms.ttl_ms / 1000, wait=terms.wait_ms / 1000, **watched
            )
        except AgentUnreachable:
            self.book.withdraws(request)
            time.sleep(_LOOK_AGAIN_S)
            return
        except LockdError as error:
            self.book.was_refused(request, f"{type(error).__name__} {error}")
            return
        held = self.book.was_granted(request, terms, lease.token.encode(), lease.fence, lease.deadline_ns)
        try:
            self._hold(lease, held)
            if self.dice.random() < 0.15:
                self.die(held)
            self.book.lets_go(held, "unlock")
            if lease.release():
                self.book.note(Unlocked(boottime_ns(), held.token))
        except LockLost as error:
            self.book.note(Missed(boottime_ns(), held.token, error.reason))
            self.book.lets_go(held, "lost")

    def _hold(self, lease: Any, held: Held) -> None:
        end_ns = boottime_ns() + int(self.seconds() * 1e9)
        while boottime_ns() < end_ns:
            lease.check()
            if lease.deadline_ns > held.deadline_ns:
                held.deadline_ns = lease.deadline_ns
                self.book.note(Extended(boottime_ns(), held.token, held.deadline_ns))
            time.sleep(self.dice.uniform(0.02, 0.2))


def _nobody_was_there(error: Exception) -> bool:
    """So nothing was asked."""
    return isinstance(error, FileNotFoundError | ConnectionRefusedError) or "connecting to" in str(error)


def is_error(reply: Any) -> bool:
    return isinstance(reply, hiredis.ReplyError | redis.ResponseError)


KINDS: dict[str, Callable[..., Life]] = {
    "pool": Pool,
    "impatient": Impatient,
    "parent": Parent,
    "library": Library,
}


def live(
    kind: str, app: str, first: int, socket: str, seed: int, max_ttl: int, max_hold: int, resources: list[str]
) -> None:
    book = Notebook(app, first, write_to(sys.stdout.fileno()))
    names = [resource.encode() for resource in resources]
    life = KINDS[kind](book, socket, names, Random(seed), max_ttl, max_hold)

    def stop(*_: object) -> None:
        life.stopping = True

    signal.signal(signal.SIGTERM, stop)
    with suppress(BrokenPipeError):
        life.run()


def main() -> None:
    """Become a new process for each message at standard input, as long as that is open: one says what `live`
    takes, and brings the pipe for what is noted. Its first line is the number of the process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _dies_with_its_parent()
    asked = Socket(fileno=sys.stdin.fileno())
    while True:
        message, files, _, _ = recv_fds(asked, 65_536, 1)
        if not message:
            return
        if os.fork() == 0:
            _become(json.loads(message), files[0], asked)
        os.close(files[0])


def _become(words: list[Any], pipe: int, asked: Socket) -> NoReturn:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _dies_with_its_parent()
        asked.close()
        os.dup2(pipe, sys.stdout.fileno())
        os.close(pipe)
        os.write(sys.stdout.fileno(), b"%d\n" % os.getpid())
        live(*words)
    except BaseException:
        traceback.print_exc()
        os.write(sys.stdout.fileno(), FAILED)
    os._exit(1)


def _dies_with_its_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
