"""Leases that were lost: kept for who names one by its token, and told where that was asked for (rule 12)."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from lockd.core.errors import ErrorWord
from lockd.core.leases import Lease
from lockd.core.owners import Connection as Ties
from lockd.core.owners import Process
from lockd.core.values import Refusal
from lockd.server.peer import Peer

_OF_A_USER = 1_000
_IN_ALL = 20_000
_OBJECT_BYTES = 500
"""Of a loss, besides its text."""

LeaseName = tuple[bytes, bytes]
"""The resource, and the token: apps may choose that, and the same for several resources."""


@dataclass(frozen=True, slots=True)
class LostLease:
    resource: bytes
    token: bytes
    reason: str
    deadline_ns: int

    @property
    def name(self) -> LeaseName:
        return self.resource, self.token

    @property
    def refusal(self) -> Refusal:
        """What a command gets that names it, or that has to bring the news."""
        name = self.resource.decode(errors="backslashreplace")
        return Refusal(ErrorWord.EXPIRED, f"the lease of '{name}' was lost: {self.reason}")

    @property
    def size(self) -> int:
        return _OBJECT_BYTES + len(self.resource) + len(self.reason)


class LossListener(Protocol):
    """A connection, to whoever brings it the news. notifies: it has said NOTIFY."""

    peer: Peer
    ties: Ties
    notifies: bool

    @property
    def hears(self) -> bool:
        """It can be told now."""

    def tell(self, kind: bytes, resource: bytes, token: bytes, deadline_ns: int) -> None: ...

    def tell_lost(self, lost: LostLease) -> None: ...

    def knows_of(self, name: LeaseName) -> None:
        """It need not be told any more."""


class Losses:
    """The latest of each user: a flood of one user's makes nobody else's be forgotten."""

    def __init__(self) -> None:
        self._by_name: dict[LeaseName, LostLease] = {}
        self._of_user: defaultdict[int, OrderedDict[LeaseName, None]] = defaultdict(OrderedDict)
        self._listening: dict[Process, dict[LossListener, None]] = {}
        self._before: dict[Process, list[LostLease]] = {}
        """Of leases that were taken over, until a connection of their process has said NOTIFY again."""

    def of(self, name: LeaseName) -> LostLease | None:
        """How this lease was lost, as far as that is remembered."""
        return self._by_name.get(name)

    def begins_anew(self, name: LeaseName) -> None:
        """A new request has that name: what was lost is of the one before."""
        self._by_name.pop(name, None)

    def happened(self, session: LossListener, lease: Lease, reason: str) -> None:
        """A lease was lost that this connection had taken."""
        lost = LostLease(lease.resource, lease.token, reason, lease.deadline_ns)
        self._remember(session.peer.uid, lost)
        if session.notifies:
            self._tell(session, lost)

    def happened_to(self, process: Process | None, uid: int, lease: Lease, reason: str) -> None:
        """A lease was lost that this process had taken on a connection to the agent before."""
        lost = LostLease(lease.resource, lease.token, reason, lease.deadline_ns)
        self._remember(uid, lost)
        if process is None or not lease.holder.notify:
            return
        listener = self.listener_of(process)
        if listener is not None:
            listener.tell_lost(lost)
        else:
            self._before.setdefault(process, []).append(lost)

    def listener_of(self, process: Process) -> LossListener | None:
        """A connection of it that wants to hear, and can."""
        return next((one for one in self._listening.get(process, ()) if one.hears), None)

    def _remember(self, uid: int, lost: LostLease) -> None:
        self._by_name[lost.name] = lost
        of_user = self._of_user[uid]
        of_user[lost.name] = None
        if len(of_user) > _OF_A_USER:
            self._forget_one_of(uid)
        elif len(self._by_name) > _IN_ALL:
            self._forget_one_of(max(self._of_user, key=lambda user: len(self._of_user[user])))

    def _forget_one_of(self, uid: int) -> None:
        name, _ = self._of_user[uid].popitem(last=False)
        self._by_name.pop(name, None)
        if not self._of_user[uid]:
            del self._of_user[uid]

    # Telling

    def listens(self, session: LossListener) -> None:
        """This connection has said NOTIFY."""
        if session.ties.process is not None:
            self._listening.setdefault(session.ties.process, {})[session] = None
            for lost in self._before.pop(session.ties.process, ()):
                session.tell_lost(lost)

    def listens_no_more(self, session: LossListener, untold: list[LostLease]) -> None:
        """It has ended, before it could be told of these."""
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
        """On the connection itself; when that has ended, on another one of the process that wants to hear. Of
        who can't be seen no other is known."""
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
        """A reply on this connection has said it: its process is told nowhere once more."""
        session.knows_of(name)
        for other in self._of_its_process(session):
            other.knows_of(name)
