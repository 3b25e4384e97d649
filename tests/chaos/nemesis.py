"""Who breaks things, by chance and from a seed, within what lockd promises to survive.

Any number of masters may be down, paused, cut off or slow at any time: that costs availability. What could
cost safety is kept to a minority of the masters within a settle time: those that were wiped, and those whose
clocks jumped. Of the clocks only what an agent can see from where it is: whoever looks at a master for the
first time after a jump can't tell (there, the guard on the master's own host will). So agents are started
only a settle time after the last jump forward, and a clock jumps forward only while all agents watch it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from lockd.clock import boottime_ns
from tests.chaos import faults
from tests.chaos.faults import Fault, Lines
from tests.chaos.ground import Ground
from tests.chaos.holders import journals
from tests.chaos.hosts import NotUp
from tests.chaos.proxy import BOTH, Way
from tests.chaos.recorder import Recorder
from tests.chaos.wire import Disconnected
from tests.harness.history import Fault as FaultNoted

_WATCHED_NS = 2_500_000_000
"""An agent looks at every clock once a second: after this long without trouble it knows how they go."""
_WATCHED_MOST_NS = 120_000_000_000
_MEANWHILE = 0.3
"""How often another fault begins while those whose turn it is can't: not always, or they never could."""
_AT_ONCE = (faults.Reset, faults.ComeLate, faults.KillHolders)

KINDS = (
    "kill", "stop", "wipe", "pause", "power", "disk", "clock",
    "cut", "delay", "reset", "late", "agent-kill", "agent-stop", "agent-pause", "agent-restart",
    "journal", "holder-kill", "holder-pause",
)  # fmt: skip
OF_AGENTS = (
    "agent-kill", "agent-stop", "agent-pause", "agent-restart", "journal", "holder-kill", "holder-pause",
)  # fmt: skip
"""The masters, and what leads to them, are well meanwhile."""
NEEDS_HOLDERS = ("holder-kill", "holder-pause")
NEEDS_DISKS = ("power", "disk")
NEEDS_CLOCKS = ("clock",)


class Draw:
    """Faults by kind, as the dice will have them."""

    def __init__(self, ground: Ground, dice: Random) -> None:
        self._dice = dice
        self._masters = tuple(ground.masters)
        self._agents = tuple(ground.agents)
        self._holders = tuple(ground.holders)
        self._makers: dict[str, Callable[[], Fault]] = {
            "kill": lambda: faults.Kill(self._some_masters()),
            "stop": lambda: faults.Stop(self._some_masters()),
            "wipe": lambda: faults.Wipe(self._some(self._masters, 2)),
            "pause": lambda: faults.Pause(self._some_masters()),
            "power": lambda: faults.LosePower(self._some_masters()),
            "disk": lambda: faults.FillDisk(self._some(self._masters, 3)),
            "clock": lambda: faults.StepClock(self._some(self._masters, 2), self._step_ns(), self._agents),
            "cut": lambda: faults.Cut(self._some_lines(), dice.choice((BOTH, (Way.THERE,), (Way.BACK,)))),
            "delay": lambda: faults.Delay(
                self._some_lines(), dice.choice(BOTH), dice.choice((0.005, 0.05, 0.2, 0.5))
            ),
            "reset": lambda: faults.Reset(self._some_lines()),
            "late": lambda: faults.ComeLate(
                self._some_lines(), dice.uniform(0.02, 0.3), dice.uniform(0.01, 1.0)
            ),
            "agent-kill": lambda: faults.KillAgent(dice.choice(self._agents)),
            "agent-stop": lambda: faults.StopAgent(dice.choice(self._agents)),
            "agent-pause": lambda: faults.PauseAgent(dice.choice(self._agents)),
            "agent-restart": lambda: faults.RestartAgent(dice.choice(self._agents)),
            "journal": lambda: faults.SpoilJournal(
                dice.choice(self._agents),
                dice.choice(tuple(journals.WAYS)),
                dice.getrandbits(32),
                dice.uniform(0.1, 3.0),
            ),
            "holder-kill": lambda: faults.KillHolders(self._some(self._holders, 3)),
            "holder-pause": lambda: faults.PauseHolders(self._some(self._holders, 3)),
        }

    def fault(self, kind: str) -> Fault:
        return self._makers[kind]()

    def seconds(self) -> float:
        """How long a fault lasts: mostly short, against the TTLs; now and then longer than any lease."""
        return self._dice.choice((0.05, 0.2, 0.6, 1.5, 3.0)) * self._dice.uniform(0.7, 1.4)

    def _some(self, names: Sequence[str], most: int) -> tuple[str, ...]:
        return tuple(sorted(self._dice.sample(names, self._dice.randint(1, most))))

    def _some_masters(self) -> tuple[str, ...]:
        """One or two, and once in a while all."""
        most = self._dice.choices((1, 2, len(self._masters)), (6, 3, 1))[0]
        return self._some(self._masters, most)

    def _step_ns(self) -> int:
        """From 1 ms to an hour, every order of magnitude alike."""
        size_ns = int(10 ** self._dice.uniform(6, 12.556))
        return size_ns if self._dice.random() < 0.6 else -size_ns

    def _some_lines(self) -> Lines:
        """One line; an agent's to all masters or to most; a master's to all agents; or each for itself."""
        dice, agents, masters = self._dice, self._agents, self._masters
        shape = dice.randrange(5)
        if shape == 0:
            return ((dice.choice(agents), dice.choice(masters)),)
        if shape == 1:
            agent = dice.choice(agents)
            return tuple((agent, master) for master in masters)
        if shape == 2:
            agent = dice.choice(agents)
            return tuple((agent, master) for master in dice.sample(masters, len(masters) // 2 + 1))
        if shape == 3:
            master = dice.choice(masters)
            return tuple((agent, master) for agent in agents)
        lines = tuple((agent, master) for agent in agents for master in masters if dice.random() < 0.4)
        return lines or ((agents[0], masters[0]),)


class Nemesis:
    """Injects faults of these kinds, all of them in turn, about one every `pace_s`."""

    def __init__(
        self, ground: Ground, recorder: Recorder, kinds: Sequence[str], dice: Random, pace_s: float
    ) -> None:
        self.injected: Counter[str] = Counter()
        self._ground = ground
        self._recorder = recorder
        self._kinds = tuple(kinds)
        self._dice = dice
        self._draw = Draw(ground, dice)
        self._pace_s = pace_s
        self._occupied: set[str] = set()
        self._troubled_ns: dict[str, int] = {}
        """Until when something was last wrong with a target."""
        self._weak_until_ns: dict[str, int] = {}
        self._settle_ns = ground.terms.settle_ns
        self._jumped_ns = -self._settle_ns
        self._episodes: set[asyncio.Task[None]] = set()
        self._time_is_up = asyncio.Event()

    @property
    def lasting(self) -> int:
        """How many faults last now."""
        return len(self._episodes)

    async def run(self, seconds: float) -> None:
        """For that long, and until each kind had its turn. When this returns all is mended."""
        end_ns = boottime_ns() + int(seconds * 1e9)
        deck: list[str] = []
        while self._kinds and (boottime_ns() < end_ns or len(self.injected) < len(self._kinds)):
            if not deck:
                deck = self._dice.sample(self._kinds, len(self._kinds))
            begun = next((kind for kind in deck if self._begin(kind)), None)
            if begun is not None:
                deck.remove(begun)
            elif self._dice.random() < _MEANWHILE:
                self._begin(self._dice.choice(self._kinds))
            await asyncio.sleep(min(self._dice.expovariate(1 / self._pace_s), 4 * self._pace_s))
            self._raise_failures()
        self._time_is_up.set()
        while self._episodes:
            await asyncio.wait(self._episodes, return_when=asyncio.FIRST_COMPLETED)
            self._raise_failures()

    def _raise_failures(self) -> None:
        """A fault that could not be injected or mended: nothing can be said about promises then."""
        for episode in [one for one in self._episodes if one.done()]:
            self._episodes.discard(episode)
            episode.result()

    def _begin(self, kind: str) -> bool:
        """False: not now."""
        fault = self._draw.fault(kind)
        if fault.targets & self._occupied or not self._a_minority(fault):
            return False
        self._occupied |= fault.targets
        if isinstance(fault, faults.Wipe | faults.StepClock):
            for master in fault.masters:
                self._weak_until_ns[master] = 1 << 62
        self._episodes.add(asyncio.get_running_loop().create_task(self._episode(fault)))
        return True

    def _a_minority(self, fault: Fault) -> bool:
        if not isinstance(fault, faults.Wipe | faults.StepClock):
            return True
        weak = {master for master, until_ns in self._weak_until_ns.items() if until_ns > boottime_ns()}
        return len(weak | set(fault.masters)) <= (len(self._ground.masters) - 1) // 2

    async def _episode(self, fault: Fault) -> None:
        if isinstance(fault, faults.StepClock):
            await self._watched(fault)
        self._note("begins", fault)
        if fault.kind not in OF_AGENTS:
            self._recorder.troubled(1)
        await fault.inject(self._ground)
        self.injected[fault.kind] += 1
        self._jumped_if(isinstance(fault, faults.StepClock) and fault.by_ns > 0)
        if not isinstance(fault, _AT_ONCE):
            await self._last(fault)
            self._note("is mended", fault)
            await fault.mend(self._ground)
            self._jumped_if(isinstance(fault, faults.StepClock) and fault.by_ns < 0)
        if fault.kind not in OF_AGENTS:
            self._recorder.troubled(-1)
        self._note("is over", fault)
        self._over(fault)

    async def _last(self, fault: Fault) -> None:
        """As long as the dice say, or until the run ends; and until it may be mended."""
        if isinstance(fault, faults.StepClock) and fault.by_ns > 0:
            return
        if not isinstance(fault, faults.RestartAgent):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._time_is_up.wait(), self._draw.seconds())
        if isinstance(fault, faults.StepClock):
            await self._watched(fault)
        elif isinstance(fault, faults.AgentFault) and not isinstance(fault, faults.PauseAgent):
            while (left_ns := self._jumped_ns + self._settle_ns - boottime_ns()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(left_ns / 1e9)  # and look again: another may have jumped meanwhile

    def _over(self, fault: Fault) -> None:
        now_ns = boottime_ns()
        self._occupied -= fault.targets
        for target in fault.targets:
            self._troubled_ns[target] = now_ns
        if isinstance(fault, faults.Wipe | faults.StepClock):
            for master in fault.masters:
                self._weak_until_ns[master] = now_ns + self._settle_ns

    def _jumped_if(self, jumped: bool) -> None:
        if jumped:
            self._jumped_ns = boottime_ns()

    async def _watched(self, fault: faults.StepClock) -> None:
        """Return when all agents have watched these clocks for a while, undisturbed since the fault began to
        occupy them."""
        began_ns = boottime_ns()
        while not await self._well_watched(fault, began_ns):
            if boottime_ns() > began_ns + _WATCHED_MOST_NS:
                raise NotUp(f"the clocks of {', '.join(fault.masters)} are not watched by all agents")
            await asyncio.sleep(0.1)

    async def _well_watched(self, fault: faults.StepClock, began_ns: int) -> bool:
        masters = [self._ground.masters[name] for name in fault.masters]
        agents = [self._ground.agents[name] for name in fault.agents]
        quiet_since_ns = max(
            began_ns,
            *(master.up_since_ns for master in masters),
            *(agent.up_since_ns for agent in agents),
            *(self._troubled_ns.get(target, 0) for target in fault.targets),
        )
        if boottime_ns() - quiet_since_ns < _WATCHED_NS or not all(m.process.running for m in masters):
            return False
        try:
            votes = await asyncio.gather(*(agent.votes() for agent in agents))
        except Disconnected:
            return False
        # Without a vote it is connected anew, or jumped a moment ago.
        return all(seen[master.name] for seen in votes for master in masters)

    def _note(self, what: str, fault: Fault) -> None:
        self._recorder.note(FaultNoted(boottime_ns(), f"{fault.kind} {what}: {fault}"))
