"""What everybody is measured on: five masters with fsync=always and one agent, and the CPU that they use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import redis

from lockd.dev.processes import LOOPBACK, LocalMaster, default_server, flavour
from tests.bench.contenders import Addresses
from tests.harness.cluster import Cluster
from tests.harness.masters import running_masters, short_folder

_MASTERS = 5
_IN_MEMORY = Path("/dev/shm")


class Ground:
    """The masters and the agent while they run."""

    def __init__(self, cluster: Cluster, server: str) -> None:
        self.cluster = cluster
        self.server = server
        self.addresses = Addresses(str(cluster.socket), [master.port for master in cluster.masters])
        self._redises = [redis.Redis(LOOPBACK, master.port) for master in cluster.masters]

    def agent_cpu_s(self) -> float:
        return _cpu_s(self.cluster.agent.pid)

    def masters_cpu_s(self) -> float:
        """Of all masters together."""
        return sum(_cpu_s(master.pid) for master in self.cluster.masters)

    def tidy(self) -> None:
        """Remove what the last library left on the masters; lockd's own is lockd's."""
        for master in self._redises:
            left = [key for key in master.scan_iter(count=1000) if not key.startswith(b"lockd:")]
            if left:
                master.unlink(*left)

    @property
    def victim(self) -> LocalMaster:
        """The master that is stopped; the libraries for one Redis use the first."""
        return self.cluster.masters[2]

    def without_victim(self) -> None:
        self.cluster.wait_voting(_MASTERS - 1)

    def whole(self) -> None:
        self.cluster.wait_voting(_MASTERS, within_s=30.0)


@contextmanager
def ground() -> Iterator[Ground]:
    binary = default_server()
    # A rewrite of a grown AOF would fall into the measurement of whoever is next.
    settings: dict[str, str | None] = {"auto-aof-rewrite-percentage": "0"}
    with (
        short_folder() as folder,
        _run_folder() as run,
        running_masters(folder, _MASTERS, binary, settings) as masters,
    ):
        configured = {"log_level": "warning", "defaults": {"bound": "process"}}
        cluster = Cluster(folder, masters, configured, run=run)
        try:
            cluster.agent.start()
            cluster.form()
            cluster.wait_voting(_MASTERS)
            yield Ground(cluster, flavour(binary))
        finally:
            cluster.close()


@contextmanager
def _run_folder() -> Iterator[Path]:
    """In memory, as /run is: beside the masters' files the journal would wait for their fsyncs."""
    with TemporaryDirectory(prefix="lockd-", dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as name:
        yield Path(name)


def _cpu_s(pid: int) -> float:
    """CPU time of a process so far, of those of its threads that still are, to the nanosecond."""
    spent_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it ended in this moment
            spent_ns += int((task / "schedstat").read_text().split()[0])
    return spent_ns / 1e9
