"""Whose a lease is, and what becomes of it when its process or its connection ends (rule 13).

Pools close, recycle and share connections behind an app's back. So a lease belongs to the process that opened
the connection which it was taken on, and ends when that process is dead *and* none of its connections is open
any more: a child may go on with one. Where it was asked for, and where the process can't be seen, it belongs
to the connection.

It becomes theirs when its reply was read. A connection that ends before that gives it back: its client has
timed out, or was recycled, and will ask again; nobody has the token. What tells whether a reply was read is
the kernel, which knows of each byte that its reader has left, up to the end of the connection (`Delivery`).
It is asked only when something is written behind a reply that may be unread, and at the end: an UNLOCK that
follows its LOCK costs nothing; and after a moment, so that the next agent knows of it too (`Port.told`). Once
something is written behind an unread reply, the end of the connection no longer tells which of both was left.
Such a lease is neither kept for nobody nor taken from a living app: it is renewed no more, and ends at its
deadline (`Fate.IN_DOUBT`).

A request that has a name may be asked for on several connections, which all tell of the one lease. The first
that was read makes it the process's; when all have ended before that, it is given back.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Protocol

from lockd.core.leases import Lease
from lockd.core.locks import Locks
from lockd.core.values import Bound


class Delivery(Enum):
    """What became of all that was written to a connection, as far as the kernel knows now."""

    READ = auto()
    UNREAD = auto()
    """The end of it was not read, and may still be."""
    CUT = auto()
    """The end of it was not read, and never will be."""


class Fate(Enum):
    """How a lease ends that nobody has given back."""

    UNTOLD = auto()
    """Its app was never told of it: free at once."""
    GONE = auto()
    """Its app is gone: free at once, or after its class's lock_delay."""
    IN_DOUBT = auto()
    """Its app may believe in it: not renewed, it ends at its deadline."""


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
        """Its other end is, by the kernel's word and not by what was read of it: somebody may go on with
        it."""

    def delivery(self) -> Delivery: ...

    def told(self, lease: Lease) -> None:
        """Its app is known to have read of it, or to know of it otherwise."""

    def outlived(self, lease: Lease) -> None:
        """Its process is dead, and somebody goes on with it: a child, on a connection that is open."""


class Telling:
    """Of a lease that several connections were to tell of, or that is given back since none has.

    tellers: those that still may. doubted: one that has ended may have been read. ends: where the end of the
    lease stands, as far as that is not done yet.
    """

    __slots__ = ("doubted", "ends", "tellers")

    def __init__(self) -> None:
        self.tellers: set[Connection] = set()
        self.doubted = False
        self.ends: Ends = {}

    def stop(self, lease: Lease) -> None:
        """It was told, or is over."""
        self.ends.pop(lease, None)
        for teller in self.tellers:
            teller.carries_no_more(lease)


class Process:
    """One that has connections, or holds leases. started: in clock ticks since boot, so that another one with
    its number is another one; 0 where that can't be seen. dead: all its threads are."""

    __slots__ = ("connections", "dead", "leases", "pid", "started", "tellings", "uid")

    def __init__(self, pid: int, started: int, uid: int) -> None:
        self.pid = pid
        self.started = started
        self.uid = uid
        self.dead = False
        self.connections: dict[Connection, None] = {}
        self.leases: dict[Lease, None] = {}
        self.tellings: dict[Lease, Telling] = {}

    @property
    def idle(self) -> bool:
        """There is nothing to know it for any more."""
        return not (self.connections or self.leases)

    @property
    def is_over(self) -> bool:
        """Nobody is left who could believe in its leases."""
        return self.dead and not self.connections

    def is_left(self, has_ended: Callable[[], bool]) -> None:
        """A connection of it is ending. The end of its last one may be that of the process, of which nothing
        was heard yet: the kernel is asked."""
        if len(self.connections) == 1 and not self.dead and has_ended():
            self.dead = True

    def died(self) -> Ends:
        """It is dead. In an ordinary death the kernel has closed its connections before: what of their end is
        still to be read need not be waited for."""
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
        """What ends with it, if it is over; each lease once."""
        if not self.is_over:
            return {}
        gone, self.leases = self.leases, {}
        return dict.fromkeys(gone, Fate.GONE)

    def forgets(self, lease: Lease) -> None:
        """It is over."""
        self.leases.pop(lease, None)
        self.is_told(lease)

    def is_told(self, lease: Lease) -> None:
        """There is nothing more to be told of it."""
        telling = self.tellings.pop(lease, None)
        if telling is not None:
            telling.stop(lease)


class Connection:
    """One connection, to the leases that were taken on it. leases: those that belong to it itself. process:
    who has opened it, if that can be seen.

    _untold: granted, and their reply not written yet; what it will be, once it is composed. _last: the reply
    of these is the last thing that was written. _covered: something was written behind theirs while they
    might be unread.
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
        """What a lease taken here can live with. Of who can't be seen only the connection's end can."""
        return Bound.CONNECTION if wanted is Bound.PROCESS and self.process is None else wanted

    @property
    def held(self) -> int:
        """How many its app has: with those of its other connections, where they belong to the process."""
        return len(self.leases) + (0 if self.process is None else len(self.process.leases))

    @property
    def in_question(self) -> bool:
        """Something was written of which it isn't known whether it was read, and matters."""
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
        """Its reply is in what is written next. Others may have the same one."""
        if lease in self._untold:
            self._untold[lease] = reply

    def named(self, lease: Lease) -> None:
        """Its app has named it: it was told. It is the process's, whatever becomes of its first reply."""
        if lease.holder.bound is Bound.PROCESS:
            self._is_told(lease)

    def _is_told(self, lease: Lease) -> None:
        lease.told = True
        self.carries_no_more(lease)
        if self.process is not None:
            self.process.is_told(lease)
        self.port.told(lease)

    def carries_no_more(self, lease: Lease) -> None:
        """Whether its reply here was read does not matter."""
        if lease in self._last:
            self._last = tuple(other for other in self._last if other is not lease)
        self._untold.pop(lease, None)
        self._covered.pop(lease, None)

    def _carries(self, lease: Lease) -> bool:
        return lease in self._last or lease in self._untold or lease in self._covered

    def tells_too(self, lease: Lease, first: "Connection | None") -> None:
        """Its app has asked for it again, here, and is told of it on this connection as well as on the first.
        What the end of others was to come to is this one's from now on; as long as one of them may still tell
        of it, no end of another gives it back. What is DETACHED lasts whoever has read of it. first: None
        where it was taken on a connection to the agent before."""
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
            telling.tellers.add(self)
            if first is not None and first._carries(lease):
                telling.tellers.add(first)
            self._untold[lease] = b""

    def _takes_from_forgotten(self, lease: Lease, before: Process | None, mine: Process) -> None:
        """It was granted when its last connection had ended, and its process was forgotten."""
        if before is not None and before is not mine and not before.connections and lease in before.leases:
            del before.leases[lease]
            mine.leases[lease] = None
            if lease in before.tellings:
                mine.tellings[lease] = before.tellings.pop(lease)

    def ended(self, lease: Lease) -> None:
        """In whatever way: it counts for nothing any more."""
        self.carries_no_more(lease)
        self.leases.pop(lease, None)
        if self.process is not None:
            self.process.forgets(lease)

    def writes(self, data: bytes) -> None:
        """This is written now, behind all that was before."""
        if self._last or self._covered:
            self._look_behind(self.port.delivery())
        if self._untold:
            self._write_untold(data)

    def look(self) -> None:
        """At what was written last, if it matters whether that was read."""
        if self._last or self._covered:
            self._look_behind(self.port.delivery(), is_written=False)

    def _look_behind(self, delivery: Delivery, *, is_written: bool = True) -> None:
        """is_written: something comes behind it now."""
        if delivery is Delivery.READ:
            self._all_read()
        elif delivery is Delivery.UNREAD and is_written:
            self._covered.update(dict.fromkeys(self._last))
            self._last = ()
        # Else nothing that is written now is read: what was left stays what is known.

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
        """It has ended. cut_off: it was the agent that closed it, for being over a limit: its app may be
        alive, and believe in what belonged to it."""
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
        """It was granted when this had ended."""
        ends: Ends = {}
        self._leaves(lease, Fate.UNTOLD, ends)
        self.carries_no_more(lease)
        return ends

    def _leaves(self, lease: Lease, fate: Fate, ends: Ends) -> None:
        """What becomes of one that this connection has not told of, for all that is known."""
        process = self.process
        if process is None or lease.holder.bound is Bound.CONNECTION:
            if fate is Fate.UNTOLD:
                ends[lease] = fate
            return
        telling = process.tellings.setdefault(lease, Telling())
        telling.tellers.discard(self)
        telling.doubted |= fate is Fate.IN_DOUBT
        # Of one that was taken over the agent before may have told.
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
