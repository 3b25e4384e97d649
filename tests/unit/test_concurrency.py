"""Whoever asks for too many slow things waits behind himself."""

import asyncio

from lockd.server.concurrency import ConcurrencyLimit


async def in_slot(limit: ConcurrencyLimit, uid: int, log: list[int], go: asyncio.Event) -> None:
    async with limit.slot(uid):
        log.append(uid)
        await go.wait()


async def test_one_users_flood_does_not_keep_another_from_his_slot():
    limit, go, begun = ConcurrencyLimit(at_once=8, per_user=2), asyncio.Event(), list[int]()
    tasks = [asyncio.ensure_future(in_slot(limit, uid, begun, go)) for uid in [1000] * 50 + [7]]
    for _ in range(10):
        await asyncio.sleep(0)
    assert sorted(begun) == [7, 1000, 1000]
    go.set()
    await asyncio.gather(*tasks)
    assert len(begun) == 51


async def test_a_slot_is_given_back_when_its_holder_is_cancelled():
    limit, go, begun = ConcurrencyLimit(at_once=8, per_user=2), asyncio.Event(), list[int]()
    for _ in range(20):
        task = asyncio.ensure_future(in_slot(limit, 1000, begun, go))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(begun) == 20
