"""An event loop whose clock moves only when nothing is left to do: then it is the time of its next timer.

What waits for a time-out has it at once, and nothing is late because the machine stood still. It is for what
has neither sockets nor threads.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """Nothing ever comes: a wait is over at once, and its time has passed."""

    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "it waits for what never comes"
        self.passed_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        return self._waits.passed_s


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
