"""`from lockd import Client`: locks for programs with threads, over the agent of this host.

    client = Client()
    with client.lock("invoice:42", ttl=10, wait=5) as lease:
        ledger.write(..., fence=lease.fence)
        lease.check()

The agent does the work. A held lease has a connection of its own, since its life is the lease's: the agent renews the lease while
the connection is open, and frees it when it closes. So whatever goes wrong here, closing the connection is the right thing to do.
There is no thread, unless a lease is to be watched (`on_lost`): one then watches them all.
"""

from __future__ import annotations

import os
import select
import time
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, RLock, Thread
from types import TracebackType
from typing import Any
from weakref import WeakSet, ref

from redis.connection import UnixDomainSocketConnection
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as NothingYet

from lockd.clock import boottime_ns
from lockd.lease_view import (
    AgentUnreachable,
    Draining,
    HeldLease,
    LeaseView,
    LockdError,
    LockLost,
    NoQuorum,
    PushReceiver,
    as_rows,
    error_from,
    key_of,
    let_go,
    lock_words,
    packed,
    socket_path,
    survive_forks,
    to_ms,
)

OnLost = Callable[["Lease", str], object]


class AgentConnection(UnixDomainSocketConnection):
    """A connection to the agent, which is never opened again once it broke: with it went its lease."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__(
            path, timeout_s, socket_connect_timeout=timeout_s, protocol=3, driver_info=None
        )  # type: ignore[no-untyped-call]
        self.pushes = PushReceiver()
        self._get_parser().set_pubsub_push_handler(self.pushes.hear)

    @property
    def file(self) -> int:
        """Its file number; -1 when it is closed."""
        return self._sock.fileno() if self._sock else -1

    def request(self, request: bytes, wait_s: float = 0.0) -> Any:
        """Send a request and return its reply. When there is none, for whatever reason, the connection is closed."""
        try:
            self.send_packed_command((request,), check_health=False)
            if wait_s:
                return self.read_response(timeout=self.socket_timeout + wait_s)
            return self.read_response()
        except ResponseError as refusal:
            raise error_from(str(refusal)) from None
        except BaseException as failure:
            self.disconnect()
            if isinstance(failure, RedisError):
                raise AgentUnreachable(f"lockd at {self.path} gave no answer: {failure}") from failure
            raise

    def hear(self) -> bool:
        """Take in the pushes that have arrived, without waiting for any. False when the agent has closed the connection."""
        try:
            while self._sock and self.can_read():
                self.read_response(push_request=True, timeout=0, disconnect_on_error=False)
        except NothingYet:
            pass  # a part of one: the rest is on its way
        except RedisError:
            self.disconnect()
        return self.is_connected


class Client:
    """Locks from the agent of this host. Safe to share between threads; after a fork, the child's has connections of its own.

    socket: where the agent listens; else LOCKD_SOCKET of the environment, else /run/lockd/lockd.sock.
    timeout: how many seconds the agent may take for an answer, on top of a lock's `wait`.
    max_idle: how many connections to keep open for the next locks.
    """

    def __init__(
        self, socket: str | os.PathLike[str] | None = None, *, timeout: float = 5.0, max_idle: int = 64
    ) -> None:
        self.socket = socket_path(socket)
        self.timeout = timeout
        self._max_idle = max_idle
        self._idle: deque[AgentConnection] = deque()
        self._connections: WeakSet[AgentConnection] = WeakSet()
        survive_forks(self)

    def lock(self, resource: str | bytes, **options: Any) -> LockBlock:
        """For `with`: holds the resource while the block runs. Options: those of `acquire`.

        A lease that was lost meanwhile raises LockLost at the end of the block, unless the block itself raised.
        """
        return LockBlock(self, resource, options)

    def acquire(
        self,
        resource: str | bytes,
        *,
        ttl: float = 10.0,
        wait: float = 0.0,
        max_hold: float | None = None,
        detached: bool = False,
        on_lost: OnLost | None = None,
    ) -> Lease:
        """Lock `resource`; `release` of the result gives it back. All times are seconds.

        The agent renews the lease every third of `ttl`, for `max_hold` at most; should this process or the agent die, that is how
        long others may have to wait. `detached` leases are not renewed, outlive this process and end at their `ttl`.
        `on_lost(lease, reason)` is called once, in a thread of its own, when the lease is or is about to be lost, or when
        the agent that renews it is gone: `lease.remaining()` says how long it still holds.

        Raises Taken when another holds it, or, with `wait`, WaitTimeout; NoQuorum, Denied, LimitReached, Draining, ClockRefused
        as their names say; AgentUnreachable when the agent doesn't answer.
        """
        key, ttl_ms, wait_ms = key_of(resource), to_ms(ttl, "ttl"), to_ms(wait, "wait")
        request = packed(*lock_words(key, ttl_ms, wait_ms, max_hold, detached))
        connection = self._take()
        try:
            reply = connection.request(request, wait)
            view = LeaseView(resource, key, ttl_ms, detached, reply)
            if detached:
                self._put(connection)
                return Lease(self, view, None, on_lost)
            connection.pushes.view = view
            return Lease(self, view, connection, on_lost)
        except LockdError:
            self._put(connection)
            raise
        except BaseException:
            # Nobody would ever give back what the agent has granted by now, or is about to grant: the agent does, on closing.
            connection.disconnect()
            raise

    def holder(self, resource: str | bytes) -> dict[str, Any] | None:
        """Who holds a resource, anywhere: holder, host, pid, uid, ttl_ms, held_ms, masters, of, quorum; None when it is free."""
        row = self._request(packed(b"HOLDER", key_of(resource)))
        return None if row is None else as_rows([row])[0]

    def locks(self, pattern: str | bytes = "*", *, local: bool = False) -> list[dict[str, Any]]:
        """Who holds what, for resources that match the glob: in the whole cluster, or `local`, through the agent of this host."""
        return as_rows(self._request(packed(b"LOCKS", key_of(pattern), *((b"LOCAL",) if local else ()))))

    def masters(self) -> list[dict[str, Any]]:
        """Each master: its state, whether it has a vote, and if not, why."""
        return as_rows(self._request(packed(b"MASTERS")))

    def ping(self) -> float:
        """The seconds that the agent took to answer."""
        begun_s = time.perf_counter()
        self._request(packed(b"PING"))
        return time.perf_counter() - begun_s

    def close(self) -> None:
        """Close the idle connections. Leases that are held keep theirs."""
        while True:
            try:
                self._idle.pop().disconnect()
            except IndexError:
                return

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def forked(self) -> None:
        let_go(connection.file for connection in list(self._connections))
        self._connections = WeakSet()
        self._idle = deque()

    def _request(self, request: bytes) -> Any:
        connection = self._take()
        try:
            return connection.request(request)
        finally:
            self._put(connection)

    def _take(self) -> AgentConnection:
        """An idle connection, or a new one. What the agent has closed, or has still something to say on, is left behind."""
        idle = self._idle
        while idle:
            try:
                connection = idle.pop()
            except IndexError:  # another thread was faster
                break
            with suppress(RedisError):
                if connection.is_connected and not connection.can_read():
                    return connection
            connection.disconnect()
        connection = AgentConnection(self.socket, self.timeout)
        self._connections.add(connection)
        try:
            connection.connect()
        except ResponseError as refusal:
            raise error_from(str(refusal)) from None
        except RedisError as failure:
            raise AgentUnreachable(f"no lockd answers at {self.socket}: {failure}") from failure
        except BaseException:
            connection.disconnect()
            raise
        return connection

    def _put(self, connection: AgentConnection) -> None:
        connection.pushes.view = None
        if connection.is_connected and len(self._idle) < self._max_idle:
            self._idle.append(connection)
        else:
            connection.disconnect()


class LockBlock:
    """`with client.lock(...)`."""

    __slots__ = ("_client", "_lease", "_options", "_resource")

    def __init__(self, client: Client, resource: str | bytes, options: dict[str, Any]) -> None:
        self._client, self._resource, self._options = client, resource, options

    def __enter__(self) -> Lease:
        self._lease = self._client.acquire(self._resource, **self._options)
        return self._lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.__exit__(kind, error, trace)
