"""Things to be done at a time, in turns of accounts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockd.core.turns import HOUSE, Turns, cancel
from tests.harness.clocks import Clock

MS = 1_000_000
ONE = "one"


def test_what_runs_late_is_told_the_time_it_really_is_and_to_cancel_it_then_is_no_mistake() -> None:
    turns, done = Turns(), list[int]()
    job = turns.at(ONE, 10, done.append)
    turns.run(99)
    for cancelled in (job, job, None):
        cancel(cancelled)
    assert done == [99]
    assert turns.at(ONE, 20, done.append).due is not None
    assert turns.run(15) == 20


def test_what_runs_may_set_something_that_is_due_in_the_same_turn_and_cancel_what_comes_after_it() -> None:
    turns, done = Turns(), list[Any]()
    turns.at(ONE, 10, lambda now: turns.at(ONE, now, lambda _: done.append("child")))
    turns.at(ONE, 10, lambda _: cancel(later))
    later = turns.at(ONE, 10, done.append)
    turns.run(10)
    assert done == ["child"]


def test_the_driver_hears_when_the_next_time_moves_closer_and_only_then() -> None:
    turns, alarms = Turns(), list[int]()
    turns.sooner = alarms.append
    for account, when_ns in ((ONE, 50), ("another", 70), (ONE, 60), ("another", 20), (HOUSE, 10), (ONE, 30)):
        turns.at(account, when_ns, lambda _: None)
    assert alarms == [50, 20, 10]


def test_the_cancelled_do_not_pile_up() -> None:
    turns = Turns()
    for i in range(10_000):
        cancel(turns.at(ONE, 1_000_000 + i, lambda _: None))
    assert len(turns._share_of(ONE).jobs) <= 512


def test_accounts_that_have_nothing_to_do_are_forgotten_and_those_that_have_to_wait_are_not() -> None:
    turns = Turns()
    turns.charge("greedy", 10 * MS)
    for number in range(1_000):
        turns.at(f"{number}", 1, lambda _: None)
        turns.run(1)
    assert len(turns._shares) < 200
    assert "greedy" in turns._shares


@given(
    st.lists(
        st.tuples(st.sampled_from([ONE, "two", HOUSE]), st.integers(0, 100), st.booleans()), max_size=700
    ),
    st.integers(0, 100),
)
def test_exactly_what_is_due_and_not_cancelled_is_done_and_an_accounts_earliest_first(
    plan: list[tuple[str, int, bool]], now_ns: int
) -> None:
    turns, done = Turns(), list[int]()
    jobs = [turns.at(who, when, lambda _, i=i: done.append(i)) for i, (who, when, _) in enumerate(plan)]
    for job, (_, _, cancelled) in zip(jobs, plan, strict=True):
        if cancelled:
            cancel(job)
    left = turns.run(now_ns)
    alive = [(when, i) for i, (_, when, cancelled) in enumerate(plan) if not cancelled]
    assert sorted(done) == sorted(i for when, i in alive if when <= now_ns)
    assert left == min((when for when, _ in alive if when > now_ns), default=None)
    for account in (ONE, "two", HOUSE):
        own = [(when, i) for when, i in alive if plan[i][0] == account and when <= now_ns]
        assert [i for i in done if plan[i][0] == account] == [i for _, i in sorted(own)]


def test_so_much_is_done_at_most_when_so_much_is_asked_for() -> None:
    turns, done = Turns(), list[int]()
    for number in range(5):
        turns.at(ONE, number, lambda _, number=number: done.append(number))
    cancel(turns.at(ONE, 0, done.append))
    assert turns.run(10, 2) == 2
    assert done == [0, 1]
    assert turns.run(10, 9) is None
    assert done == [0, 1, 2, 3, 4]


# Who is next


class Work:
    """Jobs that take time, and who was served when."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.turns = Turns(self.clock)
        self.served = list[str]()

    def add(self, account: str, cost_ns: int = MS, when_ns: int = 0, number: int = 1) -> None:
        for _ in range(number):
            self.turns.at(account, when_ns, self._work, (account, cost_ns))

    def _work(self, of: tuple[str, int], _now_ns: int) -> None:
        account, cost_ns = of
        self.clock.now_ns += cost_ns
        self.served.append(account)


def test_an_account_with_thousands_of_earlier_jobs_is_in_front_of_nobody() -> None:
    work = Work()
    work.add("greedy", number=5_000)
    work.turns.run(0, 100)
    work.add("modest", when_ns=5)
    work.turns.run(5, 2)
    assert work.served[100:].count("modest") == 1


def test_the_account_that_has_used_least_is_next_whatever_its_jobs_cost() -> None:
    work = Work()
    work.add("dear", cost_ns=10 * MS, number=100)
    work.add("cheap", cost_ns=MS, number=1_000)
    work.turns.run(0, 550)
    assert work.served.count("dear") == pytest.approx(50, abs=1)


def test_what_is_done_for_an_account_outside_of_its_turn_is_charged() -> None:
    work = Work()
    work.turns.charge("greedy", 50 * MS)
    work.add("greedy", number=100)
    work.add("modest", number=100)
    work.turns.run(0, 60)
    assert work.served.count("greedy") == pytest.approx(5, abs=1)


@pytest.mark.parametrize("at_once", [False, True])
def test_nobody_saves_up_turns_by_resting(at_once: bool) -> None:
    """Not beside those that are served at once either."""
    work = Work()
    work.add("rested")
    work.turns.run(0)
    for _ in range(1_000):
        if at_once:
            work.turns.served("busy", MS)
        else:
            work.add("busy")
            work.turns.run(0)
    work.add("rested", number=10)
    work.add("busy", number=10)
    work.turns.run(0, 10)
    assert work.served[-10:].count("busy") == pytest.approx(5, abs=1)


def test_to_rest_for_a_moment_does_not_pay_what_was_used() -> None:
    work = Work()
    work.add("greedy", cost_ns=100 * MS)
    work.add("modest", number=200)
    work.turns.run(0, 2)
    work.add("greedy")
    work.turns.run(0, 90)
    assert work.served[2:].count("greedy") == 0


def test_the_house_goes_first_and_pays_nothing() -> None:
    work = Work()
    work.add("app", number=10)
    work.add(HOUSE, cost_ns=100 * MS, when_ns=3, number=3)
    work.turns.run(1, 1)
    work.turns.run(3, 4)
    assert work.served == ["app", HOUSE, HOUSE, HOUSE, "app"]
    assert work.turns.is_next(HOUSE)


def test_who_has_used_least_may_be_served_at_once_and_who_has_used_more_may_not() -> None:
    work = Work()
    assert work.turns.is_next("greedy"), "nobody has anything to do"
    work.turns.served("greedy", 5 * MS)
    work.add("greedy")
    work.add("modest", number=3)
    work.turns.run(0, 1)
    assert work.turns.is_next("modest")
    assert work.turns.is_next("new")
    assert not work.turns.is_next("greedy")
    work.turns.served("new", 9 * MS)
    assert not work.turns.is_next("new")


def test_a_job_that_fails_is_charged_and_done_once() -> None:
    work = Work()

    def fails(_now_ns: int) -> None:
        work.clock.now_ns += 10 * MS
        raise ValueError

    work.turns.at("bad", 0, fails)
    with pytest.raises(ValueError):
        work.turns.run(0)
    work.add("bad")
    work.add("good", number=5)
    assert work.turns.run(0) is None
    assert work.served == ["good"] * 5 + ["bad"]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 30), st.integers(1, 3 * MS)), max_size=300))
def test_no_account_with_work_waits_for_more_than_a_job_of_each_other(
    plan: list[tuple[int, int, int]],
) -> None:
    """While two have something to do, neither gets ahead of the other by more than their longest job."""
    work = Work()
    for account, when_ns, cost_ns in plan:
        work.add(f"{account}", cost_ns, when_ns)
    for now_ns in range(31):
        work.turns.run(now_ns, 5)
    before = {f"{n}": 0 for n in range(8)}
    spent = dict(before)
    longest_ns = max((cost for _, _, cost in plan), default=0)
    left = [account for _, _, account in sorted((w, i, f"{a}") for i, (a, w, _) in enumerate(plan))]
    for account in work.served:
        left.remove(account)
    backlog = {account for account in left if left.count(account) > 60}
    start = work.clock.now_ns
    while work.turns.run(31, 1) is not None:
        account = work.served[-1]
        spent[account] += work.clock.now_ns - start
        start = work.clock.now_ns
        if {one for one in backlog if left.count(one) > work.served.count(one)} != backlog:
            break
        for one, other in pairwise(sorted(backlog)):
            assert abs(spent[one] - spent[other]) <= 2 * longest_ns


def test_while_there_is_a_rest_only_those_are_served_that_have_used_no_more_than_the_last_one() -> None:
    work = Work()
    work.add("greedy", number=10)
    work.add("greedy too", number=10)
    work.turns.run(0, 4)
    work.turns.rest()
    work.add("modest")
    work.add(HOUSE)
    work.turns.at("greedy", 7, lambda _: None)
    assert work.turns.run(0) is None, "nobody else sleeps"
    assert sorted(work.served[4:]) == ["modest", HOUSE]
    work.turns.go_on()
    assert work.turns.run(0) == 7
    assert len(work.served) == 22
