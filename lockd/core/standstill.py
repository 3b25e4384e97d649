"""Clocks of masters seem to jump forward: did they, or did this host stand still (rule 11d)?

A virtual machine that is paused, moved or restored does not count that time, not even on CLOCK_BOOTTIME. To
it, the clocks of all masters have jumped by the same amount. Their answers come one after the other, so the
first jump looks the same as if that master's clock had been set. There is a doubt until all masters that were
heard lately are heard again. Meanwhile the worst of both is assumed: no master that jumped has a vote, and
deadlines are calculated as if all had jumped.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Gain:
    """How much a master's clock has gained on this host's, at least and at most."""

    least_ns: int = 0
    most_ns: int = 0

    def add(self, least_ns: int, most_ns: int) -> None:
        self.least_ns += least_ns
        self.most_ns += most_ns

    def may_equal(self, other: "Gain") -> bool:
        return self.least_ns <= other.most_ns and other.least_ns <= self.most_ns


@dataclass(slots=True)
class Doubt:
    """Which masters have jumped since this began (`jumped`), which certainly have not (`steady`), and which
    were heard before but not since (`unheard`), the last two as bits. until_ns: masters that are silent until
    then are not waited for."""

    until_ns: int = 0
    jumped: dict[int, Gain] = field(default_factory=dict)
    steady: int = 0
    unheard: int = 0

    @property
    def most_ns(self) -> int:
        return max(gain.most_ns for gain in self.jumped.values())

    def may_have_gained_ns(self, master: int) -> int:
        """How much this master may have gained in addition to what is known."""
        if not self.unheard >> master & 1:
            return 0
        known = self.jumped.get(master)
        return self.most_ns - (0 if known is None else known.most_ns)

    def is_over(self, now_ns: int) -> bool:
        return not self.unheard or now_ns >= self.until_ns

    def stood_still(self, quorum: int) -> Gain | None:
        """How long this host stood still: all masters that were heard, and at least a quorum, have jumped by
        the same amount. None when it did not: then the clocks that seemed to jump really did."""
        if self.steady or len(self.jumped) < quorum:
            return None
        least_ns = max(gain.least_ns for gain in self.jumped.values())
        most_ns = min(gain.most_ns for gain in self.jumped.values())
        return Gain(least_ns, most_ns) if least_ns <= most_ns else None
