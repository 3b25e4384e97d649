"""What all ballots have in common.

A ballot is asked of some masters (`asked`, as bits), gets an answer from each at most once, and settles as
soon as its outcome is certain. Answers that come later still count (rule 2): they say where a lease really
is.
"""

from collections.abc import Callable
from enum import Enum

from lockd.core.line import Line
from lockd.core.turns import HOUSE
from lockd.core.values import Extended, Refusal, Reply

# Statuses of the scripts (lockd/masters/scripts/*.lua).
OTHERS, YES, PUT_BACK, MISSING, HELD_OUT, RESERVED, ASKED, ELSEWHERE = 0, 1, 2, 3, 4, 5, 6, 7
NO_IDENTITY, TTL_TOO_LONG, MISCOUNTS, TOO_FAR_AHEAD, NO_LEASE = -1, -2, -3, -4, -5

REFUSALS = {
    NO_IDENTITY: "no identity",
    TTL_TOO_LONG: "ttl above its ceiling",
    MISCOUNTS: "fence counter is wrong",
    TOO_FAR_AHEAD: "fence far ahead of its clock",
    NO_LEASE: "its key is no lease",
}


class Ended(Enum):
    """Outcomes that any ballot may have."""

    DONE = "done"
    """All have answered, and there was nothing to decide."""
    ABANDONED = "abandoned"
    """Its result is not wanted any more."""
    BROKEN = "broken"
    """It failed by an error of the agent."""


class Ballot:
    """The common part: which masters were asked, which still have to answer, and why others didn't.

    t1_ns was read before the first byte was sent. until_ns: after this it is not worth sending any more (to a
    master that was away). gained_ns: what the masters' clocks had gained then (rule 11d). outcome: None as
    long as it is open. account: who pays for it (core/turns.py). line: where it counts as under way.
    """

    __slots__ = (
        "account",
        "asked",
        "gained_ns",
        "line",
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
        self.account = HOUSE
        self.line: Line | None = None
        self.gained_ns: tuple[int, ...] = ()
        self.asked = 0
        self.pending = 0
        self.outcome: Enum | None = None
        self.silent: dict[int, str] = {}
        self.reply = reply
        """The requests that wait for the outcome, until they are answered. For an Attempt it is the
        holder."""

    def done(self, lease: Extended | None) -> None:
        """Answer the waiting requests, once."""
        reply, self.reply = self.reply, None
        if reply is not None:
            reply.done(lease)

    def refused(self, refusal: Refusal) -> None:
        """Refuse the waiting requests, once."""
        reply, self.reply = self.reply, None
        if reply is not None:
            reply.refused(refusal)

    def put_to(self, masters: int) -> None:
        self.asked = self.pending = masters

    def answered(
        self, master: int, status: int, value: int, counts: bool, now_ns: int, holder_nonce: bytes = b""
    ) -> None:
        """A master's answer. counts: the master has a vote (rules 8, 11, 14), as known when it answered.
        holder_nonce: the nonce of the lease that it has instead, if it says so."""
        raise NotImplementedError

    def unanswered(self, master: int, why: str, now_ns: int) -> None:
        """This master will not answer any more, and what it did is not known."""
        if self.pending >> master & 1:
            self.pending &= ~(1 << master)
            self.silent[master] = why
            if self.outcome is None:
                self.weigh(now_ns)

    def time_out(self, now_ns: int) -> None:
        """The masters' time is up: those that didn't answer count as silent, though their answers may still
        arrive."""
        if self.outcome is not None:
            return
        for master in bits(self.pending):
            self.silent[master] = "no answer in time"
        self.pending = 0
        self.weigh(now_ns)

    def weigh(self, now_ns: int) -> None:
        raise NotImplementedError

    def settle(self, outcome: Enum, now_ns: int) -> None:
        if self.line is not None:
            self.line.took(now_ns - self.t1_ns, now_ns)
        self.ends(outcome)
        self.settled(self, now_ns)

    def ends(self, outcome: Enum) -> None:
        """It has this outcome. The next in line may be asked for."""
        self.outcome = outcome
        line, self.line = self.line, None
        if line is not None:
            line.ended()


def bits(mask: int) -> list[int]:
    """The numbers of the bits that are set."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]
