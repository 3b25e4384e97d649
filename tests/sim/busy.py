"""An agent whose work takes time: while it does one thing, everything else waits. Who is served next is the
product's to say (lockd/server/turns.py), and who may hold how much as well (lockd/server/quotas.py)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from lockd.config.current import Current
from lockd.core.stakes import Stock
from lockd.core.turns import Turns
from lockd.server.accounts import Accounts, LocalUsers
from lockd.server.quotas import Quotas
from lockd.server.turns import LoopTurns
from tests.harness.clocks import US
from tests.harness.configs import a_config
from tests.harness.history import Waited
from tests.sim.agent import Agent
from tests.sim.sockets import Line

COMMAND_NS = 100 * US
"""To read a command, and to do what is to be done at once."""
READ_NS = 15 * US
"""To read one whose turn comes later."""
ASK_NS = 12 * US
"""A master, for its vote."""
HEAR_NS = 50 * US
"""What a master answers."""
RING_NS = 5 * US
"""A timer."""

UIDS_EACH = 65_536
_Event = tuple[object, Callable[..., None], tuple[Any, ...], int]


class _Alarm:
    """A call that can be cancelled."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def cancel(self) -> None:
        self._call = lambda: None

    def ring(self) -> None:
        self._call()


class _Users(LocalUsers):
    """Everybody with a small uid is in the user database, and greedy ones have a range of uids, each."""

    def has(self, uid: int) -> bool:
        return uid < UIDS_EACH

    def owner_of(self, uid: int) -> str | None:
        return f"greedy {uid // UIDS_EACH}"

    def look(self) -> None:
        """It never changes."""


def _ask_nobody(_uid: int, _told: Callable[[bool], None]) -> None:
    """All are known."""


class BusyAgent(Agent):
    """slowness: by how much everything takes longer than on the machine where it was measured."""

    def __init__(self, *more: Any, slowness: int) -> None:
        self.slowness = slowness
        super().__init__(*more)

    @property
    def stocks(self) -> tuple[Stock, ...]:
        return self.quotas.bytes, self.quotas.renewals

    def takes_turns(self) -> Turns:
        self._came: deque[_Event] = deque()
        self._works = False
        self._spent_ns = 0
        self._later: Counter[Line] = Counter()
        """Of each connection, the commands that wait for their turn."""
        self._alarm_ns = None
        self.boot_ns = self.now_ns
        turns = Turns(self.worked_ns)
        self.turns = LoopTurns(turns, _raise, self)
        self.quotas = Quotas(Current(a_config(limits={"renewals_per_second": 3_200 // self.slowness})))
        self.accounts = Accounts(self.now_ns, _ask_nobody, _Users())
        self.fleet.answer_ns = HEAR_NS * self.slowness
        return turns

    # lockd.server.turns.Loop

    def now_ns(self) -> int:
        return self.clock.boot_ns() + self._spent_ns

    def worked_ns(self) -> int:
        return self.world.now_ns + self._spent_ns

    def call_later(self, delay_s: float, call: Callable[[], None]) -> _Alarm:
        alarm = _Alarm(call)
        self.wake_after(self._spent_ns + round(delay_s * 1e9), alarm.ring)
        return alarm

    def call_soon(self, call: Callable[[], None]) -> object:
        return self.call_later(0, call)

    # Work

    def spends(self, cost_ns: int) -> None:
        self._spent_ns += cost_ns * self.slowness

    def asks_for_a_vote(self) -> None:
        self.spends(ASK_NS)

    def take(self, source: object, do: Callable[..., None], *what: Any) -> None:
        if not self.running:
            return
        self._came.append((source, do, what, self.world.now_ns))
        if not self._works:
            self._does_next()

    def _does_next(self) -> None:
        source, do, what, came_ns = self._came.popleft()
        self._works = True
        if isinstance(source, Line) and self.lets_in:
            self._reads(source, do, what, came_ns)
        else:
            self.spends(RING_NS if source is None else HEAR_NS)
            super().take(source, do, *what)
        self.world.after(self._spent_ns, self._has_done, self.life)

    def turn_ends(self) -> None:
        """What it says goes out when its work is done."""

    def _has_done(self, life: int) -> None:
        if life != self.life:
            return
        self._works, self._spent_ns = False, 0
        super().turn_ends()
        if self._came:
            self._does_next()

    # Commands, as a session takes them

    def _reads(self, line: Line, do: Callable[..., None], what: tuple[Any, ...], came_ns: int) -> None:
        began_ns = self.worked_ns()
        if not self._later[line] and self.turns.may_go_first(line.account):
            self._runs(line, do, what, came_ns)
            self.turns.went_first(line.account, began_ns)
            return
        # What comes behind others on a connection is read with them.
        self.spends(0 if self._later[line] else READ_NS)
        self._later[line] += 1
        self.turns.add(line.account, partial(self._in_turn, line, do, what, came_ns))
        self.turns.charge(line.account, began_ns)

    def _in_turn(
        self, line: Line, do: Callable[..., None], what: tuple[Any, ...], came_ns: int, _until_ns: int
    ) -> bool:
        self._later[line] -= 1
        self._runs(line, do, what, came_ns)
        return False

    def _runs(self, line: Line, do: Callable[..., None], what: tuple[Any, ...], came_ns: int) -> None:
        if line.modest:
            self.world.note(Waited(self.world.now_ns, line.modest, self.worked_ns() - came_ns))
        self.spends(COMMAND_NS)
        super().take(line, do, *what)


def _raise(failure: Exception) -> None:
    raise failure
