"""Admitting a blank master, step by step (rule 8): what is written where, and what has to pass first.

1. Its name gets a new admission number, on a quorum of the other masters. From then on the machine of the
   old number, together with the masters that don't know the new one, is fewer than a quorum: no grant and no
   extension rests on the old machine any more, even if an agent still asks it.
2. A max TTL passes. Then all leases are over that the old machine helped to grant, or this machine before it
   was wiped.
3. It gets the largest fence counters of the masters that show its number, and then its identity.

Why the counters come from *those* masters: every quorum that granted with the old machine includes one of
them, and that one voted before it was told the number, so before its counters were read.

Each agent that begins takes a new number, larger than all that were used before. So an admission may be
interrupted anywhere and begun again by any agent, and meanwhile no master loses its vote by it. An agent that
has seen another agent begin lets it finish: otherwise two agents that are asked in turn would begin again for
ever. How often an agent is asked is not known, so the other one gets as much time again as all this has taken
so far. The agents then outbid each other at longer and longer intervals, until one is asked again within its
own interval.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lockd.core.identities import Identity, Members
from lockd.core.membership import Wait, wait_for_blank
from lockd.core.validity import NS_PER_S


@dataclass(frozen=True, slots=True)
class Numbered:
    """This agent has written the number on a quorum of the others. since_ns: when."""

    number: int
    since_ns: int


@dataclass(frozen=True, slots=True)
class Renumber:
    """First step: write these lists, by master. Once a quorum has taken them, the master is `Numbered`."""

    number: int
    lists: Mapping[int, Members]


@dataclass(frozen=True, slots=True)
class Ready:
    """Last step: the identity gets these members, and the counters come from these masters, a quorum."""

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
    """The next step of admitting `name`. others: the masters that vote together, by their index. numbered:
    what this agent has written before. elsewhere: what it saw of other agents' admissions. Raises
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
    # Not only where it is lower: a higher number that only one master shows was made up.
    return Renumber(number, {i: of.members.with_number(name, number) for i, of in others.items()})


def _showing(name: str, number: int, others: Mapping[int, Identity]) -> list[int]:
    return [i for i, of in others.items() if of.members.number_of(name) == number]


_OVERDUE_NS = 10 * NS_PER_S
"""The other agent gets at least this much more time than it needs: an operator usually asks again every few
seconds."""


class Elsewhere:
    """Whether another agent is admitting this master, judged by what the other masters show. since_ns: when
    its number was last seen to grow on a quorum of them, and not by this agent. One master alone may show any
    number."""

    __slots__ = ("_first_ns", "_number", "since_ns")

    def __init__(self) -> None:
        self._number = 0
        self._first_ns: int | None = None
        self.since_ns: int | None = None

    @property
    def patience_ns(self) -> int:
        """The agent that began last gets this much more time than it needs."""
        if self.since_ns is None or self._first_ns is None:
            return 0
        return _OVERDUE_NS + self.since_ns - self._first_ns

    def was_here(self) -> None:
        """This agent began."""
        self.since_ns = None

    def is_over(self) -> None:
        """The master is not blank any more."""
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
    """The members and their numbers, according to the masters that vote together.

    A member that is not among them has the largest number that two of them show. Each number that was used
    was told to two masters of any quorum at least, and a number that only one shows may be made up.
    """
    known = list(voting)
    present = {of.name: of.number for of in known}
    absent = {name for of in known for name in of.members.names} - present.keys()
    numbers_seen = {name: sorted(of.members.number_of(name) for of in known) for name in absent}
    return Members.of({**{name: (numbers[-2:])[0] for name, numbers in numbers_seen.items()}, **present})


def brought_up(identity: Identity, voting: Iterable[Identity]) -> Members | None:
    """The list for a master that was away while others were admitted. None for a master that was replaced
    meanwhile: no list ever gives it a vote again."""
    current = current_members(voting)
    return current if identity.number == current.number_of(identity.name) else None
