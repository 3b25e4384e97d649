"""Asking for a lease, even if that is interrupted: an agent stops or hangs, an app is interrupted. No I/O.

The next agent is asked with the same token, which makes it the same request. A request that the app does not
want any more is withdrawn by that token. Otherwise it could be granted, and renewed, for nobody.
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
"""How often to check whether an agent is there again."""
_REST_S = 1.0
_NO_REFUSAL_FOR_GOOD = (
    AgentUnreachable, ClockRefused, Draining, LimitReached, LockLost, NoQuorum, Taken, WaitTimeout,
)  # fmt: skip


def rest_after(failure: LockdError) -> float | None:
    """How many seconds to rest before standing for leader again. None: there is no use in trying."""
    if not isinstance(failure, _NO_REFUSAL_FOR_GOOD):
        return None
    if isinstance(failure, WaitTimeout):
        return 0.0
    return min(_REST_S, failure.retry_after) if isinstance(failure, Taken) else _REST_S


class Attempt:
    """One call of `acquire`. token: the request's name. resources: as on the wire. ttl and wait in seconds:
    ValueError if they are not durations. asked: an agent was asked, or is about to be."""

    def __init__(self, resources: Sequence[bytes], ttl: float, wait: float) -> None:
        self.resources = resources
        self.token = tokens.next()
        self.asked = self._in_doubt = False
        self.ttl_ms = to_ms(ttl, "ttl")
        self._until_s = time.monotonic() + to_ms(wait, "wait") / 1000

    @property
    def wait(self) -> float:
        """The rest of its wait, in seconds."""
        return max(0.0, self._until_s - time.monotonic())

    def goes_on_after(self, failure: BaseException) -> bool:
        """The agent is stopping, or has stopped, and there is time to ask the next one."""
        stopped = isinstance(failure, AgentUnreachable | Draining) and not getattr(failure, "hangs", False)
        return stopped and self.wait > LOOK_AGAIN_S

    def failed(self, failure: BaseException) -> None:
        """If one request got no answer, the attempt stays in doubt: a later refusal may be for another
        request."""
        self._in_doubt |= isinstance(failure, AgentUnreachable) or not isinstance(failure, LockdError)

    def leaves_doubt(self, failure: BaseException) -> bool:
        """Whether a lease may be granted, or was, when the call ends with this exception. An interrupt may
        come at any moment, even after the grant and before anything has the lease."""
        return self._in_doubt or (self.asked and not isinstance(failure, LockdError))

    def withdraw(self) -> None:
        """The app does not want it any more: no agent is asked again."""
        self._until_s = time.monotonic()

    @property
    def names(self) -> list[tuple[bytes, bytes]]:
        """The names by which all of it is withdrawn or given back."""
        return [(resource, self.token) for resource in self.resources]

    @property
    def lasts_until_ns(self) -> int:
        """On CLOCK_BOOTTIME: by then, everything has ended that was granted until now and is not renewed."""
        return boottime_ns() + self.ttl_ms * NS_PER_MS
