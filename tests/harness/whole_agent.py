"""An agent whose rules, connections and commands are the real ones, over simulated masters and without
sockets of apps. Its time is virtual."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockd import clock
from lockd.config.current import Current
from lockd.core.turns import Turns
from lockd.metrics.collector import Metrics
from lockd.server import session as session_module
from lockd.server.commands.table import Commands
from lockd.server.peer import Peer
from lockd.server.session import Session
from lockd.server.turns import LoopTurns
from tests.harness.configs import a_config
from tests.harness.fleet_model import Host, Time, masters_of
from tests.harness.real_fleet import a_fleet
from tests.harness.sessions import AroundSessions, Incidents, Transport

_IDLE_TURNS = 6
"""Of the loop: what is called soon calls others soon."""
OURS = 0
"""The uid whose connections are seen to be of a process, which is this one. Others are of none that is
seen."""


def _raise(failure: Exception) -> None:
    raise failure


class Wire:
    """An app's connection."""

    def __init__(self, agent: WholeAgent, uid: int) -> None:
        self.agent = agent
        self.uid = uid
        self.transport = Transport()
        self.session = Session(cast("Any", agent.shared), agent.commands)
        with pytest.MonkeyPatch.context() as patch:
            peer = Peer(os.getpid() if uid == OURS else 0, uid, frozenset())
            patch.setattr(session_module.Peer, "of", lambda _connection: peer)
            self.session.connection_made(cast("Any", self.transport))

    async def asks(self, *words: object) -> bytes:
        """What it is told at once: within one turn of everything, while no time passes."""
        self.sends(*words)
        await self.agent.settles()
        written, self.transport.written = self.transport.written, b""
        return written

    def sends(self, *words: object) -> None:
        raw = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.session.data_received(
            b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in raw)
        )

    async def locks(self, *words: object) -> bytes:
        """The token of the lease that it gets."""
        reply = await self.asks("LOCK", *words)
        found = re.search(rb"token\r\n\$\d+\r\n([^\r]+)", reply)
        assert found is not None, reply
        return found[1]

    def closes(self) -> None:
        if not self.session.is_gone:
            self.session.connection_lost(None)
        self.transport.end()


class WholeAgent:
    def __init__(self, time: Time, **settings: Any) -> None:
        self.host = Host(time, masters_of(time))
        self.current = Current(a_config(canary_ms=0, **settings))
        self.incidents = Incidents()
        self.shared = AroundSessions(
            locks=self.host.locks,
            turns=LoopTurns(Turns(), _raise),
            incidents=self.incidents,
            current=self.current,
            permissions=SimpleNamespace(may_lock=lambda *_: True, is_admin=lambda _peer: False),
        )
        self.quotas = self.shared.quotas
        shared = cast("Any", self.shared)
        metrics = Metrics(self.current)
        self.commands = Commands(self.current, shared, a_fleet(), metrics, cast("Any", None))
        self.wires: list[Wire] = []

    def connects(self, uid: int = OURS) -> Wire:
        wire = Wire(self, uid)
        self.wires.append(wire)
        return wire

    async def settles(self) -> None:
        """Everything is done that can be done at this moment."""
        idle = 0
        while idle < _IDLE_TURNS:
            self.host.fleet.settle()
            self.host.locks.turns.run(self.host.time.now_ns)
            await asyncio.sleep(0)
            idle = 0 if self._is_busy else idle + 1

    @property
    def _is_busy(self) -> bool:
        asked = any(link.is_busy and not link.slow for link in self.host.fleet.links)
        return asked or self.shared.endings.busy

    async def passes(self, ms: float) -> None:
        self.host.pass_ms(ms)
        self.shared.buffers.cut_off_the_deaf(self.host.time.now_ns)
        await self.settles()

    def process_dies(self) -> None:
        """That of our connections, which are closed before."""
        for process in list(self.shared.processes.all):
            self.shared.endings.end(process.died())
            if process.idle:
                self.shared.processes.forget(process)

    def ends(self) -> None:
        for wire in self.wires:
            wire.closes()


@contextmanager
def a_whole_agent(**settings: Any) -> Iterator[WholeAgent]:
    """All of the agent's modules read its time: where the clock itself is read, since what is compiled calls
    `boottime_ns` without looking for it."""
    time = Time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "clock_gettime_ns", lambda _clock: time.now_ns)
        agent = WholeAgent(time, **settings)
        try:
            yield agent
        finally:
            agent.ends()
