"""The processes of a campaign that hold locks, each started again when it has ended.

Their locks are bound to them. What they note is taken over as it is; of one that was killed, the campaign
notes what it then let go, as of before the kill.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from lockd.clock import boottime_ns
from tests.chaos.holders.notebook import Begot, Held, Notebook, Terms, read_line
from tests.chaos.holders.program import FAILED
from tests.chaos.holders.program import KINDS as PROGRAMS
from tests.chaos.hosts import AgentHost, NotUp
from tests.chaos.recorder import Recorder
from tests.harness.history import Asked, Event, Extended, Granted, LetGo, Missed, Refused, Unlocked, Withdrawn
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
echo over
"""


class Known:
    """A process, by a file of its own: its number may be another's one day."""

    def __init__(self, pid: int) -> None:
        self._file = -1
        with suppress(ProcessLookupError):
            self._file = os.pidfd_open(pid) if pid else -1

    def signal(self, number: int) -> bool:
        """False: there is none any more."""
        try:
            signal.pidfd_send_signal(self._file, number)
        except OSError:
            return False
        return True

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


NOBODY = Known(0)


class Nursery:
    """One process that all the programs are forked from, so that each begins at once."""

    def __init__(self, log: Path) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, log.open("ab") as to:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.holders.program"],
                stdin=theirs,
                stdout=to,
                stderr=to,
                cwd=_ROOT,
                env=os.environ | {"PYTHONPATH": str(_ROOT)},
                start_new_session=True,
            )

    async def begin(self, *words: Any) -> asyncio.StreamReader:
        """A new program; what it writes. words: what `program.live` takes."""
        ours, theirs = os.pipe()
        socket.send_fds(self._socket, [json.dumps(words).encode()], [theirs])
        os.close(theirs)
        lines = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(lines)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(ours, "rb"))
        return lines

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


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
        self._process = NOBODY
        self._child = NOBODY
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
            self._killed_ns = 0
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
        if not self._process.signal(number):
            self._child.signal(number)

    def _take(self, event: Event) -> None:
        if isinstance(event, Begot):
            self._child = Known(event.pid)
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
        for one in (self._process, self._child):
            one.close()
        self._process = self._child = NOBODY

    @abstractmethod
    async def _one_life(self) -> None: ...


class Program(Holder):
    """One that speaks to the agent itself, and notes what it does."""

    def __init__(self, nursery: Nursery, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._nursery = nursery

    async def _one_life(self) -> None:
        agent = self._agent
        lines = await self._nursery.begin(
            self._kind,
            self.app,
            self._first + self.lives * 1_000,
            str(agent.socket),
            self._dice.getrandbits(32),
            agent.max_ttl_ms,
            agent.max_hold_ms,
            [resource.decode() for resource in self._resources],
        )
        self._process = Known(int(await lines.readline()))
        if self.stopping:
            self._signal(signal.SIGKILL)
        async for line in lines:
            if line == FAILED:
                raise NotUp(f"{self.app} failed: see programs.log")
            self._take(read_line(line))
        self._is_over()


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
        with (self._agent.socket.parent / "log" / "commands.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                LOCKCTL, "--socket", self._agent.socket, "run", "--ttl", f"{terms.ttl_ms}ms",
                "--wait", f"{terms.wait_ms}ms", terms.resource.decode(), "--", "sh", "-c", _BEATS % beats,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._process, lines = Known(process.pid), process.stdout
        assert lines is not None
        held: Held | None = None
        first = (await lines.readline()).split()
        async for line in lines:
            if held is not None and line == b"over\n":
                held.over = True
                continue
            at_ns = int(float(line) * 1e9)
            if held is None:
                at_ns += _UPTIME_NS
                held = Held(terms.resource, first[0], at_ns, terms.ttl_ms)
                self._take(Granted(at_ns, request, terms.resource, held.token, int(first[1]), at_ns))
            else:
                self._take(Extended(at_ns, held.token, at_ns))
        self._ended(book, request, held, await process.wait())

    def _ended(self, book: Notebook, request: int, held: Held | None, status: int) -> None:
        """Nothing of it runs any more. Only lockctl's last word tells whether it has given its lock back."""
        if held is None and status in _REFUSALS:
            book.was_refused(request, _REFUSALS[status])
        elif held is not None and status == -signal.SIGKILL:
            book.lets_go(held, "left" if held.over else "died")
        elif held is not None:
            book.lets_go(held, "unlock")
            if status == 0:
                self._take(Unlocked(boottime_ns(), held.token))
            elif status == _LOST:
                self._take(Missed(boottime_ns(), held.token, "lockctl has ended its command"))
        self._is_over()


def holders(
    nursery: Nursery,
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
        agent, own = agents[number % len(agents)], Random(dice.random())
        one = (
            Command(kind, number + 1, agent, recorder, resources, own)
            if kind == COMMAND
            else Program(nursery, kind, number + 1, agent, recorder, resources, own)
        )
        made[one.name] = one
    return made
