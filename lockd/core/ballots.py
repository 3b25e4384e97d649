"""Questions put to several masters at once, and what their answers add up to.

A ballot is asked of some masters (`asked`, as bits), hears from each at most once, and settles as soon as the
outcome is certain. Answers that come later still count (rule 2): they say where a lease really is.
"""

from collections.abc import Callable
from enum import Enum

from lockd.core.fences import slot_of
from lockd.core.ports import Extended, Holder, Masters, Refusal, Reply

# Statuses of the scripts (lockd/masters/scripts/*.lua).
OTHERS, YES, PUT_BACK, MISSING, HELD_OUT = 0, 1, 2, 3, 4
NO_IDENTITY, TTL_TOO_LONG, MISCOUNTS, TOO_FAR_AHEAD = -1, -2, -3, -4

_REFUSALS = {
    NO_IDENTITY: "no identity",
    TTL_TOO_LONG: "ttl above its ceiling",
    MISCOUNTS: "fence counter is wrong",
    TOO_FAR_AHEAD: "fence far ahead of its clock",
}


class Verdict(Enum):
    OPEN = "open"
    YES = "yes"
    TAKEN = "taken"
    SPLIT = "split"
    """Nobody has a quorum, nor can anybody have it: several try at the same moment."""
    NO_QUORUM = "no quorum"
    BROKEN = "broken"


class Ballot:
    """The part that all have: who was asked, who is still to answer, and why the others didn't.

    t1_ns was read before the first byte was sent. until_ns: no longer worth sending after this (to a master
    that was away). gained_ns: what the masters' clocks had gained then (rule 11d).
    """

    __slots__ = (
        "asked",
        "gained_ns",
        "pending",
        "reply",
        "settled",
        "silent",
        "t1_ns",
        "until_ns",
        "verdict",
    )

    def __init__(self, t1_ns: int, until_ns: int, settled: "Callable[..., None]") -> None:
        self.t1_ns = t1_ns
        self.until_ns = until_ns
        self.settled = settled
        self.gained_ns: tuple[int, ...] = ()
        self.asked = 0
        self.pending = 0
        self.verdict = Verdict.OPEN
        self.silent: dict[int, str] = {}
        self.reply: Reply | None = None
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
        self, master: int, status: int, value: int, counts: bool, now_ns: int, shown: bytes = b""
    ) -> None:
        """A master's answer. counts: it has a vote (rules 8, 11, 14), known at the moment of its answer.
        shown: the nonce of the lease that it has instead, where it says so."""
        raise NotImplementedError

    def unanswered(self, master: int, why: str, now_ns: int) -> None:
        """No answer will come from this master any more, and what it did is not known."""
        if self.pending >> master & 1:
            self.pending &= ~(1 << master)
            self.silent[master] = why
            if self.verdict is Verdict.OPEN:
                self.weigh(now_ns)

    def time_out(self, now_ns: int) -> None:
        """The masters' time is up: those that didn't answer count as silent, though their answers may still
        come."""
        if self.verdict is not Verdict.OPEN:
            return
        for master in bits(self.pending):
            self.silent[master] = "no answer in time"
        self.pending = 0
        self.weigh(now_ns)

    def weigh(self, now_ns: int) -> None:
        raise NotImplementedError

    def settle(self, verdict: Verdict, now_ns: int) -> None:
        self.verdict = verdict
        self.settled(self, now_ns)

    def no_quorum(self, masters: Masters, total: int) -> Refusal:
        """A refusal that gives a reason for each master that had no say."""
        reasons = []
        voting = masters.voting()
        for master in range(total):
            if master in self.silent:
                reasons.append(f"{masters.name(master)}={self.silent[master].replace(' ', '-')}")
            elif not (self.asked & voting) >> master & 1:
                reasons.append(masters.why_not(master))
        return Refusal("NOQUORUM", " ".join(reasons) or "the answers came too late to be relied upon")


def bits(mask: int) -> list[int]:
    """The numbers of the bits that are set."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


class Attempt(Ballot):
    """One try to get a lease: the first round of Redlock, with the masters' proposals for the fence.

    nonce: what tells this try from every other one (rule 4). shown: the nonces that the masters show which
    refuse it, with how long each lasts there in `taken_ms`.
    """

    __slots__ = (
        "_first_fence",
        "_quorum",
        "absent",
        "fences",
        "hint",
        "holder",
        "nonce",
        "resource",
        "shown",
        "slot",
        "taken_ms",
        "ttl_ms",
        "yes",
        "yes_count",
    )

    def __init__(
        self,
        holder: Holder,
        resource: bytes,
        nonce: bytes,
        ttl_ms: int,
        hint: int,
        quorum: int,
        t1_ns: int,
        until_ns: int,
        settled: "Callable[[Attempt, int], None]",
    ) -> None:
        super().__init__(t1_ns, until_ns, settled)
        self.holder = holder
        self.resource = resource
        self.slot = slot_of(resource)
        self.nonce = nonce
        self.ttl_ms = ttl_ms
        self.hint = hint
        self._quorum = quorum
        self.yes = 0
        self.yes_count = 0
        self.absent = 0
        self.taken_ms: list[int] = []
        self.shown: list[bytes] = []
        self.fences: list[int] = []

    def answered(
        self, master: int, status: int, value: int, counts: bool, now_ns: int, shown: bytes = b""
    ) -> None:
        bit = 1 << master
        self.pending &= ~bit
        if status == YES:
            if not counts:
                self.silent[master] = "its vote does not count"
            else:
                self.yes |= bit
                self.yes_count += 1
                self.fences.append(value)
        else:
            self.absent |= bit
            if status == OTHERS and counts:
                self.taken_ms.append(value)
                self.shown.append(shown)
            else:
                self.silent[master] = _REFUSALS.get(status, "its vote does not count")
        if self.verdict is Verdict.OPEN:
            self.weigh(now_ns)

    def weigh(self, now_ns: int) -> None:
        """Settle as soon as a quorum said yes, or can't any more and it is certain what to say then:
        contention is never reported as an outage, nor an outage as contention, nor a split vote as a lease
        of somebody's."""
        if self.yes_count >= self._quorum:
            self.settle(Verdict.YES, now_ns)
            return
        pending = self.pending.bit_count()
        if self.yes_count + pending >= self._quorum:
            return
        voters = self.yes_count + len(self.taken_ms)
        if voters < self._quorum:
            if voters + pending < self._quorum:
                self.settle(Verdict.NO_QUORUM, now_ns)
            return
        # Whoever is on most masters may have a quorum with the silent ones, until a quorum is known not to
        # have him.
        without_him = voters - max(map(self.shown.count, self.shown))
        if without_him >= self._quorum:
            self.settle(Verdict.SPLIT, now_ns)
        elif without_him + pending < self._quorum:
            self.settle(Verdict.TAKEN, now_ns)

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
        expiries = sorted(self.taken_ms)
        if not len(expiries) >= missing > 0:
            return 1
        return max(1, expiries[min(missing - 1, max(0, len(expiries) - 2))])


class FenceRound(Ballot):
    """The second round of a fence: one value for all, which a quorum must accept (rule 6)."""

    __slots__ = ("_quorum", "acceptors", "attempt", "highest", "resource", "slot", "value")

    def __init__(
        self,
        attempt: Attempt,
        value: int,
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

    def answered(
        self, master: int, status: int, value: int, counts: bool, now_ns: int, shown: bytes = b""
    ) -> None:
        self.pending &= ~(1 << master)
        if status == YES and counts:
            self.acceptors |= 1 << master
        elif status == OTHERS:
            self.highest = max(self.highest, value)
        else:
            self.silent[master] = _REFUSALS.get(status, "its vote does not count")
        if self.verdict is Verdict.OPEN:
            self.weigh(now_ns)

    def weigh(self, now_ns: int) -> None:
        accepted = self.acceptors.bit_count()
        if accepted >= self._quorum:
            self.settle(Verdict.YES, now_ns)
        elif accepted + self.pending.bit_count() < self._quorum:
            refused = self.asked.bit_count() - len(self.silent)
            self.settle(Verdict.TAKEN if refused >= self._quorum else Verdict.NO_QUORUM, now_ns)


_NEVER_NS = 1 << 62


class Gone:
    """The masters that didn't have a lease all the time since it was last proven, as bits; `back`: those of
    them where it was put back. One value for all extensions of a lease in flight: what one of them finds gone
    must not count for another that was sent behind it.

    A put-back lands when it lands, also after later proofs, and what it lands on may have been another's just
    before. So where it was put back it counts for nothing until its being there was heard of before the last
    proof was asked for. `unsure`: those that are among the others only for that.
    """

    __slots__ = ("_put_on", "back", "mask", "unsure")

    def __init__(self) -> None:
        self.mask = 0
        self.back = 0
        self.unsure = 0
        self._put_on: dict[int, tuple[int, int]] = {}
        """By master: when the last put-back was sent there, and when it was first heard that it is there."""

    def is_put_on(self, masters: int, now_ns: int) -> None:
        self.unsure |= masters & ~self.mask
        self.mask |= masters
        for master in bits(masters):
            self._put_on[master] = now_ns, _NEVER_NS

    def is_there(self, master: int, asked_ns: int, now_ns: int) -> None:
        """As it says when asked then."""
        sent_ns, heard_ns = self._put_on.get(master, (_NEVER_NS, 0))
        if asked_ns >= sent_ns:
            self._put_on[master] = sent_ns, min(heard_ns, now_ns)

    def add(self, bit: int) -> None:
        self.mask |= bit
        self.unsure &= ~bit

    def after_proof(self, t1_ns: int) -> "Gone":
        """What begins with a proof that was asked for then."""
        gone = Gone()
        gone._put_on = put_on = self._put_on
        for master, (_, heard_ns) in list(put_on.items()):
            if heard_ns < t1_ns:
                del put_on[master]
            else:
                gone.mask |= 1 << master
        gone.unsure = gone.mask
        return gone


class Extension(Ballot):
    """Going on with a lease, where it is.

    word: what it has to be known by; with a mark (its own agent asks) that is its nonce, else the token that
    its app has. mark: the number of its last proof, as it is noted where it was put back since then.

    Only masters that had it all the time prove it: where it was put back, another may have held the resource
    in between. Those are noted in `gone`, and count from the next proof on; so are the masters of the last
    `proof` that show another's or none. `missing`: those that show none and never had it, as far as is known:
    there it may be put back, once this has proven it (rule 2). missed: told of those that say so afterwards.
    """

    __slots__ = (
        "_lasts_ms",
        "_quorum",
        "confirmed",
        "gone",
        "held_out",
        "mark",
        "missed",
        "missing",
        "others",
        "proof",
        "resource",
        "ttl_ms",
        "word",
    )

    def __init__(
        self,
        resource: bytes,
        word: bytes,
        ttl_ms: int,
        mark: bytes,
        proof: "Attempt | Extension | None",
        gone: Gone,
        quorum: int,
        t1_ns: int,
        until_ns: int,
        settled: "Callable[[Extension, int], None]",
    ) -> None:
        super().__init__(t1_ns, until_ns, settled)
        self.resource = resource
        self.word = word
        self.ttl_ms = ttl_ms
        self.mark = mark
        self.proof = proof
        self._quorum = quorum
        self.gone = gone
        self.confirmed = 0
        self.missing = 0
        self.missed: Callable[[Extension, int], None] | None = None
        self.others = 0
        self.held_out = False
        self._lasts_ms: dict[int, int] = {}

    @property
    def proven(self) -> int:
        """The masters that confirmed the lease when it was last proven, and those that did so late."""
        return found_by(self.proof) if self.proof is not None else 0

    def answered(
        self, master: int, status: int, value: int, counts: bool, now_ns: int, shown: bytes = b""
    ) -> None:
        bit = 1 << master
        self.pending &= ~bit
        if status == YES:
            if not counts:
                self.silent[master] = "its vote does not count"
            elif not self.gone.mask & bit:
                self.confirmed |= bit
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
            self.silent[master] = _REFUSALS.get(status, "?")
        if self.verdict is Verdict.OPEN:
            self.weigh(now_ns)
        elif self.missing & bit and self.missed is not None:
            self.missed(self, now_ns)

    def _is_not_here(self, bit: int, status: int) -> None:
        self.others |= bit
        if status == PUT_BACK or self.proven & bit:
            self.gone.add(bit)
        elif status == MISSING and not self.gone.mask & ~self.gone.unsure & bit:
            self.missing |= bit

    def _is_there_again(self, master: int, now_ns: int) -> None:
        # What was put back in the same instant may have been sent behind this.
        self.gone.is_there(master, self.t1_ns - 1, now_ns)

    @property
    def lasts_ms(self) -> int:
        """How long a quorum of those that confirmed it keep it, at most as long as was asked for. Not the
        least that any of them says: one that makes up a short one must not end it for all."""
        return min(self.ttl_ms, sorted(self._lasts_ms.values(), reverse=True)[self._quorum - 1])

    def weigh(self, now_ns: int) -> None:
        """Settle as soon as a quorum confirmed. Where one of just a quorum says that it ends earlier than was
        asked for, one more is heard: that may be max_hold, or one master's word alone."""
        confirmed = self.confirmed.bit_count()
        if confirmed >= self._quorum:
            if confirmed > self._quorum or not self.pending or self.lasts_ms == self.ttl_ms:
                self.settle(Verdict.YES, now_ns)
        elif confirmed + self.pending.bit_count() < self._quorum:
            gone = (self.others | self.gone.mask).bit_count()
            self.settle(Verdict.TAKEN if gone + confirmed >= self._quorum else Verdict.NO_QUORUM, now_ns)


def found_by(proof: "Attempt | Extension") -> int:
    """The masters that had a lease when it was proven, also those that said so late."""
    return proof.yes if isinstance(proof, Attempt) else proof.confirmed


class PutBack(Ballot):
    """A lease that was just proven is put on masters that never had it (rule 2): it wants to be on all.

    text: how it reads there, behind its nonce. What comes of it counts for nothing before a proof that was
    asked for when it was known to be there: that is noted in `gone`.
    """

    __slots__ = ("age_ms", "gone", "nonce", "resource", "text", "ttl_ms")

    def __init__(
        self,
        resource: bytes,
        nonce: bytes,
        ttl_ms: int,
        text: bytes,
        age_ms: int,
        gone: Gone,
        t1_ns: int,
        until_ns: int,
        settled: "Callable[[PutBack, int], None]",
    ) -> None:
        super().__init__(t1_ns, until_ns, settled)
        self.resource = resource
        self.nonce = nonce
        self.ttl_ms = ttl_ms
        self.text = text
        self.age_ms = age_ms
        self.gone = gone

    def answered(
        self, master: int, status: int, value: int, counts: bool, now_ns: int, shown: bytes = b""
    ) -> None:
        bit = 1 << master
        self.pending &= ~bit
        if status in (PUT_BACK, YES):
            self.gone.is_there(master, self.t1_ns, now_ns)
        if status == PUT_BACK:
            self.gone.add(bit)
            self.gone.back |= bit
        self.weigh(now_ns)

    def weigh(self, now_ns: int) -> None:
        """It is told of each answer: what comes when the lease is lost already must not stay."""
        self.settled(self, now_ns)
        if not self.pending:
            self.verdict = Verdict.YES


class Release(Ballot):
    """Giving back. Settles when a quorum has said that the lease isn't there any more, or nobody is left to
    say so.

    word: what the lease has to be known by: its nonce, so that what is late for one try can't delete the next
    one's lease whatever token their app uses (rule 4). by_app: it is what an app that this agent knows no
    lease of says; then it is the app's token.
    patient: nobody waits for it; what apps ask now goes first.
    asked_again: the masters that were asked on a connection that broke, and may have done it then: that one
    of them doesn't have it now means nothing.
    """

    __slots__ = (
        "_quorum",
        "asked_again",
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
        quorum: int,
        t1_ns: int,
        until_ns: int,
        settled: "Callable[[Release, int], None]",
        *,
        by_app: bool = False,
        patient: bool = False,
    ) -> None:
        super().__init__(t1_ns, until_ns, settled)
        self.resource = resource
        self.word = word
        self.by_app = by_app
        self.patient = patient
        self._quorum = quorum
        self.asked_again = 0
        self.deleted = 0
        self.missing = 0
        self.unknown = 0

    def answered(
        self, master: int, status: int, value: int, counts: bool, now_ns: int, shown: bytes = b""
    ) -> None:
        self.pending &= ~(1 << master)
        if status:
            self.deleted += 1
        elif self.asked_again >> master & 1:
            self.unknown += 1
        else:
            self.missing += 1
        if self.verdict is Verdict.OPEN:
            self.weigh(now_ns)

    def weigh(self, now_ns: int) -> None:
        if self.deleted + self.missing + self.unknown >= self._quorum or not self.pending:
            self.settle(
                Verdict.YES
                if self.deleted
                else Verdict.TAKEN
                if self.missing >= self._quorum
                else Verdict.NO_QUORUM,
                now_ns,
            )
