"""Which masters' clocks may be trusted (rule 11c), and what they have gained on this host's (rule 11d).

Redis expires keys by its wall clock. A steady offset is harmless; a jump forward ends leases early. Each vote
carries the master's time, which was read between the sending of the question and the arrival of the answer.
That bounds the master's offset from this agent's CLOCK_BOOTTIME from both sides. The lowest upper bound seen,
growing by the drift that sound clocks may have, is a floor. An offset that is certainly above the floor, by
more than the tolerance, is a jump. Since a new sample never raises the floor, many small jumps are found as
surely as a large one.
"""

from collections.abc import Sequence
from statistics import median

from lockd.build import mypyc_attr
from lockd.core.fences import SANE_MOST, largest_sane
from lockd.core.standstill import Doubt, Gain
from lockd.core.validity import DRIFT_FLOOR_NS, NEVER_NS, NS_PER_MS, settle_ns
from lockd.core.values import quorum_of

# More than this is not drift of sound clocks: a master's and this host's may each be slewed by 1,000 ppm
# (rule 11e), in opposite directions.
_DRIFT_PER_MILLE = 2
# The largest jump that harms no lease: every lease gives away this much for drift, however short it is and
# whichever agent granted it. Longer leases give away more, but need that for the drift of their longer time.
TOLERANCE_NS = DRIFT_FLOOR_NS
# A master without a sample for this long was not watched: a jump in between can't be told from drift.
_GAP_NS = 5_000 * NS_PER_MS

NOT_WATCHED = "clock not watched yet"


class Jump:
    """A jump that was seen: its bounds, and what was known of that clock before it."""

    __slots__ = ("gain", "jumped_ns", "since_ns")

    def __init__(self, gain: Gain, jumped_ns: int | None, since_ns: int) -> None:
        self.gain = gain
        self.jumped_ns = jumped_ns
        self.since_ns = since_ns


@mypyc_attr(allow_interpreted_subclasses=True)
class ClockWatch:
    """One master's clock as this agent sees it.

    gained_ns: the sum of its jumps forward, each at its upper bound. asked_from_ns: an answer to a question
    sent after this time may show that the clock did not jump by `asked_gain_ns`, as others did; `NEVER_NS`
    once it has shown it. low_ns: how far the clock is ahead of this host's, at least; NEVER_NS until it was
    heard. jump: a jump that `Clocks` has not looked at yet. jumps: how many were not caused by this host
    standing still.
    """

    __slots__ = (
        "_floor_ns",
        "asked_from_ns",
        "asked_gain_ns",
        "gained_ns",
        "jump",
        "jumped_ns",
        "jumps",
        "last_jump_ns",
        "low_ns",
        "sampled_ns",
        "since_ns",
    )

    def __init__(self) -> None:
        self.sampled_ns = -1
        self.since_ns = 0
        self.jumped_ns: int | None = None
        self.jumps = 0
        self.last_jump_ns = 0
        self.gained_ns = 0
        self.jump: Jump | None = None
        self.asked_from_ns = NEVER_NS
        self.asked_gain_ns = 0
        self._floor_ns = 0
        self.low_ns = NEVER_NS

    def observe(self, sent_ns: int, received_ns: int, master_us: int) -> bool:
        """Take the time that came with an answer. True when this changes what `Clocks.distrust` says (a new
        watch, or a jump): then trust has to be weighed again before the answer is counted."""
        lowest = master_us * 1000 - received_ns
        highest = master_us * 1000 - sent_ns
        if self.sampled_ns < 0:
            self._begin(lowest, highest, received_ns)
            return True
        unseen_ns = received_ns - self.sampled_ns
        drift = unseen_ns * _DRIFT_PER_MILLE // 1000
        floor, low = self._floor_ns + drift, self.low_ns - drift
        # Also after a gap: the watch begins again, but what was known of the clock still bounds it.
        jumped, gap = lowest > floor + TOLERANCE_NS, unseen_ns > _GAP_NS
        told = sent_ns > self.asked_from_ns and (jumped or highest < low + self.asked_gain_ns)
        if told:
            self.asked_from_ns = NEVER_NS
        if jumped or gap:
            if jumped:
                self._has_jumped(lowest - floor, highest - low, received_ns, gap)
                floor, low = highest, lowest
            self.since_ns = received_ns
        if highest < floor:
            floor = highest
        # The lower bound works in the same way. A step backwards ends no lease early, so only the bound is
        # forgotten.
        if lowest > low or highest < low:
            low = lowest
        self._floor_ns, self.low_ns, self.sampled_ns = floor, low, received_ns
        return jumped or gap or told

    def _begin(self, lowest: int, highest: int, received_ns: int) -> None:
        self.low_ns, self._floor_ns = lowest, highest
        self.since_ns = self.sampled_ns = received_ns

    def _has_jumped(self, least_ns: int, most_ns: int, now_ns: int, gap: bool) -> None:
        # A late answer that hid a part of the jump may have raised the lower bound, to the tolerance above
        # the upper bound at most.
        most_ns += TOLERANCE_NS
        before = self.jump
        if before is None:
            since_ns = now_ns if gap else self.since_ns
            self.jump = Jump(Gain(least_ns, most_ns), self.jumped_ns, since_ns)
        else:
            before.gain.add(least_ns, most_ns)
        self.last_jump_ns = least_ns
        self.jumped_ns = now_ns
        self.gained_ns += most_ns

    @property
    def offset_ns(self) -> int:
        """How far it is ahead of this host's clock: the middle of all that is known, not of the last sample,
        which a slow answer makes wide."""
        return (self.low_ns + self._floor_ns) >> 1 if self.is_known else 0

    @property
    def is_known(self) -> bool:
        return self.sampled_ns >= 0

    @property
    def high_ns(self) -> int:
        """How far it is ahead of this host's clock, at most."""
        return self._floor_ns

    def watched(self, now_ns: int) -> bool:
        """Whether a sample of it came lately."""
        return self.is_known and now_ns - self.sampled_ns <= _GAP_NS

    def ask(self, now_ns: int, gain_ns: int) -> None:
        self.asked_from_ns, self.asked_gain_ns = now_ns, gain_ns

    def did_not_jump(self, before: Jump) -> None:
        """This host stood still instead."""
        self.jumped_ns, self.since_ns = before.jumped_ns, before.since_ns

    def host_stood_still(self, gain: Gain) -> None:
        """This clock was not heard since, and will show the same gain."""
        self.gained_ns += gain.most_ns
        self.low_ns += gain.least_ns
        self._floor_ns += gain.most_ns


class Clocks:
    """The clocks of all masters, and which of them a vote may rest on.

    max_ttl_ms: the ceiling of the TTL. allowance_ms: how far from the median a master may be that was not yet
    watched for a max TTL.
    """

    def __init__(self, masters: int, *, max_ttl_ms: int, allowance_ms: int) -> None:
        self.quorum = quorum_of(masters)
        self._max_ttl_ms = max_ttl_ms
        self._settle_ns = settle_ns(max_ttl_ms)
        self._allowance_ns = allowance_ms * NS_PER_MS
        self.watches = [ClockWatch() for _ in range(masters)]
        self._median_ns: int | None = None
        self._doubt: Doubt | None = None
        self._before: dict[int, Jump] = {}
        self.gained_ns: tuple[int, ...] = (0,) * masters
        """What each master's clock has gained on this host's so far. It stays the same object until it
        changes."""
        self.standstills = 0
        self.stood_still_ns = 0

    def allow_for(self, max_ttl_ms: int) -> None:
        """Other agents may hold leases this long, so the masters' ceiling counts where it is higher than
        ours. It counts only while masters say so: one master may have said too much while the others were not
        known yet."""
        self._settle_ns = settle_ns(max(self._max_ttl_ms, max_ttl_ms))

    def wait_anew(self, now_ns: int) -> None:
        """This host's clock is slewed too fast (rule 11e), and may show too early that a max TTL has passed.
        Waits for that begin again; waits that were over stay over."""
        for watch in self.watches:
            if self._barred(watch.jumped_ns, now_ns):
                watch.jumped_ns = now_ns
            if now_ns - watch.since_ns < self._settle_ns:
                watch.since_ns = now_ns

    # Who jumped

    @property
    def in_doubt(self) -> bool:
        """Whether more masters have to be heard before it is known which clock jumped."""
        return self._doubt is not None

    def look_into_jumps(self, now_ns: int) -> None:
        """Call it when a watch has seen something, and now and then."""
        for master, watch in enumerate(self.watches):
            if watch.jump is not None:
                jump, watch.jump = watch.jump, None
                if self._says_something(master, jump, now_ns):
                    self._doubt_anew(master, jump, now_ns)
                else:
                    watch.jumps += 1
        if self._doubt is not None:
            self._hear(self._doubt, now_ns)
        gained_ns = tuple(watch.gained_ns for watch in self.watches)
        if gained_ns != self.gained_ns:
            self.gained_ns = gained_ns

    def _says_something(self, master: int, jump: Jump, now_ns: int) -> bool:
        """A clock that jumped before is known for that: it says nothing about this host, and can't put others
        in doubt."""
        return master in self._before or not self._barred(jump.jumped_ns, now_ns)

    def _barred(self, jumped_ns: int | None, now_ns: int) -> bool:
        return jumped_ns is not None and now_ns < jumped_ns + self._settle_ns

    def _doubt_anew(self, master: int, jump: Jump, now_ns: int) -> None:
        if self._doubt is not None and self._doubt.steady >> master & 1:
            # It was not this clock before, so this is another event.
            self._end(self._doubt)
        doubt = self._doubt = self._doubt or Doubt()
        self._before.setdefault(master, jump)
        if master not in doubt.jumped:
            # Not for a clock that jumps over and over: it would keep the doubt open for ever.
            doubt.until_ns = now_ns + _GAP_NS
        gain = doubt.jumped.setdefault(master, Gain())
        gain.add(jump.gain.least_ns, jump.gain.most_ns)
        doubt.unheard &= ~(1 << master)
        self.watches[master].asked_from_ns = NEVER_NS
        for other, watch in enumerate(self.watches):
            if other != master and watch.watched(now_ns) and self._has_a_say(other, gain, now_ns):
                self._ask(doubt, other, gain.least_ns, now_ns)

    def _ask(self, doubt: Doubt, other: int, gain_ns: int, now_ns: int) -> None:
        """A master that was asked already has to show this larger gain, but isn't asked again: the next jump
        may come before its answer, again and again."""
        watch, bit = self.watches[other], 1 << other
        if doubt.unheard & bit:
            watch.asked_gain_ns = max(watch.asked_gain_ns, gain_ns)
        else:
            doubt.unheard |= bit
            watch.ask(now_ns, gain_ns)

    def _has_a_say(self, other: int, gain: Gain, now_ns: int) -> bool:
        """Whether it should be heard about a gain that another clock showed. No master is asked twice because
        of a clock that jumps over and over."""
        assert self._doubt is not None
        jumped = self._doubt.jumped.get(other)
        if jumped is not None:
            return not jumped.may_equal(gain)
        if self._doubt.steady >> other & 1:
            return False
        return not self._barred(self.watches[other].jumped_ns, now_ns)

    def _hear(self, doubt: Doubt, now_ns: int) -> None:
        for master, watch in enumerate(self.watches):
            if doubt.unheard >> master & 1 and watch.asked_from_ns == NEVER_NS:
                doubt.unheard &= ~(1 << master)
                if master not in doubt.jumped:
                    doubt.steady |= 1 << master
        if doubt.is_over(now_ns):
            self._end(doubt)

    def _end(self, doubt: Doubt) -> None:
        still = doubt.stood_still(self.quorum)
        if still is not None:
            self._stood_still(doubt, still)
        else:
            for master in doubt.jumped:
                self.watches[master].jumps += 1
        for watch in self.watches:
            watch.asked_from_ns = NEVER_NS
        self._doubt = None
        self._before.clear()

    def _stood_still(self, doubt: Doubt, still: Gain) -> None:
        """No master is distrusted for it, neither those that were heard nor those that will be heard
        later."""
        self.standstills += 1
        self.stood_still_ns += still.least_ns
        for master, watch in enumerate(self.watches):
            if master in doubt.jumped:
                watch.did_not_jump(self._before[master])
            elif watch.is_known:
                watch.host_stood_still(still)

    # What jumps cost

    def cut_ns(self, then_ns: tuple[int, ...], proven: int) -> int:
        """How much earlier a lease ends than was calculated, because clocks have gained on this host's.

        then_ns: `gained_ns` when it was proven; proven: by which masters, as bits. On each of them it ends
        earlier by what that master's clock has gained since, and it is valid while a quorum has it. So the
        cut is the same whether this host stood still or the clocks of enough masters were set.
        """
        if then_ns is self.gained_ns:
            return 0
        return self._quorum_has_lost(
            [now - then for m, (now, then) in enumerate(zip(self.gained_ns, then_ns, strict=True))
             if proven >> m & 1]
        )  # fmt: skip

    def suspected_cut_ns(self, then_ns: tuple[int, ...], proven: int) -> int:
        """The same, assuming that all masters that are not heard yet have gained what the others have.
        Nothing is granted or extended for longer than that."""
        doubt = self._doubt
        if doubt is None:
            return self.cut_ns(then_ns, proven)
        return self._quorum_has_lost(
            [now - then + doubt.may_have_gained_ns(m)
             for m, (now, then) in enumerate(zip(self.gained_ns, then_ns, strict=True)) if proven >> m & 1]
        )  # fmt: skip

    def lows_ns(self) -> tuple[int, ...]:
        """How far each clock is ahead of this host's, at least: for the next agent here."""
        return tuple([watch.low_ns for watch in self.watches])

    def gained_since_ns(self, lows_ns: tuple[int, ...]) -> int | None:
        """What the clocks of a quorum have gained, at most, since an earlier agent noted these values."""
        gains_ns = [
            max(0, watch.high_ns - low_ns)
            for watch, low_ns in zip(self.watches, lows_ns, strict=True)
            if watch.is_known and low_ns != NEVER_NS
        ]
        return self._quorum_has_lost(gains_ns) if len(gains_ns) >= self.quorum else None

    def _quorum_has_lost(self, gains_ns: list[int]) -> int:
        return sorted(gains_ns)[self.quorum - 1] if len(gains_ns) >= self.quorum else 0

    # Their time

    def take_median(self, now_ns: int) -> None:
        """The median over the masters that were seen lately. If there are none, the last one stays."""
        offsets = sorted(self._fresh_offsets(now_ns))
        if offsets:
            # The lower one of two: hints for fences must not follow a clock that is far in the future.
            self._median_ns = offsets[(len(offsets) - 1) // 2]

    def median_us(self, now_ns: int) -> int:
        """What the median of the masters' clocks shows now; 0 when none was ever seen."""
        return 0 if self._median_ns is None else (now_ns + self._median_ns) // 1000

    def largest_sane_fence(self, now_ns: int) -> int:
        """The largest value that a master's counter can have, judged by the median of the clocks (rule 6)."""
        return SANE_MOST if self._median_ns is None else largest_sane(self.median_us(now_ns))

    def distrust(self, master: int, now_ns: int) -> str | None:
        """Why a vote of this master doesn't count now, or None when it does."""
        watch = self.watches[master]
        if not watch.watched(now_ns):
            return NOT_WATCHED
        if watch.jumped_ns is not None and self._barred(watch.jumped_ns, now_ns):
            left_s = (watch.jumped_ns + self._settle_ns - now_ns) / 1e9
            jump_s = watch.last_jump_ns / 1e9
            return f"clock jumped forward by {jump_s:.3f} s, no vote for another {left_s:.0f} s"
        if now_ns - watch.since_ns >= self._settle_ns:
            return None
        return self._off_the_median(watch, now_ns)

    def _off_the_median(self, watch: ClockWatch, now_ns: int) -> str | None:
        offsets = self._fresh_offsets(now_ns)
        if len(offsets) < self.quorum:
            return "clock can't be compared: fewer than a quorum of masters seen"
        off_ns = watch.offset_ns - int(median(offsets))
        if abs(off_ns) <= self._allowance_ns:
            return None
        left_s = (watch.since_ns + self._settle_ns - now_ns) / 1e9
        off_s = off_ns / 1e9
        return f"clock {off_s:+.3f} s off the median of the masters, watched for another {left_s:.0f} s"

    def _fresh_offsets(self, now_ns: int) -> Sequence[int]:
        return [watch.offset_ns for watch in self.watches if watch.watched(now_ns)]

    def off_median_us(self, master: int, now_ns: int) -> int | None:
        """How far this master's clock is from the median of those seen lately, in microseconds; None when it
        wasn't seen."""
        watch = self.watches[master]
        offsets = self._fresh_offsets(now_ns)
        if not offsets or watch.sampled_ns < 0:
            return None
        return (watch.offset_ns - int(median(offsets))) // 1000
