"""The requests of lockd's clients, and the bits of their replies that are no lease."""

from __future__ import annotations

import os
from typing import Any, TypedDict

from hiredis import pack_command

_DEFAULT_SOCKET = "/run/lockd/lockd.sock"


class LeaseOptions(TypedDict, total=False):
    """What both clients' `acquire` takes beside the resource; `on_lost`, the rest, is each one's own."""

    ttl: float
    wait: float
    max_hold: float | None
    detached: bool


def packed(*words: bytes | int) -> bytes:
    """A request as it goes over the wire."""
    return pack_command(words)  # type: ignore[arg-type, no-any-return]  # its stub knows tuples of one only


def lock_request(key: bytes, ttl_ms: int, wait_ms: int, max_hold: float | None, detached: bool) -> bytes:
    """A LOCK. A session lock asks for its renewals to be pushed; a detached one has none."""
    words: tuple[bytes | int, ...] = (b"LOCK", key, ttl_ms, b"DETACHED" if detached else b"NOTIFY")
    if wait_ms:
        words += (b"WAIT", wait_ms)
    if max_hold is not None:
        words += (b"MAXHOLD", to_ms(max_hold, "max_hold"))
    return packed(*words)


def locks_request(pattern: str | bytes, local: bool) -> bytes:
    """A LOCKS: of this agent's leases only with `local`."""
    words = (b"LOCKS", key_of(pattern))
    return packed(*words, b"LOCAL") if local else packed(*words)


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


def as_row(reply: dict[bytes, Any]) -> dict[str, Any]:
    """A map of a reply, with text for bytes."""
    return {_text(name): _text(value) for name, value in reply.items()}


def _text(value: Any) -> Any:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def socket_path(given: str | os.PathLike[str] | None) -> str:
    """Where the agent listens: as given, else LOCKD_SOCKET of the environment, else the usual place."""
    return os.fspath(given) if given is not None else os.environ.get("LOCKD_SOCKET") or _DEFAULT_SOCKET
