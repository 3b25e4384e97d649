"""A try to get a lease."""

from collections.abc import Callable
from enum import Enum

from lockd.core.ballots.ballot import ASKED, OTHERS, REFUSALS, RESERVED, YES, Ballot
from lockd.core.ballots.proof import Proof
from lockd.core.fences import slot_of
from lockd.core.values import Terms


class AttemptOutcome(Enum):
    """The outcome of a try."""

    GRANTED = "granted"
    """A quorum said yes."""
    TAKEN = "taken"
    """Another has it, as far as can be known."""
    SPLIT = "split"
    """No host has a quorum, or can have one: several try at the same moment, or it is reserved for the host
    whose turn it is."""
    NO_QUORUM = "no quorum"


class Attempt(Ballot):
    """One try to get a lease: the first round of Redlock, with the masters' proposals for the fence.

    nonce: tells this try from every other one (rule 4). token: the name that the app will use for its lease.
    shown: the token, if the masters show it after the nonce. holder_nonces: the nonces of other leases on the
    masters that refuse this try; `taken_ms` has how long each will last there. reserved_ms: how long the
    resource is reserved on masters that refuse because it is another host's turn.

    place: the name under which this host waits, for waited_us so far, with the grace_ms that it needs; b'':
    it does not wait. asks: it does not wait, and asks the present holder's agent, under that place, whether
    the tenure is only kept. has_asked: a master has passed that on. recalled: others wait for it already,
    before it is granted.
    """

    __slots__ = (
        "_quorum",
        "absent",
        "asks",
        "fences",
        "grace_ms",
        "has_asked",
        "hint",
        "holder_nonces",
        "nonce",
        "place",
        "proof",
        "recalled",
        "reserved_ms",
        "resource",
        "shown",
        "slot",
        "taken_ms",
        "terms",
        "token",
        "ttl_ms",
        "waited_us",
        "yes_count",
    )

    def __init__(
        self,
        terms: Terms,
        resource: bytes,
        *,
        nonce: bytes,
        ttl_ms: int,
        hint: int,
        quorum: int,
        t1_ns: int,
        until_ns: int,
        settled: "Callable[[Attempt, int], None]",
        token: bytes = b"",
        shown: bytes = b"",
    ) -> None:
        super().__init__(t1_ns, until_ns, settled)
        self.terms = terms
        self.account = terms.account
        self.resource = resource
        self.slot = slot_of(resource)
        self.nonce = nonce
        self.token = token or nonce
        self.shown = shown
        self.ttl_ms = ttl_ms
        self.hint = hint
        self._quorum = quorum
        self.proof = Proof()
        self.yes_count = 0
        self.absent = 0
        self.taken_ms: tuple[int, ...] = ()
        self.holder_nonces: tuple[bytes, ...] = ()
        self.reserved_ms: tuple[int, ...] = ()
        self.place = b""
        self.waited_us = self.grace_ms = 0
        self.asks = self.has_asked = self.recalled = False
        self.fences: tuple[int, ...] = ()

    def answered(
        self, master: int, status: int, value: int, counts: bool, now_ns: int, holder_nonce: bytes = b""
    ) -> None:
        bit = 1 << master
        self.pending &= ~bit
        if status == YES:
            if not counts:
                self.silent[master] = "its vote does not count"
            else:
                self.proof.masters |= bit
                self.yes_count += 1
                named = self.fences
                self.fences = (*named, named[0] if named and named[0] == value else value)
        else:
            self.absent |= bit
            if status in (OTHERS, ASKED) and counts:
                self.has_asked |= status == ASKED
                self.taken_ms += (value,)
                self.holder_nonces += (holder_nonce,)
            elif status == RESERVED and counts:
                self.reserved_ms += (value,)
            else:
                self.silent[master] = REFUSALS.get(status, "its vote does not count")
        if self.outcome is None:
            self.weigh(now_ns)

    def weigh(self, now_ns: int) -> None:
        """Settle as soon as a quorum said yes, or as soon as none can and the right answer is certain.
        Contention is never reported as an outage, nor an outage as contention, nor a split vote as another's
        lease."""
        if self.yes_count >= self._quorum:
            self.settle(AttemptOutcome.GRANTED, now_ns)
            return
        pending = self.pending.bit_count()
        if self.yes_count + pending >= self._quorum:
            return
        voters = self.yes_count + len(self.taken_ms) + len(self.reserved_ms)
        if voters < self._quorum:
            if voters + pending < self._quorum:
                self.settle(AttemptOutcome.NO_QUORUM, now_ns)
            return
        # The lease that is on most masters may have a quorum together with the silent ones, until it is known
        # that it has not.
        without_him = voters - max(map(self.holder_nonces.count, self.holder_nonces), default=0)
        if without_him >= self._quorum:
            self.settle(AttemptOutcome.SPLIT, now_ns)
        elif without_him + pending < self._quorum:
            self.settle(AttemptOutcome.TAKEN, now_ns)

    @property
    def agreed(self) -> bool:
        """A quorum said yes."""
        return self.outcome is AttemptOutcome.GRANTED

    @property
    def yes(self) -> int:
        """The masters that said yes."""
        return self.proof.masters

    @property
    def landed(self) -> int:
        """The masters where the lease is, or may be: all that were asked, except those that certainly said no
        (rule 3)."""
        return self.asked & ~self.absent

    def agreed_fence(self) -> int | None:
        """The fence, if a quorum named the same one (rule 6)."""
        first = self.fences[0]
        same = self.fences.count(first)
        if same >= self._quorum:
            return first
        return next((value for value in self.fences if self.fences.count(value) >= self._quorum), None)

    def retry_after_ms(self) -> int:
        """When, according to the masters, enough of the other leases will have run out that a quorum could
        say yes. One master that names a longer time than all others does not count alone: it may be wrong,
        and asking again too soon costs nothing."""
        missing = self._quorum - self.yes_count
        expiries = sorted((*self.taken_ms, *self.reserved_ms))
        if not len(expiries) >= missing > 0:
            return 1
        return max(1, expiries[min(missing - 1, max(0, len(expiries) - 2))])
