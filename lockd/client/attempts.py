"""Asking for a lease, also where an agent does not see it to its end: it stops, hangs, or the app is interrupted.
No I/O.

The next agent is asked again by the same token, which makes it the same request; and what nobody wants any more
is withdrawn by that token. Else it could be granted, and renewed, for nobody.
"""

from __future__ import annotations

import secrets
import time

from lockd.client.errors import AgentUnreachable, Draining, LockdError
from lockd.clock import boottime_ns
from lockd.core.validity import NS_PER_S

LOOK_AGAIN_S = 0.1
"""How often it is looked whether an agent is there again."""


class Attempt:
    """One call of `acquire`. token: what it is known by. resource: as on the wire."""

    def __init__(self, resource: bytes, ttl: float, wait: float) -> None:
        self.resource = resource
        self.token = secrets.token_hex(16).encode()
        self._ttl = ttl
        self._until_s = time.monotonic() + wait

    @property
    def wait(self) -> float:
        """What is left of its wait, in seconds."""
        return max(0.0, self._until_s - time.monotonic())

    def goes_on_after(self, failure: BaseException) -> bool:
        """The agent stops, or has, and there is time to ask the next one."""
        stopped = isinstance(failure, AgentUnreachable | Draining) and not getattr(failure, "hangs", False)
        return stopped and self.wait > LOOK_AGAIN_S

    def may_be_granted_after(self, failure: BaseException) -> bool:
        """Nobody has said that it was refused."""
        return isinstance(failure, AgentUnreachable) or not isinstance(failure, LockdError)

    @property
    def lasts_until_ns(self) -> int:
        """On CLOCK_BOOTTIME: what was granted until now, and is renewed by nobody, has ended then."""
        return boottime_ns() + int(self._ttl * NS_PER_S)
