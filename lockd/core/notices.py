"""Notices: what a master says without being asked, on the link that an agent has to it. A notice says that
another host waits for a resource held here, that this host's turn has come, or that a tenure was taken away
or given back through another agent.

A notice may be lost, late, repeated or wrong. No safety rests on any: all that one can cause is a try, a
proof or a return that might have come a moment later anyway.
"""

from dataclasses import dataclass
from enum import Enum

MOST_BYTES = 4096
"""The longest notice. Names of resources are shorter."""
LONGEST_GRACE_MS = 250
"""For how long, at most, a resource is reserved for the host whose turn it is."""


class Kind(Enum):
    RECALL = b"recall"
    """Another host waits for the tenure of that nonce."""
    GONE = b"gone"
    """The tenure of that nonce was taken away here by force."""
    RELEASED = b"released"
    """The lease of that nonce was given back on this master through another agent, by its token or value."""
    TURN = b"turn"
    """It is the turn of that agent, now or in `wait_ms`."""
    HELD = b"held"
    """The resource was granted to another agent, and that agent is next."""
    ASK = b"ask"
    """An agent that doesn't wait asks for the tenure of that nonce, in case it is only kept."""
    FREED = b"freed"
    """The resource that this agent asked for was given back."""
    USED = b"used"
    """The resource that this agent asked for is in use."""


@dataclass(frozen=True, slots=True)
class Notice:
    """word: a nonce, or the name under which an agent waits. asker: host and agent that want an answer."""

    kind: Kind
    word: bytes
    resource: bytes
    wait_ms: int = 0
    asker: bytes = b""


def channel_of(host: bytes) -> bytes:
    """The channel for that host's agents."""
    return b"lockd:host:" + host


def read(payload: object) -> Notice | None:
    """None if this is not one of our notices."""
    if payload.__class__ is not bytes or len(payload) > MOST_BYTES:
        return None
    word, _, rest = payload.partition(b" ")
    try:
        kind = Kind(word)
    except ValueError:
        return None
    name, _, rest = rest.partition(b" ")
    if kind is Kind.ASK:
        host, _, rest = rest.partition(b" ")
        agent, there, resource = rest.partition(b" ")
        if not (host and agent and there):
            return None
        return Notice(kind, name, resource, asker=b"%b %b" % (host, agent))
    if kind is not Kind.TURN:
        return Notice(kind, name, rest) if name and rest else None
    wait, there, resource = rest.partition(b" ")
    if not (there and wait.isdigit() and len(wait) <= 3 and int(wait) <= LONGEST_GRACE_MS):
        return None
    return Notice(kind, name, resource, int(wait))
