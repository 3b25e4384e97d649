"""A lease: what an app holds, and what this agent knows of it."""

from enum import Enum, StrEnum
from functools import lru_cache
from typing import Protocol

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.gone import Gone
from lockd.core.ballots.proof import Proof
from lockd.core.ballots.put_back import PutBack
from lockd.core.fences import BLOCK
from lockd.core.notices import Kind
from lockd.core.plain_values import is_plain
from lockd.core.turns import Job
from lockd.core.validity import NS_PER_MS, deadline_ns, drift_ns, longest_ttl_ms, notice_ns
from lockd.core.values import Bound, Refusal, Terms

MAY_BE_KEPT = b"00"


def on_masters(terms: Terms, token: bytes, mark: bytes = b"") -> bytes:
    """How a tenure reads on the masters, after its nonce and its start (if there is one): for how long agents
    that don't know the lease may extend it, and who it began for; then the mark of where it was put back;
    last, since it may have any bytes, the token that its app names it by, where that is shown.

    A session lock ends with its process, so only its own agent extends it: for all others the time is 0 ms,
    written as `MAY_BE_KEPT` where that agent may keep it without a lease. Any other time gets a 0 in front
    where another agent has extended the lease (masters/scripts/extend.lua). What one host may do to another's
    waiting is on the masters: the configuration of the other may not know of it.
    """
    kept = MAY_BE_KEPT if may_be_kept(terms) else b"0"
    text = b"%b %b" % (b"%d" % terms.max_hold_ms if terms.detached else kept, terms.owner)
    if mark:
        text += b" " + mark
    return text + b" =" + token if token else text


def may_be_kept(terms: Terms) -> bool:
    """Whether its tenure may stay without a lease. One that has an app's own value belongs to that alone."""
    return terms.keep_ms > 0 and not (terms.detached or is_plain(terms.value))


def owner_of(host: bytes, pid: int, uid: int) -> bytes:
    """A process on a host, as `Holder.owner` has it. host: has no spaces."""
    return b"%b %d %d" % (host, pid, uid)


@lru_cache(4_096)
def pid_and_uid(owner: bytes) -> tuple[int, int]:
    """The pid and uid in a name made by `owner_of`."""
    _, pid, uid = owner.split(b" ")
    return int(pid), int(uid)


class Holder(Terms, Protocol):
    """The app behind a LOCK: what it asked for, and how it is told the outcome.

    None of the methods may call back into `Locks` before it has returned: they are called in the middle of
    its work.
    """

    resource: bytes
    label: str
    ttl_ms: int
    lock_delay_ms: int
    keep_ms: int
    """How long its tenure may stay without a lease; 0: not at all."""
    give_up_ns: int | None
    """When its WAIT ends; None: it doesn't wait."""
    asked_ns: int
    pid: int
    started: int
    """With `pid`, it identifies the process: when it began, in clock ticks since boot; 0 if that can't be
    seen."""
    bound: Bound
    named: bool
    """Its `value` names this request: core/names.py."""
    notify: bool
    """It wants to hear of a loss."""
    counted: bool
    """Its refusal is the answer to a request. Otherwise it is one of many places in line that a request has
    (core/slots.py)."""

    def granted(self, lease: "Lease", now_ns: int) -> None:
        """The lease may be another holder's, if both requests have the same name."""

    def refused(self, refusal: Refusal) -> None: ...

    def renewed(self, lease: "Lease") -> None: ...

    def lost(self, lease: "Lease", reason: str) -> None: ...

    def ended(self, lease: "Lease") -> None:
        """The lease is over, in whatever way: it does not count any more."""


TURN_GRANTS = 16
"""How many leases may follow once another host waits."""
_UNRECALLED_MOST_NS = 1_000 * NS_PER_MS
"""For how long a tenure is handed on as if no other host waited. Its recalls may be lost, and are lost if its
agent can't hear notices. If nobody waits, its next turn begins at once."""
_PROVEN_LATELY_NS = 1_000 * NS_PER_MS
"""For how long after its last proof a tenure is handed on or kept without asking. It is noticed after this
time at the latest that it was taken away by force through another agent."""
_PROVEN_JUST_NOW_NS = 100 * NS_PER_MS
"""For how long after its last proof an app is told without asking that its own value still holds the lease:
any agent may have released it since (core/plain_values.py)."""
_TOGETHER_NS = 10 * NS_PER_MS
"""Renewals that are due within this time of each other go to each master in one write, and there to disk in
one."""
_LEAST_GAIN_NS = 5 * NS_PER_MS
_LEAST_NOTICE_NS = 5 * NS_PER_MS
"""The least warning of a loss that may still be averted."""


class Standing(Enum):
    HELD = "held"
    LOST = "lost"
    """Its holder was told. It is remembered until its deadline, because the holder may go on until then."""
    OVER = "over"


class Loss(StrEnum):
    """Why a lease was lost: a word for the metrics. `Lease.loss` is the sentence for the app."""

    NOT_RENEWED = "not_renewed"
    GONE = "gone"
    MAX_HOLD = "max_hold"
    FORCED = "forced"
    CLOCKS = "clocks"
    CUT_OFF = "cut_off"


class Inherited:
    """What a tenure has in addition when it was taken over from the previous agent (rule 13).

    before: the nonces that masters may still know it by. clock_lows_ns: how far their clocks were ahead of
    this host's, at least, when that was last noted. goes_on: this agent tries to prove it; otherwise it is
    left to its deadline. proof: the first one by which a quorum has gone on with it under its new nonce.
    """

    __slots__ = ("before", "clock_lows_ns", "goes_on", "proof")

    def __init__(self, before: tuple[bytes, ...], clock_lows_ns: tuple[int, ...], *, goes_on: bool) -> None:
        self.before = before
        self.clock_lows_ns = clock_lows_ns
        self.goes_on = goes_on
        self.proof: Proof | None = None


class Turn:
    """What is left of a host's turn after a recall: it hands on until a certain time, and a certain number of
    leases. recalled_ns: when the recall was heard; None: none was heard, but one may have been lost."""

    __slots__ = ("ends_ns", "grants", "recalled_ns")

    def __init__(self, ends_ns: int, recalled_ns: int | None) -> None:
        self.ends_ns = ends_ns
        self.grants = TURN_GRANTS
        self.recalled_ns = recalled_ns

    def is_over(self, now_ns: int) -> bool:
        return now_ns >= self.ends_ns or self.grants <= 0


class Tenure:
    """What the masters see of a host that has a resource: one token and one block of fences, renewed like a
    lease. Apps of the host get leases under it, one after the other. A DETACHED lease has a tenure to itself,
    which is not handed on.

    nonce: what the masters know it by; nobody else is told. shown: the token of its lease, if the masters
    show it, so that its app may name it to any agent; b'': they don't. While they do, the tenure is not
    handed on: a late command from elsewhere that names that lease must not hit the next one. began_ns: when
    it was tried for. deadline_ns: the end of its validity, as last proven by a quorum, or the moment at which
    it turned out to be gone. cut_ns: what was taken off its deadline since its last proof, because this host
    stood still or the masters' clocks were set (rule 11d). gained_ns: what the masters' clocks had gained at
    that proof. gone: masters that had it and lost it. landed: all masters that may have it. They are told of
    its release, which is worth sending until until_ns. under_way: the ballots about it that are under way.
    fences_left: of its block. lease: who has the resource now; None while it is handed on. label: the class
    of the last lease. is_over: it was given back. turn: what is left of this host's turn, since another host
    waits; None: no host is known to wait. handed_on_ns: since when it is handed on; -1: not yet. said_gone:
    what a master has said of it since its last proof was asked for.
    """

    __slots__ = (
        "_next_fence",
        "began_ns",
        "_said_gone_ns",
        "cut_ns",
        "deadline_ns",
        "extending",
        "fences_left",
        "gained_ns",
        "gone",
        "handed_on_ns",
        "inherited",
        "is_over",
        "label",
        "landed",
        "lease",
        "nonce",
        "proof",
        "proofs",
        "resource",
        "said_gone",
        "shown",
        "t1_ns",
        "terms",
        "turn",
        "under_way",
        "until_ns",
    )

    def __init__(self, attempt: Attempt, cut_ns: int = 0) -> None:
        self.resource = attempt.resource
        self.nonce = attempt.nonce
        self.terms: Terms = attempt.terms
        self.shown = attempt.shown
        self.t1_ns = attempt.t1_ns
        self.began_ns = attempt.t1_ns - cut_ns
        self.cut_ns = cut_ns
        self.deadline_ns = deadline_ns(attempt.t1_ns, attempt.ttl_ms) - cut_ns
        self.until_ns = attempt.t1_ns + attempt.ttl_ms * NS_PER_MS
        self.proof = attempt.proof
        self.gained_ns = attempt.gained_ns
        self.proofs = 0
        self.gone = Gone()
        self.landed = attempt.landed
        self.extending: Extension | None = None
        self.under_way: tuple[Extension | PutBack, ...] = ()
        self.is_over = False
        self._next_fence = 0
        self.fences_left = 0
        self.label = ""
        self.lease: Lease | None = None
        self.inherited: Inherited | None = None
        self.turn: Turn | None = None
        self.handed_on_ns = self._said_gone_ns = -1
        self.said_gone: Kind | None = None

    def is_recalled(self, now_ns: int, turn_ms: int) -> None:
        """Another host waits for it. Its turn ends this long after the first notice of that."""
        if self.turn is None:
            self.turn = Turn(now_ns + turn_ms * NS_PER_MS, now_ns)

    def is_handed_on(self, now_ns: int, turn_ms: int) -> None:
        """From one lease to the next. Its turn ends at some time, even if no recall is heard."""
        if self.turn is not None:
            self.turn.grants -= 1
        elif self.handed_on_ns < 0:
            self.handed_on_ns = now_ns
        elif now_ns >= self.handed_on_ns + _UNRECALLED_MOST_NS:
            self.turn = Turn(now_ns + turn_ms * NS_PER_MS, None)

    def has_block(self, first: int, size: int = BLOCK) -> None:
        """A quorum has reserved these fences for it (rule 6)."""
        self._next_fence, self.fences_left = first, size

    def next_fence(self) -> int:
        """No fence is given twice. There has to be one left."""
        fence = self._next_fence
        self._next_fence += 1
        self.fences_left -= 1
        return fence

    @property
    def account(self) -> str:
        """Who pays for what is asked about it."""
        return self.terms.account if self.lease is None else self.lease.holder.account

    def is_said_gone(self, kind: Kind, now_ns: int) -> None:
        """A master says that it was taken away by force, or given back through another agent: which of the
        two."""
        self.said_gone, self._said_gone_ns = kind, now_ns

    @property
    def is_held(self) -> bool:
        """It is neither given back nor, as far as is known, lost."""
        lost = self.lease is not None and self.lease.standing is not Standing.HELD
        return not self.is_over and not lost

    @property
    def is_ours(self) -> bool:
        """This agent got it granted or has proven it. A tenure that it could not prove is not renewed
        automatically. It is released only when its app says so, or when its process is dead (rule 13)."""
        return self.inherited is None or self.inherited.proof is not None

    @property
    def before(self) -> tuple[bytes, ...]:
        """The nonces that it had with earlier agents."""
        return () if self.inherited is None else self.inherited.before

    @property
    def nonces(self) -> tuple[bytes, ...]:
        """All nonces that masters may know it by."""
        return (self.nonce,) if self.inherited is None else (self.nonce, *self.inherited.before)

    @property
    def mark(self) -> bytes:
        """The number of its last proof. It is noted where the tenure is put back. Until the next proof, a
        master can tell by it that it did not have the tenure all the time, even if its answer got lost."""
        return b"p%d" % self.proofs

    @property
    def proven(self) -> int:
        """The masters that confirmed it in its last proof, including those that did so late (rule 2)."""
        return self.proof.masters

    def was_proven_lately(self, now_ns: int) -> bool:
        return now_ns - self.t1_ns <= _PROVEN_LATELY_NS

    def cut(self, cut_ns: int) -> int:
        """This much of the validity that was calculated at its last proof is missing (rule 11d). Returns how
        much of that is new."""
        by_ns = cut_ns - self.cut_ns
        self.cut_ns = cut_ns
        self.deadline_ns -= by_ns
        self.began_ns -= by_ns
        return by_ns

    def prove(self, extension: Extension, sure_until_ns: int, cut_ns: int) -> None:
        """A quorum went on with it. sure_until_ns: how much of its deadline was certain before; cut_ns: what
        is not certain of the new one."""
        proven_ns = deadline_ns(extension.t1_ns, extension.ttl_ms) - cut_ns
        self.deadline_ns = max(sure_until_ns, proven_ns)
        self.cut_ns = cut_ns
        self.t1_ns = extension.t1_ns
        self.until_ns = max(self.until_ns, extension.t1_ns + extension.ttl_ms * NS_PER_MS)
        # Another extension may have proven it since this one was asked: it is not put back where that one
        # found it.
        extension.last = self.proof
        extension.missing &= ~self.proven
        self.proof, self.gained_ns = extension.proof, extension.gained_ns
        self.proofs += 1
        if self._said_gone_ns <= self.t1_ns:
            self.said_gone = None
        if extension.hides:
            self.shown = b""
        self.gone = self.gone.after_proof(extension.t1_ns)
        self.landed |= extension.asked

    def is_asked(self, ballot: Extension | PutBack, ttl_ms: int, now_ns: int) -> None:
        """It may last this long on some master, whatever comes of this ballot. Until then a release is worth
        sending to all masters that were asked."""
        self.under_way += (ballot,)
        self.landed |= ballot.asked
        self.may_last(ttl_ms, now_ns)

    def may_last(self, ttl_ms: int, now_ns: int) -> None:
        """It may last this long from now on."""
        self.until_ns = max(self.until_ns, now_ns + ttl_ms * NS_PER_MS)

    def was_asked(self, ballot: Extension | PutBack) -> None:
        """This ballot is settled."""
        self.under_way = tuple(other for other in self.under_way if other is not ballot)


class Lease:
    """One grant of a resource.

    token: what its app names it by. It differs from every other lease's, and from its tenure's nonce, unless
    the app chose it. deadline_ns: the end of its validity, never past its tenure's. promised_ns: the latest
    end that its holder was ever told, and may still believe in. hold_until_ns: no renewal goes beyond this
    (rule 7). told: its app is known to have read of it, or has named it. outlived: its process is dead, and a
    child goes on with it. inherited: what its tenure has in addition when this lease itself was taken over,
    and not handed on since (rule 13). let_go_ns: it is given back then at the latest, because its process is
    dead, or, with ends_early, because its app said so.
    """

    __slots__ = (
        "deadline_ns",
        "ends_early",
        "fence",
        "granted_ns",
        "hold_until_ns",
        "holder",
        "inherited",
        "let_go_ns",
        "loss",
        "lost_by",
        "outlived",
        "promised_ns",
        "resource",
        "spared_until_ns",
        "standing",
        "tenure",
        "timer",
        "token",
        "told",
        "ttl_ms",
    )

    def __init__(
        self, tenure: Tenure, holder: Holder, token: bytes, fence: int, *, began_ns: int, now_ns: int
    ) -> None:
        """began_ns: the start of its TTL and its max_hold."""
        tenure.label = holder.label
        self.resource = tenure.resource
        self.tenure = tenure
        self.token = token
        self.fence = fence
        self.holder = holder
        self.ttl_ms = holder.ttl_ms
        self.granted_ns = now_ns
        self.spared_until_ns = 0
        self.deadline_ns = min(tenure.deadline_ns, deadline_ns(began_ns, holder.ttl_ms))
        self.promised_ns = self.deadline_ns
        self.hold_until_ns = began_ns + holder.max_hold_ms * NS_PER_MS
        self.standing = Standing.HELD
        self.loss = ""
        self.lost_by: Loss | None = None
        self.let_go_ns: int | None = None
        self.ends_early = False
        self.told = False
        self.outlived = False
        self.inherited: Inherited | None = None
        self.timer: Job | None = None

    @property
    def nonce(self) -> bytes:
        """What the masters know its tenure by."""
        return self.tenure.nonce

    @property
    def nonces(self) -> tuple[bytes, ...]:
        """All nonces that masters may know its tenure by."""
        return self.tenure.nonces

    @property
    def is_ours(self) -> bool:
        """As `Tenure` has it."""
        return self.tenure.is_ours

    @property
    def said_gone(self) -> Kind | None:
        """As `Tenure` has it. What was given back elsewhere has the token that masters show, or without one
        the tenure's nonce: that may have been another lease."""
        said, is_this = self.tenure.said_gone, self.token in (self.tenure.shown, self.nonce)
        return said if said is Kind.GONE or is_this else None

    @property
    def is_wanted(self) -> bool:
        """It is renewed automatically. A lease that was taken over, and whose app is not known to have read
        of it, may have no holder. It is proven for no longer than it lasts in any case, and kept until then
        for an app that names it (rule 13)."""
        was = self.inherited
        return was is None or (was.goes_on and (self.told or was.proof is None))

    @property
    def proven(self) -> int:
        """As `Tenure` has it."""
        return self.tenure.proven

    @property
    def t1_ns(self) -> int:
        """When the last proof of its tenure was asked for."""
        return self.tenure.t1_ns

    @property
    def missing_ns(self) -> int:
        """How much longer its holder may believe in it than it lasts (rule 11d)."""
        return self.promised_ns - self.deadline_ns

    def was_just_proven(self, now_ns: int) -> bool:
        """Apps may be told that it is held, though any agent may have released it since."""
        return now_ns - self.t1_ns < _PROVEN_JUST_NOW_NS

    def was_just_known(self, now_ns: int) -> bool:
        """The same for apps of one name, who share it. Under a tenure that is handed on, it may have been
        granted since the last proof."""
        return now_ns - max(self.granted_ns, self.t1_ns) < _PROVEN_JUST_NOW_NS

    def renew_at_ns(self) -> int:
        """When to renew it: with two thirds of its TTL left, whatever the app itself has extended it to, and
        together with leases that are due within a few ms of it."""
        at_ns = self.deadline_ns + drift_ns(self.ttl_ms) - self.ttl_ms * NS_PER_MS * 2 // 3
        return at_ns - at_ns % _TOGETHER_NS

    def renew_again_at_ns(self) -> int:
        """The same after a renewal. It comes a little earlier, by up to a twelfth of the TTL, and for each
        lease by a different amount. So leases that were granted or taken over together are not renewed
        together for ever."""
        early_ns = self.ttl_ms * NS_PER_MS // 12 * int(self.nonce[:2], 16) // 256
        at_ns = self.renew_at_ns() - early_ns
        return at_ns - at_ns % _TOGETHER_NS

    def lose_at_ns(self) -> int:
        """When its holder has to be told, if it could not be renewed by then (rule 12). A detached lease is
        not renewed: the only loss is that it ends earlier than its holder was told."""
        if self.holder.detached and not self.missing_ns:
            return self.deadline_ns
        return max(self.deadline_ns - notice_ns(self.ttl_ms), self.spared_until_ns)

    def extension_ttl_ms(self, wanted_ms: int, now_ns: int) -> int:
        """How much may be asked for now without passing max_hold (rule 7); 0 when there would be nothing to
        gain."""
        last_ns = self.hold_until_ns if self.told or self.is_ours else self.deadline_ns
        ttl_ms = min(wanted_ms, longest_ttl_ms(last_ns - now_ns))
        if not self.is_ours:
            return ttl_ms
        return ttl_ms if deadline_ns(now_ns, ttl_ms) > self.deadline_ns + _LEAST_GAIN_NS else 0

    def proof_ttl_ms(self, now_ns: int) -> int:
        """The time that is asked for when only its existence has to be proven: the lease gains nothing by
        it."""
        return longest_ttl_ms(self.deadline_ns - now_ns)

    def cut(self, by_ns: int, now_ns: int, patience_ns: int) -> None:
        """This much more of what was calculated at the last proof is missing (rule 11d). It is spared for
        `patience_ns`."""
        self.deadline_ns -= by_ns
        self.hold_until_ns -= by_ns
        self.granted_ns -= by_ns
        self.spare(now_ns, patience_ns)

    def spare(self, now_ns: int, patience_ns: int) -> None:
        """It may be renewed within `patience_ns`, even if its holder should have been told already. Its
        holder still learns of a loss before the deadline (rule 12)."""
        self.spared_until_ns = min(self.deadline_ns - _LEAST_NOTICE_NS, now_ns + patience_ns)

    def goes_on(self, extension: Extension, sure_until_ns: int, cut_ns: int) -> None:
        """Its tenure was proven, perhaps for another lease. sure_until_ns, cut_ns: as in `Tenure.prove`."""
        ttl_ms = min(extension.ttl_ms, self.ttl_ms)
        proven_ns = max(sure_until_ns, deadline_ns(extension.t1_ns, ttl_ms) - cut_ns)
        # Since this was asked, it may have turned out that it may be held for less long (see `cut`).
        self.deadline_ns = min(self.tenure.deadline_ns, proven_ns, self.hold_until_ns)
        # Its holder may believe in what it was told before a cut, whatever it was told since.
        self.promised_ns = max(self.promised_ns, self.deadline_ns)
