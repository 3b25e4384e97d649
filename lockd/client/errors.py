"""The failures of calls to lockd, as types that carry what callers need to go on."""

from __future__ import annotations

import re

from lockd.core.errors import ErrorWord


class LockdError(Exception):
    """Any failure of lockd's. The agent's errors without a separate class are of this one."""


class AgentUnreachable(LockdError):
    """No agent answers at the socket: it is not running, was stopped, or hangs.

    `hangs`: it took the request and did not answer in time, so the outcome of the request is not known.
    `unsent`: the connection had been good before, and was closed when the request should have been sent: not
    a byte of it has reached an agent.
    """

    hangs: bool = False
    unsent: bool = False


class Taken(LockdError):
    """Another holds it, and the call did not ask to wait. `retry_after`: seconds after which to try again."""

    retry_after: float = 0.0


class WaitTimeout(LockdError):
    """`wait` ran out while another held it."""


class NoQuorum(LockdError):
    """Too few masters have a vote or answered in time: an outage, not contention. For an extension, also: the
    lease was put back on masters by the agent that granted it, and only that agent can extend it.

    `reasons`: why, by the name of the master; empty when no single master was the cause.
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.reasons: dict[str, str] = dict(_REASON.findall(text))


class LockLost(LockdError):
    """The lease is not held any more, or can't be proven to be. `reason` says why.

    `deadline_ns`: the end of its validity on CLOCK_BOOTTIME as last known, 0 when it isn't known.
    """

    reason: str = ""
    deadline_ns: int = 0


class NotHeld(LockLost):
    """Neither the agent nor the masters know such a lease: it has ended, and another may hold the resource by
    now."""


class Denied(LockdError):
    """This user may not lock resources of that class."""


class LimitReached(LockdError):
    """A limit of the agent is reached; the text says which."""


class Draining(LockdError):
    """The agent is stopping and grants nothing any more."""


class ClockRefused(LockdError):
    """The clocks can't be trusted now, so nothing is granted."""


_RETRY_AFTER = re.compile(r"retry-after=(\d+)")
_REASON = re.compile(r"([A-Za-z0-9._-]+)=(\S+)")
_BY_WORD: dict[str, type[LockdError]] = {
    ErrorWord.TAKEN: Taken,
    ErrorWord.NOQUORUM: NoQuorum,
    ErrorWord.TIMEOUT: WaitTimeout,
    ErrorWord.NOTHELD: NotHeld,
    ErrorWord.EXPIRED: LockLost,
    ErrorWord.DENIED: Denied,
    ErrorWord.LIMIT: LimitReached,
    ErrorWord.DRAINING: Draining,
    ErrorWord.CLOCK: ClockRefused,
}


def error_from(text: str) -> LockdError:
    """The exception for an error reply of the agent's, by its first word."""
    word, _, rest = text.partition(" ")
    error = _BY_WORD.get(word, LockdError)(text)
    if isinstance(error, Taken) and (found := _RETRY_AFTER.search(rest)):
        error.retry_after = int(found[1]) / 1000
    elif isinstance(error, LockLost):
        error.reason = rest
    return error
