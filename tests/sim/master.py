"""A master's host: its clocks, its disk, the guard, and the Redis process behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.ballot import PUT_BACK, YES
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.put_back import PutBack
from lockd.core.ballots.release import How, Release
from lockd.core.fences import COUNTER_AHEAD_US, SANE_MOST
from lockd.core.identities import Identity
from lockd.core.membership import REQUIRED_SETTINGS, Copying, MasterFacts
from lockd.core.plain_values import is_plain
from lockd.core.validity import settle_ns
from tests.harness.clocks import MS
from tests.harness.history import GivenBack, Landed, Prolonged, Removed
from tests.harness.script_model import Store, own_of
from tests.sim.network import Connection
from tests.sim.world import Clock, Process, World

HANG_UP = "hang up"
LOST = "connection lost"
ERROR = "MISCONF its disk is full"


@dataclass(frozen=True, slots=True)
class Guarding:
    """How masters are looked after. steps_seen_after_ms: how soon the guard acts on a clock step; None: it
    doesn't watch the clock. synced_ms: what a crash loses of the last writes (0: an honest disk, and every
    answer waits for it)."""

    max_ttl_ms: int
    enabled: bool = True
    steps_seen_after_ms: int | None = 20
    synced_ms: int = 0


class Master(Process):
    """One Redis behind its guard. What it stores survives it, as far as the disk is honest."""

    def __init__(self, world: World, index: int, clock: Clock, guarding: Guarding, machine: int = 1) -> None:
        """machine: how many there were of that name before, and one."""
        super().__init__(world, f"m{index + 1}")
        self.index = index
        self.machine = machine
        self.promoted = False
        self.clock = clock
        self.store = Store()
        self.refusing = False
        self.babbling = False
        self.notices = 0.0
        """How likely one is lost, and late, and said twice, and made up."""
        self.stepped_back = False
        self.stepped_ns = -(1 << 60)
        self.quarantined = False
        self._guarding = guarding
        self.guard_max_ttl_ms = self._longest_ttl_ms = guarding.max_ttl_ms
        """What the guard is told, and the largest that leases from before a crash may have had."""
        self._host_up = True
        self._clean = True
        self._foreign = False
        self._connections: dict[int, Connection] = {}
        self._numbers = 0
        self._boots = 0
        self._synced = self.store.snapshot()
        if guarding.synced_ms:
            self._sync()

    @property
    def shown(self) -> str:
        """Which machine an event is from, in histories: one that took another's place is another."""
        return self.name if self.machine == 1 else f"{self.name}.{self.machine}"

    @property
    def run_id(self) -> str:
        return f"{self.name} {self.machine} {self.life}"

    def now_us(self) -> int:
        return self.clock.wall_ns() // 1000

    # The network

    def hear(self, connection: Connection, message: Any) -> None:
        if not self.running:
            if self._host_up and connection.agent_listens:
                connection.reply(LOST)
            return
        self.take(connection, self._handle, connection, message)

    def _handle(self, connection: Connection, message: Any) -> None:
        if not connection.master_listens:
            return
        kind = message[0]
        if kind == "connect":
            self._numbers += 1
            connection.number = self._numbers
            self._connections[connection.number] = connection
        elif kind == HANG_UP:
            self._close(connection)
            return
        elif kind == "subscribe":
            connection.hears = message[2]
        answer = self._answer(connection.host, kind, *message[1:])
        connection.reply((kind, message[1], answer, self.world.now_ns))

    def _answer(self, host: str, kind: str, question: Any, *more: Any) -> Any:
        if kind == "ballot":
            answer = self._run(question, host, *more)
            self._give_notice()
            return answer
        if kind == "connect":
            return self._numbers
        if kind == "facts":
            return self._facts()
        if kind == "subscribe":
            return None
        if kind == "kill":
            return self._kill(more[0])
        if kind == "field":
            return self.store.identity.get(more[0])
        if kind in ("copied", "identify") and self.refusing:
            return ERROR
        if kind == "copied":
            self.store.copied = True
            return None
        if kind == "time":
            return self.now_us(), self.store.electorate
        if kind == "counter":
            return self.now_us(), self.store.counters.get(more[0], 0)
        if kind == "counters":
            return dict(self.store.counters)
        assert kind == "identify", kind
        return self.store.identify(*more)

    def _kill(self, number: int) -> None:
        old = self._connections.get(number)
        if old is not None:
            self._close(old)

    # Notices

    def _give_notice(self) -> None:
        published, self.store.published = self.store.published, []
        if not self.notices:
            for host, notice in published:
                self._tell(host, notice)
            return
        for host, notice in published:
            for _ in range(self._how_often()):
                late_ns = int(self.dice.uniform(0, 3_000) * MS) if self.dice.random() < self.notices else 0
                self.world.after(late_ns, self._tell, host, notice)
        if published and self.dice.random() < self.notices:
            self._tell(*self._lie(published))

    def _how_often(self) -> int:
        luck = self.dice.random()
        return 0 if luck < self.notices else 2 if luck < 2 * self.notices else 1

    def _lie(self, published: list[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
        """Of the right form."""
        host, notice = self.dice.choice(published)
        _, _, rest = notice.partition(b" ")
        word, _, rest = rest.partition(b" ")
        resource = rest.rpartition(b" ")[2]
        key = self.store.lease(resource, self.now_us())
        nonce = word if key is None or key.host is None else key.nonce
        if key is not None and key.host is not None and self.dice.random() < 0.5:
            host = key.host
        wait_ms = self.dice.choice((0, 0, 5, 250))
        lies = [
            b"recall %b %b" % (nonce, resource), b"gone %b %b" % (nonce, resource),
            b"turn %b %d %b" % (word, wait_ms, resource), b"held %b %b" % (word, resource),
        ]  # fmt: skip
        if key is not None and key.host is not None and is_plain(key.fields()[3]):
            lies.append(b"released %b %b" % (nonce, resource))
        return host, self.dice.choice(lies)

    def _tell(self, host: bytes, notice: bytes) -> None:
        for connection in self._connections.values():
            if connection.hears == host and connection.agent_listens:
                connection.reply(("notice", notice))

    def _close(self, connection: Connection) -> None:
        connection.master_listens = False
        self._connections.pop(connection.number, None)

    # The scripts

    def _run(self, ballot: Any, host: str, electorate: bytes) -> Any:
        """What its script answers; of one that babbles, at times something that no script does."""
        answer = self._run_script(ballot, host, electorate)
        if not self.babbling or answer == ERROR or self.dice.random() < 0.5:
            return answer
        return self._nonsense(ballot, answer)

    def _nonsense(self, ballot: Any, answer: Any) -> Any:
        """Never a false 'yes' or 'no' that could be true: no agent could tell."""
        if isinstance(ballot, Release):
            return self.dice.choice((None, 2, -1, [1]))
        status, value, now_us = answer[:3]
        spoilt: list[Any] = [
            [*answer, answer[-1]], [0, 5, now_us, b"not a nonce"],
            [status, None, now_us], [None, value, now_us], [77, value, now_us], [status, value, -now_us],
            [status, value, 1 << 80], [0, -5, now_us], [0, 1 << 62, now_us], None, [],
        ]  # fmt: skip
        if isinstance(ballot, Attempt):
            spoilt += [[1, now_us + 2 * COUNTER_AHEAD_US, now_us], [1, SANE_MOST, now_us], [1, -1, now_us]]
        return self.dice.choice(spoilt)

    def _run_script(self, ballot: Any, host: str, electorate: bytes) -> Any:
        if self.refusing:
            return ERROR
        now_us = self.now_us()
        if isinstance(ballot, Release):
            return self._release(ballot, host, now_us)
        status, value, *holder_nonce = self.store.vote(ballot, electorate, now_us)
        if isinstance(ballot, Attempt) and status == YES:
            self.world.note(Landed(self.world.now_ns, self.shown, ballot.nonce, host))
        elif isinstance(ballot, PutBack) and status == PUT_BACK:
            self.world.note(Landed(self.world.now_ns, self.shown, ballot.nonce, host, put_back=True))
        elif isinstance(ballot, Extension) and status == YES:
            key = self.store.lease(ballot.resource, now_us)
            assert key is not None
            self.world.note(Prolonged(self.world.now_ns, self.shown, key.nonce, host))
        return [status, value, now_us, *holder_nonce]

    def _release(self, release: Release, host: str, now_us: int) -> int:
        key = self.store.lease(release.resource, now_us)
        self.world.note(GivenBack(self.world.now_ns, self.shown, release.word, host))
        gone = self.store.release(
            release.resource,
            release.word,
            now_us,
            how=release.how.value,
            before=release.before,
            own=own_of(release),
        )
        if gone and key is not None and key.reserved is None:
            word = release.word if release.how is How.BY_APP else b""
            self.world.note(Removed(self.world.now_ns, self.shown, key.nonce, word, host))
        return gone

    def _facts(self) -> MasterFacts:
        store = self.store
        identity = Identity.parse(store.identity)
        copying = Copying(was_replica=self.promoted, known=store.copied)
        keys = len(store.leases) + len(store.lines) + bool(store.counters) + bool(store.identity)
        return MasterFacts(self.run_id, "sim", "master", keys, identity, REQUIRED_SETTINGS, copying=copying)

    # Life and death

    def disk_is_in_sync(self) -> None:
        self._synced = self.store.snapshot()

    def _sync(self) -> None:
        """A disk that is behind: what a crash leaves is the state of a moment ago."""
        self.disk_is_in_sync()
        self.wake_after(self._guarding.synced_ms * MS, self._sync)

    def crash(
        self, *, power: bool = False, wiped: bool = False, restored: Store | None = None
    ) -> Callable[[], None]:
        """The process dies at once. power: the whole host, so that nobody is told. wiped: its data too.
        restored: somebody puts an older copy in its place, or its files were shortened to that. Returns what
        starts it again."""
        if wiped:
            self.store = Store()
        elif restored is not None:
            self.store, self._foreign = restored.snapshot(), True
        elif self._guarding.synced_ms and self.running:
            self.store = self._synced.snapshot()
        self._go_down(clean=False, told=not power)
        self._host_up = not power
        return partial(self._boot, self._boots)

    def stop(self) -> Callable[[], None]:
        """SIGTERM: all is written, and the guard leaves its marker. Returns what starts it again."""
        clean = self.running and not self.quarantined
        self._go_down(clean=clean, told=True)
        return partial(self._boot, self._boots)

    def _go_down(self, *, clean: bool, told: bool) -> None:
        self._clean = clean
        self.quarantined = self.promoted = False
        connections, self._connections = self._connections, {}
        self._numbers = 0
        for connection in connections.values():
            connection.master_listens = False
            if told and connection.agent_listens:
                connection.reply(LOST)
        self.die()
        self._boots += 1

    def _boot(self, boot: int) -> None:
        """The host is up, and the guard decides when Redis starts (rule 10)."""
        if boot != self._boots:
            return
        if self.host_stands_still:
            self.world.after(MS, self._boot, boot)
            return
        self._host_up = True
        if self._foreign and self._guarding.enabled:
            # Its mark does not fit: that is moved aside, and it comes up blank (rule 10).
            self.store = Store()
        self._foreign = False
        if self._clean or not self._guarding.enabled:
            self._serve(boot)
            return
        self.quarantined = True
        self._longest_ttl_ms = max(self._longest_ttl_ms, self.guard_max_ttl_ms)
        ends_ns = self.clock.boot_ns() + settle_ns(self._longest_ttl_ms)
        self._sit_out(boot, ends_ns)

    def _sit_out(self, boot: int, ends_ns: int) -> None:
        """By its own clock, which may stand still meanwhile."""
        if boot != self._boots:
            return
        if self.host_stands_still:
            self.world.after(MS, self._sit_out, boot, ends_ns)
        elif (then_ns := self.clock.true_ns(ends_ns)) > self.world.now_ns:
            self.world.at(then_ns, self._sit_out, boot, ends_ns)
        else:
            self._longest_ttl_ms = self.guard_max_ttl_ms
            self._serve(boot)

    def _serve(self, boot: int) -> None:
        if boot != self._boots:
            return
        self.quarantined = False
        self.running = True
        if self._guarding.synced_ms:
            self._sync()

    def step_clock(self, by_ns: int) -> None:
        """Somebody sets the wall clock. On a step forward the guard restarts the master into quarantine
        (rule 11b)."""
        self.clock.wall_off_ns += by_ns
        self.stepped_ns = self.world.now_ns
        self.stepped_back = self.stepped_back or by_ns < 0
        seen_after_ms = self._guarding.steps_seen_after_ms
        if by_ns > 0 and seen_after_ms is not None and self._guarding.enabled:
            self.world.after(seen_after_ms * MS, self._guard_acts, self._boots)

    def _guard_acts(self, boot: int) -> None:
        if self.host_stands_still:
            self.world.after(MS, self._guard_acts, boot)
        elif boot == self._boots:
            self.crash()()

    def stand_still(self) -> None:
        """Its virtual machine is paused, and its clocks with it: it keeps leases for as much longer."""
        self.clock.stop()
        self.stepped_back = True
        self.host_stops()

    def go_on(self, *, set_right: bool) -> None:
        """set_right: time synchronisation puts the wall clock where it ought to be, which the guard sees."""
        stood_ns = self.clock.go_on()
        if set_right:
            self.step_clock(stood_ns)
        self.host_goes_on()
