"""What one master is still owed, and in which bites it is asked."""

from __future__ import annotations

import pytest

from lockd.core.ballots.attempt import AttemptOutcome
from lockd.core.ballots.release import How
from lockd.core.debts import AT_ONCE, Debts
from tests.harness.ballots import a_release, an_attempt

LATER_NS = 1_000


def releases_of(debts: Debts, now_ns: int = 0) -> list[object]:
    again, _ = debts.take_releases(now_ns)
    return [ballot for ballot, _ in again]


def test_a_master_that_comes_back_to_many_is_asked_in_their_order_for_a_few_at_a_time() -> None:
    debts, owed = Debts(), [a_release() for _ in range(10 * AT_ONCE)]
    for one in owed:
        debts.keep(one, b"")
    debts.broke_off()
    assert releases_of(debts) == [], "not before there is a connection"
    debts.come_due(after_break=True)
    on_their_way = releases_of(debts)
    assert on_their_way == owed[:AT_ONCE]
    asked = list(on_their_way)
    while on_their_way:
        answered = on_their_way.pop(0)
        if debts.was_answered(answered):
            more = releases_of(debts)
            on_their_way += more
            asked += more
        assert len(on_their_way) <= AT_ONCE
    assert asked == owed


def test_what_ends_for_many_at_once_is_asked_for_a_few_at_a_time_too() -> None:
    debts = Debts()
    for _ in range(AT_ONCE + 1):
        debts.add(a_release(), b"")
    assert len(releases_of(debts)) == AT_ONCE
    assert releases_of(debts) == []
    for waited_for in (a_release(), an_attempt()):
        assert not debts.was_answered(waited_for), "an answer to what an app waits for has no more taken"


def test_votes_are_asked_again_all_at_once_while_they_are_worth_it() -> None:
    debts = Debts()
    votes = [an_attempt() for _ in range(3 * AT_ONCE)]
    late, settled = an_attempt(until_ns=0), an_attempt()
    settled.outcome = AttemptOutcome.NO_QUORUM
    for vote in (*votes, late, settled):
        debts.keep(vote, b"")
    again, given_up = debts.take_votes(0, up=True)
    assert [vote for vote, _ in again] == votes
    assert given_up == [late, settled]
    assert debts.take_votes(0, up=True) == ([], [])
    debts.keep(votes[0], b"")
    assert debts.take_votes(0, up=False) == ([], votes[:1]), "a master without a vote is asked for none"


@pytest.mark.parametrize(("after_break", "asked"), [(True, 1), (False, 0)])
def test_after_a_break_a_release_is_worth_it_however_old(after_break: bool, asked: int) -> None:
    """Rule 3: what it gives back may have lain in the network for longer than its TTL."""
    debts, old = Debts(), a_release(until_ns=0)
    debts.keep(old, b"")
    debts.come_due(after_break=after_break)
    again, too_old = debts.take_releases(LATER_NS)
    assert len(again) == asked
    assert too_old == ([] if asked else [old])


def test_what_was_not_asked_before_the_break_is_worth_it_however_old() -> None:
    debts = Debts()
    debts.add(a_release(until_ns=0), b"")
    debts.broke_off()
    debts.come_due(after_break=True)
    assert len(releases_of(debts, LATER_NS)) == 1
    debts.add(a_release(until_ns=0), b"")
    assert releases_of(debts, LATER_NS) == []


def test_what_was_refused_waits_for_the_next_look_at_the_master() -> None:
    debts, refused = Debts(), a_release()
    debts.add(refused, b"")
    releases_of(debts)
    debts.was_answered(refused)
    debts.keep(refused, b"")
    assert releases_of(debts) == []
    debts.come_due(after_break=False)
    assert releases_of(debts) == [refused]


@pytest.mark.parametrize("how", How)
def test_what_may_be_there_is_owed_to_a_master_until_it_has_answered(how: How) -> None:
    debts = Debts()
    debts.keep(a_release(how=how), b"")
    assert debts.owed == (how in (How.TENURE, How.TURN, How.TRY))


def test_releases_by_the_word_of_apps_crowd_out_none_that_are_owed() -> None:
    """They are asked again while somebody waits, and never kept."""
    debts, ours = Debts(most=10), a_release()
    for _ in range(100):
        debts.keep(a_release(how=How.BY_APP, until_ns=LATER_NS), b"")
    debts.keep(ours, b"")
    assert debts.owed == 1
    again, given_up = debts.take_votes(LATER_NS + 1, up=True)
    assert (len(again), len(given_up)) == (0, 100)
    debts.come_due(after_break=True)
    assert releases_of(debts) == [ours]


def test_no_more_is_kept_than_what_would_end_by_its_ttl_anyway() -> None:
    debts = Debts(most=10)
    for _ in range(20):
        debts.keep(a_release(), b"")
        debts.add(a_release(), b"")
    assert debts.owed == 10
