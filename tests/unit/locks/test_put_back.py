"""A renewal puts a lease on masters that never had it, and what that proves (rule 2).

What was put back counts from the next proof on: another may have held the lease there, and be gone again.
"""

from lockd.core.ballots.put_back import PutBack
from tests.harness.fleet_model import App, Host, beside

THIRD = 3_001
"""How many ms until a lease of nine seconds is renewed."""


def without(host: Host, *masters: int) -> App:
    """A lease that these masters did not have; they are back."""
    host.break_off(*masters)
    app = host.locked(ttl_ms=9_000)
    host.come_back(*masters)
    return app


def spread_to_all(host: Host) -> App:
    """A lease that two masters did not have: a renewal has just put it on them."""
    app = without(host, 3, 4)
    host.pass_ms(THIRD)
    assert len(app.renewals) == 1
    assert host.shown() == [app.held.nonce] * 5
    return app


def on_its_way_to(host: Host, *masters: int) -> App:
    """A lease that these did not have: behind a renewal it is being put on them."""
    app = without(host, *masters)
    host.slow(*masters)
    host.pass_ms(THIRD)
    for master in masters:
        host.fleet.arrive(master)
        host.fleet.hear(master)
        assert host.sent_to(master) == ["PutBack"]
    return app


def another_held_it(host: Host) -> None:
    other = beside(host)
    other.unlocked(other.locked())


def is_found_gone(host: Host, app: App) -> bool:
    """By the next renewal."""
    proven = len(app.renewals)
    host.pass_ms(THIRD)
    return (len(app.renewals), len(app.losses)) == (proven, 1)


def is_proven(host: Host, app: App) -> bool:
    proven = len(app.renewals)
    host.pass_ms(THIRD)
    return (len(app.renewals), len(app.losses)) == (proven + 1, 0)


def test_a_lease_is_put_back_where_it_was_lost_by_the_renewal_after_the_one_that_found_it_gone(host):
    """Not at once, it may be on its way out everywhere."""
    app = host.locked(ttl_ms=9_000)
    host.forget(1, 3)
    assert is_proven(host, app)
    assert host.shown() == [app.held.nonce, None] * 2 + [app.held.nonce]
    assert is_proven(host, app)
    assert host.shown() == [app.held.nonce] * 5


def test_what_a_renewal_put_back_is_not_counted_by_the_next_and_given_back_when_it_is_gone(host):
    app = spread_to_all(host)
    host.forget(0)
    assert is_found_gone(host, app)
    assert host.shown() == [None, app.held.nonce, app.held.nonce, None, None]


def test_what_a_renewal_put_back_counts_again_once_a_quorum_has_proven_the_lease(host):
    app = spread_to_all(host)
    assert is_proven(host, app)
    host.forget(2)
    host.break_off(1)
    assert is_proven(host, app)
    host.come_back(1)
    host.unlocked(app)
    assert host.shown() == [None] * 5


def test_put_backs_on_masters_that_never_had_the_lease_do_not_hide_that_another_held_it(host):
    """Three of five is one lost key away from two holders; the first must hear of it."""
    app = without(host, 3, 4)
    promised_ns = app.held.deadline_ns
    host.forget(2)
    another_held_it(host)
    host.pass_ms(20_000)
    assert app.renewals == []
    ((told_ns, _),) = app.losses
    assert told_ns < promised_ns


def test_a_put_back_whose_answer_was_lost_is_not_taken_for_a_lease_that_was_always_there(host):
    app = on_its_way_to(host, 3, 4)
    for master in (3, 4):
        host.fleet.break_off(master, arrived=1)
        host.fleet.fail_to_connect(master)
        host.come_back(master)
    assert host.shown() == [app.held.nonce] * 5
    host.quick()
    host.forget(0)
    assert is_found_gone(host, app)


def test_a_put_back_that_lands_after_a_later_proof_does_not_hide_that_another_held_it(host):
    """What is there now was not there all the time since that proof."""
    app = on_its_way_to(host, 3, 4)
    assert is_proven(host, app)
    host.forget(0, 1)
    another_held_it(host)
    host.answer_all()
    assert host.shown() == [None, None] + [app.held.nonce] * 3
    assert is_found_gone(host, app)


def test_a_put_back_that_lands_in_the_midst_of_a_proof_does_not_hide_that_another_held_it(host):
    """A proof is not of one instant: the first votes for it are from before the put-back."""
    app = on_its_way_to(host, 3, 4)
    host.slow(0, 1, 2)
    host.pass_ms(3_000)
    host.answer(0, 1)
    host.forget(0, 1)
    another_held_it(host)
    host.answer(3, 4, 2)
    assert len(app.renewals) == 2
    assert host.shown() == [None, None] + [app.held.nonce] * 3
    host.answer_all()
    assert is_found_gone(host, app)


def test_what_was_put_back_counts_once_it_was_heard_of_before_the_last_proof_was_asked_for(host):
    """Also when that was late: here the second renewal hears of it, and the third proves the lease."""
    app = on_its_way_to(host, 3, 4)
    assert is_proven(host, app)
    host.answer_all()
    assert is_proven(host, app)
    host.forget(0, 1)
    assert is_proven(host, app)


def test_a_put_back_that_was_lost_is_sent_again_behind_a_later_proof(host):
    app = on_its_way_to(host, 3)
    host.break_off(3)
    host.pass_ms(300)
    host.come_back(3)
    host.quick()
    assert host.shown()[3] is None
    host.pass_ms(2 * THIRD)
    assert host.shown() == [app.held.nonce] * 5


def test_a_release_reaches_masters_where_it_was_only_put_back(host):
    app = on_its_way_to(host, 3)
    host.unlock(app)
    host.answer_all()
    assert len(host.asked(PutBack)) == 1
    assert host.shown() == [None] * 5


# What is not put back


def test_what_another_agent_gave_back_is_locked_for_nobody_by_an_extension_through_its_own(host, other):
    """This locked it on all masters until the end of its TTL, and nobody held it."""
    app = host.locked(ttl_ms=20_000, detached=True)
    assert other.unlocked(app).code == "done"
    assert host.extended(app, 30_000).code == "EXPIRED"
    assert host.shown() == [None] * 5
    assert other.locked().code == "granted"


def test_what_was_given_back_elsewhere_is_not_put_on_masters_that_never_had_it(host, other):
    """Nothing is put anywhere but behind a proof of just now."""
    host.break_off(3, 4)
    app = host.locked(ttl_ms=20_000, detached=True)
    assert other.unlocked(app).code == "done"
    host.come_back(3, 4)
    host.break_off(0, 1, 2)
    told = host.extend(app, 30_000)
    host.pass_ms(300)
    assert told.code == "NOQUORUM"
    assert host.shown() == [None] * 5


def test_a_lease_on_a_bare_quorum_is_lost_with_one_of_its_masters(host):
    """The two that never had it prove nothing, now or later."""
    app = without(host, 3, 4)
    host.forget(0)
    host.pass_ms(THIRD)
    ((_, reason),) = app.losses
    assert "gone from m1:" in reason
    assert host.shown() == [None, app.held.nonce, app.held.nonce, None, None]


def test_what_is_put_back_when_the_lease_was_found_gone_already_is_given_back_too(host):
    """Sent behind a proof, and late."""
    app = on_its_way_to(host, 3)
    host.forget(0, 1, 2)
    assert is_found_gone(host, app)
    host.answer_all()
    assert host.shown() == [None] * 4 + [app.held.nonce]


def test_where_the_last_proof_found_it_late_it_is_not_put_back(host):
    """The proof was there when that master said so: what is gone from it now was taken away."""
    app = host.locked(ttl_ms=9_000)
    host.slow(4)
    assert is_proven(host, app)
    host.answer_all()
    host.forget(4)
    assert is_proven(host, app)
    assert host.shown() == [app.held.nonce] * 4 + [None]


def test_where_an_extension_that_was_asked_at_the_same_time_found_it_it_is_not_put_back(host):
    """It was taken away there between the two."""
    app = spread_to_all(host)
    assert is_proven(host, app)
    host.slow()
    first, second = host.extend(app, 20_000), host.extend(app, 30_000)
    host.fleet.arrive(3)
    host.forget(3)
    host.answer(3)
    host.answer_all()
    assert (first.code, second.code) == ("done", "done")
    assert host.shown() == [app.held.nonce] * 3 + [None, app.held.nonce]


def test_nothing_is_put_back_for_a_lease_that_was_given_back_while_a_late_master_was_heard(host):
    app = without(host, 3)
    host.slow(3)
    host.pass_ms(THIRD)
    host.unlock(app)
    host.answer_all()
    assert host.shown() == [None] * 5
    assert host.asked(PutBack) == []


def test_what_is_over_is_not_asked_for_again_when_a_connection_comes_back(host):
    app = host.locked(ttl_ms=9_000)
    host.slow()
    told = host.extend(app, 30_000)
    host.unlock(app)
    assert told.code == "EXPIRED"
    host.break_off(0)
    host.come_back(0)
    assert host.sent_to(0) == ["Release"]
    host.answer_all()
    assert host.shown() == [None] * 5
