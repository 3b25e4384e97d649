"""The agent's end of the way to one master: what lockd/masters/link.py does, on virtual time.

It keeps that file's rules (one connection at a time; the old session is ended before anything is asked on a
new one; what was left unanswered is asked again, in its order, while that is worth it), because these are
rules about mutual exclusion. Bytes, tasks and settings are left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lockd.core.admission import Elsewhere, Numbered
from lockd.core.answers import Flaw, flaw_of, is_of_release
from lockd.core.ballots import MISCOUNTS, NO_IDENTITY, Release, Verdict
from lockd.core.clocks import ClockWatch
from lockd.core.debts import Debts, is_debt
from lockd.core.fences import BLOCK, slot_of
from lockd.core.identities import Identity
from lockd.core.membership import BY_OTHERS, Facts, State
from tests.sim.master import ERROR, HANG_UP, LOST
from tests.sim.network import Connection, Path
from tests.sim.world import MS

if TYPE_CHECKING:
    from tests.sim.agent import Agent

TIMEOUT_NS = 250 * MS
DEAD_NS = 2_000 * MS
CONNECT_NS = 1_000 * MS
PROBE_NS = 1_000 * MS
LOOK_NS = 50 * MS
CLOSER_NS = 100 * MS
INSPECT_EVERY = 5

Question = tuple[Any, int]
"""A ballot, or a callable that gets the raw answer; and when it was sent."""


class Link:
    """One master, as its agent sees it."""

    def __init__(self, agent: Agent, index: int, there: Path, back: Path) -> None:
        self.index = index
        self.state = State.CONNECTING
        self.introduced = False
        self.facts: Facts | None = None
        self.blank_since_ns: int | None = None
        self.numbered: Numbered | None = None
        self.elsewhere = Elsewhere()
        self.connection: Connection | None = None
        self._agent = agent
        self._there = there
        self._back = back
        self._in_flight: deque[Question] = deque()
        self._debts = Debts()
        self._session: tuple[str, int] | None = None
        self._electorate = b""
        self._electorate_since_ns = 0
        self._to_ask_again: list[Question] = []
        self._wrong_slot: int | None = None
        self._heard_ns = 0
        self._looking = False
        self._looking_closer = False
        self._tries = 0
        self._beats = 0

    @property
    def watch(self) -> ClockWatch:
        return self._agent.fleet.clocks.watches[self.index]

    # Asking

    def ask(self, ballot: Any) -> None:
        self._send(("ballot", ballot, self._electorate), ballot)

    def give_back(self, release: Release) -> bool:
        if not self.introduced:
            if is_debt(release):
                self._debts.keep(release, b"")
            return is_debt(release)
        if release.patient:
            self._debts.add(release, b"")
            if self._debts.is_quiet:
                self._give_back_more()
        else:
            self.ask(release)
        return True

    def call(self, kind: str, heard: Callable[[Any], None], *more: Any) -> None:
        self._send((kind, None, *more), heard)

    def _send(self, message: tuple[Any, ...], question: Any) -> None:
        assert self.connection is not None
        self._in_flight.append((question, self._agent.boot_ns()))
        self._agent.outbox.append((self.connection, message))
        if not self._looking:
            self._looking = True
            self._agent.wake_after(TIMEOUT_NS + LOOK_NS // 2, self._look)

    # Hearing

    def _arrived(self, connection: Connection, message: Any) -> None:
        if connection.agent_listens:
            self._agent.take(connection, self._hear, connection, message)

    def _hear(self, connection: Connection, message: Any) -> None:
        if connection is not self.connection:
            return
        if message == LOST:
            self._lost()
            return
        question, sent_ns = self._in_flight.popleft()
        answer, read_ns = message[2:]
        now_ns = self._heard_ns = self._agent.boot_ns()
        if message[0] == "time" or (message[0] == "ballot" and isinstance(answer, list) and len(answer) == 3):
            self._agent.heard(self.index, read_ns)
        if message[0] != "ballot":
            question(answer)
        elif answer == ERROR:
            self._refused(question, now_ns)
        elif isinstance(question, Release):
            self._released(question, answer, now_ns)
        else:
            self._vote(question, sent_ns, answer, now_ns)
        if self.state is State.STALLED and (
            not self._in_flight or now_ns - self._in_flight[0][1] <= TIMEOUT_NS
        ):
            self._change(State.UP)

    def _released(self, release: Release, answer: Any, now_ns: int) -> None:
        if self._debts.was_answered(release):
            self._give_back_more()
        if is_of_release(answer):
            release.answered(self.index, answer, 0, True, now_ns)
            return
        release.asked_again |= 1 << self.index
        self._debts.keep(release, b"")
        self._leave_alone()

    def _vote(self, ballot: Any, sent_ns: int, answer: Any, now_ns: int) -> None:
        flaw = flaw_of(ballot, answer, self._agent.fleet.fence_most)
        if flaw is not None:
            self._flawed(ballot, answer, flaw, now_ns)
            return
        status, value, master_us, *shown = answer
        if self.watch.observe(sent_ns, now_ns, master_us):
            self._agent.fleet.weigh()
        if status == NO_IDENTITY and self._looks_first(ballot, sent_ns):
            return
        counts = bool(self._agent.fleet.electorate.trusted >> self.index & 1)
        ballot.answered(self.index, status, value, counts, now_ns, *shown)

    def _looks_first(self, ballot: Any, sent_ns: int) -> bool:
        """It is asked again when it is only that the list of members has changed."""
        self.inspect_soon()
        if ballot.verdict is not Verdict.OPEN:
            return False
        self._to_ask_again.append((ballot, sent_ns))
        return True

    def _ask_refused_again(self) -> None:
        now_ns, refused = self._agent.boot_ns(), self._to_ask_again
        self._to_ask_again = []
        for ballot, sent_ns in refused:
            other = sent_ns < self._electorate_since_ns
            if other and self._worth_asking(ballot) and now_ns < ballot.until_ns:
                self.ask(ballot)
            else:
                ballot.answered(self.index, NO_IDENTITY, 0, False, now_ns)

    def _flawed(self, ballot: Any, answer: Any, flaw: Flaw, now_ns: int) -> None:
        if flaw is Flaw.NONSENSE:
            ballot.unanswered(self.index, "nonsense", now_ns)
            self._leave_alone()
            return
        self._wrong_slot = slot_of(ballot.resource)
        if self.state in (State.UP, State.STALLED):
            self._change(State.MISCOUNTING)
        if answer[0] == MISCOUNTS:
            ballot.answered(self.index, MISCOUNTS, 0, False, now_ns)
        else:
            ballot.unanswered(self.index, "miscounting", now_ns)

    def _leave_alone(self) -> None:
        self._tries = max(self._tries, 7)  # more than half a second
        self.drop()

    def _refused(self, ballot: Any, now_ns: int) -> None:
        if self._debts.was_answered(ballot):
            self._give_back_more()
        if is_debt(ballot):
            self._debts.keep(ballot, b"")
        ballot.unanswered(self.index, "error", now_ns)
        if not self._looking_closer:
            self._looking_closer = True
            self._agent.wake_after(CLOSER_NS, self._look_closer, self.connection)

    def _look_closer(self, connection: Connection) -> None:
        """Something was refused: look at the master again soon, and ask once more what is owed to it."""
        self._looking_closer = False
        if connection is self.connection:
            self.call("facts", self._inspected)
            self._settle_debts(after_break=False)

    def _lost(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.agent_listens = False
        self.introduced = False
        self.blank_since_ns = self.numbered = None
        for question, _ in (*self._to_ask_again, *self._in_flight):
            if hasattr(question, "answered"):
                if isinstance(question, Release):
                    question.asked_again |= 1 << self.index
                self._debts.keep(question, b"")
        self._in_flight.clear()
        self._to_ask_again.clear()
        self._debts.broke_off()
        self._change(State.DOWN)
        self._agent.wake_after(self._back_off_ns(), self.connect)

    def drop(self) -> None:
        """Give this connection up. What lies in it may still reach the master, whenever that is."""
        if self.connection is not None:
            self._agent.outbox.append((self.connection, (HANG_UP, None)))
            self._lost()

    def _back_off_ns(self) -> int:
        return int(min(1000, 5 * 2 ** min(self._tries, 10)) * MS * (0.5 + self._agent.dice.random()))

    # Watching over it

    def _look(self) -> None:
        self._looking = False
        if not self._in_flight or self.connection is None:
            return
        now_ns = self._agent.boot_ns()
        waiting_ns = now_ns - self._in_flight[0][1]
        if self.state is State.UP and waiting_ns > TIMEOUT_NS:
            self._change(State.STALLED)
        if min(waiting_ns, now_ns - self._heard_ns) > DEAD_NS:
            self.drop()
            return
        self._looking = True
        self._agent.wake_after(LOOK_NS if waiting_ns > TIMEOUT_NS else TIMEOUT_NS, self._look)

    def _change(self, state: State) -> None:
        if state is not self.state:
            self.state = state
            self._agent.fleet.weigh()

    # Connecting

    def connect(self) -> None:
        if self.connection is not None:
            return
        self._tries += 1
        connection = self.connection = Connection(
            self._agent.host, self._there, self._back, self._agent.machine(self.index).hear, self._arrived
        )
        self._heard_ns = self._agent.boot_ns()
        self._agent.wake_after(CONNECT_NS, self._connect_timed_out, connection)
        self.call("connect", self._connected)
        self.call("facts", self._inspected)

    def _connect_timed_out(self, connection: Connection) -> None:
        if connection is not self.connection or self.introduced:
            return
        self.drop()
        now_ns = self._agent.boot_ns()
        _, votes = self._debts.take_votes(now_ns, up=False)
        for ballot in votes:
            ballot.unanswered(self.index, "down", now_ns)

    def _connected(self, session: int) -> None:
        self._number = session

    def _inspected(self, facts: Facts) -> None:
        before, self.facts = self.facts, facts
        if before is None or before.identity != facts.identity:
            self._take_electorate(facts.identity)
            self._agent.fleet.identity_changed(self)
        if facts.copying.was_replica and facts.identity is not None and not facts.copying.known:
            self.call("copied", lambda _: None)
        state = self._agent.fleet.judge(self, facts)
        if state is State.BLANK:
            self._wrong_slot = None
        elif state is State.UP and self._wrong_slot is not None:
            state = State.MISCOUNTING
            self.call("counters", self._counted)
        if state is not State.BLANK:
            self.blank_since_ns = self.numbered = None
            self.elsewhere.is_over()
        elif self.blank_since_ns is None:
            self.blank_since_ns = self._agent.boot_ns()
        if self.introduced:
            self._change(state)
            self._ask_refused_again()
            return
        self.state = state
        if self._session is not None and self._session[0] == facts.run_id:
            self.call("kill", self._introduced, self._session[1])
        else:
            self._introduced(None)

    def _take_electorate(self, identity: Identity | None) -> None:
        fleet, word = self._agent.fleet, ""
        if identity is not None:
            word = identity.electorate_as(fleet.name(self.index), fleet.configured.names)
        if self._electorate != word.encode():
            self._electorate, self._electorate_since_ns = word.encode(), self._agent.boot_ns()

    def wait_anew(self) -> None:
        now_ns = self._agent.boot_ns()
        if self.blank_since_ns is not None:
            self.blank_since_ns = now_ns
        if self.numbered is not None:
            self.numbered = Numbered(self.numbered.number, now_ns)

    def judge_again(self) -> None:
        """By what another master shows now."""
        if self.introduced and self.facts is not None and self.state in BY_OTHERS:
            self._change(self._agent.fleet.judge(self, self.facts))

    def _counted(self, counters: dict[int, int]) -> None:
        """Whether the counter that was wrong is right again."""
        slot = self._wrong_slot
        if slot is not None and counters.get(slot, 0) + BLOCK <= self._agent.fleet.fence_most:
            self._wrong_slot = None
            self.inspect_soon()

    def _introduced(self, _: Any) -> None:
        assert self.facts is not None
        # Only now: a connection that breaks before the old session is ended must not make it forgotten.
        self._session = (self.facts.run_id, self._number)
        self.introduced = True
        self._tries = 0
        self._beats = 0
        self._settle_debts(after_break=True)
        self._agent.fleet.weigh()
        self._agent.wake_after(0, self._attend, self.connection)

    def _settle_debts(self, *, after_break: bool) -> None:
        now_ns = self._agent.boot_ns()
        votes, given_up = self._debts.take_votes(now_ns, up=self.state is State.UP)
        for ballot, _ in votes:
            self.ask(ballot)
        for ballot in given_up:
            ballot.unanswered(self.index, "connection lost", now_ns)
        self._debts.come_due(after_break=after_break)
        self._give_back_more()

    def _give_back_more(self) -> None:
        if not self.introduced:
            return
        now_ns = self._agent.boot_ns()
        releases, given_up = self._debts.take_releases(now_ns)
        for release, _ in releases:
            self.ask(release)
        for release in given_up:
            release.unanswered(self.index, "connection lost", now_ns)
        if self._debts.is_quiet:
            self._agent.wake_after(0, self._give_back_more)

    def _worth_asking(self, ballot: Any) -> bool:
        return self.state is State.UP and ballot.verdict is Verdict.OPEN

    def _attend(self, connection: Connection) -> None:
        """Sample its clock every second, and look who it is every five."""
        if connection is not self.connection:
            return
        if self._beats % INSPECT_EVERY == 0:
            self.call("facts", self._inspected)
            self._settle_debts(after_break=False)
        self._beats += 1
        sent_ns = self._agent.boot_ns()
        self.call("time", lambda master_us: self._probed(sent_ns, master_us))
        self._agent.wake_after(PROBE_NS, self._attend, connection)

    def _probed(self, sent_ns: int, master_us: int) -> None:
        if self.watch.observe(sent_ns, self._heard_ns, master_us):
            self._agent.fleet.weigh()

    def probe_soon(self) -> None:
        if self.introduced:
            sent_ns = self._agent.boot_ns()
            self.call("time", lambda master_us: self._probed(sent_ns, master_us))

    def inspect_soon(self) -> None:
        if self.introduced:
            self.call("facts", self._inspected)
