"""Giving a lease back."""

from collections.abc import Callable
from enum import Enum

from lockd.core.ballots.ballot import Ballot
from lockd.core.values import Reply


class ReleaseOutcome(Enum):
    """The outcome of a release."""

    DELETED = "deleted"
    """The lease was there, on one master at least."""
    NOT_THERE = "not there"
    """No master of a quorum had it."""
    NO_QUORUM = "no quorum"


class How(Enum):
    """What a release names, or what it is sent for."""

    TENURE = b""
    """A tenure, by its nonces."""
    BY_APP = b"app"
    """A lease that this agent does not know, by the app's token."""
    TRY = b"try"
    """A try that failed, by its nonce. Requests that wait for the resource are not told and don't lose their
    places. Nor does the host that tried, if it goes on waiting: it gets back the place that its vote took."""
    PASS = b"pass"
    """A reservation for this agent, by its place: it is the next host's turn."""
    TURN = b"turn"
    """A tenure of a host that waits for its next turn, under the place that it then has."""
    AGAIN = b"again"
    """Nothing, on a master where that tenure never was: its host has had its turn, and waits for the next one
    there."""
    FREED = b"freed"
    """Nothing: the agent that asked for it, named by its place, is told that it was given back before."""
    USED = b"used"
    """Nothing: the agent that asked for it is told that it is in use."""
    EARLY = b"early"
    """A lease with an app's value, by its nonce, before its TTL ends: its app has set a shorter one, or could
    not be told of it. Where another agent has extended it, it stays."""
    FORCED = b"forced"
    """A tenure that an operator takes away: its agent is told."""


class Release(Ballot):
    """Giving back. It settles when a quorum has said that the lease isn't there any more, or when no master
    is left that could say so.

    word: what the lease has to be known by. That is its nonce, so that a late release of one try can't delete
    the next one's lease, whatever token their app uses (rule 4); or it is what `how` says. before: nonces
    that it had with earlier agents, if masters may still know it by those (rule 13). patient: no request
    waits for it; what apps ask now goes first. place, grace_ms, waited_us: of a host that waits for its turn.
    asked_again: masters that were asked on a connection that broke, and may have done it then. It means
    nothing if one of them doesn't have the lease now. erring: masters that have answered with an error so
    far, and keep the lease.
    """

    __slots__ = (
        "_quorum",
        "asked_again",
        "before",
        "deleted",
        "erring",
        "grace_ms",
        "how",
        "missing",
        "patient",
        "place",
        "resource",
        "unknown",
        "waited_us",
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
        how: How = How.TENURE,
        patient: bool = False,
        reply: Reply | None = None,
        before: tuple[bytes, ...] = (),
    ) -> None:
        super().__init__(t1_ns, until_ns, settled, reply)
        self.resource = resource
        self.word = word
        self.how = how
        self.place = b""
        self.grace_ms = self.waited_us = 0
        self.before = before
        self.patient = patient
        self._quorum = quorum
        self.asked_again = self.erring = 0
        self.deleted = 0
        self.missing = 0
        self.unknown = 0

    def answered(
        self, master: int, status: int, value: int, counts: bool, now_ns: int, holder_nonce: bytes = b""
    ) -> None:
        self.pending &= ~(1 << master)
        self.erring &= ~(1 << master)
        if status:
            self.deleted += 1
        elif self.asked_again >> master & 1:
            self.unknown += 1
        else:
            self.missing += 1
        if self.outcome is None:
            self.weigh(now_ns)

    @property
    def is_debt(self) -> bool:
        """It is kept for a master that is away. A release that an app asked for and whose lease this agent
        doesn't know is not kept: that master may never have had it, and if it came late it could hit the next
        lease for which an app chose the same token. Nor is a turn kept, which is over in a moment."""
        return self.how in (How.TENURE, How.EARLY, How.TURN, How.TRY)

    @property
    def is_confirmed(self) -> bool:
        """A quorum has said that the lease isn't there any more."""
        return self.deleted + self.missing + self.unknown >= self._quorum

    def weigh(self, now_ns: int) -> None:
        """A lease that is held is on a quorum: where that says that it isn't there, another release was
        first, or it had been lost, and what this one deletes on the others is no longer anybody's. So one app
        is told that it has released it, in whatever order the answers come (rule 2)."""
        if self.missing >= self._quorum:
            self.settle(ReleaseOutcome.NOT_THERE, now_ns)
        elif self.deleted + self.unknown >= self._quorum or not self.pending:
            self.settle(ReleaseOutcome.DELETED if self.deleted else ReleaseOutcome.NO_QUORUM, now_ns)


def nothing_more(_release: Release, _now_ns: int) -> None:
    """No request waits for this release."""
