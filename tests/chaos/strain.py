"""How long processes had to wait for a processor or a disk: what is late because of that is late for a cause
that no agent can do anything about, and this machine has other things to do as well."""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from pathlib import Path

from lockd.clock import boottime_ns
from tests.chaos.hosts import AgentHost

_BEAT_S = 0.05
_BEAT_NS = int(_BEAT_S * 1e9)
_DISKS = "disks"


class Strain:
    """Samples, a few times a second, what the kernel says of each agent and of this process; for how long
    somebody on this machine waited for a disk (an agent writes its log); and how much later than planned this
    process's own loop ran."""

    def __init__(self, agents: Iterable[AgentHost]) -> None:
        self._agents = {agent.name: agent for agent in agents}
        self._waited: dict[str, tuple[int, int]] = {}
        self._kept: dict[str, list[tuple[int, int]]] = {name: [] for name in (*self._agents, "", _DISKS)}
        self._disks_us: int | None = None

    async def run(self) -> None:
        while True:
            planned_ns = boottime_ns() + _BEAT_NS
            await asyncio.sleep(_BEAT_S)
            now_ns = boottime_ns()
            late_ns = max(0, now_ns - planned_ns)
            self._keep("", now_ns, max(late_ns, self._since_last("", os.getpid())))
            self._keep(_DISKS, now_ns, self._disks_kept_waiting_ns())
            for name, agent in self._agents.items():
                if agent.process.running:
                    self._keep(name, now_ns, self._since_last(name, agent.process.pid))

    def waited_ns(self, agent: str, from_ns: int, until_ns: int) -> int:
        """For how long that agent and this process were kept from running in that time."""
        return sum(self._of(name, from_ns, until_ns + 2 * _BEAT_NS) for name in (agent, "", _DISKS))

    def _of(self, name: str, from_ns: int, until_ns: int) -> int:
        kept = self._kept[name]
        meanwhile = kept[bisect_left(kept, (from_ns, 0)) : bisect_right(kept, (until_ns, 1 << 62))]
        return sum(waited_ns for _, waited_ns in meanwhile)

    def _keep(self, name: str, now_ns: int, waited_ns: int) -> None:
        if waited_ns:
            self._kept[name].append((now_ns, waited_ns))

    def _disks_kept_waiting_ns(self) -> int:
        try:
            some, _ = Path("/proc/pressure/io").read_text().split("\n", 1)
        except (OSError, ValueError):
            return 0  # this kernel does not say
        total_us = int(some.rpartition("=")[2])
        before_us, self._disks_us = self._disks_us, total_us
        return 0 if before_us is None else (total_us - before_us) * 1_000

    def _since_last(self, name: str, pid: int) -> int:
        try:
            total_ns = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            return 0
        before_pid, before_ns = self._waited.get(name, (pid, total_ns))
        self._waited[name] = pid, total_ns
        return total_ns - before_ns if before_pid == pid else 0
