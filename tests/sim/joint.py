"""Apps that lock several resources with one request, or one of several slots: lockd/core/several.py and
slots.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from lockd.core.leases import Lease, Standing
from lockd.core.several import Several
from lockd.core.slot_names import slot_name
from lockd.core.slots import Slots
from lockd.core.values import Bound, Refusal
from tests.harness import history as h
from tests.harness.clocks import MS
from tests.sim.agent import name_of
from tests.sim.apps import Heir, Request, Told, Wanted
from tests.sim.clients import PoolApp
from tests.sim.sockets import Session, Socket

_MIN_VALIDITY_NS = 10 * MS
_OF_SLOTS = b"s"
_NUMBERS_OF_SLOTS = (2, 2, 3)


def in_turn(resources: Sequence[bytes]) -> Iterable[tuple[bytes, ...]]:
    """Lists of all of them: each is the first of one."""
    return ((*resources[at:], *resources[:at]) for at in range(len(resources)))


class Part(Request):
    """One lock that a request stands in line for. It is the app's only when the whole is answered."""

    tried_ns = 0

    def __init__(self, whole: JointRequest, number: int, resource: bytes) -> None:
        vars(self).update(vars(whole.options))
        self.whole = whole
        self.number = number
        self.resource = resource

    def granted(self, lease: Lease, now_ns: int) -> None:
        if lease.holder is self:
            self.tried_ns = lease.t1_ns
            self.agent.fleet.open_tries.discard(lease.nonce)
            if not self.detached:
                self.app.world.note(h.Handed(self.app.world.now_ns, name_of(lease)))
        self.app.world.note(h.Claimed(self.app.world.now_ns, self.number, name_of(lease)))
        self.whole.core.granted(self, lease, now_ns)

    def refused(self, refusal: Refusal) -> None:
        self.whole.core.refused(self, refusal, self.agent.boot_ns())

    def lost(self, lease: Lease, reason: str) -> None:
        if self.agent.sessions.claims.lost(lease, self.agent.boot_ns()):
            self.app.world.note(h.LostUntold(self.app.world.now_ns, name_of(lease)))
        else:
            super().lost(lease, reason)


class JointRequest(Wanted):
    """core.claims.Whole. options: what a LOCK of the first resource alone would be; parts: those that it
    stands in line for."""

    core: Several | Slots
    parts: Sequence[Part]
    app: JointApp

    def __init__(self, app: JointApp, options: Request) -> None:
        self.app = app
        self.agent = app.agent
        self.options = options
        self.named = options.named

    def like(self, options: Request) -> JointRequest:
        """The same once more, by the same name. options: with a number of their own."""
        raise NotImplementedError

    def in_core(self) -> Several | Slots:
        raise NotImplementedError

    def arrive(self) -> None:
        session = self.session = self.agent.sessions.of(self.socket)
        session.waiting[self] = None
        now_ns = self.agent.boot_ns()
        for part in self.parts:
            part.socket = self.socket
            part.asks(session, now_ns)
        self.core = self.in_core()
        self.core.begins(now_ns)

    def gone(self, now_ns: int) -> None:
        self.core.gone(now_ns)

    def refused(self, refusal: Refusal) -> None:
        for number in self.numbers:
            self.app.world.note(h.Declined(self.app.world.now_ns, number))
        super().refused(refusal)

    def granted(self, leases: list[Lease], fresh: list[Lease], now_ns: int) -> None:
        session = self.session
        session.waiting.pop(self, None)
        for lease in fresh:
            _is_told_on(session, lease)
        given = [(self._part_for(lease), lease) for lease in leases]
        for part, lease in given:
            bound = Bound.TTL if part.detached else part.bound
            self.app.world.note(h.Answered(self.app.world.now_ns, part.number, name_of(lease), bound))
        if session.is_gone:
            for lease in fresh:
                self.agent.sessions.came_too_late(lease, session)
            return
        for lease in leases:
            if lease not in fresh and isinstance(lease.holder, Request | Heir):
                lease.holder.asked_again(session, lease)
        self._answer(given, fresh)

    def _part_for(self, lease: Lease) -> Part:
        return next(part for part in self.parts if part.resource == lease.resource)

    def _answer(self, given: list[tuple[Part, Lease]], fresh: list[Lease]) -> None:
        self.session.grants(*(lease for _, lease in given))
        told = [
            partial(
                self.app.takes, part, lease, part.grant_of(lease, _tried_ns(lease), is_fresh=lease in fresh)
            )
            for part, lease in given
        ]
        self.app.hear(self.app.got_all, self, told, socket=self.socket)
        self.answer_next()


def _is_told_on(session: Session, lease: Lease) -> None:
    """Its app is told of it on this connection, for the first time."""
    if isinstance(lease.holder, Request):
        lease.holder.session = session
    if not lease.holder.detached:
        session.ties.granted(lease)


def _tried_ns(lease: Lease) -> int:
    """When the try began that brought it. It may have been renewed since."""
    return lease.holder.tried_ns if isinstance(lease.holder, Part) else lease.t1_ns


class SeveralRequest(JointRequest):
    """All of several resources, or none."""

    def __init__(self, app: JointApp, options: Request, resources: Sequence[bytes]) -> None:
        super().__init__(app, options)
        options.detached = False
        rest = (Part(self, app.next_number(), one) for one in resources[1:])
        self.parts = (Part(self, options.number, resources[0]), *rest)

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(part.number for part in self.parts)

    def asked(self) -> Iterable[h.Asked]:
        return (replace(one, whole=self.numbers[0]) for part in self.parts for one in part.asked())

    def like(self, options: Request) -> SeveralRequest:
        return SeveralRequest(self.app, options, [part.resource for part in self.parts])

    def in_core(self) -> Several:
        agent = self.agent
        return Several(agent.locks, agent.sessions.claims, self.parts, self, _MIN_VALIDITY_NS)


class SlotPart(Part):
    """One of many lines: none is a request of its own."""

    counted = False


class SlotsRequest(JointRequest):
    """One of n equal locks."""

    def __init__(self, app: JointApp, options: Request, n: int) -> None:
        super().__init__(app, options)
        self.n = n
        names = [slot_name(_OF_SLOTS, number) for number in range(n)]
        first = app.dice.randrange(n)
        names = [*names[first:], *names[:first]]
        self._tries = [SlotPart(self, options.number, name) for name in names]
        for part in self._tries:
            part.named, part.wait_ms = False, None
        waits = options.wait_ms is not None
        self._places = [SlotPart(self, options.number, name) for name in names] if waits else []
        self.parts = (*self._tries, *self._places)

    @property
    def numbers(self) -> tuple[int, ...]:
        return (self.options.number,)

    def asked(self) -> Iterable[h.Asked]:
        names = tuple(part.resource for part in self._tries)
        return (replace(one, resource=_OF_SLOTS, among=names) for one in self.options.asked())

    def like(self, options: Request) -> SlotsRequest:
        return SlotsRequest(self.app, options, self.n)

    def granted(self, leases: list[Lease], fresh: list[Lease], now_ns: int) -> None:
        super().granted(leases, fresh, now_ns)
        self._had_another("granted", leases[0])
        if self.named:
            self.agent.sessions.slots[self.options.value] = leases[0]

    def refused(self, refusal: Refusal) -> None:
        super().refused(refusal)
        self._had_another(refusal.code)

    def _had_another(self, answer: str, lease: Lease | None = None) -> None:
        """By what this agent has answered before to a request of its name."""
        had = self.agent.sessions.slots.get(self.options.value) if self.named else None
        if had is not None and had is not lease and had.standing is Standing.HELD:
            world = self.app.world
            world.note(h.HadSlot(world.now_ns, self.options.number, name_of(had), answer))

    def in_core(self) -> Slots:
        agent = self.agent
        return Slots(agent.locks, agent.sessions.claims, _OF_SLOTS, self._tries, self._places, self)


class JointApp(PoolApp):
    """It asks for several together, or for a slot, as often as for the other. At times it reads late."""

    patiences_ms = (*PoolApp.patiences_ms, (1, 12), (2, 30), (2, 30))

    def next_number(self) -> int:
        return self._next_number()

    def _arrives_ns(self, socket: Socket | None) -> int:
        late_ms = self._chance.uniform(1, 30) if socket is not None and self._may(0.2) else 0
        arrives_ns = super()._arrives_ns(socket) + int(late_ms * MS)
        if socket is not None:
            socket.last_arrives_ns = arrives_ns
        return arrives_ns

    def _new_request(self) -> JointRequest:
        options = self._plain_request()
        resources = self._habits.resources
        if self.dice.random() < 0.5:
            return SlotsRequest(self, options, self.dice.choice(_NUMBERS_OF_SLOTS))
        return SeveralRequest(self, options, self.dice.sample(resources, self.dice.choice((2, 2, 3))))

    def ask_patiently(self, wanted: Sequence[bytes] | int, wait_ms: int) -> None:
        """For a list, or one of so many slots, and for so long."""
        options = self._plain_request()
        options.wait_ms = wait_ms
        if isinstance(wanted, int):
            self.ask(SlotsRequest(self, options, wanted))
        else:
            self.ask(SeveralRequest(self, options, wanted))

    def _like(self, request: Wanted) -> Wanted:
        assert isinstance(request, JointRequest)
        return request.like(self._plain_like(request.options))

    def got_all(self, whole: JointRequest, told: list[Callable[[], None]]) -> None:
        """The reply of a request, with a part for each lease."""
        if whole is self._open:
            for take in told:
                take()
            until_ns = self._use_until_ns()
            for held in tuple(self._hands):
                self._use(held, until_ns)

    # By its name

    def _gives_up(self, request: Wanted) -> None:
        """A list by the names of all of it, as clients do, or by one of them."""
        if isinstance(request, SlotsRequest):
            self._take_back(request, request.options, _OF_SLOTS)
        elif isinstance(request, SeveralRequest):
            parts = [*request.parts]
            self._chance.shuffle(parts)
            for part in parts[:1] if self._may(0.5) else parts:
                self._take_back(request, part, part.resource)

    def _take_back(self, whole: JointRequest, part: Request, resource: bytes) -> None:
        self._command(self.agent, Told(self), self._is_taken_back, whole, part, resource)

    def _is_taken_back(
        self, whole: JointRequest, part: Request, resource: bytes, told: Told, now_ns: int
    ) -> None:
        """At the agent. With what it has of a list, all of that is over; with what it has not asked for yet,
        only when that comes to its turn."""
        name, token = self._slot_of(resource, part.value), part.value
        lease = self.agent.locks.known(name, token)
        is_all = lease is not None and lease.standing is Standing.HELD
        for number in whole.numbers if is_all else (part.number,):
            self.world.note(h.TakenBack(self.world.now_ns, number))
        self._withdraw(name, token, told, now_ns)

    def _slot_of(self, resource: bytes, token: bytes) -> bytes:
        """As the agent has it: the slot that the token has got."""
        one = self.agent.locks.names.slot(resource, token)
        return resource if one is None or one.lease is None else one.lease.resource
