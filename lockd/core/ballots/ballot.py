"""What all ballots have.

A ballot is asked of some masters (`asked`, as bits), hears from each at most once, and settles as soon as its
outcome is certain. Answers that come later still count (rule 2): they say where a lease really is.
"""

from collections.abc import Callable
from enum import Enum

from lockd.core.values import Extended, Refusal, Reply

# Statuses of the scripts (lockd/masters/scripts/*.lua).
OTHERS, YES, PUT_BACK, MISSING, HELD_OUT, RESERVED = 0, 1, 2, 3, 4, 5
NO_IDENTITY, TTL_TOO_LONG, MISCOUNTS, TOO_FAR_AHEAD = -1, -2, -3, -4

REFUSALS = {
    NO_IDENTITY: "no identity",
    TTL_TOO_LONG: "ttl above its ceiling",
    MISCOUNTS: "fence counter is wrong",
    TOO_FAR_AHEAD: "fence far ahead of its clock",
}


class Ended(Enum):
    """What any ballot may come to."""

    DONE = "done"
    """There was nothing to decide: all have answered."""
    ABANDONED = "abandoned"
    """Nobody wants what it may still bring."""
    BROKEN = "broken"
    """It failed by a mistake of ours."""


class Ballot:
    """The part that all have: who was asked, who is still to answer, and why the others didn't.

    t1_ns was read before the first byte was sent. until_ns: no longer worth sending after this (to a master
    that was away). gained_ns: what the masters' clocks had gained then (rule 11d). outcome: what it came to;
    None as long as it is open.
    """

    __slots__ = (
        "asked",
        "gained_ns",
        "outcome",
        "pending",
        "reply",
        "settled",
        "silent",
        "t1_ns",
        "until_ns",
    )

    def __init__(
        self, t1_ns: int, until_ns: int, settled: Callable[..., None], reply: Reply | None = None
    ) -> None:
        self.t1_ns = t1_ns
        self.until_ns = until_ns
        self.settled = settled
        self.gained_ns: tuple[int, ...] = ()
        self.asked = 0
        self.pending = 0
        self.outcome: Enum | None = None
        self.silent: dict[int, str] = {}
        self.reply = reply
        """Who waits for the outcome, until they are answered; an Attempt's is its holder."""

    def done(self, lease: Extended | None) -> None:
        """Answer who waits for it, once."""
        reply, self.reply = self.reply, None
        if reply is not None:
            reply.done(lease)

    def refused(self, refusal: Refusal) -> None:
        """Refuse who waits for it, once."""
        reply, self.reply = self.reply, None
        if reply is not None:
            reply.refused(refusal)

    def put_to(self, masters: int) -> None:
        self.asked = self.pending = masters

    def answered(
        self, master: int, status: int, value: int, counts: bool, now_ns: int, holder_nonce: bytes = b""
    ) -> None:
        """A master's answer. counts: it has a vote (rules 8, 11, 14), known at the moment of its answer.
        holder_nonce: that of the lease that it has instead, where it says so."""
        raise NotImplementedError

    def unanswered(self, master: int, why: str, now_ns: int) -> None:
        """No answer will come from this master any more, and what it did is not known."""
        if self.pending >> master & 1:
            self.pending &= ~(1 << master)
            self.silent[master] = why
            if self.outcome is None:
                self.weigh(now_ns)

    def time_out(self, now_ns: int) -> None:
        """The masters' time is up: those that didn't answer count as silent, though their answers may still
        come."""
        if self.outcome is not None:
            return
        for master in bits(self.pending):
            self.silent[master] = "no answer in time"
        self.pending = 0
        self.weigh(now_ns)

    def weigh(self, now_ns: int) -> None:
        raise NotImplementedError

    def settle(self, outcome: Enum, now_ns: int) -> None:
        self.outcome = outcome
        self.settled(self, now_ns)


def bits(mask: int) -> list[int]:
    """The numbers of the bits that are set."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]
