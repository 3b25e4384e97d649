"""What is measured: how many clients want what, on which hosts, and whose libraries take part."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tests.bench.contenders import BASELINES, CLIENT, CONTENDERS, RAW, REDIS_PY, REDLOCK_PY, RELAYS
from tests.bench.driver import Load, Wants

LONGEST_WAIT_S = 1.0
OWN, NEW, SAME = Wants.OWN, Wants.NEW, Wants.SAME
HOLD_S = 0.01
FIVE_HOSTS = tuple(client % 5 for client in range(20))
THREE_AND_ONE = (0, 0, 0, 1)
LONE = 3
"""The client that is alone on its host, in the scenario of that name."""

_ALL = (*CONTENDERS,)
_OURS = (CLIENT, RAW)


@dataclass(frozen=True, slots=True)
class Scenario:
    """kept: resources of a class that keeps tenures."""

    name: str
    clients: int
    wants: Wants = Wants.OWN
    takes_part: Collection[str] = _ALL
    hosts: tuple[int, ...] = ()
    hold_s: float = 0.0
    kept: bool = False

    @property
    def agents(self) -> int:
        return max(self.hosts, default=0) + 1

    def load(self, seconds: float, processes: int) -> Load:
        wait_s = min(LONGEST_WAIT_S, seconds) if self.wants is Wants.SAME else 0.0
        return Load(
            self.clients, self.wants, seconds, wait_s, processes, self.hold_s, self.hosts, kept=self.kept
        )


SCENARIOS = {
    one.name: one
    for one in (
        Scenario("1-free", 1, takes_part=(*_ALL, *BASELINES)),
        Scenario("16-free", 16),
        Scenario("64-free", 64),
        Scenario("16-new", 16, NEW, (*_ALL, *RELAYS)),
        Scenario("64-new", 64, NEW, (*_ALL, *RELAYS)),
        Scenario("1-kept", 1, takes_part=(*_OURS, *BASELINES, *RELAYS), kept=True),
        Scenario("16-kept", 16, takes_part=(*_OURS, REDLOCK_PY, REDIS_PY, *RELAYS), kept=True),
        Scenario("16-contended", 16, SAME),
        Scenario("64-contended", 64, SAME),
        Scenario("five-hosts", 20, SAME, (*_OURS, REDLOCK_PY, REDIS_PY), FIVE_HOSTS),
        Scenario("three-and-one", 4, SAME, _OURS, THREE_AND_ONE, HOLD_S),
    )
}
"""Those in which clients do nothing but lock. Special ones are measured in special.py."""

CHART_CLIENTS = (1, 2, 4, 8, 16, 32, 64)


def for_chart(clients: int) -> Scenario:
    return SCENARIOS.get(f"{clients}-free") or Scenario(f"{clients}-free", clients)
