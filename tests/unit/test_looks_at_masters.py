"""Rule 5: how often masters are looked at, since one that doesn't answer in time is left out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lockd.clock import boottime_ns
from lockd.core.link import LOOK_NS
from lockd.core.membership import State
from lockd.masters.fleet import Fleet
from lockd.masters.link import FutureCall, Link
from tests.harness.real_fleet import a_fleet
from tests.harness.waiting import until


def ask_the_first(fleet: Fleet) -> Link:
    """One question to a master that is up, and to which nothing else is asked."""
    first = fleet.links[0]
    first.state = State.UP
    first.ask((FutureCall(asyncio.get_running_loop()), b"", boottime_ns()))
    return first


def looks_ahead(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The looks that the loop is asked for from here on. A compiled class could not be patched itself."""
    loop = asyncio.get_running_loop()
    asked: list[object] = []
    call_later = loop.call_later

    def seen_call_later(delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        if delay_s == LOOK_NS / 1e9:
            asked.append(callback)
        return call_later(delay_s, callback, *args)

    monkeypatch.setattr(loop, "call_later", seen_call_later)
    return asked


async def test_a_master_that_owes_one_answer_is_looked_at_until_it_is_late() -> None:
    """Nothing else is asked, so nothing else makes anybody look."""
    first = ask_the_first(a_fleet(timeouts={"master_ms": 200, "dead_ms": 60_000}))
    await until(lambda: first.state is State.STALLED, what="it is found to be late")
    assert int(first.reason.split()[3]) >= 200, first.reason


async def test_and_no_more_once_it_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = a_fleet(timeouts={"master_ms": 60_000, "dead_ms": 60_000})
    looks = looks_ahead(monkeypatch)
    first = ask_the_first(fleet)
    await until(lambda: len(looks) >= 3, what="it is looked at while it owes an answer")
    first.heard(b"OK", boottime_ns())
    so_far = len(looks)
    await asyncio.sleep(10 * LOOK_NS / 1e9)  # what does not happen can only be waited out
    assert len(looks) <= so_far + 1
