"""A session lease is renewed while its app lives, and its holder learns of a loss before it is one."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from lockd.core.ballots.extension import Extension
from lockd.core.leases import Loss, Standing
from lockd.core.line import LEAST
from lockd.core.validity import deadline_ns, notice_ns
from tests.harness.clocks import MS
from tests.harness.fleet_model import cluster


def test_a_session_lease_is_renewed_while_its_app_lives(host):
    app = host.locked(ttl_ms=3_000)
    host.pass_ms(60_000)
    assert app.losses == []
    assert len(app.renewals) == 60
    assert app.renewals == sorted(app.renewals)
    assert app.held.deadline_ns > host.time.now_ns + 1_900 * MS
    assert host.shown() == [app.held.nonce] * 5


def test_leases_that_come_due_within_a_few_ms_are_renewed_in_one_write(host):
    host.locked(b"a")
    host.time.now_ns += 3 * MS
    host.locked(b"b")
    host.pass_ms(5_000)
    first, second = host.asked(Extension)
    assert first.t1_ns == second.t1_ns


def test_leases_that_were_granted_together_are_not_renewed_together_for_ever():
    tokens = random.Random(7)
    host = cluster(token=lambda: b"%032x" % tokens.getrandbits(128))
    for name in range(100):
        host.locked(resource=b"%d" % name, ttl_ms=10_000)
    host.pass_ms(60_000)
    asked_ms = [ballot.t1_ns // (100 * MS) for ballot in host.asked(Extension)]
    assert max(Counter(asked_ms[:100]).values()) == 100, "granted together"
    assert max(Counter(asked_ms[-100:]).values()) < 20, "each within 100 ms of so many others"


def test_masters_are_asked_for_so_many_renewals_at_once_as_they_can_answer_in_time():
    """A host that wakes up, or masters that are slow: all at once would be late for all."""
    tokens = random.Random(7)
    host = cluster(token=lambda: b"%032x" % tokens.getrandbits(128))
    apps = [host.locked(resource=b"%d" % name, ttl_ms=10_000) for name in range(600)]
    host.slow()
    host.pass_ms(3_400)
    asked = [0]
    while len(host.asked(Extension)) < 600:
        asked.append(len(host.asked(Extension)))
        host.time.now_ns += MS
        host.answer()
        host.locks.turns.run(host.time.now_ns)
    host.answer()
    together = [after - before for before, after in pairwise(asked)]
    assert together[0] == LEAST
    assert LEAST < max(together) < 64, "more while they answer in a millisecond, but not all"
    assert all(len(app.renewals) == 1 for app in apps)


def test_a_lease_of_another_account_is_renewed_before_hundreds_that_were_due_before(host):
    for name in range(600):
        host.locked(resource=b"%d" % name, ttl_ms=10_000)
    modest = host.locked(resource=b"modest", ttl_ms=10_300, account="another")
    host.slow()
    host.pass_ms(3_480)
    before = len(host.asked(Extension))
    assert not any(ballot.resource == b"modest" for ballot in host.asked(Extension))
    for _ in range(2):
        host.answer()
        host.locks.turns.run(host.time.now_ns)
    assert any(ballot.resource == b"modest" for ballot in host.asked(Extension)[before:])
    host.answer()
    assert len(modest.renewals) == 1


def test_those_that_wait_to_be_renewed_are_when_others_have_failed(host):
    for name in range(600):
        host.locked(resource=b"%d" % name, ttl_ms=10_000)
    host.slow()
    host.pass_ms(3_400)
    assert len(host.asked(Extension)) == LEAST
    host.quick()
    host.break_off(0, 1, 2)
    host.come_back(0, 1, 2)
    host.pass_ms(2_000)
    assert {ballot.resource for ballot in host.asked(Extension)} == {b"%d" % name for name in range(600)}


def test_what_ended_while_it_waited_to_be_renewed_is_not():
    tokens = random.Random(7)
    host = cluster(token=lambda: b"%032x" % tokens.getrandbits(128))
    apps = [host.locked(resource=b"%d" % name, ttl_ms=10_000) for name in range(LEAST + 1)]
    host.slow()
    host.pass_ms(3_400)
    renewed = {int(ballot.resource) for ballot in host.asked(Extension)}
    [left] = set(range(LEAST + 1)) - renewed
    host.unlock(apps[left])
    host.answer_all()
    host.locks.turns.run(host.time.now_ns)
    assert {int(ballot.resource) for ballot in host.asked(Extension)} == renewed


def test_a_renewed_deadline_counts_from_before_the_renewal_was_sent(host):
    app = host.locked(ttl_ms=3_000)
    host.slow()
    asked_ns = host.time.now_ns + 1_000 * MS
    host.pass_until(asked_ns)
    host.pass_ms(200)
    host.answer()
    assert app.renewals == [deadline_ns(asked_ns, 3_000)]


def test_a_lease_is_renewed_up_to_max_hold_and_never_past_it(host):
    """Rule 7."""
    app = host.locked(ttl_ms=3_000, max_hold_ms=10_000)
    until_ns = host.time.now_ns + 10_000 * MS
    host.pass_ms(10_500)
    assert until_ns - 2 * MS <= max(app.renewals) == app.held.deadline_ns <= until_ns
    ((told_ns, reason),) = app.losses
    assert reason == "it was held for max_hold"
    assert told_ns < app.held.deadline_ns
    assert app.ends == [app.held.deadline_ns]
    assert host.shown() == [None] * 5


@pytest.mark.parametrize("late_ms", [100, 60_000])
@pytest.mark.parametrize(
    ("max_hold_ms", "lost_by"), [(1_000, Loss.MAX_HOLD), (3_600_000, Loss.NOT_RENEWED)], ids=str
)
def test_an_agent_that_slept_past_the_deadline_says_so_at_once(host, late_ms, max_hold_ms, lost_by):
    app = host.locked(ttl_ms=1_000, max_hold_ms=max_hold_ms)
    host.time.now_ns = app.held.deadline_ns + late_ms * MS
    host.locks.turns.run(host.time.now_ns)
    assert [reason for _, reason in app.losses] == ["its validity ended before it could be renewed"]
    assert (app.held.lost_by, len(app.ends)) == (lost_by, 1)
    host.pass_ms(1_000)
    assert host.at_rest()


def test_a_renewal_that_fails_once_is_tried_again(host, app):
    host.slow(0, 1, 2)
    host.pass_ms(5_000)
    assert app.renewals == []
    host.quick()
    host.pass_ms(1_000)
    assert len(app.renewals) >= 1
    host.pass_ms(30_000)
    assert app.losses == []


def test_only_one_renewal_is_under_way_at_a_time():
    host = cluster(master_timeout_ms=2_000)
    host.locked(ttl_ms=10_000)
    host.slow()
    host.pass_ms(3_334 + 1_990)
    assert len(host.asked(Extension)) == 1


def test_a_lease_goes_on_by_votes_that_count_together_only(host):
    app = host.locked(ttl_ms=9_000)
    host.slow()
    host.pass_ms(3_100)
    host.answer(3, 4)
    before_ns = app.held.deadline_ns
    host.demote(3, 4)
    host.answer(0)
    assert app.held.deadline_ns == before_ns


# Losses (rule 12)


@pytest.mark.parametrize("ttl_ms", [100, 250, 1_000, 10_000, 30_000, 60_000])
def test_a_holder_is_told_a_fifth_of_the_ttl_before_the_deadline_that_it_can_not_be_renewed(host, ttl_ms):
    app = host.locked(ttl_ms=ttl_ms)
    host.break_off(0, 1, 2)
    host.pass_until(app.held.deadline_ns - 1)
    ((told_ns, reason),) = app.losses
    assert told_ns == app.held.deadline_ns - notice_ns(ttl_ms)
    assert " ".join(f"m{n}=down:-connection-lost" for n in (1, 2, 3)) in reason
    assert app.ends == []
    host.pass_ms(1_000)
    assert app.ends == [app.held.deadline_ns]


def test_an_answer_after_the_holder_was_told_does_not_bring_the_lease_back():
    """Told is told."""
    host = cluster(master_timeout_ms=4_000)
    app = host.locked(ttl_ms=10_000)
    deadline = app.held.deadline_ns
    host.slow()
    host.pass_until(deadline - notice_ns(10_000) + 10 * MS)
    assert len(app.losses) == 1
    host.answer()
    host.quick()
    assert app.held.standing is Standing.LOST
    assert app.held.deadline_ns == deadline
    host.pass_ms(10_000)
    assert len(app.losses) == 1
    assert host.shown() == [None] * 5


def test_a_renewal_answered_after_the_deadline_proves_nothing(host):
    """Rule 2: only while the present validity is still proven. The agent stood still: told too late."""
    app = host.locked(ttl_ms=1_000)
    host.slow()
    host.pass_ms(340)
    assert len(host.asked(Extension)) == 1
    host.time.now_ns = app.held.deadline_ns
    host.answer()
    assert app.renewals == []
    host.locks.turns.run(host.time.now_ns)
    assert len(app.losses) == 1
    assert app.ends == [host.time.now_ns]


def test_a_lost_lease_is_kept_for_its_holder_until_the_deadline(host, app):
    """The holder may still be at it: nobody else on this host gets it before."""
    waiter = host.lock(wait_ms=60_000)
    host.demote()
    host.pass_until(app.held.deadline_ns - MS)
    assert len(app.losses) == 1
    host.demote(role="master")
    host.pass_ms(0.5)
    assert waiter.code == ""
    assert host.shown() == [app.held.nonce] * 5
    host.pass_ms(500)
    assert waiter.code == "granted"


def test_a_holder_that_is_cut_off_has_what_it_was_told_and_nobody_else_gets_it_before(host):
    """It may be alive, and believe in its lease until the deadline that it was last told."""
    app = host.locked(ttl_ms=3_000)
    host.pass_ms(5_000)
    promised_ns, waiter = app.held.promised_ns, host.lock(wait_ms=60_000)
    host.locks.cut_off(app.held, "it does not read", host.time.now_ns)
    assert app.held.lost_by is Loss.CUT_OFF
    renewed, token = len(host.asked(Extension)), app.held.nonce
    host.pass_until(promised_ns - MS)
    assert (waiter.code, host.shown()) == ("", [token] * 5)
    assert len(host.asked(Extension)) == renewed
    host.pass_ms(10)
    assert waiter.code == "granted"


def test_a_lease_that_vanished_from_a_quorum_is_lost_and_what_is_left_of_it_stays_for_its_holder(host, app):
    """Until the promise to it is over: the holder may read of its loss late, and the copies that are left may
    be all that keeps others out. That putting it back works proves nothing."""
    promised_ns = app.held.deadline_ns
    host.forget(0, 2, 4)
    host.pass_ms(3_400)
    ((told_ns, reason),) = app.losses
    assert told_ns < promised_ns
    assert "gone from m1, m3, m5" in reason
    host.pass_until(promised_ns - MS)
    assert host.shown() == [None, app.held.nonce, None, app.held.nonce, None]
    assert app.ends == []
    host.pass_until(promised_ns + MS)
    assert host.shown() == [None] * 5
    host.pass_ms(10_000)
    assert (app.renewals, len(app.losses), len(app.ends)) == ([], 1, 1)


def test_the_holder_of_a_lease_that_looks_gone_may_give_it_back_before(host, app):
    host.forget(0, 2, 4)
    host.pass_ms(3_400)
    assert host.unlocked(app).code == "EXPIRED"
    assert host.shown() == [None] * 5


def test_losses_on_a_minority_add_up_over_renewals_that_failed(host, app):
    """Two masters lose it, and a renewal fails for another reason; then a third loses it."""
    host.forget(0, 1)
    host.slow(3, 4)
    host.pass_ms(3_700)
    assert app.losses == []
    host.forget(2)
    host.quick()
    host.pass_ms(1_000)
    assert app.renewals == []
    assert len(app.losses) == 1


def test_a_lease_taken_away_by_an_operator_is_lost_and_goes_to_the_next_in_line(host, app):
    waiter = host.lock(wait_ms=60_000)
    host.locks.take_away(b"r", {app.held.nonce}, "released by force", host.time.now_ns)
    host.fleet.settle()
    assert [reason for _, reason in app.losses] == ["released by force"]
    assert waiter.code == "granted"


@pytest.mark.parametrize(("resource", "token"), [(b"r", b"another's"), (b"other", None)])
def test_taking_away_a_lease_that_is_not_here_does_nothing(host, app, resource, token):
    host.locks.take_away(resource, {token or app.held.nonce}, "force", host.time.now_ns)
    assert app.held.standing is Standing.HELD
    assert app.losses == []


def test_who_asks_the_masters_pays_for_hearing_their_answers(host):
    host.fleet.answer_ns = 20_000
    host.locked(b"a", account="greedy")
    greedy = host.locks.turns._share_of("greedy").used_ns
    assert greedy >= 5 * 20_000
    host.pass_ms(4_000)
    assert host.locks.turns._share_of("greedy").used_ns >= greedy + 5 * 20_000, "for a renewal, too"
