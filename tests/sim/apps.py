"""Apps: they ask their host's agent for resources, write under the lease, give it back, or die with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lockd.core.journal import Held as JournalEntry
from lockd.core.leases import Lease
from lockd.core.values import Bound, Refusal
from lockd.core.values import Extended as Renewal
from tests.harness import history as h
from tests.harness.clocks import MS
from tests.sim.agent import Agent
from tests.sim.world import Process, World


class FenceStore:
    """The resource itself: it accepts a write only with a fence no smaller than all before it."""

    def __init__(self, world: World, checks: bool = True) -> None:
        self._world = world
        self._checks = checks
        self._highest: dict[bytes, int] = {}

    def write(self, resource: bytes, token: bytes, fence: int) -> None:
        accepted = not self._checks or fence >= self._highest.get(resource, 0)
        if accepted:
            self._highest[resource] = fence
        self._world.note(h.Wrote(self._world.now_ns, resource, token, fence, accepted))


@dataclass(frozen=True, slots=True)
class Habits:
    """What apps do, each as a chance or a range in ms."""

    resources: tuple[bytes, ...]
    ttls_ms: tuple[int, ...]
    max_holds_ms: tuple[int, ...] = (2_000, 6_000)
    think_ms: tuple[int, int] = (100, 2_500)
    beat_ms: int = 0
    hold_ms: tuple[int, int] = (5, 3_000)
    waits: float = 0.7
    detached: float = 0.25
    dies: float = 0.1
    forgets: float = 0.1
    extends: float = 0.3
    goes_elsewhere: float = 0.3
    chooses: float = 0.3
    """Its token itself: the same for each of its leases."""
    lags: float = 0.3
    """Extends once more what another host has given back for it."""
    lock_delay_ms: int = 0


@dataclass(slots=True)
class Held:
    """What an app has in hand."""

    request: Request
    lease: Lease
    fence: int
    deadline_ns: int
    agent_life: int


class Request:
    """core.leases.Holder and core.values.Reply, as a session has them for its app. Its answers go to the app
    over the socket."""

    detached = named = False
    notify = counted = True
    label = "sim"
    owner = b"sim 1 0"

    def __init__(self, app: App, number: int, resource: bytes, habits: Habits) -> None:
        dice = app.dice
        self.app = app
        self.number = number
        self.resource = resource
        self.ttl_ms = min(dice.choice(habits.ttls_ms), app.agent.max_ttl_ms)
        self.detached = dice.random() < habits.detached
        self.max_hold_ms = max(self.ttl_ms, dice.choice(habits.max_holds_ms))
        self.lock_delay_ms = habits.lock_delay_ms
        # Not the one of the agent before: a release by the app's token may be late, as in Redis.
        chooses = dice.random() < habits.chooses
        self.value = f"{app.name}'s, on {app.agent.host}".encode() if chooses else b""
        self.pid, self.started = app.pid, app.life
        self.bound = Bound.CONNECTION if number % 8 == 0 else Bound.PROCESS
        self.wait_ms = int(dice.uniform(10, 4_000)) if dice.random() < habits.waits else None
        self.agent = app.agent
        self.agent_life = app.agent.life
        self.asked_ns = 0
        self.give_up_ns: int | None = None
        self.lease: Lease | None = None

    def arrive(self) -> None:
        """At the agent."""
        self.agent_life = self.agent.life
        now_ns = self.asked_ns = self.agent.boot_ns()
        self.ttl_ms = min(self.ttl_ms, self.agent.max_ttl_ms)
        self.give_up_ns = None if self.wait_ms is None else now_ns + self.wait_ms * MS
        self.agent.locks.lock(self, now_ns)

    def hang_up(self) -> None:
        """The app's connection is closed. One that was started since knows nothing of it."""
        if self.agent_life != self.agent.life:
            return
        now_ns = self.agent.boot_ns()
        if self.lease is None:
            self.agent.locks.gone(self, now_ns)
        elif not self.detached:
            self.agent.locks.holder_gone(self.lease, now_ns)

    def granted(self, lease: Lease, now_ns: int) -> None:
        self.lease = lease
        self.agent.fleet.open_tries.discard(lease.nonce)
        unseen_ns = self.agent.unseen_since_ns(lease.t1_ns)
        self.app.hear(self.app.got, self, lease, lease.deadline_ns, self.app.world.now_ns, unseen_ns)

    def refused(self, refusal: Refusal) -> None:
        self.app.hear(self.app.refused, self, refusal)

    def renewed(self, lease: Lease) -> None:
        self.app.hear(self.app.renewed, self, lease.deadline_ns, self.agent.unseen_since_ns(lease.t1_ns))

    def lost(self, lease: Lease, reason: str) -> None:
        self.app.hear(self.app.lost, self, lease)

    def ended(self, lease: Lease) -> None: ...


@dataclass(eq=False)
class Heir:
    """core.leases.Holder of a lease that was taken over: what its journal says, and the app as it is known by
    its token."""

    app: App
    resource: bytes
    ttl_ms: int
    max_hold_ms: int
    lock_delay_ms: int
    owner: bytes
    value: bytes
    pid: int
    started: int
    bound: Bound
    label: str
    notify: bool
    detached = named = False
    counted = True
    give_up_ns: int | None = None
    asked_ns = 0

    def granted(self, lease: Lease, now_ns: int) -> None:
        raise AssertionError("it was, by another agent")

    def refused(self, refusal: Refusal) -> None:
        raise AssertionError("it asks for nothing")

    def renewed(self, lease: Lease) -> None:
        unseen_ns = self.app.agent.unseen_since_ns(lease.t1_ns)
        self.app.hear(self.app.renewed_by_token, lease.token, lease.deadline_ns, unseen_ns)

    def lost(self, lease: Lease, reason: str) -> None:
        self.app.hear(self.app.lost_by_token, lease.token)

    def ended(self, lease: Lease) -> None: ...


@dataclass(slots=True)
class Told:
    """core.values.Reply: where the answer to an UNLOCK or EXTEND goes."""

    app: App
    then: Callable[[Renewal | None], None] = field(default=lambda _: None)

    def done(self, lease: Renewal | None) -> None:
        self.app.hear(self.then, lease)

    def refused(self, refusal: Refusal) -> None:
        self.app.hear(self.then, None)


@dataclass(slots=True)
class Freed(Told):
    """The answer to an UNLOCK of that lease."""

    nonce: bytes = b""

    def done(self, lease: Renewal | None) -> None:
        self.app.hear(self.app.unlocked, self.nonce)

    def refused(self, refusal: Refusal) -> None:
        self.app.hear(self.app.not_unlocked, self.nonce, refusal)


class App(Process):
    """One app: it has at most one request open or one lease in hand."""

    def __init__(
        self,
        world: World,
        name: str,
        agent: Agent,
        elsewhere: list[Agent],
        habits: Habits,
        store: FenceStore,
        next_number: Callable[[], int],
    ) -> None:
        super().__init__(world, name)
        self.agent = agent
        self.retired = False
        self.resumed_ns = 0
        self._elsewhere = elsewhere
        self._habits = habits
        self._store = store
        self._next_number = next_number
        self._open: Request | None = None
        self._held: Held | None = None
        self._last_sent_ns = 0
        self._unanswered: dict[bytes, tuple[bytes, bytes]] = {}
        """UNLOCKs, by the lease: they are asked again when the agent is back."""
        self.pid = len(agent.processes) + 1
        agent.processes[self.pid] = self
        self._think()

    # Its socket

    def _tell(self, do: Callable[..., None], *what: Any, agent: Agent | None = None) -> None:
        """In order, with the small delay that a socket has."""
        when_ns = max(self.world.now_ns + int(self.dice.uniform(0.02, 0.2) * MS), self._last_sent_ns)
        self._last_sent_ns = when_ns
        to = agent or self.agent
        self.world.at(when_ns, self._reach, to, to.life, do, what)

    def _reach(self, agent: Agent, life: int, do: Callable[..., None], what: tuple[Any, ...]) -> None:
        if life == agent.life:
            agent.take(self, do, *what)

    def hear(self, do: Callable[..., None], *what: Any) -> None:
        """From the agent: arrives unless this app has died meanwhile."""
        self.world.after(int(self.dice.uniform(0.02, 0.2) * MS), self._heard, self.life, do, what)

    def _heard(self, life: int, do: Callable[..., None], what: tuple[Any, ...]) -> None:
        if life == self.life:
            self.take("agent", do, *what)

    # Asking

    def _think(self) -> None:
        self._open = self._held = None
        self.wake_after(self._rest_ns(), self._ask)

    def _rest_ns(self) -> int:
        beat_ns = self._habits.beat_ms * MS
        if beat_ns:
            return beat_ns - self.world.now_ns % beat_ns + int(self.dice.uniform(0, 0.5) * MS)
        return int(self.dice.uniform(*self._habits.think_ms) * MS)

    def _ask(self) -> None:
        if self.retired:
            return
        if not self.agent.running:
            self._think()
            return
        self.ask(Request(self, self._next_number(), self.dice.choice(self._habits.resources), self._habits))

    def ask(self, request: Request) -> None:
        self._open = request
        self.world.note(
            h.Asked(
                self.world.now_ns,
                request.number,
                self.name,
                request.resource,
                request.ttl_ms,
                request.wait_ms,
                request.max_hold_ms,
                request.bound is Bound.PROCESS and not request.detached,
            )
        )
        self._tell(request.arrive)

    def refused(self, request: Request, refusal: Refusal) -> None:
        if request is not self._open:
            return
        self.world.note(h.Refused(self.world.now_ns, request.number, refusal.code, refusal.text))
        self._think()

    def got(self, request: Request, lease: Lease, deadline_ns: int, answered_ns: int, unseen_ns: int) -> None:
        if request is not self._open:
            return
        true_ns = self.agent.clock.true_ns
        self._open = None
        self._held = held = Held(request, lease, lease.fence, deadline_ns, self.agent.life)
        self.world.note(
            h.Granted(
                self.world.now_ns,
                request.number,
                request.resource,
                lease.nonce,
                lease.fence,
                true_ns(deadline_ns) - unseen_ns,
                true_ns(lease.t1_ns),
                answered_ns,
                unseen_ns,
            )
        )
        if unseen_ns:
            self._believe(held, unseen_ns)
        self._use(held, self.world.now_ns + int(self.dice.uniform(*self._habits.hold_ms) * MS))

    # Holding

    def _sure(self, held: Held) -> bool:
        """Every use of a lease begins with this."""
        return held is self._held and self.agent.boot_ns() < held.deadline_ns

    def _use(self, held: Held, until_ns: int) -> None:
        if held is not self._held:
            return
        if not self._sure(held):
            self._forget(held)
            return
        if self.world.now_ns >= until_ns:
            self._finish(held)
            return
        # Some writes are under way for seconds: those the fence has to stop.
        late_ms = self.dice.uniform(500, 4_000) if self.dice.random() < 0.03 else self.dice.uniform(0.1, 5)
        self.world.after(
            int(late_ms * MS), self._store.write, held.request.resource, held.lease.nonce, held.fence
        )
        if self.dice.random() < self._habits.extends:
            self._extend(held)
        self.wake_after(int(self.dice.uniform(5, 400) * MS), self._use, held, until_ns)

    def _extend(self, held: Held) -> None:
        """By its own agent, or, as only a detached one can be, by another host's."""
        agent = self._agent_for(held)
        if not agent.running:
            return
        token, request = held.lease.token, held.request
        ttl_ms = min(self.dice.choice(self._habits.ttls_ms), agent.max_ttl_ms)
        told = Told(self, lambda renewal: self._extended(held, agent, renewal))
        self._tell(
            lambda: agent.locks.extend(request.resource, token, ttl_ms, told, agent.boot_ns()), agent=agent
        )

    def _agent_for(self, held: Held) -> Agent:
        """Its own, or, for what others may be asked for, at times another one."""
        request = held.request
        may = request.detached and not request.value and self._elsewhere
        if may and self.dice.random() < self._habits.goes_elsewhere:
            return self.dice.choice(self._elsewhere)
        return self.agent

    def _extended(self, held: Held, agent: Agent, renewal: Renewal | None) -> None:
        if renewal is not None:
            deadline_ns = agent.clock.true_ns(renewal.deadline_ns) - agent.unseen_ns
            if agent is not self.agent:
                # Told on the other host's clock; what an app makes of it on its own: nothing is added.
                self.world.note(h.Extended(self.world.now_ns, held.lease.nonce, deadline_ns))
                return
            unseen_ns = agent.unseen_since_ns(held.lease.t1_ns)
            self.renewed(held.request, renewal.deadline_ns, unseen_ns)

    def renewed(self, request: Request, deadline_ns: int, unseen_ns: int) -> None:
        held = self._held
        if held is None or held.request is not request:
            return
        held.deadline_ns = max(held.deadline_ns, deadline_ns)
        true_ns = self.agent.clock.true_ns(deadline_ns) - unseen_ns
        self.world.note(h.Extended(self.world.now_ns, held.lease.nonce, true_ns))
        if unseen_ns:
            self._believe(held, unseen_ns)

    def clock_goes_otherwise(self) -> None:
        """Its host's clock is slewed from now on, or not any more: the deadline comes sooner, or later."""
        if self._held is not None:
            held, agent = self._held, self.agent
            deadline_ns = agent.clock.true_ns(held.deadline_ns) - agent.unseen_since_ns(held.lease.t1_ns)
            self.world.note(h.Moved(self.world.now_ns, held.lease.nonce, deadline_ns))

    def host_stood_still(self, for_ns: int) -> None:
        if self._held is not None:
            self._believe(self._held, for_ns)

    def _believe(self, held: Held, for_ns: int) -> None:
        """What it holds seems to last for longer than it does."""
        if held.agent_life == self.agent.life:
            deadline_ns = self.agent.clock.true_ns(held.deadline_ns)
            self.world.note(
                h.Believes(self.world.now_ns, held.lease.nonce, self.agent.name, for_ns, deadline_ns)
            )

    def heir(self, held: JournalEntry) -> Heir:
        return Heir(
            self, held.resource, held.now.ttl_ms, held.max_hold_ms, held.lock_delay_ms, held.owner,
            held.token, held.pid, held.started, held.bound, held.label, held.notify,
        )  # fmt: skip

    def _held_as(self, token: bytes) -> Held | None:
        return self._held if self._held is not None and self._held.lease.token == token else None

    def renewed_by_token(self, token: bytes, deadline_ns: int, unseen_ns: int) -> None:
        if (held := self._held_as(token)) is not None:
            self.renewed(held.request, deadline_ns, unseen_ns)

    def lost_by_token(self, token: bytes) -> None:
        if (held := self._held_as(token)) is not None:
            self.lost(held.request, held.lease)

    def lost(self, request: Request, lease: Lease) -> None:
        held = self._held
        if held is None or held.request is not request:
            return
        now_ns, true_ns = self.world.now_ns, self.agent.clock.true_ns
        stopped_ns = max(self.resumed_ns, self.agent.resumed_ns)
        excused = stopped_ns > true_ns(held.deadline_ns) - request.ttl_ms * MS
        self.world.note(h.LetGo(now_ns, lease.nonce, "lost"))
        self.world.note(h.Lost(now_ns, lease.nonce, true_ns(held.deadline_ns), excused))
        agent = self.agent
        self._tell(lambda: agent.locks.forget(request.resource, lease.token, agent.boot_ns()))
        self._think()

    # Letting go

    def _finish(self, held: Held) -> None:
        luck = self.dice.random()
        if luck < self._habits.dies:
            self.killed()
        elif luck < self._habits.dies + self._habits.forgets and held.request.detached:
            self._forget(held)
        else:
            self._unlock(held)

    def _forget(self, held: Held) -> None:
        self.world.note(h.Forgot(self.world.now_ns, held.lease.nonce))
        self._think()

    def _unlock(self, held: Held) -> None:
        agent = self._agent_for(held)
        if not agent.running and (agent is not self.agent or held.request.detached):
            self._forget(held)
            return
        request, token = held.request, held.lease.token
        self.world.note(h.LetGo(self.world.now_ns, held.lease.nonce, "unlock"))
        told = Freed(self, nonce=held.lease.nonce)
        if agent is self.agent:
            self._unanswered[held.lease.nonce] = request.resource, token
        self._tell(lambda: agent.locks.unlock(request.resource, token, told, agent.boot_ns()), agent=agent)
        if agent is not self.agent and self.dice.random() < self._habits.lags:
            self.world.after(int(self.dice.uniform(0, 8_000) * MS), self._extend_late, held)
        self._think()

    def agent_is_back(self) -> None:
        """As clients do, it asks again what was not answered."""
        for nonce, (resource, token) in self._unanswered.items():
            self._tell(self.agent_unlocks, resource, token, Freed(self, nonce=nonce))

    def agent_unlocks(self, resource: bytes, token: bytes, told: Freed) -> None:
        self.agent.locks.unlock(resource, token, told, self.agent.boot_ns())

    def not_unlocked(self, nonce: bytes, refusal: Refusal) -> None:
        """It ended already, or masters are away: then it is told, and asks no more."""
        self._unanswered.pop(nonce, None)

    def unlocked(self, nonce: bytes) -> None:
        self._unanswered.pop(nonce, None)
        self.world.note(h.Unlocked(self.world.now_ns, nonce))

    def _extend_late(self, held: Held) -> None:
        """A part of the app that has not heard of the UNLOCK asks its own agent, which has not either."""
        own, request = self.agent, held.request
        ttl_ms = min(self.dice.choice(self._habits.ttls_ms), own.max_ttl_ms)
        if own is request.agent and own.running:
            told = Told(self, lambda renewal: self._extended(held, own, renewal))
            self._tell(
                lambda: own.locks.extend(request.resource, held.lease.token, ttl_ms, told, own.boot_ns())
            )

    def killed(self) -> None:
        """The app dies, whatever it was doing; its connection is closed. Another takes its place."""
        now_ns = self.world.now_ns
        request = self._open
        if request is not None:
            self.world.note(h.Withdrawn(now_ns, request.number))
        elif self._held is not None:
            request = self._held.request
            why = "left" if request.detached else "died"
            self.world.note(h.LetGo(now_ns, self._held.lease.nonce, why))
        if request is not None and self.agent.running:
            self._tell(request.hang_up)
        if self.agent.running:
            self._tell(self.agent.process_died, self.pid, self.life)
        self._unanswered.clear()
        self.die()
        self.running = True
        self._think()

    def agent_gone(self) -> None:
        """The agent's socket was closed. What is held is held until its deadline; nobody renews it."""
        if self._open is not None:
            self.world.note(h.Withdrawn(self.world.now_ns, self._open.number))
            self._think()

    def resumed(self) -> None:
        self.resumed_ns = self.world.now_ns
