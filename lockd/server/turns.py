"""Turns on the event loop (core/turns.py): everything that is due or waits there is done for a millisecond in
a turn of the loop, and others get the loop in between. Long work is done in bites, so the account that is
next waits for one bite of another's, and no longer.

A single request that arrives while nobody else's turn is next is run at once. If thousands ask for a little
at the same moment, the others wait for their accounts' turns.
"""

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Protocol, TypeVar

from lockd.clock import boottime_ns
from lockd.core.turns import Turns

T = TypeVar("T")

TURN_NS = 1_000_000
"""How long is worked in a turn of the event loop, plus one bite at most."""
_RESTS = 2
"""For so many times as long as was worked, the loop is left to those who have used less."""
_BESIDE_NS = 20_000_000
"""An account that was served at once beside one that works is expected to come back within this time."""
BITE_NS = 500_000
"""How long one job works at a time, plus one step at most."""

AT_ONCE_NS = 8_000_000
"""How much is done at once in a turn of the loop. Requests that come together are answered together: masters
are asked for all of them in one write, and write them to disk at once."""

_LOOKS_EVERY_NS = 20_000_000
_LATER_BY = 8
"""What is looked at again and again is seen later by this part of the time that it took, at most."""

Work = Callable[[int], bool]
"""Works on something until that instant of `perf_counter_ns`; True when there is more to do."""
_Job = tuple[str, Work]


class Alarm(Protocol):
    def cancel(self) -> None: ...


class Loop(Protocol):
    """What calls, and what time it is there."""

    def now_ns(self) -> int:
        """As CLOCK_BOOTTIME shows it."""

    def worked_ns(self) -> int:
        """A clock that shows how long somebody has worked."""

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Alarm: ...

    def call_soon(self, call: Callable[[], None]) -> object:
        """In the next turn of the loop."""


class RunningLoop:
    """The event loop that runs."""

    def now_ns(self) -> int:
        return boottime_ns()

    def worked_ns(self) -> int:
        return perf_counter_ns()

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Alarm:
        return asyncio.get_running_loop().call_later(delay_s, call)

    def call_soon(self, call: Callable[[], None]) -> object:
        return asyncio.get_running_loop().call_soon(call)


class _Look:
    """Whether something has come true. done: it has, or it is time."""

    __slots__ = ("account", "began_ns", "done", "is_true", "until_ns")

    def __init__(self, account: str, is_true: Callable[[], bool], began_ns: int, until_ns: int) -> None:
        self.account = account
        self.is_true = is_true
        self.began_ns = began_ns
        self.until_ns = until_ns
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def next_ns(self, now_ns: int) -> int:
        return min(self.until_ns, now_ns + max(_LOOKS_EVERY_NS, (now_ns - self.began_ns) // _LATER_BY))


class LoopTurns:
    """of: what is done in turn. failed: called with what a job raised; the others go on."""

    def __init__(self, of: Turns, failed: Callable[[Exception], None], loop: Loop | None = None) -> None:
        self.of = of
        self._failed = failed
        self._loop: Loop = loop or RunningLoop()
        self._alarm: Alarm | None = None
        self._alarm_ns = 0
        self._rings = False
        self._at_once_ns = 0
        """What was done at once in this turn of the loop, and perhaps in the one before."""
        self._charged_ns = 0
        self._forgets = False
        self._beside_until_ns = self._rest_ends_ns = 0
        of.sooner = self._sooner

    # When it is time

    def _sooner(self, when_ns: int) -> None:
        if not self._rings:
            self._set_alarm(when_ns)

    def _set_alarm(self, when_ns: int) -> None:
        if self._alarm is not None:
            if self._alarm_ns <= when_ns:
                return
            self._alarm.cancel()
        self._alarm_ns = when_ns
        rest_s = max(0.0, (when_ns - self._loop.now_ns()) / 1e9)
        self._alarm = self._loop.call_later(rest_s, self._ring)

    def look(self) -> None:
        """The loop's own timers stand still while the machine is suspended; CLOCK_BOOTTIME doesn't."""
        if self._alarm is None or self._alarm_ns < self._loop.now_ns():
            self._ring()

    def _ring(self) -> None:
        if self._alarm is not None:
            # A look may come before it. It would ring besides the next one, and so would all like it.
            self._alarm.cancel()
        self._rings = True
        try:
            next_ns = self._work()
        except Exception as failure:
            # What was due is off the list; other jobs must not wait for it.
            self._failed(failure)
            next_ns = self._loop.now_ns()
        self._rings, self._alarm = False, None
        if next_ns is not None:
            self._set_alarm(next_ns)

    def _work(self) -> int | None:
        """Returns when to go on."""
        began_ns, run = self._loop.worked_ns(), self.of.run
        self._rests_no_longer(self._loop.now_ns())
        while True:
            now_ns = self._loop.now_ns()
            next_ns = run(now_ns, 1)
            if next_ns is None or next_ns > now_ns:
                break
            if (worked_ns := self._loop.worked_ns() - began_ns) >= TURN_NS:
                next_ns = self._rest(now_ns, worked_ns)
                break
        if not self._rest_ends_ns:
            return next_ns
        return self._rest_ends_ns if next_ns is None else min(next_ns, self._rest_ends_ns)

    def _rest(self, now_ns: int, worked_ns: int) -> int:
        """More is due already. If others have used less, those wait for masters, and come back to the loop
        again and again: for some time it is theirs. Returns when to go on."""
        if not self._rest_ends_ns and now_ns < self._beside_until_ns:
            self._rest_ends_ns = self._loop.now_ns() + _RESTS * worked_ns
            self.of.rest()
        return self._rest_ends_ns or now_ns

    def _rests_no_longer(self, now_ns: int) -> None:
        if self._rest_ends_ns and now_ns >= self._rest_ends_ns:
            self._rest_ends_ns = 0
            self.of.go_on()

    # At once

    def may_go_first(self, account: str) -> bool:
        """Whether what it asks may be done at once. If so, say `went_first`."""
        self._charged_ns = self.of.charged_ns
        return self._at_once_ns < AT_ONCE_NS and self.of.is_next(account)

    def went_first(self, account: str, began_ns: int) -> None:
        """began_ns: as `perf_counter_ns` has it."""
        cost_ns = self._loop.worked_ns() - began_ns
        if self.of.is_busy:
            self._beside_until_ns = self._loop.now_ns() + _BESIDE_NS
        self.of.served(account, cost_ns)
        # What masters will answer has to be heard at once, too, before whatever comes then.
        self._at_once_ns += cost_ns + self.of.charged_ns - self._charged_ns
        if self._at_once_ns > AT_ONCE_NS // 2 and not self._forgets:
            # To do so in each turn of the loop would cost a callback in each.
            self._forgets = True
            self._loop.call_soon(self._forget)

    def _forget(self) -> None:
        self._at_once_ns, self._forgets = 0, False

    def charge(self, account: str, began_ns: int) -> None:
        """For what could not wait for its turn."""
        self.of.charge(account, self._loop.worked_ns() - began_ns)

    # In turn

    def add(self, account: str, work: Work) -> None:
        """Do this for that account, as soon as it is its turn."""
        self.of.at(account, self._loop.now_ns(), self._bite, (account, work))

    def _bite(self, job: _Job, _now_ns: int) -> None:
        account, work = job
        if work(self._loop.worked_ns() + BITE_NS):
            self.of.at(account, self._loop.now_ns(), self._bite, job)

    async def through(self, account: str, steps: Iterable[object]) -> None:
        """Run all steps, each of which does a little work. Raises what a step raises. If the caller is
        cancelled, the rest is not done."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        rest = iter(steps)

        def work(until_ns: int) -> bool:
            try:
                while not done.done():
                    next(rest)
                    if self._loop.worked_ns() >= until_ns:
                        return True
            except StopIteration:
                done.set_result(None)
            except Exception as failure:
                done.set_exception(failure)
            return False

        self.add(account, work)
        await done

    async def answer(self, account: str, make: Callable[[], T]) -> T:
        """For work that is done in one step. Raises what it raises."""
        made = list[T]()
        await self.through(account, map(made.append, (make() for _ in range(1))))
        return made[0]

    async def until(self, account: str, is_true: Callable[[], bool], until_ns: int) -> None:
        """Wait for what tells nobody when it comes true, at most until then. It is looked at in the account's
        turns, and the less often, the longer it takes."""
        now_ns = self._loop.now_ns()
        look = _Look(account, is_true, now_ns, until_ns)
        self._look(look, now_ns)
        await look.done

    def _look(self, look: _Look, now_ns: int) -> None:
        if look.done.done():
            return
        if now_ns >= look.until_ns or look.is_true():
            look.done.set_result(None)
        else:
            self.of.at(look.account, look.next_ns(now_ns), self._look, look)
