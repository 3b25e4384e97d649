"""Work for which nobody has to wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lockd.threads import Lookup, in_thread


class Oracle:
    """Is asked, and answers when it may: with how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = threading.Semaphore(0)

    def answer(self) -> int:
        self.asked += 1
        self.may_answer.acquire()
        return self.asked


async def patience_ends(lookup: Lookup[int]) -> None:
    waits = asyncio.get_running_loop().create_task(lookup.result())
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.wait([waits])
    assert waits.cancelled()


async def test_an_answer_for_which_nobody_waited_is_there_for_who_asks_next() -> None:
    """A resolver that takes five seconds, beside links that wait for one."""
    oracle = Oracle()
    lookup = Lookup(oracle.answer)
    for _ in range(3):
        await patience_ends(lookup)
        assert lookup.is_under_way
    oracle.may_answer.release()
    assert await lookup.result() == 1, "it was asked once, and not by a thread for each who waited"
    oracle.may_answer.release()
    assert await lookup.result() == 2, "and an answer is given once"


async def test_who_asks_at_the_same_time_gets_the_same_answer() -> None:
    oracle = Oracle()
    lookup = Lookup(oracle.answer)
    oracle.may_answer.release()
    assert await asyncio.gather(lookup.result(), lookup.result()) == [1, 1]


async def test_a_failure_is_told_once() -> None:
    results = iter([ZeroDivisionError, "found"])

    def look_up() -> object:
        if (result := next(results)) is ZeroDivisionError:
            raise ZeroDivisionError
        return result

    lookup = Lookup(look_up)
    with pytest.raises(ZeroDivisionError):
        await lookup.result()
    assert await lookup.result() == "found"


def test_a_loop_that_ends_waits_for_no_thread() -> None:
    go_on = threading.Event()

    async def asks() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(in_thread(go_on.wait), 0.01)

    asyncio.run(asks())
    assert any(one.daemon and one.is_alive() for one in threading.enumerate())
    go_on.set()
