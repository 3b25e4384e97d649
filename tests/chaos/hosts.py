"""The machines of a campaign, each with the one process that counts: masters behind a guard's delay, agents
behind their lines."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lockd.clock import boottime_ns
from lockd.dev.processes import LOOPBACK, LocalMaster
from lockd.masters.scripts import IDENTITY_KEY
from tests.chaos.proxy import Line
from tests.chaos.wire import Connection, Disconnected
from tests.harness import waiting
from tests.harness.clock_shim import Clock
from tests.harness.cluster import AgentProcess
from tests.harness.disks import Disk
from tests.harness.waiting import PATIENCE_S
from tests.harness.wire import as_map

_ROOT = Path(__file__).parents[2]
DELAYED = "d"
"""How resources begin that stay locked for a while after their holder has died."""
KEPT, KEEP_MS = "k", 300
"""How those begin that stay with their host for a while when nobody has them."""


class NotUp(Exception):
    """A process of the campaign itself did not come up: nothing can be said about promises."""


until = partial(waiting.until, failure=NotUp)


class MasterHost:
    """A master, its clock, its disk, and what a restart guard does: after an end that wasn't clean it stays
    out for `guard_ns`.

    Processes are started from the event loop's own thread: they die with the thread that started them.
    """

    def __init__(self, process: LocalMaster, clock: Clock | None, disk: Disk | None, guard_ns: int) -> None:
        self.process = process
        self.name = process.name
        self.clock = clock
        self.disk = disk
        self.behind = False
        """Its clock was stepped back: its leases last as much longer there."""
        self.up_since_ns = 0
        self._guard_ns = guard_ns
        self._not_before_ns = 0
        if clock is not None:
            process.environment = clock.environment()

    async def start(self) -> None:
        """Start it, when it may; return when it answers."""
        await asyncio.sleep(max(0, self._not_before_ns - boottime_ns()) / 1e9)
        for _ in range(5):
            self.process.start(wait=False)
            await until(lambda: self.process.ready or not self.process.running, f"{self.name} is ready")
            if self.process.running:
                self.up_since_ns = boottime_ns()
                return
            await asyncio.sleep(0.2)
        raise NotUp(f"{self.name} ends at its start:\n{self.process.log_tail()}")

    async def revive(self) -> None:
        """Start it if it doesn't run: something else than this fault may have ended it."""
        if not self.process.running:
            self._ended_badly()
            await self.start()

    async def identified(self) -> bool:
        """Whether its data shows an identity, as read from itself."""
        try:
            connection = await Connection.to_port(LOOPBACK, self.process.port)
            try:
                return bool((await connection.ask("EXISTS", IDENTITY_KEY)).value == 1)
            finally:
                connection.abort()
        except Disconnected:
            return False

    async def kill(self) -> None:
        await asyncio.to_thread(self.process.kill)
        self._ended_badly()

    async def stop(self) -> None:
        """SIGTERM. Clean only if it then ends with status 0."""
        if await asyncio.to_thread(self.process.stop) == 0:
            self._not_before_ns = 0
        else:
            self._ended_badly()

    async def lose_power(self) -> None:
        """Its disk keeps what was synced, and nothing else."""
        assert self.disk is not None
        await asyncio.to_thread(self.disk.lose_power)
        await self.kill()
        await asyncio.to_thread(self.disk.come_back)

    async def put_back(self, data: Path) -> None:
        """Kill it, and replace its data by an older copy."""
        await self.kill()
        self.process.wipe()
        shutil.copytree(data, self.process.folder, dirs_exist_ok=True)

    def start_at_once(self) -> None:
        """No guard is asked at the next start."""
        self._not_before_ns = 0

    def _ended_badly(self) -> None:
        self._not_before_ns = boottime_ns() + self._guard_ns


class AgentHost:
    """An agent with a line of its own to each master. wrong: what is wrong with it on purpose; '' if nothing
    is."""

    lock_delay_ms = 1_500

    def __init__(
        self, name: str, folder: Path, masters: list[MasterHost], max_ttl_ms: int, wrong: str = ""
    ) -> None:
        self.name = name
        self.socket = folder / f"{name}.sock"
        self.lines = {master.name: Line(_port_of(master)) for master in masters}
        self.up_since_ns = 0
        self.stopped_ns: list[tuple[int, int | None]] = []
        """When its process stood still, from and until."""
        self.away_ns: list[tuple[int, int | None]] = []
        """When there was none, or it stood still, from and until."""
        self.spoilt_ns: list[int] = []
        """When something was done to its journal."""
        self.max_ttl_ms = max_ttl_ms
        self.max_hold_ms = max(12_000, max_ttl_ms * 3 // 2)
        self._config = folder / f"{name}.json"
        self.process = AgentProcess(self._config, self.socket, folder / "log" / f"{name}.log", name)
        if wrong:
            python, _, _, *arguments = self.process.command
            self.process.command = (python, "-m", "tests.chaos.wrong_agent", wrong, *arguments)
            self.process.environment = {"PYTHONPATH": str(_ROOT)}

    async def start(self) -> None:
        """Start it; return when it answers."""
        if not self.lines["m1"].port:
            for line in self.lines.values():
                await line.listen()
            self._config.write_text(json.dumps(self._configuration(), indent=1))  # JSON is YAML
        self.process.start(wait=False)
        end_ns = boottime_ns() + int(PATIENCE_S * 1e9)
        while boottime_ns() < end_ns:
            if not self.process.running:
                raise NotUp(f"{self.name} ended at its start:\n{self.process.log_tail()}")
            try:
                await self.ask("PING")
            except Disconnected:
                await asyncio.sleep(0.03)
            else:
                self.up_since_ns = boottime_ns()
                self._is_back()
                return
        raise NotUp(f"{self.name} does not answer:\n{self.process.log_tail()}")

    def _configuration(self) -> dict[str, Any]:
        return {
            "cluster": "chaos",
            "masters": [
                {"name": name, "address": f"{LOOPBACK}:{line.port}"} for name, line in self.lines.items()
            ],
            "socket": {"path": str(self.socket)},
            "metrics": None,
            "max_ttl_ms": self.max_ttl_ms,
            "defaults": {"max_hold_ms": self.max_hold_ms},
            "classes": [
                {"name": "delayed", "match": f"{DELAYED}*", "lock_delay_ms": self.lock_delay_ms},
                {"name": "kept", "match": f"{KEPT}*", "keep_ms": KEEP_MS},
            ],
            "timeouts": {"connect_ms": 600, "dead_ms": 800},
        }

    async def ask(self, *words: str) -> Any:
        """An operator's command, on a connection of its own. Raises Disconnected, also when there is no
        answer in time."""
        connection = await Connection.to_socket(self.socket)
        try:
            return (await asyncio.wait_for(connection.ask(*words), PATIENCE_S)).value
        except TimeoutError as error:
            raise Disconnected("no answer in time") from error
        finally:
            connection.abort()

    @property
    def journal(self) -> Path:
        return self.socket.with_name(f"{self.socket.name}.journal")

    async def kill(self) -> None:
        self._is_away()
        await asyncio.to_thread(self.process.kill)

    async def stop(self) -> None:
        """SIGTERM: it drains."""
        self._is_away()
        await asyncio.to_thread(self.process.stop)

    def pause(self) -> None:
        self.stopped_ns.append((boottime_ns(), None))
        self._is_away()
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()
        since_ns, _ = self.stopped_ns.pop()
        self.stopped_ns.append((since_ns, boottime_ns()))
        self._is_back()

    def _is_away(self) -> None:
        self.away_ns.append((boottime_ns(), None))

    def _is_back(self) -> None:
        if self.away_ns:
            since_ns, _ = self.away_ns.pop()
            self.away_ns.append((since_ns, boottime_ns()))

    def stood_still(self, from_ns: int, until_ns: int) -> bool:
        """Whether its process was stopped at any time in between."""
        return any(
            since_ns < until_ns and (end_ns is None or end_ns > from_ns)
            for since_ns, end_ns in self.stopped_ns
        )

    async def votes(self) -> dict[str, bool]:
        """Which masters have a vote, as this agent sees it. Raises Disconnected."""
        masters = [as_map(one) for one in await self.ask("MASTERS")]
        return {one[b"name"].decode(): one[b"vote"] == 1 for one in masters}

    def close(self) -> None:
        self.process.kill()
        for line in self.lines.values():
            line.close()


def _port_of(master: MasterHost) -> Callable[[], int]:
    return lambda: master.process.port
