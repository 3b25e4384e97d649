"""Plain values that go into core and come out of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from lockd.core.errors import ErrorWord


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something was not done: the word that the app's error begins with, and the rest of the text."""

    code: ErrorWord
    text: str
    retry_after_ms: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.code} {self.text}"


@dataclass(frozen=True, slots=True)
class Extended:
    """The result of an extension. `fence` and `bound` are None when another agent granted the lease.
    is_elsewhere: as `Extension` has it."""

    token: bytes
    fence: int | None
    deadline_ns: int
    bound: "Bound | None"
    is_elsewhere: bool = False


class Reply(Protocol):
    """Receives the answer to an UNLOCK or EXTEND."""

    def done(self, lease: Extended | None) -> None: ...

    def refused(self, refusal: Refusal) -> None: ...


class Terms(Protocol):
    """What the masters are told of a lease in addition to its name and its TTL: for how long it may be held,
    whose it is, and the token that its app chose; b'': the app chose none, and the nonce of the try becomes
    its token. keep_ms: for how long its agent may keep it without a lease. account: who pays for it here, and
    is served in turn (core/turns.py)."""

    max_hold_ms: int
    keep_ms: int
    detached: bool
    owner: bytes
    account: str
    value: bytes


class Bound(StrEnum):
    """What a lease lives with (rule 13): the process that took it, its connection, or nothing but its TTL."""

    PROCESS = "process"
    CONNECTION = "connection"
    TTL = "ttl"

    # Hashing an enum's member is Python code, and each reply needs it.
    __hash__ = str.__hash__


def quorum_of(masters: int) -> int:
    """The least number of which any two sets share a master."""
    return masters // 2 + 1


@dataclass(frozen=True, slots=True)
class RedlockParameters:
    """The numbers core works with. All in ms.

    backoff: between tries. turn_tried: the same while waiting for another host, which tells when it is done.
    turn: for how long a host hands on once another waits. recall: for how long a request without WAIT is not
    refused what another host has, until that host says whether it is in use.
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
