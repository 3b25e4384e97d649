"""Asking for a lease, also where that is broken off: an agent stops or hangs, an app is interrupted. No I/O.

The next agent is asked again by the same token, which makes it the same request; and what nobody wants any
more is withdrawn by that token. Else it could be granted, and renewed, for nobody.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from lockd.client.errors import (
    AgentUnreachable,
    ClockRefused,
    Draining,
    LimitReached,
    LockdError,
    LockLost,
    NoQuorum,
    Taken,
    WaitTimeout,
)
from lockd.client.requests import to_ms
from lockd.client.tokens import tokens
from lockd.clock import boottime_ns
from lockd.core.validity import NS_PER_MS

LOOK_AGAIN_S = 0.1
"""How often it is looked whether an agent is there again."""
_REST_S = 1.0
_NO_REFUSAL_FOR_GOOD = (
    AgentUnreachable, ClockRefused, Draining, LimitReached, LockLost, NoQuorum, Taken, WaitTimeout,
)  # fmt: skip


def rest_after(failure: LockdError) -> float | None:
    """Who stands for leader: how many seconds to rest before the next try. None: there is no use in one."""
    if not isinstance(failure, _NO_REFUSAL_FOR_GOOD):
        return None
    if isinstance(failure, WaitTimeout):
        return 0.0
    return min(_REST_S, failure.retry_after) if isinstance(failure, Taken) else _REST_S


class Attempt:
    """One call of `acquire`. token: what it is known by. resources: as on the wire. ttl and wait in seconds:
    ValueError for what is no span of time. asked: an agent was, or is about to be."""

    def __init__(self, resources: Sequence[bytes], ttl: float, wait: float) -> None:
        self.resources = resources
        self.token = tokens.next()
        self.asked = self._in_doubt = False
        self.ttl_ms = to_ms(ttl, "ttl")
        self._until_s = time.monotonic() + to_ms(wait, "wait") / 1000

    @property
    def wait(self) -> float:
        """What is left of its wait, in seconds."""
        return max(0.0, self._until_s - time.monotonic())

    def goes_on_after(self, failure: BaseException) -> bool:
        """The agent stops, or has, and there is time to ask the next one."""
        stopped = isinstance(failure, AgentUnreachable | Draining) and not getattr(failure, "hangs", False)
        return stopped and self.wait > LOOK_AGAIN_S

    def failed(self, failure: BaseException) -> None:
        """In doubt for good once nobody has said that it was refused: a later refusal may be another's."""
        self._in_doubt |= isinstance(failure, AgentUnreachable) or not isinstance(failure, LockdError)

    def leaves_doubt(self, failure: BaseException) -> bool:
        """Whether it may be granted, or was, when the call ends so. An interrupt may come at any moment: also
        when it was granted, and nobody has the lease yet."""
        return self._in_doubt or (self.asked and not isinstance(failure, LockdError))

    def withdraw(self) -> None:
        """Nobody wants it any more: no agent is asked again."""
        self._until_s = time.monotonic()

    @property
    def names(self) -> list[tuple[bytes, bytes]]:
        """By which all of it is withdrawn or given back."""
        return [(resource, self.token) for resource in self.resources]

    @property
    def lasts_until_ns(self) -> int:
        """On CLOCK_BOOTTIME: what was granted until now, and is renewed by nobody, has ended then."""
        return boottime_ns() + self.ttl_ms * NS_PER_MS
