"""What core is given and what it gives: plain values, and what they are asked for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from lockd.core.errors import ErrorWord


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something was not done: the word that the error of an app begins with, and the rest of it."""

    code: ErrorWord
    text: str
    retry_after_ms: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.code} {self.text}"


@dataclass(frozen=True, slots=True)
class Extended:
    """What an extension came to. `fence` and `bound` are None when another agent granted the lease."""

    token: bytes
    fence: int | None
    deadline_ns: int
    bound: "Bound | None"


class Reply(Protocol):
    """Where the answer to an UNLOCK or EXTEND goes."""

    def done(self, lease: Extended | None) -> None: ...

    def refused(self, refusal: Refusal) -> None: ...


class Terms(Protocol):
    """What the masters are told of a lease, besides its name and for how long it is: for how long it may be
    held, whose it is, and the token that its app chose for it; b'': none, it gets the nonce of the try for
    one."""

    max_hold_ms: int
    detached: bool
    owner: bytes
    value: bytes


class Bound(StrEnum):
    """What a lease lives with (rule 13): the process that took it, its connection, or nothing but its TTL."""

    PROCESS = "process"
    CONNECTION = "connection"
    TTL = "ttl"

    # That of enums is Python, and each reply asks for one.
    __hash__ = str.__hash__


def quorum_of(masters: int) -> int:
    """The least number of which any two sets share a master."""
    return masters // 2 + 1


@dataclass(frozen=True, slots=True)
class RedlockParameters:
    """The numbers core works with. All in ms.

    backoff: between tries. turn_tried: the same of who waits for another host, and is told when that is done.
    turn: for so long a host hands on once another waits. recall: for so long who doesn't wait is not refused
    what another host has, until that says whether it is in use.
    """

    masters: int
    min_validity_ms: int = 10
    master_timeout_ms: int = 250
    backoff_first_ms: int = 4
    backoff_most_ms: int = 100
    turn_tried_first_ms: int = 100
    turn_tried_most_ms: int = 1_000
    turn_ms: int = 10
    recall_ms: int = 50

    @property
    def quorum(self) -> int:
        return quorum_of(self.masters)


@dataclass(frozen=True, slots=True)
class Chance:
    """Randomness, from outside: `nonce` gives 128 fresh bits as 32 hex digits, `jitter` a float in [0, 1)."""

    nonce: Callable[[], bytes]
    jitter: Callable[[], float] = field(default=lambda: 0.5)
