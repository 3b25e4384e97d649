"""What core asks of the world: the masters, and who wants to know what happens. The apps are in leases.py."""

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
    """The fan-out over the masters. Each sending method returns the masters asked, as bits; every one of them
    answers its ballot once with `answered` or `unanswered`, or never: ballots have time limits of their own.
    To one master, what concerns one lease arrives in the order in which it was sent, also across a connection
    that broke (rule 3).

    before_sending: to be called before anything that was asked goes out.
    """

    before_sending: Callable[[], None]

    @property
    def agreeing(self) -> int:
        """The masters whose votes count together now, as bits, also those that voted before and are slow or
        away."""

    def voting(self) -> int:
        """The masters that have a vote now, as bits."""

    def barred_by_clock(self) -> int:
        """The masters that would have a vote, were it not for their clocks (rule 11), as bits."""

    @property
    def clocks_in_doubt(self) -> bool:
        """Some clocks have jumped, and the others are still to be heard about it (rule 11d)."""

    def why_not(self, master: int) -> str:
        """'name=reason' for a master that has no vote, or is slow."""

    def name(self, master: int) -> str: ...

    def clock_us(self, now_ns: int) -> int:
        """What the median of the masters' clocks shows, in microseconds: hints for fences are kept near it
        (rule 6)."""

    def gained_ns(self) -> tuple[int, ...]:
        """What the masters' clocks have gained on this host's so far (rule 11d): one object until that
        changes."""

    def cut_ns(self, then_ns: tuple[int, ...], proven: int) -> int:
        """By how much a lease ends earlier than was reckoned when it was proven, with clocks as they were
        then, by these masters."""

    def suspected_cut_ns(self, then_ns: tuple[int, ...], proven: int) -> int:
        """The same as far as it is not known yet, at worst."""

    def clock_lows_ns(self) -> tuple[int, ...]:
        """How far each master's clock is ahead of this host's, at least; NEVER_NS where that isn't known."""

    def gained_since_ns(self, clock_lows_ns: tuple[int, ...]) -> int | None:
        """What the clocks of a quorum have gained at most since they were as noted then, by an agent before
        this one: so long this host may have stood still meanwhile (rule 11d). None: that can't be known."""

    def stand(self, proven: int, t1_ns: int, now_ns: int) -> bool:
        """Whether a quorum of these, which said so when they were asked then, still have a vote, on the
        connection that they had then, and have answered something just now."""

    def acquire(self, attempt: Attempt) -> int: ...

    def propose(self, fence_round: FenceRound) -> int: ...

    def extend(self, extension: Extension) -> int: ...

    def put_back(self, put_back: PutBack, masters: int) -> int:
        """Of these masters, those that are asked for votes now."""

    def release(self, release: Release, masters: int) -> int:
        """To these masters now, or when they can be reached again, until `release.until_ns`; one by the word
        of an app only to those that can be reached."""


class Journal(Protocol):
    """What is noted of leases for the next agent on this host (rule 13), each at once; but for what is ending
    or done with, which may be noted with what comes next, or by `keep_up`. No lease that is DETACHED is
    noted: the masters know all of it. clock_lows_ns: as `Masters` has them."""

    def held(self, lease: Lease, clock_lows_ns: tuple[int, ...]) -> None:
        """It is about to be handed out, or to be taken over. If there was one before it under the same
        tenure, that one is over."""

    def moved(self, lease: Lease, clock_lows_ns: tuple[int, ...]) -> None:
        """It was proven again, was lost, or its process has died."""

    def told(self, lease: Lease) -> None:
        """Its app is known to have read of it."""

    def ending(self, tenure: Tenure) -> None:
        """Its release is about to be sent, or it is nobody's just now."""

    def still_ending(self, ending: Ending) -> None:
        """The release of a lease of the agent before is about to be sent once more."""

    def ended(self, nonce: bytes) -> None:
        """Nothing has to be done about it any more."""

    def keep_up(self) -> None:
        """Releases are about to be sent: those that are not noted yet are."""


class Watcher(Protocol):
    """Who wants to know what happens (metrics, logs). Nothing depends on it."""

    def granted(self, lease: Lease, waited_ns: int) -> None: ...

    def refused(self, label: str, refusal: Refusal, waited_ns: int) -> None: ...

    def lost(self, lease: Lease, reason: str) -> None: ...

    def released(self, lease: Lease, why: str, now_ns: int) -> None: ...

    def taken_over(self, lease: Lease) -> None:
        """From the agent before: it is held here from now on."""

    def renewed(self, lease: Lease, worked: bool) -> None: ...

    def fence_round(self) -> None: ...

    def tried_in_vain(self, label: str, code: ErrorWord) -> None:
        """All masters were asked for a tenure, and it was not had."""

    def handed_on(self, lease: Lease) -> None:
        """It is about to be granted under the tenure of the one before."""

    def turn_over(self, label: str, took_ns: int) -> None:
        """Another host waits for what was in use here, and it is given back, so long behind the recall."""

    def asked_back(self, label: str, end: RecallEnd, took_ns: int) -> None:
        """What came of a LOCK without WAIT that met another host's tenure."""

    def kept_no_more(self, label: str, why: KeptEnd, for_ns: int) -> None:
        """A tenure of this class stayed for so long, though nobody had it."""
