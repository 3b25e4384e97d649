"""Apps that ask for several resources together, or for one of several slots: lockd/core/several.py and
slots.py.

A request for several is asked by as many apps as it has parts (its crew), each of which then holds, uses,
loses and gives back its lease as any other does. One for a slot is of one app, whose request has a part for
each slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockd.core.claims import Claims
from lockd.core.leases import Lease
from lockd.core.several import Several
from lockd.core.slot_names import slot_name
from lockd.core.slots import Slots
from lockd.core.values import Bound, Refusal
from tests.harness import history as h
from tests.harness.clocks import MS
from tests.sim.agent import Agent
from tests.sim.apps import App, Habits, Request
from tests.sim.cluster import Cluster

_MIN_VALIDITY_NS = 10 * MS
_TTL_MS, _MAX_HOLD_MS = 2_000, 6_000


class Part(Request):
    """One lock that a request stands in line for. What it is told goes to the whole first."""

    def __init__(self, whole: JointRequest, app: App, resource: bytes, wait_ms: int | None) -> None:
        quiet = Habits((resource,), (_TTL_MS,), (_MAX_HOLD_MS,), detached=0, chooses=0)
        super().__init__(app, whole.number_of(app), resource, quiet)
        self.whole = whole
        self.bound = Bound.PROCESS
        self.counted = whole.counts_parts
        self.value = whole.token
        self.named = False
        self.wait_ms = wait_ms

    def prepare(self, now_ns: int) -> None:
        self.ttl_ms = min(self.ttl_ms, self.agent.max_ttl_ms)
        self.agent_life = self.agent.life
        self.asked_ns = now_ns
        self.give_up_ns = None if self.wait_ms is None else now_ns + self.wait_ms * MS

    def granted(self, lease: Lease, now_ns: int) -> None:
        self.whole.core.granted(self, lease, now_ns)

    def is_told(self, lease: Lease, now_ns: int) -> None:
        super().granted(lease, now_ns)

    def refused(self, refusal: Refusal) -> None:
        self.whole.core.refused(self, refusal, self.agent.boot_ns())

    def lost(self, lease: Lease, reason: str) -> None:
        if not self.whole.claims.lost(lease, self.agent.boot_ns()):
            super().lost(lease, reason)

    def ended(self, lease: Lease) -> None:
        self.whole.claims.ended(lease, self.agent.boot_ns())

    def hang_up(self) -> None:
        if self.agent_life == self.agent.life and self.lease is None:
            self.whole.hang_up()
        else:
            super().hang_up()


class JointRequest:
    """core.claims.Whole."""

    core: Several | Slots
    resources: Sequence[bytes]
    counts_parts = True

    def __init__(self, crew: Sequence[JointApp]) -> None:
        self.crew = crew
        self.agent: Agent = crew[0].agent
        self.numbers = {app.name: app.next_number() for app in crew}
        self.token = b"whole %d" % min(self.numbers.values())
        self.claims = Claims()
        self.wait_ms = int(crew[0].dice.uniform(10, 4_000)) if crew[0].dice.random() < 0.8 else None
        self.arrived = self.answered = False

    def number_of(self, app: App) -> int:
        return self.numbers[app.name]

    def refused(self, refusal: Refusal) -> None:
        self.answered = True
        for app in self.crew:
            app.hear(app.refused, app.part, refusal)

    def hang_up(self) -> None:
        """One of the crew has died: nobody waits for it any more."""
        if not self.answered:
            self.answered = True
            if self.arrived:
                self.core.gone(self.agent.boot_ns())
            for app in self.crew:
                app.hear(app.left_alone, self)

    def granted(self, leases: list[Lease], fresh: list[Lease], now_ns: int) -> None:
        self.answered = True
        for lease in leases:
            assert isinstance(lease.holder, Part)
            lease.holder.app.part = lease.holder  # type: ignore[attr-defined]
            lease.holder.is_told(lease, now_ns)


class SeveralRequest(JointRequest):
    def __init__(self, crew: Sequence[JointApp], resources: Sequence[bytes]) -> None:
        super().__init__(crew)
        self.resources = resources
        self.parts = [Part(self, app, one, self.wait_ms) for app, one in zip(crew, resources, strict=True)]
        for app, part in zip(crew, self.parts, strict=True):
            app.begins(part)

    def arrive(self) -> None:
        if self.answered:
            return
        self.arrived = True
        now_ns = self.agent.boot_ns()
        for part in self.parts:
            part.prepare(now_ns)
        self.core = Several(self.agent.locks, self.claims, self.parts, self, _MIN_VALIDITY_NS)
        self.core.begins(now_ns)


class SlotsRequest(JointRequest):
    counts_parts = False

    def __init__(self, app: JointApp, resource: bytes, number: int) -> None:
        super().__init__([app])
        names = [slot_name(resource, one) for one in range(number)]
        app.dice.shuffle(names)
        self.resources = names
        self.resource = resource
        self.tries = [Part(self, app, name, None) for name in names]
        self.places = [Part(self, app, name, self.wait_ms) for name in names] if self.wait_ms else []
        app.begins((self.places or self.tries)[0])

    def arrive(self) -> None:
        if self.answered:
            return
        self.arrived = True
        now_ns = self.agent.boot_ns()
        for part in (*self.tries, *self.places):
            part.prepare(now_ns)
        self.core = Slots(self.agent.locks, self.claims, self.resource, self.tries, self.places, self)
        self.core.begins(now_ns)


class JointApp(App):
    """One of a crew, or one that asks for slots. The first of a crew asks for all."""

    part: Part | None = None
    crew: Sequence[JointApp] = ()
    slots = 0

    def next_number(self) -> int:
        return self._next_number()

    def begins(self, part: Part) -> None:
        """It waits for its part of a request from now on."""
        self.part = part
        self._open = part
        self.world.note(
            h.Asked(
                self.world.now_ns, part.number, self.name, part.resource, part.ttl_ms, part.wait_ms,
                part.max_hold_ms, True,
            )
        )  # fmt: skip

    def _ask(self) -> None:
        busy = [app for app in self.crew if app._open is not None or app._held is not None or not app.running]
        if self.retired or not (self.crew or self.slots):
            return
        if busy or not self.agent.running:
            self._think()
        elif self.slots:
            self._tell(SlotsRequest(self, self._habits.resources[0], self.slots).arrive)
        else:
            resources = self.dice.sample(self._habits.resources, len(self.crew))
            self._tell(SeveralRequest(self.crew, resources).arrive)

    def left_alone(self, whole: JointRequest) -> None:
        """Another of the crew has died while all of it waited."""
        if self.part is not None and self.part.whole is whole and self._open is self.part:
            self.world.note(h.Withdrawn(self.world.now_ns, self.part.number))
            self._think()

    def got(self, request: Request, lease: Lease, deadline_ns: int, answered_ns: int, unseen_ns: int) -> None:
        if self._open is not None and self._open.number == request.number:
            # Of slots it is known only now which it is.
            self._open = request
            super().got(request, lease, deadline_ns, answered_ns, unseen_ns)

    def refused(self, request: Request, refusal: Refusal) -> None:
        if self._open is not None and self._open.number == request.number:
            self._open = request
            super().refused(request, refusal)

    def agent_gone(self) -> None:
        """What it was granted and not told of is given back by its name, when an agent is there again."""
        if isinstance(self._open, Part):
            whole = self._open.whole
            self._unanswered |= {whole.token + name: (name, whole.token) for name in whole.resources}
        super().agent_gone()


def with_joint_apps(cluster: Cluster) -> Cluster:
    """On each host that has apps: a crew, and some that want one of two slots."""
    for index, agent in enumerate(cluster.agents[: cluster.plan.shape.busy_agents]):
        elsewhere = [other for other in cluster.agents if other is not agent]

        def app(name: str, agent: Agent = agent, elsewhere: list[Agent] = elsewhere) -> JointApp:
            more = JointApp(
                cluster.world, name, agent, elsewhere, cluster.habits, cluster.store, cluster.next_number
            )
            cluster.apps.append(more)
            return more

        crew = [app(f"crew{index}.{one}") for one in range(min(2, len(cluster.habits.resources)))]
        crew[0].crew = crew
        for one in range(3):
            app(f"slot{index}.{one}").slots = 2
    return cluster
