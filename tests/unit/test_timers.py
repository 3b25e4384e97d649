"""Things to be done at a time."""

from hypothesis import given
from hypothesis import strategies as st

from lockd.core.timers import Timers


def test_what_runs_late_is_told_the_time_it_really_is_and_to_cancel_it_then_is_no_mistake():
    timers, done = Timers(), []
    timer = timers.at(10, done.append)
    timers.run(99)
    for cancelled in (timer, timer, None):
        timers.cancel(cancelled)
    assert done == [99]
    assert timers.at(20, done.append).due is not None
    assert timers.run(15) == 20


def test_what_runs_may_set_something_that_is_due_in_the_same_turn_and_cancel_what_comes_after_it():
    timers, done = Timers(), []
    timers.at(10, lambda now: timers.at(now, lambda _: done.append("child")))
    timers.at(10, lambda _: timers.cancel(later))
    later = timers.at(10, done.append)
    timers.run(10)
    assert done == ["child"]


def test_the_driver_hears_when_the_next_time_moves_closer_and_only_then():
    timers, alarms = Timers(), []
    timers.sooner = alarms.append
    timers.at(50, lambda _: None)
    timers.at(70, lambda _: None)
    timers.at(20, lambda _: None)
    assert alarms == [50, 20]


def test_the_cancelled_do_not_pile_up():
    timers = Timers()
    for i in range(10_000):
        timers.cancel(timers.at(1_000_000 + i, lambda _: None))
    assert len(timers._heap) <= 512


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=700), st.integers(0, 100))
def test_exactly_what_is_due_and_not_cancelled_is_done(plan, now):
    timers, done = Timers(), []
    handles = [timers.at(when, lambda _, i=i: done.append(i)) for i, (when, _) in enumerate(plan)]
    for handle, (_, cancelled) in zip(handles, plan, strict=True):
        if cancelled:
            timers.cancel(handle)
    left = timers.run(now)
    alive = [(when, i) for i, (when, cancelled) in enumerate(plan) if not cancelled]
    assert done == [i for when, i in sorted(alive) if when <= now]
    assert left == min((when for when, _ in alive if when > now), default=None)


def test_so_much_is_done_at_most_when_so_much_is_asked_for():
    timers, done = Timers(), []
    for number in range(5):
        timers.at(number, lambda _, number=number: done.append(number))
    timers.cancel(timers.at(0, done.append))
    assert timers.run(10, 2) == 2
    assert done == [0, 1]
    assert timers.run(10, 9) is None
    assert done == [0, 1, 2, 3, 4]
