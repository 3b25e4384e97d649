"""Who is served next. One agent serves all apps of a host on one event loop, and what is done there is done
in turn: the account that has used least is next, and of its jobs the earliest. Accounts come before
deadlines: if the earliest deadline of all accounts went first, one user's leases of 100 ms would push out
everybody else's.

This is start-time fair queueing (P. Goyal, H. Vin, H. Cheng: Start-time Fair Queuing, SIGCOMM 1996), with
equal weights. The cost of a job is measured when it is done, and charged then. Who comes, or was at rest,
starts level with the account that was served last, so nobody saves up.

What is over refers to nothing that refers to it: a lease and its timer know each other, and such a circle
would stay in memory until old objects are collected, which is hours later.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Final

from lockd.core.validity import NEVER_NS, NS_PER_MS

Due = Callable[..., None]

_FORGIVEN_NS: Final = NS_PER_MS
_AWAKE: Final = -1
"""Before any time."""

HOUSE: Final = "the agent"
"""The account of what the agent does for all, or for operators. It goes first, and is not charged."""


def no_work_ns() -> int:
    """Where work takes no time, accounts take turns job by job."""
    return 0


class Job:
    """One thing to do at a certain time. `due` gets the time at which it really runs, and is None once it has
    run or was cancelled. of: an argument before the time, if there is one, so that many thousands of jobs
    don't each need a function; None, too, once it is over."""

    __slots__ = ("due", "of", "share")

    def __init__(self, due: Due, of: object, share: "Share") -> None:
        self.due: Due | None = due
        self.of = of
        self.share: Share | None = share

    def over(self) -> None:
        self.due = self.of = self.share = None


class Share:
    """What one account has used, and the jobs that it has. ready_as: its number among those whose jobs are
    due; -1: none of them is. wakes_ns: when it is looked at again in that case."""

    __slots__ = ("cancelled", "jobs", "ready_as", "used_ns", "wakes_ns")

    def __init__(self, used_ns: int) -> None:
        self.used_ns = used_ns
        # Tuples, so that the heap compares in C.
        self.jobs: list[tuple[int, int, Job]] = []
        self.cancelled = 0
        self.ready_as = -1
        self.wakes_ns = NEVER_NS

    def first_ns(self) -> int:
        """When its next job is due."""
        jobs = self.jobs
        while jobs and jobs[0][2].due is None:
            heappop(jobs)
            self.cancelled -= 1
        return jobs[0][0] if jobs else NEVER_NS

    def has_cancelled(self) -> None:
        """Most jobs are cancelled long before they are due: without this, the heap would hold a minute's
        worth of dead ones."""
        self.cancelled += 1
        if self.cancelled > 256 and self.cancelled * 2 > len(self.jobs):
            self.jobs = [entry for entry in self.jobs if entry[2].due is not None]
            heapify(self.jobs)
            self.cancelled = 0


def _raise(failure: Exception, _now_ns: int) -> None:
    raise failure


def cancel(job: Job | None) -> None:
    """It is not done, unless that was before."""
    if job is None or job.share is None:
        return
    share = job.share
    job.over()
    share.has_cancelled()


class Turns:
    """worked_ns: a clock that shows how long the caller has worked. `sooner` is called with the new earliest
    time whenever it becomes earlier, so that a driver can set its alarm."""

    def __init__(self, worked_ns: Callable[[], int] = no_work_ns) -> None:
        self.sooner: Callable[[int], None] = lambda _when_ns: None
        self._worked_ns = worked_ns
        self._house = Share(0)
        self._shares: dict[str, Share] = {}
        self._known = 64
        """When there are more than this, those that are like new are forgotten."""
        self._order = count()
        self._ready: list[tuple[int, int, Share]] = []
        """By what they had used when they came here, which may have become more."""
        self._asleep: list[tuple[int, int, Share]] = []
        """By when they wake. One that was to wake later before is there twice."""
        self._level_ns = 0
        """What the account that was served last had used when its turn came."""
        self._most_ns = NEVER_NS
        """Accounts that have used more than this rest."""
        self.charged_ns = 0
        """By all, so far."""

    def at(self, account: str, when_ns: int, due: Due, of: object = None) -> Job:
        """Do this for that account at that time, or when it is its turn after that."""
        share = self._house if account == HOUSE else self._share_of(account)
        job = Job(due, of, share)
        heappush(share.jobs, (when_ns, next(self._order), job))
        if when_ns < share.wakes_ns:
            self._sleeps(share, when_ns)
            if self._asleep[0][2] is share:
                self.sooner(when_ns)
        return job

    def aside(self, tell: Callable[..., None], *what: object) -> None:
        """Tell somebody who has no say in what goes on, such as what counts it. What that raises is
        raised again in another turn: what goes on is not left half done."""
        try:
            tell(*what)
        except Exception as failure:
            self.fails(failure)

    def fails(self, failure: Exception) -> None:
        """Raise this in another turn, where it is reported."""
        self.at(HOUSE, 0, _raise, failure)

    def _share_of(self, account: str) -> Share:
        share = self._shares.get(account)
        if share is None:
            if len(self._shares) >= self._known:
                self._forget()
            share = self._shares[account] = Share(self._level_ns)
        return share

    def _forget(self) -> None:
        """Those that have nothing to do, and next to nothing to pay for."""
        paid_ns = self._level_ns + _FORGIVEN_NS
        self._shares = {
            name: share for name, share in self._shares.items() if share.jobs or share.used_ns > paid_ns
        }
        self._known = max(64, 2 * len(self._shares))

    def _sleeps(self, share: Share, until_ns: int) -> None:
        share.ready_as = -1
        share.wakes_ns = until_ns
        if until_ns != NEVER_NS:
            heappush(self._asleep, (until_ns, next(self._order), share))

    def charge(self, account: str, cost_ns: int) -> None:
        """For what is done for it outside of its turn, such as hearing what masters answer."""
        self.charged_ns += cost_ns
        if account != HOUSE:
            share = self._share_of(account)
            share.used_ns = max(share.used_ns, self._level_ns) + cost_ns

    def rest(self) -> None:
        """Until `go_on`, those that have used more than the one that was served last are not served. Who has
        used less, or is new, is."""
        self._most_ns = self._level_ns

    def go_on(self) -> None:
        """The rest is over."""
        self._most_ns = NEVER_NS

    @property
    def is_busy(self) -> bool:
        """An account has something to do by now."""
        return self._first_ready() is not None

    def is_next(self, account: str) -> bool:
        """Whether no account that has something to do has used less: then it may be served at once, and be
        charged. `served` says so."""
        first = self._first_ready()
        if first is None or account == HOUSE:
            return True
        return self._used_ns(account) <= first.used_ns

    def first_of(self, accounts: Iterable[str]) -> str:
        """Which of these is served before the others. Of several that would be level, the one that has rested
        for longest: it has nothing else to be done."""
        return min(accounts, key=self._used_and_rested)

    def _used_and_rested(self, account: str) -> tuple[int, int]:
        share = self._shares.get(account)
        return self._used_ns(account), 0 if share is None else share.used_ns

    def _used_ns(self, account: str) -> int:
        share = self._shares.get(account)
        return self._level_ns if share is None else max(share.used_ns, self._level_ns)

    def served(self, account: str, cost_ns: int) -> None:
        """It was next, and was served without a job."""
        if account != HOUSE:
            share = self._share_of(account)
            self._level_ns = max(self._level_ns, share.used_ns)
            share.used_ns = self._level_ns + cost_ns

    def _first_ready(self) -> Share | None:
        ready = self._ready
        while ready:
            used_ns, order, share = ready[0]
            if share.ready_as != order:
                heappop(ready)
            elif share.used_ns == used_ns:
                return share
            else:
                heapreplace(ready, (share.used_ns, order, share))
        return None

    def _wake(self, now_ns: int) -> None:
        """Those that have something to do by now."""
        asleep = self._asleep
        while asleep and asleep[0][0] <= now_ns:
            when_ns, order, share = heappop(asleep)
            if share.wakes_ns != when_ns:
                continue
            if (first_ns := share.first_ns()) > now_ns:
                self._sleeps(share, first_ns)
                continue
            share.ready_as, share.wakes_ns = order, _AWAKE
            if share is not self._house:
                share.used_ns = max(share.used_ns, self._level_ns)
                heappush(self._ready, (share.used_ns, order, share))

    def _next(self, now_ns: int) -> Share | None:
        """Whose turn it is."""
        self._wake(now_ns)
        while True:
            share = self._house if self._house.ready_as >= 0 else self._first_ready()
            if share is not None and share is not self._house and share.used_ns > self._most_ns:
                return None
            if share is None or share.first_ns() <= now_ns:
                return share
            # What it was ready for was cancelled.
            self._sleeps(share, share.first_ns())

    def take(self, now_ns: int, cost_ns: int) -> Job | None:
        """The job whose turn it is, of those that are due. The caller does it; its cost is charged now."""
        share = self._next(now_ns)
        if share is None:
            return None
        job = self._take_from(share)
        share.used_ns += cost_ns
        return job

    @property
    def has_jobs(self) -> bool:
        """False: there is nothing to do, now or later."""
        return bool(self._ready or self._asleep or self._house.jobs)

    def _take_from(self, share: Share) -> Job:
        if share is not self._house:
            self._level_ns = max(self._level_ns, share.used_ns)
        return heappop(share.jobs)[2]

    def run(self, now_ns: int, most: int | None = None) -> int | None:
        """Do everything that is due, or this much of it at most. Returns when the next job is due, or None. A
        time not after `now_ns` means that more is due already."""
        left = most
        while (share := self._next(now_ns)) is not None:
            if left == 0:
                return share.first_ns()
            left = None if left is None else left - 1
            self._do(self._take_from(share), share, now_ns)
        return self._next_ns()

    def _do(self, job: Job, share: Share, now_ns: int) -> None:
        began_ns = self._worked_ns()
        due, of = job.due, job.of
        job.over()
        assert due is not None
        try:
            if of is None:
                due(now_ns)
            else:
                due(of, now_ns)
        finally:
            share.used_ns += max(1, self._worked_ns() - began_ns)

    def _next_ns(self) -> int | None:
        """When the first of those wakes that have something to do."""
        asleep = self._asleep
        while asleep:
            when_ns, _, share = asleep[0]
            if share.wakes_ns == when_ns:
                first_ns = share.first_ns()
                if first_ns == when_ns:
                    return when_ns
                heappop(asleep)
                self._sleeps(share, first_ns)
            else:
                heappop(asleep)
        return None
