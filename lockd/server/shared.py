"""What the connections of an agent share: the locks, the limits, and what looks after all connections."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from lockd.config.current import Current
from lockd.config.model import Limits
from lockd.core.claims import Claims
from lockd.core.locks import Locks
from lockd.core.owners import Connection as Ties
from lockd.server.accounts import AccountOf
from lockd.server.buffers import Buffers
from lockd.server.endings import Endings
from lockd.server.incidents import Incidents
from lockd.server.inlets import Inlets
from lockd.server.log import EventLog
from lockd.server.losses import Losses
from lockd.server.peer import Permissions
from lockd.server.processes import Processes
from lockd.server.quotas import Quotas
from lockd.server.tellings import Tellings
from lockd.server.turns import LoopTurns


class Connection(Protocol):
    """An open connection, as seen by the agent that stops."""

    ties: Ties
    for_operators: bool

    def close(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class Shared:
    """stopped: the agent leaves holders what they hold. current, permissions: replaced by a reload, so never
    keep them elsewhere. There are permissions before anybody is let in."""

    host: bytes
    current: Current
    locks: Locks
    turns: LoopTurns
    account_of: AccountOf
    quotas: Quotas
    buffers: Buffers
    incidents: Incidents
    log: EventLog
    losses: Losses = field(default_factory=Losses)
    claims: Claims = field(default_factory=Claims)
    permissions: Permissions = field(init=False)
    inlets: Inlets = field(init=False)
    tellings: Tellings = field(init=False)
    endings: Endings = field(init=False)
    processes: Processes = field(init=False)
    sessions: set[Connection] = field(default_factory=set)
    next_session_id: Callable[[], int] = field(default_factory=lambda: count(1).__next__)
    stopped: bool = False
    _kept: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.inlets = Inlets(self.turns)
        self.tellings = Tellings(self.turns)
        self.endings = Endings(self.locks, self.turns)
        self.processes = Processes(self.endings.end, self.quotas, self.account_of)

    @property
    def limits(self) -> Limits:
        return self.current.config.limits

    def keep(self, task: asyncio.Task[None]) -> None:
        """An operator's change is carried out to its end, even if the operator's connection closes."""
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)
