"""What a run is made of: a shape and a list of faults, both drawn from a seed, and small enough to read.

Each seed draws which kinds of fault there are at all (a swarm): runs with few kinds find what runs with all
of them drown.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum

from tests.sim.master import Guarding
from tests.sim.world import MS


class Kind(StrEnum):
    CRASH_MASTER = "crash master"
    POWER_LOSS = "power loss of master"
    STOP_MASTER = "stop master"
    WIPE_MASTER = "wipe master"
    PAUSE_MASTER = "pause master"
    REFUSING_MASTER = "full disk of master"
    STEP_MASTER = "step clock of master"
    CUT = "cut path"
    ISOLATE_MASTER = "isolate master"
    ISOLATE_AGENT = "isolate agent"
    SLOW = "slow path"
    STICK = "stuck connection"
    RESET = "reset connection"
    PAUSE_AGENT = "pause agent"
    FREEZE_AGENT = "pause agent before it speaks"
    CRASH_AGENT = "crash agent"
    STOP_AGENT = "stop agent"
    STEP_AGENT = "step clock of agent"
    PAUSE_APP = "pause app"
    KILL_APP = "kill app"


GRAVE = (Kind.WIPE_MASTER, Kind.STEP_MASTER)
"""What takes data or time from a master: lockd stands that of a minority, until it has settled."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. amount: what the kind makes of it (ns of a step or a delay, ways cut)."""

    at_ms: int
    kind: Kind
    master: int
    agent: int
    for_ms: int
    amount: int = 0

    def __str__(self) -> str:
        where = f"m{self.master + 1}, agent{self.agent + 1}"
        return f"{self.at_ms / 1000:8.3f} s  {self.kind} ({where}) for {self.for_ms} ms, amount {self.amount}"


@dataclass(frozen=True, slots=True)
class Shape:
    """The cluster: how many of each, how long leases may be, and how far the clocks are off."""

    masters: int
    agents: int
    apps: int
    resources: int
    ttls_ms: tuple[int, ...]
    guarding: Guarding
    drifts_ppm: tuple[int, ...]
    master_offs_ns: tuple[int, ...]
    agent_offs_ns: tuple[int, ...]
    loss: float
    lock_delay_ms: int
    chaos_ms: int

    @property
    def max_ttl_ms(self) -> int:
        return self.guarding.max_ttl_ms

    @property
    def minority(self) -> int:
        return (self.masters - 1) // 2


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run. The same plan gives the same history."""

    seed: int
    shape: Shape
    faults: tuple[Fault, ...]

    def without(self, dropped: set[int]) -> Plan:
        """The same run with some of the faults left out, for shrinking."""
        return replace(self, faults=tuple(f for i, f in enumerate(self.faults) if i not in dropped))


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    dice = random.Random(f"plan {seed}")
    shape = _shape(dice)
    return Plan(seed, shape, tuple(sorted(_faults(dice, shape), key=lambda fault: fault.at_ms)))


def _shape(dice: random.Random) -> Shape:
    masters = dice.choice((3, 5, 5, 5))
    agents = dice.choice((2, 3, 3))
    max_ttl_ms = dice.choice((1_500, 3_000, 5_000, 10_000))
    # A disk that lies about what it has written loses counters too: their order rests on the agents' clocks
    # then, which is why lockd asks for honest disks.
    lying = dice.random() < 0.25
    guarding = Guarding(
        max_ttl_ms,
        steps_seen_after_ms=dice.choice((20, 20, None)),
        synced_ms=dice.choice((400, 1_500)) if lying else 0,
    )
    skew_ms = dice.choice((0, 0, 20)) if lying else dice.choice((0, 1, 20, 3_000, 600_000))
    return Shape(
        masters=masters,
        agents=agents,
        apps=dice.choice((1, 2, 3)) * agents,
        resources=dice.choice((1, 2, 3)),
        ttls_ms=tuple(
            sorted({max(100, max_ttl_ms // part) for part in dice.choice(((1,), (1, 3), (1, 2, 8)))})
        ),
        guarding=guarding,
        drifts_ppm=tuple(dice.randint(-450, 450) for _ in range(masters + agents)),
        master_offs_ns=tuple(int(dice.gauss(0, 10) * MS) for _ in range(masters)),
        agent_offs_ns=tuple(int(dice.uniform(-skew_ms, skew_ms) * MS) for _ in range(agents)),
        loss=dice.choice((0, 0, 0.002, 0.02)),
        lock_delay_ms=dice.choice((0, 0, 300)),
        chaos_ms=dice.choice((30_000, 60_000, 90_000)),
    )


def _faults(dice: random.Random, shape: Shape) -> list[Fault]:
    kinds = [kind for kind in Kind if dice.random() < 0.35]
    if shape.guarding.synced_ms:
        # Without an order of their own that the agents' clocks could take over.
        kinds = [kind for kind in kinds if kind is not Kind.STEP_AGENT]
    if not kinds:
        return []
    every_ms = dice.choice((1_000, 3_000, 8_000))
    faults = []
    at_ms = 2_000
    while (at_ms := at_ms + int(dice.expovariate(1 / every_ms))) < shape.chaos_ms:
        faults.append(_fault(dice, shape, dice.choice(kinds), at_ms))
    return faults


def _fault(dice: random.Random, shape: Shape, kind: Kind, at_ms: int) -> Fault:
    for_ms = int(dice.choice((dice.uniform(20, 400), dice.uniform(200, 2_500), dice.uniform(2_000, 9_000))))
    amount = _amount(dice, kind)
    if kind is Kind.STEP_MASTER and shape.guarding.steps_seen_after_ms is None:
        # A step that a fresh agent can see too: beyond what it allows for around the median.
        amount = abs(amount) + 300 * MS
    return Fault(
        at_ms, kind, dice.randrange(shape.masters), dice.randrange(shape.agents), for_ms, amount
    )


def _amount(dice: random.Random, kind: Kind) -> int:
    if kind is Kind.STEP_MASTER:
        size_ms = dice.choice((dice.uniform(1, 20), dice.uniform(20, 3_000), dice.uniform(3_000, 3_600_000)))
        return int(dice.choice((1, 1, -1)) * size_ms * MS)
    if kind is Kind.STEP_AGENT:
        return int(dice.gauss(0, 1) * dice.choice((10, 5_000, 3_600_000)) * MS)
    if kind is Kind.SLOW:
        return int(dice.choice((20, 200, 1_000, 3_000)) * dice.random() * MS)
    return dice.choice((1, 2, 3))  # ways: there, back, both
