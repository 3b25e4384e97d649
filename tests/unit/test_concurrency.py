"""Whoever asks for too many slow things waits behind himself."""

import asyncio
import contextlib

import pytest

from lockd.server.concurrency import ConcurrencyLimit
from tests.harness.waiting import PATIENCE_S, until


async def in_slot(limit: ConcurrencyLimit, uid: int, log: list[int], go: asyncio.Event) -> None:
    async with limit.slot(f"{uid}"):
        log.append(uid)
        await go.wait()


async def test_one_users_flood_does_not_keep_another_from_his_slot():
    limit, go, begun = ConcurrencyLimit(at_once=8, per_account=2), asyncio.Event(), list[int]()
    tasks = [asyncio.ensure_future(in_slot(limit, uid, begun, go)) for uid in [1000] * 50 + [7]]
    for _ in range(10):
        await asyncio.sleep(0)
    assert sorted(begun) == [7, 1000, 1000]
    go.set()
    await asyncio.gather(*tasks)
    assert len(begun) == 51


async def test_a_slot_is_given_back_when_its_holder_is_cancelled():
    limit = ConcurrencyLimit(at_once=8, per_account=2)

    async def holds(begun: asyncio.Event) -> None:
        async with limit.slot(1000):
            begun.set()
            await asyncio.Event().wait()

    async with asyncio.timeout(PATIENCE_S):
        for _ in range(20):
            begun = asyncio.Event()
            task = asyncio.ensure_future(holds(begun))
            await begun.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_slot_is_given_back_whatever_fails_of_letting_the_next_one_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit, failures = ConcurrencyLimit(at_once=1, per_account=1), list[Exception]()

    def fails(*_: object) -> None:
        raise RuntimeError

    async def takes() -> None:
        try:
            async with asyncio.timeout(PATIENCE_S), limit.slot("an account"):
                pass
        except RuntimeError as failure:
            failures.append(failure)

    for step in ("_let_in", "_has_rested", "_has_room"):
        with monkeypatch.context() as patch, contextlib.suppress(RuntimeError):
            patch.setattr(limit, step, fails)
            await takes()
            await asyncio.sleep(0)
        await until(lambda: limit._has_room("an account"), what="the account has rested")
        await takes()
    assert len(failures) == 2, "where it was let in, it did not fail"


async def test_who_is_cancelled_at_the_moment_it_is_let_in_or_before_keeps_no_slot():
    limit, go, begun = ConcurrencyLimit(at_once=1, per_account=1), asyncio.Event(), list[int]()
    first, second, third = (asyncio.ensure_future(in_slot(limit, uid, begun, go)) for uid in (1, 2, 3))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    third.cancel()
    await asyncio.gather(third, return_exceptions=True)
    first.cancel()
    await asyncio.sleep(0)
    # It is let in, and does not know of it yet.
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    go.set()
    async with asyncio.timeout(PATIENCE_S):
        await in_slot(limit, 4, begun, go)
    assert begun == [1, 4]


async def in_order(waiting: list[tuple[int, bool]]) -> list[int]:
    """Who is let in, one after the other, of those who came while the one slot was taken."""
    limit, go, begun = ConcurrencyLimit(at_once=1, per_account=1), asyncio.Event(), list[int]()
    taken = asyncio.ensure_future(in_slot(limit, 99, begun, go))
    await asyncio.sleep(0)

    async def waits(uid: int, first: bool) -> None:
        async with limit.slot(f"{uid}", first=first):
            begun.append(uid)

    tasks = [asyncio.ensure_future(waits(*one)) for one in waiting]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(taken, *tasks)
    return begun[1:]


async def test_another_users_single_one_comes_before_the_second_of_one_with_many():
    assert await in_order([(1000, False)] * 5 + [(7, False)]) == [1000, 7, *[1000] * 4]


async def test_operators_come_before_all_who_wait():
    users = [(uid, False) for uid in range(1000, 1012)]
    assert await in_order([*users, (0, True)]) == [0, *range(1000, 1012)]
