"""The host that is attacked: an agent that all users reach, over five masters. Each row gets a fresh one."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

from lockd.dev.processes import LOOPBACK, LocalMaster, default_server
from lockd.masters import scripts
from tests.harness.cluster import Cluster
from tests.harness.masters import ON_DISK, running_masters, short_folder
from tests.harness.processes import memory_kib
from tests.harness.wire import Wire

_MASTERS = 5
_QUIET_S = 30.0
_OF_VICTIMS = 20
"""They have fewer leases and connections than that."""
SETTINGS: dict[str, Any] = {
    "socket": {"mode": "0666"},
    "defaults": {"bound": "process"},
    # Leases that are taken one after the other for half a minute, and are due together then.
    "max_ttl_ms": 600_000,
    # As hosts have them, and not as patient as tests are.
    "timeouts": {"master_ms": 250, "connect_ms": 1_000, "dead_ms": 2_000},
}


class Host:
    """The agent of the moment, and its masters."""

    def __init__(self, folder: Path, run: Path, masters: list[LocalMaster]) -> None:
        self._folder, self._run, self._masters = folder, run, masters
        self._redises = [redis.Redis(LOOPBACK, master.port) for master in masters]
        self.cluster = Cluster(folder, masters, SETTINGS, run=run)
        self._command = self.cluster.agent.command
        self._formed = False

    @property
    def socket(self) -> Path:
        return self.cluster.socket

    @property
    def journal(self) -> Path:
        return Path(f"{self.socket}.journal")

    def fresh(self, files: int | None = None) -> None:
        """A new agent, which may open so many files, where nothing is held."""
        self.end()
        limited = ("sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *self._command)
        self.cluster.agent.command = limited if files else self._command
        self.cluster.agent.start()
        if not self._formed:
            self.cluster.form()
            self._formed = True
        self.cluster.wait_voting(_MASTERS)

    def end(self) -> None:
        self.cluster.agent.kill()
        for left in self._run.glob("*.journal*"):
            left.unlink()
        for master in self._redises:
            for keys in _some(list(master.scan_iter(scripts.LEASE_PREFIX + b"*", count=10_000))):
                master.unlink(*keys)

    def pids(self) -> set[int]:
        return {self.cluster.agent.pid, *(master.pid for master in self._masters)}

    def memory_mib(self) -> float:
        return memory_kib(self.cluster.agent.pid) / 1024

    def log(self) -> str:
        return self.cluster.agent.log().decode(errors="replace")

    def journal_mib(self) -> float:
        """In memory as /run is: it is charged to the agent. Two files while it is written anew."""
        found = 0
        for file in self._run.glob("*.journal*"):
            with suppress(OSError):
                found += file.stat().st_size
        return found / 2**20

    def wait_quiet(self) -> bool:
        """Until nothing is held, and nobody is connected; False when that has taken too long."""
        return self._until(lambda leases, waiters, connections: (leases, waiters, connections) == (0, 0, 1))

    def wait_given_back(self) -> bool:
        """Until what is held is the victims'."""
        return self._until(lambda *in_use: max(in_use) < _OF_VICTIMS)

    def _until(self, condition: Callable[[int, int, int], bool]) -> bool:
        until_s = time.monotonic() + _QUIET_S
        while time.monotonic() < until_s:
            with suppress(OSError, EOFError), Wire(self.socket) as wire:
                info = wire.info()
                if condition(*(int(info[name]) for name in ("leases", "waiters", "connected_clients"))):
                    return True
            time.sleep(0.2)
        return False

    def put_leases(self, count: int) -> None:
        """Of another host, on all masters, as acquire.lua writes them."""
        for master in self._redises:
            for numbers in _some(list(range(count))):
                pipeline = master.pipeline(transaction=False)
                for number in numbers:
                    value = b"%032x %d 0 elsewhere 4711 1000" % (number, time.time_ns() // 1000)
                    name = b"other:%024d" % number
                    pipeline.set(scripts.LEASE_PREFIX + name, value, px=86_400_000)
                pipeline.execute()

    def close(self) -> None:
        self.cluster.close()


def _some(all_of: list[Any]) -> Iterator[list[Any]]:
    for first in range(0, len(all_of), 1_000):
        yield all_of[first : first + 1_000]


@contextmanager
def attacked_host() -> Iterator[Host]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder(ON_DISK))
        # In memory, as /run is.
        run = stack.enter_context(short_folder())
        masters = stack.enter_context(running_masters(folder, _MASTERS, default_server()))
        for one in (folder, run):
            os.chmod(one, 0o755)
        host = Host(folder, run, masters)
        stack.callback(host.close)
        yield host
