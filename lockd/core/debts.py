"""What still has to be asked of one master: what a broken connection left unanswered, and releases that
nobody waits for (rule 3).

Votes are asked again first, all of them: they are few, and useful only for a moment. Releases follow a few at
a time, and so do the releases of many leases that end at once, as when an app dies. So a master that comes
back to 100,000 releases has a vote meanwhile, because what apps ask now waits behind a few of them and not
behind all. Accounts take turns: one that owes little does not wait for one that owes much.

What apps ask now may overtake releases, and releases each other. That harms nobody: a release names the nonce
of its try, so it can't hit what was asked after it (rule 4). And what belongs to one lease keeps its order: a
vote is asked again only for a try or lease that nobody has given back yet.

Each debt counts as memory of its account. A full account forgets its own oldest one, whose lease then ends by
its TTL on this master. Nobody's is forgotten for another's sake.
"""

from collections import deque
from typing import Any, TypeGuard

from lockd.core import sizes
from lockd.core.ballots.ballot import Ballot
from lockd.core.ballots.release import Release
from lockd.core.stakes import Stock

AT_ONCE = 64
"""How many releases that nobody waits for are on their way to a master at a time: what apps ask waits behind
these."""
_LOOKED_AT = 4 * AT_ONCE

WireBallot = tuple[Ballot, Any]
"""A ballot, with its request as it reads on the wire."""
_Debt = tuple[Release, Any, int]
"""A release, its request, and its number among those that this master was owed."""
_ByAccount = dict[str, deque[_Debt]]
"""The next account first."""


def is_debt(ballot: Ballot) -> TypeGuard[Release]:
    """Whether the master has to be asked again until it has answered."""
    return isinstance(ballot, Release) and ballot.is_debt


def _size(release: Release) -> int:
    return sizes.debt(len(release.resource))


class Debts:
    """The debts to one master. room: the memory that accounts share. due: releases that may be asked now.
    kept: those for the next connection, or for the next look at the master. asked: those on their way.
    forgotten: those for which their account had no room."""

    def __init__(self, room: Stock) -> None:
        self._room = room
        self._votes: list[WireBallot] = []
        self._kept: _ByAccount = {}
        self._due: _ByAccount = {}
        self._numbers = self._however_old = 0
        """The last number, and the last of those that are asked again however old they are."""
        self.asked: set[Ballot] = set()
        self.forgotten: list[Ballot] = []

    def keep(self, ballot: Ballot, payload: Any) -> None:
        """It got no answer, or an error: it is kept for the next time."""
        if is_debt(ballot):
            self._put(self._kept, ballot, payload)
        else:
            self._votes.append((ballot, payload))

    def add(self, release: Release, payload: Any) -> None:
        """Ask it now, behind what apps ask."""
        self._put(self._due, release, payload)

    def _put(self, where: _ByAccount, release: Release, payload: Any) -> None:
        account, size = release.account, _size(release)
        if self._room.refusal(account, size) is not None and not self._forgets_its_oldest(account):
            self.forgotten.append(release)
            return
        self._room.take(account, size)
        self._numbers += 1
        where.setdefault(account, deque()).append((release, payload, self._numbers))

    def _forgets_its_oldest(self, account: str) -> bool:
        for where in (self._due, self._kept):
            if account in where:
                self.forgotten.append(self._take(where, account)[0])
                return True
        return False

    def _take(self, where: _ByAccount, account: str) -> _Debt:
        """Its oldest."""
        debt = where[account].popleft()
        self._room.give_back(account, _size(debt[0]))
        if not where[account]:
            del where[account]
        return debt

    def _next(self) -> _Debt:
        """Of the account whose turn it is."""
        account = next(iter(self._due))
        debt = self._take(self._due, account)
        if account in self._due:
            self._due[account] = self._due.pop(account)
        return debt

    def broke_off(self) -> None:
        """The connection is gone. The caller keeps what was on its way."""
        self._all_are_due()
        self._kept, self._due = self._due, {}
        self.asked.clear()

    def _all_are_due(self) -> None:
        for account, kept in self._kept.items():
            due = self._due.setdefault(account, kept)
            if due is not kept:
                due.extend(kept)
        self._kept = {}

    def come_due(self, *, after_break: bool) -> None:
        """Everything that is still useful is asked again. After a break that is every release, however old:
        the acquire that it gives back may have been delayed in the network past its TTL, and have run just
        before the old session was ended."""
        self._all_are_due()
        if after_break:
            self._however_old = self._numbers

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
            release, payload, number = self._next()
            if number <= self._however_old or now_ns < release.until_ns:
                again.append((release, payload))
                self.asked.add(release)
            else:
                too_old.append(release)
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
