"""What one master is still owed, and in which bites it is asked."""

from __future__ import annotations

import tracemalloc

import pytest

from lockd.core import sizes
from lockd.core.ballots.attempt import AttemptOutcome
from lockd.core.ballots.ballot import Ballot
from lockd.core.ballots.release import How, Release
from lockd.core.debts import AT_ONCE, Debts
from lockd.core.stakes import FLOORS, Stock
from lockd.masters import scripts
from tests.harness.ballots import NONCE, a_release, an_attempt

LATER_NS = 1_000
DEBT = sizes.debt(1)
"""Of a resource as in these tests."""


def room_for(each: int | None = None) -> Stock:
    """So many debts of each account, and nothing is in the common pot. None: there is enough for all."""
    if each is None:
        return Stock("bytes", 1 << 40, 0, 100)
    return Stock("bytes", 2 * FLOORS * each * DEBT, each * DEBT, 0)


def owed_by(account: str, count: int = 1, **more: int) -> list[Release]:
    releases = [a_release(b"r", NONCE, **more) for _ in range(count)]
    for one in releases:
        one.account = account
    return releases


def releases_of(debts: Debts, now_ns: int = 0) -> list[Ballot]:
    again, _ = debts.take_releases(now_ns)
    return [ballot for ballot, _ in again]


def asked_in_order(debts: Debts) -> list[Ballot]:
    """Each is answered before the next one is asked."""
    asked = list[Ballot]()
    while taken := releases_of(debts):
        asked += taken
        for answered in taken:
            debts.was_answered(answered)
    return asked


def test_a_master_that_comes_back_to_many_is_asked_in_their_order_for_a_few_at_a_time() -> None:
    debts, owed = Debts(room_for()), [a_release() for _ in range(10 * AT_ONCE)]
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
    debts = Debts(room_for())
    for _ in range(AT_ONCE + 1):
        debts.add(a_release(), b"")
    assert len(releases_of(debts)) == AT_ONCE
    assert releases_of(debts) == []
    for waited_for in (a_release(), an_attempt()):
        assert not debts.was_answered(waited_for), "an answer to what an app waits for has no more taken"


def test_votes_are_asked_again_all_at_once_while_they_are_worth_it() -> None:
    debts = Debts(room_for())
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
    debts, old = Debts(room_for()), a_release(until_ns=0)
    debts.keep(old, b"")
    debts.come_due(after_break=after_break)
    again, too_old = debts.take_releases(LATER_NS)
    assert len(again) == asked
    assert too_old == ([] if asked else [old])


def test_what_was_not_asked_before_the_break_is_worth_it_however_old() -> None:
    debts = Debts(room_for())
    debts.add(a_release(until_ns=0), b"")
    debts.broke_off()
    debts.come_due(after_break=True)
    assert len(releases_of(debts, LATER_NS)) == 1
    debts.add(a_release(until_ns=0), b"")
    assert releases_of(debts, LATER_NS) == []


def test_what_was_refused_waits_for_the_next_look_at_the_master() -> None:
    debts, refused = Debts(room_for()), a_release()
    debts.add(refused, b"")
    releases_of(debts)
    debts.was_answered(refused)
    debts.keep(refused, b"")
    assert releases_of(debts) == []
    debts.come_due(after_break=False)
    assert releases_of(debts) == [refused]


@pytest.mark.parametrize("how", How)
def test_what_may_be_there_is_owed_to_a_master_until_it_has_answered(how: How) -> None:
    debts = Debts(room := room_for())
    debts.keep(a_release(how=how), b"")
    assert bool(room.used) == (how in (How.TENURE, How.EARLY, How.TURN, How.TRY))


def test_releases_by_the_word_of_apps_crowd_out_none_that_are_owed() -> None:
    """They are asked again while somebody waits, and never kept."""
    debts, ours = Debts(room := room_for(10)), a_release()
    for _ in range(100):
        debts.keep(a_release(how=How.BY_APP, until_ns=LATER_NS), b"")
    debts.keep(ours, b"")
    assert room.used == DEBT
    again, given_up = debts.take_votes(LATER_NS + 1, up=True)
    assert (len(again), len(given_up)) == (0, 100)
    debts.come_due(after_break=True)
    assert releases_of(debts) == [ours]


def test_who_owes_little_does_not_wait_for_who_owes_much() -> None:
    """Neither after a break nor while the master answers, however much was owed before."""
    for after_break in (True, False):
        debts = Debts(room_for())
        greedy, modest = owed_by("greedy", 10 * AT_ONCE), owed_by("modest", 3)
        owes = debts.keep if after_break else debts.add
        for one in (*greedy, *modest):
            owes(one, b"")
        if after_break:
            debts.broke_off()
            debts.come_due(after_break=True)
        asked = asked_in_order(debts)
        assert [asked.index(one) for one in modest] == [1, 3, 5]
        assert [one for one in asked if one.account == "greedy"] == greedy, (
            "and each account's in their order"
        )


def test_what_comes_while_thousands_are_due_is_next_but_one() -> None:
    debts, [late] = Debts(room_for()), owed_by("modest")
    for one in owed_by("greedy", 10 * AT_ONCE):
        debts.add(one, b"")
    on_their_way = releases_of(debts)
    debts.add(late, b"")
    for one in on_their_way[: AT_ONCE // 2]:
        debts.was_answered(one)
    assert late in releases_of(debts)[:2]


@pytest.mark.parametrize("is_due", [True, False])
def test_a_full_account_forgets_its_own_oldest_debt_and_never_anothers(is_due: bool) -> None:
    """Rule 3: another's lease is given back, however many the greedy one owes."""
    debts = Debts(room := room_for(10))
    modest, greedy = owed_by("modest", 10), owed_by("greedy", 1_000)
    for one in (*modest, *greedy):
        (debts.add if is_due else debts.keep)(one, b"")
    assert room.held == {"modest": 10 * DEBT, "greedy": 10 * DEBT}
    assert debts.forgotten == greedy[:-10]
    debts.come_due(after_break=False)
    assert {*asked_in_order(debts)} == {*modest, *greedy[-10:]}
    assert (room.used, room.held) == (0, {})


def test_who_has_no_room_and_owes_nothing_here_has_no_debt_to_forget_but_this() -> None:
    debts, [of_other, late] = Debts(room := room_for(1)), (*owed_by("other"), *owed_by("full"))
    debts.keep(of_other, b"")
    room.take("full", DEBT)
    debts.keep(late, b"")
    assert debts.forgotten == [late]
    debts.come_due(after_break=True)
    assert releases_of(debts) == [of_other]


def test_what_was_kept_at_a_break_is_asked_however_old_whoever_owes_it() -> None:
    """Rule 3, for each account. What comes later is not."""
    debts = Debts(room_for())
    old = [*owed_by("a", 3 * AT_ONCE, until_ns=0), *owed_by("b", 3, until_ns=0)]
    for one in old[1:]:
        debts.keep(one, b"")
    debts.broke_off()
    debts.add(old[0], b"")
    debts.broke_off()
    debts.come_due(after_break=True)
    late = owed_by("b", until_ns=0)
    debts.add(late[0], b"")
    asked = list[Ballot]()
    while (taken := debts.take_releases(LATER_NS)) != ([], []):
        for release, _ in taken[0]:
            asked.append(release)
            debts.was_answered(release)
        assert taken[1] in ([], late)
    assert {*asked} == {*old}


@pytest.mark.parametrize("name", [10, 512])
def test_a_debt_costs_what_is_counted_for_it(name: int) -> None:
    debts, number = Debts(room := room_for()), 2_000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for nonce in range(number):
            release = a_release(b"%d:".ljust(name, b"x") % nonce, b"%032d" % nonce, t1_ns=nonce << 40)
            debts.keep(release, scripts.release(release))
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert room.used == pytest.approx(used, rel=0.2)
