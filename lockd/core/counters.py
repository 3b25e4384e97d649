"""What a master's fence counters were when this agent last read them. None may ever fall (rule 6). If one
does, somebody has written to the master who is no agent, and its next fences may be below earlier ones. No
vote rests on this: it is for people to be told.
"""

from lockd.core.fences import BLOCK, SLOTS
from lockd.core.membership import MasterFacts

AT_ONCE = 64
"""How many are read with each look at a master: all of them in six minutes. And with each look as many of
those that were ahead of what a vote asked for."""


class CountersSeen:
    """Of one master."""

    __slots__ = ("_ahead", "_first", "_member", "_named", "_seen")

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._ahead: dict[int, None] = {}
        self._named = set[int]()
        """By votes since the counters of this look were asked for. A vote that the master has given after it
        read them may be heard before the look is over."""
        self._first = 0
        self._member: tuple[str, int] | None = None
        """The cluster's id and the number of its admission: a machine that was admitted anew counts anew."""

    def next_slots(self) -> tuple[int, ...]:
        """The slots to be read with the next look."""
        self._named.clear()
        first, self._first = self._first, (self._first + AT_ONCE) % SLOTS
        return (*range(first, first + AT_ONCE), *self._ahead)

    def named(self, slot: int, fence: int) -> None:
        """It has given this block, above what it was asked for: its counter was ahead."""
        self._seen[slot] = max(fence + BLOCK - 1, self._seen.get(slot, 0))
        self._named.add(slot)
        self._ahead.pop(slot, None)
        self._ahead[slot] = None
        if len(self._ahead) > AT_ONCE:
            del self._ahead[next(iter(self._ahead))]

    def fallen(self, facts: MasterFacts) -> list[int]:
        """The slots whose counters are lower than they were."""
        identity = facts.identity
        member = None if identity is None else (identity.cluster_id, identity.number)
        if member != self._member:
            self._member = member
            self._seen.clear()
        read = {slot: counter for slot, counter in facts.counters.items() if slot not in self._named}
        found = [slot for slot, counter in read.items() if counter < self._seen.get(slot, 0)]
        self._seen.update(read)
        return found
