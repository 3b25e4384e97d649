"""The canary: what it asks for, and what it counts and logs of each way in which its lock may end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lockd.config.current import Current
from lockd.core.errors import ErrorWord
from lockd.core.values import Refusal
from lockd.server.canary import RESERVED, Canary
from tests.harness.configs import a_config
from tests.harness.waiting import until

NOQUORUM = Refusal(ErrorWord.NOQUORUM, "m1=down")


class FakeLocks:
    """Answers each LOCK, EXTEND and UNLOCK as it was told to, in the turn in which it is asked, as core
    does."""

    draining = False

    def __init__(
        self, lock: Refusal | None = None, extend: Refusal | None = None, unlock: Refusal | None = None
    ) -> None:
        self.lock_refusal, self.extend_refusal, self.unlock_refusal = lock, extend, unlock
        self.resources: list[bytes] = []
        self.released: list[bytes] = []

    def lock(self, holder: Any, now_ns: int) -> None:
        self.resources.append(holder.resource)
        if self.lock_refusal is None:
            holder.granted(SimpleNamespace(token=b"t"), now_ns)
        else:
            holder.refused(self.lock_refusal)

    def extend(self, resource: bytes, token: bytes, ttl_ms: int, reply: Any, now_ns: int) -> None:
        self._answer(reply, resource, token, self.extend_refusal)

    def unlock(self, resource: bytes, token: bytes, reply: Any, now_ns: int) -> None:
        self.released.append(resource)
        self._answer(reply, resource, token, self.unlock_refusal)

    def _answer(self, reply: Any, resource: bytes, token: bytes, refusal: Refusal | None) -> None:
        assert (resource, token) == (self.resources[-1], b"t")
        if refusal is None:
            reply.done(None)
        else:
            reply.refused(refusal)


class Told:
    """The metrics and the log that the canary writes to."""

    def __init__(self) -> None:
        self.counted: list[str] = []
        self.logged: list[str] = []
        self.stopped_singing = False

    def worked(self, took_ns: int) -> None:
        assert took_ns >= 0
        self.counted.append("granted")

    def refused(self, refusal: Refusal, took_ns: int) -> None:
        self.counted.append(refusal.code)

    def unreleased(self, refusal: Refusal, took_ns: int) -> None:
        self.counted.append("unreleased")

    def stopped(self) -> None:
        self.stopped_singing = True

    def warning(self, event: str, **_: Any) -> None:
        self.logged.append(event)

    info = warning


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def make(told: Told) -> Callable[..., Canary]:
    def make(locks: Any, canary_ms: int = 1_000) -> Canary:
        return Canary(locks, told, told, Current(a_config(canary_ms=canary_ms)), b"web1")  # type: ignore[arg-type]

    return make


@pytest.mark.parametrize(
    ("locks", "counted"),
    [
        (FakeLocks(), "granted"),
        (FakeLocks(lock=NOQUORUM), "NOQUORUM"),
        (FakeLocks(extend=NOQUORUM), "NOQUORUM"),
        (FakeLocks(unlock=NOQUORUM), "unreleased"),
        (FakeLocks(unlock=Refusal(ErrorWord.EXPIRED, "no quorum of masters had it any more")), "unreleased"),
    ],
)
async def test_each_way_in_which_its_lock_ends_is_counted(
    make: Any, told: Told, locks: FakeLocks, counted: str
) -> None:
    await make(locks).sing()
    assert told.counted == [counted]
    assert locks.resources[0] == RESERVED + b"web1:%d" % os.getpid(), "each agent has its own"
    assert locks.released == ([] if locks.lock_refusal else locks.resources), "what it got is given back"


async def test_it_logs_when_it_falls_silent_and_when_it_sings_again(make: Any, told: Told) -> None:
    locks = FakeLocks(lock=NOQUORUM)
    canary = make(locks)
    for refusal in (NOQUORUM, NOQUORUM, None, None):
        locks.lock_refusal = refusal
        await canary.sing()
    assert told.logged == ["canary_failed", "canary_works"]


async def test_one_whose_agent_stops_never_sings(make: Any, told: Told) -> None:
    stopping = FakeLocks()
    stopping.draining = True
    await make(stopping, canary_ms=1).run()
    assert told.counted == []


async def test_it_sings_while_the_configuration_of_the_moment_says_so(told: Told) -> None:
    current = Current(a_config(canary_ms=0))
    canary = Canary(FakeLocks(), told, told, current, b"web1")  # type: ignore[arg-type]
    running = asyncio.create_task(canary.run())
    for _ in range(2):
        await until(lambda: told.stopped_singing)
        told.counted.clear()
        await asyncio.sleep(0.01)  # where it is off, it is so however long one waits
        assert told.counted == []
        current.config = a_config(canary_ms=1)
        canary.changed()
        await until(lambda: told.counted)
        told.stopped_singing = False
        current.config = a_config(canary_ms=0)
        canary.changed()
    running.cancel()
