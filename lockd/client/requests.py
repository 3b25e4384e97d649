"""What the clients ask the agent, and what an app gets from its answers: the words of the wire are here.

Each request comes with a function that decodes its reply, so a client only carries bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

from hiredis import pack_command

from lockd.client.deadlines import AgentClock
from lockd.client.state import LeaseView, LeaseViews, View, names_of
from lockd.clock import boottime_ns
from lockd.config.socket import DEFAULT_SOCKET

T = TypeVar("T")
Resource = str | bytes
Resources = Sequence[Resource]
Row = dict[str, Any]


class Request(NamedTuple, Generic[T]):
    """packed: as it goes over the wire. decode: turns a reply that was read just now into what an app gets.
    wait_s: how long the agent may take beyond its usual time. replies: how many commands it is; if more than
    one, decode gets a list of the replies."""

    packed: bytes
    decode: Callable[[Any], T]
    wait_s: float = 0.0
    replies: int = 1


class LeaseOptions(TypedDict, total=False):
    """The options of both clients' `acquire`, apart from the resource; `on_lost`, the last one, differs
    between them."""

    ttl: float
    wait: float
    max_hold: float | None
    detached: bool
    slots: int | None


def lock(
    resource: Resource | Resources,
    keys: Sequence[bytes],
    *,
    ttl_ms: int,
    wait: float,
    max_hold: float | None,
    detached: bool,
    slots: int | None,
    clock: AgentClock,
    token: bytes,
) -> Request[View]:
    """A session lock asks for pushes about its renewals; a detached one has none. keys: of the resource.
    token: the name of the request, also for an agent that is asked again."""
    wait_ms = to_ms(wait, "wait")
    if detached and len(keys) > 1:
        raise ValueError("detached is only for one resource: several are held and renewed for their process")
    if slots is not None and (slots < 1 or len(keys) > 1):
        raise ValueError("slots must be 1 or more, for one resource")
    kind = b"DETACHED" if detached else b"NOTIFY"
    words: tuple[bytes | int, ...] = (b"LOCK", keys[0], ttl_ms, kind, b"TOKEN", token)
    if wait_ms:
        words += (b"WAIT", wait_ms)
    if max_hold is not None:
        words += (b"MAXHOLD", to_ms(max_hold, "max_hold"))
    if slots is not None:
        words += (b"SLOTS", slots)
    if len(keys) > 1:
        words += (b"AND", *keys[1:])

    def view_of(one: Resource, reply: dict[bytes, Any]) -> LeaseView:
        return LeaseView(one, key_of(one), ttl_ms, detached, reply, clock, boottime_ns())

    def granted(reply: Any) -> View:
        if isinstance(resource, str | bytes):
            return view_of(resource, reply)
        replies = reply if len(keys) > 1 else [reply]
        return LeaseViews(resource, tuple(map(view_of, resource, replies)))

    return Request(_packed(*words), granted, wait)


def unlock(*names: tuple[bytes, bytes]) -> Request[None]:
    """names: pairs of resource and token. It also withdraws requests with these tokens, so that they are not
    granted any more."""
    packed = b"".join([_packed(b"UNLOCK", *name) for name in names])
    return Request(packed, _done, replies=len(names))


def extend(view: View, ttl_ms: int) -> Request[None]:
    """The view gets the new deadline once the reply is decoded. For a session lock, the connection gets its
    news from then on."""

    def extended(reply: Any) -> None:
        now_ns = boottime_ns()
        for part, its in zip(view.parts, reply if len(view.parts) > 1 else [reply], strict=True):
            part.extended(ttl_ms, its, now_ns)

    notify = () if view.detached else (b"NOTIFY",)
    words = [(b"EXTEND", *name, ttl_ms, *notify) for name in names_of(view)]
    return Request(b"".join(_packed(*each) for each in words), extended, replies=len(words))


def holder(resource: str | bytes) -> Request[Row | None]:
    return Request(_packed(b"HOLDER", key_of(resource)), lambda reply: None if reply is None else _row(reply))


def locks(pattern: str | bytes, local: bool) -> Request[list[Row]]:
    """local: only this agent's leases."""
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


def named_once(resource: Resource | Iterable[Resource]) -> Resource | Resources:
    """The same names whenever they are read: who asks may have given a generator, or change its list
    meanwhile."""
    return resource if isinstance(resource, str | bytes) else list(resource)


def keys_of(resource: Resource | Resources) -> list[bytes]:
    """The same for several. ValueError if there are none."""
    names = [resource] if isinstance(resource, str | bytes) else resource
    if not names:
        raise ValueError("no resource is named")
    return [key_of(name) for name in names]


def to_ms(seconds: float, name: str) -> int:
    """Whole milliseconds, at least 1 for more than nothing. ValueError if it is not a duration."""
    if not 0 <= seconds < 1e12:
        raise ValueError(f"{name} must be a number of seconds, 0 or more, not {seconds!r}")
    return round(seconds * 1000) or int(seconds > 0)


def socket_path(given: str | os.PathLike[str] | None) -> str:
    """Where the agent listens: as given, else LOCKD_SOCKET of the environment, else the usual place."""
    return os.fspath(given) if given is not None else os.environ.get("LOCKD_SOCKET") or DEFAULT_SOCKET


def _packed(*words: bytes | int) -> bytes:
    return pack_command(words)  # type: ignore[arg-type, no-any-return]  # its stub knows tuples of one only


def _done(_reply: object) -> None:
    """For replies without content."""


def _rows(reply: list[dict[bytes, Any]]) -> list[Row]:
    return [_row(each) for each in reply]


def _row(reply: dict[bytes, Any]) -> Row:
    """A map of a reply, decoded to text."""
    return {_text(name): _text(value) for name, value in reply.items()}


def _text(value: Any) -> Any:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


HELLO = _packed(b"HELLO", 3)
"""What each connection begins with. redis-py reads its reply."""
