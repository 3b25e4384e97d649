"""The cluster that a campaign is fought over: its hosts, and what an operator does there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from lockd.clock import boottime_ns
from lockd.core.validity import settle_ns
from lockd.dev.processes import LocalMaster, free_ports
from tests.chaos.holders.nursery import Holder
from tests.chaos.hosts import AgentHost, MasterHost, NotUp
from tests.chaos.proxy import Line
from tests.chaos.wire import Disconnected
from tests.harness.clock_shim import Clock
from tests.harness.disks import Disk
from tests.harness.waiting import PATIENCE_S

# Small, so that rewrites of the append-only file happen in the middle of everything else.
_SETTINGS: dict[str, str | None] = {"auto-aof-rewrite-min-size": "300kb", "auto-aof-rewrite-percentage": "50"}


@dataclass(frozen=True, slots=True)
class Terms:
    """What there is. agents: what is wrong with each on purpose, '' for nothing. clocks, disks: whether those
    of the masters can be stepped, and fail. guarded: whether masters stay out after an unclean end."""

    agents: Sequence[str] = ("", "", "")
    masters: int = 5
    max_ttl_ms: int = 2_000
    clocks: bool = False
    disks: bool = False
    guarded: bool = True

    @property
    def settle_ns(self) -> int:
        """After this long, every lease that there may have been is over."""
        return settle_ns(self.max_ttl_ms)


class Ground:
    """All hosts of a campaign, by name."""

    def __init__(self, folder: Path, binary: Path, terms: Terms) -> None:
        self.folder = folder
        self.terms = terms
        self.holders: dict[str, Holder] = {}
        ports = free_ports(terms.masters)
        hosts = [_master(folder, binary, terms, f"m{i}", port) for i, port in enumerate(ports, 1)]
        self.masters = {host.name: host for host in hosts}
        self.agents = {
            f"a{i}": AgentHost(f"a{i}", folder, hosts, terms.max_ttl_ms, wrong)
            for i, wrong in enumerate(terms.agents, 1)
        }

    def line(self, agent: str, master: str) -> Line:
        return self.agents[agent].lines[master]

    async def start(self) -> None:
        """Start everything and form the cluster; return when all masters vote everywhere."""
        for disk in self._disks():
            disk.make()
        for master in self.masters.values():
            await master.start()
        # An agent looks again only every few seconds: the others come when there is a cluster to be seen.
        first, *others = self.agents.values()
        await first.start()
        await self._repeat(("FORM", "UNUSED"), ("formed", "already"))
        for agent in others:
            await agent.start()
        await self.wait_voting(len(self.masters))

    async def admit(self, master: str) -> None:
        """Give a blank master its vote back as soon as the agents allow it.

        An agent that can't reach it may say `already` by what it last knew: the master itself is looked at.
        """
        while not await self.masters[master].identified():
            await self._repeat(("ADMIT", master), ("admitted", "already"))

    async def _repeat(self, command: tuple[str, ...], done: tuple[str, ...]) -> None:
        """Ask the agents in turn until one says that it is done."""
        end_ns = boottime_ns() + int(PATIENCE_S * 1e9)
        said: object = "no agent answers"
        while boottime_ns() < end_ns:
            for agent in self.agents.values():
                if agent.process.running and not agent.stood_still(boottime_ns() - 1, boottime_ns()):
                    try:
                        said = await agent.ask(*command)
                    except Disconnected:
                        continue
                    if isinstance(said, list) and said[1].decode() in done:
                        return
            await asyncio.sleep(0.1)
        raise NotUp(f"{' '.join(command)}: {said}")

    async def wait_voting(self, count: int) -> None:
        """Return when every agent sees that many masters with a vote."""
        end_ns = boottime_ns() + int(PATIENCE_S * 1e9)
        for agent in self.agents.values():
            while sum((await agent.votes()).values()) != count:
                if boottime_ns() > end_ns:
                    raise NotUp(f"{agent.name} sees {await agent.votes()}, {count} should vote")
                await asyncio.sleep(0.05)

    def close(self) -> None:
        for agent in self.agents.values():
            agent.close()
        for master in self.masters.values():
            master.process.kill()
        for disk in self._disks():
            disk.remove()

    def _disks(self) -> list[Disk]:
        return [master.disk for master in self.masters.values() if master.disk is not None]


def _master(folder: Path, binary: Path, terms: Terms, name: str, port: int) -> MasterHost:
    disk = Disk(folder, f"disk-{name}") if terms.disks else None
    data = disk.path / "data" if disk is not None else folder / name
    process = LocalMaster(name, data, port, binary, _SETTINGS, folder / "log" / f"{name}.log")
    clock = Clock(folder / f"clock-{name}") if terms.clocks else None
    return MasterHost(process, clock, disk, terms.settle_ns if terms.guarded else 0)


@asynccontextmanager
async def running_ground(folder: Path, binary: Path, terms: Terms) -> AsyncIterator[Ground]:
    """A formed cluster; all of it is gone afterwards."""
    ground = Ground(folder, binary, terms)
    try:
        await ground.start()
        yield ground
    finally:
        ground.close()
