"""Giving it back: by UNLOCK, by the death of its app (rule 13), at its end, and what is known of it then."""

import pytest

from lockd.core.ballots.extension import Extension
from lockd.core.ballots.release import Release
from tests.harness.clocks import MS
from tests.harness.fleet_model import beside, fresh_token


def test_unlock_frees_the_resource_for_everybody_before_it_is_answered(host, app, other):
    told = host.unlock(app)
    host.answer(0, 1)
    assert not told.came
    host.answer(2)
    assert told.code == "done"
    assert other.locked().code == "granted"


def test_unlock_that_finds_the_lease_nowhere_is_expired(host, app):
    """It was not held all the time, and the app must know."""
    host.forget()
    told = host.unlocked(app)
    assert told.code == "EXPIRED"
    assert "no quorum of masters had it any more" in told.text


def test_unlock_whose_answers_were_lost_is_not_taken_for_a_lost_lease(host, app):
    host.slow()
    told = host.unlock(app)
    for master in range(5):
        host.fleet.break_off(master, arrived=1)
        host.come_back(master)
    host.answer_all()
    assert told.code == "done"
    assert host.shown() == [None] * 5


def test_after_the_deadline_it_is_expired_though_the_masters_have_it_and_still_given_back(host, app):
    host.time.now_ns = app.held.deadline_ns
    assert host.shown() == [app.held.nonce] * 5
    assert host.extend(app, 10_000).code == "EXPIRED"
    assert host.unlocked(app).code == "EXPIRED"
    assert host.shown() == [None] * 5


def test_a_lost_lease_is_expired_with_the_reason_and_still_given_back(host, app):
    host.break_off(0, 1, 2)
    host.pass_until(app.held.deadline_ns - MS)
    for told in (host.extend(app, 10_000), host.unlocked(app)):
        assert told.code == "EXPIRED"
        assert "could not be renewed" in told.text
        assert "m1=down" in told.text
    assert host.shown()[3:] == [None, None]


def test_a_release_is_kept_for_masters_that_are_away(host, app):
    """Rule 3."""
    host.break_off(0, 1)
    assert host.unlocked(app).code == "done"
    assert host.shown()[0] == app.held.nonce
    host.come_back(0, 1)
    host.fleet.settle()
    assert host.shown() == [None] * 5


def test_a_master_that_comes_back_frees_one_lease_of_an_account_beside_hundreds_of_anothers(host):
    """Rule 3: each account's debts in turn."""
    greedy = [host.locked(b"%d" % number, account="greedy") for number in range(300)]
    modest = host.locked(b"modest", account="modest")
    host.break_off(0)
    for app in (*greedy, modest):
        host.unlock(app)
    host.slow(0)
    host.come_back(0)
    asked = [ballot.resource for ballot, _ in host.fleet.links[0].sent if isinstance(ballot, Release)]
    assert asked[:3] == [b"0", b"modest", b"1"]


def test_what_is_given_back_is_owed_by_the_account_that_has_it_or_tried_for_it(host):
    """Also by the one to which it was handed on."""
    first = host.locked(account="first")
    second = host.lock(account="second", wait_ms=5_000)
    host.unlocked(first)
    host.slow(1, 2, 3, 4)
    host.lock(b"another", account="third")
    host.pass_ms(251)
    host.unlock(second)
    assert [release.account for release in host.asked(Release)] == ["third", "second"]


@pytest.mark.parametrize("by_app", [True, False])
def test_who_had_it_pays_for_hearing_what_masters_answer_to_its_release(host, by_app):
    app = host.locked(account="it")
    host.fleet.answer_ns = 1_000
    before_ns = host.locks.turns.charged_ns
    if by_app:
        host.unlock(app)
    else:
        host.app_dies(app)
    assert host.locks.turns.charged_ns - before_ns == 5 * 1_000
    assert [release.account for release in host.asked(Release)] == ["it"]


def test_a_release_after_a_renewal_is_kept_until_the_renewed_lease_would_end(host):
    app = host.locked(ttl_ms=3_000)
    host.pass_ms(2_500)
    host.unlock(app)
    assert host.asked(Release)[-1].until_ns >= app.held.t1_ns + 3_000 * MS


def test_releasing_what_cannot_be_asked_about_is_an_outage(host, theirs):
    host.break_off()
    told = host.unlocked(theirs)
    assert not told.came
    host.pass_ms(251)
    assert told.code == "NOQUORUM"


def test_a_token_is_known_only_with_its_own_resource_and_while_its_lease_is(host, app):
    detached = host.locked(b"other", detached=True)
    assert host.locks.knows(b"r", app.held.token)
    assert host.locks.knows(b"other", detached.held.token)
    for resource, token in ((b"r", fresh_token()), (b"r", detached.held.token), (b"other", app.held.token)):
        assert not host.locks.knows(resource, token)
    host.unlock(app)
    assert not host.locks.knows(b"r", app.held.token)


# Apps that die


def test_the_app_of_a_session_lease_being_gone_frees_it_at_once(host, app):
    host.app_dies(app)
    host.fleet.settle()
    assert host.shown() == [None] * 5
    assert host.watched.count("released", "app gone") == 1
    host.pass_ms(300)
    assert host.at_rest()


def test_a_lock_delay_keeps_a_dead_apps_lease_for_that_long_also_beyond_its_ttl(host):
    app = host.locked(ttl_ms=1_000, lock_delay_ms=5_000)
    waiter = host.lock(wait_ms=10_000)
    host.pass_ms(100)
    host.app_dies(app)
    host.pass_ms(4_999)
    assert host.shown() == [app.held.nonce] * 5
    assert waiter.code == ""
    host.pass_ms(10)
    assert waiter.code == "granted"
    assert app.losses == []
    host.unlocked(waiter)
    host.pass_ms(300)
    assert host.at_rest()


def test_a_lock_delay_does_not_outlive_max_hold(host):
    app = host.locked(ttl_ms=1_000, lock_delay_ms=60_000, max_hold_ms=3_000)
    host.app_dies(app)
    host.pass_ms(3_100)
    assert host.shown() == [None] * 5
    assert len(app.ends) == 1


def test_an_app_that_dies_after_its_lease_was_lost_frees_it_at_once_whatever_its_delay(host):
    app = host.locked(ttl_ms=10_000, lock_delay_ms=60_000)
    host.break_off(0, 1, 2)
    host.pass_until(app.held.deadline_ns - MS)
    host.app_dies(app)
    host.fleet.settle()
    assert host.shown()[3:] == [None, None]


def test_to_unlock_twice_is_not_held_and_an_app_that_dies_after_its_unlock_changes_nothing(host, app):
    host.unlocked(app)
    assert host.unlocked(app).code == "NOTHELD"
    host.app_dies(app)
    host.app_dies(app)
    assert host.locks.held == 0
    assert len(app.ends) == 1


# Leases that end


def test_a_detached_lease_ends_at_its_deadline_for_the_next_waiter_and_nobody_is_told_of_a_loss(host):
    app = host.locked(ttl_ms=2_000, detached=True)
    waiter = host.lock(wait_ms=60_000)
    host.pass_until(app.held.deadline_ns)
    assert host.asked(Extension) == []
    assert app.losses == []
    assert app.ends == [app.held.deadline_ns]
    assert host.watched.count("released", "expired") == 1
    host.pass_ms(200)
    assert waiter.code == "granted"


def test_a_detached_lease_extended_elsewhere_outlives_the_deadline_that_is_known_here(host, detached, other):
    host.pass_ms(8_000)
    told = other.extended(detached, 20_000)
    host.pass_ms(3_000)
    assert host.shown() == [detached.held.nonce] * 5
    host.pass_until(told.extended.deadline_ns - MS)
    assert other.locked().code == "TAKEN"
    assert host.locked().code == "TAKEN"


@pytest.mark.parametrize("how", ["unlock", "app_dies"])
def test_a_lease_that_is_given_back_goes_to_the_next_waiter_with_a_later_fence(host, app, how):
    waiter = host.lock(wait_ms=60_000)
    getattr(host, how)(app)
    host.fleet.settle()
    assert waiter.held.fence > app.held.fence
    assert waiter.held.token != app.held.token


def test_what_another_agent_gives_back_is_given_back_when_a_quorum_has_said_so(host):
    """On fewer masters it may still be held, and renewed by its own agent: who asks again gets it done."""
    app = host.locked()
    other = beside(host)
    other.break_off(2, 3, 4)
    assert other.unlocked(app).code == "NOQUORUM"
    host.pass_until(app.held.deadline_ns)
    assert app.losses == []
    other.come_back(2, 3, 4)
    assert other.unlocked(app).code == "done"
