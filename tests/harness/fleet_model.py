"""A cluster without sockets or clocks, for the tests of core.

Masters do what the scripts in lockd/masters/scripts/*.lua do (script_model.py), on virtual time.
An agent asks them through core's own `Fleet` and `Link`s: in order, but a test decides when a question
arrives, when its answer is heard, and whether either happens at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from typing import Any

import pytest

from lockd.core import fleet as core_fleet
from lockd.core import introduction
from lockd.core import link as core_link
from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.ballot import Ballot
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.ballots.put_back import PutBack
from lockd.core.ballots.release import Release
from lockd.core.clocks import Clocks, ClockWatch
from lockd.core.errors import ErrorWord
from lockd.core.fences import slot_of
from lockd.core.identities import Identity, Members
from lockd.core.journal import Held, Ledger, Origin, replay
from lockd.core.leases import Lease
from lockd.core.locks import Locks
from lockd.core.membership import REQUIRED_SETTINGS, Configured, MasterFacts
from lockd.core.notices import Notice
from lockd.core.queues import KeptEnd
from lockd.core.takeover import CannotTell, Seen, Taken, take_over
from lockd.core.tenures.campaigns import Campaigns
from lockd.core.tenures.places import RecallEnd
from lockd.core.values import Bound, Chance, Extended, RedlockParameters, Refusal
from tests.harness.clocks import MS
from tests.harness.script_model import Store, own_of

START_NS = 1_000_000 * MS
"""Virtual time begins here: some minutes after boot."""
HOST = b"host"
WALL_AHEAD_NS = 1_700_000_000_000 * MS
MAX_TTL_MS = 60_000

_ENDLESS = 1_000
_tokens = count(1)


@dataclass
class Time:
    """The one virtual clock that all agents read."""

    now_ns: int = START_NS

    @property
    def wall_us(self) -> int:
        return (self.now_ns + WALL_AHEAD_NS) // 1000


@dataclass(frozen=True)
class Push:
    """A notice on its way."""

    notice: bytes


@dataclass(frozen=True)
class ErrorReply:
    """An error on its way."""

    text: str


class Master:
    """One Redis with lockd's scripts. `ahead_us` is how far its wall clock is off. errors: what it answers to
    ballots of a kind instead."""

    def __init__(self, time: Time, identity: Identity) -> None:
        self.time = time
        self.name = identity.name
        self.ahead_us = 0
        self.role = "master"
        self.errors: dict[type[Ballot], str] = {}
        self.store = Store()
        self.store.identify("", identity.fields, {})
        self.notifies: list[tuple[bytes, Link]] = []
        """Which links have asked for notices, and of which host."""

    @property
    def now_us(self) -> int:
        return self.time.wall_us + self.ahead_us

    def shows(self, step: introduction.Step) -> Any:
        if isinstance(step, introduction.HearNotices):
            return None
        if isinstance(step, introduction.ReadCounter):
            return str(self.fences.get(step.slot, 0)), self.now_us
        identity = Identity.parse(self.store.identity)
        return MasterFacts(f"run of {self.name}", "test", self.role, 2, identity, REQUIRED_SETTINGS)

    @property
    def fences(self) -> dict[int, int]:
        """Its counters, by slot; a test may put them where it likes."""
        return self.store.counters

    def holder_of(self, resource: bytes) -> bytes | None:
        """The nonce that it shows for a resource; None when that is free here."""
        lease = self.store.lease(resource, self.now_us)
        return lease.nonce if lease else None

    def forget(self, resource: bytes) -> None:
        """Lost data, or an operator's FORCERELEASE from elsewhere."""
        self.store.leases.pop(resource, None)

    def run(self, ballot: Ballot, members_digest: bytes) -> Any:
        """What the script of this ballot answers: to a vote status, value, time_us, and the nonce that
        refuses it."""
        if type(ballot) in self.errors:
            return ErrorReply(self.errors[type(ballot)])
        answer = self._answer(ballot, members_digest)
        self.deliver()
        return answer

    def deliver(self) -> None:
        """Its notices are on their way."""
        published, self.store.published = self.store.published, []
        for host, notice in published:
            for of_host, link in self.notifies:
                if of_host == host:
                    link.replies.append(Push(notice))

    def _answer(self, ballot: Ballot, members_digest: bytes) -> Any:
        now_us = self.now_us
        if isinstance(ballot, Release):
            return self.store.release(
                ballot.resource,
                ballot.word,
                now_us,
                how=ballot.how.value,
                before=ballot.before,
                own=own_of(ballot),
            )
        assert isinstance(ballot, Attempt | FenceRound | Extension | PutBack)
        status, value, *holder_nonce = self.store.vote(ballot, members_digest, now_us)
        return [status, value, now_us, *holder_nonce]


def masters_of(time: Time, number: int = 5, max_ttl_ms: int = MAX_TTL_MS) -> list[Master]:
    """A cluster that was formed."""
    members = Members.first(f"m{n}" for n in range(1, number + 1))
    of_all = (Identity("test", name, max_ttl_ms, 0, "7" * 32, members) for name in members.names)
    return [Master(time, identity) for identity in of_all]


ENDLESS = core_link.Patience(1 << 62, 1 << 62)
"""Tests decide what is late."""


class Link(core_link.Link):
    """core's link of one agent to one master, and what is on its way. `slow` True: asked, but nothing moves
    by itself."""

    def __init__(self, index: int, fleet: Fleet, master: Master) -> None:
        super().__init__(index, fleet, fleet.clocks.watches[index], ENDLESS, str.encode)
        self.slow = False
        self.is_to_look = False
        self.replies: deque[Any] = deque()
        self._master = master
        self._sent: deque[tuple[Ballot, bytes]] = deque()

    @property
    def sent(self) -> deque[tuple[Ballot, bytes]]:
        """Each with the digest of members that it names."""
        self._sent.extend(zip(self.out[::2], self.out[1::2], strict=True))
        self.out.clear()
        return self._sent

    @property
    def is_busy(self) -> bool:
        return bool(self.out or self._sent or self.replies)

    def _now_ns(self) -> int:
        return self._master.time.now_ns

    def come_up(self) -> None:
        """A new connection: first what the last one left unanswered, in its order, if it is worth it."""
        self.connects(self._now_ns())
        self._follow(introduction.introduce(self, 1, self._now_ns))
        self.probe()

    def look_again(self) -> None:
        """At what its master is, while they are connected."""
        self.is_to_look = False
        self._follow(introduction.beat(self, self._now_ns))

    def _follow(self, steps: introduction.Steps) -> None:
        """Each is answered at once."""
        with suppress(StopIteration):
            step = next(steps)
            while True:
                if isinstance(step, introduction.HearNotices):
                    self._master.notifies.append((HOST, self))
                step = steps.send(self._master.shows(step))

    def probe(self) -> None:
        self.probed(self._now_ns(), self._now_ns(), self._master.now_us)

    def break_off(self) -> None:
        """What was on its way is lost."""
        self._sent.clear()
        self.replies.clear()
        self._master.notifies = [one for one in self._master.notifies if one[1] is not self]
        self.broken("connection lost", self._now_ns())

    def hang_up(self) -> None:
        self.break_off()

    def look_closer(self) -> None:
        self.is_to_look = True

    def give_back_soon(self) -> None:
        self.give_back_more(self._now_ns())


class NoGap(ClockWatch):
    """Of a clock that is looked at all the time, also where a test lets time pass in one step."""

    def watched(self, now_ns: int) -> bool:
        return self.is_known


def clocks_without_gaps(number: int) -> Clocks:
    clocks = Clocks(number, max_ttl_ms=MAX_TTL_MS, allowance_ms=100)
    clocks.watches = [NoGap() for _ in range(number)]
    return clocks


class Asked(list[Ballot]):
    """core.fleet.Speller: all that was asked; it goes over the wire as it is."""

    def acquire(self, ballot: Any) -> Any:
        self.append(ballot)
        return ballot

    propose = extend = put_back = release = acquire


class Fleet(core_fleet.Fleet[Link]):
    """core's masters of one agent, all connected, and what a test does with their messages."""

    def __init__(self, time: Time, masters: list[Master], clocks: Clocks | None = None) -> None:
        self.time = time
        self.masters = masters
        self.asked = Asked()
        self.on_notice: Callable[[int, Notice, int], None] = lambda *_: None
        self.on_clocks_moved: Callable[[int], None] = lambda _now_ns: None
        clocks = clocks or clocks_without_gaps(len(masters))
        configured = Configured("test", tuple(master.name for master in masters))
        super().__init__(configured, clocks, self.asked, lambda i: Link(i, self, masters[i]))
        for link in self.links:
            link.come_up()

    def flush_soon(self) -> None:
        """What is asked is on its way when a test looks."""
        self.before_sending()

    def clocks_moved(self, now_ns: int) -> None:
        self.on_clocks_moved(now_ns)

    def probe_soon(self, link: Link) -> None:
        """A test says when."""

    def noticed(self, link: Link, notice: Notice, now_ns: int) -> None:
        self.on_notice(link.index, notice, now_ns)

    def arrive(self, master: int) -> None:
        """The oldest question on its way is run by the master; its answer is on its way back."""
        ballot, members_digest = self.links[master].sent.popleft()
        self.links[master].replies.append(self.masters[master].run(ballot, members_digest))

    def hear(self, master: int) -> None:
        """The oldest answer on its way reaches its ballot."""
        link = self.links[master]
        reply = link.replies.popleft()
        if isinstance(reply, Push):
            link.noticed(reply.notice, self.time.now_ns)
        elif isinstance(reply, ErrorReply):
            link.heard(reply.text, self.time.now_ns, is_error=True)
            return  # it looks at the master a while later
        else:
            link.heard(reply, self.time.now_ns)
        if link.is_to_look:
            link.look_again()

    def probe(self, *masters: int) -> None:
        """TIME is asked of these, or of all, and answered at once."""
        self.time.now_ns += MS // 5
        for master in masters or range(len(self.masters)):
            self.links[master].probe()

    def answer(self, master: int) -> None:
        """All that was asked of this master is run and heard, now."""
        link = self.links[master]
        for _ in range(_ENDLESS):
            if not link.is_busy:
                return
            if link.sent:
                self.arrive(master)
            if link.replies:
                self.hear(master)

    def settle(self) -> None:
        """Every master that isn't slow answers all there is, until nothing is left to answer."""
        for _ in range(_ENDLESS):
            busy = [m for m, k in enumerate(self.links) if not k.slow and k.is_busy]
            if not busy:
                return
            for master in busy:
                self.answer(master)
        raise AssertionError("question follows answer for ever, and no time passes")

    def break_off(self, master: int, *, arrived: int = 0) -> None:
        """The connection breaks; of what was on its way, the first `arrived` questions still arrive."""
        link = self.links[master]
        for _ in range(min(arrived, len(link.sent))):
            self.arrive(master)
        link.break_off()

    def fail_to_connect(self, master: int) -> None:
        """Votes are given up; releases are kept while they are worth it."""
        self.links[master].failed_to_connect("down", self.time.now_ns)


@dataclass(eq=False)
class App:
    """core.leases.Holder: an app behind a LOCK, and all that it was told, with the time of it."""

    time: Time
    resource: bytes = b"r"
    _: KW_ONLY
    ttl_ms: int = 10_000
    wait_ms: int | None = None
    max_hold_ms: int = 3_600_000
    lock_delay_ms: int = 0
    keep_ms: int = 0
    detached: bool = False
    value: bytes = b""
    named: bool = False
    label: str = "test"
    owner: bytes = HOST + b" 1 0"
    account: str = "an app"
    pid: int = 1
    started: int = 1
    bound: Bound = Bound.PROCESS
    notify: bool = False
    counted: bool = True
    lease: Lease | None = None
    refusal: Refusal | None = None
    answers: list[Lease | Refusal] = field(default_factory=list)
    answered_ns: int = 0
    renewals: list[int] = field(default_factory=list)
    losses: list[tuple[int, str]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.asked_ns = self.time.now_ns
        self.give_up_ns = None if self.wait_ms is None else self.asked_ns + self.wait_ms * MS

    @property
    def code(self) -> str:
        """The first word of the error it got, 'granted', or '' while it waits."""
        if self.refusal is not None:
            return self.refusal.code
        return "granted" if self.lease is not None else ""

    @property
    def held(self) -> Lease:
        assert self.lease is not None, f"not granted: {self.refusal}"
        return self.lease

    def granted(self, lease: Lease, now_ns: int) -> None:
        self.answers.append(lease)
        self.lease = lease
        self.answered_ns = now_ns

    def refused(self, refusal: Refusal) -> None:
        self.answers.append(refusal)
        self.refusal = refusal
        self.answered_ns = self.time.now_ns

    def renewed(self, lease: Lease) -> None:
        self.renewals.append(lease.deadline_ns)

    def lost(self, lease: Lease, reason: str) -> None:
        self.losses.append((self.time.now_ns, reason))

    def ended(self, lease: Lease) -> None:
        self.ends.append(self.time.now_ns)


def raised(failure: Exception) -> None:
    """Where no note of a journal may fail."""
    raise failure


class Answer:
    """core.values.Reply: what an UNLOCK or EXTEND was told."""

    def __init__(self) -> None:
        self.all: list[Extended | Refusal | None] = []

    def done(self, lease: Extended | None) -> None:
        self.all.append(lease)

    def refused(self, refusal: Refusal) -> None:
        self.all.append(refusal)

    @property
    def came(self) -> bool:
        assert len(self.all) <= 1, f"answered more than once: {self.all}"
        return bool(self.all)

    @property
    def _said(self) -> Extended | Refusal | None:
        assert self.came
        return self.all[0]

    @property
    def code(self) -> str:
        return self._said.code if isinstance(self._said, Refusal) else "done"

    @property
    def extended(self) -> Extended:
        assert isinstance(self._said, Extended), self._said
        return self._said

    @property
    def text(self) -> str:
        return str(self._said)


class Watched:
    """core.interfaces.Watcher: what metrics and logs are told."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def granted(self, lease: Lease, waited_ns: int) -> None:
        self.events.append(("granted", lease.token))

    def refused(self, label: str, refusal: Refusal, waited_ns: int) -> None:
        self.events.append(("refused", refusal.code))

    def lost(self, lease: Lease, reason: str) -> None:
        self.events.append(("lost", lease.token))

    def released(self, lease: Lease, why: str, now_ns: int) -> None:
        self.events.append(("released", why))

    def taken_over(self, lease: Lease) -> None:
        self.events.append(("taken over", lease.token))

    def renewed(self, lease: Lease, worked: bool) -> None:
        self.events.append(("renewed", worked))

    def fence_round(self) -> None:
        self.events.append(("fence round",))

    def tried_in_vain(self, label: str, code: ErrorWord) -> None:
        self.events.append(("tried in vain", code))

    def handed_on(self, lease: Lease) -> None:
        self.events.append(("handed on", lease.token))

    def turn_over(self, label: str, took_ns: int) -> None:
        self.events.append(("turn over", took_ns // MS))

    def asked_back(self, label: str, end: RecallEnd, took_ns: int) -> None:
        self.events.append(("asked back", end))

    def kept_no_more(self, label: str, why: KeptEnd, for_ns: int) -> None:
        self.events.append(("kept no more", why))

    def count(self, *event: object) -> int:
        return self.events.count(event)


def written_anew(ledger: Ledger) -> bytes:
    """The journal without what is over."""
    rewriting, parts = ledger.rewrite(), list[bytes]()
    while not rewriting.is_done:
        parts.append(rewriting.part())
    ledger.rewriting = None
    return b"".join(parts)


def fresh_token() -> bytes:
    return b"%032x" % next(_tokens)


class Host:
    """An agent on its host: its rules, its links, and the apps that talk to it."""

    def __init__(
        self,
        time: Time,
        masters: list[Master],
        clocks: Clocks | None = None,
        token: Callable[[], bytes] = fresh_token,
        **parameters: int,
    ) -> None:
        self.time = time
        self.fleet = Fleet(time, masters, clocks)
        self.watched = Watched()
        self.origin = Origin("boot", "pids", "times", "test", tuple(master.name for master in masters))
        self.written: list[bytes] = []
        """Its journal, record by record."""
        self.ledger = Ledger(self.origin, self.written.append, raised)
        self.written.append(written_anew(self.ledger))
        self.token = token
        chance = Chance(self._next_token)
        parameters_of_locks = RedlockParameters(masters=len(masters), **parameters)
        self.locks = Locks(parameters_of_locks, self.fleet, self.watched, chance, self.ledger)
        self.locks.wall_ahead_ns = WALL_AHEAD_NS
        self.fleet.on_clocks_moved = self.locks.clocks_moved
        self.fleet.on_notice = self.locks.noticed

    def _next_token(self) -> bytes:
        """Looked for each time: a test may have another."""
        return self.token()

    @property
    def journal(self) -> bytes:
        return b"".join(self.written)

    def next_agent(self, seen: Seen = Seen.ALIVE, journal: bytes | None = None) -> Successor:
        """This one dies: what it asked and nobody has run is lost. The next one takes over what it held."""
        for link in self.fleet.links:
            link.break_off()
        return Successor(self, seen, self.journal if journal is None else journal)

    def lock(self, resource: bytes = b"r", *, ready: bool = True, **wanted: Any) -> App:
        """An app asks; nothing is answered yet."""
        app = App(self.time, resource, **wanted)
        self.locks.lock(app, self.time.now_ns, ready=ready)
        return app

    def becomes_ready(self, app: App) -> None:
        """What this app gets could be told from now on, and all masters that aren't slow answer."""
        self.locks.can_be_told(app, self.time.now_ns)
        self.fleet.settle()

    def locked(self, resource: bytes = b"r", *, reads: bool = True, **wanted: Any) -> App:
        """An app asks, and all masters that aren't slow answer. reads: and it is known to have read that."""
        app = self.lock(resource, **wanted)
        self.fleet.settle()
        if reads and app.lease is not None:
            self.locks.told(app.lease, self.time.now_ns)
        return app

    def in_a_second_round(self, *voted: int, **wanted: Any) -> App:
        """An app has a vote of these masters, but they differ in the fence; none has answered the proposal
        yet."""
        for number, master in enumerate(self.fleet.masters):
            master.fences[slot_of(b"r")] = master.now_us + 1_000 * number
        self.slow()
        app = self.lock(**wanted)
        for number in voted or range(len(self.fleet.masters)):
            self.fleet.arrive(number)
            self.fleet.hear(number)
        assert len(self.asked(FenceRound)) == 1
        return app

    def unlock(self, app: App, token: bytes | None = None, uid: int | None = None) -> Answer:
        answer = Answer()
        self.locks.unlock(app.resource, token or app.held.token, answer, self.time.now_ns, uid=uid)
        return answer

    def extend(self, app: App, ttl_ms: int, token: bytes | None = None) -> Answer:
        answer = Answer()
        self.locks.extend(app.resource, token or app.held.token, ttl_ms, answer, self.time.now_ns)
        return answer

    def unlocked(self, app: App, token: bytes | None = None, uid: int | None = None) -> Answer:
        """An app gives back, here or where it was granted, and all masters that aren't slow answer."""
        answer = self.unlock(app, token, uid)
        self.fleet.settle()
        return answer

    def extended(self, app: App, ttl_ms: int, token: bytes | None = None) -> Answer:
        answer = self.extend(app, ttl_ms, token)
        self.fleet.settle()
        return answer

    def app_dies(self, app: App) -> None:
        if app.lease is None:
            self.locks.gone(app, self.time.now_ns)
        else:
            self.locks.holder_gone(app.lease, self.time.now_ns)

    def pass_ms(self, ms: float, *, answering: bool = True) -> None:
        """Time goes by: timers run exactly when due, and between them the masters that aren't slow answer."""
        until_ns = self.time.now_ns + int(ms * MS)
        while True:
            if answering:
                self.fleet.settle()
            next_ns = self.locks.turns.run(self.time.now_ns)
            if answering and any(not k.slow and k.is_busy for k in self.fleet.links):
                continue
            if next_ns is None or next_ns > until_ns:
                break
            self.time.now_ns = next_ns
        self.time.now_ns = until_ns
        self.locks.turns.run(until_ns)

    def pass_until(self, when_ns: int, *, answering: bool = True) -> None:
        self.pass_ms((when_ns - self.time.now_ns) / MS, answering=answering)

    def at_rest(self) -> bool:
        """Nothing held, nobody waiting, no queue and no timer left."""
        nothing_due = self.locks.turns.run(self.time.now_ns) is None
        return nothing_due and not self.locks.queues and self.locks.held == 0 and self.locks.waiting == 0

    def asked(self, kind: type[Ballot]) -> list[Any]:
        return [ballot for ballot in self.fleet.asked if isinstance(ballot, kind)]

    def drain(self) -> None:
        """It stops, and each that waited is told in its turn."""
        self.locks.drain(self.time.now_ns)
        self.locks.turns.run(self.time.now_ns)

    # Its masters: where none is named, all

    def slow(self, *masters: int) -> None:
        """These are asked, and answer nothing until the test says so."""
        for link in self._links(masters):
            link.slow = True

    def quick(self, *masters: int) -> None:
        for link in self._links(masters):
            link.slow = False

    def answer(self, *masters: int) -> None:
        """These answer what they were asked, also if they are slow."""
        for link in self._links(masters):
            self.fleet.answer(link.index)

    def answer_all(self) -> None:
        """All masters are quick again, and answer all there is, also what their answers lead to."""
        self.quick()
        self.fleet.settle()

    def break_off(self, *masters: int) -> None:
        for link in self._links(masters):
            link.break_off()

    def come_back(self, *masters: int) -> None:
        for link in self._links(masters):
            link.come_up()

    def demote(self, *masters: int, role: str = "slave") -> None:
        """Somebody made replicas of them, and the agent has looked: they have no vote (rule 14)."""
        for link in self._links(masters):
            self.fleet.masters[link.index].role = role
            link.look_again()

    def refuse(self, kind: type[Ballot], *masters: int) -> None:
        """These do nothing of that kind, by a right that their users lack; all others do it again."""
        refusing = self._links(masters) if masters else []
        for link, master in zip(self.fleet.links, self.fleet.masters, strict=True):
            master.errors.pop(kind, None)
            if link in refusing:
                master.errors[kind] = "NOPERM this user has no permissions to run this command"

    def renumber(self, name: str, *masters: int) -> None:
        """On these the next machine of this name is the member, and the agent has looked (rule 8)."""
        known = [of for link in self.fleet.links if (of := link.identity) is not None]
        newest = max(of.members.number_of(name) for of in known) + 1
        for link in self._links(masters):
            members = known[link.index].members.with_number(name, newest)
            store = self.fleet.masters[link.index].store
            store.set_identity(known[link.index].with_members(members).fields)
            link.look_again()

    def forget(self, *masters: int) -> None:
        for link in self._links(masters):
            self.fleet.masters[link.index].forget(b"r")

    def sent_to(self, master: int) -> list[str]:
        """What is on its way."""
        return [type(ballot).__name__ for ballot, _ in self.fleet.links[master].sent]

    def shown(self, resource: bytes = b"r") -> list[bytes | None]:
        """Which nonce each master shows for a resource."""
        return [master.holder_of(resource) for master in self.fleet.masters]

    def _links(self, masters: tuple[int, ...]) -> list[Link]:
        return [self.fleet.links[master] for master in masters or range(len(self.fleet.links))]


def _started(seen: Seen) -> int | None:
    """When the process of an `App` began."""
    if seen is Seen.UNKNOWN:
        raise CannotTell
    return 1 if seen is Seen.ALIVE else None


class Successor(Host):
    """The agent that was started next on that host. taken: how many leases it did what with; heirs: who is
    told of those that it holds."""

    def __init__(self, before: Host, seen: Seen, journal: bytes) -> None:
        super().__init__(before.time, before.fleet.masters)
        self.heirs: list[App] = []
        self.takes_over(journal, seen)

    def takes_over(self, journal: bytes, seen: Seen = Seen.ALIVE) -> None:
        """What is in this journal: late, where another agent has had it until now."""
        replayed = replay(journal, self.origin)
        self.taken = take_over(self.locks, replayed, lambda _: _started(seen), self._heir, self.time.now_ns)

    def _heir(self, held: Held) -> App:
        app = App(
            self.time, held.resource, ttl_ms=held.now.ttl_ms, max_hold_ms=held.max_hold_ms,
            lock_delay_ms=held.lock_delay_ms, value=held.token, label=held.label, owner=held.owner,
            pid=held.pid, started=held.started, bound=held.bound, notify=held.notify, named=True,
        )  # fmt: skip
        self.heirs.append(app)
        return app

    @property
    def heir(self) -> App:
        [app] = self.heirs
        return app

    @property
    def did(self) -> Taken:
        [did] = self.taken
        return did

    @property
    def lease(self) -> Lease:
        [queue] = self.locks.queues.values()
        assert queue.lease is not None
        return queue.lease


def cluster(masters: int = 5, **parameters: Any) -> Host:
    """One agent over as many masters, and virtual time of their own."""
    time = Time()
    return Host(time, masters_of(time, masters), **parameters)


def beside(host: Host, **parameters: Any) -> Host:
    """An agent on another host, over the same masters."""
    return Host(host.time, host.fleet.masters, **parameters)


def break_tries_for(resource: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours where it is found out what a try for this came to."""
    tried = Campaigns._tried

    def raising(self: Campaigns, attempt: Attempt, now_ns: int) -> None:
        if attempt.resource == resource:
            raise ZeroDivisionError("a mistake of ours")
        tried(self, attempt, now_ns)

    monkeypatch.setattr(Campaigns, "_tried", raising)
