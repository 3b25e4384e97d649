"""A host that greedy accounts share with modest ones: what both ask for is asked of the stakes first, as
lockd/server/lease_requests.py does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from lockd.core.errors import ErrorWord
from lockd.core.leases import Lease
from lockd.core.values import Refusal
from lockd.server.accounts import Accounts
from lockd.server.quotas import Cost, Holding, Quotas, Usage
from tests.harness.clocks import MS
from tests.sim.apps import App, Habits, Held, Request
from tests.sim.busy import UIDS_EACH, BusyAgent
from tests.sim.plan import Greed
from tests.sim.sockets import Line
from tests.sim.world import World


class CountedRequest(Request):
    """It holds what it costs until it is over, and then what its lease costs until that is over."""

    _cost: Cost | None = None
    _holding: Holding | None = None

    @property
    def _quotas(self) -> Quotas:
        assert isinstance(self.agent, BusyAgent)
        return self.agent.quotas

    @property
    def _usage(self) -> Usage:
        return self._quotas.usage_of(self.account)

    @property
    def _renewed_ms(self) -> int | None:
        return None if self.detached else self.ttl_ms

    def arrive(self) -> None:
        cost = Cost(1, 1, len(self.resource), self._renewed_ms)
        why = self._quotas.refuse_lock(self._usage, cost)
        if why is None:
            self._quotas.waits(self._usage, cost)
            self._cost = cost
            super().arrive()
        else:
            self.asks(self.agent.sessions.of(self.socket), self.agent.boot_ns())
            self.refused(Refusal(ErrorWord.LIMIT, why))

    def _waits_no_more(self) -> None:
        if self._cost is not None:
            self._quotas.waits_no_more(self._usage, self._cost)
            self._cost = None

    def refused(self, refusal: Refusal) -> None:
        self._waits_no_more()
        super().refused(refusal)

    def gone(self, now_ns: int) -> None:
        super().gone(now_ns)
        self._waits_no_more()

    def granted(self, lease: Lease, now_ns: int) -> None:
        self._waits_no_more()
        if lease.holder is self:
            self._holding = Holding(len(self.resource), self._renewed_ms)
            self._quotas.holds(self._usage, self._holding)
        super().granted(lease, now_ns)

    def ended(self, lease: Lease) -> None:
        if self._holding is not None:
            self._quotas.holds_no_more(self._usage, self._holding)
            self._holding = None
        super().ended(lease)


class ModestApp(App):
    """An account of its own, and one lock at a time: mostly of what nobody else wants, which it keeps for a
    while, and at times, for a moment, of what greedy accounts want, too."""

    requests = CountedRequest

    def __init__(self, world: World, name: str, *more: Any) -> None:
        self._own = name.encode()
        super().__init__(world, name, *more)
        self._line = Line(self.account, name)

    def _plain_request(self) -> Request:
        request = super()._plain_request()
        if self.dice.random() < 0.8:
            request.resource = self._own
        return request

    def _use_until_ns(self) -> int:
        shared = self._hands[-1].request.resource != self._own
        return self.world.now_ns + 2 * MS if shared else super()._use_until_ns()


class Size(NamedTuple):
    """Of an attack. parts: how many have a request open or a lease, each."""

    parts: int
    connections: int


_SIZES = {
    Greed.RENEWALS: Size(800, 20),
    Greed.TINY: Size(100, 10),
    Greed.CROWD: Size(150, 150),
    Greed.LINE: Size(200, 200),
}
_FROM_NS = 2_000 * MS
_LASTS_NS = 6_000 * MS


@dataclass(frozen=True, slots=True)
class Attack:
    """What a greedy account does. renewed_ns: all its leases are to be renewed at this moment, where that is
    wanted."""

    greed: Greed
    number: int
    from_ns: int
    until_ns: int
    renewed_ns: int = 0

    @property
    def size(self) -> Size:
        return _SIZES[self.greed]

    def account_of(self, part: int, accounts: Accounts) -> str:
        """Each connection is of another of its uids."""
        return accounts.of_user(self.number * UIDS_EACH + part)

    @property
    def name(self) -> str:
        return f"greedy {self.number}, {self.greed}"


HABITS: dict[Greed, dict[str, Any]] = {
    Greed.RENEWALS: {"ttls_ms": (10_000,), "hold_ms": (8_000, 8_000), "think_ms": (0, 500)},
    Greed.TINY: {"ttls_ms": (100,), "hold_ms": (4_000, 8_000), "think_ms": (0, 100)},
    Greed.CROWD: {"ttls_ms": (3_000,), "hold_ms": (0, 1), "think_ms": (0, 1)},
    Greed.LINE: {"ttls_ms": (3_000,), "hold_ms": (0, 1), "think_ms": (0, 5), "waits": 1.0},
}


def habits_of(attack: Attack, number: int, resources: tuple[bytes, ...]) -> Habits:
    """Of its so-and-so-many-th connection. resources: what modest accounts lock."""
    own = f"greedy {attack.number} {number}".encode()
    more = {"waits": 0.0} | HABITS[attack.greed]
    return Habits(
        resources=resources if attack.greed is Greed.LINE else (own,),
        max_holds_ms=(20_000,), detached=0, dies=0, forgets=0, extends=0, goes_elsewhere=0, chooses=0, **more,
    )  # fmt: skip


class RenewedTogether(CountedRequest):
    """A third of its TTL is over at that moment."""

    def __init__(self, app: GreedyApp, *more: Any) -> None:
        super().__init__(app, *more)
        left_ms = (app.attack.renewed_ns - app.world.now_ns) // MS
        if left_ms > 0:
            self.ttl_ms = max(100, min(3 * left_ms, self.ttl_ms))


class GreedyApp(App):
    """One of the many parts of an account that attacks. line: its connection, which others use, too."""

    requests = CountedRequest
    attack: Attack

    def __init__(self, attack: Attack, line: Line, *more: Any) -> None:
        self.attack = attack
        self.account = line.account
        if attack.renewed_ns:
            self.requests = RenewedTogether
        super().__init__(*more)
        self._line = line

    def _rest_ns(self) -> int:
        attack, now_ns = self.attack, self.world.now_ns
        if now_ns >= attack.until_ns:
            self.retired = True
        return super()._rest_ns() + max(0, attack.from_ns - now_ns)

    def _use_until_ns(self) -> int:
        return min(super()._use_until_ns(), self.attack.until_ns)

    def _use(self, held: Held, until_ns: int) -> None:
        """It only keeps it."""
        if self.world.now_ns < until_ns:
            self.wake_at(until_ns, self._use, held, until_ns)
        elif held in self._hands:
            self._unlock(held)

    def renewed(self, lease: Lease, *more: Any, asked: bool = False) -> None:
        """It doesn't care."""


def attacks(greedy: tuple[tuple[Greed, ...], ...]) -> list[Attack]:
    """Those of each account, one after the other."""
    found = []
    for account, greeds in enumerate(greedy):
        at_ns = _FROM_NS
        for greed in greeds:
            renewed_ns = at_ns + 2_500 * MS if greed is Greed.RENEWALS else 0
            found.append(Attack(greed, account + 1, at_ns, at_ns + _LASTS_NS, renewed_ns))
            at_ns += _LASTS_NS
    return found
