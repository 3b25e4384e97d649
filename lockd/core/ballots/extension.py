"""Going on with a lease."""

from collections.abc import Callable
from enum import Enum

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.ballot import ELSEWHERE, HELD_OUT, MISSING, OTHERS, PUT_BACK, REFUSALS, YES, Ballot
from lockd.core.ballots.gone import Gone
from lockd.core.ballots.proof import Proof
from lockd.core.values import Reply


class ExtensionOutcome(Enum):
    """The outcome of an extension."""

    PROVEN = "proven"
    """A quorum had it all the time."""
    GONE = "gone"
    """So many masters lost it, or never had it, that no quorum can have had it all the time."""
    NO_QUORUM = "no quorum"


class Extension(Ballot):
    """Going on with a lease, where it is.

    word: what it has to be known by. With a mark (its own agent asks) that is its nonce, else the token that
    its app has. mark: the number of its last proof, as it is noted where it was put back since then.

    Only masters that had it all the time prove it: where it was put back, another may have held the resource
    in between. Those masters are noted in `gone`, and count from the next proof on. The same goes for masters
    of the `last` proof that now show another's lease or none. `missing`: masters that show none and never had
    it, as far as is known. There it may be put back once this extension has proven it (rule 2). missed:
    called for those that say so afterwards.

    before: the nonces that the lease may have on the masters, if its agent has taken it over. Each master
    changes such a nonce into `word`, and shows the `token` after it (rule 13). there_ms: how long ago it was
    proven by the previous agent. Where it arrived later, by commands that agent had under way, it counts from
    the next proof on. None: it was proven since then, so it counts wherever it still has an old nonce.

    hides: a token that is shown is not shown any more, because the lease that it names is over.

    is_elsewhere: another agent has extended it, too, so apps rely on that which this agent does not know of.

    attempt: the try that it belongs to, whose lease is granted only if it can be extended.
    """

    __slots__ = (
        "_lasts_ms",
        "_quorum",
        "attempt",
        "before",
        "gone",
        "held_out",
        "hides",
        "is_elsewhere",
        "last",
        "mark",
        "missed",
        "missing",
        "others",
        "proof",
        "resource",
        "there_ms",
        "token",
        "ttl_ms",
        "word",
    )

    def __init__(
        self,
        resource: bytes,
        word: bytes,
        *,
        ttl_ms: int,
        mark: bytes,
        last: Proof | None,
        gone: Gone,
        quorum: int,
        t1_ns: int,
        until_ns: int,
        settled: "Callable[[Extension, int], None]",
        reply: Reply | None = None,
        before: tuple[bytes, ...] = (),
        token: bytes = b"",
        there_ms: int | None = 0,
        hides: bool = False,
        attempt: Attempt | None = None,
    ) -> None:
        super().__init__(t1_ns, until_ns, settled, reply)
        self.attempt = attempt
        self.resource = resource
        self.word = word
        self.before = before
        self.token = token
        self.there_ms = there_ms
        self.hides = hides
        self.ttl_ms = ttl_ms
        self.mark = mark
        self.last = last
        self.proof = Proof()
        self._quorum = quorum
        self.gone = gone
        self.missing = 0
        self.missed: Callable[[Extension, int], None] | None = None
        self.others = 0
        self.held_out = self.is_elsewhere = False
        self._lasts_ms: dict[int, int] = {}

    @property
    def agreed(self) -> bool:
        """A quorum has confirmed it."""
        return self.outcome is ExtensionOutcome.PROVEN

    @property
    def confirmed(self) -> int:
        """The masters that have it and had it all the time."""
        return self.proof.masters

    def answered(
        self, master: int, status: int, value: int, counts: bool, now_ns: int, holder_nonce: bytes = b""
    ) -> None:
        bit = 1 << master
        self.pending &= ~bit
        self.is_elsewhere |= status == ELSEWHERE
        if status in (YES, ELSEWHERE):
            if not counts:
                self.silent[master] = "its vote does not count"
            elif not self.gone.mask & bit:
                self.proof.masters |= bit
                self._lasts_ms[master] = value
            else:
                self._is_there_again(master, now_ns)
        elif status in (PUT_BACK, OTHERS, MISSING):
            if status == PUT_BACK:
                self._is_there_again(master, now_ns)
            self._is_not_here(bit, status)
        elif status == HELD_OUT:
            self.held_out = True
        else:
            self.silent[master] = REFUSALS.get(status, "?")
        if self.outcome is None:
            self.weigh(now_ns)
        elif self.missing & bit and self.missed is not None:
            self.missed(self, now_ns)

    def _is_not_here(self, bit: int, status: int) -> None:
        self.others |= bit
        if status == PUT_BACK or (self.last is not None and self.last.masters & bit):
            self.gone.add(bit)
        elif status == MISSING and not self.gone.mask & ~self.gone.unsure & bit:
            self.missing |= bit

    def _is_there_again(self, master: int, now_ns: int) -> None:
        # What was put back at the same instant may have been sent after this.
        self.gone.is_there(master, self.t1_ns - 1, now_ns)

    @property
    def lasts_ms(self) -> int:
        """For how long a quorum of the masters that confirmed it keep it, at most as long as was asked for.
        It is not the smallest value of all: a master that invents a short one must not end it for all."""
        return min(self.ttl_ms, sorted(self._lasts_ms.values(), reverse=True)[self._quorum - 1])

    def weigh(self, now_ns: int) -> None:
        """Settle as soon as a quorum has confirmed. If just a quorum has, and one of them says that the lease
        ends earlier than was asked for, one more master is heard: the reason may be max_hold, or that one
        master may be wrong."""
        confirmed = self.confirmed.bit_count()
        if confirmed >= self._quorum:
            if confirmed > self._quorum or not self.pending or self.lasts_ms == self.ttl_ms:
                self.settle(ExtensionOutcome.PROVEN, now_ns)
        elif confirmed + (pending := self.pending.bit_count()) < self._quorum:
            known = (self.others | self.gone.mask).bit_count() + confirmed
            if known >= self._quorum:
                self.settle(ExtensionOutcome.GONE, now_ns)
            elif self.mark or known + pending < self._quorum:
                # Another agent than its own asks whether the lease is held at all. Contention is no outage,
                # so all masters are heard that may still say so.
                self.settle(ExtensionOutcome.NO_QUORUM, now_ns)
