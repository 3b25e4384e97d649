"""A proposal of a fence."""

from collections.abc import Callable
from enum import Enum

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.ballot import MISSING, OTHERS, REFUSALS, YES, Ballot
from lockd.core.fences import BLOCK, slot_of


class FenceOutcome(Enum):
    """The outcome of a proposal."""

    ACCEPTED = "accepted"
    """A quorum has accepted it."""
    OUTBID = "outbid"
    """So many masters know a larger fence that no quorum can accept this one."""
    NO_QUORUM = "no quorum"


class FenceRound(Ballot):
    """One value for all masters, which a quorum has to accept (rule 6). It is the second round of a try, or
    the next block of a tenure.

    nonce: the tenure's. A master that does not show that tenure accepts nothing: an accepted value must not
    be above the fences of the present holder. b'': it is for a try. size: of the block that begins with the
    value.
    """

    __slots__ = (
        "_quorum", "acceptors", "attempt", "highest", "nonce", "resource", "size", "slot", "value",
    )  # fmt: skip

    def __init__(
        self,
        resource: bytes,
        value: int,
        *,
        attempt: Attempt | None = None,
        nonce: bytes = b"",
        size: int = BLOCK,
        quorum: int,
        t1_ns: int,
        until_ns: int,
        settled: "Callable[[FenceRound, int], None]",
    ) -> None:
        super().__init__(t1_ns, until_ns, settled)
        self.attempt = attempt
        self.resource = resource
        self.slot = slot_of(resource)
        self.nonce = nonce
        self.size = size
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
        elif status == MISSING:
            self.silent[master] = "it is not there any more"
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
