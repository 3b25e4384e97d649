"""Unix sockets between apps and their agent: what the kernel knows of each, and the agent's end of it, where
the rules of lockd/core/owners.py run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from lockd.core.claims import Claims
from lockd.core.leases import Lease
from lockd.core.locks import Locks
from lockd.core.owners import Connection, Delivery, Ends, Process, carry_out
from tests.harness.clocks import MS

_LOOKS_AFTER_NS = 5 * MS
_LOOKS = 20
_UNREAD = "its connection ended before its reply was read"


class Line:
    """What is sent on it arrives in its order. account: who pays for it. modest: the app that must not feel
    what others do here, if it is one."""

    def __init__(self, account: str, modest: str = "") -> None:
        self.account = account
        self.modest = modest
        self.last_sent_ns = 0


class Socket:
    """pid, started: the process that has opened it. agent_life: which agent has the other
    end. unread: replies that were written, and not read yet; wanted: commands that have no reply yet that was
    read."""

    def __init__(self, pid: int, started: int, agent_life: int, line: Line) -> None:
        self.pid = pid
        self.started = started
        self.agent_life = agent_life
        self.line = line
        self.is_open = True
        self.unread = 0
        self.wanted = 0
        self.last_arrives_ns = 0

    def delivery(self) -> Delivery:
        if not self.unread:
            return Delivery.READ
        return Delivery.UNREAD if self.is_open else Delivery.CUT


class AppProcess(Protocol):
    """What the kernel knows of an app. life: another number is another process."""

    life: int
    running: bool


class Serving(Protocol):
    """An agent. lag_ns: how long what ends waits for its turn, as behind thousands that end together."""

    locks: Locks
    boot_ns: Callable[[], int]
    lag_ns: Callable[[], int]

    @property
    def processes(self) -> Mapping[int, AppProcess]:
        """By pid."""

    def told(self, lease: Lease) -> None:
        """Its app is known to have read of it."""

    def wake_after(self, delay_ns: int, do: Callable[..., None], *what: Any) -> None: ...


class Waiting(Protocol):
    """A request that has no answer yet."""

    def gone(self, now_ns: int) -> None:
        """Nobody waits for it any more."""


class Session:
    """core.owners.Port: the agent's end of a socket."""

    def __init__(self, agent: Serving, socket: Socket, process: Process | None) -> None:
        self._agent = agent
        self.socket = socket
        self.ties = Connection(self, process)
        self.waiting: dict[Waiting, None] = {}
        self.is_gone = False

    @property
    def is_open(self) -> bool:
        return self.socket.is_open

    def delivery(self) -> Delivery:
        return self.socket.delivery()

    def told(self, lease: Lease) -> None:
        self._agent.told(lease)

    def outlived(self, lease: Lease) -> None:
        self._agent.locks.outlived(lease, self._agent.boot_ns())

    def writes(self, reply: bytes) -> None:
        self.ties.writes(reply)
        self.socket.unread += 1

    def grants(self, *leases: Lease) -> None:
        """Their reply. Whether that was read is looked at soon."""
        reply = b"".join(lease.token for lease in leases)
        for lease in leases:
            self.ties.tells(lease, reply)
        self.writes(reply)
        for lease in leases:
            self._agent.wake_after(_LOOKS_AFTER_NS, self._look, lease, _LOOKS)

    def _look(self, lease: Lease, times: int) -> None:
        if times and not (self.is_gone or lease.told):
            self.ties.look()
            self._agent.wake_after(_LOOKS_AFTER_NS, self._look, lease, times - 1)


class Sessions:
    """Of one agent, from its start to its end."""

    def __init__(self, agent: Serving) -> None:
        self._agent = agent
        self.claims = Claims()
        self.slots: dict[bytes, Lease] = {}
        """What requests for one of several slots were last answered, by their names."""
        self._of: dict[Socket, Session] = {}
        self._processes: dict[tuple[int, int], Process] = {}

    def of(self, socket: Socket) -> Session:
        session = self._of.get(socket)
        if session is None:
            session = self._of[socket] = Session(
                self._agent, socket, self._process(socket.pid, socket.started)
            )
        return session

    def open(self, socket: Socket) -> Session | None:
        """None: it has ended."""
        return self._of.get(socket)

    def _process(self, pid: int, started: int) -> Process | None:
        """None where it is dead already."""
        if self._has_ended(pid, started):
            return None
        return self._processes.setdefault((pid, started), Process(pid, started, 0))

    def _has_ended(self, pid: int, started: int) -> bool:
        return self._agent.processes[pid].life != started

    def inherits(self, lease: Lease) -> None:
        """Of the agent before: it lives with its process."""
        process = self._process(lease.holder.pid, lease.holder.started)
        if process is not None:
            process.leases[lease] = None

    def lease_ended(self, lease: Lease) -> None:
        """One that was inherited."""
        self.claims.ended(lease, self._agent.boot_ns())
        process = self._processes.get((lease.holder.pid, lease.holder.started))
        if process is not None:
            process.forgets(lease)
            self.forget_idle(process)

    def forget_idle(self, process: Process | None) -> None:
        """One that was forgotten before may have a lease that ends only now."""
        if process is not None and process.idle:
            name = process.pid, process.started
            if self._processes.get(name) is process:
                del self._processes[name]

    # What ends

    def ended(self, socket: Socket) -> None:
        """Its other end was closed."""
        session = self._of.pop(socket, None)
        if session is None:
            return
        session.is_gone = True
        process = session.ties.process
        if process is not None:
            process.is_left(partial(self._has_ended, process.pid, process.started))
        ends = session.ties.closed(socket.delivery())
        self._later(partial(self._withdraw, session))
        self._end(ends)
        self.forget_idle(process)

    def process_died(self, pid: int, started: int) -> None:
        process = self._processes.get((pid, started))
        if process is None:
            return
        self._end(process.died())
        self.forget_idle(process)

    def came_too_late(self, lease: Lease, session: Session) -> None:
        self._agent.wake_after(0, self._end_all, session.ties.came_too_late(lease))

    def _later(self, do: Callable[[], None]) -> None:
        lag_ns = self._agent.lag_ns()
        if lag_ns:
            self._agent.wake_after(lag_ns, do)
        else:
            do()

    def _withdraw(self, session: Session) -> None:
        while session.waiting:
            request, _ = session.waiting.popitem()
            request.gone(self._agent.boot_ns())

    def _end(self, ends: Ends) -> None:
        if ends:
            self._later(partial(self._end_all, ends))

    def _end_all(self, ends: Ends) -> None:
        """What ends is taken out, also by its connection when it hears of that."""
        while ends:
            lease, fate = ends.popitem()
            carry_out(fate, lease, self._agent.locks, _UNREAD, self._agent.boot_ns())
