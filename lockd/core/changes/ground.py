"""The base of every change: the masters as this agent sees them, and the questions to each of them."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockd.core.ballots.ballot import bits
from lockd.core.changes.steps import (
    BLANK,
    NO_COUNTERS,
    OLD,
    LookAgain,
    NotPossible,
    OwnClockIsWrong,
    ReadCounters,
    Steps,
    Unread,
    Write,
)
from lockd.core.fleet import Fleet
from lockd.core.identities import MEMBERS_DIGEST, Identity, voting_together
from lockd.core.link import Link
from lockd.core.membership import State

_WITH_DATA = (State.UP, State.OUTDATED, State.REPLACED)


@dataclass(slots=True)
class Ground:
    """max_ttl_ms: by this agent's configuration. patience_ns: how long a master that works on something may
    be silent. now_ns: tells the time. new_id: returns a cluster id, 128 bits that no other cluster has, even
    if their machines were made from one template."""

    fleet: Fleet[Any]
    max_ttl_ms: int
    patience_ns: int
    now_ns: Callable[[], int]
    new_id: Callable[[], str]
    _looked_at: Container[int] = field(default=(), init=False)
    _identities: list[Identity | None] = field(default_factory=list, init=False)
    _blank_since_ns: list[int | None] = field(default_factory=list, init=False)
    _shows: list[str] = field(default_factory=list, init=False)

    @property
    def links(self) -> Sequence[Link]:
        return self.fleet.links

    @property
    def quorum(self) -> int:
        return self.fleet.clocks.quorum

    def name(self, link: Link) -> str:
        return self.fleet.name(link.index)

    def names(self, links: Iterable[Link]) -> str:
        return ", ".join(self.name(link) for link in links)

    def heed_own_clock(self) -> None:
        if (wrong := self.fleet.own_clock) is not None:
            raise OwnClockIsWrong(wrong)

    def look_again(self) -> Steps[None]:
        """Decisions after this rest on what was seen now, and are only written where that is still so. Links
        also look by themselves, and would show what another agent has written meanwhile (rule 8)."""
        self._looked_at = yield LookAgain()
        self._identities = [link.identity for link in self.links]
        self._blank_since_ns = [link.blank_since_ns for link in self.links]
        self._shows = [_shown_by(identity) for identity in self._identities]

    def identity_of(self, link: Link) -> Identity | None:
        """When all were last looked at."""
        return self._identities[link.index]

    def shows(self, link: Link) -> str:
        """What it showed as its digest when all were last looked at, or what was written since."""
        return self._shows[link.index]

    def is_there(self, link: Link) -> bool:
        """What is known of a master that did not answer at the last look may be long outdated."""
        return link.introduced and link.index in self._looked_at

    def is_left(self, link: Link) -> bool:
        """Whether this master still has data of this cluster. That includes masters that don't vote together.
        Two admissions at once, of which the first was lost again, leave lists that differ. Forming the
        cluster again, when interrupted, leaves another id for the same cluster and members. None of these
        masters is part of a quorum, and all get a new identity."""
        if link.state is State.FOREIGN:
            return link.identity is not None and link.identity.cluster == self.fleet.configured.cluster
        return link.state in _WITH_DATA

    def voting_others(self, link: Link) -> dict[int, Identity]:
        """The identities of the masters that vote together, without this one, by master."""
        identities = [
            other.identity
            if other is not link and other.introduced and other.state in (State.UP, State.STALLED)
            else None
            for other in self.links
        ]
        return {i: of for i in bits(voting_together(identities)) if (of := identities[i]) is not None}

    def reasons(self, links: Iterable[Link]) -> str:
        """For each of these, what is not as it has to be."""
        return "; ".join(f"{self.name(link)}: {self._why_not(link)}" for link in links)

    def _why_not(self, link: Link) -> str:
        if link.state is State.BLANK and not link.introduced:
            return "its scripts are still being loaded: repeat this"
        if link.state in (State.BLANK, State.UP) and not self.is_there(link):
            return "no answer in time: repeat this"
        return link.reason or str(link.state)

    def refuse_twins(self, blank: Iterable[Link]) -> None:
        by_run_id: dict[str, list[str]] = {}
        for link in blank:
            if link.facts is not None:
                by_run_id.setdefault(link.facts.run_id, []).append(self.name(link))
        twins = ", ".join(" and ".join(names) for names in by_run_id.values() if len(names) > 1)
        if twins:
            raise NotPossible(
                f"{twins} lead to the same Redis. Nothing was changed. Give each entry a different address"
            )

    def write(
        self, link: Link, fields: Mapping[str, str], counters: Mapping[int, int] = NO_COUNTERS
    ) -> Steps[None]:
        """Only if it still shows what it showed when this was decided. Raises NotPossible."""
        expected = self.shows(link)
        # The blank master that was waited for may have been replaced by another.
        is_same = expected != BLANK or link.blank_since_ns == self._blank_since_ns[link.index]
        written = is_same and (yield Write(link.index, expected, fields, counters))
        if not written:
            raise NotPossible(
                f"{self.name(link)} has changed in the last moment, and was not touched: another operator "
                "is working on it"
            )
        self._shows[link.index] = fields[MEMBERS_DIGEST]

    def counters_of(self, links: Sequence[Link]) -> Steps[list[dict[int, int]]]:
        """Any of them may know larger fences than all the others. Raises NotPossible."""
        readings = yield ReadCounters([link.index for link in links])
        for link in links:
            if isinstance(failure := readings[link.index], Unread):
                raise NotPossible(
                    f"the fence counters of {self.name(link)} can't be read ({failure.why}): repeat this. "
                    "If it persists, wipe the master: then the fences that only it knew are lost"
                )
        return [readings[link.index] for link in links]


def _shown_by(identity: Identity | None) -> str:
    if identity is None:
        return BLANK
    return OLD if identity.is_older else identity.members_digest
