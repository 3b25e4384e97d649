"""Carries what a link (lockd/core/link.py) and its master say to each other, on virtual time: what
lockd/masters/link.py does with bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from lockd.core import introduction, link
from lockd.core.answers import Nonsense
from lockd.core.fleet import Fleet
from lockd.core.locks import Locks
from tests.harness.clocks import MS
from tests.sim.master import ERROR, HANG_UP, LOST, Master
from tests.sim.network import Connection, Path
from tests.sim.world import Process

PATIENCE = link.Patience(timeout_ns=250 * MS, dead_ns=2_000 * MS)
CONNECT_NS = 1_000 * MS
TURN_NS = 1 * MS
"""Of a busy event loop: what comes within it may be read in one chunk."""


class Owner(Process):
    """An agent, as its links see it."""

    host: str
    known_as: bytes
    """The host's name, by which masters give notice to the agents on it."""
    locks: Locks
    boot_ns: Callable[[], int]
    outbox: list[tuple[Connection, Any]]
    has_to_say: bool

    def machine(self, entry: int) -> Master:
        """What a new connection to that entry of the configuration reaches."""
        raise NotImplementedError

    def looked_at_all(self) -> None:
        """The first look at the masters is over."""
        raise NotImplementedError

    def heard(self, index: int, read_ns: int) -> None:
        """That master has said what its clock showed at `read_ns`."""
        raise NotImplementedError

    def asks_for_a_vote(self) -> None:
        """One master: that is work."""


class Call:
    """core.link.Call: a question of the agent's own, and what to do with the answer."""

    def __init__(self, heard: Callable[[Any], None], failed: Callable[[str], None]) -> None:
        self.take = heard
        self.fail = failed


def _asked_again(why: str) -> None:
    """The connection broke: whoever asked asks again on the next one."""


def _nothing_more() -> None:
    """Nobody waits for this."""


class Link(link.Link):
    """The link to one master. Its questions are ballots, and the words of calls."""

    def __init__(self, agent: Owner, fleet: Fleet[Any], index: int, there: Path, back: Path) -> None:
        super().__init__(index, fleet, fleet.clocks.watches[index], PATIENCE, str.encode)
        self.connection: Connection | None = None
        self._agent = agent
        self._there = there
        self._back = back
        self._looking = False
        self._looking_closer = False
        self._looked_ns = 0
        self._beats = 0

    # core.link: what it wants done

    def hang_up(self) -> None:
        """What lies in the connection may still reach the master, whenever that is. That it is closed is
        heard of in a later turn."""
        if self.connection is not None:
            self._agent.outbox.append((self.connection, (HANG_UP, None)))
            self._agent.wake_after(TURN_NS, self._lost, self.connection)

    def look_closer(self) -> None:
        if not self._looking_closer:
            self._looking_closer = True
            rest_ns = max(0, self._looked_ns + link.LOOK_AGAIN_NS - self._agent.boot_ns())
            self._agent.wake_after(rest_ns, self._look_closer, self.connection)

    def _look_closer(self, connection: Connection) -> None:
        self._looking_closer = False
        if connection is self.connection and self.introduced:
            self._looked_ns = self._agent.boot_ns()
            self.inspect_soon()

    def put_vote(self, question: link.Question) -> None:
        self._agent.asks_for_a_vote()
        super().put_vote(question)

    def give_back_soon(self) -> None:
        self._agent.wake_after(0, lambda: self.give_back_more(self._agent.boot_ns()))

    # Asking

    def call(
        self,
        kind: str,
        heard: Callable[[Any], None],
        *more: Any,
        failed: Callable[[str], None] = _asked_again,
    ) -> None:
        if self.connection is None:
            failed("not connected")
        else:
            self.ask((Call(heard, failed), (kind, None, *more), self._agent.boot_ns()))

    def sent(self) -> Iterator[tuple[Connection, tuple[Any, ...]]]:
        """What goes out at the end of a turn."""
        if self.out and self.connection is not None and not self.is_dropped:
            if not self._looking:
                self._looking = True
                self._agent.wake_after(PATIENCE.timeout_ns + link.LOOK_NS // 2, self._look)
            for question, electorate in zip(self.out[::2], self.out[1::2], strict=True):
                call = isinstance(question, tuple)
                yield self.connection, question if call else ("ballot", question, electorate)
        self.out.clear()

    # Hearing

    def _arrived(self, connection: Connection, message: Any) -> None:
        if connection.agent_listens:
            self._agent.take(connection, self._hear, connection, message)

    def _hear(self, connection: Connection, message: Any) -> None:
        if connection is not self.connection:
            return
        if message == LOST:
            self._lost(connection)
            return
        if message[0] == "notice":
            self.noticed(message[1], self._agent.boot_ns())
            return
        answer, read_ns = message[2:]
        now_ns = self._agent.boot_ns()
        if message[0] == "time" or (message[0] == "ballot" and isinstance(answer, list) and len(answer) == 3):
            self._agent.heard(self.index, read_ns)
        try:
            self.heard(answer, now_ns, is_error=answer == ERROR)
        except Nonsense as nonsense:
            self.talks_nonsense(str(nonsense), now_ns)
            connection.agent_listens = False  # nor is the rest of that chunk heard
        self.look_if_alive(now_ns)

    def _lost(self, connection: Connection) -> None:
        if connection is not self.connection:
            return
        self.connection = None
        connection.agent_listens = False
        now_ns, was_introduced = self._agent.boot_ns(), self.introduced
        self.broken("connection lost", now_ns)
        if not was_introduced:
            self.failed_to_connect("connection lost", now_ns)
        self._agent.wake_after(self.rest_ns(self._agent.dice.random()), self.connect)

    # Connecting

    def connect(self) -> None:
        if self.connection is not None:
            return
        self.connects(self._agent.boot_ns())
        connection = self.connection = self.another_connection(self._arrived)
        self._agent.wake_after(CONNECT_NS, self._connect_timed_out, connection)
        self.call("connect", self._connected)

    def another_connection(self, arrived: Callable[[Connection, Any], None]) -> Connection:
        machine = self._agent.machine(self.index)
        return Connection(self._agent.host, self._there, self._back, machine.hear, arrived)

    def _connect_timed_out(self, connection: Connection) -> None:
        if connection is self.connection and not self.introduced:
            self.drop("no answer in time", self._agent.boot_ns())

    def _connected(self, session: int) -> None:
        self._follow(introduction.introduce(self, session, self._agent.boot_ns), self._introduced)

    def _introduced(self) -> None:
        self._beats = 0
        self._agent.wake_after(0, self._attend, self.connection)

    def _follow(
        self,
        steps: introduction.Steps,
        done: Callable[[], None] = _nothing_more,
        failed: Callable[[str], None] = _asked_again,
    ) -> None:
        """Step by step, on this connection only."""

        def go_on(answer: Any = None) -> None:
            try:
                step = steps.send(answer)
            except StopIteration:
                done()
            else:
                self._take(step, go_on, failed)

        go_on()

    def _take(
        self, step: introduction.Step, go_on: Callable[..., None], failed: Callable[[str], None]
    ) -> None:
        match step:
            case introduction.ReadFacts():
                self.call("facts", go_on, failed=failed)
            case introduction.NoteCopy():
                self.call("copied", go_on, failed=failed)
            case introduction.ReadCounter(slot):
                self.call("counter", lambda shown: go_on((str(shown[1]), shown[0])), slot, failed=failed)
            case introduction.EndSession(number):
                self.call("kill", go_on, number, failed=failed)
            case introduction.HearNotices():
                self.call("subscribe", go_on, self._agent.known_as, failed=failed)
            case introduction.HaveScripts():
                go_on()  # masters of the simulator never lose theirs

    # Watching over it

    def _look(self) -> None:
        self._looking = False
        if self.connection is None:
            return
        now_ns = self._agent.boot_ns()
        self.look(now_ns)
        waits_ns = self.waits_ns(now_ns)
        if waits_ns:
            self._looking = True
            late = waits_ns > PATIENCE.timeout_ns
            self._agent.wake_after(link.LOOK_NS if late else PATIENCE.timeout_ns, self._look)

    def _attend(self, connection: Connection) -> None:
        """Sample its clock every second, and look who it is every five."""
        if connection is not self.connection:
            return
        self._looked_ns = self._agent.boot_ns()
        if self._beats % link.INSPECT_EVERY == 0:
            self.inspect_soon()
        self._beats += 1
        self.probe_soon()
        self._agent.wake_after(link.PROBE_NS, self._attend, connection)

    def probe_soon(self) -> None:
        self.call("time", partial(self._probed, self._agent.boot_ns()))

    def _probed(self, sent_ns: int, answer: tuple[int, bytes]) -> None:
        master_us, electorate = answer
        self.probed(sent_ns, self._agent.boot_ns(), master_us)
        if self.shows_another(electorate):
            self.look_closer()

    def inspect_soon(self) -> None:
        if self.introduced:
            self._follow(introduction.beat(self, self._agent.boot_ns))

    def inspect(self, looked: Callable[[bool], None]) -> None:
        """The same for somebody who waits for it, and is told whether it worked."""
        steps = introduction.look_again(self, self._agent.boot_ns)
        self._follow(steps, lambda: looked(True), lambda _: looked(False))
