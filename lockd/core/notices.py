"""What a master says unasked, on the link that an agent has to it: that somebody waits for what it holds,
that its turn has come, or that a tenure was taken away or given back through another agent.

A notice may be lost, late, said twice or wrong. No safety rests on any: what one brings about is a try, a
proof or a return that might have come a moment later by itself.
"""

from dataclasses import dataclass
from enum import Enum

MOST_BYTES = 4096
"""Of a notice. Names of resources are shorter."""
LONGEST_GRACE_MS = 250
"""So long a resource is reserved at most for the host whose turn it is."""


class Kind(Enum):
    RECALL = b"recall"
    """Another host waits for the tenure of that nonce."""
    GONE = b"gone"
    """The tenure of that nonce was taken away here by force."""
    RELEASED = b"released"
    """The lease of that nonce was given back here through another agent, by its value."""
    TURN = b"turn"
    """It is the turn of that agent, now or once `wait_ms` are over."""
    HELD = b"held"
    """It has been granted to another, and that agent is next."""
    ASK = b"ask"
    """An agent that doesn't wait asks for the tenure of that nonce, in case nobody has it."""
    FREED = b"freed"
    """What that agent asked for was given back."""
    USED = b"used"
    """What that agent asked for is in use."""


@dataclass(frozen=True, slots=True)
class Notice:
    """word: a nonce, or the name that an agent waits under. asker: host and agent that want an answer."""

    kind: Kind
    word: bytes
    resource: bytes
    wait_ms: int = 0
    asker: bytes = b""


def channel_of(host: bytes) -> bytes:
    """Where the agents of that host are told."""
    return b"lockd:host:" + host


def read(payload: object) -> Notice | None:
    """None for what is no notice of ours."""
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
