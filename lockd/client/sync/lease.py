"""A held lease, for programs with threads."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from types import TracebackType
from typing import TypeVar

from lockd.client import requests
from lockd.client.connection import AgentConnection
from lockd.client.errors import AgentUnreachable, LockdError, LockLost, NoQuorum
from lockd.client.requests import Request, to_ms
from lockd.client.state import HeldLease, View, names_of
from lockd.client.sync.loss_watch import WatchedLease, watcher
from lockd.client.sync.pool import Pool
from lockd.clock import boottime_ns

T = TypeVar("T")
OnLost = Callable[["Lease", str], object]
_RESTS = 4
"""How long an agent that hung is left alone, as a multiple of how long it was waited for."""


class Lease(HeldLease):
    """A resource that this process holds. Threads may share it; in a forked child it holds nothing.

    Its properties are up to date: it reads what the agent sent, and asks when that was long ago.
    """

    __slots__ = ("__weakref__", "_connection", "_hangs_until_ns", "_pool", "_turn", "_watch")

    def __init__(
        self, pool: Pool, view: View, connection: AgentConnection | None, on_lost: OnLost | None
    ) -> None:
        super().__init__(view)
        self._pool = pool
        self._connection = connection
        self._hangs_until_ns = 0
        self._turn = Lock()
        self._watch: WatchedLease | None = None
        if on_lost is not None:
            self._watch = watcher.watch(self, on_lost)

    def extend(self, ttl: float) -> None:
        """Make it last for at least `ttl` seconds from now. LockLost when it is lost. NoQuorum when too few
        masters can be asked, and AgentUnreachable when its agent is gone: then it is valid until its
        deadline."""
        ttl_ms = to_ms(ttl, "ttl")
        if gone := self._gone():
            raise self._lost(gone)
        with self._turn:
            if gone := self._gone():
                raise self._lost(gone)
            self._hear()
            self._extend(ttl_ms)

    def release(self) -> bool:
        """Give the resource back. LockLost when it was not held all the time.

        False when there was nothing to give back, since it was released before or belongs to the parent
        process, and when the agent can't be told: then it is free at its deadline.
        """
        if self._gone():
            return False
        with self._turn:
            if self._over:
                return False
            self._over = True
            try:
                if self._watch is not None:
                    watcher.forget(self._watch)
                lost_before, failure = self._give_back()
            except BaseException:
                # An interrupt: nothing else gives it back.
                self._give_back_later()
                raise
            told = self._judge(lost_before, failure)
            if self._connection is not None:
                self._pool.put(self._connection)
            return told

    def _give_back(self) -> tuple[str, LockdError | None]:
        """Returns why it was lost before, and how this release failed, if it did. An agent that was not told
        is told later."""
        view, lost_before = self._view, ""
        try:
            if view.stale(boottime_ns()):
                self._hear()
            lost_before = view.why_lost(boottime_ns())
            self._ask(requests.unlock(*names_of(view)))
        except (LockLost, NoQuorum) as failure:
            return lost_before, failure
        except LockdError as failure:
            self._give_back_later()
            return lost_before, failure
        return lost_before, None

    def _give_back_later(self) -> None:
        self._pool.give_back_later(names_of(self._view), self._view.may_last_until_ns)

    def _why_lost(self) -> str:
        if gone := self._gone():
            return gone
        with self._turn:
            if gone := self._gone():
                return gone
            self._hear()
            if self._view.stale(boottime_ns()):
                self._ask_how_it_is()
            return self._view.why_lost(boottime_ns())

    def _ask_how_it_is(self) -> None:
        """Not over and over: an agent that hangs would block the app for the whole timeout each time."""
        if boottime_ns() < self._hangs_until_ns:
            return
        try:
            self._extend(self._view.ttl_ms)
        except AgentUnreachable as failure:
            if failure.hangs:
                self._hangs_until_ns = boottime_ns() + int(self._pool.timeout_s * _RESTS * 1e9)
        except LockdError:
            """What is known of it counts."""

    def _extend(self, ttl_ms: int) -> None:
        view = self._view
        if view.loss:
            raise self._lost(view.loss)
        try:
            self._ask(requests.extend(view, ttl_ms))
        except LockLost as error:
            view.lose(error.reason)
            raise self._lost(view.loss) from None

    def _ask(self, request: Request[T]) -> T:
        """Over its connection; if that is closed, over another, which carries its news from then on."""
        if self._connection is None:
            return self._pool.request(request)
        if self._connection.is_connected:
            try:
                return self._ask_over(self._connection, request)
            except AgentUnreachable as failure:
                if failure.hangs:
                    raise
        return self._pool.over_one(lambda connection: self._ask_over(self._moved_to(connection), request))

    def _moved_to(self, connection: AgentConnection) -> AgentConnection:
        self._connection = connection
        connection.pushes.view = self._view
        if self._watch is not None:
            watcher.moved(self._watch)
        return connection

    def _ask_over(self, connection: AgentConnection, request: Request[T]) -> T:
        try:
            return connection.request(request)
        finally:
            self._view.broken = not connection.is_connected
            if self._view.broken and self._watch is not None:
                watcher.broke(self._watch)

    def _hear(self) -> None:
        if self._connection is not None and not self._connection.hear():
            self._view.broken = True

    # For its watcher

    @property
    def view(self) -> View:
        return self._view

    @property
    def file(self) -> int:
        return -1 if self._connection is None else self._connection.file

    def listen(self) -> None:
        # The thread whose turn it is reads what there is.
        if self._turn.acquire(blocking=False):
            try:
                if not self._over:
                    self._hear()
            finally:
                self._turn.release()

    def resume(self) -> bool:
        with self._turn, suppress(LockdError):
            if self._over or self._view.loss:
                return True
            self._hear()
            if self._view.broken:
                self._extend(self._view.ttl_ms)
        return bool(self._over or self._view.loss or not self._view.broken)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except LockdError as failure:
            if error is None:
                raise
            error.add_note(str(failure))

    def __del__(self) -> None:
        # If __init__ was interrupted, the caller gives the lease back.
        if getattr(self, "_over", True) or self._pid != os.getpid():
            return
        if self._watch is not None:
            watcher.forget(self._watch)
        if self._connection is not None:
            warnings.warn(f"{self!r} was never released", ResourceWarning, stacklevel=2, source=self)
            self._connection.close()
            self._give_back_later()
