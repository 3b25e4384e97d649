"""Which masters' clocks may be trusted (rule 11c).

Redis expires keys by its wall clock. A steady offset is harmless; a jump forward ends leases early. Each vote
carries the master's time, and lies between the moment the question was sent and the moment the answer came:
that bounds the master's offset from this agent's CLOCK_BOOTTIME from both sides. The lowest upper bound seen,
growing by the drift that honest clocks may have, is a floor: an offset that is certainly above it, by more
than the tolerance, is a jump. Since the floor never rises to a new sample, many small jumps are found as
surely as a large one.
"""

from collections.abc import Sequence
from statistics import median

from lockd.core.fences import SANE_MOST, largest_sane
from lockd.core.validity import DRIFT_FLOOR_NS, NS_PER_MS, settle_ns

# Faster than this is no drift of honest clocks: a master's and this host's may each be slewed by 1,000 ppm
# (rule 11e), in opposite directions.
_DRIFT_PER_MILLE = 2
# The largest jump that harms no lease: what each gives away for drift, however short it is, and whichever
# agent granted it. What longer ones give away besides is needed for what clocks drift meanwhile.
TOLERANCE_NS = DRIFT_FLOOR_NS
# Without a sample for this long a master was not watched: a jump in between can't be told from drift.
_GAP_NS = 5_000 * NS_PER_MS


NOT_WATCHED = "clock not watched yet"


class ClockWatch:
    """One master's clock as this agent sees it."""

    __slots__ = (
        "_floor_ns",
        "_low_ns",
        "_seen_at_ns",
        "jumped_ns",
        "jumps",
        "last_jump_ns",
        "offset_ns",
        "sampled_ns",
        "since_ns",
    )

    def __init__(self) -> None:
        self.sampled_ns = -1
        self.since_ns = 0
        self.jumped_ns: int | None = None
        self.offset_ns = 0
        self.jumps = 0
        self.last_jump_ns = 0
        self._floor_ns = 0
        self._low_ns = 0
        self._seen_at_ns = 0

    def observe(self, sent_ns: int, received_ns: int, master_us: int) -> bool:
        """Take the time that came with an answer. True when it changes what `Clocks.distrust` says (a new
        watch, or a jump): trust has to be weighed anew before the answer is counted."""
        lowest = master_us * 1000 - received_ns
        highest = master_us * 1000 - sent_ns
        first = self.sampled_ns < 0
        gap = not first and received_ns - self.sampled_ns > _GAP_NS
        drift = (received_ns - self._seen_at_ns) * _DRIFT_PER_MILLE // 1000
        floor, low = self._floor_ns + drift, self._low_ns - drift
        # Also after a gap: the watch begins anew, but what was known of the clock still bounds it.
        jumped = not first and lowest > floor + TOLERANCE_NS
        if jumped:
            self.jumps += 1
            self.last_jump_ns = lowest - floor
            self.jumped_ns = received_ns
        if first or gap or jumped:
            self.since_ns = received_ns
        if first or jumped:
            floor, low = highest, lowest
        self._floor_ns = floor = highest if highest < floor else floor
        # From below it is bounded in the same way. A step backwards ends no lease early: only the bound is
        # forgotten.
        self._low_ns = low = lowest if lowest > low or highest < low else low
        self._seen_at_ns = self.sampled_ns = received_ns
        # Not the middle of this sample, which a slow answer makes wide, but of all that is known.
        self.offset_ns = (low + floor) >> 1
        return first or gap or jumped


class Clocks:
    """The clocks of all masters, and which of them a vote may rest on.

    max_ttl_ms: the ceiling of the TTL; allowance_ms: how far from the median a master may be that was not
    watched for a max TTL yet.
    """

    def __init__(self, masters: int, *, max_ttl_ms: int, allowance_ms: int) -> None:
        self._quorum = masters // 2 + 1
        self._max_ttl_ms = max_ttl_ms
        self._settle_ns = settle_ns(max_ttl_ms)
        self._allowance_ns = allowance_ms * NS_PER_MS
        self.watches = [ClockWatch() for _ in range(masters)]
        self._median_ns: int | None = None

    def allow_for(self, max_ttl_ms: int) -> None:
        """Other agents may hold leases this long: it is the masters' ceiling that counts, where it is higher
        than ours. Only as long as they say so: one of them may have said too much while the others were not
        known yet."""
        self._settle_ns = settle_ns(max(self._max_ttl_ms, max_ttl_ms))

    def take_median(self, now_ns: int) -> None:
        """Of the masters that were seen lately; what was known stays when none was."""
        offsets = sorted(self._fresh_offsets(now_ns))
        if offsets:
            # Of two the lower: a clock far in the future is what hints for fences must not follow.
            self._median_ns = offsets[(len(offsets) - 1) // 2]

    def median_us(self, now_ns: int) -> int:
        """What the median of the masters' clocks shows now; 0 when none was ever seen."""
        return 0 if self._median_ns is None else (now_ns + self._median_ns) // 1000

    def largest_sane_fence(self, now_ns: int) -> int:
        """What no counter of a master can be beyond, by the median of their clocks (rule 6)."""
        return SANE_MOST if self._median_ns is None else largest_sane(self.median_us(now_ns))

    def distrust(self, master: int, now_ns: int) -> str | None:
        """Why a vote of this master doesn't count now, or None when it does."""
        watch = self.watches[master]
        if watch.sampled_ns < 0 or now_ns - watch.sampled_ns > _GAP_NS:
            return NOT_WATCHED
        if watch.jumped_ns is not None and now_ns < watch.jumped_ns + self._settle_ns:
            left_s = (watch.jumped_ns + self._settle_ns - now_ns) / 1e9
            jump_s = watch.last_jump_ns / 1e9
            return f"clock jumped forward by {jump_s:.3f} s, no vote for another {left_s:.0f} s"
        if now_ns - watch.since_ns >= self._settle_ns:
            return None
        return self._off_the_median(watch, now_ns)

    def _off_the_median(self, watch: ClockWatch, now_ns: int) -> str | None:
        offsets = self._fresh_offsets(now_ns)
        if len(offsets) < self._quorum:
            return "clock can't be compared: fewer than a quorum of masters seen"
        off_ns = watch.offset_ns - int(median(offsets))
        if abs(off_ns) <= self._allowance_ns:
            return None
        left_s = (watch.since_ns + self._settle_ns - now_ns) / 1e9
        off_s = off_ns / 1e9
        return f"clock {off_s:+.3f} s off the median of the masters, to be watched for another {left_s:.0f} s"

    def _fresh_offsets(self, now_ns: int) -> Sequence[int]:
        return [w.offset_ns for w in self.watches if w.sampled_ns >= 0 and now_ns - w.sampled_ns <= _GAP_NS]

    def off_median_us(self, master: int, now_ns: int) -> int | None:
        """How far this master's clock is from the median of those seen lately, in microseconds; None when it
        wasn't seen."""
        watch = self.watches[master]
        offsets = self._fresh_offsets(now_ns)
        if not offsets or watch.sampled_ns < 0:
            return None
        return (watch.offset_ns - int(median(offsets))) // 1000
