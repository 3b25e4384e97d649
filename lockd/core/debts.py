"""What still has to be asked of one master: what a broken connection left unanswered, and releases that
nobody waits for (rule 3).

Votes are asked again first, all of them: they are few, and useful only for a moment. Releases follow a few at
a time, and so do the releases of many leases that end at once, as when an app dies. So a master that comes
back to 100,000 releases has a vote meanwhile, because what apps ask now waits behind a few of them and not
behind all.

What apps ask now may overtake releases. That harms nobody: a release names the nonce of its try, so it can't
hit what was asked after it (rule 4). And what belongs to one lease keeps its order: a vote is asked again
only for a try or lease that nobody has given back yet.
"""

from collections import deque
from typing import Any

from lockd.core.ballots.ballot import Ballot
from lockd.core.ballots.release import Release

AT_ONCE = 64
"""How many releases that nobody waits for are on their way to a master at a time: what apps ask waits behind
these."""
_LOOKED_AT = 4 * AT_ONCE
MOST = 100_000

WireBallot = tuple[Ballot, Any]
"""A ballot, with its request as it reads on the wire."""


def is_debt(ballot: Ballot) -> bool:
    """Whether the master has to be asked again until it has answered."""
    return isinstance(ballot, Release) and ballot.is_debt


class Debts:
    """The debts to one master. due: releases that may be asked now. kept: those for the next connection, or
    for the next look at the master. asked: those on their way. most: how many are kept; the leases of the
    others end by their TTL."""

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
        """It got no answer, or an error: it is kept for the next time."""
        if not is_debt(ballot):
            self._votes.append((ballot, payload))
        elif self.owed < self._most:
            self._kept.append((ballot, payload))

    def add(self, release: Release, payload: Any) -> None:
        """Ask it now, behind what apps ask."""
        if self.owed < self._most:
            self._due.append((release, payload))

    def broke_off(self) -> None:
        """The connection is gone. The caller keeps what was on its way."""
        self._due.extend(self._kept)
        self._kept, self._due = self._due, deque()
        self.asked.clear()
        self._however_old = 0

    def come_due(self, *, after_break: bool) -> None:
        """Everything that is still useful is asked again. After a break that is every release, however old:
        the acquire that it gives back may have been delayed in the network past its TTL, and have run just
        before the old session was ended."""
        self._due.extend(self._kept)
        self._kept.clear()
        if after_break:
            self._however_old = len(self._due)

    def take_votes(self, now_ns: int, *, up: bool) -> tuple[list[WireBallot], list[Ballot]]:
        """The requests to ask again, in order, and those that are not useful any more. up: the master may be
        asked for votes."""
        votes, self._votes = self._votes, []
        again = [vote for vote in votes if up and vote[0].outcome is None and now_ns < vote[0].until_ns]
        asked = {ballot for ballot, _ in again}
        return again, [ballot for ballot, _ in votes if ballot not in asked]

    def take_releases(self, now_ns: int) -> tuple[list[WireBallot], list[Ballot]]:
        """The next few, and those that are not useful any more."""
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
        """Call it at each answer while anything is `asked`. Returns whether to take more: half of those that
        were asked are answered."""
        if release not in self.asked:
            return False
        self.asked.discard(release)
        return bool(self._due) and len(self.asked) <= AT_ONCE // 2

    @property
    def is_quiet(self) -> bool:
        """None is on its way and more are due, so no answer would cause the next ones to be taken."""
        return bool(self._due) and not self.asked
