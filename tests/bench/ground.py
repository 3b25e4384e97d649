"""What everybody is measured on: five masters with fsync=always and one agent, and the CPU that they use."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import Any

import redis

from lockd.config.model import LockClass
from lockd.dev.processes import LOOPBACK, LocalMaster, default_server, flavour, server_version
from tests.bench.contenders import Addresses
from tests.bench.peers import Peers, running_peers
from tests.harness.cluster import Cluster
from tests.harness.masters import ON_DISK, running_masters, short_folder
from tests.harness.waiting import eventually

_MASTERS = 5
_IN_MEMORY = Path("/dev/shm")
MAX_TTL_S = 3600


@dataclass(frozen=True, slots=True)
class Tries:
    """Rounds over the masters for a tenure: how many brought one, and how many did not."""

    worked: int = 0
    failed: int = 0

    def since(self, before: Tries) -> Tries:
        return Tries(self.worked - before.worked, self.failed - before.failed)

    @property
    def per_turn(self) -> float:
        return (self.worked + self.failed) / self.worked if self.worked else 0.0


class Ground:
    """The masters and the agent while they run."""

    def __init__(self, cluster: Cluster, peers: Peers, server: str) -> None:
        self.cluster = cluster
        self.server = server
        self._peers = peers
        self._others: list[Cluster] = []
        self._relay: Popen[bytes] | None = None
        self._addresses = Addresses(
            str(cluster.socket), [master.port for master in cluster.masters], peers=peers.ports
        )
        self._redises = [redis.Redis(LOOPBACK, master.port) for master in cluster.masters]

    @property
    def addresses(self) -> Addresses:
        others = [str(other.socket) for other in self._others]
        return replace(self._addresses, others=others, relay=self._relay_socket)

    @property
    def _relay_socket(self) -> str:
        return f"{self.cluster.socket}.relay"

    def have_relay(self) -> None:
        """See relay.py."""
        if self._relay is None:
            command = [sys.executable, "-m", "tests.bench.relay", self._relay_socket]
            self._relay = Popen([*command, *(str(port) for port in self._addresses.ports)])
            eventually(lambda: Path(self._relay_socket).exists(), "the relay listens")

    def end_relay(self) -> None:
        if self._relay is not None:
            self._relay.terminate()
            self._relay.wait()
            self._relay = None

    def have_agents(self, count: int) -> None:
        """So many, each on a host of its own."""
        while len(self._others) > count - 1:
            self._others.pop().agent.stop()
        while len(self._others) < count - 1:
            other = self.cluster.add_agent()
            other.wait_voting(_MASTERS)
            self._others.append(other)

    def agents_cpu_s(self) -> float:
        """Of all agents together, and the relay."""
        relay_s = _cpu_s(self._relay.pid) if self._relay else 0.0
        return relay_s + sum(_cpu_s(cluster.agent.pid) for cluster in (self.cluster, *self._others))

    def tries(self) -> Tries:
        """Of all agents together. Making their metrics costs them CPU."""
        sums = dict.fromkeys(("grants", "hand_offs", "failed_tries"), 0.0)
        for cluster in (self.cluster, *self._others):
            for series, value in cluster.metrics().items():
                name = series.partition("{")[0].removeprefix("lockd_").removesuffix("_total")
                if name in sums and 'class="canary"' not in series:
                    sums[name] += value
        return Tries(int(sums["grants"] - sums["hand_offs"]), int(sums["failed_tries"]))

    def servers_cpu_s(self, peer: str | None) -> dict[int, float]:
        """Of each master that runs, or each member of a peer, by its pid."""
        servers = self.cluster.masters if peer is None else self._peers.members[peer]
        return {server.pid: _cpu_s(server.pid) for server in servers if server.running}

    def tidy(self) -> None:
        """Remove what the last library left on the masters; lockd's own is lockd's."""
        for master in self._redises:
            left = [key for key in master.scan_iter(count=1000) if not key.startswith(b"lockd:")]
            if left:
                master.unlink(*left)

    def restart_agent(self) -> None:
        """With nothing held."""
        self.cluster.agent.kill()
        Path(f"{self.cluster.socket}.journal").unlink(missing_ok=True)
        for master in self._redises:
            left = list(master.scan_iter("lockd:lease:*", count=10_000))
            for first in range(0, len(left), 1_000):
                master.unlink(*left[first : first + 1_000])
        self.cluster.agent.start()
        self.cluster.wait_voting(_MASTERS)

    def wait_for_waiters(self, count: int) -> None:
        with redis.Redis(unix_socket_path=str(self.cluster.socket), retry=None) as agent:
            eventually(lambda: int(agent.info()["waiters"]) >= count, f"{count} wait")

    @property
    def victim(self) -> LocalMaster:
        """The master that is stopped; the libraries for one Redis use the first."""
        return self.cluster.masters[2]

    def without_victim(self) -> None:
        self.cluster.wait_voting(_MASTERS - 1)

    def whole(self) -> None:
        self.cluster.wait_voting(_MASTERS)


@contextmanager
def ground(peers: Sequence[str] = ()) -> Iterator[Ground]:
    """peers: those of tests/bench/peers.py that are to run beside."""
    binary = default_server()
    # A rewrite of a grown AOF would fall into the measurement of whoever is next. Who is slow is kept busy by
    # DEBUG SLEEP.
    settings: dict[str, str | None] = {"auto-aof-rewrite-percentage": "0"}
    if server_version(binary)[1] >= 7:
        settings["enable-debug-command"] = "local"
    with (
        short_folder(ON_DISK) as folder,
        _run_folder() as run,
        running_masters(folder, _MASTERS, binary, settings) as masters,
        running_peers(peers, folder) as beside,
    ):
        cluster = Cluster(folder, masters, _configured(), run=run)
        try:
            cluster.agent.start()
            cluster.form()
            cluster.wait_voting(_MASTERS)
            measured = Ground(cluster, beside, flavour(binary))
            try:
                yield measured
            finally:
                measured.end_relay()
        finally:
            cluster.close()


def _configured() -> dict[str, Any]:
    """As hosts have it, but for what would fall into some measurement only; room for many leases."""
    configured: dict[str, Any] = {
        "log_level": "warning",
        "max_ttl_ms": MAX_TTL_S * 1000,
        "defaults": {"bound": "process"},
        "limits": {
            "memory_mib": 8_192,
            "files": 60_000,
            "renewals_per_second": 1_000_000,
            "share_percent": 10_000,
        },
    }
    if "keep_ms" in LockClass.keys:
        configured["classes"] = [{"name": "kept", "match": "bench:kept:*", "keep_ms": 100}]
    return configured


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
