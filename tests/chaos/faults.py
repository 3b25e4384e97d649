"""What can be broken, as small frozen values: each knows how it is done, and how it is mended.

kind: what it is called on the command line and in reports. targets: what it occupies while it lasts, so that
no two faults pull at the same thing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from lockd.clock import boottime_ns
from tests.chaos.ground import Ground
from tests.chaos.holders import journals
from tests.chaos.proxy import Way

Lines = tuple[tuple[str, str], ...]
"""(agent, master), for each line."""


def _named(lines: Lines) -> frozenset[str]:
    return frozenset(f"{agent}-{master}" for agent, master in lines)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that can be done to the ground, and undone."""

    kind: ClassVar[str]

    @property
    def targets(self) -> frozenset[str]:
        raise NotImplementedError

    async def inject(self, ground: Ground) -> None:
        raise NotImplementedError

    async def mend(self, ground: Ground) -> None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class MasterFault(Fault):
    """Something that befalls masters; afterwards they run."""

    masters: tuple[str, ...]

    @property
    def targets(self) -> frozenset[str]:
        return frozenset(self.masters)

    async def inject(self, ground: Ground) -> None:
        await asyncio.gather(*(self.hurt(ground, name) for name in self.masters))

    async def hurt(self, ground: Ground, name: str) -> None:
        raise NotImplementedError

    async def mend(self, ground: Ground) -> None:
        await asyncio.gather(*(ground.masters[name].revive() for name in self.masters))


@dataclass(frozen=True, slots=True)
class Kill(MasterFault):
    """kill -9. Started again when the guard lets it."""

    kind = "kill"

    async def hurt(self, ground: Ground, name: str) -> None:
        await ground.masters[name].kill()

    async def mend(self, ground: Ground) -> None:
        await asyncio.gather(*(ground.masters[name].start() for name in self.masters))


@dataclass(frozen=True, slots=True)
class Stop(Kill):
    """A clean stop. Started again at once."""

    kind = "stop"

    async def hurt(self, ground: Ground, name: str) -> None:
        await ground.masters[name].stop()


@dataclass(frozen=True, slots=True)
class Wipe(MasterFault):
    """Killed, and its disk replaced by an empty one. An operator admits it."""

    kind = "wipe"

    async def hurt(self, ground: Ground, name: str) -> None:
        master = ground.masters[name]
        await master.kill()
        master.process.wipe()
        # A blank master has no vote, whatever it did before: this one rests on rule 8 alone.
        master.start_at_once()
        await master.start()

    async def mend(self, ground: Ground) -> None:
        for name in self.masters:
            await ground.masters[name].revive()
            await ground.admit(name)


@dataclass(frozen=True, slots=True)
class Pause(MasterFault):
    """SIGSTOP: connections stay, nothing is answered."""

    kind = "pause"

    async def hurt(self, ground: Ground, name: str) -> None:
        ground.masters[name].process.pause()

    async def mend(self, ground: Ground) -> None:
        for name in self.masters:
            ground.masters[name].process.resume()


@dataclass(frozen=True, slots=True)
class LosePower(MasterFault):
    """What was not synced is gone."""

    kind = "power"

    async def hurt(self, ground: Ground, name: str) -> None:
        await ground.masters[name].lose_power()

    async def mend(self, ground: Ground) -> None:
        await asyncio.gather(*(ground.masters[name].start() for name in self.masters))


@dataclass(frozen=True, slots=True)
class FillDisk(MasterFault):
    """No room is left. Redis ends itself when it can't write what it has to sync."""

    kind = "disk"

    async def hurt(self, ground: Ground, name: str) -> None:
        disk = ground.masters[name].disk
        assert disk is not None
        await asyncio.to_thread(disk.fill)

    async def mend(self, ground: Ground) -> None:
        for name in self.masters:
            disk = ground.masters[name].disk
            assert disk is not None
            disk.free()
        await MasterFault.mend(self, ground)


@dataclass(frozen=True, slots=True)
class StepClock(MasterFault):
    """Masters' wall clocks jump. A jump forward stays: a steady offset is harmless, and to undo it would be a
    jump back, which keeps leases for as much longer. A jump back is undone by one forward.

    Agents are occupied too, and the lines: a jump can be told only by who has watched the clock before (and
    what agents can't tell, a guard on the master's own host will see).
    """

    kind = "clock"
    by_ns: int
    agents: tuple[str, ...]

    @property
    def targets(self) -> frozenset[str]:
        lines = tuple((agent, master) for agent in self.agents for master in self.masters)
        return frozenset(self.masters) | frozenset(self.agents) | _named(lines)

    async def hurt(self, ground: Ground, name: str) -> None:
        self._step(ground, name, self.by_ns)

    def _step(self, ground: Ground, name: str, by_ns: int) -> None:
        master = ground.masters[name]
        assert master.clock is not None
        master.behind = by_ns < 0
        master.clock.step(by_ns)

    async def mend(self, ground: Ground) -> None:
        if self.by_ns < 0:
            for name in self.masters:
                self._step(ground, name, -self.by_ns)


@dataclass(frozen=True, slots=True)
class LineFault(Fault):
    lines: Lines

    @property
    def targets(self) -> frozenset[str]:
        return _named(self.lines)

    async def mend(self, ground: Ground) -> None:
        for agent, master in self.lines:
            ground.line(agent, master).heal()


@dataclass(frozen=True, slots=True)
class Cut(LineFault):
    """A partition: data waits, in these directions."""

    kind = "cut"
    ways: tuple[Way, ...]

    async def inject(self, ground: Ground) -> None:
        for agent, master in self.lines:
            ground.line(agent, master).hold(self.ways)


@dataclass(frozen=True, slots=True)
class Delay(LineFault):
    kind = "delay"
    way: Way
    seconds: float

    async def inject(self, ground: Ground) -> None:
        for agent, master in self.lines:
            ground.line(agent, master).slow(self.way, self.seconds)

    async def mend(self, ground: Ground) -> None:
        for agent, master in self.lines:
            ground.line(agent, master).slow(self.way, 0.0)


@dataclass(frozen=True, slots=True)
class Reset(LineFault):
    """All connections are reset; they may be made anew at once."""

    kind = "reset"

    async def inject(self, ground: Ground) -> None:
        for agent, master in self.lines:
            ground.line(agent, master).reset()


@dataclass(frozen=True, slots=True)
class ComeLate(LineFault):
    """What agents send is held for a moment; then they lose their connections and make new ones, and what was
    held arrives behind what they send on those."""

    kind = "late"
    held_s: float
    late_s: float

    async def inject(self, ground: Ground) -> None:
        passages = [p for agent, master in self.lines for p in ground.line(agent, master).hold_connections()]
        await asyncio.sleep(self.held_s)
        for passage in passages:
            passage.let_agent_go()
        await asyncio.sleep(self.late_s)
        for passage in passages:
            passage.let_go_on()


@dataclass(frozen=True, slots=True)
class AgentFault(Fault):
    agent: str

    @property
    def targets(self) -> frozenset[str]:
        return frozenset((self.agent,))

    async def mend(self, ground: Ground) -> None:
        await ground.agents[self.agent].start()


@dataclass(frozen=True, slots=True)
class KillAgent(AgentFault):
    """kill -9: what its apps hold is theirs until the deadlines that they know."""

    kind = "agent-kill"

    async def inject(self, ground: Ground) -> None:
        await ground.agents[self.agent].kill()


@dataclass(frozen=True, slots=True)
class StopAgent(AgentFault):
    """SIGTERM: it drains, and leaves what is held to its deadline."""

    kind = "agent-stop"

    async def inject(self, ground: Ground) -> None:
        await ground.agents[self.agent].stop()


@dataclass(frozen=True, slots=True)
class PauseAgent(AgentFault):
    """SIGSTOP: it can tell nobody anything, and goes on where it was."""

    kind = "agent-pause"

    async def inject(self, ground: Ground) -> None:
        ground.agents[self.agent].pause()

    async def mend(self, ground: Ground) -> None:
        ground.agents[self.agent].resume()


@dataclass(frozen=True, slots=True)
class RestartAgent(AgentFault):
    """As an upgrade does it: stopped, and the next one started at once."""

    kind = "agent-restart"

    async def inject(self, ground: Ground) -> None:
        await ground.agents[self.agent].stop()


@dataclass(frozen=True, slots=True)
class SpoilJournal(AgentFault):
    """kill -9, and the next agent finds a journal that is torn, old (`age_s`), or none."""

    kind = "journal"
    way: str
    seed: int
    age_s: float

    async def inject(self, ground: Ground) -> None:
        agent = ground.agents[self.agent]
        if self.way == "stale":
            journals.keep_a_copy(agent.journal)
            await asyncio.sleep(self.age_s)
        await agent.kill()
        agent.spoilt_ns.append(boottime_ns())
        journals.spoil(agent.journal, self.way, self.seed)


@dataclass(frozen=True, slots=True)
class HolderFault(Fault):
    """Something that befalls processes which hold locks."""

    holders: tuple[str, ...]

    @property
    def targets(self) -> frozenset[str]:
        return frozenset(self.holders)


@dataclass(frozen=True, slots=True)
class KillHolders(HolderFault):
    """kill -9: what they hold is free at once, or after its lock_delay. Others begin in their places."""

    kind = "holder-kill"

    async def inject(self, ground: Ground) -> None:
        for name in self.holders:
            ground.holders[name].kill()

    async def mend(self, ground: Ground) -> None:
        """Their hosts do."""


@dataclass(frozen=True, slots=True)
class PauseHolders(HolderFault):
    """SIGSTOP: they are alive, and keep what they hold."""

    kind = "holder-pause"

    async def inject(self, ground: Ground) -> None:
        for name in self.holders:
            ground.holders[name].pause()

    async def mend(self, ground: Ground) -> None:
        for name in self.holders:
            ground.holders[name].resume()
