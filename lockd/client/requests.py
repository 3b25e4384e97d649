"""What the clients ask the agent, and what an app gets of its answers: the words of the wire are here.

Each request comes with what makes something of its reply, so a client carries bytes and knows no more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

from hiredis import pack_command

from lockd.client.deadlines import AgentClock
from lockd.client.state import LeaseView
from lockd.clock import boottime_ns
from lockd.config.socket import DEFAULT_SOCKET

T = TypeVar("T")
Row = dict[str, Any]


class Request(NamedTuple, Generic[T]):
    """packed: as it goes over the wire. decode: what an app gets of a reply that was read just now. wait_s:
    how long the agent may take beyond its usual time."""

    packed: bytes
    decode: Callable[[Any], T]
    wait_s: float = 0.0


class LeaseOptions(TypedDict, total=False):
    """What both clients' `acquire` takes beside the resource; `on_lost`, the rest, is each one's own."""

    ttl: float
    wait: float
    max_hold: float | None
    detached: bool


def lock(
    resource: str | bytes,
    *,
    ttl: float,
    wait: float,
    max_hold: float | None,
    detached: bool,
    clock: AgentClock,
) -> Request[LeaseView]:
    """One that is not detached belongs to its connection: whatever interrupts this process, also between the
    reply and whoever wants it, to close that is to give it back. It asks for its renewals to be pushed."""
    key, ttl_ms, wait_ms = key_of(resource), to_ms(ttl, "ttl"), to_ms(wait, "wait")
    words: tuple[bytes | int, ...] = (b"LOCK", key, ttl_ms)
    words += (b"DETACHED",) if detached else (b"CONNECTION", b"NOTIFY")
    if wait_ms:
        words += (b"WAIT", wait_ms)
    if max_hold is not None:
        words += (b"MAXHOLD", to_ms(max_hold, "max_hold"))

    def granted(reply: dict[bytes, Any]) -> LeaseView:
        return LeaseView(resource, key, ttl_ms, detached, reply, clock, boottime_ns())

    return Request(_packed(*words), granted, wait)


def unlock(view: LeaseView) -> Request[None]:
    return Request(_packed(b"UNLOCK", view.key, view.token), _done)


def extend(view: LeaseView, ttl_ms: int) -> Request[None]:
    """The view knows of it once the reply is decoded."""

    def extended(reply: dict[bytes, Any]) -> None:
        view.extended(ttl_ms, reply, boottime_ns())

    return Request(_packed(b"EXTEND", view.key, view.token, ttl_ms), extended)


def holder(resource: str | bytes) -> Request[Row | None]:
    return Request(_packed(b"HOLDER", key_of(resource)), lambda reply: None if reply is None else _row(reply))


def locks(pattern: str | bytes, local: bool) -> Request[list[Row]]:
    """local: of this agent's leases only."""
    words = (b"LOCKS", key_of(pattern))
    return Request(_packed(*words, b"LOCAL") if local else _packed(*words), _rows)


def masters() -> Request[list[Row]]:
    return Request(_packed(b"MASTERS"), _rows)


def ping() -> Request[None]:
    return Request(_packed(b"PING"), _done)


def key_of(resource: str | bytes) -> bytes:
    """A resource's name on the wire."""
    if isinstance(resource, str):
        return resource.encode("utf-8", "surrogateescape")
    if isinstance(resource, bytes):
        return resource
    raise TypeError(f"a resource is a str or bytes, not {type(resource).__name__}")


def to_ms(seconds: float, name: str) -> int:
    """Whole milliseconds, at least 1 for more than nothing. ValueError for what is no span of time."""
    if not 0 <= seconds < 1e12:
        raise ValueError(f"{name} must be a number of seconds, 0 or more, not {seconds!r}")
    return round(seconds * 1000) or int(seconds > 0)


def socket_path(given: str | os.PathLike[str] | None) -> str:
    """Where the agent listens: as given, else LOCKD_SOCKET of the environment, else the usual place."""
    return os.fspath(given) if given is not None else os.environ.get("LOCKD_SOCKET") or DEFAULT_SOCKET


def _packed(*words: bytes | int) -> bytes:
    return pack_command(words)  # type: ignore[arg-type, no-any-return]  # its stub knows tuples of one only


def _done(_reply: object) -> None:
    """Its coming says it all."""


def _rows(reply: list[dict[bytes, Any]]) -> list[Row]:
    return [_row(each) for each in reply]


def _row(reply: dict[bytes, Any]) -> Row:
    """A map of a reply, with text for bytes."""
    return {_text(name): _text(value) for name, value in reply.items()}


def _text(value: Any) -> Any:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


HELLO = _packed(b"HELLO", 3)
"""What each connection begins with. redis-py reads its reply."""
