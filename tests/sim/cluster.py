"""A whole cluster in one process: built from a plan, hurt by its faults, mended, and asked whether it serves
again."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

from lockd.core.fences import SANE_MOST, slot_of
from lockd.core.validity import settle_ns
from tests.harness.checker import Bounds, Violation, check
from tests.harness.clocks import MS, S
from tests.harness.history import Calm, Ended, Event, Forced, Found, Stocked
from tests.harness.history import Fault as Noted
from tests.harness.modest import MODEST_CHECKS, of_the_modest
from tests.harness.script_model import Store
from tests.harness.together import ALL_CHECKS
from tests.sim.agent import Agent
from tests.sim.apps import App, FenceStore, Habits, Request
from tests.sim.busy import BusyAgent
from tests.sim.clients import PoolApp
from tests.sim.fleet import first_identity
from tests.sim.greedy import Attack, GreedyApp, ModestApp, attacks, habits_of
from tests.sim.joint import JointApp, in_turn
from tests.sim.journal import Dies, Spoilt
from tests.sim.master import Master
from tests.sim.max_ttl import ChangeMaxTtl
from tests.sim.network import Path
from tests.sim.operator import Operator
from tests.sim.plain import PlainApp
from tests.sim.plan import GRAVE, OF_JOURNALS, QUIET_FROM_MS, ROUND_MS, Fault, Kind, Plan, Shape
from tests.sim.sockets import Line
from tests.sim.world import Clock, World

LOOK_NS = 1_000 * MS
COPY_NS = 1_000 * MS
RESTART_NS = 200 * MS
_COPIES = 10
GIVE_BACK_MS = 2_500
"""Once all is mended: connect anew after the longest back-off, and ask what is owed."""
AT_ONCE_MS = 100
"""With what lags at the agent."""
MIN_VALIDITY_MS = 9
"""lockd's 10 ms by the agent's clock, which may be slow."""
BEGINS_MS = 13
"""Of the 20 ms beside eight greedy accounts that users may rely on: here are three at most, and an agent as
fast as where its work was measured."""
LEFTOVER_MS = 50
IDLE_MS = 2_000
"""The longest back-off, and what tries take: nobody waits for longer while nobody holds."""
TURN_MS = 150
"""With what it takes to be told of a recall, and for a try that began before."""
LOST_TURN_MS = 4_000
"""The same where it may take several tries until one is."""
TURNS = 4


def _lag_of(dice: random.Random) -> Callable[[], int]:
    """Mostly what ends does so at once."""
    return lambda: int(dice.random() * _LAGS_MOST_NS) if dice.random() < 0.3 else 0


def _habits_of(shape: Shape) -> Habits:
    """What its apps do."""
    habits = Habits(
        resources=_ONE_SLOT[: shape.resources],
        ttls_ms=shape.ttls_ms,
        think_ms=shape.think_ms,
        hold_ms=shape.hold_ms,
        lock_delay_ms=shape.lock_delay_ms,
        keep_ms=shape.keep_ms,
        forgets=shape.forgets,
    )
    if shape.greedy:
        habits = replace(habits, detached=0, dies=0, forgets=0, chooses=0)
    if shape.beat_ms:
        habits = replace(habits, beat_ms=shape.beat_ms, hold_ms=(1, 30), detached=0, dies=0, waits=0.2)
    if shape.pools:
        habits = replace(habits, max_holds_ms=(2_000, 6_000, 12_000), hold_ms=(5, 8_000))
    if shape.taking_turns:
        return replace(
            habits, hold_ms=shape.hold_ms, waits=1, detached=0.02, dies=0.01, extends=0, forgets=0, chooses=0
        )
    if shape.keep_ms and not shape.crowded:
        return replace(
            habits, hold_ms=shape.hold_ms, waits=0.5, detached=0.03, dies=0.02, extends=0.05, forgets=0.01
        )
    if shape.crowded:
        return replace(habits, hold_ms=shape.hold_ms, waits=0.9, detached=0.05, dies=0.03, extends=0.1)
    return habits


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    history: list[Event]
    violations: list[Violation]
    simulated_s: float
    handled: int


_OF_AGENTS = (
    Kind.OTHER_LIST, Kind.CUT, Kind.ISOLATE_MASTER, Kind.ISOLATE_AGENT, Kind.SLOW, Kind.STICK, Kind.RESET,
    Kind.PAUSE_AGENT, Kind.FREEZE_BEFORE, Kind.FREEZE_AFTER, Kind.CRASH_AGENT, Kind.STOP_AGENT,
    Kind.STEP_AGENT, Kind.SLEW_AGENT, Kind.STAND_STILL, Kind.PAUSE_APP, Kind.KILL_APP,
    *OF_JOURNALS,
)  # fmt: skip
"""What happens also while the host of the master that a fault names stands still."""

_LAGS_MOST_NS = 30 * MS
_OF_OLD_FORMAT = ("cluster", "name", "max_ttl_ms")
_JOINT_APPS = 2
_PLAIN_APPS = 2
"""On each host."""
_ONE_SLOT = (b"r0", b"r2953", b"r3335")
"""Resources that share a fence counter, so that they get in each other's way."""


class Cluster:
    """The parts of a run, and how each kind of fault is done to them."""

    def __init__(self, plan: Plan, *, store_checks_fences: bool = True, grave_for_all: bool = False) -> None:
        """grave_for_all: more than a minority may lose data or time at once, which lockd does not stand."""
        self.plan = plan
        self._grave_for_all = grave_for_all
        shape = plan.shape
        self.world = world = World(str(plan.seed))
        self.masters = [
            Master(world, i, Clock(world, shape.drifts_ppm[i], shape.master_offs_ns[i]), shape.guarding)
            for i in range(shape.masters)
        ]
        for master in self.masters:
            master.notices = shape.notices
        for master in self.masters if shape.formed else ():
            self._introduce(master)
            master.disk_is_in_sync()
        self.agents = [self._agent(i) for i in range(shape.agents)]
        self.operators = [
            Operator(world, self.agents, shape.max_ttl_ms, unused=not shape.formed, number=number)
            for number in range(shape.operators)
        ]
        self.store = FenceStore(world, store_checks_fences)
        self._numbers = count(1)
        self.habits = _habits_of(shape)
        for agent in self.agents if shape.pools else ():
            agent.lag_ns = _lag_of(world.dice(f"{agent.name}, what lags"))
        self.apps = list[App](self._all_apps())
        self._used = shape.formed
        self._mends: list[Callable[[], None]] = []
        self._settled_ns = [0] * shape.masters
        self._copies: deque[list[Store]] = deque(maxlen=_COPIES)
        self._copy()
        world.after(LOOK_NS, self._look)

    def _introduce(self, master: Master) -> None:
        """It has an identity, of whatever format."""
        shape, names = self.plan.shape, [master.name for master in self.masters]
        identity = first_identity(master.name, names, shape.max_ttl_ms)
        if shape.old_format:
            master.store.set_identity({name: identity.fields[name] for name in _OF_OLD_FORMAT})
        else:
            master.store.identify("", identity.fields, {})

    def _copy(self) -> None:
        """What replicas have that lag behind by up to a second, and what backups have that are older."""
        self._copies.append([master.store.snapshot() for master in self.masters])
        self.world.after(COPY_NS, self._copy)

    def _agent(self, index: int) -> Agent:
        shape, world = self.plan.shape, self.world
        clock = Clock(world, shape.drifts_ppm[shape.masters + index], shape.agent_offs_ns[index])
        paths = [(Path(world, f"{index}>{m}"), Path(world, f"{m}>{index}")) for m in range(shape.masters)]
        for there, back in paths:
            there.loss = back.loss = shape.loss
        if shape.greedy:
            return BusyAgent(
                world, index, clock, self.masters, paths, shape.max_ttl_ms, slowness=shape.slowness
            )
        return Agent(world, index, clock, self.masters, paths, shape.max_ttl_ms)

    def _app(self, index: int, name: str = "app", habits: Habits | None = None, kind: type[App] = App) -> App:
        agent = self.agents[index % self.plan.shape.busy_agents]
        if habits is None and self.plan.shape.keep_ms:
            # The one of its host mostly, and at times what another host keeps.
            all_of_them = self.habits.resources
            own = all_of_them[index % self.plan.shape.busy_agents % len(all_of_them)]
            habits = replace(self.habits, resources=(*([own] * 12), *all_of_them))
        elsewhere = [other for other in self.agents if other is not agent]
        return kind(
            self.world, f"{name}{index + 1}", agent, elsewhere, habits or self.habits, self.store,
            self._numbers.__next__,
        )  # fmt: skip

    def _all_apps(self) -> Iterator[App]:
        shape = self.plan.shape
        for i in range(shape.apps):
            yield self._app(i, kind=self._kind_of_apps)
        for attack in attacks(shape.greedy):
            yield from self._parts_of(attack)
        for i in range(_JOINT_APPS * shape.busy_agents if shape.joint else 0):
            habits = replace(self.habits, resources=_ONE_SLOT, chooses=0, detached=0.1)
            yield self._app(i, "joint app", habits, JointApp)
        for i in range(_PLAIN_APPS * shape.busy_agents if shape.plain else 0):
            habits = replace(self.habits, detached=0.6)
            yield self._app(i, "plain app", habits, PlainApp)

    @property
    def _kind_of_apps(self) -> type[App]:
        if self.plan.shape.greedy:
            return ModestApp
        return PoolApp if self.plan.shape.pools else App

    def _parts_of(self, attack: Attack) -> Iterator[App]:
        """All on the first host."""
        agent = self.agents[0]
        assert isinstance(agent, BusyAgent)
        lines = [Line(attack.account_of(i, agent.accounts)) for i in range(attack.size.connections)]
        for i in range(attack.size.parts):
            habits = habits_of(attack, i, self.habits.resources)
            yield GreedyApp(
                attack, lines[i % len(lines)], self.world, f"{attack.name} {i}", agent, [], habits,
                self.store, self._numbers.__next__,
            )  # fmt: skip

    def _look(self) -> None:
        """What the masters show, for the check of leftovers. A clock that was set back keeps keys for
        longer."""
        for master in self.masters:
            if master.running and not master.stepped_back:
                for resource in list(master.store.leases):
                    key = master.store.lease(resource, master.now_us())
                    if key is not None and key.reserved is None:
                        self.world.note(Found(self.world.now_ns, master.shown, resource, key.nonce))
        self.world.after(LOOK_NS, self._look)

    # Faults

    def inject(self, fault: Fault) -> None:
        if fault.kind not in _OF_AGENTS and self.masters[fault.master].host_stands_still:
            return
        if fault.kind in GRAVE and not (self._grave_for_all or self._may_be_grave(fault)):
            return
        self.world.note(Noted(self.world.now_ns, str(fault)))
        mend = _INJECT[fault.kind](self, fault)
        if mend is None:
            return
        self._mends.append(mend)
        self.world.after(fault.for_ms * MS, self._mend, mend)

    def _may_be_grave(self, fault: Fault) -> bool:
        """Only a minority of the masters loses data or time at once; the next does when those have settled:
        quarantine, a blank's wait or a clock to be watched anew, and some time to get there."""
        now_ns = self.world.now_ns
        self._used = self._used or any(master.store.counters for master in self.masters)
        unsettled = {
            m.index
            for m in self.masters
            if (m.store.blank and self._used) or now_ns < self._settled_ns[m.index]
        }
        if len(unsettled | {fault.master}) > self.plan.shape.minority:
            return False
        unguarded = self.plan.shape.guarding.steps_seen_after_ms is None
        if unguarded and fault.kind is Kind.STEP_MASTER and self._settled_ns[fault.master]:
            # Without the guard's watch: agents alone can't see all that two steps of one clock do.
            return False
        self._settles(fault.master, fault)
        return True

    def _settles(self, master: int, fault: Fault) -> None:
        settle_for_ns = 3 * settle_ns(self.plan.shape.max_ttl_ms) + 6 * S
        self._settled_ns[master] = self.world.now_ns + fault.for_ms * MS + settle_for_ns

    def _mend(self, mend: Callable[[], None]) -> None:
        if mend in self._mends:
            self._mends.remove(mend)
            mend()

    def mend_all(self) -> None:
        for mend in list(self._mends):
            self._mend(mend)
        for agent in self.agents:
            agent.freeze_before_ns = agent.freeze_after_ns = 0
            agent.resume()

    def crash_master(self, fault: Fault) -> None:
        self.world.after(100 * MS, self.masters[fault.master].crash())

    def power_loss(self, fault: Fault) -> Callable[[], None]:
        return self.masters[fault.master].crash(power=True)

    def blackout(self, fault: Fault) -> Callable[[], None]:
        boots = [master.crash(power=True) for master in self.masters]

        def mend() -> None:
            for boot in boots:
                boot()

        return mend

    def stop_master(self, fault: Fault) -> Callable[[], None]:
        return self.masters[fault.master].stop()

    def wipe_master(self, fault: Fault) -> Callable[[], None]:
        return self.masters[fault.master].crash(wiped=True)

    def wipe_some(self, fault: Fault) -> None:
        """So many that with the one that was just replaced there is no quorum left. They settle as others."""
        for master in self.masters:
            if fault.amount >> master.index & 1:
                self._settles(master.index, fault)
                master.crash(wiped=True)()

    def change_max_ttl(self, fault: Fault) -> Callable[[], None]:
        change = ChangeMaxTtl(self.world, self.masters, self.agents, fault.amount, self._reconfigure)
        change.begin()
        return change.stop

    def _reconfigure(self, agent: Agent, max_ttl_ms: int) -> None:
        agent.max_ttl_ms = max_ttl_ms
        self._restart(agent)

    def _restart(self, agent: Agent) -> None:
        if agent.running and not agent.host_stands_still:
            agent.drain()
            self.world.after(RESTART_NS, self._end, agent, agent.life)
            self.world.after(RESTART_NS + 1, self._start, agent)

    def restore_master(self, fault: Fault) -> Callable[[], None]:
        older = self._copies[max(0, len(self._copies) - fault.amount)]
        return self.masters[fault.master].crash(restored=older[fault.master])

    def stand_still_master(self, fault: Fault) -> Callable[[], None] | None:
        """Its virtual machine is paused, or moved."""
        master = self.masters[fault.master]
        if master.host_stands_still:
            return None
        master.stand_still()
        return lambda: master.go_on(set_right=fault.amount > 1)

    def pause_master(self, fault: Fault) -> Callable[[], None]:
        self.masters[fault.master].pause()
        return self.masters[fault.master].resume

    def refusing_master(self, fault: Fault) -> Callable[[], None]:
        master = self.masters[fault.master]
        master.refusing = True

        def mend() -> None:
            master.refusing = False

        return mend

    def babbling_master(self, fault: Fault) -> Callable[[], None]:
        master = self.masters[fault.master]
        master.babbling = True

        def mend() -> None:
            master.babbling = False

        return mend

    def miscounting_master(self, fault: Fault) -> Callable[[], None]:
        """Its counters are wrong until somebody wipes it, and it is admitted again."""
        master = self.masters[fault.master]
        wrong = SANE_MOST - 1_000_000
        master.store.counters = {slot_of(resource): wrong for resource in self.habits.resources}

        def mend() -> None:
            boot = master.crash(wiped=True)
            boot()

        return mend

    def old_machine(self, fault: Fault) -> Callable[[], None]:
        """Another machine takes a master's place, blank; the old one goes on, and one agent still asks it."""
        old = self.masters[fault.master]
        new = self._take_place(old, [a for i, a in enumerate(self.agents) if i != fault.agent])

        def mend() -> None:
            old.crash(power=True)
            self._lead(self.agents[fault.agent], new)

        return mend

    def move_master(self, fault: Fault) -> Callable[[], None]:
        """A master is stopped, and another machine takes its place at another address, blank. One agent after
        the other learns that, by a restart, and one of them late. The old machine may come back meanwhile,
        with all that it had."""
        old, dice = self.masters[fault.master], random.Random(fault.amount)
        comes_back = old.stop()
        new = self._take_place(old, [])
        for agent in self.agents:
            if agent is not self.agents[fault.agent]:
                self.world.after(dice.randrange(fault.for_ms // 2 + 1) * MS, self._learn, agent, new)
        if dice.random() < 0.8:
            self.world.after(dice.randrange(fault.for_ms) * MS, comes_back)

        def mend() -> None:
            old.crash(power=True)
            for agent in self.agents:
                self._learn(agent, new)

        return mend

    def _learn(self, agent: Agent, machine: Master) -> None:
        """Its operator writes another address into its configuration, and restarts it."""
        if agent.machines[machine.index] is machine:
            return
        self._lead(agent, machine)
        self._restart(agent)

    def promoted_copy(self, fault: Fault) -> Callable[[], None]:
        """A master dies, and a replica that lagged behind is put in its place; it is restarted at times."""
        old = self.masters[fault.master]
        old.crash(power=True)
        copy = self._take_place(old, self.agents)
        copy.store = self._copies[-1][fault.master]
        copy.promoted = True

        def mend() -> None:
            boot = copy.crash(wiped=True)
            boot()

        return mend

    def _take_place(self, old: Master, of: list[Agent]) -> Master:
        new = self.masters[old.index] = Master(
            self.world, old.index, old.clock, self.plan.shape.guarding, old.machine + 1
        )
        new.notices = old.notices
        if self.plan.shape.old_format:
            self._introduce(new)
        for agent in of:
            self._lead(agent, new)
        return new

    def _lead(self, agent: Agent, machine: Master) -> None:
        """From now on the agent reaches this one under its name."""
        agent.machines[machine.index] = machine
        self._drop(agent, machine.index)

    def other_list(self, fault: Fault) -> Callable[[], None] | None:
        """An agent is configured with a part of the masters: the first half and one, or the last."""
        agent, everyone = self.agents[fault.agent], range(len(self.masters))
        if not agent.running:
            return None
        some = len(self.masters) // 4 * 2 + 1
        self._end(agent)
        agent.listed = everyone[:some] if fault.amount % 2 else everyone[-some:]
        self._start(agent)

        def mend() -> None:
            self._end(agent)
            agent.listed = everyone
            self._start(agent)

        return mend

    def step_master(self, fault: Fault) -> None:
        self.masters[fault.master].step_clock(fault.amount)

    def step_quorum(self, fault: Fault) -> None:
        """By the time server that they share, each within the same second."""
        for n in range(self.plan.shape.masters // 2 + 1):
            master = self.masters[(fault.master + n) % len(self.masters)]
            self.world.after(fault.for_ms * n * MS // 20, master.step_clock, fault.amount)

    def cut(self, fault: Fault) -> Callable[[], None]:
        return self._cut(self._ways(self.agents[fault.agent], fault.master, fault.amount))

    def isolate_master(self, fault: Fault) -> Callable[[], None]:
        return self._cut(
            [way for agent in self.agents for way in self._ways(agent, fault.master, fault.amount)]
        )

    def isolate_agent(self, fault: Fault) -> Callable[[], None]:
        agent = self.agents[fault.agent]
        everyone = range(len(self.masters))
        return self._cut([way for m in everyone for way in self._ways(agent, m, fault.amount)])

    def _ways(self, agent: Agent, master: int, ways: int) -> list[Path]:
        return [path for bit, path in enumerate(agent.paths[master]) if ways >> bit & 1]

    def _cut(self, ways: list[Path]) -> Callable[[], None]:
        for path in ways:
            path.cut()

        def mend() -> None:
            for path in ways:
                path.mend()

        return mend

    def slow(self, fault: Fault) -> Callable[[], None]:
        paths = self.agents[fault.agent].paths[fault.master]
        for path in paths:
            path.extra_ns += fault.amount

        def mend() -> None:
            for path in paths:
                path.extra_ns -= fault.amount

        return mend

    def stick(self, fault: Fault) -> None:
        link = self.agents[fault.agent].link_to(fault.master)
        connection = link.connection if link is not None else None
        if connection is not None:
            until_ns = self.world.now_ns + fault.for_ms * MS
            for bit, lane in enumerate((connection.there, connection.back)):
                if fault.amount >> bit & 1:
                    lane.stick(until_ns)

    def reset(self, fault: Fault) -> None:
        agent = self.agents[fault.agent]
        self._drop(agent, fault.master)

    def _drop(self, agent: Agent, master: int) -> None:
        link = agent.link_to(master)
        if agent.running and link is not None:
            agent.take(None, link.drop, "reset", agent.boot_ns())

    def pause_agent(self, fault: Fault) -> Callable[[], None]:
        agent = self.agents[fault.agent]
        agent.pause()
        return agent.resume

    def freeze_before(self, fault: Fault) -> None:
        self.agents[fault.agent].freeze_before_ns = fault.for_ms * MS

    def freeze_after(self, fault: Fault) -> None:
        self.agents[fault.agent].freeze_after_ns = fault.for_ms * MS

    def crash_agent(self, fault: Fault) -> Callable[[], None] | None:
        agent = self.agents[fault.agent]
        if not agent.running or agent.host_stands_still:
            return None
        self._end(agent)
        return lambda: self._start(agent)

    def crash_writing(self, fault: Fault) -> Callable[[], None] | None:
        """At the next record that it writes."""
        agent = self.agents[fault.agent]
        if not agent.running or agent.host_stands_still:
            return None
        agent.journal.dies = Dies(fault.amount)
        agent.on_kill = lambda: self._is_killed(agent, fault.for_ms)
        return None

    def _is_killed(self, agent: Agent, for_ms: int) -> None:
        self._end(agent)
        self.world.after(for_ms * MS, self._start, agent)

    def spoil_journal(self, fault: Fault) -> Callable[[], None] | None:
        start = self.crash_agent(fault)
        if start is not None:
            agent, how = self.agents[fault.agent], Spoilt(fault.amount)
            agent.journal.spoil(how, agent.dice.random)
            agent.trusts = False
            agent.sees_processes = how is not Spoilt.PROCESSES_UNSEEN
            for app in self.apps:
                if app.agent is agent and isinstance(app, PoolApp):
                    app.journal_is_spoilt()
        return start

    def stop_agent(self, fault: Fault) -> Callable[[], None] | None:
        agent = self.agents[fault.agent]
        if not agent.running or agent.host_stands_still:
            return None
        agent.drain()
        life = agent.life
        self.world.after(min(fault.for_ms, 500) * MS // 2, lambda: self._end(agent, life))

        def mend() -> None:
            self._end(agent, life)
            self._start(agent)

        return mend

    def _start(self, agent: Agent) -> None:
        """Unless it was started already, after another fault of the same agent."""
        if not agent.running:
            agent.start()

    def _end(self, agent: Agent, life: int | None = None) -> None:
        if agent.running and life in (None, agent.life):
            agent.crash()
            for app in self.apps:
                if app.agent is agent:
                    app.agent_gone()

    def step_agent(self, fault: Fault) -> None:
        self.agents[fault.agent].clock.wall_off_ns += fault.amount

    def slew_agent(self, fault: Fault) -> Callable[[], None] | None:
        """Time synchronisation makes its clock much faster, or slower."""
        agent = self.agents[fault.agent]
        if agent.is_slewed or agent.host_stands_still:
            return None

        def slew(ppm: int) -> None:
            agent.slew(ppm)
            for app in self.apps:
                if app.agent is agent:
                    app.clock_goes_otherwise()

        slew(fault.amount)
        return lambda: slew(0)

    def stand_still(self, fault: Fault) -> Callable[[], None] | None:
        """Its virtual machine is paused, or moved: agent, apps and clocks."""
        agent = self.agents[fault.agent]
        if agent.host_stands_still:
            return None
        host = [agent, *(app for app in self.apps if app.agent is agent)]
        agent.clock.stop()
        for process in host:
            process.host_stops()

        def mend() -> None:
            stood_ns = agent.clock.go_on()
            agent.stood_still(stood_ns)
            for process in host:
                if isinstance(process, App):
                    process.host_stood_still(stood_ns)
            for process in host:
                process.host_goes_on()

        return mend

    def force_release(self, fault: Fault) -> None:
        """An operator on that host takes what the masters show from whoever has it."""
        agent = self.agents[fault.agent]
        if not agent.running or agent.host_stands_still or agent.still:
            return
        for resource in self.habits.resources:
            shown = [key for m in self.masters if (key := m.store.lease(resource, m.now_us())) is not None]
            nonces = dict.fromkeys(key.nonce for key in shown if key.reserved is None)
            for nonce in nonces:
                self.world.note(Forced(self.world.now_ns, nonce))
            agent.take(None, agent.force_release, resource, nonces)

    def pause_app(self, fault: Fault) -> Callable[[], None]:
        app = self._app_of(fault)
        app.pause()
        return app.resume

    def kill_app(self, fault: Fault) -> None:
        self._app_of(fault).killed()

    def _app_of(self, fault: Fault) -> App:
        return self.apps[(fault.agent + fault.master * len(self.agents)) % len(self.apps)]

    # The run

    @property
    def serve_ms(self) -> int:
        """The longest way back to service: quarantine, a blank's wait, a clock watched anew; and a holder
        that nobody renews."""
        return 4 * settle_ns(self.plan.shape.max_ttl_ms) // MS + 10_000

    def run(self) -> Outcome:
        world = self.world
        for fault in self.plan.faults:
            world.at(fault.at_ms * MS, self.inject, fault)
        for quiet_ms in range(QUIET_FROM_MS, self.plan.shape.chaos_ms + 1, ROUND_MS):
            world.run(quiet_ms * MS)
            self.mend_all()
            world.note(Calm(world.now_ns))
        world.run(self.plan.shape.chaos_ms * MS)
        for app in self.apps:
            app.retired = True
        world.run(world.now_ns + 2 * S)
        self._probe()
        world.run(world.now_ns + self.serve_ms * MS + 2 * S)
        world.note(Ended(world.now_ns))
        bounds = Bounds(
            self.serve_ms,
            LEFTOVER_MS,
            GIVE_BACK_MS + self.plan.shape.lock_delay_ms,
            hold_slack_ms=20 + self.plan.most_slewed_ms,
            min_validity_ms=MIN_VALIDITY_MS,
            quorum=0 if self.plan.shape.loss else self.plan.shape.masters // 2 + 1,
            lock_delay_ms=self.plan.shape.lock_delay_ms,
            at_once_ms=AT_ONCE_MS,
            keep_ms=self.plan.shape.keep_ms,
            **self._bounds_of_turns(),
        )
        history, checks = world.history, ALL_CHECKS
        if self.plan.shape.greedy:
            self._looks_at_stocks()
            history, checks = of_the_modest(history), (*ALL_CHECKS, *MODEST_CHECKS)
        violations = check(history, bounds, checks)
        return Outcome(self.plan, world.history, violations, world.now_ns / S, world.handled)

    def _looks_at_stocks(self) -> None:
        for agent in self.agents:
            assert isinstance(agent, BusyAgent)
            for stock in agent.stocks:
                self.world.note(Stocked(self.world.now_ns, agent.name, stock.name, stock.peak, stock.total))

    def _bounds_of_turns(self) -> dict[str, int]:
        shape = self.plan.shape
        if shape.greedy:
            return {"begins_ms": BEGINS_MS * shape.slowness}
        if not shape.taking_turns:
            return {}
        if shape.notices:
            return {"idle_ms": IDLE_MS, "turn_ms": LOST_TURN_MS}
        return {"idle_ms": IDLE_MS, "turn_ms": TURN_MS, "turns": TURNS}

    def _probe(self) -> None:
        """Somebody on each host wants each resource once more, and has patience."""
        quick = replace(
            self.habits, beat_ms=0, detached=0, waits=1, hold_ms=(1, 2), dies=0, forgets=0, extends=0
        )
        for index in range(self.plan.shape.busy_agents):
            for resource in self.habits.resources:
                app = self._app(index, f"probe {resource.decode()} ", quick)
                app.retired = True
                request = Request(app, self._numbers.__next__(), resource, quick)
                request.wait_ms = self.serve_ms
                app.ask(request)
            if self.plan.shape.joint:
                self._probe_lists(index, quick)
        if self.plan.shape.joint:
            self._probe_slots(quick)

    def _probe_lists(self, index: int, quick: Habits) -> None:
        """They overlap, and each is in another order."""
        for number, wanted in enumerate(in_turn(_ONE_SLOT)):
            app = self._joint_probe(index, f"probe of a list {number}, ", quick)
            app.ask_patiently(wanted, self.serve_ms)

    def _probe_slots(self, quick: Habits) -> None:
        """Of two one is held for long, and who waits comes before the other is free."""
        for held_ms in (1_500, 4_000):
            habits = replace(quick, hold_ms=(held_ms, held_ms), max_holds_ms=(6_000,))
            app = self._joint_probe(0, f"probe of a slot for {held_ms} ms ", habits)
            app.ask_patiently(2, self.serve_ms)
        for number in range(3):
            app = self._joint_probe(0, f"probe of slots {number}, ", quick)
            self.world.after(1 * S, app.ask_patiently, 2, 2_500)

    def _joint_probe(self, index: int, name: str, habits: Habits) -> JointApp:
        app = self._app(index, name, habits, JointApp)
        assert isinstance(app, JointApp)
        app.retired = app.patient = True
        return app


_INJECT: dict[Kind, Callable[[Cluster, Fault], Callable[[], None] | None]] = {
    Kind.CRASH_MASTER: Cluster.crash_master,
    Kind.POWER_LOSS: Cluster.power_loss,
    Kind.BLACKOUT: Cluster.blackout,
    Kind.STOP_MASTER: Cluster.stop_master,
    Kind.WIPE_MASTER: Cluster.wipe_master,
    Kind.WIPE_SOME: Cluster.wipe_some,
    Kind.CHANGE_MAX_TTL: Cluster.change_max_ttl,
    Kind.RESTORE_MASTER: Cluster.restore_master,
    Kind.PAUSE_MASTER: Cluster.pause_master,
    Kind.STAND_STILL_MASTER: Cluster.stand_still_master,
    Kind.REFUSING_MASTER: Cluster.refusing_master,
    Kind.BABBLING_MASTER: Cluster.babbling_master,
    Kind.MISCOUNTING_MASTER: Cluster.miscounting_master,
    Kind.OLD_MACHINE: Cluster.old_machine,
    Kind.MOVE_MASTER: Cluster.move_master,
    Kind.PROMOTED_COPY: Cluster.promoted_copy,
    Kind.OTHER_LIST: Cluster.other_list,
    Kind.STEP_MASTER: Cluster.step_master,
    Kind.STEP_QUORUM: Cluster.step_quorum,
    Kind.CUT: Cluster.cut,
    Kind.ISOLATE_MASTER: Cluster.isolate_master,
    Kind.ISOLATE_AGENT: Cluster.isolate_agent,
    Kind.SLOW: Cluster.slow,
    Kind.STICK: Cluster.stick,
    Kind.RESET: Cluster.reset,
    Kind.PAUSE_AGENT: Cluster.pause_agent,
    Kind.FREEZE_BEFORE: Cluster.freeze_before,
    Kind.FREEZE_AFTER: Cluster.freeze_after,
    Kind.CRASH_AGENT: Cluster.crash_agent,
    Kind.STOP_AGENT: Cluster.stop_agent,
    Kind.STEP_AGENT: Cluster.step_agent,
    Kind.SLEW_AGENT: Cluster.slew_agent,
    Kind.STAND_STILL: Cluster.stand_still,
    Kind.PAUSE_APP: Cluster.pause_app,
    Kind.KILL_APP: Cluster.kill_app,
    Kind.CRASH_WRITING: Cluster.crash_writing,
    Kind.SPOIL_JOURNAL: Cluster.spoil_journal,
    Kind.FORCE_RELEASE: Cluster.force_release,
}


def run(plan: Plan) -> Outcome:
    """Do what the plan says, and check what came of it."""
    return Cluster(plan).run()
