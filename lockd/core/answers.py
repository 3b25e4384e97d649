"""What a sane answer of a master is. A master may say anything: it may have a bug, be the wrong Redis, have
failing memory, or be under an attacker's control. What it says is checked before it counts.

This keeps nonsense away from what the other masters say. It can't find a lie: a master that votes for two
holders is as bad as one that lost its data, and Redlock does not survive that in addition to other failures.
"""

import re
from enum import StrEnum
from typing import Any

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.ballot import (
    ASKED,
    ELSEWHERE,
    HELD_OUT,
    MISCOUNTS,
    MISSING,
    NO_IDENTITY,
    NO_LEASE,
    OTHERS,
    PUT_BACK,
    RESERVED,
    TOO_FAR_AHEAD,
    TTL_TOO_LONG,
    YES,
    Ballot,
)
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.ballots.put_back import PutBack
from lockd.core.fences import COUNTER_AHEAD_US, SANE_MOST
from lockd.core.identities import LONGEST_TTL_MS
from lockd.core.notices import LONGEST_GRACE_MS


class Nonsense(Exception):
    """An answer that does not fit the question."""


_LINE_CHARS = 200


def one_line(text: str) -> str:
    """What a master said, fit for a log and for an app: one line, and short."""
    line = "".join(char if char.isprintable() else "?" for char in text[:_LINE_CHARS])
    return f"{line}…" if len(text) > _LINE_CHARS else line


# From a script, Redis 6.2 puts it behind "ERR Error running script (…): …: -". What a user may not run, and
# what nobody may, is said without such a word there.
_REFUSES_ALL = re.compile(
    r"(?:ERR Error running script .*: -)?"
    r"(OOM|MISCONF|READONLY|NOREPLICAS|NOPERM|NOAUTH|LOADING|BUSY|MASTERDOWN|CLUSTERDOWN)\b"
    r"|ERR .*(?:(ACL failure in script|user executing the script can't run)|[Uu]nknown (?:Redis )?command)"
)


def refuses_all(error: str) -> str:
    """In a word, why a master that answers with this error refuses the same to everybody; '': the error may
    be about one key, which anything may be written to."""
    found = _REFUSES_ALL.match(error)
    if found is None:
        return ""
    return found[1] or ("NOPERM" if found[2] else "unknown command")


class Flaw(StrEnum):
    """What is wrong with an answer."""

    NONSENSE = "nonsense"
    """Not an answer that our scripts give: what speaks there is not one of our masters."""
    MISCOUNTS = "miscounting"
    """A fence that no counter can have reached: the master has no vote until that is fixed (rule 6)."""


NONCE_CHARS = 32
"""128 bits, as hex digits."""
_FENCE = range(1, SANE_MOST + 1)
_TTL_MS = range(LONGEST_TTL_MS + 1)
_GRACE_MS = range(LONGEST_GRACE_MS + 1)
_ZERO = range(1)
_UNUSED = range(-(1 << 63), 1 << 63)
"""Nothing rests on the value: it may be odd without anything being wrong, after a clock was set back."""

_BOUNDS: dict[type[Ballot], dict[int, range]] = {
    Attempt: {
        YES: _FENCE, OTHERS: _TTL_MS, ASKED: _TTL_MS, RESERVED: _GRACE_MS,
        NO_IDENTITY: _ZERO, TTL_TOO_LONG: _UNUSED, MISCOUNTS: _UNUSED, NO_LEASE: _ZERO,
    },
    FenceRound: {
        YES: _FENCE, OTHERS: _FENCE, MISSING: _ZERO,
        NO_IDENTITY: _ZERO, MISCOUNTS: _UNUSED, TOO_FAR_AHEAD: _ZERO,
    },
    Extension: {
        YES: _TTL_MS, ELSEWHERE: _TTL_MS, PUT_BACK: _TTL_MS, OTHERS: _UNUSED, MISSING: _ZERO, HELD_OUT: _ZERO,
        NO_IDENTITY: _ZERO, TTL_TOO_LONG: _UNUSED,
    },
    PutBack: {
        YES: _UNUSED, PUT_BACK: _TTL_MS, OTHERS: _UNUSED, NO_IDENTITY: _ZERO, TTL_TOO_LONG: _UNUSED,
    },
}  # fmt: skip
"""By status, the values that may come with it (lockd/masters/scripts/*.lua say what it is)."""


def flaw_of(ballot: Ballot, reply: Any, most: int) -> Flaw | None:
    """What is wrong with a master's reply to a vote; None when nothing is wrong. A sane reply is a list of
    status, value and the master's time in microseconds. A refused try adds the nonce of the lease that the
    master has. most: the largest fence that the median of the masters' clocks allows."""
    if reply.__class__ is not list:
        return Flaw.NONSENSE
    words = len(reply)
    if words == 3:
        status, value, master_us = reply
    elif words == 4:
        status, value, master_us, _ = reply
    else:
        return Flaw.NONSENSE
    # By class: True is an int to isinstance.
    if not (status.__class__ is value.__class__ is master_us.__class__ is int and 0 < master_us < SANE_MOST):
        return Flaw.NONSENSE
    kind = ballot.__class__
    bounds = _BOUNDS[kind].get(status)
    if bounds is None:
        return Flaw.NONSENSE
    if status in (OTHERS, ASKED) and kind is Attempt:
        if words != 4 or not _begins_a_lease(reply[3]):
            return Flaw.NONSENSE
    elif words != 3:
        return Flaw.NONSENSE
    if bounds is _FENCE:
        sane = 0 < value <= most and value <= master_us + COUNTER_AHEAD_US
        return None if sane else Flaw.MISCOUNTS
    if value not in bounds:
        return Flaw.NONSENSE
    return Flaw.MISCOUNTS if status == MISCOUNTS else None


def _begins_a_lease(word: object) -> bool:
    """Its nonce. It is shorter where someone has written anything else under a lease's name: that is in the
    way of that one resource, and no fault of the master."""
    return word.__class__ is bytes and len(word) <= NONCE_CHARS


def is_of_release(reply: object) -> bool:
    """Whether this can be the answer to a release: 1 when it deleted the lease, 0 when there was none."""
    return reply.__class__ is int and 0 <= reply <= 1
