"""Leases that were lost. They are remembered, so that a command that names one by its token gets the reason,
and reported if the app asked for that (rule 12)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from lockd.core.errors import ErrorWord
from lockd.core.leases import Lease
from lockd.core.owners import Connection as Ties
from lockd.core.owners import Process
from lockd.core.tables import Table
from lockd.core.values import Refusal

_MOST, _FLOOR = 20_000, 100
_OBJECT_BYTES = 500
"""The size of a loss without its text."""

ProcessName = tuple[int, int]
"""Its pid, and when it began."""

LeaseName = tuple[bytes, bytes]
"""The resource and the token: apps may choose the token, and use one for several resources."""


@dataclass(frozen=True, slots=True)
class LostLease:
    """untold: the process that took it on a connection to the previous agent, and has no connection yet that
    wants to hear of it."""

    resource: bytes
    token: bytes
    reason: str
    deadline_ns: int
    untold: ProcessName | None = None

    @property
    def name(self) -> LeaseName:
        return self.resource, self.token

    @property
    def refusal(self) -> Refusal:
        """The answer to a command that names it, or that has to bring the news."""
        name = self.resource.decode(errors="backslashreplace")
        return Refusal(ErrorWord.EXPIRED, f"the lease of '{name}' was lost: {self.reason}")

    @property
    def size(self) -> int:
        return _OBJECT_BYTES + len(self.resource) + len(self.reason)


class LossListener(Protocol):
    """A connection that brings its app the news. notifies: it has said NOTIFY."""

    ties: Ties
    notifies: bool

    @property
    def account(self) -> str: ...

    @property
    def hears(self) -> bool:
        """It can be told now."""

    def tell(self, kind: bytes, resource: bytes, token: bytes, deadline_ns: int) -> None: ...

    def tell_lost(self, lost: LostLease) -> None: ...

    def knows_of(self, name: LeaseName) -> None:
        """It need not be told any more."""


class Losses:
    """The latest losses of each account: a flood of one's losses does not push out another's."""

    def __init__(self) -> None:
        self._by_name: dict[LeaseName, LostLease] = {}
        self._of_account = Table[tuple[str, LeaseName], LostLease](_MOST, _FLOOR)
        self._listening: dict[Process, dict[LossListener, None]] = {}
        self._untold: dict[ProcessName, dict[LeaseName, LostLease]] = {}
        """Losses of leases that were taken over, as long as they are remembered, until a connection of their
        process has said NOTIFY again. The process may be a new object by then."""

    def of(self, name: LeaseName) -> LostLease | None:
        """How this lease was lost, as far as that is remembered."""
        return self._by_name.get(name)

    def begins_anew(self, name: LeaseName) -> None:
        """A new request has that name: the loss belongs to the one before."""
        self._by_name.pop(name, None)

    def granted_anew(self, session: LossListener, name: LeaseName) -> None:
        """A lease is held under that name, and this connection was told of it. An earlier lease may have been
        lost while this one waited, or before: news of that would be mistaken for news of this one."""
        # Once the request began anew, it is remembered only among its account's.
        lost = self._by_name.pop(name, None) or self._of_account.get((session.account, name))
        if lost:
            self._waits_no_more(lost)
            self.told(session, name)

    def happened(self, session: LossListener, lease: Lease, reason: str) -> None:
        """A lease was lost that this connection had taken."""
        lost = LostLease(lease.resource, lease.token, reason, lease.deadline_ns)
        self._remember(session.account, lost)
        if session.notifies:
            self._tell(session, lost)

    def happened_to(self, process: Process | None, account: str, lease: Lease, reason: str) -> None:
        """A lease was lost that this process had taken on a connection to the previous agent."""
        listener = None if process is None else self.listener_of(process)
        waits = process is not None and lease.holder.notify and listener is None
        whose = (process.pid, process.started) if process is not None and waits else None
        lost = LostLease(lease.resource, lease.token, reason, lease.deadline_ns, whose)
        self._remember(account, lost)
        if whose is not None:
            self._untold.setdefault(whose, {})[lost.name] = lost
        elif listener is not None and lease.holder.notify:
            listener.tell_lost(lost)

    def listener_of(self, process: Process) -> LossListener | None:
        """A connection of the process that wants to hear, and can."""
        return next((one for one in self._listening.get(process, ()) if one.hears), None)

    def _remember(self, account: str, lost: LostLease) -> None:
        self._by_name[lost.name] = lost
        self._waits_no_more(self._of_account.get((account, lost.name)))
        for forgotten in self._of_account.put(account, (account, lost.name), lost):
            if self._by_name.get(forgotten.name) is forgotten:
                del self._by_name[forgotten.name]
            self._waits_no_more(forgotten)

    def _waits_no_more(self, lost: LostLease | None) -> None:
        """For a connection that wants to hear of it."""
        if lost is not None and lost.untold is not None:
            of_process = self._untold.get(lost.untold, {})
            of_process.pop(lost.name, None)
            if not of_process:
                self._untold.pop(lost.untold, None)

    # Telling

    def listens(self, session: LossListener) -> None:
        """This connection has said NOTIFY."""
        process = session.ties.process
        if process is not None:
            self._listening.setdefault(process, {})[session] = None
            for lost in self._untold.pop((process.pid, process.started), {}).values():
                session.tell_lost(lost)

    def listens_no_more(self, session: LossListener, untold: list[LostLease]) -> None:
        """It has ended before it could be told of these."""
        process = session.ties.process
        if process is None:
            return
        listening = self._listening[process]
        del listening[session]
        for lost in untold:
            self._tell(session, lost)
        if not listening:
            del self._listening[process]

    def _tell(self, session: LossListener, lost: LostLease) -> None:
        """Told on the connection itself, or if that has ended, on another one of the process that wants to
        hear. If the process can't be seen, no other is known."""
        if session.hears:
            session.tell_lost(lost)
        elif (
            other := next((other for other in self._of_its_process(session) if other.hears), None)
        ) is not None:
            other.tell_lost(lost)

    def _of_its_process(self, session: LossListener) -> Iterable[LossListener]:
        process = session.ties.process
        return (session,) if process is None else self._listening.get(process, ())

    def told(self, session: LossListener, name: LeaseName) -> None:
        """A reply on this connection has reported it: its process is not told a second time."""
        session.knows_of(name)
        for other in self._of_its_process(session):
            other.knows_of(name)
