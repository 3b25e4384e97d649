"""What a change has done, one thing after the other, and what comes of it."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from lockd.core.validity import NS_PER_MS

Result = TypeVar("Result")

BLANK = ""
OLD = "old"
"""What a master shows in the place of a digest of its members, see identify.lua."""

GLANCE_NS = 10 * NS_PER_MS
"""How often a master that is waited for is looked at."""

NO_COUNTERS: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Look at all masters again: the facts may be seconds old, and what is decided now rests on fresh ones.
    One that is known to be blank and may not be asked yet is waited for, as long as for a connection. The
    answer is those that answered."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write these words of an identity and these counters (by slot; none is lowered) on this master, only
    where it still shows what is expected. The answer is whether it did; NotPossible where nobody knows."""

    master: int
    expected: str
    fields: Mapping[str, str]
    counters: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class ReadCounters:
    """The answer is a mapping of each of these masters to its counters, by slot, or to Unread."""

    masters: Sequence[int]


@dataclass(frozen=True, slots=True)
class ReadField:
    """Of the identity of this master. The answer is its text, None where it has none, or Unread."""

    master: int
    field: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so long."""

    for_ns: int


@dataclass(frozen=True, slots=True)
class Unread:
    """Why a master did not say what was asked."""

    why: str


Step = LookAgain | Write | ReadCounters | ReadField | Pause
Steps = Generator[Step, Any, Result]


@dataclass(frozen=True, slots=True)
class Progress:
    """status: 'formed', 'admitted', 'updated', 'recovered', 'upgraded', 'already', or 'waiting': ask
    again."""

    status: str
    remaining_ms: int = 0
    total_ms: int = 0


class NotPossible(Exception):
    """Why a master can't be formed or admitted now, and what to do."""


class OwnClockIsWrong(Exception):
    """Forming and admitting wait for what this host's clock can't measure (rule 11e)."""
