"""An agent on its host: the real rules of lockd/core over simulated links, and the apps that talk to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from lockd.core.ballots.release import How, Release
from lockd.core.errors import ErrorWord
from lockd.core.fleet import WEIGH_NS
from lockd.core.journal import Held, Origin, Replayed, Unreadable, replay
from lockd.core.leases import Holder, Lease
from lockd.core.locks import Locks
from lockd.core.queues import KeptEnd
from lockd.core.slewing import Reading
from lockd.core.takeover import CannotTell, take_over
from lockd.core.tenures.places import RecallEnd
from lockd.core.turns import Turns
from lockd.core.values import Bound, Chance, RedlockParameters, Refusal
from tests.harness.clocks import MS
from tests.harness.history import Began, Died, InStep, Knows, Read, Slewed, TakenOver
from tests.sim.fleet import CLUSTER, Fleet
from tests.sim.journal import Journal, Killed
from tests.sim.link import Link, Owner
from tests.sim.master import HANG_UP, Master
from tests.sim.network import Connection, Path
from tests.sim.sockets import AppProcess, Line, Sessions
from tests.sim.world import Clock, World

CERTAIN_NS = 100 * MS
QUICK_NS = 20 * MS
STEPPED_LATELY_NS = 20_000 * MS
_LOOKS_EVERY = 5
_FIRST_LOOK_NS = 1_000 * MS
_SLEWING_SEEN_NS = 11_000 * MS
"""What is slewed beyond the limit for so long is known: see lockd/core/slewing.py."""


def name_of(lease: Lease) -> bytes:
    """In histories, of this lease alone: its token may be its app's own, for all of its leases."""
    return lease.nonce if lease.holder.detached else b"%b %d" % (lease.nonce, lease.fence)


class App(AppProcess, Protocol):
    """What an agent has for an app."""

    def heir(self, held: Held) -> Holder:
        """Who is told of a lease that was taken over."""

    def agent_is_back(self) -> None: ...

    def is_looked_at(self, held: Held) -> None:
        """Whether it is alive, for that lease in the journal."""


class Agent(Owner):
    """One `lockd serve`. A crash forgets all it knew; a start begins with what its journal says."""

    def __init__(
        self,
        world: World,
        index: int,
        clock: Clock,
        masters: list[Master],
        paths: list[tuple[Path, Path]],
        max_ttl_ms: int,
    ) -> None:
        super().__init__(world, f"agent{index + 1}")
        self.clock = clock
        self.known_as = self.name.encode()
        self.boot_ns = clock.boot_ns
        self.outbox: list[tuple[Connection, Any]] = []
        """Connections that are given up; what is asked lies at the links."""
        self.has_to_say = False
        self.freeze_before_ns = 0
        """When set, the process is stopped for so long before what it says next goes out."""
        self.freeze_after_ns = 0
        """When set, it is stopped after it has asked for votes, and finds the answers when it goes on."""
        self.resumed_ns = 0
        self.paths = paths
        self.machines = list(masters)
        """What answers in each entry. An operator may have put another machine there."""
        self.listed = range(len(masters))
        """Of the masters, by the configuration of this agent."""
        self.max_ttl_ms = max_ttl_ms
        """By its configuration, from its next start on."""
        self._slewed_since_ns: int | None = None
        self.journal = Journal()
        self.processes: dict[int, App] = {}
        """By pid: they go on when it dies."""
        self.sees_processes = True
        self.trusts = True
        self.on_kill: Callable[[], None] = self.crash
        self._stood: list[tuple[int, int]] = []
        """When this host began to stand still, and for how long: under whatever agent."""
        self.lag_ns: Callable[[], int] = lambda: 0
        """For how long what an app leaves behind waits for its turn to end."""
        self.start()

    def start(self) -> None:
        self.running = True
        self.host = f"{self.name}.{self.life}"
        """Which agent a message is from, in histories: one that was started anew is another."""
        listed = [self.machines[i] for i in self.listed]
        self.fleet = Fleet(self, listed, [self.paths[i] for i in self.listed], self.max_ttl_ms)
        chance = Chance(self._token, self.dice.random)
        self._origin = Origin("boot", "pids", "times", CLUSTER, tuple(master.name for master in listed))
        self.journal.dies = None
        self._replayed = self._read_journal()
        ledger = self.journal.begin(self._origin)
        turns = self.takes_turns()
        self.locks = Locks(RedlockParameters(len(listed)), self.fleet, _Unwatched(), chance, ledger, turns)
        self.sessions = Sessions(self)
        self._at_the_door: list[tuple[Line, Callable[..., None], tuple[Any, ...]]] | None = []
        """What apps say before it lets them in; None: it has."""
        self.locks.wall_ahead_ns = self.clock.wall_ahead_ns()
        self._beats = 0
        self._started_ns = self.boot_ns()
        self._ought_to_know = False
        self.unseen_ns = 0
        """For how long its host stood still, as far as nothing at all can be known of that here."""
        self._knows_from: set[int] | None = None
        self._stood_ns = self._stop_ended_ns = self._stop_began_ns = 0
        for link in self.fleet.links:
            self.wake_after(int(self.dice.uniform(0, 5) * MS), link.connect)
        self.wake_after(WEIGH_NS, self._beat)
        self.wake_after(_FIRST_LOOK_NS, self.let_in)
        self.changes: object = None
        """What carries out what it does for an operator."""

    def takes_turns(self) -> Turns:
        """In which its timers ring: work takes no time here."""
        turns = Turns()
        turns.sooner = self._set_alarm
        self._alarm_ns: int | None = None
        return turns

    def _read_journal(self) -> Replayed:
        try:
            journal = self.journal
            replayed = replay(journal.data, self._origin, is_last=journal.seal.fits(journal.data))
        except Unreadable:
            replayed = Replayed()
            self.trusts = self.trusts and not self.journal.data
        return replayed

    def looked_at_all(self) -> None:
        self.wake_after(0, self.let_in)

    @property
    def lets_in(self) -> bool:
        """What the agent before held is taken over."""
        return self._at_the_door is None

    def let_in(self) -> None:
        """The first look at the masters is over, or has taken long enough."""
        if self._at_the_door is None:
            return
        door, self._at_the_door = self._at_the_door, None
        self.resumed_ns = self.world.now_ns
        take_over(self.locks, self._replayed, self._started_of, self._heir, self.boot_ns())
        self.journal.write_anew()
        for queue in self.locks.queues.values():
            lease = queue.lease
            inherited = None if lease is None else lease.inherited
            if lease is not None and inherited is not None and inherited.goes_on:
                self.world.note(TakenOver(self.world.now_ns, inherited.before[0], lease.nonce, self.host))
            if lease is not None and lease.holder.bound is Bound.PROCESS:
                self.sessions.inherits(lease)
        self.world.note(Began(self.world.now_ns, self.host, self.trusts and not self._replayed.trouble))
        self.sees_processes = self.trusts = True
        for source, do, what in door:
            self.take(source, do, *what)
        for process in self.processes.values():
            process.agent_is_back()

    def _started_of(self, held: Held) -> int | None:
        if not self.sees_processes:
            raise CannotTell
        process = self.processes[held.pid]
        process.is_looked_at(held)
        return process.life if process.running else None

    def _heir(self, held: Held) -> Holder:
        return self.processes[held.pid].heir(held)

    def told(self, lease: Lease) -> None:
        """Its app is known to have read of it."""
        self.locks.told(lease, self.boot_ns())
        self.world.note(Read(self.world.now_ns, name_of(lease), self.host))

    def take(self, source: object, do: Callable[..., None], *what: Any) -> None:
        if self._at_the_door is not None and self.running and isinstance(source, Line):
            self._at_the_door.append((source, do, what))
            return
        try:
            super().take(source, do, *what)
        except Killed:
            self.on_kill()

    def _token(self) -> bytes:
        """128 bits of the system's randomness; here they come from the seed."""
        return b"%032x" % self.dice.getrandbits(128)

    def machine(self, entry: int) -> Master:
        return self.machines[self.listed[entry]]

    def link_to(self, master: int) -> Link | None:
        """None where it isn't configured."""
        return self.fleet.links[self.listed.index(master)] if master in self.listed else None

    # Time

    def _set_alarm(self, when_ns: int) -> None:
        if self._alarm_ns is None or when_ns < self._alarm_ns:
            self._alarm_ns = when_ns
            self.wake_at(self.clock.true_ns(when_ns), self._ring, when_ns)

    def _ring(self, alarm_ns: int) -> None:
        if alarm_ns != self._alarm_ns:
            return
        self._alarm_ns = None
        next_ns = self.locks.turns.run(self.boot_ns())
        if next_ns is not None:
            self._set_alarm(next_ns)

    def _beat(self) -> None:
        self._beats += 1
        self.journal.keep_short()
        if self._beats % (5 * _LOOKS_EVERY) == 0:
            self.journal.remember()
        if self._beats % _LOOKS_EVERY == 0:
            self._look_at_own_clock()
        self.fleet.weigh(self.boot_ns())
        self.locks.wall_ahead_ns = self.clock.wall_ahead_ns()
        self.wake_after(WEIGH_NS, self._beat)

    def _look_at_own_clock(self) -> None:
        slewed_ns, raw_ns = self.clock.slewed_by_now_ns()
        self.fleet.look_at_own_clock(Reading(slewed_ns, slewed_ns, raw_ns), self.boot_ns())
        if self._slewed_since_ns is not None and not self._ought_to_know:
            for_ns = self.boot_ns() - max(self._slewed_since_ns, self._started_ns)
            if for_ns >= _SLEWING_SEEN_NS:
                self._ought_to_know = True
                self.world.note(Slewed(self.world.now_ns, self.host))

    @property
    def is_slewed(self) -> bool:
        return self._slewed_since_ns is not None

    def slew(self, ppm: int) -> None:
        """Its host's clock is slewed from now on, or, with 0, not any more."""
        self.clock.slew(ppm)
        self._slewed_since_ns = self.boot_ns() if ppm else None
        if self._ought_to_know:
            self._ought_to_know = False
            self.world.note(InStep(self.world.now_ns, self.host))
        self.take(None, self._set_alarm_anew)

    def _set_alarm_anew(self) -> None:
        if self._alarm_ns is not None:
            when_ns, self._alarm_ns = self._alarm_ns, None
            self._set_alarm(when_ns)

    # Its process

    def turn_ends(self) -> None:
        if (self.has_to_say or self.outbox) and not self.still:
            if self.freeze_before_ns:
                freeze_ns, self.freeze_before_ns = self.freeze_before_ns, 0
                self._freeze(freeze_ns)
            else:
                self._flush()

    def _flush(self) -> None:
        outbox, self.outbox, self.has_to_say = self.outbox, [], False
        self.fleet.before_sending()
        for link in self.fleet.links:
            outbox += link.sent()
        votes = False
        for connection, message in outbox:
            connection.send(message)
            votes = votes or (message[0] == "ballot" and not isinstance(message[1], Release))
        if votes and self.freeze_after_ns:
            freeze_ns, self.freeze_after_ns = self.freeze_after_ns, 0
            self._freeze(freeze_ns)

    def _freeze(self, for_ns: int) -> None:
        self.pause()
        self.world.after(for_ns, self._thaw, self.life)

    def _thaw(self, life: int) -> None:
        if life == self.life:
            self.resume()

    def resumed(self) -> None:
        self.resumed_ns = self.world.now_ns
        # First what it was about to say when it was stopped.
        try:
            self._flush()
        except Killed:
            self.on_kill()

    # What it can know of a standstill of its host

    def unseen_since_ns(self, t1_ns: int) -> int:
        """By how much what was asked for then seems to last longer than it does, and nobody can know."""
        return self.unseen_ns if t1_ns < self._stop_began_ns else 0

    def stood_since_ns(self, said_ns: int) -> int:
        """By how much what was said then, in true time, and is read only now, seems to last longer than it
        does: nobody who read it before this host stood still could know."""
        return sum(for_ns for began_ns, for_ns in self._stood if said_ns <= began_ns)

    def stood_still(self, for_ns: int) -> None:
        self.unseen_ns += for_ns
        self._stood.append((self.world.now_ns - for_ns, for_ns))
        self._stood_ns = for_ns
        self._knows_from = set()
        self._stop_ended_ns = self.world.now_ns
        self._stop_began_ns = self.boot_ns()

    def heard(self, index: int, read_ns: int) -> None:
        """If that came quickly, and the master was watched before, it shows for how long this host stood
        still."""
        master, now_ns = self.machine(index), self.world.now_ns
        if self._knows_from is None or read_ns < self._stop_ended_ns:
            return
        vague = self._stood_ns < CERTAIN_NS or now_ns - read_ns > QUICK_NS
        if vague or now_ns - master.stepped_ns < STEPPED_LATELY_NS or not self._watched_before(index, master):
            return
        self.unseen_ns = 0
        self._knows_from.add(master.index)
        if len(self._knows_from) > len(self.listed) // 2:
            self._knows_from = None
            self.world.note(Knows(now_ns, self.name))

    def _watched_before(self, index: int, master: Master) -> bool:
        assert self._knows_from is not None
        if master.index in self._knows_from:
            return True
        return self.fleet.clocks.distrust(index, self.boot_ns()) is None

    def crash(self) -> None:
        """kill -9: the kernel closes its connections; what was sent before may still arrive."""
        self.die()
        self.world.note(Died(self.world.now_ns, self.host))
        self.outbox.clear()
        self.has_to_say = False
        for link in self.fleet.links:
            if link.connection is not None:
                link.connection.agent_listens = False
                link.connection.send((HANG_UP, None))

    def force_release(self, resource: bytes, nonces: dict[bytes, None]) -> None:
        """As an operator on this host has it done: here first, and then on every master."""
        now_ns = self.boot_ns()
        self.locks.take_away(resource, nonces.keys(), "released by force", now_ns)
        for nonce in nonces:
            release = Release(
                resource, nonce, quorum=1, t1_ns=now_ns, until_ns=now_ns, settled=lambda *_: None,
                how=How.FORCED,
            )  # fmt: skip
            release.put_to(self.fleet.release(release, (1 << len(self.listed)) - 1))

    def drain(self) -> None:
        """SIGTERM, its first half: nothing more is granted."""
        self.take(self, lambda: self.locks.drain(self.boot_ns()))


class _Unwatched:
    """core.interfaces.Watcher, with nobody watching."""

    def granted(self, lease: Lease, waited_ns: int) -> None: ...

    def refused(self, label: str, refusal: Refusal, waited_ns: int) -> None: ...

    def lost(self, lease: Lease, reason: str) -> None: ...

    def released(self, lease: Lease, why: str, now_ns: int) -> None: ...

    def taken_over(self, lease: Lease) -> None: ...

    def renewed(self, lease: Lease, worked: bool) -> None: ...

    def fence_round(self) -> None: ...

    def tried_in_vain(self, label: str, code: ErrorWord) -> None: ...

    def handed_on(self, lease: Lease) -> None: ...

    def turn_over(self, label: str, took_ns: int) -> None: ...

    def asked_back(self, label: str, end: RecallEnd, took_ns: int) -> None: ...

    def kept_no_more(self, label: str, why: KeptEnd, for_ns: int) -> None: ...
