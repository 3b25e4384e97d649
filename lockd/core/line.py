"""The line to the masters. Only so many ballots are under way at a time; the next is the one of the account
that has had fewest, and of those the one whose deadline is first (core/turns.py). If more were asked for
than masters can answer in time, all would be late, none would work, and all would be asked for again. And
an account that asks for thousands would have their answers heard before everybody else's.

Under way is what masters answer within their shortest round trip, and what takes 2 ms to hear. It is found as
TCP Vegas finds its window (L. Brakmo, L. Peterson: TCP Vegas, IEEE JSAC 13(8), 1995): more while answers take
little longer than the shortest time, fewer when they begin to wait for one another. If they take longer than
as many can explain, it is not this line's doing (a disk, another host, other work here), and fewer would only
be too few: leases have to be renewed on slow masters, too.

What follows from a ballot that was let in (a round for its fence, what puts a tenure back, what gives a try
back) does not wait again. Nor does a release: it has to reach each master before the next try for the
resource, and there is one for each lease that was let in.
"""

from collections.abc import Callable
from typing import Final

from lockd.core.turns import HOUSE, Job, Turns
from lockd.core.validity import NEVER_NS, NS_PER_MS, NS_PER_S

LEAST: Final = 16
"""As many are heard in 2 ms, several at a time."""
MOST: Final = 512
_LATE_NS: Final = 2 * NS_PER_MS
_EACH_MOST_NS: Final = 2 * _LATE_NS // LEAST
"""By how much one ballot makes another wait, at most: twice what it takes to hear it."""
_REMEMBERED_NS: Final = 10 * NS_PER_S
"""For how long, at least, the shortest round trip is remembered. Masters may become slower."""
_FEWER: Final = 0.25
"""For each answer that was late: a quarter of the window in a round trip."""


class Line:
    """turns: those of the agent, in which what was let in begins. window: how many may be under way."""

    def __init__(self, turns: Turns) -> None:
        self.window = float(LEAST)
        self.under_way = 0
        """And let in, but not begun yet."""
        self._turns = turns
        self._waiting = Turns()
        self._goes_on = False
        self._shortest_ns = self._shortest_before_ns = NEVER_NS
        self._remembered_ns = 0

    @property
    def has_room(self) -> bool:
        """Whether a ballot may begin at once. While others wait, it waits behind them."""
        return self.under_way < self.window and not self._waiting.has_jobs

    def wait(self, account: str, deadline_ns: int, begin: Callable[[int], None]) -> Job:
        """Call `begin(now_ns)` when there is room for this account."""
        job = self._waiting.at(account, deadline_ns, begin, account)
        self._go_on_soon()
        return job

    def begins(self) -> "Line":
        """A ballot is under way from now on. It has to call `ended` once."""
        self.under_way += 1
        return self

    def took(self, answered_ns: int, now_ns: int) -> None:
        """A ballot had its outcome after this time."""
        if now_ns >= self._remembered_ns:
            self._remembered_ns = now_ns + _REMEMBERED_NS
            self._shortest_before_ns, self._shortest_ns = self._shortest_ns, NEVER_NS
        self._shortest_ns = min(self._shortest_ns, answered_ns)
        late_ns = answered_ns - min(self._shortest_ns, self._shortest_before_ns)
        if _LATE_NS < late_ns <= _EACH_MOST_NS * self.window:
            self.window = max(self.window - _FEWER, LEAST)
        elif self._waiting.has_jobs:
            self.window = min(self.window + 1 / self.window, MOST)

    def ended(self) -> None:
        self.under_way -= 1
        self._go_on_soon()

    def _go_on_soon(self) -> None:
        """Not in the middle of what core is doing."""
        if not self._goes_on and self.under_way < self.window and self._waiting.has_jobs:
            self._goes_on = True
            self._turns.at(HOUSE, 0, self._go_on)

    def _go_on(self, _now_ns: int) -> None:
        """It begins in its account's turn: it may be refused at once, and thousands may be."""
        self._goes_on = False
        while self.under_way < self.window and (job := self._waiting.take(NEVER_NS - 1, 1)) is not None:
            self.under_way += 1
            account, begin = job.of, job.due
            job.over()
            self._turns.at(str(account), 0, self._begin, begin)

    def _begin(self, begin: Callable[[int], None], now_ns: int) -> None:
        try:
            begin(now_ns)
        finally:
            self.ended()
