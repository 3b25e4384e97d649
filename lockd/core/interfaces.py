"""What core needs from outside: the masters, and listeners that want to know what happens. The apps are in
leases.py."""

from collections.abc import Callable
from typing import Protocol

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.ballots.put_back import PutBack
from lockd.core.ballots.release import Release
from lockd.core.errors import ErrorWord
from lockd.core.journal import Ending
from lockd.core.leases import Lease, Tenure
from lockd.core.queues import KeptEnd
from lockd.core.tenures.places import RecallEnd
from lockd.core.values import Refusal


class Masters(Protocol):
    """The fan-out over the masters. Each sending method returns the masters that it asked, as bits. Each of
    them answers its ballot once, with `answered` or `unanswered`, or never: a ballot has its own time limit.
    On one master, requests about one lease arrive in the order in which they were sent, even across a broken
    connection (rule 3).

    before_sending: called before any request goes out. answer_ns: how long it takes here to hear one of their
    answers. refusing_extensions: those that answer each extension with an error, as far as is known, as bits.
    """

    before_sending: Callable[[], None]
    answer_ns: int
    refusing_extensions: int

    @property
    def agreeing(self) -> int:
        """The masters whose votes count together now, as bits. It includes those that voted before and are
        slow or away."""

    def voting(self) -> int:
        """The masters that have a vote now, as bits."""

    def barred_by_clock(self) -> int:
        """The masters that have no vote only because of their clocks (rule 11), as bits."""

    @property
    def clocks_in_doubt(self) -> bool:
        """Some clocks have jumped, and other masters have not been heard about it yet (rule 11d)."""

    def why_not(self, master: int) -> str:
        """'name=reason' for a master that has no vote, or is slow."""

    def name(self, master: int) -> str: ...

    def clock_us(self, now_ns: int) -> int:
        """The median of the masters' clocks, in microseconds: hints for fences stay near it (rule 6)."""

    def gained_ns(self) -> tuple[int, ...]:
        """What the masters' clocks have gained on this host's so far (rule 11d). It stays the same object
        until it changes."""

    def cut_ns(self, then_ns: tuple[int, ...], proven: int) -> int:
        """How much earlier a lease ends than was calculated when these masters proved it, with clocks as they
        were then."""

    def suspected_cut_ns(self, then_ns: tuple[int, ...], proven: int) -> int:
        """The same at worst, as long as it is not known exactly."""

    def clock_lows_ns(self) -> tuple[int, ...]:
        """How far each master's clock is ahead of this host's, at least; NEVER_NS where that isn't known."""

    def gained_since_ns(self, clock_lows_ns: tuple[int, ...]) -> int | None:
        """How much the clocks of a quorum have gained, at most, since an earlier agent noted these values:
        this host may have stood still for that long (rule 11d). None: that can't be known."""

    def stand(self, proven: int, t1_ns: int, now_ns: int) -> bool:
        """Whether a quorum of these masters, which said yes when they were asked then, still have a vote on
        the same connection, and have answered something just now."""

    def acquire(self, attempt: Attempt) -> int: ...

    def propose(self, fence_round: FenceRound) -> int: ...

    def extend(self, extension: Extension) -> int: ...

    def put_back(self, put_back: PutBack, masters: int) -> int:
        """Those of these masters that are asked for votes now."""

    def release(self, release: Release, masters: int) -> int:
        """To these masters now, or when they can be reached again, until `release.until_ns`. A release that
        an app asked for by value goes only to those that can be reached."""


class Journal(Protocol):
    """The notes about leases for the next agent on this host (rule 13). Each is made at once, except that a
    lease is ending or done with: that may be noted with the next record, or by `keep_up`. DETACHED leases are
    not noted: the masters know all about them. clock_lows_ns: as `Masters` has them."""

    def held(self, lease: Lease, clock_lows_ns: tuple[int, ...]) -> None:
        """It is about to be handed out or taken over. A lease before it under the same tenure is over."""

    def moved(self, lease: Lease, clock_lows_ns: tuple[int, ...]) -> None:
        """It was proven again or lost, or its process has died."""

    def told(self, lease: Lease) -> None:
        """Its app is known to have read of it."""

    def ending(self, tenure: Tenure) -> None:
        """Its release is about to be sent, or nobody has it just now."""

    def still_ending(self, ending: Ending) -> None:
        """A release of the previous agent is about to be sent once more."""

    def ended(self, nonce: bytes) -> None:
        """Nothing more has to be done about it."""

    def keep_up(self) -> None:
        """Releases are about to be sent: note those that are not noted yet."""


class Watcher(Protocol):
    """Listeners that want to know what happens (metrics, logs). Nothing depends on them."""

    def granted(self, lease: Lease, waited_ns: int) -> None: ...

    def refused(self, label: str, refusal: Refusal, waited_ns: int) -> None: ...

    def lost(self, lease: Lease, reason: str) -> None: ...

    def released(self, lease: Lease, why: str, now_ns: int) -> None: ...

    def taken_over(self, lease: Lease) -> None:
        """It comes from the previous agent, and is held here from now on."""

    def renewed(self, lease: Lease, worked: bool) -> None: ...

    def fence_round(self) -> None: ...

    def tried_in_vain(self, label: str, code: ErrorWord) -> None:
        """All masters were asked for a tenure, without success."""

    def handed_on(self, lease: Lease) -> None:
        """It is about to be granted under the tenure of the lease before it."""

    def turn_over(self, label: str, took_ns: int) -> None:
        """A resource in use here is given back because another host waits for it, this long after the
        recall."""

    def asked_back(self, label: str, end: RecallEnd, took_ns: int) -> None:
        """The outcome of a LOCK without WAIT that met another host's tenure."""

    def kept_no_more(self, label: str, why: KeptEnd, for_ns: int) -> None:
        """A tenure of this class was kept for this long without a lease."""
