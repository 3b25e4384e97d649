"""`client.lead(...)` for asyncio programs: as sync/leading.py, in a task of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable
from types import TracebackType
from typing import Any

from lockd.client.aio.lease import Lease
from lockd.client.attempts import rest_after
from lockd.client.errors import LockdError
from lockd.client.leading import RESIGNED, Deposed, Elected, Leader

Stand = Callable[[Callable[[Lease, str], object]], Awaitable[Lease]]
"""Asks for the lease; the listener is told of its loss."""


class Leadership(Leader[Lease]):
    """Begins to stand for leader when it is made. In a forked child it leads nothing."""

    def __init__(self, stand: Stand, elected: Elected[Lease], deposed: Deposed[Lease] | None) -> None:
        super().__init__(elected, deposed)
        self._stand = stand
        self._work: asyncio.Task[None] | None = None
        self._closing = self._ending = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def wait(self) -> None:
        """Wait until it has ended. Raises the cause of the end, if that was not `aclose`: a final refusal
        (Denied, a wrong option), or what a callback raised."""
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def aclose(self) -> None:
        """Stop standing. A leader is deposed first, and the lease is given back when `deposed` and `elected`
        have ended. Then this returns, too, except in a callback, where it returns at once. Raises as
        `wait`."""
        # If it is ending already, let it end: otherwise `deposed`, and the clean-up in `elected`, would be
        # cut short.
        if not self._closing and not self._ending:
            self._task.cancel()
        self._closing = True
        if not self._calls(asyncio.current_task()):
            await self.wait()

    def _calls(self, task: asyncio.Task[object] | None) -> bool:
        """Whether this task runs a callback."""
        return task is self._task or task is self._work

    async def _run(self) -> None:
        while not self._closing:
            lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            lease = await self._campaign(lost)
            await self._serve(lease, lost)

    async def _campaign(self, lost: asyncio.Future[str]) -> Lease:
        def is_lost(_lease: Lease, reason: str) -> None:
            if not lost.done():
                lost.set_result(reason)

        while True:
            try:
                return await self._stand(is_lost)
            except LockdError as failure:
                rest_s = rest_after(failure)
                if rest_s is None:
                    raise
                self.trouble = str(failure)
                await asyncio.sleep(rest_s)

    async def _serve(self, lease: Lease, lost: asyncio.Future[str]) -> None:
        """For one term. When this is cancelled, the term is over."""
        self.trouble = ""
        if lost.done():
            # Before anybody was elected.
            with suppress(LockdError):
                await lease.release()
            return
        self._lease = lease
        self._work = work = asyncio.create_task(self._lead(lease))
        try:
            ends: list[asyncio.Future[Any]] = [work, lost]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                # Not the future itself, which would be cancelled together with this task.
                await asyncio.wait([lost])
        finally:
            self._ending = True
            work.cancel()
            self._lease = None
            try:
                await _called(self._deposed, lease, lost.result() if lost.done() else RESIGNED)
            finally:
                await asyncio.wait([work])
                with suppress(LockdError):
                    await lease.release()
                self._ending = False

    async def _lead(self, lease: Lease) -> None:
        await _called(self._elected, lease)

    async def __aenter__(self) -> Leadership:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        except BaseException as failure:
            if error is None:
                raise
            error.add_note(str(failure))


async def _called(callback: Callable[..., object], *arguments: object) -> None:
    if isawaitable(result := callback(*arguments)):
        await result
