"""How much each figure may be at most, and why.

The promises are those of the design: nobody's lease is lost because of another's greed; a modest user's
request begins within 20 ms; nobody below its floor is refused. Times are bounds of Python that is
interpreted, on two processors which agent, masters, attackers and victims share: they are generous, and what
the row `nothing` takes in the same run comes on top, so that a busy machine is not taken for an attack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Bound:
    """figure: its name in the figures of a row. beside: the figure of `nothing` is added to `most`."""

    figure: str
    most: float
    why: str
    beside: bool = False

    def limit(self, nothing: Mapping[str, float]) -> float:
        return self.most + (nothing.get(self.figure, 0.0) if self.beside else 0.0)

    def broken_by(self, figures: Mapping[str, float], nothing: Mapping[str, float]) -> bool:
        """What was not measured holds no bound."""
        found = figures.get(self.figure)
        return found is None or not found <= self.limit(nothing)

    def told(self, figures: Mapping[str, float], nothing: Mapping[str, float]) -> str:
        found = figures.get(self.figure)
        shown = "not measured" if found is None else f"{found:.4g}"
        return f"{self.figure} {shown} > {self.limit(nothing):.4g}"


NO_LOSS = Bound("lost", 0, "nobody's lease is lost because of another's greed")
NO_FAILURE = Bound("failed", 0, "nobody below its floor is refused, and no outage is made of greed")
PAIR_P99 = Bound(
    "pair_p99", 60, "ms: two requests that begin within 20 ms each, and 20 for the line to the masters", True
)
PING_P99 = Bound("ping_p99", 30, "ms: it begins within 20 ms, and 10 until a busy processor runs it", True)

ONE_GREEDY_MIB = 420
"""What one user may hold of the bytes: a third of what all have. That is ¾ of MemoryMax (1.75 GiB where
nothing else is said) less 64 MiB."""
SLACK_MIB = 16
"""Pages that an allocator keeps partly used, and what an agent loads when it is first asked for it."""


def memory_held(mib: float, what: str) -> Bound:
    """mib: what the attack may hold, by the sizes that were measured; half again for what is on its way."""
    most = min(mib * 1.5, ONE_GREEDY_MIB) + SLACK_MIB
    return Bound("rss_grown", most, f"MiB: {what}, half again, and never more than a third of all bytes")


NOTHING_LEFT = Bound(
    "rss_left",
    SLACK_MIB,
    "MiB: the same, done again, finds its pages there; what comes on top was left behind",
)
"""For attacks that come again. After the first time, an allocator keeps most of its pages."""


EVERYWHERE: Sequence[Bound] = (NO_LOSS, NO_FAILURE, PAIR_P99, PING_P99)


def broken(bounds: Sequence[Bound], figures: Mapping[str, float], nothing: Mapping[str, float]) -> list[str]:
    return [bound.told(figures, nothing) for bound in bounds if bound.broken_by(figures, nothing)]
