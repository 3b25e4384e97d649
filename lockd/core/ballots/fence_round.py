"""The second round of a fence."""

from collections.abc import Callable
from enum import Enum

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.ballot import OTHERS, REFUSALS, YES, Ballot


class FenceOutcome(Enum):
    """What a proposal came to."""

    ACCEPTED = "accepted"
    """By a quorum."""
    OUTBID = "outbid"
    """So many masters know of a larger fence that no quorum can accept it."""
    NO_QUORUM = "no quorum"


class FenceRound(Ballot):
    """The second round of a fence: one value for all, which a quorum must accept (rule 6)."""

    __slots__ = ("_quorum", "acceptors", "attempt", "highest", "resource", "slot", "value")

    def __init__(
        self,
        attempt: Attempt,
        value: int,
        *,
        quorum: int,
        t1_ns: int,
        until_ns: int,
        settled: "Callable[[FenceRound, int], None]",
    ) -> None:
        super().__init__(t1_ns, until_ns, settled)
        self.attempt = attempt
        self.resource = attempt.resource
        self.slot = attempt.slot
        self.value = value
        self._quorum = quorum
        self.acceptors = 0
        self.highest = 0

    @property
    def agreed(self) -> bool:
        """A quorum has accepted it."""
        return self.outcome is FenceOutcome.ACCEPTED

    def answered(
        self, master: int, status: int, value: int, counts: bool, now_ns: int, holder_nonce: bytes = b""
    ) -> None:
        self.pending &= ~(1 << master)
        if status == YES and counts:
            self.acceptors |= 1 << master
        elif status == OTHERS:
            self.highest = max(self.highest, value)
        else:
            self.silent[master] = REFUSALS.get(status, "its vote does not count")
        if self.outcome is None:
            self.weigh(now_ns)

    def weigh(self, now_ns: int) -> None:
        accepted = self.acceptors.bit_count()
        if accepted >= self._quorum:
            self.settle(FenceOutcome.ACCEPTED, now_ns)
        elif accepted + self.pending.bit_count() < self._quorum:
            refused = self.asked.bit_count() - len(self.silent)
            self.settle(FenceOutcome.OUTBID if refused >= self._quorum else FenceOutcome.NO_QUORUM, now_ns)
