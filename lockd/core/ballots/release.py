"""Giving a lease back."""

from collections.abc import Callable
from enum import Enum

from lockd.core.ballots.ballot import Ballot
from lockd.core.values import Reply


class ReleaseOutcome(Enum):
    """What a release came to."""

    DELETED = "deleted"
    """It was there, on one master at least."""
    NOT_THERE = "not there"
    """On no master of a quorum."""
    NO_QUORUM = "no quorum"


class Release(Ballot):
    """Giving back. Settles when a quorum has said that the lease isn't there any more, or nobody is left to
    say so.

    word: what the lease has to be known by: its nonce, so that what is late for one try can't delete the next
    one's lease whatever token their app uses (rule 4). by_app: it is what an app that this agent knows no
    lease of says; then it is the app's token.
    before: nonces that it had with agents before, where masters may still know it by those (rule 13).
    patient: nobody waits for it; what apps ask now goes first.
    asked_again: the masters that were asked on a connection that broke, and may have done it then: that one
    of them doesn't have it now means nothing.
    """

    __slots__ = (
        "_quorum",
        "asked_again",
        "before",
        "by_app",
        "deleted",
        "missing",
        "patient",
        "resource",
        "unknown",
        "word",
    )

    def __init__(
        self,
        resource: bytes,
        word: bytes,
        *,
        quorum: int,
        t1_ns: int,
        until_ns: int,
        settled: "Callable[[Release, int], None]",
        by_app: bool = False,
        patient: bool = False,
        reply: Reply | None = None,
        before: tuple[bytes, ...] = (),
    ) -> None:
        super().__init__(t1_ns, until_ns, settled, reply)
        self.resource = resource
        self.word = word
        self.by_app = by_app
        self.before = before
        self.patient = patient
        self._quorum = quorum
        self.asked_again = 0
        self.deleted = 0
        self.missing = 0
        self.unknown = 0

    def answered(
        self, master: int, status: int, value: int, counts: bool, now_ns: int, holder_nonce: bytes = b""
    ) -> None:
        self.pending &= ~(1 << master)
        if status:
            self.deleted += 1
        elif self.asked_again >> master & 1:
            self.unknown += 1
        else:
            self.missing += 1
        if self.outcome is None:
            self.weigh(now_ns)

    @property
    def is_confirmed(self) -> bool:
        """A quorum has said that it isn't there any more."""
        return self.deleted + self.missing + self.unknown >= self._quorum

    def weigh(self, now_ns: int) -> None:
        if not self.pending or self.is_confirmed:
            self.settle(
                ReleaseOutcome.DELETED
                if self.deleted
                else ReleaseOutcome.NOT_THERE
                if self.missing >= self._quorum
                else ReleaseOutcome.NO_QUORUM,
                now_ns,
            )


def nothing_more(_release: Release, _now_ns: int) -> None:
    """Nobody waits for this release."""
