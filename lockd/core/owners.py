"""Whose a lease is, and what happens to it when its process or its connection ends (rule 13).

Pools close, recycle and share connections without the app's knowledge. So a lease belongs to the process that
opened the connection on which it was taken. It ends when that process is dead *and* none of its connections
is open any more: a child may go on with one. If the app asked for it, or the process can't be seen, the lease
belongs to the connection.

It becomes theirs when its reply was read. A connection that ends before that gives it back: its client has
timed out, or was recycled, and will ask again, and nobody has the token. Whether a reply was read, the kernel
knows: it counts the bytes that the reader has left, up to the end of the connection (`Delivery`). It is asked
only when something is written after a reply that may be unread, and when the connection ends, so an UNLOCK
that follows its LOCK costs nothing. It is also asked after a moment, so that the next agent knows of it
(`Port.told`). Once something was written after an unread reply, the end of the connection does not tell which
of the two was left. Such a lease is neither kept for nobody nor taken from a living app: it is not renewed
any more, and ends at its deadline (`Fate.IN_DOUBT`).

A request that has a name may be asked for on several connections, which all tell of the one lease. The first
reply that was read makes it the process's. When all connections have ended before that, it is given back.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Protocol

from lockd.core.leases import Lease
from lockd.core.locks import Locks
from lockd.core.values import Bound


class Delivery(Enum):
    """What happened to everything that was written to a connection, as far as the kernel knows now."""

    READ = auto()
    UNREAD = auto()
    """The last bytes were not read, and still may be."""
    CUT = auto()
    """The last bytes were not read, and never will be."""


class Fate(Enum):
    """How a lease ends that its app has not given back."""

    UNTOLD = auto()
    """Its app was never told of it: free at once."""
    GONE = auto()
    """Its app is gone: free at once, or after its class's lock_delay."""
    IN_DOUBT = auto()
    """Its app may believe in it: it is not renewed, and ends at its deadline."""


Ends = dict[Lease, Fate]


def carry_out(fate: Fate, lease: Lease, locks: Locks, doubt: str, now_ns: int) -> None:
    """doubt: why it ends, if its app may believe in it."""
    if fate is Fate.GONE:
        locks.holder_gone(lease, now_ns)
    elif fate is Fate.UNTOLD:
        locks.untold(lease, now_ns)
    else:
        locks.cut_off(lease, doubt, now_ns)


class Port(Protocol):
    """The connection itself."""

    @property
    def is_open(self) -> bool:
        """Whether its other end is still open, judged by the kernel and not by what was read: another process
        may go on with it."""

    def delivery(self) -> Delivery: ...

    def told(self, lease: Lease) -> None:
        """Its app is known to have read of it, or to know of it in another way."""

    def outlived(self, lease: Lease) -> None:
        """Its process is dead, and a child goes on with it, on a connection that is open."""


class Telling:
    """For a lease that several connections may tell of, or that is given back because none has.

    tellers: those that still may tell of it. doubted: one that has ended may have been read. ends: where the
    end of the lease is noted until it is carried out.
    """

    __slots__ = ("doubted", "ends", "tellers")

    def __init__(self) -> None:
        self.tellers: dict[Connection, None] = {}
        self.doubted = False
        self.ends: Ends = {}

    def stop(self, lease: Lease) -> None:
        """Its app was told, or it is over."""
        self.ends.pop(lease, None)
        for teller in self.tellers:
            teller.carries_no_more(lease)


class Process:
    """A process that has connections or holds leases. started: in clock ticks since boot, so that a later
    process with the same pid is told apart; 0 if that can't be seen. dead: all its threads are. account: who
    pays for it."""

    __slots__ = ("account", "connections", "dead", "leases", "pid", "started", "tellings", "uid")

    def __init__(self, pid: int, started: int, uid: int, account: str = "") -> None:
        self.pid = pid
        self.started = started
        self.uid = uid
        self.account = account
        self.dead = False
        self.connections: dict[Connection, None] = {}
        self.leases: dict[Lease, None] = {}
        self.tellings: dict[Lease, Telling] = {}

    @property
    def idle(self) -> bool:
        """There is no reason to know it any more."""
        return not (self.connections or self.leases)

    @property
    def is_over(self) -> bool:
        """Nobody is left that could believe in its leases."""
        return self.dead and not self.connections

    def is_left(self, has_ended: Callable[[], bool]) -> None:
        """One of its connections is ending. If it is the last one, the process may have ended without being
        noticed yet: the kernel is asked."""
        if len(self.connections) == 1 and not self.dead and has_ended():
            self.dead = True

    def died(self) -> Ends:
        """It is dead. In an ordinary death the kernel has closed its connections before, so there is no need
        to wait until their end is read."""
        self.dead = True
        self.connections = {one: None for one in self.connections if one.port.is_open}
        for connection in self.connections:
            for lease in connection.leases:
                connection.port.outlived(lease)
        if self.connections:
            port = next(iter(self.connections)).port
            for lease in self.leases:
                port.outlived(lease)
        return self.ends()

    def ends(self) -> Ends:
        """The leases that end with it, if it is over; each only once."""
        if not self.is_over:
            return {}
        gone, self.leases = self.leases, {}
        return dict.fromkeys(gone, Fate.GONE)

    def forgets(self, lease: Lease) -> None:
        """This lease is over."""
        self.leases.pop(lease, None)
        self.is_told(lease)

    def is_told(self, lease: Lease) -> None:
        """There is nothing more to tell about this lease."""
        telling = self.tellings.pop(lease, None)
        if telling is not None:
            telling.stop(lease)


class Connection:
    """One connection, as seen from the leases that were taken on it. leases: those that belong to the
    connection itself. process: the process that opened it, if that can be seen.

    _untold: leases that were granted and whose reply is not written yet; the value is the reply, once it is
    composed. _last: the leases whose reply is the last thing that was written. _covered: leases whose reply
    may be unread and after which something else was written.
    """

    __slots__ = ("_covered", "_last", "_untold", "leases", "port", "process")

    def __init__(self, port: Port, process: Process | None) -> None:
        self.port = port
        self.process = process
        self.leases: dict[Lease, None] = {}
        self._untold: dict[Lease, bytes] = {}
        self._last: tuple[Lease, ...] = ()
        self._covered: dict[Lease, None] = {}
        if process is not None:
            process.connections[self] = None

    def bound(self, wanted: Bound) -> Bound:
        """What a lease taken here can be bound to. If the process can't be seen, only the end of the
        connection can."""
        return Bound.CONNECTION if wanted is Bound.PROCESS and self.process is None else wanted

    @property
    def held(self) -> int:
        """How many leases its app has. If they belong to the process, those of its other connections count,
        too."""
        return len(self.leases) + (0 if self.process is None else len(self.process.leases))

    @property
    def in_question(self) -> bool:
        """It is not known whether something was read, and that matters."""
        return bool(self._last or self._covered)

    def granted(self, lease: Lease) -> None:
        """A LOCK on this connection was granted."""
        self._untold[lease] = b""
        if lease.holder.bound is Bound.PROCESS and self.process is not None:
            self.process.leases[lease] = None
        else:
            self.leases[lease] = None
        if self.process is not None and self.process.dead:
            self.port.outlived(lease)

    def tells(self, lease: Lease, reply: bytes) -> None:
        """Its reply is part of what is written next. Several requests may have the same lease."""
        if lease in self._untold:
            self._untold[lease] = reply

    def named(self, lease: Lease) -> None:
        """Its app has named it, so it was told. It is the process's, whatever happens to its first reply."""
        if lease.holder.bound is Bound.PROCESS:
            self._is_told(lease)

    def _is_told(self, lease: Lease) -> None:
        lease.told = True
        self.carries_no_more(lease)
        if self.process is not None:
            self.process.is_told(lease)
        self.port.told(lease)

    def carries_no_more(self, lease: Lease) -> None:
        """It does not matter any more whether its reply here was read."""
        if lease in self._last:
            self._last = tuple(other for other in self._last if other is not lease)
        self._untold.pop(lease, None)
        self._covered.pop(lease, None)

    def has_written(self, lease: Lease) -> bool:
        """Its app may have read of it here."""
        return lease in self._last or lease in self._covered

    def _carries(self, lease: Lease) -> bool:
        return lease in self._last or lease in self._untold or lease in self._covered

    def tells_too(self, lease: Lease, first: "Connection | None") -> None:
        """Its app has asked for it again, and is told of it on this connection as well as on the first. This
        connection takes over what the end of others would have caused. As long as one of them may still tell
        of it, the end of another does not give it back. A DETACHED lease lasts whether or not it was read of.
        first: None if it was taken on a connection to the previous agent."""
        mine = self.process
        if mine is None:
            return
        if lease.holder.bound is not Bound.PROCESS:
            mine.is_told(lease)
            return
        if first is not None:
            self._takes_from_forgotten(lease, first.process, mine)
        if not lease.told and first is not self:
            telling = mine.tellings.setdefault(lease, Telling())
            telling.ends.pop(lease, None)
            telling.tellers[self] = None
            if first is not None and first._carries(lease):
                telling.tellers[first] = None
            self._untold[lease] = b""

    def _takes_from_forgotten(self, lease: Lease, before: Process | None, mine: Process) -> None:
        """It was granted after its last connection had ended and its process was forgotten."""
        if before is not None and before is not mine and not before.connections and lease in before.leases:
            del before.leases[lease]
            mine.leases[lease] = None
            if lease in before.tellings:
                mine.tellings[lease] = before.tellings.pop(lease)

    def ended(self, lease: Lease) -> None:
        """It is over, in whatever way: it does not count any more."""
        self.carries_no_more(lease)
        self.leases.pop(lease, None)
        if self.process is not None:
            self.process.forgets(lease)

    def writes(self, data: bytes) -> None:
        """This is written now, after everything before."""
        if self._last or self._covered:
            self._look_behind(self.port.delivery())
        if self._untold:
            self._write_untold(data)

    def look(self) -> None:
        """Look at what was written last, if it matters whether that was read."""
        if self._last or self._covered:
            self._look_behind(self.port.delivery(), is_written=False)

    def _look_behind(self, delivery: Delivery, *, is_written: bool = True) -> None:
        """is_written: something follows it now."""
        if delivery is Delivery.READ:
            self._all_read()
        elif delivery is Delivery.UNREAD and is_written:
            self._covered.update(dict.fromkeys(self._last))
            self._last = ()
        # Otherwise nothing that is written now will be read: what was left stays known.

    def _all_read(self) -> None:
        read = (*self._covered, *self._last)
        self._last = ()
        self._covered.clear()
        for lease in read:
            self._is_told(lease)

    def _write_untold(self, data: bytes) -> None:
        untold = self._untold
        for lease, reply in tuple(untold.items()):
            if reply:
                del untold[lease]
                if data.endswith(reply):
                    self._last = (*self._last, lease)
                else:
                    self._covered[lease] = None

    def closed(self, delivery: Delivery, *, cut_off: bool = False) -> Ends:
        """The connection has ended. cut_off: the agent closed it because it was over a limit, so its app may
        be alive and believe in its leases."""
        ends: dict[Lease, Fate] = dict.fromkeys(self.leases, Fate.IN_DOUBT if cut_off else Fate.GONE)
        process = self.process
        if process is not None:
            process.connections.pop(self, None)
            ends.update(process.ends())
        if delivery is Delivery.READ:
            self._all_read()
        for lease in self._in_doubt(delivery):
            self._leaves(lease, Fate.IN_DOUBT, ends)
        for lease in self._never_told(delivery):
            self._leaves(lease, Fate.UNTOLD, ends)
        self._untold, self._last, self._covered = {}, (), {}
        return ends

    def came_too_late(self, lease: Lease) -> Ends:
        """It was granted after this connection had ended."""
        ends: Ends = {}
        self._leaves(lease, Fate.UNTOLD, ends)
        self.carries_no_more(lease)
        return ends

    def _leaves(self, lease: Lease, fate: Fate, ends: Ends) -> None:
        """What happens to a lease of which this connection has not told, as far as is known."""
        process = self.process
        if process is None or lease.holder.bound is Bound.CONNECTION:
            if fate is Fate.UNTOLD:
                ends[lease] = fate
            return
        telling = process.tellings.setdefault(lease, Telling())
        telling.tellers.pop(self, None)
        telling.doubted |= fate is Fate.IN_DOUBT
        # If it was taken over, the previous agent may have told of it.
        if telling.tellers or lease.inherited is not None:
            return
        if not telling.doubted:
            ends[lease] = Fate.UNTOLD
        elif not process.is_over:
            ends[lease] = Fate.IN_DOUBT
        if not process.is_over:
            telling.ends = ends

    def _in_doubt(self, delivery: Delivery) -> Iterable[Lease]:
        return (*self._covered, *(self._last if delivery is Delivery.UNREAD else ()))

    def _never_told(self, delivery: Delivery) -> Iterable[Lease]:
        return (*self._untold, *(self._last if delivery is Delivery.CUT else ()))
