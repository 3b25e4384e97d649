"""The place of this host among those that wait for one resource, as it is left on the masters.

Each master has a separate line. It is sorted by the master's clock minus the time that a host has waited:
wall clocks of hosts don't count. When the resource is given back, a master tells the first in its line, and
reserves the resource for it. A host tries when enough masters have told it that it can get a quorum. A lost
notice costs at most the back-off that would follow anyway.
"""

from dataclasses import dataclass
from enum import StrEnum

from lockd.core.notices import LONGEST_GRACE_MS
from lockd.core.validity import NS_PER_MS

LEAST_GRACE_MS = 5


class Place:
    """Since when this host waits for a resource; after a turn that begins again.

    told: the masters that said since the last try that its turn has come or is coming, as bits. held: those
    that said later that another was granted it. hastened: one try was made sooner because fewer than a quorum
    said so, since the last turn that a quorum told of.
    """

    __slots__ = ("hastened", "held", "since_ns", "told")

    def __init__(self, since_ns: int) -> None:
        self.since_ns = since_ns
        self.told = self.held = 0
        self.hastened = False

    def tries(self) -> None:
        """Earlier notices do not count any more."""
        self.told = self.held = 0

    def waited_us(self, now_ns: int) -> int:
        return (now_ns - self.since_ns) // 1_000


class RecallEnd(StrEnum):
    """The outcome of asking the agent that has a tenure whether it only keeps it."""

    GIVEN_BACK = "given_back"
    IN_USE = "in_use"
    SILENT = "silent"
    """There was no answer in time: its agent may be dead or cut off."""


@dataclass(slots=True)
class Recall:
    """For requests that don't wait: until_ns is how long the answer of the agent that has the resource is
    waited for. refused: a master said that it is taken. freed: the masters that say that it was given back,
    as bits; in_use: one says that it is not."""

    since_ns: int
    until_ns: int
    refused: bool = False
    freed: int = 0
    in_use: bool = False


class AnswerTime:
    """How long tries take here: a host needs that much time to use its turn."""

    __slots__ = ("_usual_ns",)

    def __init__(self) -> None:
        self._usual_ns = LONGEST_GRACE_MS * NS_PER_MS

    def took(self, ns: int) -> None:
        self._usual_ns += (ns - self._usual_ns) // 4

    @property
    def grace_ms(self) -> int:
        return min(LONGEST_GRACE_MS, LEAST_GRACE_MS + -(-2 * self._usual_ns // NS_PER_MS))
