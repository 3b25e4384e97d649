"""Work that can wait is done in bites, each user in turn, and the loop rests from it in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from itertools import groupby
from typing import Any

import pytest

from lockd.server import lanes
from lockd.server.lanes import BITE_NS, Lane
from tests.harness.clocks import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    it = Clock()
    monkeypatch.setattr(lanes, "perf_counter_ns", it)
    return it


def work(clock: Clock, steps: int, took_ns: int, log: list[Any], name: Any = "step") -> Iterator[None]:
    for _ in range(steps):
        clock.now_ns += took_ns
        log.append(name)
        yield


async def others(log: list[Any], work: Awaitable[Any]) -> None:
    """Everybody else on the loop, while that is done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        log.append("others")
    await task


def longest_run(log: list[Any]) -> int:
    return max(len(list(run)) for of_others, run in groupby(log, "others".__eq__) if not of_others)


@pytest.mark.parametrize(("rests", "askers"), [(0, 1), (3, 1), (0, 20)])
async def test_others_get_the_loop_after_every_bite(clock: Clock, rests: int, askers: int) -> None:
    log, lane = list[Any](), Lane(rests)
    works = [work(clock, 200 // askers, BITE_NS // 4, log) for _ in range(askers)]
    await others(log, asyncio.gather(*(lane.through(n, one) for n, one in enumerate(works))))
    assert log.count("step") == 200
    assert longest_run(log) <= 4


@pytest.mark.parametrize("first", [True, False], ids=["before it", "behind it"])
async def test_one_users_flood_is_in_front_of_nobody_else(clock: Clock, first: bool) -> None:
    log, lane = list[Any](), Lane(0)
    asked = [lane.through(1000, work(clock, 10, BITE_NS, log, "flood")) for _ in range(50)]
    asked.insert(0 if first else 50, lane.through(7, work(clock, 3, BITE_NS, log, "other")))
    await asyncio.gather(*asked)
    assert log[:6].count("other") == 3
    assert log.count("flood") == 500


async def test_a_lane_rests_for_as_many_times_as_it_works(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests_ns = list[int]()
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def at_once(delay_s: float, call: Any) -> Any:
        rests_ns.append(round(delay_s * 1e9))
        clock.now_ns += rests_ns[-1]
        return call_later(0, call)

    monkeypatch.setattr(loop, "call_later", at_once)
    await Lane(3).through(1, work(clock, 40, BITE_NS // 4, []))
    assert rests_ns[0] == 0
    assert rests_ns[1:11] == [3 * BITE_NS] * 10


async def test_what_a_step_raises_comes_to_its_caller_and_to_nobody_else(clock: Clock) -> None:
    def fails() -> Iterator[None]:
        yield
        raise ValueError("a step")

    lane, good = Lane(0), work(clock, 5, BITE_NS, [])
    failed, worked = await asyncio.gather(
        lane.through(1, fails()), lane.through(1, good), return_exceptions=True
    )
    assert isinstance(failed, ValueError)
    assert worked is None


async def test_what_nobody_waits_for_any_more_is_not_done(clock: Clock) -> None:
    log = list[Any]()
    lane = Lane(0)
    task = asyncio.ensure_future(lane.through(1, work(clock, 1_000, BITE_NS, log)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await lane.through(1, work(clock, 1, BITE_NS, []))
    assert len(log) < 10


async def test_what_a_job_adds_comes_after_it(clock: Clock) -> None:
    log = list[Any]()
    lane, over = Lane(0), asyncio.Event()

    def job(until_ns: int) -> bool:
        clock.now_ns += BITE_NS
        log.append("job")
        if len(log) < 5:
            lane.add(1, job)
        else:
            over.set()
        return False

    lane.add(1, job)
    await over.wait()
    assert log == ["job"] * 5
