"""Why an app does not get what it asked for, in words."""

from lockd.core.ballots.ballot import Ballot
from lockd.core.errors import ErrorWord
from lockd.core.interfaces import Masters
from lockd.core.leases import Lease
from lockd.core.validity import NS_PER_MS
from lockd.core.values import Refusal

DRAINING = Refusal(
    ErrorWord.DRAINING, "this agent is stopping and grants nothing any more: lock again when it is back"
)
SPLIT = Refusal(ErrorWord.TIMEOUT, "several try for it at the same moment, and none of them got it")
RESERVED = Refusal(ErrorWord.TIMEOUT, "it is another host's turn, for a moment")
SHIFTED = Refusal(ErrorWord.NOQUORUM, "the masters that vote changed while they were asked")
UNCERTAIN = Refusal(
    ErrorWord.CLOCK, "the masters' clocks seem to have jumped, or this host stood still: ask again"
)
TRIED_AGAIN = (SPLIT, RESERVED, SHIFTED, UNCERTAIN)
"""What says of nobody that he holds it, nor of any master that it is missing: it is tried again, also for
those that don't wait, for as long as one try may take."""
BEHIND_OTHERS = (
    "behind others of its connection, which are not answered yet, or their replies not read: a WAIT wants a "
    "connection of its own"
)
BROKEN = Refusal(ErrorWord.ERR, "the agent failed at this; its log says how")
WITHDRAWN = Refusal(ErrorWord.NOTHELD, "it was withdrawn: its token was unlocked before it was granted")
UNLOCKED_BEFORE = Refusal(
    ErrorWord.NOTHELD, "its token was unlocked before: each request wants a token of its own"
)
ANOTHERS = Refusal(
    ErrorWord.ERR,
    "that token is of another process's request, or of a lease that belongs to a connection: each request "
    "wants one that nobody else has",
)
UNPROVEN = Refusal(
    ErrorWord.NOQUORUM, "the agent before this one held it, and that is not proven yet: ask again"
)
UNREAD = "its agent ended before the reply of its LOCK was known to be read, and nobody has named it since"
HELD_OUT = Refusal(
    ErrorWord.EXPIRED, "it was held for max_hold, or is a session lock: its own agent extends it"
)
"""To whoever asks through another agent. It is held all the same."""
NOT_HELD = Refusal(ErrorWord.NOTHELD, "no such lease: it ended, or the token is another's")


def no_quorum(ballot: Ballot, masters: Masters, total: int) -> Refusal:
    """A refusal that gives a reason for each master that had no say."""
    reasons = []
    voting = masters.voting()
    for master in range(total):
        if master in ballot.silent:
            reasons.append(f"{masters.name(master)}={ballot.silent[master].replace(' ', '-')}")
        elif not (ballot.asked & voting) >> master & 1:
            reasons.append(masters.why_not(master))
    return Refusal(ErrorWord.NOQUORUM, " ".join(reasons) or "the answers came too late to be relied upon")


def held_here(lease: Lease, now_ns: int) -> Refusal:
    """It is held, on this host."""
    left_ms = max(1, -(-(lease.deadline_ns - now_ns) // NS_PER_MS))
    return Refusal(ErrorWord.TAKEN, f"retry-after={left_ms} held by another on this host", left_ms)


def expired(lease: Lease) -> Refusal:
    """It was held."""
    return Refusal(ErrorWord.EXPIRED, lease.loss or "its validity has ended")
