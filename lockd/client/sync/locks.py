"""`from lockd import Client`: locks for programs with threads, through the agent of this host.

    client = Client()
    with client.lock("invoice:42", ttl=10, wait=5) as lease:
        ledger.write(..., fence=lease.fence)

The agent does the work: it renews what this process holds, and frees it when the process is dead. Each held
lease has a separate connection for its news. A connection that breaks is made again when it is needed. No
thread is started unless a lease has to be watched (`on_lost`), or an agent was away when it should have been
told something: then one thread does so for all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Unpack

from lockd.client import requests
from lockd.client.attempts import LOOK_AGAIN_S, Attempt
from lockd.client.connection import AgentConnection
from lockd.client.deadlines import AgentClock
from lockd.client.errors import LockdError
from lockd.client.leading import Deposed, Elected
from lockd.client.requests import LeaseOptions, Request, Resource, Resources, socket_path
from lockd.client.state import View
from lockd.client.sync.leading import Leadership
from lockd.client.sync.lease import Lease, OnLost
from lockd.client.sync.pool import Pool


class LockOptions(LeaseOptions, total=False):
    """The options of `acquire`, apart from the resource."""

    on_lost: OnLost | None


class Client:
    """Locks through the agent of this host. Threads may share it; a forked child gets new connections.

    socket: where the agent listens; by default LOCKD_SOCKET of the environment, or /run/lockd/lockd.sock.
    timeout: how many seconds the agent may take for an answer, beyond a lock's `wait`.
    max_idle: how many connections are kept open for the next locks.
    """

    def __init__(
        self, socket: str | os.PathLike[str] | None = None, *, timeout: float = 5.0, max_idle: int = 64
    ) -> None:
        self._clock = AgentClock()
        self._pool = Pool(socket_path(socket), timeout, max_idle)

    @property
    def socket(self) -> str:
        return self._pool.socket

    @property
    def timeout(self) -> float:
        return self._pool.timeout_s

    def lock(self, resource: Resource | Iterable[Resource], **options: Unpack[LockOptions]) -> LockBlock:
        """For `with`: the resource is held while the block runs. Options: those of `acquire`.

        If the lease was lost meanwhile, the end of the block raises LockLost, unless the block raised
        something itself.
        """
        return LockBlock(self, resource, options)

    def acquire(
        self,
        resource: Resource | Iterable[Resource],
        *,
        ttl: float = 10.0,
        wait: float = 0.0,
        max_hold: float | None = None,
        detached: bool = False,
        slots: int | None = None,
        on_lost: OnLost | None = None,
    ) -> Lease:
        """Lock `resource` until the lease is released or its holder is gone. All times are in seconds.

        resource: a name, or a list of names. Of a list, all are locked or none; `wait` is for the whole list,
        and the lease is valid while each of them is (`lease.fences` has the fence of each).
        ttl: after how long others can get the resource when this host dies. While the lease is held, the
        agent keeps renewing it, but not beyond `max_hold` (None: that of its class).
        wait: how long to stand in line when another holds it.
        detached: not renewed; it outlives this process and ends at its `ttl`.
        slots: take one of this many equal locks of the resource, whichever is free first; `lease.slot` is its
        number.
        on_lost: `on_lost(lease, reason)` is called once, in a separate thread, before the deadline, when the
        lease is lost or no agent is there to renew it; `lease.remaining()` says how much time is left.

        Raises Taken, or WaitTimeout after `wait`, when another holds it; NoQuorum, Denied, LimitReached,
        Draining, ClockRefused; AgentUnreachable.
        """
        resource = requests.named_once(resource)
        attempt = Attempt(requests.keys_of(resource), ttl, wait)
        return self._acquire(attempt, resource, on_lost, max_hold=max_hold, detached=detached, slots=slots)

    def lead(
        self,
        resource: Resource,
        elected: Elected[Lease],
        deposed: Deposed[Lease] | None = None,
        *,
        ttl: float = 10.0,
        wait: float = 30.0,
        max_hold: float | None = None,
    ) -> Leadership:
        """Stand for leader from now on, in a separate thread, until the returned Leadership is closed.

        elected: `elected(lease)` is called when this process becomes the leader; it may run for as long as
        the process leads. `lease.fence` is the term, which grows from one leader to the next. An exception in
        a callback ends the leadership: the lease is given back, and `wait` and `close` raise the exception.
        deposed: `deposed(lease, reason)` is called once for each term, before its deadline. If `elected` is
        still running, that happens in another thread: the leader's work has to end before
        `lease.remaining()` is over. When both have returned, this process stands again.
        wait: how long to stand in line at a time, as far as the class allows.
        max_hold: a term ends after this time at the latest (None: that of the class). Give leaders a class
        with a long one.
        """
        key = requests.key_of(resource)

        def stand(attempt: Attempt, on_lost: OnLost) -> Lease:
            return self._acquire(attempt, resource, on_lost, max_hold=max_hold, detached=False, slots=None)

        return Leadership(stand, lambda: Attempt([key], ttl, wait), self._withdraw, elected, deposed)

    def _withdraw(self, attempt: Attempt) -> None:
        attempt.withdraw()
        with suppress(LockdError):
            self._pool.request(requests.unlock(*attempt.names))

    def _acquire(
        self,
        attempt: Attempt,
        resource: Resource | Resources,
        on_lost: OnLost | None,
        *,
        max_hold: float | None,
        detached: bool,
        slots: int | None,
    ) -> Lease:
        try:
            while True:
                request = requests.lock(
                    resource, attempt.resources, ttl_ms=attempt.ttl_ms, wait=attempt.wait, max_hold=max_hold,
                    detached=detached, slots=slots, clock=self._clock, token=attempt.token,
                )  # fmt: skip
                try:
                    connection, view = self._ask(request, attempt)
                except LockdError as failure:
                    if not attempt.goes_on_after(failure):
                        raise
                    time.sleep(LOOK_AGAIN_S)
                    continue
                if detached:
                    self._pool.put(connection)
                    return Lease(self._pool, view, None, on_lost)
                connection.pushes.view = view
                return Lease(self._pool, view, connection, on_lost)
        except BaseException as failure:
            if attempt.leaves_doubt(failure):
                self._pool.give_back_later(attempt.names, attempt.lasts_until_ns)
            raise

    def _ask(self, request: Request[View], attempt: Attempt) -> tuple[AgentConnection, View]:
        attempt.asked = True
        try:
            return self._pool.ask(request)
        except BaseException as failure:
            attempt.failed(failure)
            raise

    def holder(self, resource: str | bytes) -> dict[str, Any] | None:
        """The holder of a resource, on any host (resource, holder, host, pid, uid, fence, kept, ttl_ms,
        held_ms, masters, of, quorum); None when it is free."""
        return self._pool.request(requests.holder(resource))

    def locks(self, pattern: str | bytes = "*", *, local: bool = False) -> list[dict[str, Any]]:
        """The holders of the resources that match the glob; `local`: only those held through this agent."""
        return self._pool.request(requests.locks(pattern, local))

    def masters(self) -> list[dict[str, Any]]:
        """Each master: its state, whether it has a vote, and why not."""
        return self._pool.request(requests.masters())

    def ping(self) -> float:
        """How many seconds the agent took to answer."""
        begun_s = time.perf_counter()
        self._pool.request(requests.ping())
        return time.perf_counter() - begun_s

    def close(self) -> None:
        """Close the idle connections. Leases that are held keep theirs."""
        self._pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LockBlock:
    """`with client.lock(...)`: locks on entering and releases on leaving."""

    __slots__ = ("_client", "_lease", "_options", "_resource")

    def __init__(self, client: Client, resource: Resource | Iterable[Resource], options: LockOptions) -> None:
        self._client = client
        self._resource = requests.named_once(resource)
        self._options = options

    def __enter__(self) -> Lease:
        self._lease = self._client.acquire(self._resource, **self._options)
        return self._lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.__exit__(kind, error, trace)
