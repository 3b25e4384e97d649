"""Apps that lock, write to the store and release, in all the ways in which an app can behave and misbehave.

An app notes what it may rely on when it has read it, and what it lets go before it tells anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from lockd.clock import boottime_ns
from lockd.core.validity import notice_ns
from tests.chaos.hosts import AgentHost
from tests.chaos.recorder import Recorder
from tests.chaos.store import Store
from tests.chaos.strain import Strain
from tests.chaos.wire import Answer, Connection, Disconnected
from tests.harness.history import Asked, Extended, Granted, LetGo, Lost, Refused, Withdrawn
from tests.harness.waiting import PATIENCE_S

_MS = 1_000_000
_LATE_NOTES_S = 0.3


@dataclass(slots=True)
class Held:
    """A lease as its app sees it."""

    resource: bytes
    token: bytes
    fence: int
    ttl_ms: int
    deadline_ns: int
    detached: bool = False
    let_go: bool = False

    @property
    def valid(self) -> bool:
        return not self.let_go and boottime_ns() < self.deadline_ns


@dataclass(frozen=True, slots=True)
class Wish:
    """What a LOCK asks for. wait_ms None: no WAIT; max_hold_ms None: no MAXHOLD."""

    resource: bytes
    ttl_ms: int
    wait_ms: int | None = None
    max_hold_ms: int | None = None
    detached: bool = False
    notify: bool = False

    def words(self) -> list[bytes | str | int]:
        words: list[bytes | str | int] = ["LOCK", self.resource, self.ttl_ms]
        if self.wait_ms is not None:
            words += ["WAIT", self.wait_ms]
        if self.max_hold_ms is not None:
            words += ["MAXHOLD", self.max_hold_ms]
        # All these apps are one process.
        words.append("DETACHED" if self.detached else "CONNECTION")
        return words + ["NOTIFY"] * self.notify


class App:
    """One app on one host. It has one connection to its agent at a time."""

    def __init__(
        self, name: str, agent: AgentHost, recorder: Recorder, store: Store, strain: Strain | None = None
    ) -> None:
        self.name = name
        self._agent = agent
        self._recorder = recorder
        self._store = store
        self._strain = strain
        self._connection: Connection | None = None
        self._held: dict[bytes, Held] = {}
        self._asleep = False

    @property
    def app(self) -> str:
        """As the history has it: it, and whose agent it asks."""
        return f"{self.name}@{self._agent.name}"

    async def connect(self, protocol: int = 3) -> None:
        """Raises Disconnected."""
        self._connection = await Connection.to_socket(self._agent.socket, self._pushed)
        await self._connection.ask("HELLO", protocol)

    @property
    def connected(self) -> bool:
        return self._connection is not None and self._connection.open

    async def lock(self, wish: Wish) -> Held | None:
        """None when it was refused. Raises Disconnected, and then nobody waits for the answer any more."""
        assert self._connection is not None
        request = self._recorder.next_request()
        self._recorder.note(self._asks(wish, request))
        try:
            answer = await self._connection.ask(*wish.words())
        except (Disconnected, asyncio.CancelledError):
            self._recorder.note(Withdrawn(boottime_ns(), request))
            raise
        if answer.error:
            code, _, text = answer.error.partition(" ")
            self._recorder.note(Refused(answer.read_ns, request, code, text))
            return None
        return self._granted(wish, request, answer)

    def _asks(self, wish: Wish, request: int) -> Asked:
        now_ns, terms = boottime_ns(), (wish.ttl_ms, wish.wait_ms, wish.max_hold_ms)
        return Asked(now_ns, request, self.app, wish.resource, *terms, by_process=False)

    def _granted(self, wish: Wish, request: int, answer: Answer) -> Held:
        lease = answer.lease
        held = Held(
            wish.resource, lease[b"token"], lease[b"fence"], wish.ttl_ms, lease[b"deadline_ns"], wish.detached
        )
        self._recorder.note(
            Granted(answer.read_ns, request, held.resource, held.token, held.fence, held.deadline_ns)
        )
        self._held[held.token] = held
        return held

    def write(self, held: Held) -> bool:
        return self._store.write(held.resource, held.token, held.fence)

    async def extend(self, held: Held, ttl_ms: int, through: AgentHost | None = None) -> None:
        """An extension that is refused for good is a loss; any other leaves the lease as it was. Raises
        Disconnected."""
        answer = await self._ask_any(through, "EXTEND", held.resource, held.token, ttl_ms)
        if not answer.error:
            self._prolonged(held, answer.lease[b"deadline_ns"], answer.read_ns, asked=True)
        elif answer.error.split(" ")[0] in ("NOTHELD", "EXPIRED"):
            self.let_go(held, "lost", answer.read_ns)

    async def unlock(self, held: Held, through: AgentHost | None = None) -> None:
        """Raises Disconnected."""
        self.let_go(held, "unlock", boottime_ns())
        await self._ask_any(through, "UNLOCK", held.resource, held.token)

    def let_go(self, held: Held, why: str, at_ns: int) -> None:
        if not held.let_go:
            held.let_go = True
            self._held.pop(held.token, None)
            self._recorder.note(LetGo(at_ns, held.token, why))

    def die(self) -> None:
        """Its process ends without a word. Its session locks end with the connection."""
        for held in list(self._held.values()):
            self.let_go(held, "left" if held.detached else "died", boottime_ns())
        self._held.clear()
        if self._connection is not None:
            self._connection.abort()

    async def sleep(self, seconds: float) -> None:
        """Do nothing at all for a while: nothing is read either."""
        self._asleep = True
        if self._connection is not None:
            self._connection.look_away()
        await asyncio.sleep(seconds)
        if self._connection is not None:
            self._connection.look_again()
        # What has come meanwhile is read before anybody calls it late.
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(_LATE_NOTES_S, self._awake)

    def _awake(self) -> None:
        self._asleep = False

    async def _ask_any(self, through: AgentHost | None, *words: bytes | str | int) -> Answer:
        if through is None or through is self._agent:
            if self._connection is None:
                raise Disconnected("not connected")
            return await self._connection.ask(*words)
        other = await Connection.to_socket(through.socket)
        try:
            return await asyncio.wait_for(other.ask(*words), PATIENCE_S)
        except TimeoutError as error:
            raise Disconnected("no answer in time") from error
        finally:
            other.abort()

    # Pushes

    def _pushed(self, push: list[Any], read_ns: int) -> None:
        held = self._held.get(push[2])
        if held is None:
            return  # it has let it go by itself: it is no news to it
        if push[0] == b"renewed":
            self._prolonged(held, push[3], read_ns)
        elif push[0] == b"lost":
            self._lost(held, push[3], push[4], read_ns)

    def _prolonged(self, held: Held, deadline_ns: int, read_ns: int, *, asked: bool = False) -> None:
        self._recorder.note(Extended(read_ns, held.token, deadline_ns, asked))
        held.deadline_ns = max(held.deadline_ns, deadline_ns)

    def _lost(self, held: Held, reason: bytes, deadline_ns: int, read_ns: int) -> None:
        self.let_go(held, "lost", read_ns)
        lost = Lost(read_ns, held.token, deadline_ns)
        # One that turns out to be gone is over when that turns out: nobody could have told it before.
        excused = self._asleep or reason.startswith(b"it is gone")
        # A little later, when it is known what this process and the agent had to wait for.
        asyncio.get_running_loop().call_later(_LATE_NOTES_S, self._note_lost, lost, excused, held.ttl_ms)

    def _note_lost(self, lost: Lost, excused: bool, ttl_ms: int) -> None:
        excused = excused or self._agent.stood_still(lost.deadline_ns - ttl_ms * _MS, lost.at_ns)
        if not excused and self._strain is not None:
            notice = notice_ns(ttl_ms)
            waited_ns = self._strain.waited_ns(self._agent.name, lost.deadline_ns - notice, lost.at_ns)
            excused = waited_ns > notice * 3 // 4
        self._recorder.note(Lost(lost.at_ns, lost.token, lost.deadline_ns, excused))


class Life:
    """What an app does all day, by chance."""

    def __init__(
        self, app: App, agents: Sequence[AgentHost], resources: Sequence[bytes], dice: Random
    ) -> None:
        self.app = app
        self._agents = agents
        self._resources = resources
        self._dice = dice
        self.stopping = False

    async def run(self) -> None:
        """Until `stopping`."""
        while not self.stopping:
            try:
                if not self.app.connected:
                    await self.app.connect(self._dice.choice((3, 3, 3, 2)))
                await self._round()
            except Disconnected:
                await asyncio.sleep(0.1)
            await asyncio.sleep(self._dice.expovariate(1 / 0.05))
        self.app.die()

    async def _round(self) -> None:
        ways: tuple[tuple[Callable[[], Awaitable[None]], int], ...] = (
            (self._briefly, 40),
            (self._for_long, 4),
            (self._until_lost, 1),
            (self._and_die, 5),
            (self._die_waiting, 3),
            (self._and_sleep, 3),
            (self._detached, 10),
        )
        way = self._dice.choices([way for way, _ in ways], [weight for _, weight in ways])[0]
        await way()

    def _wish(self, **more: Any) -> Wish:
        dice = self._dice
        wait_ms = dice.choice((None, 200, 1_000, 3_000))
        return Wish(dice.choice(self._resources), dice.choice((600, 1_000, 2_000)), wait_ms, **more)

    async def _briefly(self) -> None:
        held = await self.app.lock(self._wish())
        if held is not None:
            await self._work(held, self._dice.uniform(0.0, 0.1))
            await self.app.unlock(held)

    async def _for_long(self) -> None:
        """It is renewed meanwhile, and once in a while the app itself extends it."""
        held = await self.app.lock(await self._with_pushes())
        if held is not None:
            await self._work(held, self._dice.uniform(0.5, 3.0))
            if held.valid and self._dice.random() < 0.3:
                await self.app.extend(held, 2_000)
                await self._work(held, self._dice.uniform(0.0, 1.0))
            if held.valid:
                await self.app.unlock(held, self._dice.choice((None, None, *self._agents)))

    async def _with_pushes(self) -> Wish:
        """Only in RESP3 is an app told that its lease was renewed."""
        self.app.die()
        await self.app.connect(3)
        return self._wish(notify=True)

    async def _until_lost(self) -> None:
        """It is never given back: MAXHOLD ends it."""
        await self._with_pushes()
        wish = Wish(self._dice.choice(self._resources), 600, 1_000, max_hold_ms=1_500, notify=True)
        held = await self.app.lock(wish)
        if held is not None:
            await self._work(held, 5.0)

    async def _and_die(self) -> None:
        held = await self.app.lock(self._wish())
        if held is not None:
            await self._work(held, self._dice.uniform(0.0, 0.5))
            self.app.die()

    async def _die_waiting(self) -> None:
        asking = asyncio.ensure_future(self.app.lock(self._wish()))
        await asyncio.wait([asking], timeout=self._dice.uniform(0.0, 0.3))
        self.app.die()
        with suppress(Disconnected):  # or it was answered just before
            await asking

    async def _and_sleep(self) -> None:
        """Past its deadline, and then it writes as if nothing had happened: that is what fences are for."""
        held = await self.app.lock(self._wish())
        if held is not None:
            self.app.write(held)
            await self.app.sleep(held.ttl_ms / 1_000 * self._dice.uniform(0.5, 1.8))
            self.app.write(held)
            if held.valid:
                await self.app.unlock(held)

    async def _detached(self) -> None:
        """It belongs to nobody's connection: extended and given back through any host, or left to its end."""
        held = await self.app.lock(self._wish(detached=True))
        if held is None:
            return
        await self._work(held, self._dice.uniform(0.0, 0.5))
        if self._dice.random() < 0.5 and held.valid:
            await self.app.extend(held, self._dice.choice((600, 2_000)), self._dice.choice(self._agents))
            await self._work(held, self._dice.uniform(0.0, 1.0))
        if self._dice.random() < 0.8 and held.valid:
            await self.app.unlock(held, self._dice.choice(self._agents))
        elif held.valid and self._dice.random() < 0.5:
            await self._work(held, 3.0)

    async def _work(self, held: Held, seconds: float) -> None:
        """Write now and then for as long as the lease may be relied upon, but no longer than this. A
        connection that is lost says nothing about the lease."""
        end_ns = boottime_ns() + int(seconds * 1e9)
        while held.valid:
            self.app.write(held)
            left_ns = min(end_ns, held.deadline_ns) - boottime_ns()
            if left_ns <= 0:
                break
            await asyncio.sleep(min(left_ns / 1e9, self._dice.uniform(0.02, 0.3)))
