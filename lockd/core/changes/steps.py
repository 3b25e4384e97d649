"""The steps of a change, one after the other, and their results."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from lockd.core.validity import NS_PER_MS

Result = TypeVar("Result")

BLANK = ""
OLD = "old"
"""What a master may show instead of a digest of its members, see identify.lua."""

GLANCE_NS = 10 * NS_PER_MS
"""How often to look at a master while waiting for it."""

NO_COUNTERS: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Look at all masters again: the facts may be seconds old, and a decision needs fresh ones. A master that
    is known to be blank and may not be asked yet is waited for, as long as for a connection. The answer is
    the set of masters that answered."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write these fields of an identity and these counters (by slot; none is lowered) on this master, but
    only if it still shows what is expected. The answer is whether it was written; NotPossible if nobody
    knows."""

    master: int
    expected: str
    fields: Mapping[str, str]
    counters: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class ReadCounters:
    """The answer maps each of these masters to its counters, by slot, or to Unread."""

    masters: Sequence[int]


@dataclass(frozen=True, slots=True)
class ReadField:
    """Read a field of the identity of this master. The answer is its text, None if there is none, or
    Unread."""

    master: int
    field: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for this long."""

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
    """Forming and admitting wait for times that this host's clock can't measure now (rule 11e)."""
