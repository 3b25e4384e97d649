"""A try to get a lease."""

from collections.abc import Callable
from enum import Enum

from lockd.core.ballots.ballot import OTHERS, REFUSALS, RESERVED, YES, Ballot
from lockd.core.ballots.proof import Proof
from lockd.core.fences import slot_of
from lockd.core.values import Terms


class AttemptOutcome(Enum):
    """What a try came to."""

    GRANTED = "granted"
    """A quorum said yes."""
    TAKEN = "taken"
    """Somebody has it, as far as can be known."""
    SPLIT = "split"
    """Nobody has a quorum, nor can anybody have it: several try at the same moment, or it is reserved for a
    host whose turn it is."""
    NO_QUORUM = "no quorum"


class Attempt(Ballot):
    """One try to get a lease: the first round of Redlock, with the masters' proposals for the fence.

    nonce: what tells this try from every other one (rule 4). token: what its app is to name its lease by;
    shown: the same where the masters show it behind the nonce. holder_nonces: those that the masters show
    which refuse it, with how long each lasts there in `taken_ms`. reserved_ms: for how long those
    have reserved it that refuse it since it is another host's turn.

    place: what its host waits under, for waited_us already, and the grace_ms that it takes; b'': nobody
    waits. asks: nobody waits, and whoever has it is asked under that place whether it only keeps it.
    recalled: others wait for it before it is even granted.
    """

    __slots__ = (
        "_quorum",
        "absent",
        "asks",
        "fences",
        "grace_ms",
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
        self.asks = self.recalled = False
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
            if status == OTHERS and counts:
                self.taken_ms += (value,)
                self.holder_nonces += (holder_nonce,)
            elif status == RESERVED and counts:
                self.reserved_ms += (value,)
            else:
                self.silent[master] = REFUSALS.get(status, "its vote does not count")
        if self.outcome is None:
            self.weigh(now_ns)

    def weigh(self, now_ns: int) -> None:
        """Settle as soon as a quorum said yes, or can't any more and it is certain what to say then:
        contention is never reported as an outage, nor an outage as contention, nor a split vote as a lease
        of somebody's."""
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
        # Whoever is on most masters may have a quorum with the silent ones, until a quorum is known not to
        # have him.
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
        """The masters where the lease is, or may be: all that were asked but for those that certainly said no
        (rule 3)."""
        return self.asked & ~self.absent

    def agreed_fence(self) -> int | None:
        """The fence, when a quorum named the same one (rule 6)."""
        first = self.fences[0]
        same = self.fences.count(first)
        if same >= self._quorum:
            return first
        return next((value for value in self.fences if self.fences.count(value) >= self._quorum), None)

    def retry_after_ms(self) -> int:
        """When, by the masters' word, so many of the others' leases will have run out that a quorum could say
        yes. Never by the word of one alone that says more than all others: it may be wrong, and to ask again
        too soon costs nothing."""
        missing = self._quorum - self.yes_count
        expiries = sorted((*self.taken_ms, *self.reserved_ms))
        if not len(expiries) >= missing > 0:
            return 1
        return max(1, expiries[min(missing - 1, max(0, len(expiries) - 2))])
