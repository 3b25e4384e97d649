"""Admitting a blank master, step by step (rule 8): what is written where, and what is waited for.

1. Its name gets a new admission number, on a quorum of the other masters. From then on the machine of the
   old number and the masters that don't know of the new one are fewer than a quorum: no grant and no
   extension rests on the old machine any more, whoever still asks it.
2. A max TTL passes: what the old machine, or this one before it was wiped, helped to grant is over.
3. It gets the largest fence counters of those that show its number, and then its identity.

Why the counters come from *those*: a quorum that granted with the old machine shares a master with them, and
had its vote before it was told the number, so before its counters were read.

Each agent that begins takes a number of its own, above all that were used before. So it may be interrupted
anywhere, and begun anew by any agent; meanwhile nobody loses a vote by it. An agent that has seen another
begin lets that one finish: else two that are asked in turn would begin anew for ever. How often they are
asked nobody knows, so it is given as long again as all this has gone on already: who outbids whom happens at
longer and longer intervals, until one is asked again within its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lockd.core.identities import Identity, Members
from lockd.core.membership import Wait, wait_for_blank
from lockd.core.validity import NS_PER_S


@dataclass(frozen=True, slots=True)
class Numbered:
    """That this agent has written the number on a quorum of the others, and since when it stands there."""

    number: int
    since_ns: int


@dataclass(frozen=True, slots=True)
class Renumber:
    """First step: these lists are to be written, by master. Then it is `Numbered` if a quorum took them."""

    number: int
    lists: Mapping[int, Members]


@dataclass(frozen=True, slots=True)
class Ready:
    """Last step: its identity has these members, and its counters come from a quorum of these masters."""

    members: Members
    numbered: Sequence[int]


class TooFewOthers(Exception):
    """Fewer than a quorum of the others vote together."""


def next_step(
    name: str,
    others: Mapping[int, Identity],
    quorum: int,
    numbered: Numbered | None,
    elsewhere: "Elsewhere",
    blank_since_ns: int,
    longest_ttl_ms: int,
    now_ns: int,
) -> Renumber | Wait | Ready:
    """What is to be done now to admit `name`. others: the masters that vote together, by their index.
    numbered: what this agent has written before. elsewhere: what it saw of others that have. Raises
    TooFewOthers."""
    if len(others) < quorum:
        raise TooFewOthers
    if numbered is None or len(_showing(name, numbered.number, others)) < quorum:
        if elsewhere.since_ns is not None:
            theirs = wait_for_blank([elsewhere.since_ns + elsewhere.patience_ns], longest_ttl_ms, now_ns)
            if theirs.remaining_ms:
                return theirs
        return _renumber(name, others)
    wait = wait_for_blank([blank_since_ns, numbered.since_ns], longest_ttl_ms, now_ns)
    if wait.remaining_ms:
        return wait
    members = current_members(others.values()).with_number(name, numbered.number)
    return Ready(members, _showing(name, numbered.number, others))


def _renumber(name: str, others: Mapping[int, Identity]) -> Renumber:
    number = current_members(others.values()).number_of(name) + 1
    # Not only where it is lower: one that shows a higher number, which nobody else does, has made it up.
    return Renumber(number, {i: of.members.with_number(name, number) for i, of in others.items()})


def _showing(name: str, number: int, others: Mapping[int, Identity]) -> list[int]:
    return [i for i, of in others.items() if of.members.number_of(name) == number]


_OVERDUE_NS = 10 * NS_PER_S
"""So much longer than it takes is given at least: an operator asks again every few seconds, mostly."""


class Elsewhere:
    """Whether another agent is admitting this master, by what the others show. since_ns: when its number was
    last seen to grow on a quorum of them, and not by this agent; one alone may show any."""

    __slots__ = ("_first_ns", "_number", "since_ns")

    def __init__(self) -> None:
        self._number = 0
        self._first_ns: int | None = None
        self.since_ns: int | None = None

    @property
    def patience_ns(self) -> int:
        """Who began last is given so much longer than it takes."""
        if self.since_ns is None or self._first_ns is None:
            return 0
        return _OVERDUE_NS + self.since_ns - self._first_ns

    def was_here(self) -> None:
        """It was this agent that began."""
        self.since_ns = None

    def is_over(self) -> None:
        """It is blank no more."""
        self.since_ns = self._first_ns = None

    def look(self, name: str, others: Iterable[Identity], quorum: int, now_ns: int) -> None:
        numbers = sorted((of.members.number_of(name) for of in others), reverse=True)
        if len(numbers) < quorum:
            return
        if 0 < self._number < numbers[quorum - 1]:
            self.since_ns = now_ns
            self._first_ns = now_ns if self._first_ns is None else self._first_ns
        self._number = numbers[quorum - 1]


def current_members(voting: Iterable[Identity]) -> Members:
    """Who is a member with which number, by the masters that vote together.

    Of one that is not among them it is the largest number that two of them show: so many of any quorum have
    been told of each number that was used, and one alone may have made it up.
    """
    known = list(voting)
    present = {of.name: of.number for of in known}
    absent = {name for of in known for name in of.members.names} - present.keys()
    numbers_seen = {name: sorted(of.members.number_of(name) for of in known) for name in absent}
    return Members.of({**{name: (numbers[-2:])[0] for name, numbers in numbers_seen.items()}, **present})


def brought_up(identity: Identity, voting: Iterable[Identity]) -> Members | None:
    """The list that a master gets that was away while others were admitted. None for one that was replaced
    meanwhile: no list ever makes that vote again."""
    current = current_members(voting)
    return current if identity.number == current.number_of(identity.name) else None
