"""Work for which nobody has to wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lockd.threads import YOUNG_NS, Lookup, in_thread
from tests.harness.clocks import Clock
from tests.harness.waiting import until


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
    lookup = Lookup(oracle.answer, Clock())
    for _ in range(3):
        await patience_ends(lookup)
        assert lookup.is_under_way
    oracle.may_answer.release()
    assert await lookup.result() == 1, "it was asked once, and not by a thread for each who waited"
    oracle.may_answer.release()
    assert await lookup.result() == 2, "and an answer is given once"


async def finished(lookup: Lookup[int]) -> None:
    await until(lambda: not lookup.is_under_way)


@pytest.mark.parametrize(("later_ns", "answer"), [(YOUNG_NS, 1), (YOUNG_NS + 1, 2)])
async def test_an_answer_for_which_nobody_waited_is_given_while_it_is_young(
    later_ns: int, answer: int
) -> None:
    """A link that connects again after days must not use the address and the password of then."""
    oracle, now_ns = Oracle(), Clock()
    lookup = Lookup(oracle.answer, now_ns)
    await patience_ends(lookup)
    oracle.may_answer.release()
    await finished(lookup)
    now_ns.now_ns += later_ns
    oracle.may_answer.release()
    assert await lookup.result() == answer


async def test_however_long_it_takes_an_answer_is_there_for_who_asked_before_it_came() -> None:
    oracle, now_ns = Oracle(), Clock()
    lookup = Lookup(oracle.answer, now_ns)
    await patience_ends(lookup)
    now_ns.now_ns += 2 * YOUNG_NS
    asks = asyncio.get_running_loop().create_task(lookup.result())
    await asyncio.sleep(0)
    oracle.may_answer.release()
    assert await asks == 1


async def test_who_is_told_late_takes_nothing_from_who_asked_after_that() -> None:
    oracle = Oracle()
    lookup = Lookup(oracle.answer, Clock())
    told_late = lookup.result()
    told_late.send(None)
    oracle.may_answer.release()
    assert await lookup.result() == 1
    asks = asyncio.get_running_loop().create_task(lookup.result())
    await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        told_late.throw(asyncio.CancelledError())
    assert lookup.is_under_way
    oracle.may_answer.release()
    assert await asks == 2


async def test_who_asks_at_the_same_time_gets_the_same_answer() -> None:
    oracle = Oracle()
    lookup = Lookup(oracle.answer, Clock())
    oracle.may_answer.release()
    assert await asyncio.gather(lookup.result(), lookup.result()) == [1, 1]


async def test_a_failure_is_told_once() -> None:
    results = iter([ZeroDivisionError, "found"])

    def look_up() -> object:
        if (result := next(results)) is ZeroDivisionError:
            raise ZeroDivisionError
        return result

    lookup = Lookup(look_up, Clock())
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
