"""Apps: they ask their host's agent for resources, write under the lease, give it back, or die with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from lockd.core.journal import Held as JournalEntry
from lockd.core.leases import Lease, Loss, owner_of
from lockd.core.values import Bound, Refusal
from lockd.core.values import Extended as Renewal
from tests.harness import history as h
from tests.harness.clocks import MS
from tests.sim.agent import Agent, name_of
from tests.sim.sockets import Line, Session, Socket
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
    keep_ms: int = 0


@dataclass(eq=False, slots=True)
class Held:
    """A lease that an app has in hand."""

    request: Request
    lease: Lease
    fence: int
    deadline_ns: int
    agent_life: int
    name: bytes
    """Of this lease alone, in histories: its token may be the app's own, for all of its leases."""
    unnoticed_ns: int = 0
    """For how long its host stood still since, and no agent that comes can know."""


class Wanted:
    """What an app asks for with one command. Its answer goes to the app over the socket that it was asked
    on."""

    app: App
    agent: Agent
    socket: Socket
    session: Session
    named = False
    """It has a token by which its app knows it."""
    followed = False
    """By another command on its connection, whose reply comes behind its own."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """By which histories know it: one for each lease that it is for."""
        raise NotImplementedError

    def asked(self) -> Iterable[h.Asked]:
        raise NotImplementedError

    def arrive(self) -> None:
        """At the agent."""
        raise NotImplementedError

    def gone(self, now_ns: int) -> None:
        """Nobody waits for its answer any more."""
        raise NotImplementedError

    def refused(self, refusal: Refusal) -> None:
        self.session.waiting.pop(self, None)
        if not self.session.is_gone:
            self.session.writes(b"refused")
            self.app.hear(self.app.refused, self, refusal, socket=self.socket)
            self.answer_next()

    def answer_next(self) -> None:
        if self.followed:
            self.session.writes(b"next")
            self.app.hear(_nothing_new, socket=self.socket)


class Request(Wanted):
    """core.leases.Holder, as a session has it for its app."""

    detached = False
    notify = counted = True
    label = "sim"

    def __init__(self, app: App, number: int, resource: bytes, habits: Habits) -> None:
        dice = app.dice
        self.app = app
        self.number = number
        self.resource = resource
        self.ttl_ms = min(dice.choice(habits.ttls_ms), app.agent.max_ttl_ms)
        self.detached = dice.random() < habits.detached
        self.max_hold_ms = max(self.ttl_ms, dice.choice(habits.max_holds_ms))
        self.lock_delay_ms = habits.lock_delay_ms
        self.keep_ms = habits.keep_ms
        # Not the one of the agent before: a release by the app's token may be late, as in Redis.
        chooses = dice.random() < habits.chooses
        self.value = f"{app.name}'s, on {app.agent.host}".encode() if chooses else b""
        self.pid, self.started = app.pid, app.life
        self.bound = Bound.CONNECTION if number % 8 == 0 else Bound.PROCESS
        self.wait_ms = int(dice.uniform(10, 4_000)) if dice.random() < habits.waits else None
        self.agent = app.agent
        self.owner = owner_of(app.agent.known_as, 1, 0)
        self.account = app.account
        self.asked_ns = 0
        self.give_up_ns: int | None = None

    @property
    def numbers(self) -> tuple[int, ...]:
        return (self.number,)

    @property
    def stands_alone(self) -> bool:
        """It is not given back when it is granted and nobody is there to hear of it."""
        return False

    def asked(self) -> Iterable[h.Asked]:
        by_process = self.bound is Bound.PROCESS and not self.detached
        yield h.Asked(
            self.app.world.now_ns, self.number, self.app.name, self.resource, self.ttl_ms, self.wait_ms,
            self.max_hold_ms, by_process, self.agent.name,
        )  # fmt: skip

    def arrive(self) -> None:
        session = self.agent.sessions.of(self.socket)
        session.waiting[self] = None
        now_ns = self.agent.boot_ns()
        self.asks(session, now_ns)
        self.agent.locks.lock(self, now_ns)

    def asks(self, session: Session, now_ns: int) -> None:
        """Its wait begins."""
        process = session.ties.process
        self.session = session
        self.started = 0 if process is None else process.started
        self.bound = session.ties.bound(self.bound)
        self.asked_ns = now_ns
        self.ttl_ms = min(self.ttl_ms, self.agent.max_ttl_ms)
        self.give_up_ns = None if self.wait_ms is None else now_ns + self.wait_ms * MS

    def gone(self, now_ns: int) -> None:
        self.agent.locks.gone(self, now_ns)

    def granted(self, lease: Lease, now_ns: int) -> None:
        session, first = self.session, lease.holder
        session.waiting.pop(self, None)
        self.agent.fleet.open_tries.discard(lease.nonce)
        if first is self and not self.detached:
            self.app.world.note(h.Handed(self.app.world.now_ns, name_of(lease)))
            session.ties.granted(lease)
        elif isinstance(first, Request | Heir) and first is not self and not session.is_gone:
            first.asked_again(session, lease)
        bound = Bound.TTL if self.detached else self.bound
        self.app.world.note(h.Answered(self.app.world.now_ns, self.number, name_of(lease), bound))
        if not session.is_gone:
            self._answer(lease)
        elif first is self and not self.stands_alone:
            self.agent.sessions.came_too_late(lease, session)

    def _answer(self, lease: Lease) -> None:
        self.session.grants(lease)
        granted = self.grant_of(lease, lease.t1_ns, is_fresh=lease.holder is self)
        self.app.hear(self.app.got, self, lease, granted, socket=self.socket)
        self.answer_next()

    def grant_of(self, lease: Lease, tried_ns: int, *, is_fresh: bool) -> h.Granted:
        """What its reply says. is_fresh: its app is told of it for the first time."""
        now_ns, agent = self.app.world.now_ns, self.agent
        return h.Granted(
            now_ns,
            self.number,
            self.resource,
            name_of(lease),
            lease.fence,
            lease.deadline_ns,
            agent.clock.true_ns(tried_ns),
            now_ns if is_fresh else None,
            agent.unseen_since_ns(lease.t1_ns),
            b"" if self.value or self.detached else lease.token,
        )

    def asked_again(self, session: Session, lease: Lease) -> None:
        """By its app, on that connection."""
        session.ties.tells_too(lease, self.session.ties)
        self.session = session

    def renewed(self, lease: Lease) -> None:
        self.app.hear(self.app.renewed, lease, lease.deadline_ns, self.agent.unseen_since_ns(lease.t1_ns))

    def lost(self, lease: Lease, reason: str) -> None:
        # Where it is gone from the masters, its agent takes the rest of its validity away with this news.
        was_taken_away = lease.lost_by in (None, Loss.GONE, Loss.FORCED)
        self.app.hear(self.app.lost, lease, lease.promised_ns if was_taken_away else lease.deadline_ns)

    def ended(self, lease: Lease) -> None:
        self.session.ties.ended(lease)
        self.agent.sessions.forget_idle(self.session.ties.process)
        self.agent.sessions.claims.ended(lease, self.agent.boot_ns())


def _nothing_new() -> None:
    """The reply of a PING."""


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
    account: str
    value: bytes
    pid: int
    started: int
    bound: Bound
    label: str
    notify: bool
    detached = False
    named = counted = True
    give_up_ns: int | None = None
    asked_ns = keep_ms = 0

    def granted(self, lease: Lease, now_ns: int) -> None:
        raise AssertionError("it was, by another agent")

    def refused(self, refusal: Refusal) -> None:
        raise AssertionError("it asks for nothing")

    def asked_again(self, session: Session, lease: Lease) -> None:
        """By its app, on that connection."""
        session.ties.tells_too(lease, None)

    def renewed(self, lease: Lease) -> None:
        unseen_ns = self.app.agent.unseen_since_ns(lease.t1_ns)
        self.app.hear(self.app.renewed_by_name, lease.resource, lease.token, lease.deadline_ns, unseen_ns)

    def lost(self, lease: Lease, reason: str) -> None:
        self.app.agent.sessions.claims.lost(lease, self.app.agent.boot_ns())
        self.app.hear(self.app.lost_by_name, lease.resource, lease.token, lease.deadline_ns)

    def ended(self, lease: Lease) -> None:
        self.app.agent.sessions.lease_ended(lease)


@dataclass(slots=True)
class Told:
    """core.values.Reply: where the answer to an UNLOCK or EXTEND goes. socket: on which its own agent was
    asked; resource: of an EXTEND."""

    app: App
    then: Callable[[Renewal | None], None] = field(default=lambda _: None)
    socket: Socket | None = None
    resource: bytes = b""
    unseen_ns: int = 0
    """For how much longer it says that it lasts: nobody could know, when it was said."""

    def done(self, lease: Renewal | None) -> None:
        locks = self.app.agent.locks
        held = locks.known(self.resource, lease.token) if lease is not None and self.socket else None
        if held is not None:
            self.unseen_ns = self.app.agent.unseen_since_ns(held.t1_ns)
            if isinstance(held.holder, Request):
                held.holder.session.ties.named(held)
        self.hears(self.then, lease)

    def refused(self, refusal: Refusal) -> None:
        self.hears(self.then, None)

    def hears(self, do: Callable[..., None], *what: Any) -> None:
        if self.socket is not None:
            session = self.app.agent.sessions.open(self.socket)
            if session is None:
                return
            session.writes(b"told")
        self.app.hear(do, *what, socket=self.socket)


@dataclass(slots=True)
class Freed(Told):
    """The answer to an UNLOCK of that lease."""

    name: bytes = b""

    def done(self, lease: Renewal | None) -> None:
        self.hears(self.app.unlocked, self.name)

    def refused(self, refusal: Refusal) -> None:
        self.hears(self.app.not_unlocked, self.name, refusal)


class App(Process):
    """One app: it has at most one request open, or in hand what one request was for."""

    account = ""
    requests: type[Request] = Request

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
        self.account = self.account or name
        """Who pays for it."""
        self.retired = False
        self.resumed_ns = 0
        self._elsewhere = elsewhere
        self._habits = habits
        self._store = store
        self._next_number = next_number
        self._open: Wanted | None = None
        self._hands: list[Held] = []
        self._thoughts = 0
        self._line = Line(self.account)
        self._socket: Socket | None = None
        self._said_ns = 0
        """When what it reads now was said."""
        self._unanswered: dict[bytes, tuple[bytes, bytes]] = {}
        """UNLOCKs, by the lease: they are asked again when the agent is back."""
        self.pid = len(agent.processes) + 1
        agent.processes[self.pid] = self
        self._think()

    # Its socket

    def socket(self) -> Socket:
        """One to its agent that is open, for what is asked next."""
        socket = self._socket
        if socket is None or not self._reaches(socket):
            socket = self._socket = self._connect(self._line)
        return socket

    def _reaches(self, socket: Socket) -> bool:
        return socket.is_open and socket.agent_life == self.agent.life

    def _connect(self, line: Line) -> Socket:
        return Socket(self.pid, self.life, self.agent.life, line)

    def _tell(
        self, do: Callable[..., None], *what: Any, agent: Agent | None = None, line: Line | None = None
    ) -> None:
        """In order, with the small delay that a socket has."""
        line = line or self._line
        when_ns = max(self.world.now_ns + int(self.dice.uniform(0.02, 0.2) * MS), line.last_sent_ns)
        line.last_sent_ns = when_ns
        to = agent or self.agent
        self.world.at(when_ns, self._reach, to, to.life, line, do, what)

    def _reach(
        self, agent: Agent, life: int, line: Line, do: Callable[..., None], what: tuple[Any, ...]
    ) -> None:
        if life == agent.life:
            agent.take(line, do, *what)

    def hear(self, do: Callable[..., None], *what: Any, socket: Socket | None = None) -> None:
        """From the agent: arrives unless this app has died meanwhile. socket: on which it is read; None:
        news, which some connection of it brings."""
        said_ns = self.world.now_ns
        self.world.at(self._arrives_ns(socket), self._heard, self.life, said_ns, socket, do, what)

    def _arrives_ns(self, _socket: Socket | None) -> int:
        return self.world.now_ns + int(self.dice.uniform(0.02, 0.2) * MS)

    def _heard(
        self, life: int, said_ns: int, socket: Socket | None, do: Callable[..., None], what: tuple[Any, ...]
    ) -> None:
        if life == self.life:
            self.take(self._line, self._reads, said_ns, socket, do, what)

    def _reads(
        self, said_ns: int, socket: Socket | None, do: Callable[..., None], what: tuple[Any, ...]
    ) -> None:
        self._said_ns = said_ns
        if socket is not None:
            if not socket.is_open:
                return
            socket.unread -= 1
            socket.wanted -= 1
        do(*what)

    # Asking

    def _think(self) -> None:
        self._open, self._hands = None, []
        self._thoughts += 1
        self.wake_after(self._rest_ns(), self._ask, self._thoughts)

    def _rest_ns(self) -> int:
        beat_ns = self._habits.beat_ms * MS
        if beat_ns:
            return beat_ns - self.world.now_ns % beat_ns + int(self.dice.uniform(0, 0.5) * MS)
        return int(self.dice.uniform(*self._habits.think_ms) * MS)

    def _ask(self, thoughts: int) -> None:
        if self.retired or thoughts != self._thoughts:
            return
        if not self.agent.running:
            self._think()
            return
        self.ask(self._new_request())

    def _new_request(self) -> Wanted:
        return self._plain_request()

    def _plain_request(self) -> Request:
        resource = self.dice.choice(self._habits.resources)
        return self.requests(self, self._next_number(), resource, self._habits)

    def ask(self, request: Wanted) -> None:
        self._open = request
        self._thoughts += 1
        request.socket = self.socket()
        for asked in request.asked():
            self.world.note(asked)
        self._ask_on(request.socket, request.arrive)

    def _ask_on(self, socket: Socket, do: Callable[..., None], *what: Any) -> None:
        socket.wanted += 1
        self._tell(do, *what, line=socket.line)

    def refused(self, request: Wanted, refusal: Refusal) -> None:
        if request is not self._open:
            return
        for number in request.numbers:
            self.world.note(h.Refused(self.world.now_ns, number, refusal.code, refusal.text))
        self._think()

    def _waits_no_more(self, request: Wanted) -> None:
        for number in request.numbers:
            self.world.note(h.Withdrawn(self.world.now_ns, number))

    def got(self, request: Request, lease: Lease, granted: h.Granted) -> None:
        if request is not self._open:
            return
        held = self.takes(request, lease, granted)
        self._use(held, self._use_until_ns())

    def _use_until_ns(self) -> int:
        return self.world.now_ns + int(self.dice.uniform(*self._habits.hold_ms) * MS)

    def takes(self, request: Request, lease: Lease, granted: h.Granted) -> Held:
        """In hand."""
        self._open = None
        deadline_ns = granted.deadline_ns
        held = Held(request, lease, lease.fence, deadline_ns, self.agent.life, granted.token)
        self._hands.append(held)
        unseen_ns = granted.unseen_ns + self.agent.stood_since_ns(self._said_ns)
        true_ns = self.agent.clock.true_ns(deadline_ns) - unseen_ns
        self.world.note(replace(granted, at_ns=self.world.now_ns, deadline_ns=true_ns, unseen_ns=unseen_ns))
        if unseen_ns:
            self._believe(held, unseen_ns)
        return held

    # Holding

    def _sure(self, held: Held) -> bool:
        """Every use of a lease begins with this."""
        return held in self._hands and self.agent.boot_ns() < held.deadline_ns

    def _use(self, held: Held, until_ns: int) -> None:
        if held not in self._hands:
            return
        if not self._sure(held):
            self._forget(held)
            return
        if self.world.now_ns >= until_ns:
            self._finish(held)
            return
        # Some writes are under way for seconds: those the fence has to stop.
        late_ms = self.dice.uniform(500, 4_000) if self.dice.random() < 0.03 else self.dice.uniform(0.1, 5)
        self.world.after(int(late_ms * MS), self._store.write, held.request.resource, held.name, held.fence)
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
        told = self._to_be_extended(held, agent)
        self.world.note(h.ExtensionAsked(self.world.now_ns, held.name, ttl_ms))
        self._command(agent, told, agent.locks.extend, request.resource, token, ttl_ms)

    def _command(self, agent: Agent, told: Told, do: Callable[..., None], *what: Any) -> None:
        """Its own agent is asked on a socket to it."""
        if agent is not self.agent:
            self._tell(lambda: do(*what, told, agent.boot_ns()), agent=agent)
            return
        socket = told.socket = self.socket()
        self._ask_on(socket, self._arrives, socket, do, what, told)

    def _arrives(self, socket: Socket, do: Callable[..., None], what: tuple[Any, ...], told: Told) -> None:
        self.agent.sessions.of(socket)
        do(*what, told, self.agent.boot_ns())

    def _agent_for(self, held: Held) -> Agent:
        """Its own, or, for what others may be asked for, at times another one."""
        request = held.request
        may = request.detached and not request.value and self._elsewhere
        if may and self.dice.random() < self._habits.goes_elsewhere:
            return self.dice.choice(self._elsewhere)
        return self.agent

    def _to_be_extended(self, held: Held, agent: Agent) -> Told:
        told = Told(self, resource=held.request.resource)
        told.then = lambda renewal: self._extended(held, agent, renewal, told.unseen_ns)
        return told

    def _extended(self, held: Held, agent: Agent, renewal: Renewal | None, unseen_ns: int) -> None:
        if renewal is not None:
            deadline_ns = agent.clock.true_ns(renewal.deadline_ns) - agent.unseen_ns
            if agent is not self.agent:
                # Told on the other host's clock; what an app makes of it on its own: nothing is added.
                self.world.note(h.Extended(self.world.now_ns, held.name, deadline_ns, True))
                return
            self.renewed(held.lease, renewal.deadline_ns, unseen_ns, asked=True)

    def renewed(self, lease: Lease, deadline_ns: int, unseen_ns: int, *, asked: bool = False) -> None:
        """unseen_ns: for how much longer that says that it lasts, and nobody could know when it was said."""
        held = self._held_as(lease)
        if held is None:
            return
        unseen_ns += self.agent.stood_since_ns(self._said_ns)
        if deadline_ns > held.deadline_ns:
            held.deadline_ns, held.unnoticed_ns = deadline_ns, 0
        true_ns = self.agent.clock.true_ns(deadline_ns) - unseen_ns
        self.world.note(h.Extended(self.world.now_ns, held.name, true_ns, asked))
        if unseen_ns:
            self._believe(held, unseen_ns)

    def clock_goes_otherwise(self) -> None:
        """Its host's clock is slewed from now on, or not any more: the deadline comes sooner, or later."""
        for held in self._hands:
            self.world.note(h.Moved(self.world.now_ns, held.name, self._ends_ns(held)))

    def _ends_ns(self, held: Held) -> int:
        """What its host stood still is not counted twice."""
        agent = self.agent
        unseen_ns = max(agent.unseen_since_ns(held.lease.t1_ns), held.unnoticed_ns)
        return agent.clock.true_ns(held.deadline_ns) - unseen_ns

    def host_stood_still(self, for_ns: int) -> None:
        """A lease with a TTL of its own is in no journal: once its agent has ended, nobody tells its app."""
        for held in self._hands:
            its_agent_lives = self.agent.running and held.agent_life == self.agent.life
            if held.request.detached and not its_agent_lives:
                held.unnoticed_ns += for_ns
            else:
                self._believe(held, for_ns)

    def _believe(self, held: Held, for_ns: int) -> None:
        """What it holds seems to last for longer than it does."""
        if held.agent_life == self.agent.life:
            deadline_ns = self.agent.clock.true_ns(held.deadline_ns)
            self.world.note(h.Believes(self.world.now_ns, held.name, self.agent.name, for_ns, deadline_ns))

    def heir(self, held: JournalEntry) -> Heir:
        return Heir(
            self, held.resource, held.now.ttl_ms, held.max_hold_ms, held.lock_delay_ms, held.owner,
            self.account, held.token, held.pid, held.started, held.bound, held.label, held.notify,
        )  # fmt: skip

    def is_looked_at(self, held: JournalEntry) -> None:
        """By the next agent, which finds that lease in its journal."""

    def _held_as(self, lease: Lease) -> Held | None:
        return next((held for held in self._hands if held.lease is lease), None)

    def _held_by_name(self, resource: bytes, token: bytes) -> Held | None:
        name = resource, token
        return next((held for held in self._hands if (held.lease.resource, held.lease.token) == name), None)

    def renewed_by_name(self, resource: bytes, token: bytes, deadline_ns: int, unseen_ns: int) -> None:
        if (held := self._held_by_name(resource, token)) is not None:
            self.renewed(held.lease, deadline_ns, unseen_ns)

    def lost_by_name(self, resource: bytes, token: bytes, proven_ns: int) -> None:
        if (held := self._held_by_name(resource, token)) is not None:
            self.lost(held.lease, proven_ns)

    def lost(self, lease: Lease, proven_ns: int) -> None:
        """proven_ns: its deadline as its agent had it: an extension of which no reply was read may have moved
        that."""
        held = self._held_as(lease)
        if held is None:
            return
        request = held.request
        now_ns, true_ns = self.world.now_ns, self.agent.clock.true_ns
        stopped_ns = max(self.resumed_ns, self.agent.resumed_ns)
        excused = stopped_ns > true_ns(held.deadline_ns) - request.ttl_ms * MS
        self.world.note(h.LetGo(now_ns, held.name, "lost"))
        deadline_ns = true_ns(max(held.deadline_ns, proven_ns))
        self.world.note(h.Lost(now_ns, held.name, deadline_ns, excused))
        agent = self.agent
        self._tell(lambda: agent.locks.forget(request.resource, lease.token, agent.boot_ns()))
        self._lets_go(held)

    # Letting go

    def _lets_go(self, held: Held) -> None:
        """What it has together with this one is of no use without it."""
        self._hands.remove(held)
        if self._hands:
            self._unlock(self._hands[0])
        else:
            self._think()

    def _finish(self, held: Held) -> None:
        luck = self.dice.random()
        if luck < self._habits.dies:
            self.killed()
        elif luck < self._habits.dies + self._habits.forgets and held.request.detached:
            self._forget(held)
        else:
            self._unlock(held)

    def _forget(self, held: Held) -> None:
        self.world.note(h.Forgot(self.world.now_ns, held.name))
        self._lets_go(held)

    def _unlock(self, held: Held) -> None:
        agent = self._agent_for(held)
        if not agent.running and (agent is not self.agent or held.request.detached):
            self._forget(held)
            return
        request, token = held.request, held.lease.token
        self.world.note(h.LetGo(self.world.now_ns, held.name, "unlock"))
        told = Freed(self, name=held.name)
        if agent is self.agent:
            self._unanswered[held.name] = request.resource, token
        self._command(agent, told, agent.locks.unlock, request.resource, token)
        if agent is not self.agent and self.dice.random() < self._habits.lags:
            self.world.after(int(self.dice.uniform(0, 8_000) * MS), self._extend_late, held)
        self._lets_go(held)

    def agent_is_back(self) -> None:
        """As clients do, it asks again what was not answered."""
        for name, (resource, token) in self._unanswered.items():
            told = Freed(self, name=name)
            self._command(self.agent, told, self.agent.locks.unlock, resource, token)

    def not_unlocked(self, name: bytes, refusal: Refusal) -> None:
        """It ended already, or masters are away: then it is told, and asks no more."""
        self._unanswered.pop(name, None)

    def unlocked(self, name: bytes) -> None:
        self._unanswered.pop(name, None)
        self.world.note(h.Unlocked(self.world.now_ns, name))

    def _extend_late(self, held: Held) -> None:
        """A part of the app that has not heard of the UNLOCK asks its own agent, which has not either."""
        own, request = self.agent, held.request
        ttl_ms = min(self.dice.choice(self._habits.ttls_ms), own.max_ttl_ms)
        if own is request.agent and own.running:
            told = self._to_be_extended(held, own)
            self._command(own, told, own.locks.extend, request.resource, held.lease.token, ttl_ms)

    def killed(self) -> None:
        """The app dies, whatever it was doing; its connection is closed. Another takes its place."""
        if self._open is not None:
            self._waits_no_more(self._open)
        elif self._hands:
            self._dies_holding()
        self._close_all()
        self._unanswered.clear()
        self.die()
        self.running = True
        self._think()

    def _dies_holding(self) -> None:
        for held in self._hands:
            why = "left" if held.request.detached else "died"
            self.world.note(h.LetGo(self.world.now_ns, held.name, why))

    def _close_all(self) -> None:
        """By the kernel, at its death."""
        if self._socket is not None:
            if self._open is not None:
                self._hangs_up(self._socket, self._open)
            self._socket.is_open = False
            if (self._open is not None or self._hands) and self.agent.running:
                self._tell(self.agent.sessions.ended, self._socket)
        if self.agent.running:
            self._tell(self.agent.sessions.process_died, self.pid, self.life)

    def _hangs_up(self, socket: Socket, request: Wanted) -> None:
        """It is closed, and that request has no answer yet that was read."""
        for number in request.numbers if socket is request.socket else ():
            self.world.note(h.HungUp(self.world.now_ns, number, alone=socket.wanted == 1))

    def agent_gone(self) -> None:
        """The agent's socket was closed. What is held is held until its deadline; nobody renews it."""
        if self._open is not None:
            self._waits_no_more(self._open)
            self._think()

    def resumed(self) -> None:
        self.resumed_ns = self.world.now_ns
