"""What another has: it is told as contention, never as an outage, and a waiter gets it when it is free."""

from itertools import pairwise

import pytest

from lockd.core.ballots.attempt import Attempt
from tests.harness.clocks import MS
from tests.harness.fleet_model import Host, beside, cluster
from tests.harness.script_model import Key


@pytest.mark.parametrize(("by", "retry_after_ms"), [(beside, 3_000), (lambda host: host, 2_968)])
def test_what_another_holds_is_taken_and_says_when_to_come_again(host, by, retry_after_ms):
    """Where that is an app on this host no master is asked."""
    by(host).locked(ttl_ms=3_000)
    asked = len(host.fleet.asked)
    app = host.locked()
    assert app.code == "TAKEN"
    assert app.refusal.retry_after_ms == retry_after_ms
    assert app.refusal.text.startswith(f"retry-after={retry_after_ms} ")
    assert (len(host.fleet.asked) > asked) == (by is beside)


def test_one_that_may_have_a_quorum_with_a_silent_master_is_taken_for_its_holder(host, other):
    other.break_off(3, 4)
    other.locked()
    host.break_off(0)
    assert host.locked().code == "TAKEN"


# Split votes


def test_those_that_split_the_votes_are_told_of_no_holder_and_one_gets_it_without_waiting(host):
    """Their questions reach the masters in another order each: two votes, two votes and one."""
    hosts = [host, beside(host), beside(host)]
    for one in hosts:
        one.slow()
    apps = [one.lock() for one in hosts]
    for master, one in zip(range(5), (0, 0, 1, 1, 2), strict=True):
        hosts[one].fleet.arrive(master)
    for _ in range(2):
        for one in hosts:
            one.answer()
        assert [app.code for app in apps] == ["", "", ""]
    assert host.shown() == [None] * 5
    for one in hosts:
        one.answer_all()
        one.pass_ms(20)
    assert sorted(app.code for app in apps) == ["TAKEN", "TAKEN", "granted"]


def split_for_ever(host: Host) -> None:
    """Others' tries are there whenever this one comes: two votes for one, two for another."""
    for master, nonce in zip(host.fleet.masters, b"aabb", strict=False):
        lease = b"%b 1 0 host 1 0" % (bytes([nonce]) * 32)
        master.store.leases[b"r"] = Key(lease, master.now_us // 1000 + 50_000)


@pytest.mark.parametrize(("wait_ms", "most_ms", "left_over_ms"), [(None, 250, 0), (1_000, 1_000, 300)])
def test_a_vote_that_stays_split_ends_as_contention_without_a_holder(host, wait_ms, most_ms, left_over_ms):
    """For who does not wait in the time that one try may take: no outage, and nobody has it."""
    split_for_ever(host)
    app = host.lock(wait_ms=wait_ms)
    host.pass_ms(most_ms)
    assert (app.code, app.answered_ns <= app.asked_ns + most_ms * MS) == ("TIMEOUT", True)
    assert "several tried at the same moment" in app.refusal.text
    assert len(host.asked(Attempt)) > 3
    host.pass_ms(left_over_ms)
    assert host.at_rest()


def test_one_that_comes_between_two_tries_of_a_split_vote_is_tried_for_too(host):
    split_for_ever(host)
    host.lock(wait_ms=10_000)
    host.pass_ms(1)
    app = host.lock()
    assert app.code == ""
    host.pass_ms(250)
    assert app.code == "TIMEOUT"


# Waits


@pytest.mark.parametrize("by", [beside, lambda host: host], ids=["another host", "this host"])
def test_a_wait_that_ends_while_another_holds_it_is_a_timeout(host, by):
    by(host).locked(ttl_ms=30_000)
    app = host.lock(wait_ms=500)
    host.pass_ms(600)
    assert app.code == "TIMEOUT"
    assert "waited 500 ms" in app.refusal.text
    assert app.answered_ns == app.give_up_ns


def test_a_wait_that_ends_just_after_the_lease_here_was_released_is_a_timeout_not_an_outage(host, app):
    waiter = host.lock(wait_ms=500)
    host.pass_ms(499)
    host.slow()
    host.unlock(app)
    host.pass_ms(2)
    assert waiter.code == "TIMEOUT"


def test_a_waiter_gets_it_soon_after_another_host_has_released_it(host, other):
    holder = other.locked(ttl_ms=30_000)
    app = host.lock(wait_ms=10_000)
    host.pass_ms(3_000)
    other.unlocked(holder)
    host.pass_ms(160)
    assert app.code == "granted"


def test_the_pause_between_tries_grows_but_stays_bounded():
    host = cluster(turn_tried_first_ms=100, turn_tried_most_ms=1_000)
    beside(host).locked(ttl_ms=50_000)
    host.lock(wait_ms=10_000)
    host.pass_ms(10_000)
    tried_ns = [attempt.t1_ns for attempt in host.asked(Attempt)]
    pauses = [b - a for a, b in pairwise(tried_ns)]
    assert pauses[0] == 100 * MS
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1_000 * MS


def test_a_waiter_gets_it_when_the_lease_of_a_dead_host_has_run_out_and_does_not_sleep_past_that():
    host = cluster(backoff_first_ms=1_000, backoff_most_ms=1_000)
    beside(host).locked(ttl_ms=200)
    app = host.lock(wait_ms=10_000)
    host.pass_ms(199)
    assert app.code == ""
    host.pass_ms(6)
    assert app.code == "granted"
