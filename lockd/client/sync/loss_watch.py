"""The one thread of a process that watches leases for their holders (`on_lost`).

It sleeps in the kernel until an agent says something or closes a connection, or until a lease should have
been renewed: an agent that hangs says nothing at all. Callbacks run in separate threads, because the next
loss can't wait for what an app does about the first.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import suppress
from threading import RLock, Thread
from typing import Any, Protocol
from weakref import ref

from lockd.client.forks import survive_forks
from lockd.client.state import LONGEST_SLEEP_S, View
from lockd.client.sync.resumer import resumer
from lockd.clock import boottime_ns

_NEVER_NS = 1 << 63


class Watchable(Protocol):
    """A lease, as its watcher sees it."""

    @property
    def view(self) -> View: ...

    @property
    def file(self) -> int:
        """The number of its connection; -1 when it has none."""

    def listen(self) -> None:
        """Read what the agent has said, without waiting for it or for another thread."""

    def resume(self) -> bool:
        """Ask the present agent to go on with it, if its connection is closed. True when there is nothing
        left to do."""


class WatchedLease:
    """A lease that is watched. It doesn't keep the lease alive: a lease that its app has dropped has to
    end."""

    __slots__ = ("file", "lease", "on_lost", "resuming")

    def __init__(self, lease: Watchable, on_lost: Callable[[Any, str], object]) -> None:
        self.lease = ref(lease)
        self.file = lease.file
        self.on_lost = on_lost
        self.resuming = False


class LossWatcher:
    """Calls each watched lease's `on_lost` once: a lease in `_watches` was not told yet."""

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._fresh()
        survive_forks(self)

    def _fresh(self) -> None:
        # An RLock: a lease can be finalized, and so forgotten, at any allocation, even one under the lock.
        self._lock = RLock()
        self._watches: set[WatchedLease] = set()
        self._by_file: dict[int, WatchedLease] = {}
        """The number of a closed file may belong to another connection by now: the last one counts."""
        self._next_ns = _NEVER_NS

    def _forked(self) -> None:
        if self._thread is not None:
            self._thread = None
            self._epoll.close()
            os.close(self._bell)
        self._fresh()

    def watch(self, lease: Watchable, on_lost: Callable[[Any, str], object]) -> WatchedLease:
        """Watch `lease` until it is forgotten or its `on_lost` was called."""
        watch = WatchedLease(lease, on_lost)
        with self._lock:
            if self._thread is None:
                self._start()
            self._watches.add(watch)
            self._listen_to(watch)
            if lease.view.alarm_ns < self._next_ns:
                self._next_ns = lease.view.alarm_ns
                os.eventfd_write(self._bell, 1)
        return watch

    def forget(self, watch: WatchedLease) -> bool:
        """Stop watching. False if it was not watched any more."""
        with self._lock:
            if watch not in self._watches:
                return False
            self._watches.remove(watch)
            if not self._watches:
                # The thread now sleeps without end: the next lease has to wake it, however late it is due.
                self._next_ns = _NEVER_NS
            self._listen_no_more(watch)
            return True

    def moved(self, watch: WatchedLease) -> None:
        """News of its lease comes over another connection from now on."""
        lease = watch.lease()
        with self._lock:
            self._listen_no_more(watch)
            if lease is not None and watch in self._watches:
                watch.file = lease.file
                self._listen_to(watch)

    def broke(self, watch: WatchedLease) -> None:
        """Its lease's connection is closed."""
        with self._lock:
            if watch.resuming or watch not in self._watches:
                return
            watch.resuming = True
        resumer.add(lambda: self._resume(watch))

    def _listen_to(self, watch: WatchedLease) -> None:
        if watch.file >= 0:
            self._by_file[watch.file] = watch
            self._epoll.register(watch.file, select.EPOLLIN)

    def _listen_no_more(self, watch: WatchedLease) -> None:
        if self._by_file.get(watch.file) is watch:
            del self._by_file[watch.file]
            with suppress(OSError):
                self._epoll.unregister(watch.file)

    def tell(self, watch: WatchedLease, reason: str) -> None:
        """Call `on_lost`, if that was not done yet."""
        lease = watch.lease()
        if self.forget(watch) and lease is not None:
            call = Thread(target=watch.on_lost, args=(lease, reason), name="lockd on_lost", daemon=True)
            try:
                call.start()
            except RuntimeError:  # no thread can be started: late for others is better than never
                call.run()

    def _start(self) -> None:
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._thread = Thread(target=self._run, name="lockd watcher", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            left_s = max(0.0, (self._next_ns - boottime_ns()) / 1e9)
            for file, _ in self._epoll.poll(min(left_s, LONGEST_SLEEP_S) if self._watches else None):
                if file == self._bell:
                    os.eventfd_read(self._bell)
                elif (watch := self._by_file.get(file)) is not None:
                    self._look_at(watch)
            if boottime_ns() >= self._next_ns:
                self._look_at_all()

    def _look_at(self, watch: WatchedLease) -> None:
        lease = watch.lease()
        if lease is None:
            self.forget(watch)
            return
        lease.listen()
        if lease.view.broken:
            self.broke(watch)
        if reason := lease.view.due(boottime_ns()):
            self.tell(watch, reason)

    def _resume(self, watch: WatchedLease) -> bool:
        """In the resumer's thread."""
        lease = watch.lease()
        if lease is None or watch not in self._watches:
            return True
        if not lease.resume():
            return False
        with self._lock:
            watch.resuming = False
            self._listen_no_more(watch)
            watch.file = lease.file
            if watch in self._watches:
                self._listen_to(watch)
        if reason := lease.view.due(boottime_ns()):
            self.tell(watch, reason)
        return True

    def _look_at_all(self) -> None:
        for watch in list(self._watches):
            self._look_at(watch)
        with self._lock:
            leases = [lease for watch in self._watches if (lease := watch.lease()) is not None]
            self._next_ns = min((lease.view.alarm_ns for lease in leases), default=_NEVER_NS)


watcher = LossWatcher()
