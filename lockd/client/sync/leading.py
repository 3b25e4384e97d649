"""`client.lead(...)`: standing for leader until it is closed, in a separate thread.

    stand ─▶ granted ─▶ elected(lease) ──── lost ─▶ deposed(lease, why), before the deadline ─▶ give back ─┐
      ▲                        └────────── closed ─▶ deposed(lease, why) ─▶ give back ─▶ end              │
      └───────────────────────────────────────────────────────────────────────────────────────────────────┘

A term is a lease. Its number is the fence, which is larger than that of every earlier term. No other leader
is elected before the deadline that this one was told, or, if it gives the lease back, before `deposed` has
returned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from types import TracebackType

from lockd.client.attempts import Attempt, rest_after
from lockd.client.errors import LockdError
from lockd.client.leading import RESIGNED, Deposed, Elected, Leader
from lockd.client.sync.lease import Lease

Stand = Callable[[Attempt, Callable[[Lease, str], object]], Lease]
"""Asks for the lease with that attempt; the listener is told of its loss."""


class _Term:
    """One lease of the leader's. led: `elected` has it. deposing: `deposed` was called. done: it has
    returned. failure: what it raised."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.led = self.deposing = False
        self.lost = ""
        self.done = Event()
        self.failure: BaseException | None = None


class Leadership(Leader[Lease]):
    """Begins to stand for leader when it is made. Threads may share it. In a forked child it leads
    nothing."""

    def __init__(
        self, stand: Stand, new_attempt: Callable[[], Attempt], withdraw: Callable[[Attempt], object],
        elected: Elected[Lease], deposed: Deposed[Lease] | None,
    ) -> None:  # fmt: skip
        super().__init__(elected, deposed)
        self._stand = stand
        self._new_attempt = new_attempt
        self._withdraw = withdraw
        self._attempt = new_attempt()
        self._closing = Event()
        self._woken = Event()
        self._deposing: Thread | None = None
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="lockd leadership", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, for `timeout` seconds at most; returns whether it has. Raises the cause of
        the end, if that was not `close`: a final refusal (Denied, a wrong option), or what a callback
        raised."""
        self._thread.join(timeout)
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def close(self) -> None:
        """Stop standing. A leader is deposed first, and the lease is given back when `deposed` and `elected`
        have returned. Then this returns, too, except in a callback, where it returns at once. Raises as
        `wait`."""
        self._closing.set()
        self._woken.set()
        if self._lease is None:
            self._withdraw(self._attempt)
        if threading.current_thread() not in (self._thread, self._deposing):
            self.wait()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                term = _Term()
                lease = self._campaign(term)
                if lease is not None:
                    self._serve(lease, term)
        except BaseException as failure:
            # Reported even if nobody waits.
            self._failure = failure
            threading.excepthook(threading.ExceptHookArgs((type(failure), failure, None, self._thread)))

    def _campaign(self, term: _Term) -> Lease | None:
        """Until there is a lease, or it should not lead any more."""
        while not self._closing.is_set():
            try:
                return self._stand(self._attempt, lambda lease, why: self._is_lost(lease, term, why))
            except LockdError as failure:
                rest_s = rest_after(failure)
                if rest_s is None:
                    raise
                self.trouble = str(failure)
                self._woken.wait(rest_s)
                self._attempt = self._new_attempt()
        return None

    def _serve(self, lease: Lease, term: _Term) -> None:
        self.trouble = ""
        try:
            with term.lock:
                term.led = not term.lost and not self._closing.is_set()
            if term.led:
                self._lead(lease, term)
        finally:
            # Also if a callback raised: its traceback keeps the lease alive, so the lease would be renewed.
            self._lease = None
            with suppress(LockdError):
                lease.release()
            self._attempt = self._new_attempt()
            if not self._closing.is_set():
                self._woken.clear()

    def _lead(self, lease: Lease, term: _Term) -> None:
        self._lease = lease
        try:
            self._elected(lease)
            self._woken.wait()
        finally:
            self._depose(lease, term, RESIGNED)
            term.done.wait()
            if term.failure is not None:
                raise term.failure

    def _is_lost(self, lease: Lease, term: _Term, reason: str) -> None:
        """Called in a separate thread: `elected` may run for as long as the term."""
        with term.lock:
            term.lost = reason
        if term.led:
            self._depose(lease, term, reason)
            self._woken.set()
            if term.failure is not None:
                # Reported at once: `elected` may never return if it isn't told.
                raise term.failure

    def _depose(self, lease: Lease, term: _Term, reason: str) -> None:
        """Once for each term."""
        with term.lock:
            first, term.deposing = not term.deposing, True
        if first:
            self._deposing = threading.current_thread()
            try:
                self._deposed(lease, reason)
            except BaseException as failure:
                term.failure = failure
            finally:
                self._deposing = None
                term.done.set()

    def __enter__(self) -> Leadership:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BaseException as failure:
            if error is None:
                raise
            error.add_note(str(failure))
