"""The place of this host among those that wait for one resource, as it is left on the masters.

Each master has its own line, by its own clock less how long a host has waited: wall clocks of hosts order
nothing. When what was held is given back, a master tells the first in its line, and reserves the resource
for it; a host tries when so many masters have told it that it can have a quorum. That notices are lost costs
no more than the back-off that stands behind them.
"""

from dataclasses import dataclass
from enum import StrEnum

from lockd.core.notices import LONGEST_GRACE_MS
from lockd.core.validity import NS_PER_MS

LEAST_GRACE_MS = 5


class Place:
    """Since when this host waits for a resource; after a turn that begins anew.

    told: the masters that said since the last try that its turn has come or comes, as bits; held: those that
    said later that another was granted it. hastened: one try was made sooner by fewer than a quorum of them,
    since the last turn that a quorum told of.
    """

    __slots__ = ("hastened", "held", "since_ns", "told")

    def __init__(self, since_ns: int) -> None:
        self.since_ns = since_ns
        self.told = self.held = 0
        self.hastened = False

    def tries(self) -> None:
        """What was said before is done with."""
        self.told = self.held = 0

    def waited_us(self, now_ns: int) -> int:
        return (now_ns - self.since_ns) // 1_000


class RecallEnd(StrEnum):
    """What came of asking whoever has a tenure whether it only keeps it."""

    GIVEN_BACK = "given_back"
    IN_USE = "in_use"
    SILENT = "silent"
    """Nobody answered in time: its agent is dead or cut off, perhaps."""


@dataclass(slots=True)
class Recall:
    """For whom doesn't wait: until when the answer of whoever has it is waited for. refused: somebody has it.
    freed: the masters that say that it was given back, as bits; in_use: one says that it is not."""

    since_ns: int
    until_ns: int
    refused: bool = False
    freed: int = 0
    in_use: bool = False


class AnswerTime:
    """How long tries take here: what a host has to be left with to use its turn."""

    __slots__ = ("_usual_ns",)

    def __init__(self) -> None:
        self._usual_ns = LONGEST_GRACE_MS * NS_PER_MS

    def took(self, ns: int) -> None:
        self._usual_ns += (ns - self._usual_ns) // 4

    @property
    def grace_ms(self) -> int:
        return min(LONGEST_GRACE_MS, LEAST_GRACE_MS + -(-2 * self._usual_ns // NS_PER_MS))
