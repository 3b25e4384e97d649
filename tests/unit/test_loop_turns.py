"""What is done in turn on the event loop: in bites, and others get the loop in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest

from lockd.clock import boottime_ns
from lockd.core.turns import HOUSE, Turns
from lockd.server import turns as turns_module
from lockd.server.turns import AT_ONCE_NS, BITE_NS, TURN_NS, LoopTurns
from tests.harness.clocks import Clock
from tests.harness.waiting import until

STEP_NS = BITE_NS // 4
IN_A_TURN = TURN_NS // STEP_NS + BITE_NS // STEP_NS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    it = Clock()
    monkeypatch.setattr(turns_module, "perf_counter_ns", it)
    return it


@pytest.fixture
def failures() -> list[Exception]:
    return []


@pytest.fixture
def turns(clock: Clock, failures: list[Exception]) -> LoopTurns:
    return LoopTurns(Turns(clock), failures.append)


def work(
    clock: Clock, steps: int, log: list[Any], name: Any = "step", took_ns: int = STEP_NS
) -> Iterator[None]:
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


@pytest.mark.parametrize("accounts", [1, 20])
async def test_others_get_the_loop_after_a_turn(clock: Clock, turns: LoopTurns, accounts: int) -> None:
    log = list[Any]()
    works = [work(clock, 200 // accounts, log) for _ in range(accounts)]
    await others(log, asyncio.gather(*(turns.through(f"{n}", one) for n, one in enumerate(works))))
    assert log.count("step") == 200
    assert longest_run(log) <= IN_A_TURN


async def test_jobs_that_are_due_together_leave_the_loop_to_others(clock: Clock, turns: LoopTurns) -> None:
    log, over = list[Any](), asyncio.Event()

    def due(_now_ns: int) -> None:
        clock.now_ns += STEP_NS
        log.append("job")
        if log.count("job") == 1_000:
            over.set()

    for _ in range(1_000):
        turns.of.at("one", boottime_ns(), due)
    await others(log, over.wait())
    assert longest_run(log) <= IN_A_TURN


@pytest.mark.parametrize("first", [True, False], ids=["before it", "behind it"])
async def test_one_accounts_flood_is_in_front_of_nobody_else(
    clock: Clock, turns: LoopTurns, first: bool
) -> None:
    log = list[Any]()
    asked = [turns.through("greedy", work(clock, 10, log, "flood", BITE_NS)) for _ in range(50)]
    asked.insert(0 if first else 50, turns.through("modest", work(clock, 3, log, "other", BITE_NS)))
    await asyncio.gather(*asked)
    assert log[:6].count("other") == 3
    assert log.count("flood") == 500


async def test_what_a_step_raises_comes_to_its_caller_and_to_nobody_else(
    clock: Clock, turns: LoopTurns
) -> None:
    def fails() -> Iterator[None]:
        yield
        raise ValueError("a step")

    failed, worked = await asyncio.gather(
        turns.through("one", fails()), turns.through("one", work(clock, 5, [])), return_exceptions=True
    )
    assert isinstance(failed, ValueError)
    assert worked is None


async def test_what_a_job_raises_is_reported_and_the_others_go_on(
    turns: LoopTurns, failures: list[Exception]
) -> None:
    done = list[str]()

    def fails(_now_ns: int) -> None:
        raise ValueError("a job")

    turns.of.at("one", 0, fails)
    turns.of.at("one", 1, lambda _now_ns: done.append("next"))
    await until(lambda: bool(done), "the next job is done")
    assert [str(failure) for failure in failures] == ["a job"]


async def test_what_nobody_waits_for_any_more_is_not_done(clock: Clock, turns: LoopTurns) -> None:
    log = list[Any]()
    task = asyncio.ensure_future(turns.through("one", work(clock, 1_000, log)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await turns.answer("one", lambda: None)
    assert len(log) < 2 * IN_A_TURN


async def test_what_a_job_adds_comes_after_what_was_there(clock: Clock, turns: LoopTurns) -> None:
    log, over = list[Any](), asyncio.Event()

    def job(_until_ns: int) -> bool:
        clock.now_ns += BITE_NS
        log.append("job")
        if log.count("job") < 5:
            turns.add("one", job)
        else:
            over.set()
        return False

    turns.add("one", job)
    turns.add("one", lambda _until_ns: bool(log.append("another")))
    await over.wait()
    assert log[:2] == ["job", "another"]


async def test_a_single_request_is_served_at_once_unless_its_account_has_used_more_than_one_that_waits(
    clock: Clock, turns: LoopTurns
) -> None:
    assert turns.may_go_first("greedy")
    turns.of.charge("greedy", 10 * TURN_NS)
    for _ in range(2):
        turns.of.at("modest", 0, lambda _now_ns: None)
    turns.of.run(0, 1)
    assert not turns.may_go_first("greedy")
    assert turns.may_go_first("new")
    assert turns.may_go_first(HOUSE)


class OneAlarm:
    """lockd.server.turns.Loop, whose time a test sets."""

    def __init__(self) -> None:
        self.ns = 0
        self.set: list[Callable[[], None]] = []
        """Alarms that will ring."""

    def now_ns(self) -> int:
        return self.ns

    worked_ns = now_ns

    def call_later(self, _delay_s: float, call: Callable[[], None]) -> SimpleNamespace:
        self.set.append(call)
        return SimpleNamespace(cancel=lambda: self.set.remove(call) if call in self.set else None)

    def call_soon(self, call: Callable[[], None]) -> object:
        return self.call_later(0, call)


def test_who_looks_before_the_alarm_rings_leaves_one_alarm_and_not_one_more_each_time(
    failures: list[Exception],
) -> None:
    loop, done = OneAlarm(), list[int]()
    of = Turns()
    turns = LoopTurns(of, failures.append, loop)
    for number in range(50):
        of.at("one", 10 * number + 10, done.append)
    for number in range(49):
        loop.ns = 10 * number + 11
        turns.look()
        assert len(loop.set) == 1
    assert (len(done), failures) == (49, [])


async def test_what_is_charged_for_answers_to_come_counts_as_done_at_once(
    clock: Clock, turns: LoopTurns
) -> None:
    """They will have to be heard, before whatever comes then."""
    assert turns.may_go_first("one")
    turns.of.charge("one", AT_ONCE_NS)
    turns.went_first("one", clock.now_ns)
    assert not turns.may_go_first("one")
    assert not turns.may_go_first("new")


async def test_no_more_is_served_at_once_than_a_turn_is_long_and_in_the_next_turn_as_much_again(
    clock: Clock, turns: LoopTurns
) -> None:
    for _ in range(2):
        served = 0
        while turns.may_go_first("one"):
            began_ns, clock.now_ns = clock.now_ns, clock.now_ns + STEP_NS
            turns.went_first("one", began_ns)
            served += 1
        assert served == AT_ONCE_NS // STEP_NS
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_beside_one_that_works_all_the_time_the_loop_is_left_to_others_for_some_time(
    clock: Clock, turns: LoopTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks masters comes back to the loop again and again: each time it would wait for a turn of work."""
    now = Clock()
    monkeypatch.setattr(turns_module, "boottime_ns", now)
    log, others = list[str](), list[str]()

    def greedy(_until_ns: int) -> bool:
        clock.now_ns += BITE_NS
        log.append("greedy")
        return True

    turns.add("greedy", greedy)
    await until(lambda: bool(log), "it works")
    turns.went_first("modest", clock.now_ns)
    await until(lambda: turns._rest_ends_ns > 0, "there is a rest")
    before = len(log)
    turns.of.at("modest", 0, lambda _now_ns: others.append("modest"))
    await until(lambda: bool(others), "who has used less is served meanwhile")
    assert len(log) == before
    now.now_ns = turns._rest_ends_ns + 1
    turns.look()
    assert len(log) > before


class Rings:
    """A loop whose time a test moves: an alarm rings when its time has come."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.now_ns = self.worked_ns = self.clock
        self.alarms = dict[int, tuple[int, Callable[[], None]]]()

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Any:
        number = len(self.alarms) + 1
        self.alarms[number] = self.clock.now_ns + round(delay_s * 1e9), call
        return SimpleNamespace(cancel=lambda: self.alarms.pop(number, None))

    def call_soon(self, call: Callable[[], None]) -> object:
        return self.call_later(0, call)

    async def passes(self, until_ns: int) -> None:
        while self.alarms:
            number, (at_ns, ring) = min(self.alarms.items(), key=lambda alarm: alarm[1][0])
            if at_ns > until_ns:
                break
            del self.alarms[number]
            self.clock.now_ns = max(self.clock.now_ns, at_ns)
            ring()
        self.clock.now_ns = max(self.clock.now_ns, until_ns)
        await asyncio.sleep(0)


def _never() -> bool:
    return False


async def test_what_is_waited_for_is_looked_at_in_its_accounts_turns(failures: list[Exception]) -> None:
    """A look takes a while. Of hundreds that look, another account waits for one bite of work."""
    loop, log = Rings(), list[str]()
    turns = LoopTurns(Turns(loop.clock), failures.append, loop)

    def looks() -> bool:
        loop.clock.now_ns += STEP_NS
        log.append("look")
        return False

    waits = [asyncio.ensure_future(turns.until("greedy", looks, 10**9)) for _ in range(300)]
    await asyncio.sleep(0)
    log.clear()
    next_ns = min(at_ns for at_ns, _ in loop.alarms.values())
    turns.of.at("calm", next_ns + STEP_NS, lambda _now_ns: log.append("calm"))
    await loop.passes(next_ns + 400 * STEP_NS)
    assert log.index("calm") <= IN_A_TURN
    assert turns.of._used_ns("greedy") >= log.count("look") * STEP_NS, "they are charged"
    for one in waits:
        one.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    before = len(log)
    await loop.passes(loop.clock.now_ns + 10**9)
    assert len(log) == before, "who is not waited for any more is not looked at"
    assert not failures


async def test_what_takes_longer_is_looked_at_less_often_and_seen_a_little_later(
    failures: list[Exception],
) -> None:
    loop, looked_ns = Rings(), list[int]()
    turns = LoopTurns(Turns(), failures.append, loop)
    true_ns, last_ns = 7 * 10**9, 60 * 10**9

    def is_true() -> bool:
        looked_ns.append(loop.clock.now_ns)
        return loop.clock.now_ns >= true_ns

    wait = asyncio.ensure_future(turns.until("app", is_true, last_ns))
    await asyncio.sleep(0)
    await loop.passes(last_ns)
    assert wait.done()
    assert true_ns <= looked_ns[-1] <= true_ns * 9 // 8
    assert len(looked_ns) < 60


@pytest.mark.parametrize("wait_ns", [0, 5 * 10**6, 10**9])
async def test_it_is_waited_for_so_long_and_no_longer(failures: list[Exception], wait_ns: int) -> None:
    loop = Rings()
    turns = LoopTurns(Turns(), failures.append, loop)
    wait = asyncio.ensure_future(turns.until("app", _never, loop.clock.now_ns + wait_ns))
    await asyncio.sleep(0)
    if wait_ns:
        await loop.passes(wait_ns)
        assert not wait.done()
    await loop.passes(wait_ns + 1)
    await asyncio.sleep(0)
    assert wait.done()
