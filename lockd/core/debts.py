"""What is still to be asked of one master: what a connection that broke left unanswered, and releases that
nobody waits for (rule 3).

Votes are asked again first, all of them: they are few, and each is worth it only for a moment. Releases
follow a few at a time, and so does what ends for many at once (the leases of an app that died): a master that
comes back to 100,000 of them has a vote meanwhile, because what apps ask now waits behind a few and not
behind all.

What apps ask now may overtake them. That harms nobody: a release names the nonce of its own try, so it can't
hit what was asked after it (rule 4). And what belongs to one lease keeps its order: a vote that is worth
asking again is of a try or lease that nobody has given back yet.
"""

from collections import deque
from typing import Any

from lockd.core.ballots.ballot import Ballot
from lockd.core.ballots.release import Release

AT_ONCE = 64
"""So many releases are on their way to a master that nobody waits for: what apps ask waits behind these."""
_LOOKED_AT = 4 * AT_ONCE
MOST = 100_000

WireBallot = tuple[Ballot, Any]
"""A ballot, and how it reads on the wire."""


def is_debt(ballot: Ballot) -> bool:
    """Whether it is owed to a master until it has answered."""
    return isinstance(ballot, Release) and ballot.is_debt


class Debts:
    """Of one master. `due`: releases that may be asked now; `kept`: those for the next connection, or for the
    next look at the master. asked: those that are on their way. most: so many are kept, what is left out ends
    by its TTL."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._votes: list[WireBallot] = []
        self._kept: deque[WireBallot] = deque()
        self._due: deque[WireBallot] = deque()
        self._however_old = 0
        self.asked: set[Ballot] = set()

    @property
    def owed(self) -> int:
        return len(self._kept) + len(self._due)

    def keep(self, ballot: Ballot, payload: Any) -> None:
        """It was not answered, or with an error: for the next time."""
        if not is_debt(ballot):
            self._votes.append((ballot, payload))
        elif self.owed < self._most:
            self._kept.append((ballot, payload))

    def add(self, release: Release, payload: Any) -> None:
        """To be asked now, behind what apps ask."""
        if self.owed < self._most:
            self._due.append((release, payload))

    def broke_off(self) -> None:
        """The connection is gone, and what was on its way with it: that is kept by whoever knows it."""
        self._due.extend(self._kept)
        self._kept, self._due = self._due, deque()
        self.asked.clear()
        self._however_old = 0

    def come_due(self, *, after_break: bool) -> None:
        """All is asked again, as far as it is worth it. After a break every release is, however old: what it
        gives back may have lain in the network for longer than its TTL, and run just before the old session
        was ended."""
        self._due.extend(self._kept)
        self._kept.clear()
        if after_break:
            self._however_old = len(self._due)

    def take_votes(self, now_ns: int, *, up: bool) -> tuple[list[WireBallot], list[Ballot]]:
        """Those that are worth asking again, in their order, and those that are not. up: the master may be
        asked for votes."""
        votes, self._votes = self._votes, []
        again = [vote for vote in votes if up and vote[0].outcome is None and now_ns < vote[0].until_ns]
        asked = {ballot for ballot, _ in again}
        return again, [ballot for ballot, _ in votes if ballot not in asked]

    def take_releases(self, now_ns: int) -> tuple[list[WireBallot], list[Ballot]]:
        """The next few, and those that are not worth it any more."""
        again: list[WireBallot] = []
        too_old: list[Ballot] = []
        while self._due and len(self.asked) < AT_ONCE and len(again) + len(too_old) < _LOOKED_AT:
            release, payload = self._due.popleft()
            if self._however_old or now_ns < release.until_ns:
                again.append((release, payload))
                self.asked.add(release)
            else:
                too_old.append(release)
            self._however_old = max(0, self._however_old - 1)
        return again, too_old

    def was_answered(self, release: Ballot) -> bool:
        """To be told of each answer while anything is `asked`. Whether it is time to take more: this was the
        last but half of those that were asked."""
        if release not in self.asked:
            return False
        self.asked.discard(release)
        return bool(self._due) and len(self.asked) <= AT_ONCE // 2

    @property
    def is_quiet(self) -> bool:
        """None is on its way, and more are due: nothing would have them taken."""
        return bool(self._due) and not self.asked
