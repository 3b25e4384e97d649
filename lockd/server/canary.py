"""The canary: a lock that the agent takes, extends and gives back by itself, in the same way as apps' locks.

It tells whether locking works while no app asks, and keeps ratios meaningful when few do. It asks the masters
for each kind of thing that they may refuse by itself: where they grant and refuse extensions, a host that
locks only briefly would not know. It is cheap (one lock each time, none overlapping), it never waits, and its
resource is only this agent's: no app and no other agent stands in its way, nor it in theirs.
"""

import asyncio
import os
from random import random

from lockd.clock import boottime_ns
from lockd.config.current import Current
from lockd.config.model import CANARY
from lockd.core.leases import Lease, owner_of
from lockd.core.locks import Locks
from lockd.core.turns import HOUSE
from lockd.core.values import Bound, Extended, Refusal
from lockd.metrics.canary import CanaryMetrics
from lockd.server.log import EventLog
from lockd.server.peer import start_ticks

RESERVED = b"lockd:canary:"
"""Resources that begin with this are reserved for agents."""
_TTL_MS = 2_000


class _Song:
    """One try: core's `Holder`. refusal: why there was no lease."""

    label = CANARY
    account = HOUSE
    lock_delay_ms = keep_ms = 0
    detached = notify = False
    bound = Bound.CONNECTION
    value = b""
    named = False
    counted = True
    give_up_ns: int | None = None

    def __init__(self, resource: bytes, owner: bytes, ttl_ms: int, now_ns: int) -> None:
        self.resource = resource
        self.owner = owner
        # The next agent finds it dead, and frees its lease.
        self.pid = os.getpid()
        self.started = start_ticks(self.pid)
        self.ttl_ms = self.max_hold_ms = ttl_ms
        self.asked_ns = now_ns
        self.answered = asyncio.Event()
        self.lease: Lease | None = None
        self.refusal: Refusal | None = None

    def granted(self, lease: Lease, now_ns: int) -> None:
        self.lease = lease
        self.answered.set()

    def refused(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self.answered.set()

    def renewed(self, lease: Lease) -> None:
        """Not before it is given back."""

    def lost(self, lease: Lease, reason: str) -> None:
        """The release that follows says so."""

    def ended(self, lease: Lease) -> None:
        """It has no session that would have to know."""


class _Answer:
    """To an EXTEND or UNLOCK of its lease: core's `Reply`."""

    def __init__(self) -> None:
        self.came = asyncio.Event()
        self.refusal: Refusal | None = None

    def done(self, lease: Extended | None) -> None:
        self.came.set()

    def refused(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self.came.set()


class Canary:
    """Sings every `canary_ms` (never while that is 0), until its task is cancelled."""

    def __init__(
        self, locks: Locks, metrics: CanaryMetrics, log: EventLog, current: Current, host: bytes
    ) -> None:
        self._locks = locks
        self._metrics = metrics
        self._log = log
        self._current = current
        self._changed = asyncio.Event()
        # With the process's id, so that a lease left by an agent that was killed is in nobody's way.
        self._resource = b"%b%b:%d" % (RESERVED, host, os.getpid())
        self._owner = owner_of(host, os.getpid(), os.geteuid())
        self._silent = False

    async def run(self) -> None:
        while not self._locks.draining:
            # Not all agents at once, even if they were started, or given an interval, together.
            changed = await self._rest(random())
            while not (changed or self._locks.draining):
                await self.sing()
                changed = await self._rest(1.0)

    async def _rest(self, share: float) -> bool:
        """Wait for this share of the interval, or until the interval changes: returns whether it has."""
        self._changed.clear()
        interval_s = self._current.config.canary_ms / 1000
        if not interval_s:
            self._metrics.stopped()
            self._silent = False
        try:
            async with asyncio.timeout(interval_s * share if interval_s else None):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def changed(self) -> None:
        """The interval may have changed."""
        self._changed.set()

    async def sing(self) -> None:
        """Take the lock, extend it, give it back, and count the outcome."""
        config = self._current.config
        ttl_ms = max(config.min_ttl_ms, min(_TTL_MS, config.max_ttl_ms))
        song = _Song(self._resource, self._owner, ttl_ms, boottime_ns())
        self._locks.lock(song, song.asked_ns)
        await song.answered.wait()
        extended, released = _Answer(), _Answer()
        if song.lease is not None:
            token = song.lease.token
            self._locks.extend(self._resource, token, ttl_ms, extended, boottime_ns())
            await extended.came.wait()
            self._locks.unlock(self._resource, token, released, boottime_ns())
            await released.came.wait()
        took_ns = boottime_ns() - song.asked_ns
        refusal = song.refusal or extended.refusal
        if refusal is not None:
            self._metrics.refused(refusal, took_ns)
        elif released.refusal is not None:
            self._metrics.unreleased(released.refusal, took_ns)
        else:
            self._metrics.worked(took_ns)
        self._tell(refusal or released.refusal)

    def _tell(self, refusal: Refusal | None) -> None:
        """Log when it falls silent and when it sings again, not each time."""
        if refusal is not None and not self._silent:
            self._log.warning("canary_failed", why=str(refusal))
        elif self._silent and refusal is None:
            self._log.info("canary_works")
        self._silent = refusal is not None
