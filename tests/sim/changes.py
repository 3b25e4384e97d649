"""Carries out a change of who the members are (lockd/core/changes) for an operator, on virtual time: what
lockd/masters/changes.py does with futures. Each step may fail, be late, or be the last."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from lockd.core.changes.ground import Ground
from lockd.core.changes.steps import (
    GLANCE_NS,
    LookAgain,
    NotPossible,
    OwnClockIsWrong,
    Pause,
    Progress,
    ReadCounters,
    ReadField,
    Step,
    Steps,
    Unread,
    Write,
)
from lockd.core.membership import State
from tests.sim.agent import Agent
from tests.sim.link import CONNECT_NS, PATIENCE, Link
from tests.sim.master import ERROR, HANG_UP, LOST
from tests.sim.network import Connection

Change = Callable[[Ground], Steps[Progress]]


class Carrier:
    """One change, as an agent carries it out. It is gone with its agent."""

    def __init__(
        self, agent: Agent, change: Change, max_ttl_ms: int, *, by_user: bool, ended: Callable[[str], None]
    ) -> None:
        """by_user: an operator's user writes, on a connection of its own. ended: told of what came of it."""
        self._agent = agent
        self._life = agent.life
        self._links = agent.fleet.links
        self._by_user = by_user
        self._ended = ended
        new_id = lambda: f"{agent.dice.getrandbits(128):032x}"  # noqa: E731
        ground = Ground(agent.fleet, max_ttl_ms, PATIENCE.dead_ns, agent.boot_ns, new_id)
        self._steps = change(ground)

    def begin(self) -> None:
        self._next(self._steps.__next__)

    def _go_on(self, answer: Any) -> None:
        """In a turn of its own: the link may be in the midst of something."""
        self._agent.wake_after(0, self._next, partial(self._steps.send, answer))

    def _fail(self, why: str) -> None:
        self._agent.wake_after(0, self._next, partial(self._steps.throw, NotPossible(why)))

    def _next(self, step_after: Callable[[], Step]) -> None:
        if self._agent.life != self._life:
            return  # its agent has ended, and the next one has other links
        try:
            step = step_after()
        except StopIteration as end:
            self._ended(end.value.status)
        except (NotPossible, OwnClockIsWrong) as why:
            self._ended(str(why))
        else:
            self._do(step)

    def _do(self, step: Step) -> None:
        match step:
            case LookAgain():
                self._look(self._agent.boot_ns() + CONNECT_NS)
            case Write(master):
                self._write(self._links[master], step)
            case ReadCounters(masters):
                self._read(masters)
            case ReadField(master, name):
                unread = lambda why: self._go_on(Unread(why))  # noqa: E731
                self._links[master].call("field", self._go_on, name, failed=unread)
            case Pause(for_ns):
                self._agent.wake_after(for_ns, self._go_on, None)

    def _look(self, until_ns: int) -> None:
        waits = any(link.state is State.BLANK and not link.introduced for link in self._links)
        if waits and self._agent.boot_ns() < until_ns:
            self._agent.wake_after(GLANCE_NS, self._look, until_ns)
            return
        links = [link for link in self._links if link.introduced]
        looks = _All([link.index for link in links], self._looked)
        for link in links:
            link.inspect(partial(looks.came, link.index))
        self._agent.wake_after(CONNECT_NS, looks.no_more)

    def _looked(self, looks: dict[int, bool]) -> None:
        self._go_on({master for master, answered in looks.items() if answered})

    def _read(self, masters: Iterable[int]) -> None:
        readings = _All(masters, self._go_on)
        for master in masters:
            failed = lambda why, master=master: readings.came(master, Unread(why))  # noqa: E731
            self._links[master].call("counters", partial(readings.came, master), failed=failed)

    def _write(self, link: Link, step: Write) -> None:
        words = (step.expected, step.fields, step.counters)
        if self._by_user:
            aside = _Aside(self._agent, link, self._go_on, self._fail)
            aside.ask("identify", None, *words)
        else:
            link.call("identify", self._go_on, *words, failed=self._fail)


class _All:
    """The answers of several, by who gave them. Whoever wants them gets them once, when all are there."""

    def __init__(self, keys: Iterable[int], then: Callable[[dict[int, Any]], None]) -> None:
        self._left = set(keys)
        self._answers: dict[int, Any] = {}
        self._then = then
        if not self._left:
            then({})

    def came(self, key: int, answer: Any) -> None:
        if key in self._left:
            self._left.discard(key)
            self._answers[key] = answer
            if not self._left:
                self._then(self._answers)

    def no_more(self) -> None:
        if self._left:
            self._left.clear()
            self._then(self._answers)


class _Aside:
    """One question on a connection of its own: lockd/masters/aside.py. What nobody waits for any more may
    still reach the master."""

    def __init__(
        self, agent: Agent, link: Link, heard: Callable[[Any], None], failed: Callable[[str], None]
    ) -> None:
        self._agent = agent
        self._heard = heard
        self._failed = failed
        self._connection = link.another_connection(self._arrived)

    def ask(self, *message: Any) -> None:
        self._agent.outbox.append((self._connection, message))
        self._agent.wake_after(CONNECT_NS, self._end, LOST)

    def _arrived(self, connection: Connection, message: Any) -> None:
        if connection.agent_listens:
            self._agent.take(connection, self._end, message)

    def _end(self, message: Any) -> None:
        connection = self._connection
        if not connection.agent_listens:
            return
        connection.agent_listens = False
        self._agent.outbox.append((connection, (HANG_UP, None)))
        answer = ERROR if message == LOST else message[2]
        if answer == ERROR:
            self._failed("no answer, or an error")
        else:
            self._heard(answer)
