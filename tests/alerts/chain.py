"""The whole chain on one machine: masters with their guards, an agent with apps, exporters, and the faults.

Everything is real but for the hosts: `HostUnit` plays systemd around a master and its guard. Each fault gets
a fresh Prometheus and a fresh Alertmanager, so that no rate remembers the fault before.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from lockd import guard
from lockd.local_masters import LOOPBACK, default_server
from tests.alerts.monitoring import Monitoring, Target, node_exporter, redis_exporter
from tests.redis.clock_shim import Clock
from tests.redis.masters import Cluster, as_map, eventually, short_folder
from tests.redis.test_guard_process import Unit

MAX_TTL_MS = 5_000
CLUSTER = "chain"
SETTINGS: dict[str, Any] = {
    "cluster": CLUSTER,
    "max_ttl_ms": MAX_TTL_MS,
    "canary_ms": 500,
    # A machine that is busy with other things is no master in trouble.
    "timeouts": {"master_ms": 1_000, "dead_ms": 5_000},
    "clock_skew_allowance_ms": 2_000,
    "classes": [{"name": "billing", "match": "billing:*", "page_on_loss": True}],
}
# Its own window of 30 to 60 s is not divided as the rules are: one hiccup would outlast its `for`.
NOT_JUDGED = {"LockdLoopLag"}


class HostUnit(Unit):
    """A master's host: its unit, the guard's watch, a clock and a disk that can be made bad."""

    def __init__(self, name: str, folder: Path, binary: Path) -> None:
        folder.mkdir()
        super().__init__(folder, binary)
        self.master.name = name
        self.textfile = folder / "lockd_guard.prom"
        self.configure(MAX_TTL_MS)
        self.clock = Clock(folder / "clock")
        self.disk = SlowDisk(folder)
        preloaded = [self.clock.environment(), self.disk.environment()]
        self.master.environment = {key: value for one in preloaded for key, value in one.items()}
        self.master.environment["LD_PRELOAD"] = " ".join(one["LD_PRELOAD"] for one in preloaded)

    def enters(self) -> subprocess.Popen[bytes]:
        """systemd starts the unit: first the guard, which may wait."""
        return self.run("enter")

    def starts(self, entering: subprocess.Popen[bytes]) -> None:
        assert entering.wait(60) == 0, self.log()
        self._start_redis()

    def comes_back(self) -> None:
        """After a crash: systemd starts it at once, and the guard makes it wait."""
        self.starts(self.enters())


class SlowDisk:
    """How long each fsync of a process that was started with its `environment` takes at least."""

    def __init__(self, folder: Path) -> None:
        self._library = folder / "slow_fsync.so"
        source = Path(__file__).with_name("slow_fsync.c")
        compiler = shutil.which("gcc") or "cc"
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", self._library, source, "-ldl"], check=True)
        self._setting = folder / "slow_fsync"
        self._setting.write_bytes(bytes(8))

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "SLOW_FSYNC": str(self._setting)}

    def takes(self, ms: int) -> None:
        with self._setting.open("r+b") as file:
            file.write((1_000 * ms).to_bytes(8, "little"))


class Apps:
    """What apps do all the time, so that rates have something to say: one holds, one takes and gives back."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._hold, self._take_and_give_back)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _hold(self) -> None:
        self._again("billing:held", lambda _app, _token: self._over.wait(0.1))

    def _take_and_give_back(self) -> None:
        def once(app: redis.Redis, token: str) -> bool:
            app.execute_command("UNLOCK", "billing:taken", token)
            return True

        self._again("billing:taken", once)

    def _again(self, resource: str, hold: Callable[[redis.Redis, str], bool]) -> None:
        while not self._over.wait(0.1):
            with suppress(redis.RedisError, OSError), self._cluster_client() as app:
                while not self._over.wait(0.1):
                    token = as_map(app.execute_command("LOCK", resource, 1_000))["token"]
                    while not hold(app, token):
                        app.ping()  # in RESP2 this is how an app learns of a loss

    def _cluster_client(self) -> redis.Redis:
        return redis.Redis(
            unix_socket_path=str(self._cluster.socket), protocol=2, decode_responses=True, retry=None
        )


class Ground:
    """All of it while it runs."""

    def __init__(self, folder: Path, units: list[HostUnit], cluster: Cluster, targets: list[Target]) -> None:
        self.units = units
        self.cluster = cluster
        self._folder = folder
        self._targets = targets
        self._rounds = 0

    @contextmanager
    def monitoring(self) -> Iterator[Monitoring]:
        self._rounds += 1
        seen = Monitoring(self._folder / f"monitoring-{self._rounds}", self._targets)
        try:
            seen.start()
            yield seen
        finally:
            seen.close()

    def whole(self) -> None:
        """Wait until every master votes again."""
        self.cluster.wait_voting(len(self.units), within_s=60)


@contextmanager
def ground() -> Iterator[Ground]:
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        binary = default_server()
        units = [HostUnit(f"m{i}", folder / f"m{i}", binary) for i in range(1, 6)]
        for unit in units:
            stack.callback(unit.close)
        entering = [unit.enters() for unit in units]
        for unit, process in zip(units, entering, strict=True):
            unit.starts(process)
            unit.run("watch")
        cluster = Cluster(folder, [unit.master for unit in units], SETTINGS)
        stack.callback(cluster.close)
        cluster.agent.start()
        cluster.form()
        cluster.wait_voting(len(units))
        targets = [_agent_target(cluster)]
        for unit in units:
            labels = {"cluster": CLUSTER, "master": unit.master.name}
            for job, exporter in (
                ("lockd-master", redis_exporter(folder, unit.master.name, unit.master.address)),
                ("node", node_exporter(folder, unit.master.name, unit.folder)),
            ):
                exporter.start()
                stack.callback(exporter.kill)
                targets.append(Target(job, exporter.address, labels))
        apps = Apps(cluster)
        stack.callback(apps.close)
        yield Ground(folder, units, cluster, targets)


def _agent_target(cluster: Cluster) -> Target:
    return Target("lockd", f"{LOOPBACK}:{cluster.metrics_port}", {"cluster": CLUSTER})


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong. `make` does it and returns how it is mended.

    alerts: what must fire, and nothing else but `mending`, which may while it is being mended. inhibited:
    those of them that nobody is told of.
    """

    name: str
    make: Callable[[Ground], Callable[[], None]]
    alerts: frozenset[str]
    mending: frozenset[str] = frozenset()
    inhibited: frozenset[str] = frozenset()


@dataclass
class Outcome:
    """What came of a fault, in seconds: when each alert fired, and how long after mending all had gone.

    paged: what the pager was told before the mending.
    """

    fault: Fault
    fired_s: dict[str, float] = field(default_factory=dict)
    inhibited: set[str] = field(default_factory=set)
    paged: set[str] = field(default_factory=set)
    cleared_s: float = 0.0

    def problems(self) -> list[str]:
        fault, fired = self.fault, set(self.fired_s) - NOT_JUDGED
        found = [f"{name} did not fire" for name in sorted(fault.alerts - fired)]
        found += [f"{name} fired" for name in sorted(fired - fault.alerts - fault.mending)]
        found += ["they did not clear"] * (self.cleared_s == float("inf"))
        found += [f"{name} was not inhibited" for name in sorted(fault.inhibited - self.inhibited)]
        found += [f"{name} paged though inhibited" for name in sorted(fault.inhibited & self.paged)]
        return found


_FIRE_WITHIN_S, _CLEAR_WITHIN_S, _LINGER_S = 120.0, 240.0, 3.0
_LOOK_S = 0.25


def suffer(where: Ground, fault: Fault) -> Outcome:
    """Make it, see what fires, mend it, and see that all of it goes."""
    outcome = Outcome(fault)
    where.whole()
    with where.monitoring() as seen, Watch(seen, outcome) as watch:
        mend = fault.make(where)
        try:
            if watch.until(lambda: fault.alerts <= outcome.fired_s.keys(), _FIRE_WITHIN_S):
                lingered_s = time.monotonic() + _LINGER_S
                watch.until(lambda: time.monotonic() > lingered_s, 2 * _LINGER_S)
            # After the mending what was inhibited may page: the budget stays burnt for a while.
            outcome.paged |= seen.paged
        finally:
            mend()
        mended_s = time.monotonic()
        gone = watch.until(lambda: not watch.active - NOT_JUDGED, _CLEAR_WITHIN_S)
        outcome.cleared_s = time.monotonic() - mended_s if gone else float("inf")
    return outcome


class Watch:
    """Notes in an outcome what Alertmanager has, look after look, also while a fault is made or mended."""

    def __init__(self, seen: Monitoring, outcome: Outcome) -> None:
        self.active: set[str] = set()
        self._seen = seen
        self._outcome = outcome
        self._looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._began_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def until(self, condition: Callable[[], bool], within_s: float) -> bool:
        """Whether the condition came true in time, at a look that began after this call."""
        give_up_s, first = time.monotonic() + within_s, self._looks + 2
        while time.monotonic() < give_up_s:
            if self._looks >= first and condition():
                return True
            time.sleep(_LOOK_S)
        return False

    def _run(self) -> None:
        while not self._over.wait(_LOOK_S):
            alerts = self._seen.alerts()
            at_s = time.monotonic() - self._began_s
            for name, inhibited in alerts.items():
                self._outcome.fired_s.setdefault(name, at_s)
                if inhibited:
                    self._outcome.inhibited.add(name)
            self.active = set(alerts)
            self._looks += 1


# The faults


def kill(*numbers: int) -> Callable[[Ground], Callable[[], None]]:
    """Masters that die and stay away until they are mended."""

    def make(where: Ground) -> Callable[[], None]:
        units = [where.units[number - 1] for number in numbers]
        for unit in units:
            unit.kill()
        return lambda: come_back(units)

    return make


def come_back(units: Sequence[HostUnit]) -> None:
    """All at once: their quarantines need not add up."""
    entering = [unit.enters() for unit in units]
    for unit, process in zip(units, entering, strict=True):
        unit.starts(process)


def quarantine(where: Ground) -> Callable[[], None]:
    """A master crashes, and systemd starts it again at once."""
    unit = where.units[1]
    unit.kill()
    entering = unit.enters()
    return lambda: unit.starts(entering)


def wipe(where: Ground) -> Callable[[], None]:
    """The disk of a master was replaced: it waits, and then comes back blank."""
    unit = where.units[2]
    unit.stop()
    unit.master.wipe()
    unit.comes_back()

    def admit() -> None:
        with where.cluster.client() as operator:
            eventually(lambda: "admitted" in operator.execute_command("ADMIT", unit.master.name), 60)

    return admit


def misconfigure(where: Ground) -> Callable[[], None]:
    with where.units[3].client() as operator:
        operator.config_set("appendfsync", "everysec")

    def mend() -> None:
        with where.units[3].client() as operator:
            operator.config_set("appendfsync", "always")

    return mend


def step_clock(where: Ground) -> Callable[[], None]:
    """Only the master's own process sees it: the guard, which would quarantine it, is not told."""
    clock = where.units[4].clock
    clock.step(5 * guard.NS_PER_S)
    return lambda: clock.step(-5 * guard.NS_PER_S)


def slow_fsync(where: Ground) -> Callable[[], None]:
    disk = where.units[0].disk
    disk.takes(400)
    return lambda: disk.takes(0)


def kill_agent(where: Ground) -> Callable[[], None]:
    where.cluster.agent.kill()
    return where.cluster.agent.start


def hot_class(where: Ground) -> Callable[[], None]:
    """Five apps want one resource, each for 0.6 s: nobody waits for less than 2 s."""
    over = threading.Event()

    def work() -> None:
        with redis.Redis(unix_socket_path=str(where.cluster.socket), decode_responses=True) as app:
            while not over.is_set():
                with suppress(redis.ResponseError):
                    token = as_map(app.execute_command("LOCK", "billing:hot", 2_000, "WAIT", 30_000))["token"]
                    over.wait(0.6)
                    app.execute_command("UNLOCK", "billing:hot", token)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()

    def mend() -> None:
        over.set()
        for thread in threads:
            thread.join()

    return mend


def lose_lease(where: Ground) -> Callable[[], None]:
    """A quorum of masters loses the lease that an app holds."""
    for unit in where.units[:3]:
        with unit.client() as operator:
            operator.delete("lockd:lease:billing:held")
    return lambda: None


def long_wait(where: Ground) -> Callable[[], None]:
    holder, waiter = where.cluster.client(), where.cluster.client()
    token = as_map(holder.execute_command("LOCK", "billing:long", 2_000))["token"]
    waiting = threading.Thread(
        target=waiter.execute_command, args=("LOCK", "billing:long", 2_000, "WAIT", 60_000)
    )
    waiting.start()

    def mend() -> None:
        holder.execute_command("UNLOCK", "billing:long", token)
        waiting.join()
        waiter.close()

    return mend


def some(*names: str) -> frozenset[str]:
    return frozenset(names)


QUARANTINED = some("LockMasterQuarantined")
FAULTS = (
    Fault("one master killed", kill(1), some("LockMasterDown"), QUARANTINED),
    Fault("two masters killed", kill(1, 2), some("LockMasterDown", "LockQuorumNoMargin"), QUARANTINED),
    Fault(
        "three masters killed",
        kill(1, 2, 3),
        some("LockMasterDown", "LockQuorumLost", "LockErrorBudgetBurn", "LockLost", "LockExtendFailing"),
        QUARANTINED | {"LockQuorumNoMargin"},
        some("LockErrorBudgetBurn", "LockExtendFailing"),
    ),
    Fault("master quarantined", quarantine, QUARANTINED),
    Fault("master blank", wipe, some("LockMasterBlank"), QUARANTINED),
    Fault("master misconfigured", misconfigure, some("LockMasterMisconfigured")),
    Fault("clock stepped", step_clock, some("LockClockStep", "LockClockSkew")),
    Fault("slow fsync", slow_fsync, some("LockMasterSlow")),
    Fault("agent killed", kill_agent, some("LockdDown")),
    Fault("hot class", hot_class, some("LockWaitSlow", "LockWaitBudgetBurn")),
    Fault("lost lease", lose_lease, some("LockLost", "LockExtendFailing")),
    Fault("overlong wait", long_wait, some("LockWaiterStuck")),
)
