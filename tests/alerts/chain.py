"""The whole chain on one machine: masters with their guards, two agents, apps, exporters, and the faults.

Everything is real but for the hosts: `HostUnit` plays systemd around a master and its guard. Each fault gets
a fresh Prometheus and a fresh Alertmanager, so that no rate remembers the fault before.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from lockd.dev.processes import LOOPBACK, default_server
from lockd.guard.delay import NS_PER_S
from tests.alerts.monitoring import FACTOR, Shortened
from tests.harness.clock_shim import Clock, Preloaded
from tests.harness.cluster import Cluster
from tests.harness.guard_unit import Unit, come_back
from tests.harness.masters import short_folder
from tests.harness.prometheus import Target, node_exporters
from tests.harness.waiting import eventually
from tests.harness.wire import as_map

MAX_TTL_MS = 5_000
# What guards are told where a quarantine is to be seen for longer: they may wait for longer than they must.
LONG_TTL_MS = 30_000
CLUSTER = "chain"
SETTINGS: dict[str, Any] = {
    "cluster": CLUSTER,
    "max_ttl_ms": MAX_TTL_MS,
    "canary_ms": 500,
    # A machine that is busy with other things is no master in trouble.
    "timeouts": {"master_ms": 1_000, "dead_ms": 5_000},
    "clock_skew_allowance_ms": 2_000,
    "classes": [
        {"name": "billing", "match": "billing:*", "page_on_loss": True},
        # As the defaults have it, 1 s and 60 s, divided as the rules are.
        {"name": "reports", "match": "reports:*", "wait_objective_ms": 1_000 // FACTOR,
         "max_wait_ms": 60_000 // FACTOR},
    ],
}  # fmt: skip
BAD_HOST = Path(__file__).with_name("bad_host.c")
FSYNC_US, CUT_OFF = 0, 1  # its numbers
ALWAYS = "LockdWatchdog"
# LockdLoopLag's own window of 30 to 60 s is not divided as the rules are: one hiccup would outlast its `for`.
# And that this machine's clock has no time source, or that its disk fills, is no fault that is made here.
# Its Prometheus does not scrape itself: on a busy machine that would say that rules are late.
NOT_JUDGED = {
    "LockdLoopLag",
    "LockdMasterClockUnsynchronised",
    "LockdMasterDiskFilling",
    "LockdPrometheusMetricsAbsent",
    ALWAYS,
}


class HostUnit(Unit):
    """A master's host: its unit, the guard's watch, a clock and a disk that can be made bad."""

    def __init__(self, name: str, folder: Path, binary: Path) -> None:
        super().__init__(folder, binary, name, MAX_TTL_MS)
        # Redis and the guard each have one, so that a test can step the first without the second.
        self.clock, self.guards_clock = Clock(folder / "clock"), Clock(folder / "guards_clock")
        self.trouble = Preloaded(BAD_HOST, folder / "trouble")
        preloaded = [self.clock.environment(), self.trouble.environment()]
        libraries = " ".join(one["LD_PRELOAD"] for one in preloaded)
        self.master.environment = preloaded[0] | preloaded[1] | {"LD_PRELOAD": libraries}
        self.environment |= self.guards_clock.environment()
        self.environment["PATH"] = f"{self._systemctl().parent}:{self.environment['PATH']}"

    def _systemctl(self) -> Path:
        """What the watch of the guard calls to kill the unit's main process, or to see whether it runs."""
        program = self.folder / "bin" / "systemctl"
        program.parent.mkdir()
        main = f'"$(cat {self.folder}/main.pid)"'
        program.write_text(f'#!/bin/sh\n[ "$1" = kill ] || exec kill -0 {main}\nexec kill -KILL {main}\n')
        program.chmod(0o755)
        return program

    def start_redis(self) -> None:
        super().start_redis()
        (self.folder / "main.pid").write_text(str(self.master.pid))

    def steps_clock(self, seconds: int) -> None:
        """The whole host's."""
        for clock in (self.guards_clock, self.clock):
            clock.step(seconds * NS_PER_S)


@contextmanager
def working(*works: Callable[[threading.Event], object]) -> Iterator[None]:
    """Each in a thread of its own, which is told by its event when it is over."""
    over = threading.Event()
    threads = [threading.Thread(target=work, args=(over,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def apps(cluster: Cluster) -> AbstractContextManager[None]:
    """What apps do all the time, so that rates have something to say: one holds, one takes and gives back."""

    def again(resource: str, held: Callable[[redis.Redis, str, threading.Event], object]) -> Any:
        def work(over: threading.Event) -> None:
            while not over.wait(0.1):
                with suppress(redis.RedisError, OSError), app_of(cluster) as app:
                    while not over.wait(0.1):
                        token = as_map(app.execute_command("LOCK", resource, 1_000))["token"]
                        while not held(app, token, over):
                            app.ping()  # in RESP2 this is how an app learns of a loss

        return work

    return working(
        again("billing:held", lambda _app, _token, over: over.wait(0.1)),
        again("billing:taken", lambda app, token, _: app.execute_command("UNLOCK", "billing:taken", token)),
    )


def app_of(cluster: Cluster) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(cluster.socket), protocol=2, decode_responses=True, retry=None)


class Ground:
    """All of it while it runs."""

    def __init__(
        self, folder: Path, units: list[HostUnit], cluster: Cluster, other: OtherHost, targets: list[Target]
    ) -> None:
        self.units = units
        self.cluster = cluster
        self.other = other
        self._folder = folder
        self._targets = targets
        self._rounds = 0

    @contextmanager
    def monitoring(self) -> Iterator[Shortened]:
        self._rounds += 1
        seen = Shortened(self._folder / f"monitoring-{self._rounds}", self._targets)
        try:
            seen.start()
            yield seen
        finally:
            seen.close()

    def whole(self) -> None:
        """Wait until every master votes again, on both hosts."""
        for agent in (self.cluster, self.other.agent):
            agent.wait_voting(len(self.units))


class OtherHost:
    """A second app host, which can lose its network. Its agent has only its canary to lock."""

    def __init__(self, folder: Path, units: Sequence[HostUnit]) -> None:
        self._units = units
        self.agent = Cluster(folder, [unit.master for unit in units], SETTINGS, "other")
        self._trouble = Preloaded(BAD_HOST, folder / "other_host")
        self.agent.agent.environment = self._trouble.environment()

    def cut_off(self) -> None:
        """What is connected is cut, and nothing new leaves this host."""
        self._trouble.setting[CUT_OFF] = 1
        ours = {f"{LOOPBACK}:{port}" for port in _local_ports(self.agent.agent.pid)}
        for unit in self._units:
            with unit.client() as operator:
                for one in operator.client_list():
                    if one["addr"] in ours:
                        operator.client_kill(one["addr"])

    def reach_again(self) -> None:
        self._trouble.setting[CUT_OFF] = 0


def _local_ports(pid: int) -> set[int]:
    """Of the TCP sockets of a process."""
    sockets = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            sockets.add(os.readlink(file))
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(line[1].partition(":")[2], 16) for line in lines if f"socket:[{line[9]}]" in sockets}


@contextmanager
def ground() -> Iterator[Ground]:
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        binary = default_server()
        units = [HostUnit(f"m{i}", folder / f"m{i}", binary) for i in range(1, 6)]
        for unit in units:
            stack.callback(unit.close)
        come_back(units)
        for unit in units:
            unit.run("watch")
        cluster = Cluster(folder, [unit.master for unit in units], SETTINGS)
        stack.callback(cluster.close)
        cluster.agent.start()
        cluster.form()
        cluster.wait_voting(len(units))
        other = OtherHost(folder, units)
        stack.callback(other.agent.close)
        other.agent.agent.start()
        other.agent.wait_voting(len(units))
        addresses = [f"{LOOPBACK}:{agent.metrics_port}" for agent in (cluster, other.agent)]
        agents = [Target("lockd", address, {"cluster": CLUSTER}) for address in addresses]
        nodes = stack.enter_context(node_exporters(folder, units, CLUSTER))
        stack.enter_context(apps(cluster))
        yield Ground(folder, units, cluster, other, [*agents, *nodes])


# What fires after 5 or 15 minutes in production has shown by then, scraped, evaluated and sent.
FIVE_MINUTES_S, FIFTEEN_MINUTES_S = 300 / FACTOR + 3, 900 / FACTOR + 3


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong. `made` does it, and mends it at its end.

    alerts: what must fire, and nothing else but `mending`, which may, mostly while it is being mended.
    inhibited: those of either that nobody is told of. All others must have reached whom their severity says.
    linger_s: for how long what should not fire is looked out for, once all that should has.
    """

    name: str
    made: Callable[[Ground], AbstractContextManager[None]]
    alerts: frozenset[str]
    mending: frozenset[str] = frozenset()
    inhibited: frozenset[str] = frozenset()
    linger_s: float = FIVE_MINUTES_S


@dataclass
class Outcome:
    """What came of a fault, in seconds: when each alert fired, and how long after mending all had gone.

    severities: those that an alert had. paged, ticketed: what their receivers were told before the mending.
    pages: as how many incidents the pager was told of that, and of what came of the mending.
    watched: whether the watchdog's receiver heard of it.
    """

    fault: Fault
    fired_s: dict[str, float] = field(default_factory=dict)
    inhibited: set[str] = field(default_factory=set)
    severities: dict[str, set[str]] = field(default_factory=dict)
    paged: set[str] = field(default_factory=set)
    pages: int = 0
    ticketed: set[str] = field(default_factory=set)
    watched: bool = False
    cleared_s: float = 0.0

    def problems(self) -> list[str]:
        fault, fired = self.fault, set(self.fired_s) - NOT_JUDGED
        found = [f"{name} did not fire" for name in sorted(fault.alerts - fired)]
        found += [f"{name} fired" for name in sorted(fired - fault.alerts - fault.mending)]
        found += ["they did not clear"] * (self.cleared_s == float("inf"))
        found += [f"{name} was not inhibited" for name in sorted((fault.inhibited & fired) - self.inhibited)]
        told = self.paged | self.ticketed
        found += [f"somebody was told of {name} though inhibited" for name in sorted(fault.inhibited & told)]
        for name in sorted((fault.alerts & fired) - fault.inhibited):
            severities = self.severities[name]
            if ("critical" in severities) != (name in self.paged):
                found.append(f"{name} paged" if name in self.paged else f"{name} did not page")
            if "warning" in severities and not told & {name}:
                found.append(f"{name} is no ticket")
        found += [f"{self.pages} pages for one outage"] * (self.pages > 1)
        found += ["the watchdog's receiver did not hear of it"] * (not self.watched)
        return found


_FIRE_WITHIN_S, _CLEAR_WITHIN_S = 120.0, 240.0
_LOOK_S = 0.25


def suffer(where: Ground, fault: Fault) -> Outcome:
    """Make it, see what fires, mend it, and see that all of it goes."""
    outcome = Outcome(fault)
    where.whole()
    with where.monitoring() as seen, Watch(seen, outcome) as watch:
        with fault.made(where):
            if watch.until(lambda: fault.alerts <= outcome.fired_s.keys(), _FIRE_WITHIN_S):
                lingered_s = time.monotonic() + fault.linger_s
                watch.until(lambda: time.monotonic() > lingered_s, 2 * fault.linger_s)
            # After the mending what was inhibited may page: the budget stays burnt for a while.
            outcome.paged |= seen.told("pager")
            outcome.ticketed |= seen.told("tickets")
            outcome.watched = ALWAYS in seen.told("watchdog")
        mended_s = time.monotonic()
        gone = watch.until(lambda: not watch.active - NOT_JUDGED, _CLEAR_WITHIN_S)
        outcome.cleared_s = time.monotonic() - mended_s if gone else float("inf")
        outcome.pages = len(seen.pages())
    return outcome


class Watch:
    """Notes in an outcome what Alertmanager has, look after look, also while a fault is made or mended."""

    def __init__(self, seen: Shortened, outcome: Outcome) -> None:
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
            for alert in alerts:
                self._outcome.fired_s.setdefault(alert.name, at_s)
                self._outcome.severities.setdefault(alert.name, set()).add(alert.severity)
            self.active = {alert.name for alert in alerts}
            self._outcome.inhibited |= self.active - {alert.name for alert in alerts if not alert.inhibited}
            self._looks += 1


# The faults


Made = Iterator[None]
"""It is made before the yield, and mended after it."""


def kill(*numbers: int) -> Callable[[Ground], AbstractContextManager[None]]:
    """Masters that die and stay away until they are mended."""

    @contextmanager
    def make(where: Ground) -> Made:
        units = [where.units[number - 1] for number in numbers]
        for unit in units:
            unit.kill()
        yield
        come_back(units)

    return make


@contextmanager
def quarantine(where: Ground) -> Made:
    """A master crashes, and systemd starts it again at once."""
    unit = where.units[1]
    unit.configure(LONG_TTL_MS)
    unit.kill()
    with quarantined(unit):
        yield


@contextmanager
def quarantined(unit: HostUnit) -> Made:
    """systemd starts it again at once, and its guard makes it wait."""
    entering = unit.enters()
    yield
    unit.starts(entering)
    unit.configure(MAX_TTL_MS)


@contextmanager
def wipe(where: Ground) -> Made:
    """The disk of a master was replaced: it waits, and then comes back blank."""
    unit = where.units[2]
    unit.stop()
    unit.master.wipe()
    unit.comes_back()
    yield
    with where.cluster.client() as operator:
        eventually(lambda: "admitted" in operator.execute_command("ADMIT", unit.master.name))


@contextmanager
def misconfigure(where: Ground) -> Made:
    with where.units[3].client() as operator:
        operator.config_set("appendfsync", "everysec")
        yield
        operator.config_set("appendfsync", "always")


@contextmanager
def step_clock(where: Ground) -> Made:
    """Only the master's own process sees it: the guard, which would quarantine it, is not told."""
    clock = where.units[4].clock
    clock.step(5 * NS_PER_S)
    yield
    clock.step(-5 * NS_PER_S)


@contextmanager
def step_hosts_clock(where: Ground) -> Made:
    """The watch of the guard sees it, and kills Redis into quarantine."""
    unit = where.units[1]
    unit.configure(LONG_TTL_MS)
    unit.steps_clock(5)
    eventually(lambda: not unit.master.running, "the watch kills Redis")
    unit.ended()
    with quarantined(unit):
        yield
        unit.steps_clock(-5)


@contextmanager
def cut_off_host(where: Ground) -> Made:
    where.other.cut_off()
    yield
    where.other.reach_again()


@contextmanager
def slow_fsync(where: Ground) -> Made:
    setting = where.units[0].trouble.setting
    setting[FSYNC_US] = 400_000
    yield
    setting[FSYNC_US] = 0


@contextmanager
def kill_agent(where: Ground) -> Made:
    where.cluster.agent.kill()
    yield
    where.cluster.agent.start()


def hot_class(where: Ground) -> AbstractContextManager[None]:
    """Five apps want one resource, each for 0.6 s: nobody waits for less than 2 s."""

    def work(over: threading.Event) -> None:
        with app_of(where.cluster) as app:
            while not over.is_set():
                with suppress(redis.ResponseError):
                    token = as_map(app.execute_command("LOCK", "billing:hot", 2_000, "WAIT", 30_000))["token"]
                    over.wait(0.6)
                    app.execute_command("UNLOCK", "billing:hot", token)

    return working(*[work] * 5)


@contextmanager
def lose_lease(where: Ground) -> Made:
    """A quorum of masters loses a lease that an app holds. A renewal in between puts it back: then again."""

    def gone() -> float:
        return where.cluster.metric("lockd_losses_total", **{"class": "billing", "reason": "gone"})

    with ExitStack() as stack:
        operators = [stack.enter_context(unit.client()) for unit in where.units[:3]]
        before = gone()

        def is_lost() -> bool:
            for operator in operators:
                operator.delete("lockd:lease:billing:held")
            return gone() > before

        eventually(is_lost, "the agent finds that its lease is gone")
    yield


@contextmanager
def long_wait(where: Ground) -> Made:
    """One holds, another waits for as long as its class allows, gets TIMEOUT, and asks again."""

    def wait(over: threading.Event) -> None:
        with app_of(where.cluster) as waiter:
            while not over.is_set():
                with suppress(redis.ResponseError):
                    waiter.execute_command("LOCK", "reports:long", 2_000, "WAIT", 60_000 // FACTOR)

    with app_of(where.cluster) as holder:
        holder.execute_command("LOCK", "reports:long", 2_000)
        with working(wait):
            yield
            holder.close()


def some(*names: str) -> frozenset[str]:
    return frozenset(names)


QUARANTINED = some("LockdMasterQuarantined")
NO_QUORUM = some("LockdErrorBudgetBurn", "LockdExtendFailing")
FAULTS = (
    Fault("one master killed", kill(1), some("LockdMasterDown"), QUARANTINED, linger_s=FIFTEEN_MINUTES_S),
    Fault("two masters killed", kill(1, 2), some("LockdMasterDown", "LockdQuorumNoMargin"), QUARANTINED),
    Fault(
        "three masters killed",
        kill(1, 2, 3),
        NO_QUORUM | some("LockdMasterDown", "LockdQuorumLostEverywhere", "LockdQuorumLost", "LockdLeaseLost"),
        QUARANTINED | {"LockdQuorumNoMargin"},
        NO_QUORUM | some("LockdQuorumLost"),
    ),
    # The other host is well, and nothing of what is said of it is hidden.
    Fault(
        "one host cut off",
        cut_off_host,
        some("LockdQuorumLost", "LockdMasterUnreachable", "LockdErrorBudgetBurn"),
        some("LockdQuorumNoMargin"),
    ),
    Fault("master quarantined", quarantine, QUARANTINED),
    Fault("master blank", wipe, some("LockdMasterBlank"), QUARANTINED),
    Fault("master misconfigured", misconfigure, some("LockdMasterMisconfigured")),
    Fault("clock stepped", step_clock, some("LockdClockStep", "LockdClockSkew")),
    # Whether an agent has looked at that clock before Redis is gone is chance.
    Fault(
        "clock stepped, watched", step_hosts_clock, QUARANTINED | {"LockdClockStep"}, some("LockdClockSkew")
    ),
    # A lease that is renewed every 0.3 s lacks this master all the time.
    Fault(
        "slow fsync",
        slow_fsync,
        some("LockdMasterSlow"),
        some("LockdUnderReplicated"),
        some("LockdUnderReplicated"),
    ),
    # Started again in time, it tells of what ended under living holders meanwhile (rule 13).
    Fault("agent killed", kill_agent, some("LockdDown"), some("LockdLeaseLost")),
    Fault("hot class", hot_class, some("LockdWaitSlow", "LockdWaitBudgetBurn")),
    Fault("lost lease", lose_lease, some("LockdLeaseLost", "LockdExtendFailing")),
    Fault("overlong wait", long_wait, some("LockdWaiterStuck", "LockdWaitBudgetBurn")),
)
