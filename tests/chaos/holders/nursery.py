"""The processes of a campaign that hold locks, each started again when it has ended.

Their locks are bound to them. What they note is taken over as it is; of one that was killed, the campaign
notes what it then let go, as of before the kill.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from lockd.clock import boottime_ns
from tests.chaos.holders.notebook import Begot, Held, Notebook, Terms, read_line
from tests.chaos.holders.program import KINDS as PROGRAMS
from tests.chaos.hosts import AgentHost, NotUp
from tests.chaos.recorder import Recorder
from tests.harness.history import Asked, Event, Extended, Granted, LetGo, Missed, Refused, Withdrawn
from tests.harness.lockctl import LOCKCTL

COMMAND = "command"
KINDS = (*PROGRAMS, COMMAND)
_REQUESTS_EACH = 1_000_000
_ROOT = Path(__file__).parents[3]
_REFUSALS = {75: "TAKEN", 74: "NOQUORUM", 77: "DENIED"}
_LOST = 76
_UPTIME_NS = 10_000_000
"""/proc/uptime is cut off to this."""

# It tells all the time that it runs, by the clock that counts.
_BEATS = """
echo $LOCKD_TOKEN $LOCKD_FENCE
n=%d
while [ $n -gt 0 ]; do read up _ < /proc/uptime; echo $up; n=$((n - 1)); sleep 0.1; done
"""


class Holder:
    """A process on the host of `agent`, one after the other. number: unique among all of a campaign."""

    def __init__(
        self,
        kind: str,
        number: int,
        agent: AgentHost,
        recorder: Recorder,
        resources: Sequence[bytes],
        dice: Random,
    ) -> None:
        self.name = f"{kind}.{number}"
        self.lives = 0
        self.stopping = False
        self.grants = 0
        self.held: set[bytes] = set()
        self._kind = kind
        self._agent = agent
        self._recorder = recorder
        self._resources = resources
        self._dice = dice
        self._first = number * _REQUESTS_EACH
        self._process: asyncio.subprocess.Process | None = None
        self._child = 0
        self._killed_ns = 0
        self._asked: set[int] = set()

    @property
    def app(self) -> str:
        """As the history has it: which of its processes, and on whose host."""
        return f"{self.name}/{self.lives}@{self._agent.name}"

    async def live(self) -> None:
        """Until `stopping`, and the last process has ended."""
        while not self.stopping:
            self.lives += 1
            self._child, self._killed_ns = 0, 0
            await self._one_life()
            await asyncio.sleep(self._dice.uniform(0.0, 0.3))

    def kill(self) -> None:
        """kill -9; a child goes on, and is killed the next time."""
        self._killed_ns = boottime_ns()
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Nothing more is locked; what runs goes on until it is killed, or ends by itself."""
        self.stopping = True
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
        elif self._child:
            with suppress(ProcessLookupError):
                os.kill(self._child, number)

    async def _started(self, *command: str | Path) -> asyncio.StreamReader:
        with (self._agent.socket.parent / "log" / f"{self._kind}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=_ROOT,
                env=os.environ | {"PYTHONPATH": str(_ROOT)},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        return self._process.stdout

    def _take(self, event: Event) -> None:
        if isinstance(event, Begot):
            self._child = event.pid
            return
        self._recorder.note(event)
        if isinstance(event, Asked):
            self._asked.add(event.request)
        elif isinstance(event, Granted | Refused | Withdrawn):
            self._asked.discard(event.request)
            if isinstance(event, Granted):
                self.grants += 1
                self.held.add(event.token)
        elif isinstance(event, LetGo):
            self.held.discard(event.token)

    def _is_over(self) -> None:
        """It is dead, and so is its child."""
        at_ns = self._killed_ns or boottime_ns()
        for request in tuple(self._asked):
            self._take(Withdrawn(at_ns, request))
        for token in tuple(self.held):
            self._take(LetGo(at_ns, token, "died"))
        self._process = None

    @abstractmethod
    async def _one_life(self) -> None: ...


class Program(Holder):
    """One that speaks to the agent itself, and notes what it does."""

    async def _one_life(self) -> None:
        first = self._first + self.lives * 1_000
        terms = (self._agent.max_ttl_ms, self._agent.max_hold_ms)
        lines = await self._started(
            sys.executable, "-m", "tests.chaos.holders.program", self._kind, self.app, str(first),
            str(self._agent.socket), str(self._dice.getrandbits(32)), *map(str, terms),
            *(resource.decode() for resource in self._resources),
        )  # fmt: skip
        if self.stopping:
            self._signal(signal.SIGKILL)
        async for line in lines:
            self._take(read_line(line))
        assert self._process is not None
        status = await self._process.wait()
        self._is_over()
        if status != -signal.SIGKILL and not self.stopping:
            raise NotUp(f"{self.app} ended with status {status}: see {self._kind}.log")


class Command(Holder):
    """A command of `lockctl run`. It relies on its lock for as long as it runs, whatever it was told."""

    async def _one_life(self) -> None:
        dice, most_ms = self._dice, self._agent.max_ttl_ms
        terms = Terms(
            dice.choice(self._resources),
            dice.choice((most_ms, most_ms // 2)),
            dice.choice((0, 300, 2_000)),
            self._agent.max_hold_ms,
        )
        book = Notebook(self.app, self._first + self.lives, self._take)
        request = book.asks(terms)
        beats = int(dice.choice((1, 3, 10, 40)) * dice.uniform(0.5, 1.2)) or 1
        lines = await self._started(
            LOCKCTL, "--socket", self._agent.socket, "run", "--ttl", f"{terms.ttl_ms}ms",
            "--wait", f"{terms.wait_ms}ms", terms.resource.decode(), "--", "sh", "-c", _BEATS % beats,
        )  # fmt: skip
        held: Held | None = None
        first = (await lines.readline()).split()
        async for line in lines:
            at_ns = int(float(line.split()[0]) * 1e9)
            if held is None:
                at_ns += _UPTIME_NS
                held = Held(terms.resource, first[0], at_ns, terms.ttl_ms)
                self._take(Granted(at_ns, request, terms.resource, held.token, int(first[1]), at_ns))
            else:
                self._take(Extended(at_ns, held.token, at_ns))
        assert self._process is not None
        self._ended(book, request, held, await self._process.wait())

    def _ended(self, book: Notebook, request: int, held: Held | None, status: int) -> None:
        """Its lock is free as soon as nothing of it runs any more: whether it gave it back, or was killed."""
        if held is None and status in _REFUSALS:
            book.was_refused(request, _REFUSALS[status])
        elif held is not None:
            if status == _LOST:
                self._take(Missed(boottime_ns(), held.token, "lockctl has ended its command"))
            book.lets_go(held, "lost" if status == _LOST else "died")
        self._is_over()


def holders(
    each: int,
    agents: Sequence[AgentHost],
    recorder: Recorder,
    resources: Sequence[bytes],
    dice: Random,
    kinds: Sequence[str] = KINDS,
) -> dict[str, Holder]:
    """So many on each host, of these kinds in turn, by name."""
    made: dict[str, Holder] = {}
    for number in range(each * len(agents)):
        kind = kinds[(number // len(agents) + number) % len(kinds)]
        agent = agents[number % len(agents)]
        life = Command if kind == COMMAND else Program
        one = life(kind, number + 1, agent, recorder, resources, Random(dice.random()))
        made[one.name] = one
    return made
