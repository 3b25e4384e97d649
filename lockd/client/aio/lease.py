"""A held lease, for asyncio programs."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from inspect import isawaitable
from types import TracebackType
from typing import TypeVar
from weakref import ref

from lockd.client import requests
from lockd.client.aio.pool import Pool
from lockd.client.attempts import LOOK_AGAIN_S
from lockd.client.connection import AsyncAgentConnection
from lockd.client.errors import AgentUnreachable, LockdError, LockLost, NoQuorum
from lockd.client.requests import Request, to_ms
from lockd.client.state import LONGEST_SLEEP_S, HeldLease, View, names_of
from lockd.clock import boottime_ns

# Most leases are short: nothing has to listen for those, and no task is made.
_LISTEN_AFTER_S = 0.05

T = TypeVar("T")
OnLost = Callable[["Lease", str], object]


class Lease(HeldLease):
    """A resource that this process holds. In a forked child it holds nothing.

    Its properties show what the event loop has read. If something blocked the loop for longer than the TTL,
    the lease seems lost; once the loop has run, it may know better.
    """

    __slots__ = ("__weakref__", "_connection", "_listener", "_on_lost", "_pool", "_timer", "_turn")

    def __init__(
        self, pool: Pool, view: View, connection: AsyncAgentConnection | None, on_lost: OnLost | None
    ) -> None:
        super().__init__(view)
        self._pool = pool
        self._connection = connection
        self._on_lost = on_lost
        self._turn = asyncio.Lock()
        self._listener: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._listen_soon()

    async def extend(self, ttl: float) -> None:
        """Make it last for at least `ttl` seconds from now, also when cancelled. LockLost when it is lost.
        NoQuorum when too few masters can be asked, and AgentUnreachable when its agent is gone: then it is
        valid until its deadline."""
        ttl_ms = to_ms(ttl, "ttl")
        if gone := self._gone():
            raise self._lost(gone)
        await self._pool.shielded(self._extend(ttl_ms))

    async def release(self) -> bool:
        """Give the resource back, also when cancelled. LockLost when it was not held all the time.

        False when there was nothing to give back, since it was released before or belongs to the parent
        process, and when the agent can't be told: then it is free at its deadline.
        """
        if self._gone():
            return False
        self._over = True
        lost_before, failure = await self._give_back()
        told = self._judge(lost_before, failure)
        if self._connection is not None:
            self._pool.put(self._connection)
        return told

    async def _give_back(self) -> tuple[str, LockdError | None]:
        """Returns why it was lost before, and how this release failed, if it did. An agent that was not told
        is told later."""
        view, lost_before = self._view, ""
        # Not with a shield, which costs a task: if this is cancelled, another task does it.
        try:
            async with self._turn:
                await self._stop_listening()
                lost_before = view.why_lost(boottime_ns())
                await self._ask(requests.unlock(*names_of(view)))
        except (LockLost, NoQuorum) as failure:
            return lost_before, failure
        except BaseException as failure:
            self._pool.give_back_later(names_of(view), view.may_last_until_ns)
            if not isinstance(failure, LockdError):
                raise
            return lost_before, failure
        return lost_before, None

    async def _extend(self, ttl_ms: int) -> None:
        view = self._view
        async with self._turn:
            await self._stop_listening()
            try:
                if view.loss:
                    raise self._lost(view.loss)
                await self._ask(requests.extend(view, ttl_ms))
            except LockLost as error:
                view.lose(error.reason)
                raise self._lost(view.loss) from None
            finally:
                self._listen_soon()

    async def _ask(self, request: Request[T]) -> T:
        """Over its connection; if that is closed, over another, which carries its news from then on."""
        if self._connection is None:
            return await self._pool.request(request)
        if self._connection.is_connected:
            try:
                return await self._ask_over(self._connection, request)
            except AgentUnreachable as failure:
                if failure.hangs:
                    raise
        self._connection = await self._pool.take()
        self._connection.pushes.view = self._view
        return await self._ask_over(self._connection, request)

    async def _ask_over(self, connection: AsyncAgentConnection, request: Request[T]) -> T:
        try:
            return await connection.request(request)
        finally:
            self._view.broken = not connection.is_connected

    # Listening

    def _listen_soon(self) -> None:
        if self._over or (self._connection is None and self._on_lost is None):
            return
        soon_s = min(_LISTEN_AFTER_S, self._view.ttl_ms / 10_000)
        self._timer = asyncio.get_running_loop().call_later(soon_s, _listen, ref(self))

    async def _stop_listening(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            await asyncio.wait([listener])

    async def _tell(self, reason: str) -> None:
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None and isawaitable(result := on_lost(self, reason)):
            await result

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except LockdError as failure:
            if error is None:
                raise
            error.add_note(str(failure))

    def __del__(self) -> None:
        if self._over or self._pid != os.getpid() or self._connection is None:
            return
        warnings.warn(f"{self!r} was never released", ResourceWarning, stacklevel=2, source=self)
        view, loop = self._view, self._pool.loop
        self._pool.give_back_later(names_of(view), view.may_last_until_ns)
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(_drop, self._connection, self._listener)


def _drop(connection: AsyncAgentConnection, listener: asyncio.Task[None] | None) -> None:
    if listener is not None:
        listener.cancel()
    connection.close()


def _listen(lease_ref: ref[Lease]) -> None:
    """Start listening for a lease, without keeping a dropped lease alive."""
    lease = lease_ref()
    if lease is not None and not lease._over:
        work = _heed(lease_ref, lease._view, lease._connection)
        lease._listener = asyncio.get_running_loop().create_task(work)


async def _heed(lease_ref: ref[Lease], view: View, connection: AsyncAgentConnection | None) -> None:
    """Read pushes until the lease is lost or the task is cancelled; tell its holder when that is due."""
    told = False
    while True:
        if not told and (reason := view.due(boottime_ns())):
            told = True
            if (lease := lease_ref()) is not None:
                # In a separate task: it may release the lease, and so end this one.
                lease._pool.start(lease._tell(reason))
                lease = None
        if view.loss:
            return
        left_s = max(0.0, (view.alarm_ns - boottime_ns()) / 1e9)
        with suppress(TimeoutError):
            async with asyncio.timeout(None if told else min(left_s, LONGEST_SLEEP_S)):
                if connection is None:
                    await asyncio.Future()
                elif view.broken:
                    if lease_ref() is None:
                        return  # its app has dropped it, and it is given back
                    connection = await _resumed(lease_ref) or connection
                elif not await connection.hear():
                    view.broken = True


async def _resumed(lease_ref: ref[Lease]) -> AsyncAgentConnection | None:
    """Ask the present agent to go on with it, over a connection that then gets its news; None if there is no
    agent yet."""
    lease = lease_ref()
    if lease is None:
        return None
    view = lease._view
    try:
        await lease._ask(requests.extend(view, view.ttl_ms))
    except LockLost as error:
        view.lose(error.reason)
    except LockdError:
        lease = None
        await asyncio.sleep(LOOK_AGAIN_S)
        return None
    return lease._connection
