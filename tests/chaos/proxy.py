"""The way from one agent to one master, which can be cut (in one direction or both), slowed and reset.

As in TCP, nothing is lost or reordered within a connection: what is held back arrives later, and the end of a
connection comes behind its data. So what an agent sent on a connection that it has given up can reach the
master after what it sent on the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum

from lockd.dev.processes import LOOPBACK


class Way(Enum):
    """A direction, as the agent sees it."""

    THERE = "there"
    BACK = "back"


BOTH = (Way.THERE, Way.BACK)


class Line:
    """`port` is where the agent finds the master; `target` says which port the master listens on now."""

    def __init__(self, target: Callable[[], int]) -> None:
        self.cut: set[Way] = set()
        self.delay_s: dict[Way, float] = {}
        self.port = 0
        self._target = target
        self.passages: set[Passage] = set()
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Passage(self).agent_end, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.reset()

    def hold(self, ways: tuple[Way, ...]) -> None:
        """Cut it: data waits in this direction, also that of connections made meanwhile."""
        self.cut.update(ways)

    def heal(self, ways: tuple[Way, ...] = BOTH) -> None:
        """What waited goes on its way, in its order."""
        self.cut.difference_update(ways)
        for passage in list(self.passages):
            passage.pump()

    def slow(self, way: Way, delay_s: float) -> None:
        """Everything takes this much longer from now on; 0 ends it."""
        self.delay_s[way] = delay_s

    def reset(self) -> None:
        """End all connections at once; what was under way is lost."""
        for passage in list(self.passages):
            passage.reset()

    def hold_connections(self) -> list[Passage]:
        """Hold what the agent sends on the connections that there are now; a new one is free."""
        held = list(self.passages)
        for passage in held:
            passage.there.held = True
        return held

    async def connect(self, passage: Passage) -> None:
        self.passages.add(passage)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: passage.master_end, LOOPBACK, self._target()
            )
        except OSError:
            passage.back.put(None)

    def forget(self, passage: Passage) -> None:
        self.passages.discard(passage)


class Passage:
    """One connection through a line: two ends and two flows between them."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.there = Flow(line, Way.THERE)
        self.back = Flow(line, Way.BACK)
        self.agent_end = End(self, out=self.there, into=self.back)
        self.master_end = End(self, out=self.back, into=self.there)

    def started(self, end: End) -> None:
        if end is self.agent_end:
            # Kept, or the task could be collected before it has connected.
            self._connecting = asyncio.get_running_loop().create_task(self.line.connect(self))

    def pump(self) -> None:
        self.there.pump()
        self.back.pump()

    def let_agent_go(self) -> None:
        """The agent's side ends; what it had sent is still under way."""
        self.agent_end.abort()

    def let_go_on(self) -> None:
        """What was held back arrives now."""
        self.there.held = False
        self.there.pump()

    def reset(self) -> None:
        self.agent_end.abort()
        self.master_end.abort()
        self.line.forget(self)

    def ended(self) -> None:
        if self.there.over and self.back.over:
            self.line.forget(self)


class End(asyncio.Protocol):
    """One side of a passage: what it reads goes `out`, what comes `into` it is written."""

    def __init__(self, passage: Passage, out: Flow, into: Flow) -> None:
        self._passage = passage
        self._out = out
        self._into = into
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports don't derive from asyncio's
        self._into.open(self._transport)  # type: ignore[arg-type]
        self._passage.started(self)

    def data_received(self, data: bytes) -> None:
        self._out.put(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._into.shut()
        self._out.put(None)
        self._passage.ended()
        self.ended.set_result(None)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Flow:
    """One direction of one connection. None in the queue is the connection's end."""

    def __init__(self, line: Line, way: Way) -> None:
        self.held = False
        self.over = False
        self._line = line
        self._way = way
        self._queue: deque[tuple[float, bytes | None]] = deque()
        self._sink: asyncio.Transport | None = None
        self._alarmed = False
        self._last_due_s = 0.0

    @property
    def waiting(self) -> int:
        """How many pieces of data (or ends) wait in it."""
        return len(self._queue)

    def open(self, sink: asyncio.Transport) -> None:
        self._sink = sink
        self.pump()

    def shut(self) -> None:
        """Nobody is there any more to whom it could be written."""
        self.over = True
        self._queue.clear()

    def put(self, data: bytes | None) -> None:
        if self.over:
            return
        due_s = asyncio.get_running_loop().time() + self._line.delay_s.get(self._way, 0.0)
        # Never before what was sent earlier, also when the line has become faster.
        self._last_due_s = due_s = max(due_s, self._last_due_s)
        self._queue.append((due_s, data))
        self.pump()

    def pump(self) -> None:
        """Pass on whatever may go now."""
        loop = asyncio.get_running_loop()
        while self._queue and self._sink is not None and not self.held and self._way not in self._line.cut:
            due_s, data = self._queue[0]
            if due_s > loop.time():
                if not self._alarmed:
                    self._alarmed = True
                    loop.call_at(due_s, self._ring)
                return
            self._queue.popleft()
            if data is None:
                self.over = True
                self._queue.clear()
                self._sink.close()
            else:
                self._sink.write(data)

    def _ring(self) -> None:
        self._alarmed = False
        self.pump()
