"""What the blocking and the asyncio client share: requests, errors, and what an app knows of its lease.

Nothing here does I/O. The agent renews a lease on its own and tells of it in pushes (RESP3), so what an app knows
is the last deadline that it heard of, on CLOCK_BOOTTIME, which agent and app share.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, NoReturn, Protocol
from weakref import WeakSet

from hiredis import pack_command

from lockd.clock import boottime_ns

_NS_PER_MS = 1_000_000
_LONGEST_NOTICE_NS = 5_000 * _NS_PER_MS
_HEAD_START_NS = 50 * _NS_PER_MS
_DEFAULT_SOCKET = "/run/lockd/lockd.sock"


class LockdError(Exception):
    """What a call to lockd can fail with; the agent's refusals that have no class of their own are just this."""


class AgentUnreachable(LockdError):
    """No agent answers at the socket: it is not running, is stopped, or hangs."""


class Taken(LockdError):
    """Another holds it, and the call was not to wait. `retry_after`: seconds after which to try again."""

    retry_after: float = 0.0


class WaitTimeout(LockdError):
    """`wait` ran out while another held it."""


class NoQuorum(LockdError):
    """Too few masters have a vote or answered in time: an outage, not contention. `reasons`: master → why."""

    reasons: dict[str, str]


class LockLost(LockdError):
    """The lease is not held any more, or can't be proven to be. `reason` says why.

    `deadline_ns`: the end of its validity on CLOCK_BOOTTIME. What was done before that instant was done under the lock.
    """

    reason: str = ""
    deadline_ns: int = 0


class NotHeld(LockLost):
    """The agent and the masters know no such lease: it ended, and may be another's by now."""


class Denied(LockdError):
    """This user may not lock resources of this class."""


class LimitReached(LockdError):
    """A limit of the agent is in the way; the text says which."""


class Draining(LockdError):
    """The agent is stopping and grants nothing any more."""


class ClockRefused(LockdError):
    """The clocks of the masters can't be trusted now."""


_ERRORS: dict[str, type[LockdError]] = {
    "TAKEN": Taken,
    "NOQUORUM": NoQuorum,
    "TIMEOUT": WaitTimeout,
    "NOTHELD": NotHeld,
    "EXPIRED": LockLost,
    "DENIED": Denied,
    "LIMIT": LimitReached,
    "DRAINING": Draining,
    "CLOCK": ClockRefused,
}
_RETRY_AFTER = re.compile(r"retry-after=(\d+)")
_REASON = re.compile(r"([A-Za-z0-9._-]+)=(\S+)")


def error_from(text: str) -> LockdError:
    """The exception for an error reply, by its first word."""
    word, _, rest = text.partition(" ")
    error = _ERRORS.get(word, LockdError)(text)
    if isinstance(error, Taken) and (found := _RETRY_AFTER.search(rest)):
        error.retry_after = int(found[1]) / 1000
    elif isinstance(error, NoQuorum):
        error.reasons = dict(_REASON.findall(rest))
    elif isinstance(error, LockLost):
        error.reason = rest
    return error


# Requests


def lock_words(
    key: bytes, ttl_ms: int, wait_ms: int, max_hold: float | None, detached: bool
) -> tuple[bytes | int, ...]:
    """The words of a LOCK. A session lock asks for its renewals to be pushed; a detached one has none."""
    words: tuple[bytes | int, ...] = (b"LOCK", key, ttl_ms, b"DETACHED" if detached else b"NOTIFY")
    if wait_ms:
        words += (b"WAIT", wait_ms)
    if max_hold is not None:
        words += (b"MAXHOLD", to_ms(max_hold, "max_hold"))
    return words


def packed(*words: bytes | str | int) -> bytes:
    """A request as it goes over the wire."""
    return pack_command(words)


def key_of(resource: str | bytes) -> bytes:
    """A resource's name on the wire."""
    if isinstance(resource, str):
        return resource.encode("utf-8", "surrogateescape")
    if isinstance(resource, bytes):
        return resource
    raise TypeError(f"a resource is a str or bytes, not {type(resource).__name__}")


def to_ms(seconds: float, name: str) -> int:
    """Whole milliseconds, and never 0 for more than nothing. ValueError for what is no time span."""
    if not 0 <= seconds < 1e12:
        raise ValueError(f"{name} is a number of seconds from 0, not {seconds!r}")
    return round(seconds * 1000) or int(seconds > 0)


def as_rows(reply: list[dict[bytes, Any]]) -> list[dict[str, Any]]:
    """Maps of a reply, with text for bytes."""
    return [{_text(name): _text(value) for name, value in row.items()} for row in reply]


def _text(value: Any) -> Any:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def socket_path(given: str | os.PathLike[str] | None) -> str:
    """Where the agent listens: as given, else LOCKD_SOCKET of the environment, else its usual place."""
    return os.fspath(given) if given is not None else os.environ.get("LOCKD_SOCKET") or _DEFAULT_SOCKET


# What is known of a lease


class LeaseView:
    """A lease as its app knows it: from replies, from pushes, and from the clock.

    broken: its connection is gone, so nobody renews it. It may last until its deadline all the same: an agent that stops, or
    is killed, leaves its leases to it.
    """

    __slots__ = ("broken", "deadline_ns", "detached", "fence", "key", "loss", "resource", "token", "ttl_ms")

    def __init__(
        self, resource: str | bytes, key: bytes, ttl_ms: int, detached: bool, reply: dict[bytes, Any]
    ) -> None:
        self.resource = resource
        self.key = key
        self.ttl_ms = ttl_ms
        self.detached = detached
        self.token: bytes = reply[b"token"]
        self.fence: int = reply[b"fence"]
        self.deadline_ns: int = reply[b"deadline_ns"]
        self.broken = False
        self.loss = ""

    def hear(self, push: list[Any]) -> None:
        """A push from the agent. Those about an earlier lease of the same connection don't count."""
        kind = push[0]
        if kind == b"renewed" and push[2] == self.token:
            self.deadline_ns = max(self.deadline_ns, push[3])
        elif kind == b"lost" and push[2] == self.token:
            self.loss = _text(push[3]) or "the agent did not say why"
            self.deadline_ns = push[4]

    def extended(self, ttl_ms: int, reply: dict[bytes, Any]) -> None:
        """The answer to an EXTEND."""
        self.ttl_ms = max(self.ttl_ms, ttl_ms)
        self.deadline_ns = max(self.deadline_ns, reply[b"deadline_ns"])

    @property
    def notice_ns(self) -> int:
        """How long before its deadline a lease that wasn't renewed counts as about to be lost; the agent has the same rule."""
        return min(self.ttl_ms * _NS_PER_MS // 5, _LONGEST_NOTICE_NS)

    @property
    def alarm_ns(self) -> int:
        """When to warn on one's own. The agent's word comes a moment earlier, and knows the reason, if it can still speak."""
        return self.deadline_ns - self.notice_ns + min(self.notice_ns // 10, _HEAD_START_NS)

    def due(self, now_ns: int) -> str:
        """Why its holder has to be warned now; '' when there is no reason to."""
        if self.loss:
            return self.loss
        if self.broken:
            return "the connection to the agent broke, so nobody renews it"
        if now_ns >= self.alarm_ns:
            return "it ends soon" if self.detached else "no renewal has come in time: the agent hangs"
        return ""

    def stale(self, now_ns: int) -> bool:
        """True when the agent may well know of a later deadline: it pushes none to an app that doesn't read."""
        return not (self.loss or self.broken or self.detached) and now_ns >= self.deadline_ns - self.notice_ns

    def why_lost(self, now_ns: int) -> str:
        """Why it can't be relied upon now; '' while it can."""
        if self.loss:
            return self.loss
        if now_ns >= self.deadline_ns:
            return "its deadline has passed"
        if self.broken and now_ns >= self.deadline_ns - self.notice_ns:
            return "the connection to the agent broke, and its deadline is near"
        return ""


class PushReceiver:
    """Where a connection's pushes go: to the lease that it carries now, if any."""

    __slots__ = ("view",)

    def __init__(self) -> None:
        self.view: LeaseView | None = None

    def hear(self, push: list[Any]) -> None:
        if self.view is not None:
            self.view.hear(push)

    async def hear_async(self, push: list[Any]) -> None:
        self.hear(push)


class HeldLease:
    """What a lease shows to its app, whichever client it came from."""

    __slots__ = ("_over", "_pid", "_view")

    def __init__(self, view: LeaseView) -> None:
        self._view = view
        self._pid = os.getpid()
        self._over = False

    @property
    def resource(self) -> str | bytes:
        """The name that was locked, as it was given."""
        return self._view.resource

    @property
    def token(self) -> str:
        """Who holds: 32 hex digits, unlike those of every other lease."""
        return self._view.token.decode()

    @property
    def fence(self) -> int:
        """In which order: larger than that of every earlier lease of this resource. For what the lock protects to check."""
        return self._view.fence

    @property
    def deadline_ns(self) -> int:
        """The end of its validity on CLOCK_BOOTTIME, as last known."""
        return self._view.deadline_ns

    def _gone(self) -> str:
        """Why this object holds nothing, whatever the agent says; '' when it may."""
        if self._pid != os.getpid():
            return "it belongs to the process that this one was forked from"
        return "it was released" if self._over else ""

    def _lost(self, reason: str) -> LockLost:
        error = LockLost(f"the lease of {self._view.resource!r} is lost: {reason}")
        error.reason, error.deadline_ns = reason, self._view.deadline_ns
        return error

    def __repr__(self) -> str:
        state = self._gone() or self._view.why_lost(boottime_ns()) or "held"
        return f"<Lease of {self._view.resource!r} fence={self._view.fence}: {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lease can't be pickled: it lives in the process that holds its connection")


# Forks


class Forkable(Protocol):
    """Something with files or threads of this process, which a forked child must not use."""

    def forked(self) -> None:
        """In the child: let go of what is the parent's, and begin afresh."""


_forkables: WeakSet[Forkable] = WeakSet()


def survive_forks(forkable: Forkable) -> None:
    """Have its `forked` called in each child of this process."""
    _forkables.add(forkable)


def let_go(files: Iterable[int]) -> None:
    """Have these file numbers stand for nothing.

    A connection that a child has inherited would keep the lock when the parent dies. Closing it under the objects that own it
    could hit whatever gets the same number next, so something harmless takes its place.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in files:
        if number >= 0:
            os.dup2(nothing, number, inheritable=False)
    os.close(nothing)


def _in_child() -> None:
    for forkable in list(_forkables):
        forkable.forked()


os.register_at_fork(after_in_child=_in_child)
