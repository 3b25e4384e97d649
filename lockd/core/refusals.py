"""Why an app does not get what it asked for, in words."""

from lockd.core.ballots.ballot import Ballot, bits
from lockd.core.ballots.release import Release
from lockd.core.errors import ErrorWord
from lockd.core.interfaces import Masters
from lockd.core.leases import Holder, Lease
from lockd.core.validity import NS_PER_MS
from lockd.core.values import Refusal

DRAINING = Refusal(
    ErrorWord.DRAINING, "this agent is stopping and grants no more locks: try again when it is back"
)
SPLIT = Refusal(ErrorWord.TIMEOUT, "several tried at the same moment, and none got it")
RESERVED = Refusal(ErrorWord.TIMEOUT, "it is another host's turn for a moment")
SHIFTED = Refusal(ErrorWord.NOQUORUM, "the set of voting masters changed during the request")
UNCERTAIN = Refusal(
    ErrorWord.CLOCK, "the masters' clocks seem to have jumped, or this host was paused: try again"
)
TRIED_AGAIN = (SPLIT, RESERVED, SHIFTED, UNCERTAIN)
"""These do not say that another holds it or that a master is missing. So it is tried again, even for requests
that don't wait, for as long as one try may take."""
BEHIND_OTHERS = (
    "behind earlier commands of its connection, which have no reply yet, or whose replies were not read: "
    "use a separate connection for each WAIT"
)
BEHIND_ITS_NAME = Refusal(ErrorWord.TIMEOUT, "another request with its token was still trying the slots")
BROKEN = Refusal(ErrorWord.ERR, "internal error of the agent: see its log")
WITHDRAWN = Refusal(ErrorWord.NOTHELD, "withdrawn: its token was unlocked before the grant")
UNLOCKED_BEFORE = Refusal(
    ErrorWord.NOTHELD, "its token was already unlocked: use a new token for each request"
)
ANOTHERS = Refusal(
    ErrorWord.ERR,
    "that token belongs to a request of another process, or to a lease that is bound to a connection: use "
    "a new token for each request",
)
WITH_SLOTS = Refusal(
    ErrorWord.ERR, "that token belongs to a request with SLOTS: use a new token for each request"
)
OTHER_SLOTS = Refusal(
    ErrorWord.ERR,
    "that token belongs to a request with another number of SLOTS: use a new token for each request",
)
WITHOUT_SLOTS = Refusal(
    ErrorWord.ERR, "that token belongs to a request without SLOTS: use a new token for each request"
)
UNPROVEN = Refusal(
    ErrorWord.NOQUORUM, "the previous agent held it, and this agent has not confirmed it yet: try again"
)
UNREAD = "its agent ended before the app had read the reply to LOCK, and no command has named the lease since"
HELD_OUT = Refusal(ErrorWord.EXPIRED, "it was held for max_hold, or its own agent renews it")
"""For an app that asks through another agent. The lease is held all the same."""
NOT_HELD = Refusal(ErrorWord.NOTHELD, "no such lease: it ended, or the token is wrong")


def no_quorum(ballot: Ballot, masters: Masters, total: int) -> Refusal:
    """A refusal that gives a reason for each master that had no say."""
    reasons = []
    voting = masters.voting()
    for master in range(total):
        if master in ballot.silent:
            reasons.append(_silent(ballot, master, masters))
        elif not (ballot.asked & voting) >> master & 1:
            reasons.append(masters.why_not(master))
    return Refusal(ErrorWord.NOQUORUM, " ".join(reasons) or "the answers came too late")


def refused_by(release: Release, masters: Masters) -> Refusal:
    """So many masters answered a release with an error that its resource is not free."""
    reasons = " ".join(_silent(release, master, masters) for master in bits(release.erring))
    return Refusal(
        ErrorWord.NOQUORUM, f"{reasons}: it ends at its TTL at the latest, and its agent asks them until then"
    )


def _silent(ballot: Ballot, master: int, masters: Masters) -> str:
    return f"{masters.name(master)}={ballot.silent[master].replace(' ', '-')}"


def waited_ms(holder: Holder, now_ns: int) -> int:
    return (now_ns - holder.asked_ns) // NS_PER_MS


def waited_in_line(holder: Holder, now_ns: int) -> Refusal:
    """Its wait has ended before the masters could be asked for it."""
    text = f"waited {waited_ms(holder, now_ns)} ms behind what apps of this host asked the masters before"
    return Refusal(ErrorWord.TIMEOUT, text)


def waited_for_holder(holder: Holder, now_ns: int) -> Refusal:
    return Refusal(ErrorWord.TIMEOUT, f"waited {waited_ms(holder, now_ns)} ms, it is still held by another")


def waited(holder: Holder, refusal: Refusal, now_ns: int) -> Refusal:
    """For a request that has waited, when a try would be refused so."""
    if refusal.code is ErrorWord.TAKEN:
        return waited_for_holder(holder, now_ns)
    if refusal in TRIED_AGAIN:
        return Refusal(refusal.code, f"waited {waited_ms(holder, now_ns)} ms, {refusal.text}")
    return refusal


def held_here(lease: Lease, now_ns: int) -> Refusal:
    """It is held, on this host."""
    left_ms = max(1, -(-(lease.deadline_ns - now_ns) // NS_PER_MS))
    return Refusal(ErrorWord.TAKEN, f"retry-after={left_ms} held by another on this host", left_ms)


def expired(lease: Lease) -> Refusal:
    """It was held."""
    return Refusal(ErrorWord.EXPIRED, lease.loss or "its validity has ended")
