"""What a failed try leaves, and which votes count together (rules 3, 8, 11 and 14)."""

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.release import Release
from tests.harness.clocks import MS


@pytest.mark.parametrize("wait_ms", [None, 5_000])
def test_a_failed_try_is_given_back_where_it_landed_and_where_nobody_answered(host, other, wait_ms):
    """Rule 3: at once, before any back-off."""
    other.break_off(3, 4)
    holder = other.locked()
    host.slow(4)
    app = host.locked(wait_ms=wait_ms)
    assert app.code == ("TAKEN" if wait_ms is None else "")
    (release,) = host.asked(Release)
    assert (release.asked, len(host.asked(Attempt))) == (0b11000, 1)
    assert host.sent_to(4) == ["Attempt", "Release"]
    host.answer(4)
    assert host.shown() == [holder.held.nonce] * 3 + [None, None]


def test_a_try_that_ran_out_of_time_is_given_back_on_every_master_asked(host):
    """That is worth asking until the lease would have ended anyway."""
    host.slow(1, 2, 3, 4)
    app = host.lock(ttl_ms=7_000)
    host.pass_ms(251)
    assert app.code == "NOQUORUM"
    (release,) = host.asked(Release)
    assert (release.asked, release.until_ns) == (0b11111, app.asked_ns + 7_000 * MS)
    host.answer(1, 2, 3, 4)
    assert host.shown() == [None] * 5


def test_a_release_never_overtakes_its_own_acquire_across_a_broken_connection(host):
    host.slow(2, 3, 4)
    host.lock()
    host.pass_ms(100)
    host.fleet.break_off(3, arrived=1)
    host.fleet.break_off(4)
    host.pass_ms(200)
    assert host.shown()[3] is not None
    host.come_back(3, 4)
    host.answer(2, 3, 4)
    assert host.shown() == [None] * 5


def test_a_vote_that_does_not_count_is_given_back_too(host):
    host.slow()
    app = host.lock()
    host.demote(2, 3, 4)
    host.answer_all()
    assert app.code == "NOQUORUM"
    assert "m3=its-vote-does-not-count" in app.refusal.text
    assert host.shown() == [None] * 5


def test_a_vote_goes_on_to_count_when_its_master_is_away_since(host):
    host.slow()
    app = host.lock()
    host.answer(0)
    host.break_off(0, 3)
    host.answer(1, 2)
    assert app.code == "granted"


def m5_turns_out_to_be_replaced(host):
    """An old machine: it answers, then its agent hears from two others that another is taking its place
    (rule 8)."""
    host.answer(4)
    host.renumber("m5", 2, 3)
    host.answer(0, 1)


def test_votes_from_before_and_after_another_master_was_admitted_are_no_quorum_and_asked_for_again(host):
    """Also for who does not wait."""
    host.slow()
    app = host.lock()
    m5_turns_out_to_be_replaced(host)
    assert app.code == ""
    assert len(host.asked(Release)) == 1
    host.answer_all()
    host.pass_ms(10)
    host.answer_all()
    assert app.code == "granted"


def test_who_does_not_wait_is_refused_when_the_voters_change_for_as_long_as_one_try_may_take(host):
    host.slow()
    app = host.lock()
    for _ in range(1_000):
        m5_turns_out_to_be_replaced(host)
        host.answer_all()
        if app.code:
            break
        host.renumber("m5")
        host.slow()
        host.pass_ms(1)
    assert app.code == "NOQUORUM"
