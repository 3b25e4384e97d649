"""What a run is made of: a shape and a list of faults, both drawn from a seed, and small enough to read.

Each seed draws which kinds of fault there are at all (a swarm), around a theme: runs with few kinds find what
runs with all of them drown. Now and then all is mended for a while, so that what should be right then shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from typing import NamedTuple

from tests.harness.clocks import MS
from tests.sim.master import Guarding

ROUND_MS = 20_000
ASK_EVERY_MS = 1_000
"""How often the operator asks an agent for what is to be done."""
QUIET_FROM_MS = 16_000
"""In each round nothing new goes wrong from here on, and what can be mended is."""


class Kind(StrEnum):
    CRASH_MASTER = "crash master"
    POWER_LOSS = "power loss of master"
    BLACKOUT = "power loss of all masters"
    STOP_MASTER = "stop master"
    WIPE_MASTER = "wipe master"
    WIPE_SOME = "wipe some masters"
    CHANGE_MAX_TTL = "change of the max TTL"
    RESTORE_MASTER = "older data of master"
    PAUSE_MASTER = "pause master"
    STAND_STILL_MASTER = "host of master stands still"
    REFUSING_MASTER = "full disk of master"
    BABBLING_MASTER = "master that talks nonsense"
    MISCOUNTING_MASTER = "wrong fence counters of master"
    OLD_MACHINE = "old machine of master comes back"
    MOVE_MASTER = "master moves to another machine"
    PROMOTED_COPY = "promoted copy of master"
    OTHER_LIST = "agent with another list of masters"
    STEP_MASTER = "step clock of master"
    STEP_QUORUM = "step clocks of a quorum of masters"
    CUT = "cut path"
    ISOLATE_MASTER = "isolate master"
    ISOLATE_AGENT = "isolate agent"
    SLOW = "slow path"
    STICK = "stuck connection"
    RESET = "reset connection"
    PAUSE_AGENT = "pause agent"
    FREEZE_BEFORE = "pause agent before it speaks"
    FREEZE_AFTER = "pause agent after it asked for votes"
    CRASH_AGENT = "crash agent"
    STOP_AGENT = "stop agent"
    STEP_AGENT = "step clock of agent"
    SLEW_AGENT = "slew clock of agent"
    STAND_STILL = "host stands still"
    PAUSE_APP = "pause app"
    KILL_APP = "kill app"
    CRASH_WRITING = "crash agent at its journal"
    SPOIL_JOURNAL = "crash agent and spoil its journal"
    FORCE_RELEASE = "release by force at agent"


class Greed(StrEnum):
    """What an account may do that its host's other accounts must not feel."""

    RENEWALS = "renewals due together"
    TINY = "leases of 100 ms"
    CROWD = "asks on many connections at once"
    LINE = "many in the line for one resource"


GRAVE = (
    Kind.WIPE_MASTER,
    Kind.RESTORE_MASTER,
    Kind.STAND_STILL_MASTER,
    Kind.STEP_MASTER,
    Kind.MISCOUNTING_MASTER,
    Kind.OLD_MACHINE,
    Kind.MOVE_MASTER,
    Kind.PROMOTED_COPY,
)
"""What takes data or time from a master: lockd stands that of a minority, until it has settled."""


_ONLY_IN_SCENES = (Kind.WIPE_SOME, Kind.CHANGE_MAX_TTL)
OF_JOURNALS = (Kind.CRASH_WRITING, Kind.SPOIL_JOURNAL)
_DRAWN_APART = (*OF_JOURNALS, Kind.FORCE_RELEASE, Kind.MOVE_MASTER)
_FOR_A_GUARD = (Kind.STEP_MASTER, Kind.RESTORE_MASTER, Kind.STAND_STILL_MASTER)


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
    busy_agents: int
    apps: int
    resources: int
    ttls_ms: tuple[int, ...]
    guarding: Guarding
    drifts_ppm: tuple[int, ...]
    master_offs_ns: tuple[int, ...]
    agent_offs_ns: tuple[int, ...]
    loss: float
    lock_delay_ms: int
    think_ms: tuple[int, int]
    chaos_ms: int
    hold_ms: tuple[int, int] = (5, 3_000)
    crowded: bool = False
    """Many on each host want the same, for a moment each."""
    beat_ms: int = 0
    """When set, all apps ask together, as often as that, as what cron starts on many hosts does."""
    formed: bool = True
    """Whether the masters have their identities when the run begins."""
    old_format: bool = False
    """They are of the format that had no admission numbers, and so is who takes a master's place."""
    operators: int = 1
    forgets: float = 0.1
    keep_ms: int = 0
    taking_turns: bool = False
    """Nothing else happens than that hosts want the same all the time: each has to get it."""
    notices: float = 0.0
    """How likely a notice of a master is lost, and late, and said twice, and made up."""
    pools: bool = False
    """Apps have several connections, and clients that time out, ask again and recycle them."""
    joint: bool = False
    """Some apps lock several resources together, or one of several slots."""
    plain: bool = False
    """Some apps lock as Redis's own commands have it, with values of their own."""
    greedy: tuple[tuple[Greed, ...], ...] = ()
    """What each of the greedy accounts on the first host does, one after the other."""
    slowness: int = 1
    """Of that host."""

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

    @property
    def most_slewed_ms(self) -> int:
        """By how much clocks that are slewed may be off over the longest time that a lease is held."""
        return 200 if any(fault.kind is Kind.SLEW_AGENT for fault in self.faults) else 0

    def without(self, dropped: set[int]) -> Plan:
        """The same run with some of the faults left out, for shrinking."""
        return replace(self, faults=tuple(f for i, f in enumerate(self.faults) if i not in dropped))


@dataclass(frozen=True, slots=True)
class Theme:
    """What a run is about: kinds of fault that it has for certain, how likely it has each of the others, and
    of which numbers its cluster is drawn. scene: faults that hang together, instead of the kinds."""

    kinds: tuple[Kind, ...] = ()
    others: float = 0.35
    masters: tuple[int, ...] = (3, 5, 5, 5)
    skews_ms: tuple[int, ...] = (0, 1, 20, 3_000, 600_000)
    max_ttls_ms: tuple[int, ...] = (1_500, 3_000, 5_000, 10_000)
    thinks_ms: tuple[tuple[int, int], ...] = ((100, 2_500),)
    beats_ms: tuple[int, ...] = (0,)
    lying_disks: bool = False
    guarded: bool = True
    formed: float = 0.85
    """How likely the masters have their identities when it begins. Else an operator has them formed."""
    old_format: bool = False
    operators: tuple[int, ...] = (1,)
    forgets: float = 0.1
    """How many of the detached leases nobody gives back."""
    steps_seen_after_ms: tuple[int | None, ...] = (20, 20, None)
    scene: Callable[[random.Random, Shape], Iterator[Fault]] | None = None


_ANYTHING = Theme()
_COUNTERS = Theme(
    (Kind.ISOLATE_MASTER, Kind.CUT, Kind.CRASH_AGENT), 0.1, masters=(3, 3, 5), skews_ms=(20, 3_000, 600_000)
)
_LATE = Theme(
    (Kind.STICK, Kind.RESET, Kind.CUT, Kind.ISOLATE_AGENT, Kind.SLOW), 0.05, max_ttls_ms=(3_000, 5_000)
)
_STOPPED = Theme((Kind.FREEZE_BEFORE, Kind.FREEZE_AFTER, Kind.PAUSE_AGENT, Kind.PAUSE_APP), 0.05)
_CLOCKS = Theme(
    (Kind.STEP_MASTER, Kind.CRASH_AGENT, Kind.ISOLATE_MASTER, Kind.PAUSE_APP),
    0.05,
    masters=(3, 3, 5),
    max_ttls_ms=(5_000, 10_000),
)
_STILL = Theme((Kind.STAND_STILL, Kind.STEP_MASTER, Kind.ISOLATE_MASTER), 0.05, max_ttls_ms=(3_000, 10_000))
_SHARED_NTP = Theme((Kind.STAND_STILL, Kind.STEP_QUORUM), 0.0, steps_seen_after_ms=(20,))
_DISKS = Theme(
    (Kind.CRASH_MASTER, Kind.POWER_LOSS, Kind.BLACKOUT),
    0.1,
    skews_ms=(0, 20),
    max_ttls_ms=(3_000, 10_000),
    lying_disks=True,
)
_SERVICE = Theme(
    (Kind.STOP_MASTER, Kind.PAUSE_MASTER, Kind.REFUSING_MASTER, Kind.WIPE_MASTER, Kind.STOP_AGENT), 0.05
)
# An honest disk loses no vote, and a wiped master is blank: what the guard is for is the rest.
_UNGUARDED = Theme((Kind.CRASH_MASTER, Kind.POWER_LOSS, Kind.BLACKOUT), 0.2, guarded=False)
# Nothing goes wrong but that all want the same at the same moment.
_CROWD = Theme(others=0, masters=(5,), skews_ms=(0, 20), beats_ms=(500, 1_000))
_THEMES = (
    _ANYTHING,
    _ANYTHING,
    _COUNTERS,
    _LATE,
    _STOPPED,
    _CLOCKS,
    _STILL,
    _SHARED_NTP,
    _DISKS,
    _SERVICE,
    _UNGUARDED,
    _CROWD,
)


def _scenes() -> tuple[Theme, ...]:
    few = (3, 3, 5)
    return (
        Theme(masters=few, skews_ms=(600_000,), max_ttls_ms=(500,), scene=_halves),
        Theme(masters=few, max_ttls_ms=(10_000,), steps_seen_after_ms=(None,), scene=_shared_jump),
        Theme(masters=(5,), max_ttls_ms=(10_000,), steps_seen_after_ms=(None,), scene=_bare_quorum),
        Theme(masters=few, max_ttls_ms=(500, 3_000, 10_000), scene=_old_machine),
        Theme(masters=few, max_ttls_ms=(3_000, 10_000), scene=_promoted_copy),
        Theme(masters=(3, 5, 5), max_ttls_ms=(3_000,), scene=_other_lists),
        Theme(masters=few, skews_ms=(600_000,), max_ttls_ms=(500,), scene=_restored),
        Theme(max_ttls_ms=(1_500, 3_000), scene=_slewed),
        Theme(masters=few, max_ttls_ms=(500, 3_000), formed=0, scene=_forming),
        Theme(masters=few, max_ttls_ms=(500, 3_000), formed=1, old_format=True, scene=_forming),
        Theme(masters=few, max_ttls_ms=(500, 3_000), scene=_admitting),
        Theme(masters=few, max_ttls_ms=(500, 3_000), operators=(1, 2), scene=_recovering),
        Theme(
            masters=few,
            max_ttls_ms=(10_000,),
            steps_seen_after_ms=(20, None),
            forgets=0.8,
            scene=_changed_max_ttl,
        ),
    )


def themes() -> tuple[Theme, ...]:
    """What runs are about."""
    return (*_THEMES, *_scenes())


def _begun(seed: int) -> tuple[random.Random, int]:
    """The dice of a plan, and the place of its theme in `themes`."""
    dice = random.Random(f"plan {seed}")
    return dice, dice.choice(range(len(themes())))


def theme_of(seed: int) -> int:
    """The place in `themes` of what its run is about."""
    return _begun(seed)[1]


def sort_of(seed: int) -> tuple[object, ...]:
    """The same for runs that are about the same: what one of them finds, another is likely to find."""
    shape = draw(seed).shape
    if shape.greedy:
        return (shape.greedy,)
    apps = shape.pools, shape.joint, shape.plain, shape.crowded, shape.taking_turns
    return theme_of(seed), *apps, shape.keep_ms > 0


SHARED = 1_000_000
"""From this seed on, a host is shared with greedy accounts."""
_FIRST_OF_DAYS, _OF_A_DAY = 100_000, 2_000


def of_today(after: int, count: int) -> range:
    """So many seeds, behind so many others of the day. They come again after 450 days."""
    days = (SHARED - _FIRST_OF_DAYS) // _OF_A_DAY
    first = _FIRST_OF_DAYS + date.today().toordinal() % days * _OF_A_DAY + after
    assert after + count <= _OF_A_DAY
    return range(first, first + count)


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    if seed >= SHARED:
        return _shared(seed)
    dice, number = _begun(seed)
    theme = themes()[number]
    shape = _shape(dice, theme)
    faults = [*_faults(dice, theme, shape)]
    dice = random.Random(f"journals {seed}")
    if dice.random() < 0.2 and theme.scene is None and not theme.lying_disks:
        # Nothing else goes wrong: what was held is kept then.
        shape = replace(shape, loss=0, formed=True)
        faults = []
    faults += _of_journals(dice, shape)
    shape = replace(shape, pools=random.Random(f"clients {seed}").random() < 0.3)
    dice = random.Random(f"tenures {seed}")
    if dice.random() < 0.4 and theme.scene is None:
        shape, more = _crowded(dice, shape)
        faults += more
    dice = random.Random(f"turns {seed}")
    if dice.random() < 0.15 and theme.scene is None and shape.guarding.enabled:
        shape, faults = _turns(dice, shape)
    dice = random.Random(f"keeps {seed}")
    if dice.random() < 0.3 and theme.scene is None:
        shape = _keeping(dice, shape)
    shape = replace(shape, joint=random.Random(f"lists and slots {seed}").random() < 0.2)
    may_be_plain = theme.scene is None and not shape.taking_turns
    dice = random.Random(f"values {seed}")
    if may_be_plain and dice.random() < 0.25:
        # Who polls comes to nothing beside many who wait. Wrong notices say that others have released.
        most = min(shape.apps, 2 * shape.busy_agents)
        shape = replace(shape, plain=True, apps=most, notices=dice.choice((0.0, 0.0, 0.1, 0.5)))
    dice = random.Random(f"moves {seed}")
    if theme.scene is _old_machine and dice.random() < 0.5:
        faults = [_moved(dice, fault) for fault in faults]
    return Plan(seed, shape, tuple(sorted(faults, key=lambda fault: fault.at_ms)))


def _shared(seed: int) -> Plan:
    """Nothing else goes wrong but that a master may be away."""
    dice = random.Random(f"shares {seed}")
    greedy = tuple(
        tuple(dice.sample(list(Greed), dice.choice((1, 2)))) for _ in range(dice.choice((1, 1, 2, 3)))
    )
    shape = Shape(
        masters=dice.choice((3, 5, 5)),
        agents=2,
        busy_agents=2,
        apps=dice.choice((8, 12)),
        resources=1,
        ttls_ms=(300, 600, 1_000, 2_000, 4_000),
        guarding=Guarding(10_000),
        drifts_ppm=(0,) * 7,
        master_offs_ns=(0,) * 5,
        agent_offs_ns=(0,) * 2,
        loss=0.0,
        lock_delay_ms=0,
        think_ms=(0, 100),
        hold_ms=(5, 1_500),
        chaos_ms=15_000,
        greedy=greedy,
        slowness=dice.choice((3, 5, 8)),
    )
    away = Fault(2_000, Kind.STOP_MASTER, dice.randrange(shape.masters), 0, 12_000)
    return Plan(seed, shape, (away,) if dice.random() < 0.3 else ())


def _moved(dice: random.Random, fault: Fault) -> Fault:
    """The machine was replaced by an operator, who tells one agent after the other."""
    if fault.kind is not Kind.OLD_MACHINE:
        return fault
    return replace(fault, kind=Kind.MOVE_MASTER, amount=dice.randrange(1 << 32))


def _turns(dice: random.Random, shape: Shape) -> tuple[Shape, list[Fault]]:
    """Hosts whose clocks are minutes apart want the same, all the time, and nothing goes wrong; but that
    notices may be lost, late, doubled and made up, and that agents die, end, are stopped or stand still with
    their host, waiting or holding."""
    agents = dice.choice((2, 3, 3))
    busy = replace(
        shape,
        masters=5,
        agents=agents,
        busy_agents=agents,
        apps=dice.choice((1, 2, 4)) * agents,
        resources=1,
        guarding=Guarding(3_000),
        ttls_ms=(3_000,),
        drifts_ppm=tuple(dice.randint(-450, 450) for _ in range(5 + agents)),
        master_offs_ns=tuple(int(dice.gauss(0, 10) * MS) for _ in range(5)),
        agent_offs_ns=tuple(int(dice.uniform(-600_000, 600_000) * MS) for _ in range(agents)),
        loss=0.0,
        lock_delay_ms=0,
        formed=True,
        old_format=False,
        think_ms=dice.choice(((0, 5), (0, 100))),
        hold_ms=dice.choice(((1, 10), (5, 60), (1, 300))),
        beat_ms=0,
        chaos_ms=40_000,
        crowded=True,
        pools=False,
        taking_turns=True,
        notices=dice.choice((0.0, 0.0, 0.1, 0.5)),
    )
    faults = []
    every_ms = dice.choice((0, 0, 3_000))
    at_ms = 2_000
    while every_ms and (at_ms := at_ms + int(dice.expovariate(1 / every_ms))) < busy.chaos_ms:
        kind = dice.choice((Kind.CRASH_AGENT, Kind.STOP_AGENT, Kind.PAUSE_AGENT, Kind.STAND_STILL))
        faults.append(Fault(at_ms, kind, 0, dice.randrange(agents), dice.choice((20, 2_000))))
    return busy, faults


def _crowded(dice: random.Random, shape: Shape) -> tuple[Shape, list[Fault]]:
    """Many on each host want the same, for a moment: it is handed on. At times somebody takes it away."""
    crowded = replace(
        shape,
        apps=dice.choice((3, 4, 6)) * shape.busy_agents,
        resources=1,
        think_ms=dice.choice(((0, 20), (0, 100), (50, 500))),
        hold_ms=dice.choice(((1, 10), (1, 100), (5, 600))),
        beat_ms=0,
        crowded=True,
    )
    faults = []
    every_ms = dice.choice((0, 0, 1_000, 4_000))
    at_ms = 2_000
    while every_ms and (at_ms := at_ms + int(dice.expovariate(1 / every_ms))) < crowded.chaos_ms:
        if at_ms % ROUND_MS < QUIET_FROM_MS:
            agent = dice.randrange(shape.agents)
            faults.append(Fault(at_ms, Kind.FORCE_RELEASE, dice.randrange(shape.masters), agent, 100))
    return crowded, faults


def _keeping(dice: random.Random, shape: Shape) -> Shape:
    """Tenures stay for a while; where it is not crowded, few on each host lock the same again and again."""
    keeping = replace(shape, keep_ms=dice.choice((20, 100, 1_000, 20_000)))
    if shape.crowded or shape.taking_turns:
        return keeping
    return replace(
        keeping,
        apps=dice.choice((1, 2)) * shape.busy_agents,
        resources=dice.choice((1, 3, 3)),
        think_ms=dice.choice(((0, 10), (0, 100), (0, 400))),
        hold_ms=dice.choice(((1, 10), (1, 100), (1, 1_500))),
        beat_ms=0,
    )


def _of_journals(dice: random.Random, shape: Shape) -> Iterator[Fault]:
    """Agents that die at what they note, beside whatever else there is, in a part of the runs."""
    every_ms = dice.choice((0, 600, 1_500, 5_000))
    at_ms = 2_000
    while every_ms and (at_ms := at_ms + int(dice.expovariate(1 / every_ms))) < shape.chaos_ms:
        if at_ms % ROUND_MS < QUIET_FROM_MS:
            kind = dice.choice((Kind.CRASH_WRITING, Kind.CRASH_AGENT, Kind.STOP_AGENT, Kind.SPOIL_JOURNAL))
            for_ms = dice.choice((20, 200, dice.randint(200, 3_000)))
            agent = dice.randrange(shape.busy_agents)
            yield Fault(at_ms, kind, dice.randrange(shape.masters), agent, for_ms, dice.choice((1, 2, 3)))


def _shape(dice: random.Random, theme: Theme) -> Shape:
    masters = dice.choice(theme.masters)
    agents = 3 if theme.scene is not None else dice.choice((2, 3, 3))
    # In a scene somebody looks on: an agent that has nothing to do but to admit a master.
    busy_agents = 2 if theme.scene is not None else agents
    max_ttl_ms = dice.choice(theme.max_ttls_ms)
    # A disk that lies about what it has written loses counters too: their order rests on the agents' clocks
    # then, which is why lockd asks for honest disks.
    guarding = Guarding(
        max_ttl_ms,
        enabled=theme.guarded,
        steps_seen_after_ms=dice.choice(theme.steps_seen_after_ms),
        synced_ms=dice.choice((400, 1_500)) if theme.lying_disks else 0,
    )
    skew_ms = dice.choice(theme.skews_ms)
    return Shape(
        masters=masters,
        agents=agents,
        busy_agents=busy_agents,
        apps=dice.choice((1, 2, 3)) * busy_agents,
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
        think_ms=dice.choice(theme.thinks_ms),
        chaos_ms=dice.choice((40_000, 60_000, 80_000)),
        beat_ms=dice.choice(theme.beats_ms),
        formed=dice.random() < theme.formed,
        old_format=theme.old_format,
        operators=dice.choice(theme.operators),
        forgets=theme.forgets,
    )


def _faults(dice: random.Random, theme: Theme, shape: Shape) -> Iterator[Fault]:
    others = [kind for kind in Kind if kind not in _DRAWN_APART]
    drawn = [kind for kind in others if kind in theme.kinds or dice.random() < theme.others]
    kinds = [kind for kind in drawn if kind not in _ONLY_IN_SCENES]
    if shape.guarding.synced_ms:
        # Without an order of their own that the agents' clocks could take over.
        kinds = [kind for kind in kinds if kind is not Kind.STEP_AGENT]
    if not shape.guarding.enabled:
        kinds = [kind for kind in kinds if kind not in _FOR_A_GUARD]
    if theme is not _SHARED_NTP:
        # What takes time from a quorum is more than agents alone stand, one that was just started above all.
        kinds = [kind for kind in kinds if kind is not Kind.STEP_QUORUM]
    if theme.scene is not None:
        yield from sorted(theme.scene(dice, shape), key=lambda fault: fault.at_ms)
        return
    every_ms = dice.choice((1_000, 2_000, 6_000))
    at_ms = 2_000
    while kinds and (at_ms := at_ms + int(dice.expovariate(1 / every_ms))) < shape.chaos_ms:
        if at_ms % ROUND_MS < QUIET_FROM_MS:
            yield _fault(dice, shape, dice.choice(kinds), at_ms)


class Halves(NamedTuple):
    """Two agents that are to see different halves of the masters, and one master that both see."""

    shared: int
    first: int
    second: int
    here: list[int]
    there: list[int]

    @classmethod
    def drawn(cls, dice: random.Random, shape: Shape) -> Halves:
        shared, *rest = dice.sample(range(shape.masters), shape.masters)
        first, second = dice.sample(range(shape.busy_agents), 2)
        return cls(shared, first, second, rest[: len(rest) // 2], rest[len(rest) // 2 :])

    def cuts(self, at_ms: int, lasts_ms: int) -> Iterator[Fault]:
        """Each is cut off from the other's half."""
        yield from (Fault(at_ms, Kind.CUT, m, self.first, lasts_ms, 3) for m in self.there)
        yield from (Fault(at_ms, Kind.CUT, m, self.second, lasts_ms, 3) for m in self.here)


class Split(NamedTuple):
    """For how long two agents see different halves: until the calm at the end of a round."""

    halves: Halves
    at_ms: int
    lasts_ms: int


def _splits(dice: random.Random, shape: Shape) -> Iterator[Split]:
    """One in each round."""
    for round_ms in range(0, shape.chaos_ms, ROUND_MS):
        halves = Halves.drawn(dice, shape)
        at_ms = round_ms + dice.randint(1_000, 2_000)
        yield Split(halves, at_ms, round_ms + QUIET_FROM_MS - at_ms)


def _halves(dice: random.Random, shape: Shape) -> Iterator[Fault]:
    """The attack on every quorum: two agents see different halves of the masters, and the one master that
    both see is wiped, and admitted again by an agent that sees all."""
    for halves, at_ms, lasts_ms in _splits(dice, shape):
        yield from halves.cuts(at_ms, lasts_ms)
        yield Fault(at_ms + 100, Kind.CRASH_AGENT, 0, halves.second, 200)
        yield Fault(at_ms + 2_500, Kind.WIPE_MASTER, halves.shared, 0, 100)


def _restored(dice: random.Random, shape: Shape) -> Iterator[Fault]:
    """The same with older data in its place; who has seen newer fences does not see it any more."""
    for halves, at_ms, lasts_ms in _splits(dice, shape):
        yield from halves.cuts(at_ms, lasts_ms)
        yield Fault(at_ms + 100, Kind.CRASH_AGENT, 0, halves.second, 200)
        yield Fault(at_ms + 2_500, Kind.RESTORE_MASTER, halves.shared, 0, 100, dice.randint(2, 9))
        yield Fault(at_ms + 2_500, Kind.CUT, halves.shared, halves.first, lasts_ms - 2_500, 3)


def _slewed(dice: random.Random, shape: Shape) -> Iterator[Fault]:
    """Time synchronisation hurries, for longer than it takes to see that."""
    for round_ms in range(0, shape.chaos_ms, ROUND_MS):
        at_ms = round_ms + dice.randint(500, 1_500)
        ppm = _amount(dice, Kind.SLEW_AGENT)
        agent = dice.randrange(shape.busy_agents)
        yield Fault(at_ms, Kind.SLEW_AGENT, 0, agent, round_ms + QUIET_FROM_MS - at_ms, ppm)
        yield _fault(
            dice, shape, dice.choice((Kind.CUT, Kind.SLOW, Kind.RESET)), at_ms + dice.randint(0, 9_000)
        )


def _shared_jump(dice: random.Random, shape: Shape) -> Iterator[Fault]:
    """The same with a clock: what both see jumps, and the second agent has just started."""
    for round_ms in range(0, shape.chaos_ms, ROUND_MS):
        halves = Halves.drawn(dice, shape)
        at_ms = round_ms + dice.randint(2_000, 6_000)
        yield from (Fault(at_ms, Kind.CUT, m, halves.first, 8_000, 3) for m in halves.there)
        # By different amounts: a fresh agent takes a clock for right that agrees with those set before. That
        # the guard watches the clock is what helps there (rule 11b).
        by_ns = dice.randint(30_000, 90_000) * MS
        yield Fault(at_ms + 1_200, Kind.STEP_MASTER, halves.shared, 0, 100, by_ns)
        yield Fault(at_ms + 1_300, Kind.CRASH_AGENT, 0, halves.second, 200)
        yield from (Fault(at_ms + 1_500, Kind.CUT, m, halves.second, 6_000, 3) for m in halves.here)


def _bare_quorum(dice: random.Random, shape: Shape) -> Iterator[Fault]:
    """A lease on no more than a quorum, of which a minority loses it while its holder looks away."""
    for round_ms in range(0, shape.chaos_ms, ROUND_MS):
        masters = dice.sample(range(shape.masters), shape.masters)
        away, hurt = masters[: shape.minority], masters[shape.minority : 2 * shape.minority]
        agent = dice.randrange(shape.agents)
        at_ms = round_ms + dice.randint(2_000, 6_000)
        yield from (Fault(at_ms, Kind.CUT, m, agent, 3_000, 3) for m in away)
        yield from (Fault(at_ms + 2_800, Kind.PAUSE_APP, n, agent, 8_000) for n in range(shape.apps))
        for m in hurt:
            by_ns = dice.randint(30_000, 90_000) * MS
            yield Fault(at_ms + 3_000, Kind.STEP_MASTER, m, agent, 100, by_ns)


def _old_machine(dice: random.Random, shape: Shape) -> Iterator[Fault]:
    """Two agents see different halves of the masters; of the one that both see there are two machines, and
    one agent asks the old one. Who sees all has the new one admitted."""
    for halves, at_ms, lasts_ms in _splits(dice, shape):
        yield from halves.cuts(at_ms, lasts_ms)
        yield Fault(at_ms + 500, Kind.OLD_MACHINE, halves.shared, halves.first, lasts_ms)


def _forming(dice: random.Random, shape: Shape) -> Iterator[Fault]:
    """Forming, or upgrading, is broken off, and another machine takes the place of one that has an identity
    already. One agent still asks the old one; then two agents see different halves of the masters beside
    these."""
    forms, asks_old, rest = 0, 1, range(1, shape.masters)
    here = dice.sample(rest, shape.minority)
    halves = Halves(0, asks_old, forms, here, [m for m in rest if m not in here])
    yield from (Fault(500, Kind.SLOW, m, forms, 900, 20 * MS) for m in range(shape.masters))
    looked_ms = ASK_EVERY_MS + 40
    steps = 2 * shape.masters if shape.old_format else shape.minority
    yield Fault(looked_ms + dice.randint(20, 20 + 40 * steps), Kind.CRASH_AGENT, 0, forms, 200)
    yield Fault(1_500, Kind.OLD_MACHINE, halves.shared, asks_old, QUIET_FROM_MS - 1_500)
    yield from _interruptions(dice, shape, 1_500, dice.randint(1_500, 5_000), forms)
    at_ms = dice.randint(2_500, 7_000)
    yield from halves.cuts(at_ms, QUIET_FROM_MS - at_ms)


def _admitting(dice: random.Random, shape: Shape) -> Iterator[Fault]:
    """As with an old machine, and admitting the new one is broken off again and again, or a part of the
    others can't write its number down for a while."""
    onlooker = shape.agents - 1
    for halves, at_ms, lasts_ms in _splits(dice, shape):
        yield from halves.cuts(at_ms, lasts_ms)
        yield Fault(at_ms + 500, Kind.OLD_MACHINE, halves.shared, halves.first, lasts_ms)
        if dice.random() < 0.5:
            for_ms = dice.randint(3_000, 8_000)
            yield from (Fault(at_ms + 600, Kind.REFUSING_MASTER, m, onlooker, for_ms) for m in halves.here)
        else:
            yield from _interruptions(dice, shape, at_ms + 500, at_ms + lasts_ms, onlooker)


def _recovering(dice: random.Random, shape: Shape) -> Iterator[Fault]:
    """So many lose their data that the operators begin anew with the others; an agent still finds a quorum
    with the old machine of one that was replaced. It is broken off at times."""
    asks_new, asks_old = 0, 1
    for round_ms in range(0, shape.chaos_ms, ROUND_MS):
        replaced, *rest = dice.sample(range(shape.masters), shape.masters)
        at_ms = round_ms + dice.randint(1_000, 2_000)
        yield Fault(at_ms, Kind.OLD_MACHINE, replaced, asks_old, round_ms + QUIET_FROM_MS - at_ms)
        wiped = sum(1 << master for master in rest[: shape.minority])
        yield Fault(at_ms + dice.randint(0, 500), Kind.WIPE_SOME, replaced, 0, 100, wiped)
        if dice.random() < 0.5:
            yield from _interruptions(dice, shape, at_ms + 1_000, at_ms + 12_000, asks_new)


def _changed_max_ttl(dice: random.Random, shape: Shape) -> Iterator[Fault]:
    """It is lowered, and raised again in the next round; at times that is broken off and done again. What
    both agents see is replaced, or its clock jumps, while leases from before may still be relied upon."""
    low_ms = shape.max_ttl_ms // 8
    for number, (halves, at_ms, lasts_ms) in enumerate(_splits(dice, shape)):
        to_ms = shape.max_ttl_ms if number % 2 else low_ms
        yield from halves.cuts(at_ms, lasts_ms)
        change_ms = at_ms + dice.randint(1_500, 2_500)
        if dice.random() < 0.3:
            yield Fault(at_ms, Kind.CHANGE_MAX_TTL, 0, 0, dice.randint(100, 1_500), to_ms)
        yield Fault(change_ms, Kind.CHANGE_MAX_TTL, 0, 0, 4 * ROUND_MS, to_ms)
        hurt_ms = change_ms + dice.randint(2_000, 2_500)
        if shape.guarding.steps_seen_after_ms is None:
            by_ns = dice.randint(30_000, 90_000) * MS
            yield Fault(hurt_ms, Kind.STEP_MASTER, halves.shared, 0, 100, by_ns)
        else:
            for_ms = at_ms + lasts_ms - hurt_ms
            yield Fault(hurt_ms, Kind.OLD_MACHINE, halves.shared, halves.first, for_ms)


def _interruptions(
    dice: random.Random, shape: Shape, from_ms: int, to_ms: int, agent: int
) -> Iterator[Fault]:
    """What an agent does for the operator, who asks at each full second, takes it a few ms."""
    for asked_ms in range(-(-from_ms // ASK_EVERY_MS) * ASK_EVERY_MS, to_ms, ASK_EVERY_MS):
        kind = dice.choice((Kind.CRASH_AGENT, Kind.RESET, Kind.REFUSING_MASTER, None, None))
        if kind is not None:
            yield Fault(asked_ms + dice.randint(1, 10), kind, dice.randrange(shape.masters), agent, 200)


def _promoted_copy(dice: random.Random, shape: Shape) -> Iterator[Fault]:
    """The same with a replica that lagged behind, in the place of the one that both see."""
    for round_ms in range(0, shape.chaos_ms, ROUND_MS):
        halves = Halves.drawn(dice, shape)
        at_ms = round_ms + dice.randint(1_000, 5_000)
        yield from halves.cuts(at_ms, 6_000)
        yield Fault(at_ms + 2_000, Kind.PROMOTED_COPY, halves.shared, 0, 3_000)
        # It forgets that it was promoted; and no guard holds back what was stopped cleanly.
        yield Fault(at_ms + dice.randint(2_200, 3_000), Kind.STOP_MASTER, halves.shared, 0, 100)


def _other_lists(dice: random.Random, shape: Shape) -> Iterator[Fault]:
    """Two agents have two parts of the masters for all of them."""
    for round_ms in range(0, shape.chaos_ms, ROUND_MS):
        first, second = dice.sample(range(shape.busy_agents), 2)
        at_ms = round_ms + dice.randint(1_000, 4_000)
        yield Fault(at_ms, Kind.OTHER_LIST, 0, first, 8_000, 1)
        yield Fault(at_ms + dice.randint(0, 2_000), Kind.OTHER_LIST, 0, second, 8_000, 2)


def _fault(dice: random.Random, shape: Shape, kind: Kind, at_ms: int) -> Fault:
    for_ms = int(dice.choice((dice.uniform(20, 400), dice.uniform(200, 2_500), dice.uniform(2_000, 9_000))))
    amount = _amount(dice, kind)
    if kind is Kind.STEP_MASTER and shape.guarding.steps_seen_after_ms is None:
        # A step that a fresh agent can see too: beyond what it allows for around the median.
        amount = abs(amount) + 300 * MS
    return Fault(at_ms, kind, dice.randrange(shape.masters), dice.randrange(shape.agents), for_ms, amount)


def _amount(dice: random.Random, kind: Kind) -> int:
    if kind is Kind.STEP_QUORUM:
        return int(dice.uniform(20, 9_000) * MS)
    if kind is Kind.STEP_MASTER:
        size_ms = dice.choice((dice.uniform(1, 20), dice.uniform(20, 3_000), dice.uniform(3_000, 3_600_000)))
        return int(dice.choice((1, 1, -1)) * size_ms * MS)
    if kind is Kind.SLEW_AGENT:
        return dice.choice((-1, 1)) * dice.randint(1_500, 8_000)
    if kind is Kind.RESTORE_MASTER:
        return dice.randint(1, 9)  # seconds
    if kind is Kind.STEP_AGENT:
        return int(dice.gauss(0, 1) * dice.choice((10, 5_000, 3_600_000)) * MS)
    if kind is Kind.SLOW:
        return int(dice.choice((20, 200, 1_000, 3_000)) * dice.random() * MS)
    return dice.choice((1, 2, 3))  # ways: there, back, both
