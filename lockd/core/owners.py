"""Whose a lease is, and what becomes of it when its process or its connection ends (rule 13).

Pools close, recycle and share connections behind an app's back. So a lease belongs to the process that opened
the connection which it was taken on, and ends when that process is dead *and* none of its connections is open
any more: a child may go on with one. Where it was asked for, and where the process can't be seen, it belongs
to the connection.

It becomes theirs when its reply was read. A connection that ends before that gives it back: its client has
timed out, or was recycled, and will ask again; nobody has the token. What tells whether a reply was read is
the kernel, which knows of each byte that its reader has left, up to the end of the connection (`Delivery`).
It is asked only when something is written behind a reply that may be unread, and at the end: an UNLOCK that
follows its LOCK costs nothing. Once something is written behind an unread reply, the end of the connection no
longer tells which of both was left. Such a lease is neither kept for nobody nor taken from a living app: it
is renewed no more, and ends at its deadline (`Fate.IN_DOUBT`).
"""

from collections.abc import Iterable
from enum import Enum, auto
from typing import Protocol

from lockd.core.leases import Lease
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


class Port(Protocol):
    """The connection itself."""

    @property
    def is_open(self) -> bool:
        """Its other end is, by the kernel's word and not by what was read of it: somebody may go on with
        it."""

    def delivery(self) -> Delivery: ...


class Process:
    """One that has connections, or holds leases. started: in clock ticks since boot, so that another one with
    its number is another one; 0 where that can't be seen. dead: all its threads are."""

    __slots__ = ("connections", "dead", "leases", "pid", "started", "uid")

    def __init__(self, pid: int, started: int, uid: int) -> None:
        self.pid = pid
        self.started = started
        self.uid = uid
        self.dead = False
        self.connections: set[Connection] = set()
        self.leases: set[Lease] = set()

    @property
    def idle(self) -> bool:
        """There is nothing to know it for any more."""
        return not (self.connections or self.leases)

    @property
    def is_over(self) -> bool:
        """Nobody is left who could believe in its leases."""
        return self.dead and not self.connections

    def died(self) -> Ends:
        """It is dead. In an ordinary death the kernel has closed its connections before: what of their end is
        still to be read need not be waited for."""
        self.dead = True
        self.connections = {connection for connection in self.connections if connection.port.is_open}
        return self.ends()

    def ends(self) -> Ends:
        """What ends with it, if it is over; each lease once."""
        if not self.is_over:
            return {}
        gone, self.leases = self.leases, set()
        return dict.fromkeys(gone, Fate.GONE)


class Connection:
    """One connection, to the leases that were taken on it. leases: those that belong to it itself. process:
    who has opened it, if that can be seen.

    _untold: granted, and their reply not written yet; what it will be, once it is composed. _last: the reply
    of these is the last thing that was written. _covered: something was written behind theirs while they
    might be unread. _ends: what its end is to come to, as far as that is not done yet.
    """

    __slots__ = ("_covered", "_ends", "_last", "_untold", "leases", "port", "process")

    def __init__(self, port: Port, process: Process | None) -> None:
        self.port = port
        self.process = process
        self.leases: dict[Lease, None] = {}
        self._untold: dict[Lease, bytes] = {}
        self._last: tuple[Lease, ...] = ()
        self._covered: dict[Lease, None] = {}
        self._ends: Ends = {}
        if process is not None:
            process.connections.add(self)

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
            self.process.leases.add(lease)
        else:
            self.leases[lease] = None

    def tells(self, lease: Lease, reply: bytes) -> None:
        """Its reply is in what is written next. Others may have the same one."""
        if lease in self._untold:
            self._untold[lease] = reply

    def named(self, lease: Lease) -> None:
        """Its app has named it: it was told."""
        if lease in self._last:
            self._last = tuple(other for other in self._last if other is not lease)
        else:
            self._untold.pop(lease, None)
            self._covered.pop(lease, None)

    def told_elsewhere(self, lease: Lease) -> None:
        """Another connection has told of it: it is the process's, whatever becomes of its first reply."""
        if lease.holder.bound is Bound.PROCESS:
            self.named(lease)
            if self._ends.get(lease) is not Fate.GONE:
                self._ends.pop(lease, None)

    def hands_on(self, lease: Lease, to: "Connection") -> None:
        """Its app has asked for it again, and is told of it on another connection. What this one's end was to
        come to is the other's from now on; while this one is open, either may tell of it, and neither gives
        it back."""
        if to is not self:
            untold = self._ends.pop(lease, None) is not None
            self.named(lease)
            mine, theirs = self.process, to.process
            if mine is not theirs and mine and theirs and not mine.connections and lease in mine.leases:
                # It was granted when its last connection had ended, and its process was forgotten.
                mine.leases.discard(lease)
                theirs.leases.add(lease)
            if untold:
                to._untold[lease] = b""

    def ended(self, lease: Lease) -> None:
        """In whatever way: it counts for nothing any more."""
        self.named(lease)
        self._ends.pop(lease, None)
        self.leases.pop(lease, None)
        if self.process is not None:
            self.process.leases.discard(lease)

    def writes(self, data: bytes) -> None:
        """This is written now, behind all that was before."""
        if self._last or self._covered:
            self._look_behind(self.port.delivery())
        if self._untold:
            self._write_untold(data)

    def _look_behind(self, delivery: Delivery) -> None:
        if delivery is Delivery.READ:
            self._last = ()
            self._covered.clear()
        elif delivery is Delivery.UNREAD:
            self._covered.update(dict.fromkeys(self._last))
            self._last = ()
        # Else nothing that is written now is read: what was left stays what is known.

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
            process.connections.discard(self)
            ends.update(process.ends())
            if not process.is_over:
                ends.update((lease, Fate.IN_DOUBT) for lease in self._in_doubt(delivery) if lease not in ends)
        ends.update((lease, Fate.UNTOLD) for lease in self._never_told(delivery))
        self._ends = ends
        return ends

    def _in_doubt(self, delivery: Delivery) -> Iterable[Lease]:
        if delivery is Delivery.READ:
            return ()
        return (*self._covered, *(self._last if delivery is Delivery.UNREAD else ()))

    def _never_told(self, delivery: Delivery) -> Iterable[Lease]:
        return (*self._untold, *(self._last if delivery is Delivery.CUT else ()))
