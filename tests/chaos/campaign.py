"""A campaign: a cluster, apps at work, and a nemesis; then the checker's word on what happened."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from lockd.clock import boottime_ns
from tests.chaos.apps import App, Life, Wish
from tests.chaos.ground import Ground, Terms, running_ground
from tests.chaos.holders.nursery import KINDS as KINDS_OF_HOLDERS
from tests.chaos.holders.nursery import Nursery, holders
from tests.chaos.holders.verdict import Circumstances, check_processes
from tests.chaos.hosts import DELAYED, KEPT, NotUp, until
from tests.chaos.nemesis import KINDS, NEEDS_CLOCKS, NEEDS_DISKS, OF_AGENTS, Nemesis
from tests.chaos.recorder import Recorder
from tests.chaos.store import Store
from tests.chaos.strain import Strain
from tests.chaos.watchers import Monitor, Sampler
from tests.chaos.wire import Disconnected
from tests.harness.checker import Bounds, Violation, check
from tests.harness.history import Calm, Ended, Event, Granted, Refused

_SERVE_MS = 20_000
_LEFTOVER_MS = 1_500
_MS = 1_000_000
_LONG_TTL_MS = 10_000
"""Where masters stay up nobody waits for a TTL; and an agent may be away for a while without any loss."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a campaign is. seconds: how long faults are injected; kinds: which; holders: how many processes on
    each host; wrong: what is wrong with its agents on purpose, '' for nothing."""

    seconds: float = 60.0
    seed: int = 0
    kinds: tuple[str, ...] = KINDS
    apps: int = 24
    holders: int = 4
    resources: int = 12
    pace_s: float = 0.8
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done, what came of it, and what was violated; `history` in the order of time."""

    injected: Counter[str]
    counts: Counter[str]
    refusals: Counter[str]
    longest_wait_ms: int
    seconds: float
    violations: list[Violation]
    history: list[Event]


class Scene:
    """A ground with watchers on it: where apps act, in a campaign or in a test that tells them what to do."""

    def __init__(self, ground: Ground, checks_fences: bool = True) -> None:
        self.ground = ground
        self.recorder = Recorder()
        self.store = Store(self.recorder, checks_fences)
        self.strain = Strain(ground.agents.values())
        self.monitors = [Monitor(master, self.recorder) for master in ground.masters.values()]
        self._samplers = [Sampler(master, self.recorder) for master in ground.masters.values()]
        self._tasks: list[asyncio.Task[None]] = []
        self._living: list[asyncio.Task[None]] = []
        self.nursery: Nursery | None = None

    def app(self, name: str, agent: str) -> App:
        return App(name, self.ground.agents[agent], self.recorder, self.store, self.strain)

    async def watch(self) -> None:
        """Return when all that happens from now on is seen."""
        loop = asyncio.get_running_loop()
        runs = [self.strain.run, *(one.run for one in self.monitors), *(one.run for one in self._samplers)]
        self._tasks = [loop.create_task(run()) for run in runs]
        await until(lambda: all(one.reading for one in self.monitors), "the monitors read along")

    def hold(self, each: int, resources: Sequence[bytes], dice: Random, *kinds: str) -> None:
        """Have so many processes on each host hold locks, until `end`; of these kinds, or of all."""
        agents = list(self.ground.agents.values())
        self.nursery = Nursery(self.ground.folder / "log" / "programs.log")
        self.ground.holders = holders(
            self.nursery, each, agents, self.recorder, resources, dice, kinds or KINDS_OF_HOLDERS
        )
        loop = asyncio.get_running_loop()
        self._living = [loop.create_task(one.live()) for one in self.ground.holders.values()]

    @property
    def held(self) -> set[bytes]:
        """By processes, as far as they have said."""
        return set().union(*(holder.held for holder in self.ground.holders.values()))

    @property
    def grants_to_processes(self) -> int:
        return sum(holder.grants for holder in self.ground.holders.values())

    def stop_holding(self) -> None:
        """They lock nothing more; those that don't end by themselves live on."""
        for holder in self.ground.holders.values():
            holder.stop()

    async def _end_holders(self) -> None:
        end_ns = boottime_ns() + 30_000 * _MS
        self.stop_holding()
        while not all(task.done() for task in self._living):
            if boottime_ns() > end_ns:
                raise NotUp("a holder can't be ended")
            for holder in self.ground.holders.values():
                holder.kill()
            await asyncio.wait(self._living, timeout=0.1)
        for task in self._living:
            task.result()

    def close(self) -> None:
        """Whatever has gone wrong: no process is left."""
        for task in (*self._tasks, *self._living):
            task.cancel()
        for holder in self.ground.holders.values():
            holder.kill()
        if self.nursery is not None:
            self.nursery.close()

    def _bounds(self) -> Bounds:
        return Bounds(
            serve_ms=_SERVE_MS,
            # A try that a monitor missed, since its master was just starting, was late by a master's timeout.
            leftover_ms=_LEFTOVER_MS,
            # From outside nobody sees when an agent learns that its try failed: what is left has its TTL.
            give_back_ms=self.ground.terms.max_ttl_ms + _LEFTOVER_MS,
        )

    def broken(self) -> list[Violation]:
        """What was violated until now."""
        history = self.recorder.history()
        return check(history, self._bounds()) + check_processes(history, self._circumstances())

    async def end(self) -> list[Violation]:
        """Nothing more is noted; what was violated."""
        await self._end_holders()
        await asyncio.sleep(0.5)  # for what is noted a little later
        self.recorder.note(Ended(boottime_ns()))
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()  # a watcher that failed has seen nothing since
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return self.broken()

    def _circumstances(self) -> Circumstances:
        quorum = len(self.ground.masters) // 2 + 1
        return Circumstances(self.ground.agents, self.recorder.troubles_ns, self.strain, quorum)


@asynccontextmanager
async def scene(folder: Path, binary: Path, terms: Terms, checks_fences: bool = True) -> AsyncIterator[Scene]:
    """A formed cluster with watchers on it; all of it is gone afterwards."""
    async with running_ground(folder, binary, terms) as ground:
        made = Scene(ground, checks_fences)
        try:
            await made.watch()
            yield made
        finally:
            made.close()


def terms_for(plan: Plan) -> Terms:
    return Terms(
        agents=(plan.wrong,) * 3,
        clocks=any(kind in NEEDS_CLOCKS for kind in plan.kinds),
        disks=any(kind in NEEDS_DISKS for kind in plan.kinds),
        max_ttl_ms=_LONG_TTL_MS if set(plan.kinds) <= set(OF_AGENTS) else Terms().max_ttl_ms,
    )


async def campaign(
    folder: Path, binary: Path, plan: Plan, progress: Callable[[str], None] = lambda _line: None
) -> Outcome:
    """Fight it. Raises NotUp when its own processes fail."""
    dice = Random(plan.seed)
    async with scene(folder, binary, terms_for(plan)) as made:
        began_ns = boottime_ns()
        lives = _lives(made, plan, dice)
        living = [asyncio.create_task(life.run()) for life in lives]
        made.hold(plan.holders, _resources_of_holders(plan), dice)
        nemesis = Nemesis(made.ground, made.recorder, plan.kinds, dice, plan.pace_s)
        telling = asyncio.create_task(_tell(made, nemesis, began_ns, progress))
        try:
            await nemesis.run(plan.seconds)
            made.recorder.note(Calm(boottime_ns()))
            for life in lives:
                life.stopping = True
            made.stop_holding()
            await _be_served(made, sorted({*_resources(plan), *_resources_of_holders(plan)}))
            _, unfinished = await asyncio.wait(living, timeout=2 * _SERVE_MS / 1_000)
        finally:
            telling.cancel()
            for task in living:
                task.cancel()
        for task in living:
            if task not in unfinished and not task.cancelled():
                task.result()
        violations = await made.end()
        return _outcome(made, nemesis, violations, (boottime_ns() - began_ns) / 1e9)


def _resources(plan: Plan) -> list[bytes]:
    """Some of them are kept."""
    prefixes = (b"r", b"r", KEPT.encode())
    return [b"%b%d" % (prefixes[number % 3], number) for number in range(plan.resources)]


def _resources_of_holders(plan: Plan) -> list[bytes]:
    """Some that all want, some for themselves, and some that stay locked when their holder dies."""
    shared = _resources(plan)[: plan.resources // 2]
    own = [b"p%d" % number for number in range(plan.holders * 4)]
    of_classes = [b"%b%d" % (of.encode(), number) for of in (DELAYED, KEPT) for number in range(3)]
    return [*shared, *own, *of_classes]


def _lives(made: Scene, plan: Plan, dice: Random) -> list[Life]:
    agents = list(made.ground.agents.values())
    return [
        Life(
            made.app(f"app{n}", agents[n % len(agents)].name), agents, _resources(plan), Random(dice.random())
        )
        for n in range(plan.apps)
    ]


async def _be_served(made: Scene, resources: Sequence[bytes]) -> None:
    """On every host somebody waits for each resource: now that all is mended, it must come."""
    await asyncio.gather(
        *(_wait_for(made, agent, resource) for agent in made.ground.agents for resource in resources)
    )


async def _wait_for(made: Scene, agent: str, resource: bytes) -> None:
    app = made.app(f"patient on {agent}", agent)
    await app.connect()
    try:
        held = await asyncio.wait_for(
            app.lock(Wish(resource, ttl_ms=1_000, wait_ms=_SERVE_MS)), 2 * _SERVE_MS / 1_000 + 1
        )
        if held is not None:
            await app.unlock(held)
    except (Disconnected, TimeoutError):
        pass  # The history has it: it is withdrawn only after it should have been answered.
    finally:
        app.die()


async def _tell(made: Scene, nemesis: Nemesis, began_ns: int, progress: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(5)
        seconds = (boottime_ns() - began_ns) / 1e9
        counts = _counts(made)
        progress(
            f"{seconds:6.0f} s  {counts['grants']} grants, {sum(nemesis.injected.values())} faults, "
            f"{nemesis.lasting} of them now"
        )


def _counts(made: Scene) -> Counter[str]:
    events = made.recorder.events
    kinds = Counter(type(event).__name__ for event in events)
    return Counter(
        requests=kinds["Asked"],
        grants=kinds["Granted"],
        refusals=kinds["Refused"],
        withdrawn=kinds["Withdrawn"],
        extended=kinds["Extended"],
        lost=kinds["Lost"],
        released=kinds["Removed"],
        tries=made.recorder.tries,
        writes=made.store.accepted,
        writes_refused=made.store.refused,
        **{"grants to processes": made.grants_to_processes},
        lives=sum(holder.lives for holder in made.ground.holders.values()),
        missed=kinds["Missed"],
        taken_over=made.recorder.takings_over,
    )


def _outcome(made: Scene, nemesis: Nemesis, violations: list[Violation], seconds: float) -> Outcome:
    history = made.recorder.history()
    refusals = Counter(event.code for event in history if isinstance(event, Refused))
    return Outcome(
        nemesis.injected, _counts(made), refusals, _longest_wait_ms(history), seconds, violations, history
    )


def _longest_wait_ms(history: Sequence[Any]) -> int:
    asked = {event.request: event.at_ns for event in history if type(event).__name__ == "Asked"}
    waits = [event.at_ns - asked[event.request] for event in history if isinstance(event, Granted)]
    return max(waits, default=0) // _MS
