"""Waiting for what comes by itself.

Nothing sleeps to be right: what a test waits for is looked at often, and named when it never came. There is
one limit for everything: it ends what hangs, and says nothing about how fast a machine is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

import redis

T = TypeVar("T")

PATIENCE_S = 120.0
"""Longer than a machine stands still, and short of the time-out of a test (pyproject.toml): then what never
came has a name."""


def eventually(
    condition: Callable[[], T],
    what: str = "the condition",
    every_s: float = 0.01,
    not_yet: tuple[type[Exception], ...] = (),
) -> T:
    """The first true value of `condition`; AssertionError naming `what` when there is none in time.

    An AssertionError, a lost connection, an error reply or what is in `not_yet`: then it does not hold yet.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    last: object = None
    while True:
        try:
            value = condition()
            if value:
                return value
            last = value
        except (AssertionError, OSError, redis.RedisError, StopIteration, *not_yet) as error:
            last = error
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {PATIENCE_S:g} s: {what} (last: {last!r})")
        time.sleep(every_s)


async def until(
    condition: Callable[[], object],
    what: str = "the condition",
    every_s: float = 0.01,
    failure: type[Exception] = AssertionError,
) -> None:
    """Return once `condition` is true, and let the loop run meanwhile; `failure` naming `what` when it is not
    in time."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise failure(f"not within {PATIENCE_S:g} s: {what}")
        await asyncio.sleep(every_s)
