"""The life of a lease, from LOCK to UNLOCK, as the app, the masters and the next in line see it."""

from itertools import pairwise

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.ballots.put_back import PutBack
from lockd.core.ballots.release import Release
from lockd.core.fences import BLOCK, COUNTER_AHEAD_US, slot_of
from lockd.core.leases import Loss, Standing
from lockd.core.locks import Locks
from lockd.core.validity import deadline_ns, notice_ns
from tests.harness.fleet_model import MS, Answer, App, Host, beside, cluster, fresh_token, shown_by
from tests.harness.script_model import Key

R = b"r"


def break_all(host: Host, *masters: int) -> None:
    for master in masters:
        host.fleet.break_off(master)


def slow(host: Host, *masters: int) -> None:
    """These are asked, and answer nothing until the test says so."""
    for master in masters:
        host.fleet.links[master].slow = True


def quick(host: Host, *masters: int) -> None:
    for master in masters:
        host.fleet.links[master].slow = False


def answer(host: Host, *masters: int) -> None:
    for master in masters:
        host.fleet.answer(master)


def answer_all(host: Host) -> None:
    """All masters are quick again, and answer all there is, also what their answers lead to."""
    quick(host, *range(len(host.fleet.links)))
    host.fleet.settle()


def forget(host: Host, *masters: int) -> None:
    for master in masters:
        host.fleet.masters[master].forget(R)


def lose_answers(host: Host) -> None:
    """All masters do what they were asked, but their connections break before they are heard."""
    for master in range(5):
        host.fleet.break_off(master, arrived=1)
        host.fleet.come_back(master)


def sent_to(host: Host, master: int) -> list[str]:
    return [type(ballot).__name__ for ballot, _ in host.fleet.links[master].sent]


def queued(host: Host) -> list[list[str]]:
    return [sent_to(host, master) for master in range(len(host.fleet.links))]


# A grant


def test_an_app_is_granted_what_a_quorum_says_yes_to_before_the_rest_has_answered():
    host = cluster()
    app = host.lock()
    answer(host, 3, 0)
    assert app.code == ""
    answer(host, 4)
    assert app.code == "granted"


def test_all_masters_are_asked_at_once():
    host = cluster()
    host.lock()
    assert queued(host) == [["Attempt"]] * 5


def test_a_free_resource_costs_one_round_trip_and_no_more():
    host = cluster()
    host.locked()
    assert [type(ballot) for ballot in host.fleet.asked] == [Attempt]


def test_answers_after_the_grant_still_count_for_where_the_lease_is():
    """Rule 2: three of five is one lost key away from two holders."""
    host = cluster()
    app = host.lock()
    answer(host, 0, 1, 2)
    assert app.held.proven == 0b00111
    answer(host, 3, 4)
    assert app.held.proven == 0b11111
    assert shown_by(host) == [app.held.token] * 5


def test_a_deadline_counts_from_before_the_first_byte_was_sent():
    host = cluster()
    asked_ns = host.time.now_ns
    app = host.lock(ttl_ms=10_000)
    host.time.now_ns += 40 * MS
    host.fleet.settle()
    assert app.held.deadline_ns == deadline_ns(asked_ns, 10_000)


def test_answers_that_come_too_late_to_be_relied_upon_grant_nothing():
    """Rule 1: the check is made at the instant of answering."""
    host = cluster()
    app = host.lock(ttl_ms=100)
    host.time.now_ns += 87 * MS
    host.fleet.settle()
    assert app.code == "NOQUORUM"
    assert "too long for a ttl of 100 ms" in app.refusal.text
    assert shown_by(host) == [None] * 5


def test_the_last_instant_at_which_a_lease_is_granted_leaves_the_least_validity():
    for late_ns, code in ((-1, "granted"), (0, "NOQUORUM")):
        host = cluster(min_validity_ms=10)
        app = host.lock(ttl_ms=100)
        host.time.now_ns = deadline_ns(host.time.now_ns, 100) - 10 * MS + late_ns
        host.fleet.settle()
        assert app.code == code


def test_a_granted_lease_always_has_some_validity_left_at_its_grant():
    for late_ms in range(0, 140, 3):
        host = cluster(min_validity_ms=10)
        app = host.lock(ttl_ms=100)
        host.time.now_ns += late_ms * MS
        host.fleet.settle()
        if app.lease is not None:
            assert app.held.deadline_ns - host.time.now_ns > 10 * MS


def test_every_try_has_a_nonce_of_its_own():
    """Rule 4: a late answer to an old try can't be taken for one to the new."""
    host = cluster()
    other = beside(host).locked()
    host.lock(wait_ms=5_000)
    host.pass_ms(1_000)
    tokens = [attempt.nonce for attempt in host.asked(Attempt)]
    assert len(tokens) > 3
    assert len(set(tokens)) == len(tokens)
    assert other.held.token not in tokens


def test_a_try_whose_answer_was_lost_is_not_beaten_by_itself():
    """Rule 4: 'free or mine'. The connection broke after the master said yes, and the link asks again."""
    host = cluster()
    slow(host, *range(5))
    app = host.lock()
    for master in range(5):
        host.fleet.break_off(master, arrived=1)
        host.fleet.come_back(master)
    answer(host, *range(5))
    assert app.code == "granted"
    assert shown_by(host) == [app.held.token] * 5


def test_two_apps_that_chose_the_same_token_exclude_each_other():
    """Rule 4: 'mine' is this very try."""
    host = cluster()
    first = host.locked(value=b"same")
    assert first.held.token == b"same"
    assert beside(host).locked(value=b"same").code == "TAKEN"
    assert shown_by(host) == [first.held.nonce] * 5


def test_a_late_release_of_one_try_does_not_delete_the_lease_of_the_next_with_the_same_token():
    """Rule 4. The connection was away for the release, and is back when the next one holds."""
    host = cluster()
    first = host.locked(value=b"same")
    break_all(host, 4)
    host.unlock(first)
    host.fleet.settle()
    host.fleet.masters[4].forget(R)
    other = beside(host)
    second = other.locked(value=b"same")
    assert shown_by(host) == [second.held.nonce] * 5
    host.fleet.come_back(4)
    host.fleet.settle()
    assert shown_by(host) == [second.held.nonce] * 5


def test_a_failed_try_gives_back_itself_and_not_what_has_the_same_token():
    host = cluster()
    first = beside(host).locked(value=b"same")
    slow(host, 3, 4)
    second = host.lock(value=b"same")
    answer_all(host)
    assert second.code == "TAKEN"
    assert shown_by(host) == [first.held.nonce] * 5


def test_by_the_token_that_it_chose_an_app_extends_and_releases_through_any_agent():
    host = cluster()
    app = host.locked(value=b"=a \r\n p1 =b\x00", detached=True)
    assert extend_elsewhere(beside(host), app.held.nonce, 20_000).code == "NOTHELD"
    assert extend_elsewhere(beside(host), app.held.token, 20_000).code == "done"
    assert unlock_elsewhere(beside(host), app.held.nonce).code == "NOTHELD"
    assert unlock_elsewhere(beside(host), app.held.token).code == "done"
    assert shown_by(host) == [None] * 5


def test_what_is_put_back_keeps_the_token_that_its_app_chose():
    host = cluster()
    break_all(host, 3, 4)
    app = host.locked(value=b"mine", detached=True)
    for master in (3, 4):
        host.fleet.come_back(master)
    host.extend(app, 30_000)
    host.fleet.settle()
    assert unlock_elsewhere(beside(host), b"mine").code == "done"
    assert shown_by(host) == [None] * 5


def test_one_token_chosen_for_two_resources_makes_two_leases():
    host = cluster()
    here = host.locked(value=b"same", detached=True)
    there = host.locked(b"other", value=b"same", detached=True)
    host.unlock(here)
    host.fleet.settle()
    assert shown_by(host) == [None] * 5
    assert shown_by(host, b"other") == [there.held.nonce] * 5


def test_a_detached_lease_locked_again_with_its_token_is_the_one_that_is_known():
    """The first was given back through another agent."""
    host = cluster()
    host.locked(value=b"same", detached=True, ttl_ms=5_000)
    assert unlock_elsewhere(beside(host), b"same").code == "done"
    second = host.locked(value=b"same", detached=True, ttl_ms=20_000)
    host.pass_ms(6_000)
    assert host.locks.knows(R, b"same"), "the end of the first is not its end"
    assert host.locks.held == 1
    told = host.unlock(second)
    host.fleet.settle()
    assert told.code == "done"
    assert host.locks.detached == {}


# What a failed try leaves


def test_a_failed_try_is_given_back_where_it_landed_and_where_nobody_answered():
    """Rule 3."""
    host = cluster()
    other = beside(host)
    other.fleet.links[3].up = other.fleet.links[4].up = False
    holder = other.locked()
    slow(host, 4)
    app = host.locked()
    assert app.code == "TAKEN"
    (release,) = host.asked(Release)
    assert release.asked == 0b11000
    assert sent_to(host, 4) == ["Attempt", "Release"]
    answer(host, 4)
    assert shown_by(host) == [holder.held.token] * 3 + [None, None]


def test_a_failed_try_is_given_back_before_any_back_off():
    host = cluster()
    other = beside(host)
    other.fleet.links[3].up = other.fleet.links[4].up = False
    other.locked()
    host.locked(wait_ms=5_000)
    assert shown_by(host)[3:] == [None, None]
    assert isinstance(host.fleet.asked[-1], Release)
    assert len(host.asked(Attempt)) == 1


def test_a_try_that_ran_out_of_time_is_given_back_on_every_master_asked():
    host = cluster()
    slow(host, 1, 2, 3, 4)
    app = host.lock()
    host.pass_ms(251)
    assert app.code == "NOQUORUM"
    (release,) = host.asked(Release)
    assert release.asked == 0b11111
    answer(host, 1, 2, 3, 4)
    assert shown_by(host) == [None] * 5


def test_a_release_never_overtakes_its_own_acquire_across_a_broken_connection():
    host = cluster()
    slow(host, 2, 3, 4)
    host.lock()
    host.pass_ms(100)
    host.fleet.break_off(3, arrived=1)
    host.fleet.break_off(4)
    host.pass_ms(200)
    assert shown_by(host)[3] is not None
    host.fleet.come_back(3)
    host.fleet.come_back(4)
    answer(host, 2, 3, 4)
    assert shown_by(host) == [None] * 5


def test_a_release_is_worth_sending_until_the_lease_would_have_ended_anyway():
    host = cluster()
    slow(host, *range(5))
    asked_ns = host.time.now_ns
    host.lock(ttl_ms=7_000)
    host.pass_ms(251)
    (release,) = host.asked(Release)
    assert release.until_ns == asked_ns + 7_000 * MS


def test_a_vote_that_does_not_count_is_given_back_too():
    """Rules 8, 11, 14 and 3."""
    host = cluster()
    slow(host, *range(5))
    app = host.lock()
    host.fleet.votes = 0b00011
    answer_all(host)
    assert app.code == "NOQUORUM"
    assert "m3=its-vote-does-not-count" in app.refusal.text
    assert shown_by(host) == [None] * 5


def test_a_quorum_of_which_one_vote_does_not_count_is_none():
    host = cluster()
    slow(host, *range(5))
    app = host.lock()
    break_all(host, 3, 4)
    host.fleet.votes = 0b11011
    answer(host, 0, 1, 2)
    host.fleet.fail_to_connect(3)
    host.fleet.fail_to_connect(4)
    assert app.code == "NOQUORUM"
    assert app.lease is None


def test_votes_from_before_and_after_another_master_was_admitted_are_no_quorum():
    """Rule 8. m5 is an old machine: it answers, then its agent hears that another took its place."""
    host = cluster()
    slow(host, *range(5))
    app = host.lock()
    answer(host, 4)
    host.fleet.votes = 0b01111
    answer(host, 0, 1)
    assert app.lease is None
    assert len(host.asked(Release)) == 1


def test_what_was_no_quorum_only_as_another_master_was_admitted_is_tried_again_for_who_does_not_wait():
    host = cluster()
    slow(host, *range(5))
    app = host.lock()
    answer(host, 4)
    host.fleet.votes = 0b01111
    answer(host, 0, 1)
    assert app.code == ""
    answer_all(host)
    host.pass_ms(10)
    answer_all(host)
    assert app.lease is not None


def test_who_does_not_wait_is_refused_when_the_voters_change_for_as_long_as_one_try_may_take():
    host = cluster()
    slow(host, *range(5))
    app = host.lock()
    for _ in range(1_000):
        answer(host, 4)
        host.fleet.votes = 0b01111
        answer(host, 0, 1)
        answer_all(host)
        if app.code:
            break
        host.fleet.votes = 0b11111
        slow(host, *range(5))
        host.pass_ms(1)
    assert app.code == "NOQUORUM"


def test_a_lease_goes_on_by_votes_that_count_together_only():
    host = cluster()
    app = host.locked(ttl_ms=9_000)
    slow(host, *range(5))
    host.pass_ms(3_100)
    answer(host, 3, 4)
    before_ns = app.held.deadline_ns
    host.fleet.votes = 0b00111
    answer(host, 0)
    assert app.held.deadline_ns == before_ns


# Slow and dead masters


def test_a_slow_master_is_not_waited_for():
    """Rule 5."""
    host = cluster()
    slow(host, 0, 1)
    asked_ns = host.time.now_ns
    app = host.locked()
    assert app.code == "granted"
    assert app.answered_ns == asked_ns


def test_a_dead_master_is_not_even_asked():
    host = cluster()
    break_all(host, 0, 1)
    app = host.locked()
    assert app.code == "granted"
    assert host.asked(Attempt)[0].asked == 0b11100


def test_without_a_quorum_of_voting_masters_nothing_is_asked_and_each_says_why():
    host = cluster()
    break_all(host, 0, 1)
    host.fleet.votes = 0b11011
    app = host.lock()
    assert str(app.refusal) == "NOQUORUM m1=down m2=down m3=no-vote"
    assert host.fleet.asked == []
    assert host.at_rest()


def test_when_only_clocks_stand_between_the_masters_and_a_quorum_the_refusal_is_about_clocks():
    host = cluster()
    host.fleet.votes, host.fleet.barred = 0b00011, 0b11100
    assert host.lock().code == "CLOCK"
    break_all(host, 3, 4)
    assert host.lock().code == "CLOCK"
    break_all(host, 2)
    assert host.lock().code == "NOQUORUM"


def test_masters_that_do_not_answer_in_time_are_named():
    host = cluster()
    slow(host, 1, 2, 4)
    asked_ns = host.time.now_ns
    app = host.lock()
    host.pass_ms(1_000)
    assert str(app.refusal) == "NOQUORUM m2=no-answer-in-time m3=no-answer-in-time m5=no-answer-in-time"
    assert app.answered_ns == asked_ns + 250 * MS


def test_a_short_ttl_shortens_the_masters_time():
    host = cluster()
    slow(host, *range(5))
    asked_ns = host.time.now_ns
    app = host.lock(ttl_ms=100)
    host.pass_ms(1_000)
    assert app.answered_ns == asked_ns + 50 * MS


def test_an_outage_is_told_as_soon_as_a_quorum_has_become_impossible():
    host = cluster()
    slow(host, *range(5))
    app = host.lock()
    break_all(host, 0, 1, 2)
    for master in (0, 1, 2):
        assert app.code == ""
        host.fleet.fail_to_connect(master)
    assert app.code == "NOQUORUM"


def test_each_of_many_tries_has_its_own_time_limit():
    host = cluster()
    slow(host, *range(5))
    apps = []
    for i in range(10):
        apps.append(host.lock(b"r%d" % i))
        host.pass_ms(20)
    host.pass_ms(1_000)
    assert [app.answered_ns - app.asked_ns for app in apps] == [250 * MS] * 10


def test_what_times_out_together_leaves_room_for_what_else_is_due():
    """All masters stand still, and a thousand tries with them."""
    host = cluster()
    slow(host, *range(5))
    apps = [host.lock(b"%d" % number) for number in range(1_000)]
    host.time.now_ns += 250 * MS
    answered = [0]
    for _ in range(1_000):
        next_ns = host.locks.timers.run(host.time.now_ns, 1)
        answered.append(sum(app.code != "" for app in apps))
        if next_ns is None or next_ns > host.time.now_ns:
            break
    assert answered[-1] == 1_000
    assert max(after - before for before, after in pairwise(answered)) <= 16


def test_the_leases_of_an_app_that_died_are_given_back_behind_what_apps_ask_now():
    host = cluster()
    dead, waited_for, given_back = (host.locked(resource) for resource in (b"a", b"b", b"c"))
    host.lock(b"b", wait_ms=1_000)
    host.app_dies(dead)
    host.app_dies(waited_for)
    host.unlock(given_back)
    assert [(release.resource, release.patient) for release in host.asked(Release)] == [
        (b"a", True), (b"b", False), (b"c", False),
    ]  # fmt: skip


def test_a_waiter_gets_its_lease_once_the_masters_are_back():
    host = cluster()
    break_all(host, 0, 1, 2)
    app = host.lock(wait_ms=10_000)
    host.pass_ms(2_000)
    for master in (0, 1, 2):
        host.fleet.come_back(master)
    host.pass_ms(200)
    assert app.code == "granted"


def test_a_wait_that_ends_in_an_outage_says_no_quorum_and_why():
    host = cluster()
    break_all(host, 0, 1, 2)
    app = host.lock(wait_ms=1_000)
    host.pass_ms(1_001)
    assert str(app.refusal) == "NOQUORUM m1=down m2=down m3=down"
    assert app.answered_ns == app.give_up_ns
    assert host.at_rest()


# Contention


def test_what_another_host_holds_is_taken_and_says_when_to_come_again():
    host = cluster()
    beside(host).locked(ttl_ms=3_000)
    app = host.locked()
    assert app.code == "TAKEN"
    assert app.refusal.retry_after_ms == 3_000
    assert app.refusal.text.startswith("retry-after=3000 ")


def three_that_split_the_votes(**wanted: int) -> list[tuple[Host, App]]:
    """Their questions reach the masters in another order each: two votes, two votes and one."""
    first = cluster()
    hosts = [first, beside(first), beside(first)]
    for host in hosts:
        slow(host, *range(5))
    apps = [host.lock(**wanted) for host in hosts]
    for master, host in zip(range(5), (0, 0, 1, 1, 2), strict=True):
        hosts[host].fleet.arrive(master)
    for host in hosts:
        answer(host, *range(5))
    return list(zip(hosts, apps, strict=True))


def test_none_of_those_that_split_the_votes_is_told_that_another_holds_it():
    asked = three_that_split_the_votes()
    assert [app.code for _, app in asked] == ["", "", ""]
    for host, _ in asked:
        answer(host, *range(5))
    assert shown_by(asked[0][0]) == [None] * 5


def test_those_that_split_the_votes_try_again_and_one_gets_it_without_waiting():
    asked = three_that_split_the_votes()
    for host, _ in asked:
        answer_all(host)
        host.pass_ms(20)
    codes = sorted(app.code for _, app in asked)
    assert codes == ["TAKEN", "TAKEN", "granted"]


def split_for_ever(host: Host) -> None:
    """Others' tries are there whenever this one comes: two votes for one, two for another."""
    for master, nonce in zip(range(4), b"aabb", strict=True):
        host.fleet.masters[master].store.leases[R] = Key(
            b"%b 1 0 host 1 0" % (bytes([nonce]) * 32), host.fleet.masters[master].now_us // 1000 + 50_000
        )


def test_a_vote_that_stays_split_ends_as_contention_that_names_no_holder():
    """In the time that one try may take: no outage, and nobody has it."""
    host = cluster()
    split_for_ever(host)
    app = host.lock()
    host.pass_ms(250)
    assert (app.code, app.answered_ns <= app.asked_ns + 250 * MS) == ("TIMEOUT", True)
    assert "several try for it" in app.refusal.text
    assert len(host.asked(Attempt)) > 3
    assert host.at_rest()


def test_a_wait_that_ends_in_a_split_vote_names_no_holder():
    host = cluster()
    split_for_ever(host)
    app = host.lock(wait_ms=1_000)
    host.pass_ms(1_001)
    assert app.code == "TIMEOUT"
    assert "several try for it" in app.refusal.text


def test_one_that_comes_between_two_tries_of_a_split_vote_is_tried_for_too():
    host = cluster()
    split_for_ever(host)
    host.lock(wait_ms=10_000)
    host.pass_ms(1)
    app = host.lock()
    assert app.code == ""
    host.pass_ms(250)
    assert app.code == "TIMEOUT"


def test_one_that_may_have_a_quorum_with_a_silent_master_is_taken_for_its_holder():
    host = cluster()
    other = beside(host)
    break_all(other, 3, 4)
    other.locked()
    break_all(host, 0)
    app = host.locked()
    assert app.code == "TAKEN"


def test_what_another_app_on_this_host_holds_is_taken_without_asking_any_master():
    host = cluster()
    host.locked(ttl_ms=10_000)
    asked = len(host.fleet.asked)
    app = host.lock()
    assert app.code == "TAKEN"
    assert app.refusal.retry_after_ms == 9_898
    assert len(host.fleet.asked) == asked


def test_a_wait_that_ends_while_another_host_holds_it_is_a_timeout():
    host = cluster()
    beside(host).locked(ttl_ms=30_000)
    app = host.lock(wait_ms=500)
    host.pass_ms(600)
    assert app.code == "TIMEOUT"
    assert "waited 500 ms" in app.refusal.text
    assert app.answered_ns == app.give_up_ns


def test_a_wait_that_ends_while_another_app_here_holds_it_is_a_timeout():
    host = cluster()
    host.locked()
    app = host.lock(wait_ms=500)
    host.pass_ms(600)
    assert app.code == "TIMEOUT"


def test_a_wait_that_ends_just_after_the_lease_here_was_released_is_a_timeout_not_an_outage():
    host = cluster()
    first = host.locked()
    app = host.lock(wait_ms=500)
    host.pass_ms(499)
    slow(host, *range(5))
    host.unlock(first)
    host.pass_ms(2)
    assert app.code == "TIMEOUT"


def test_a_waiter_gets_it_soon_after_another_host_has_released_it():
    host = cluster()
    other = beside(host)
    holder = other.locked(ttl_ms=30_000)
    app = host.lock(wait_ms=10_000)
    host.pass_ms(3_000)
    other.unlock(holder)
    other.fleet.settle()
    host.pass_ms(160)
    assert app.code == "granted"


def test_a_waiter_gets_it_when_the_lease_of_a_dead_host_has_run_out():
    host = cluster()
    beside(host).locked(ttl_ms=2_000)
    app = host.lock(wait_ms=10_000)
    host.pass_ms(1_999)
    assert app.code == ""
    host.pass_ms(160)
    assert app.code == "granted"


def test_the_pause_between_tries_grows_but_stays_bounded():
    host = cluster(backoff_first_ms=4, backoff_most_ms=100)
    beside(host).locked(ttl_ms=50_000)
    host.lock(wait_ms=5_000)
    host.pass_ms(5_000)
    tried_ns = [attempt.t1_ns for attempt in host.asked(Attempt)]
    pauses = [b - a for a, b in pairwise(tried_ns)]
    assert pauses[0] == 8 * MS
    assert pauses == sorted(pauses)
    assert pauses[-1] == 100 * MS


def test_a_waiter_does_not_sleep_past_the_end_of_the_others_lease():
    host = cluster(backoff_first_ms=1_000, backoff_most_ms=1_000)
    beside(host).locked(ttl_ms=200)
    app = host.lock(wait_ms=10_000)
    host.pass_ms(205)
    assert app.code == "granted"


# Fences


def give_counters(host: Host, *values: int) -> None:
    """Each master's fence counter, as if other agents with other clocks had been there."""
    for master, value in zip(host.fleet.masters, values, strict=True):
        master.fences[slot_of(R)] = value


FAR = 1_700_004_600_000_000  # an hour ahead of the clocks


def in_a_second_round(host: Host) -> App:
    """It has a vote of each master, but they differ in the fence, and none has answered the proposal yet."""
    give_counters(host, FAR, FAR + 10, FAR + 20, FAR + 30, FAR + 40)
    slow(host, *range(5))
    app = host.lock()
    for master in range(5):
        host.fleet.arrive(master)
        host.fleet.hear(master)
    return app


def test_masters_that_agree_need_no_second_round():
    host = cluster()
    host.locked()
    assert host.watched.count("fence round") == 0
    assert host.asked(FenceRound) == []


def test_masters_that_differ_are_made_to_agree_on_a_value_above_all():
    """Rule 6."""
    host = cluster()
    give_counters(host, FAR, FAR + 10, FAR + 20, FAR + 30, FAR + 40)
    app = host.locked()
    (proposal,) = host.asked(FenceRound)
    assert app.code == "granted"
    assert app.held.fence == proposal.value > FAR + 20
    counters = [master.fences[slot_of(R)] for master in host.fleet.masters]
    assert sum(counter >= app.held.fence for counter in counters) >= 3
    assert host.watched.count("fence round") == 1


def test_a_proposal_that_is_refused_is_made_again_higher():
    host = cluster()
    give_counters(host, FAR, FAR + 1000, FAR + 2000, FAR + 9_000_000, FAR + 9_000_000)
    slow(host, *range(5))
    app = host.lock()
    for master in (3, 4):
        host.fleet.masters[master].fences[slot_of(R)] = FAR + 9_000_000
    answer(host, 0, 1, 2)
    assert len(host.asked(FenceRound)) == 1
    host.fleet.masters[0].fences[slot_of(R)] = FAR + 50_000_000
    quick(host, *range(5))
    host.fleet.settle()
    assert app.code == "granted"
    assert len(host.asked(FenceRound)) == 2
    assert app.held.fence > FAR + 50_000_000


def test_validity_is_checked_again_after_a_second_round():
    """Rule 1: etcd's 'lock returned after its lease expired while queued'."""
    host = cluster()
    give_counters(host, FAR, FAR + 10, FAR + 20, FAR + 30, FAR + 40)
    slow(host, *range(5))
    app = host.lock(ttl_ms=200)
    host.pass_ms(90)
    for master in range(3):
        host.fleet.arrive(master)
        host.fleet.hear(master)
    assert app.code == ""
    assert len(host.asked(FenceRound)) == 1
    host.time.now_ns += 99 * MS
    answer_all(host)
    assert app.lease is None
    assert app.code == "NOQUORUM"
    assert shown_by(host) == [None] * 5


def test_a_second_round_that_nobody_answers_is_an_outage_and_given_back():
    host = cluster()
    app = in_a_second_round(host)
    host.pass_ms(251)
    assert app.code == "NOQUORUM"
    assert "no-answer-in-time" in app.refusal.text
    answer(host, *range(5))
    assert shown_by(host) == [None] * 5
    assert host.at_rest()


def test_refused_second_rounds_end_when_the_lease_would_be_too_old():
    host = cluster()
    give_counters(host, FAR, FAR + 10, FAR + 20, FAR + 30, FAR + 40)
    slow(host, *range(5))
    app = host.lock(ttl_ms=1_000)
    for turn in range(1, 40):
        for master in range(5):
            host.fleet.masters[master].fences[slot_of(R)] = FAR + turn * 10_000_000 + master
            answer(host, master)
        host.pass_ms(50)
    assert app.code == "NOQUORUM"
    assert len(host.asked(FenceRound)) > 2
    assert app.answered_ns < app.asked_ns + 1_100 * MS


def test_a_vote_that_does_not_count_can_not_make_a_fence():
    host = cluster()
    app = in_a_second_round(host)
    host.fleet.votes = 0b00011
    answer_all(host)
    assert app.code == "NOQUORUM"


def test_fences_grow_from_grant_to_grant_whichever_host_is_granted_and_whatever_its_clock_says():
    host = cluster()
    hosts = [host, beside(host), beside(host)]
    hosts[1].locks.wall_ahead_ns -= 3_600_000 * MS
    hosts[2].locks.wall_ahead_ns += 3_600_000 * MS
    fences = []
    for turn in range(30):
        agent = hosts[turn * 7 % 3]
        break_all(agent, turn % 5, (turn + 2) % 5)
        app = agent.locked()
        fences.append(app.held.fence)
        agent.unlock(app)
        agent.fleet.settle()
        for master in (turn % 5, (turn + 2) % 5):
            agent.fleet.come_back(master)
        agent.fleet.settle()
    assert fences == sorted(set(fences))


def test_a_grant_reserves_a_block_of_fences():
    host = cluster()
    first = host.locked(ttl_ms=10_000)
    host.unlock(first)
    host.fleet.settle()
    second = host.locked()
    assert second.held.fence >= first.held.fence + BLOCK


def test_two_leases_at_once_after_a_disaster_still_have_ordered_fences():
    """Rule 6 holds even if mutual exclusion fails."""
    host = cluster()
    first = host.locked()
    forget(host, 0, 1, 2)
    second = beside(host).locked()
    assert first.held.deadline_ns > host.time.now_ns
    assert second.held.fence > first.held.fence


def test_counters_that_are_all_wrong_grant_nothing():
    host = cluster()
    give_counters(host, *[2**53 - 10] * 5)
    app = host.locked()
    assert app.code == "NOQUORUM"
    assert "m1=fence-counter-is-wrong" in app.refusal.text


def test_one_wrong_counter_costs_its_master_the_vote_and_nobody_else():
    """Rule 6. It spread to all masters by the hints of whoever had seen it: NOQUORUM for ever."""
    host = cluster()
    give_counters(host, 2**52 - 1000, 5, 5, 5, 5)
    for _ in range(3):
        app = host.locked()
        assert app.held.fence < host.time.wall_us + COUNTER_AHEAD_US
        host.unlock(app)
        host.fleet.settle()
    assert all(max(m.fences.values()) < host.time.wall_us + COUNTER_AHEAD_US for m in host.fleet.masters[1:])


@pytest.mark.parametrize("off_ms", [84 * 365 * 86_400_000, -40 * 365 * 86_400_000, 7 * 86_400_000])
def test_an_agent_whose_clock_is_far_off_gets_locks_and_spreads_no_fences(off_ms):
    """Rule 6: in 2110 its hints would be the floor of every counter it ever used."""
    hosts = [cluster()]
    hosts.append(beside(hosts[0]))
    hosts[0].locks.wall_ahead_ns += off_ms * MS
    for host in hosts * 2:
        app = host.locked()
        assert abs(app.held.fence - host.time.wall_us) < COUNTER_AHEAD_US
        host.unlock(app)
        host.fleet.settle()


# Keeping it


def test_a_session_lease_is_renewed_while_its_app_lives():
    host = cluster()
    app = host.locked(ttl_ms=3_000)
    host.pass_ms(60_000)
    assert app.losses == []
    assert len(app.renewals) == 60
    assert app.renewals == sorted(app.renewals)
    assert app.held.deadline_ns > host.time.now_ns + 1_900 * MS
    assert shown_by(host) == [app.held.token] * 5


def test_a_renewed_deadline_counts_from_before_the_renewal_was_sent():
    host = cluster()
    app = host.locked(ttl_ms=3_000)
    slow(host, *range(5))
    asked_ns = host.time.now_ns + 1_000 * MS
    host.pass_until(asked_ns)
    host.pass_ms(200)
    answer(host, *range(5))
    assert app.renewals == [deadline_ns(asked_ns, 3_000)]


def test_a_lease_is_put_back_where_it_was_lost_by_the_renewal_after_the_one_that_found_it_gone():
    """Rule 2: not at once, it may be on its way out everywhere."""
    host = cluster()
    app = host.locked(ttl_ms=3_000)
    forget(host, 1, 3)
    host.pass_ms(1_001)
    assert len(app.renewals) == 1
    assert shown_by(host) == [app.held.nonce, None] * 2 + [app.held.nonce]
    host.pass_ms(1_000)
    assert shown_by(host) == [app.held.nonce] * 5
    assert app.losses == []


def test_a_renewal_spreads_the_lease_to_masters_that_were_away_at_its_grant():
    host = cluster()
    break_all(host, 3, 4)
    app = host.locked(ttl_ms=3_000)
    for master in (3, 4):
        host.fleet.come_back(master)
    host.pass_ms(1_001)
    assert shown_by(host) == [app.held.token] * 5
    host.unlock(app)
    host.fleet.settle()
    assert shown_by(host) == [None] * 5


def test_a_lease_is_never_renewed_past_max_hold():
    """Rule 7."""
    host = cluster()
    app = host.locked(ttl_ms=3_000, max_hold_ms=10_000)
    until_ns = host.time.now_ns + 10_000 * MS
    host.pass_ms(9_500)
    assert max(app.renewals) <= until_ns
    host.pass_ms(1_000)
    assert max(app.renewals) <= until_ns
    ((told_ns, reason),) = app.losses
    assert reason == "it was held for max_hold"
    assert told_ns < app.held.deadline_ns <= until_ns
    assert app.ends == [app.held.deadline_ns]
    assert shown_by(host) == [None] * 5


def test_max_hold_is_used_up_nearly_to_its_end():
    host = cluster()
    app = host.locked(ttl_ms=3_000, max_hold_ms=10_000)
    host.pass_ms(9_900)
    assert app.held.deadline_ns > app.held.t1_ns
    assert app.held.deadline_ns >= app.held.hold_until_ns - 2 * MS


def test_a_renewal_that_fails_once_is_tried_again():
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    slow(host, 0, 1, 2)
    host.pass_ms(5_000)
    assert app.renewals == []
    quick(host, 0, 1, 2)
    host.pass_ms(1_000)
    assert len(app.renewals) >= 1
    host.pass_ms(30_000)
    assert app.losses == []


def test_only_one_renewal_is_under_way_at_a_time():
    host = cluster(master_timeout_ms=2_000)
    host.locked(ttl_ms=10_000)
    slow(host, *range(5))
    host.pass_ms(3_334 + 1_990)
    assert len(host.asked(Extension)) == 1


def test_a_holder_is_told_before_the_deadline_that_its_lease_can_not_be_renewed():
    """Rule 12."""
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    break_all(host, 0, 1, 2)
    host.pass_ms(9_000)
    ((told_ns, reason),) = app.losses
    assert told_ns == app.held.deadline_ns - notice_ns(10_000)
    assert "m1=down m2=down m3=down" in reason
    assert app.ends == []
    host.pass_ms(1_000)
    assert app.ends == [app.held.deadline_ns]


@pytest.mark.parametrize("ttl_ms", [100, 250, 1_000, 30_000, 60_000])
def test_the_notice_is_a_fifth_of_the_ttl_for_any_ttl(ttl_ms):
    host = cluster()
    app = host.locked(ttl_ms=ttl_ms)
    break_all(host, *range(5))
    host.pass_ms(ttl_ms + 1)
    ((told_ns, _),) = app.losses
    assert told_ns == app.held.deadline_ns - notice_ns(ttl_ms)


def test_an_answer_after_the_holder_was_told_does_not_bring_the_lease_back():
    """Rule 12: told is told."""
    host = cluster(master_timeout_ms=4_000)
    app = host.locked(ttl_ms=10_000)
    deadline = app.held.deadline_ns
    slow(host, *range(5))
    host.pass_until(deadline - notice_ns(10_000) + 10 * MS)
    assert len(app.losses) == 1
    answer(host, *range(5))
    quick(host, *range(5))
    assert app.held.standing is Standing.LOST
    assert app.held.deadline_ns == deadline
    host.pass_ms(10_000)
    assert len(app.losses) == 1
    assert shown_by(host) == [None] * 5


def test_a_renewal_answered_after_the_deadline_proves_nothing():
    """Rule 2: only while the present validity is still proven. The agent stood still: told too late."""
    host = cluster()
    app = host.locked(ttl_ms=1_000)
    slow(host, *range(5))
    host.pass_ms(340)
    assert len(host.asked(Extension)) == 1
    host.time.now_ns = app.held.deadline_ns
    for master in range(5):
        host.fleet.hear(master) if host.fleet.links[master].replies else host.fleet.answer(master)
    assert app.renewals == []
    host.locks.timers.run(host.time.now_ns)
    assert len(app.losses) == 1
    assert app.ends == [host.time.now_ns]


def test_an_agent_that_slept_past_the_deadline_says_so_at_once():
    host = cluster()
    app = host.locked(ttl_ms=1_000)
    host.time.now_ns += 60_000 * MS
    host.locks.timers.run(host.time.now_ns)
    assert [reason for _, reason in app.losses] == ["its validity ended before it could be renewed"]
    assert app.held.lost_by is Loss.NOT_RENEWED
    assert len(app.ends) == 1
    host.fleet.settle()


def test_a_lease_held_for_max_hold_is_lost_by_that_however_late_it_is_told():
    for late_ms in (100, 60_000):
        host = cluster()
        app = host.locked(ttl_ms=1_000, max_hold_ms=1_000)
        host.time.now_ns = app.held.deadline_ns + late_ms * MS
        host.locks.timers.run(host.time.now_ns)
        assert app.held.lost_by is Loss.MAX_HOLD
    host.pass_ms(1_000)
    assert host.at_rest()


def test_a_lease_that_vanished_from_a_quorum_is_lost_and_no_retry_brings_it_back():
    """Rule 12: another may have held it in between; that putting it back works proves nothing."""
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    promised_ns = app.held.deadline_ns
    forget(host, 0, 2, 4)
    host.pass_ms(3_400)
    ((told_ns, reason),) = app.losses
    assert told_ns < promised_ns
    assert "gone from m1, m3, m5" in reason
    assert app.renewals == []
    host.pass_ms(20_000)
    assert len(app.losses) == 1
    assert len(app.ends) == 1


def test_what_is_left_of_a_lease_that_looks_gone_stays_until_the_promise_to_its_holder_is_over():
    """The holder may read of its loss late: the copies that are left may be all that keeps others out."""
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    promised_ns = app.held.deadline_ns
    forget(host, 0, 2, 4)
    host.pass_ms(3_400)
    assert len(app.losses) == 1
    host.pass_until(promised_ns - MS)
    assert shown_by(host) == [None, app.held.nonce, None, app.held.nonce, None]
    assert app.ends == []
    host.pass_until(promised_ns + MS)
    assert shown_by(host) == [None] * 5
    assert len(app.ends) == 1


def test_the_holder_of_a_lease_that_looks_gone_may_give_it_back_before():
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    forget(host, 0, 2, 4)
    host.pass_ms(3_400)
    assert host.unlock(app).code == "EXPIRED"
    host.fleet.settle()
    assert shown_by(host) == [None] * 5


def test_losses_on_a_minority_add_up_over_renewals_that_failed():
    """Two masters lose it, and a renewal fails for another reason; then a third loses it."""
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    forget(host, 0, 1)
    slow(host, 3, 4)
    host.pass_ms(3_700)
    assert app.losses == []
    forget(host, 2)
    quick(host, 3, 4)
    host.pass_ms(1_000)
    assert app.renewals == []
    assert len(app.losses) == 1


def spread_to_all(host: Host, **wanted: int) -> App:
    """A lease that two masters did not have: a renewal has just put it on them."""
    break_all(host, 3, 4)
    app = host.locked(ttl_ms=9_000, **wanted)
    for master in (3, 4):
        host.fleet.come_back(master)
    host.pass_ms(3_001)
    assert len(app.renewals) == 1
    assert shown_by(host) == [app.held.nonce] * 5
    return app


def on_its_way_to_the_last(host: Host) -> App:
    """A lease that one master did not have: behind a renewal it is being put on that one."""
    break_all(host, 3)
    app = host.locked(ttl_ms=9_000)
    host.fleet.come_back(3)
    slow(host, 3)
    host.pass_ms(3_001)
    host.fleet.arrive(3)
    host.fleet.hear(3)
    assert sent_to(host, 3) == ["PutBack"]
    return app


def test_what_a_renewal_put_back_is_not_counted_by_the_next():
    host = cluster()
    app = spread_to_all(host)
    forget(host, 0)
    host.pass_ms(3_001)
    assert len(app.renewals) == 1
    assert len(app.losses) == 1


def test_what_a_renewal_put_back_counts_again_once_a_quorum_has_proven_the_lease():
    host = cluster()
    app = spread_to_all(host)
    host.pass_ms(3_001)
    assert len(app.renewals) == 2
    forget(host, 2)
    break_all(host, 1)
    host.pass_ms(3_001)
    assert len(app.renewals) == 3
    assert app.losses == []


def test_put_backs_on_masters_that_never_had_the_lease_do_not_hide_that_another_held_it():
    """Three of five is one lost key away from two holders; the first must hear of it."""
    host = cluster()
    break_all(host, 3, 4)
    app = host.locked(ttl_ms=10_000)
    promised_ns = app.held.deadline_ns
    for master in (3, 4):
        host.fleet.come_back(master)
    forget(host, 2)
    other = beside(host)
    second = other.locked()
    assert second.code == "granted"
    other.unlock(second)
    other.fleet.settle()
    host.pass_ms(20_000)
    assert app.renewals == []
    ((told_ns, _),) = app.losses
    assert told_ns < promised_ns


def test_a_put_back_whose_answer_was_lost_is_not_taken_for_a_lease_that_was_always_there():
    host = cluster()
    app = on_its_way_to_two(host)
    for master in (3, 4):
        host.fleet.break_off(master, arrived=1)
        host.fleet.fail_to_connect(master)
        host.fleet.come_back(master)
    assert shown_by(host) == [app.held.nonce] * 5
    quick(host, 3, 4)
    forget(host, 0)
    host.pass_ms(3_001)
    assert len(app.renewals) == 1
    assert len(app.losses) == 1


def on_its_way_to_two(host: Host) -> App:
    """A lease that two masters did not have: behind a renewal it is being put on them."""
    break_all(host, 3, 4)
    app = host.locked(ttl_ms=9_000)
    for master in (3, 4):
        host.fleet.come_back(master)
    slow(host, 3, 4)
    host.pass_ms(3_001)
    for master in (3, 4):
        host.fleet.arrive(master)
        host.fleet.hear(master)
        assert sent_to(host, master) == ["PutBack"]
    return app


def another_held_it(host: Host) -> None:
    other = beside(host)
    second = other.locked()
    assert second.code == "granted"
    other.unlock(second)
    other.fleet.settle()


def test_a_put_back_that_lands_after_a_later_proof_does_not_hide_that_another_held_it():
    """Rule 2: what is there now was not there all the time since that proof."""
    host = cluster()
    app = on_its_way_to_two(host)
    host.pass_ms(3_001)
    assert len(app.renewals) == 2
    forget(host, 0, 1)
    another_held_it(host)
    answer_all(host)
    assert shown_by(host) == [None, None] + [app.held.nonce] * 3
    host.pass_ms(3_001)
    assert len(app.renewals) == 2
    assert len(app.losses) == 1


def test_a_put_back_that_lands_while_votes_for_the_next_proof_come_in_does_not_hide_that_another_held_it():
    """A proof is not of one instant: the first votes for it are from before the put-back."""
    host = cluster()
    app = on_its_way_to_two(host)
    slow(host, 0, 1, 2)
    host.pass_ms(3_000)
    answer(host, 0, 1)
    forget(host, 0, 1)
    another_held_it(host)
    for master in (3, 4, 2):
        answer(host, master)
    assert len(app.renewals) == 2
    assert shown_by(host) == [None, None] + [app.held.nonce] * 3
    answer_all(host)
    host.pass_ms(3_001)
    assert len(app.renewals) == 2
    assert len(app.losses) == 1


def test_what_was_put_back_counts_once_it_was_heard_of_before_the_last_proof_was_asked_for():
    """Also when that was late: here the second renewal hears of it, and the third proves the lease."""
    host = cluster()
    app = on_its_way_to_two(host)
    host.pass_ms(3_001)
    answer_all(host)
    host.pass_ms(3_001)
    assert len(app.renewals) == 3
    forget(host, 0, 1)
    host.pass_ms(3_001)
    assert len(app.renewals) == 4
    assert app.losses == []


def test_a_put_back_that_was_lost_is_sent_again_behind_a_later_proof():
    host = cluster()
    app = on_its_way_to_the_last(host)
    host.fleet.break_off(3)
    host.pass_ms(300)
    host.fleet.come_back(3)
    quick(host, 3)
    assert shown_by(host)[3] is None
    host.pass_ms(6_001)
    assert shown_by(host) == [app.held.nonce] * 5


def test_what_another_agent_gave_back_is_locked_for_nobody_by_an_extension_through_its_own():
    """Rule 2: this locked it on all masters until the end of its TTL, and nobody held it."""
    host = cluster()
    app = host.locked(ttl_ms=20_000, detached=True)
    other = beside(host)
    assert unlock_elsewhere(other, app.held.token).code == "done"
    told = host.extend(app, 30_000)
    host.fleet.settle()
    assert told.code == "EXPIRED"
    assert shown_by(host) == [None] * 5
    assert other.locked().code == "granted"


def test_what_was_taken_away_by_force_elsewhere_does_not_come_back_with_a_renewal():
    host = cluster()
    app = host.locked(ttl_ms=9_000)
    forget(host, *range(5))
    host.pass_ms(3_001)
    assert len(app.losses) == 1
    assert shown_by(host) == [None] * 5


def test_what_was_given_back_elsewhere_is_not_put_on_masters_that_never_had_it():
    """Nothing is put anywhere but behind a proof of just now."""
    host = cluster()
    break_all(host, 3, 4)
    app = host.locked(ttl_ms=20_000, detached=True)
    assert unlock_elsewhere(beside(host), app.held.token).code == "done"
    for master in (3, 4):
        host.fleet.come_back(master)
    break_all(host, 0, 1, 2)
    told = host.extend(app, 30_000)
    host.pass_ms(300)
    assert told.code == "NOQUORUM"
    assert shown_by(host) == [None] * 5


def test_a_lease_on_a_bare_quorum_is_lost_with_one_of_its_masters():
    """The two that never had it prove nothing, now or later."""
    host = cluster()
    break_all(host, 3, 4)
    app = host.locked(ttl_ms=9_000)
    for master in (3, 4):
        host.fleet.come_back(master)
    forget(host, 0)
    host.pass_ms(3_001)
    ((_, reason),) = app.losses
    assert "gone from m1:" in reason
    assert shown_by(host) == [None, app.held.nonce, app.held.nonce, None, None]


def test_what_was_put_back_is_given_back_when_the_lease_turns_out_to_be_gone():
    host = cluster()
    app = spread_to_all(host)
    forget(host, 0, 1, 2)
    host.pass_ms(3_001)
    assert len(app.losses) == 1
    assert shown_by(host) == [None] * 5


def test_what_is_put_back_when_the_lease_was_found_gone_already_is_given_back_too():
    """Sent behind a proof, and late."""
    host = cluster()
    app = on_its_way_to_the_last(host)
    forget(host, 0, 1, 2)
    host.pass_ms(3_001)
    assert len(app.losses) == 1
    answer_all(host)
    assert shown_by(host) == [None] * 4 + [app.held.nonce]


def test_where_the_last_proof_found_it_late_it_is_not_put_back():
    """The proof was there when that master said so: what is gone from it now was taken away."""
    host = cluster()
    app = host.locked(ttl_ms=9_000)
    slow(host, 4)
    host.pass_ms(3_001)
    assert len(app.renewals) == 1
    answer_all(host)
    forget(host, 4)
    host.pass_ms(3_001)
    assert len(app.renewals) == 2
    assert shown_by(host) == [app.held.nonce] * 4 + [None]


def test_nothing_is_put_back_for_a_lease_that_was_given_back_while_a_late_master_was_heard():
    host = cluster()
    break_all(host, 3)
    app = host.locked(ttl_ms=9_000)
    host.fleet.come_back(3)
    slow(host, 3)
    host.pass_ms(3_001)
    host.unlock(app)
    answer_all(host)
    assert shown_by(host) == [None] * 5
    assert host.asked(PutBack) == []


def test_what_is_over_is_not_asked_for_again_when_a_connection_comes_back():
    host = cluster()
    app = host.locked(ttl_ms=9_000)
    slow(host, *range(5))
    told = host.extend(app, 30_000)
    host.unlock(app)
    assert told.code == "EXPIRED"
    break_all(host, 0)
    host.fleet.come_back(0)
    assert sent_to(host, 0) == ["Release"]
    answer_all(host)
    assert shown_by(host) == [None] * 5


def test_a_lease_taken_by_another_after_data_loss_is_lost():
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    forget(host, 0, 1, 2)
    thief = beside(host).locked(ttl_ms=60_000)
    assert thief.code == "granted"
    host.pass_ms(3_400)
    assert len(app.losses) == 1
    assert shown_by(host)[:3] == [thief.held.token] * 3


def test_a_renewal_whose_votes_do_not_count_proves_nothing():
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    host.fleet.votes = 0b00011
    host.pass_ms(9_000)
    assert app.renewals == []
    assert len(app.losses) == 1


def test_a_release_reaches_masters_where_it_was_only_put_back():
    host = cluster()
    app = on_its_way_to_the_last(host)
    host.unlock(app)
    answer_all(host)
    assert len(host.asked(PutBack)) == 1
    assert shown_by(host) == [None] * 5


# An app's own EXTEND


def test_extend_goes_on_with_a_lease():
    host = cluster()
    app = host.locked(ttl_ms=10_000, detached=True)
    host.pass_ms(5_000)
    asked_ns = host.time.now_ns
    told = host.extend(app, 20_000)
    host.fleet.settle()
    assert told.extended.deadline_ns == deadline_ns(asked_ns, 20_000) == app.held.deadline_ns
    assert told.extended.fence == app.held.fence
    assert told.extended.token == app.held.token


def test_extend_never_shortens():
    host = cluster()
    app = host.locked(ttl_ms=10_000, detached=True)
    before_ns = app.held.deadline_ns
    told = host.extend(app, 500)
    host.fleet.settle()
    assert told.extended.deadline_ns == before_ns
    host.pass_until(before_ns - 1)
    assert shown_by(host) == [app.held.token] * 5


def test_extend_stops_at_max_hold():
    """Rule 7."""
    host = cluster()
    app = host.locked(ttl_ms=10_000, max_hold_ms=15_000, detached=True)
    until_ns = app.held.hold_until_ns
    host.pass_ms(9_000)
    told = host.extend(app, 10_000)
    host.fleet.settle()
    assert until_ns - 2 * MS < told.extended.deadline_ns <= until_ns
    again = host.extend(app, 10_000)
    host.fleet.settle()
    assert again.extended.deadline_ns == told.extended.deadline_ns
    host.pass_until(until_ns - MS)
    assert host.extend(app, 10_000).code == "EXPIRED"


def test_extensions_by_the_app_never_push_the_renewal_past_the_notice():
    """Rule 12, also for an app that mixes session locks with extensions of its own."""
    host = cluster()
    app = host.locked(ttl_ms=30_000)
    for ttl_ms in (22_000, 13_000, 5_000):
        host.pass_ms(9_000)
        host.extend(app, ttl_ms)
        host.fleet.settle()
    host.pass_ms(60_000)
    assert app.losses == []
    assert app.held.deadline_ns > host.time.now_ns


def test_a_longer_extension_of_a_session_lease_is_kept_up():
    host = cluster()
    app = host.locked(ttl_ms=3_000)
    told = host.extend(app, 30_000)
    host.fleet.settle()
    host.pass_ms(60_000)
    assert told.code == "done"
    assert app.losses == []
    assert app.held.deadline_ns > host.time.now_ns + 15_000 * MS


def test_extend_without_a_quorum_says_why_and_leaves_the_lease_as_it_was():
    host = cluster()
    app = host.locked(ttl_ms=10_000, detached=True)
    before_ns = app.held.deadline_ns
    break_all(host, 0, 1, 2)
    host.pass_ms(1_000)
    told = host.extend(app, 10_000)
    host.fleet.settle()
    assert told.text == "NOQUORUM m1=down m2=down m3=down"
    assert app.held.deadline_ns == before_ns
    assert app.held.standing is Standing.HELD


def test_extend_of_a_lease_that_vanished_is_expired():
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    forget(host, 0, 1, 2)
    told = host.extend(app, 30_000)
    host.fleet.settle()
    assert told.code == "EXPIRED"
    assert "gone from m1, m2, m3" in told.text
    assert len(app.losses) == 1


def test_a_second_extension_in_flight_does_not_count_what_the_first_put_back():
    host = cluster()
    app = host.locked(ttl_ms=30_000)
    break_all(host, 4)
    slow(host, 3)
    forget(host, 0, 1)
    told = [host.extend(app, 40_000), host.extend(app, 40_000)]
    host.pass_ms(300)
    assert [t.code for t in told] == ["NOQUORUM", "NOQUORUM"]


def test_extend_that_overtakes_its_own_unlock_is_expired():
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    slow(host, *range(5))
    told = host.extend(app, 20_000)
    host.unlock(app)
    answer(host, *range(5))
    assert told.code == "EXPIRED"
    assert shown_by(host) == [None] * 5


def test_extend_after_the_deadline_is_expired_though_the_masters_still_have_it():
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    host.time.now_ns = app.held.deadline_ns
    assert shown_by(host) == [app.held.token] * 5
    assert host.extend(app, 10_000).code == "EXPIRED"


def test_a_detached_lease_whose_known_deadline_is_over_is_for_the_masters_to_decide():
    """Another agent may have extended it."""
    host = cluster()
    other = beside(host)
    app = host.locked(ttl_ms=10_000, detached=True)
    host.pass_ms(8_000)
    extend_elsewhere(other, app.held.token, 20_000)
    host.pass_ms(5_000)
    told = host.extend(app, 30_000)
    host.fleet.settle()
    assert told.extended.fence is None
    assert told.extended.deadline_ns == deadline_ns(host.time.now_ns, 30_000)
    told = host.unlock(app)
    host.fleet.settle()
    assert told.code == "done"
    assert shown_by(host) == [None] * 5


def test_a_detached_lease_that_has_run_out_everywhere_is_not_held():
    host = cluster()
    app = host.locked(ttl_ms=10_000, detached=True)
    host.time.now_ns += 10_001 * MS  # Redis keeps a key through its last millisecond
    for told in (host.extend(app, 10_000), host.unlock(app)):
        host.fleet.settle()
        assert told.code == "NOTHELD"


def test_extend_of_a_lost_lease_is_expired():
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    break_all(host, *range(5))
    host.pass_until(app.held.deadline_ns - MS)
    told = host.extend(app, 10_000)
    assert told.code == "EXPIRED"
    assert "could not be renewed" in told.text


def test_a_mistake_where_the_time_of_a_ballot_is_up_is_that_requests_alone(monkeypatch):
    """All that is asked later has its time limit, too."""
    host = cluster()
    slow(host, *range(5))
    tried = Locks._tried

    def raising(self, attempt, now_ns):
        if attempt.resource == b"cursed":
            raise ZeroDivisionError("a mistake of ours")
        tried(self, attempt, now_ns)

    monkeypatch.setattr(Locks, "_tried", raising)
    cursed, app = host.lock(b"cursed"), host.lock(b"another")
    with pytest.raises(ZeroDivisionError):
        host.pass_ms(1_000)
    host.pass_ms(1_000)
    assert (cursed.code, app.code) == ("ERR", "NOQUORUM")
    later = host.lock(b"another")
    host.pass_ms(1_000)
    assert later.code == "NOQUORUM"
    assert host.locks.waiting == 0


# Leases that another agent granted


def extend_elsewhere(host: Host, token: bytes, ttl_ms: int, resource: bytes = R) -> Answer:
    told = Answer()
    host.locks.extend(resource, token, ttl_ms, told, host.time.now_ns)
    host.fleet.settle()
    return told


def unlock_elsewhere(host: Host, token: bytes, resource: bytes = R) -> Answer:
    told = Answer()
    host.locks.unlock(resource, token, told, host.time.now_ns)
    host.fleet.settle()
    return told


def test_another_agents_lease_is_extended_but_its_fence_is_not_known():
    host = cluster()
    app = beside(host).locked(detached=True)
    told = extend_elsewhere(host, app.held.token, 20_000)
    assert told.extended.fence is None
    assert told.extended.deadline_ns == deadline_ns(host.time.now_ns, 20_000)


def test_another_agents_lease_is_put_back_nowhere():
    host = cluster()
    app = beside(host).locked(detached=True)
    forget(host, 3, 4)
    assert extend_elsewhere(host, app.held.token, 20_000).code == "done"
    assert shown_by(host) == [app.held.token] * 3 + [None, None]


def test_an_extension_that_was_on_its_way_until_the_lease_had_ended_brings_it_back_nowhere():
    host = cluster()
    app = host.locked(ttl_ms=1_000, detached=True)
    slow(host, *range(5))
    host.extend(app, 9_000)
    host.pass_ms(1_100, answering=False)
    other = beside(host)
    second = other.locked()
    assert second.code == "granted"
    other.unlock(second)
    other.fleet.settle()
    answer_all(host)
    assert shown_by(host) == [None] * 5
    told = extend_elsewhere(other, app.held.token, 5_000)
    assert told.code == "NOTHELD"


def test_what_its_own_agent_put_back_is_not_counted_elsewhere():
    """Only that agent knows whether another held the resource meanwhile."""
    host = cluster()
    break_all(host, 3, 4)
    app = host.locked(detached=True)
    for master in (3, 4):
        host.fleet.come_back(master)
    host.extend(app, 30_000)
    host.fleet.settle()
    assert shown_by(host) == [app.held.nonce] * 5
    forget(host, 0)
    told = extend_elsewhere(beside(host), app.held.token, 40_000)
    # It is on four of five, so it would be wrong to say that it is not held.
    assert told.code == "NOQUORUM"
    assert "put back on m4, m5" in told.text


def test_another_agents_lease_that_is_on_no_quorum_is_not_held():
    host = cluster()
    app = beside(host).locked(detached=True)
    forget(host, 0, 3, 4)
    assert extend_elsewhere(host, app.held.token, 20_000).code == "NOTHELD"


def test_a_lease_with_a_wrong_token_is_neither_extended_nor_released():
    host = cluster()
    app = host.locked()
    wrong = fresh_token()
    assert extend_elsewhere(host, wrong, 20_000).code == "NOTHELD"
    assert unlock_elsewhere(host, wrong).code == "NOTHELD"
    assert shown_by(host) == [app.held.token] * 5


def test_another_agents_lease_is_not_extended_past_its_max_hold():
    """Rule 7, kept by the masters."""
    host = cluster()
    app = beside(host).locked(ttl_ms=10_000, max_hold_ms=15_000, detached=True)
    host.time.now_ns += 8_000 * MS
    told = extend_elsewhere(host, app.held.token, 60_000)
    assert host.time.now_ns + 6_500 * MS < told.extended.deadline_ns <= app.held.hold_until_ns
    host.time.now_ns = app.held.hold_until_ns - 50 * MS
    told = extend_elsewhere(host, app.held.token, 60_000)
    assert told.code != "done" or told.extended.deadline_ns <= app.held.hold_until_ns
    assert shown_by(host) == [app.held.token] * 5


def test_another_agents_session_lease_is_not_extended_from_here():
    """It ends with its connection, which is over there."""
    host = cluster()
    app = beside(host).locked()
    assert extend_elsewhere(host, app.held.token, 20_000).code == "EXPIRED"


def test_extending_another_agents_lease_without_a_quorum_says_why():
    host = cluster()
    app = beside(host).locked(detached=True)
    break_all(host, 0, 1, 2)
    assert extend_elsewhere(host, app.held.token, 20_000).text == "NOQUORUM m1=down m2=down m3=down"


def test_an_extension_elsewhere_that_is_answered_too_late_is_not_relied_upon():
    host = cluster()
    app = beside(host).locked(detached=True)
    slow(host, *range(5))
    told = Answer()
    host.locks.extend(R, app.held.token, 100, told, host.time.now_ns)
    host.time.now_ns += 98 * MS
    answer(host, *range(5))
    assert told.code == "NOQUORUM"


def test_another_agents_lease_can_be_released_from_here():
    host = cluster()
    app = beside(host).locked(detached=True)
    assert unlock_elsewhere(host, app.held.token).code == "done"
    assert shown_by(host) == [None] * 5
    host.pass_ms(300)
    assert host.at_rest()


def test_releasing_what_cannot_be_asked_about_is_an_outage():
    host = cluster()
    app = beside(host).locked(detached=True)
    break_all(host, *range(5))
    told = unlock_elsewhere(host, app.held.token)
    assert not told.came
    host.pass_ms(251)
    assert told.code == "NOQUORUM"


# Giving it back


def test_unlock_frees_the_resource_for_everybody_before_it_is_answered():
    host = cluster()
    app = host.locked()
    told = host.unlock(app)
    answer(host, 0, 1)
    assert not told.came
    answer(host, 2)
    assert told.code == "done"
    assert beside(host).locked().code == "granted"


def test_unlock_twice_is_not_held():
    host = cluster()
    app = host.locked()
    host.unlock(app)
    host.fleet.settle()
    again = host.unlock(app)
    host.fleet.settle()
    assert again.code == "NOTHELD"


def test_unlock_that_finds_the_lease_nowhere_is_expired():
    """It was not held all the time, and the app must know."""
    host = cluster()
    app = host.locked()
    forget(host, *range(5))
    told = host.unlock(app)
    host.fleet.settle()
    assert told.code == "EXPIRED"
    assert "no master had it any more" in told.text


def test_unlock_whose_answers_were_lost_is_not_taken_for_a_lost_lease():
    host = cluster()
    app = host.locked()
    slow(host, *range(5))
    told = host.unlock(app)
    lose_answers(host)
    answer_all(host)
    assert told.code == "done"
    assert shown_by(host) == [None] * 5


def test_unlock_after_the_deadline_is_expired_and_still_gives_back():
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    host.time.now_ns = app.held.deadline_ns
    assert shown_by(host) == [app.held.token] * 5
    told = host.unlock(app)
    assert told.code == "EXPIRED"
    host.fleet.settle()
    assert shown_by(host) == [None] * 5


def test_unlock_of_a_lost_lease_is_expired_with_the_reason_and_gives_back():
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    break_all(host, 0, 1, 2)
    host.pass_until(app.held.deadline_ns - MS)
    told = host.unlock(app)
    assert told.code == "EXPIRED"
    assert "m1=down" in told.text
    host.fleet.settle()
    assert shown_by(host)[3:] == [None, None]


def test_a_release_is_kept_for_masters_that_are_away():
    """Rule 3."""
    host = cluster()
    app = host.locked()
    break_all(host, 0, 1)
    told = host.unlock(app)
    host.fleet.settle()
    assert told.code == "done"
    assert shown_by(host)[0] == app.held.token
    for master in (0, 1):
        host.fleet.come_back(master)
    host.fleet.settle()
    assert shown_by(host) == [None] * 5


def test_a_release_after_a_renewal_is_kept_until_the_renewed_lease_would_end():
    host = cluster()
    app = host.locked(ttl_ms=3_000)
    host.pass_ms(2_500)
    host.unlock(app)
    release = host.asked(Release)[-1]
    assert release.until_ns >= app.held.t1_ns + 3_000 * MS


def test_the_app_of_a_session_lease_being_gone_frees_it_at_once():
    """Rule 13."""
    host = cluster()
    app = host.locked()
    host.app_dies(app)
    host.fleet.settle()
    assert shown_by(host) == [None] * 5
    assert host.watched.count("released", "app gone") == 1
    host.pass_ms(300)
    assert host.at_rest()


def test_a_lock_delay_keeps_a_dead_apps_lease_for_that_long_also_beyond_its_ttl():
    host = cluster()
    app = host.locked(ttl_ms=1_000, lock_delay_ms=5_000)
    host.pass_ms(100)
    host.app_dies(app)
    host.pass_ms(4_999)
    assert shown_by(host) == [app.held.token] * 5
    host.pass_ms(2)
    host.fleet.settle()
    assert shown_by(host) == [None] * 5
    assert app.losses == []
    host.pass_ms(300)
    assert host.at_rest()


def test_a_lock_delay_holds_back_the_next_in_line():
    host = cluster()
    app = host.locked(ttl_ms=1_000, lock_delay_ms=2_000)
    waiter = host.lock(wait_ms=10_000)
    host.app_dies(app)
    host.pass_ms(1_999)
    assert waiter.code == ""
    host.pass_ms(10)
    assert waiter.code == "granted"


def test_a_lock_delay_does_not_outlive_max_hold():
    host = cluster()
    app = host.locked(ttl_ms=1_000, lock_delay_ms=60_000, max_hold_ms=3_000)
    host.app_dies(app)
    host.pass_ms(3_100)
    assert shown_by(host) == [None] * 5
    assert len(app.ends) == 1


def test_an_app_that_dies_after_its_lease_was_lost_frees_it_at_once_whatever_its_delay():
    host = cluster()
    app = host.locked(ttl_ms=10_000, lock_delay_ms=60_000)
    break_all(host, 0, 1, 2)
    host.pass_until(app.held.deadline_ns - MS)
    host.app_dies(app)
    host.fleet.settle()
    assert shown_by(host)[3:] == [None, None]


def test_an_app_that_dies_twice_or_after_its_unlock_changes_nothing():
    host = cluster()
    app = host.locked()
    host.unlock(app)
    host.fleet.settle()
    host.app_dies(app)
    host.app_dies(app)
    assert host.locks.held == 0
    assert len(app.ends) == 1


def test_a_detached_lease_ends_at_its_deadline_and_nobody_is_told_of_a_loss():
    host = cluster()
    app = host.locked(ttl_ms=2_000, detached=True)
    host.pass_until(app.held.deadline_ns)
    assert host.asked(Extension) == []
    assert app.losses == []
    assert app.ends == [app.held.deadline_ns]
    assert host.watched.count("released", "expired") == 1
    host.pass_ms(30)
    assert shown_by(host) == [None] * 5


def test_a_detached_lease_extended_by_another_agent_outlives_the_deadline_that_its_own_agent_knows():
    host = cluster()
    other = beside(host)
    app = host.locked(ttl_ms=10_000, detached=True)
    host.pass_ms(8_000)
    told = extend_elsewhere(other, app.held.token, 20_000)
    host.pass_ms(3_000)
    assert shown_by(host) == [app.held.token] * 5
    host.pass_until(told.extended.deadline_ns - MS)
    assert other.locked().code == "TAKEN"
    assert host.locked().code == "TAKEN"


def test_a_lost_lease_is_kept_for_its_holder_until_the_deadline():
    """The holder may still be at it: nobody else on this host gets it before."""
    host = cluster()
    app = host.locked(ttl_ms=10_000)
    waiter = host.lock(wait_ms=60_000)
    host.fleet.votes = 0
    host.pass_until(app.held.deadline_ns - MS)
    assert len(app.losses) == 1
    host.fleet.votes = 0b11111
    host.pass_ms(0.5)
    assert waiter.code == ""
    assert shown_by(host) == [app.held.token] * 5
    host.pass_ms(500)
    assert waiter.code == "granted"


def test_a_lease_taken_away_by_an_operator_is_lost_and_goes_to_the_next_in_line():
    host = cluster()
    app = host.locked()
    waiter = host.lock(wait_ms=60_000)
    host.locks.take_away(R, [app.held.token], "released by force", host.time.now_ns)
    host.fleet.settle()
    assert [reason for _, reason in app.losses] == ["released by force"]
    assert waiter.code == "granted"


def test_taking_away_a_lease_that_is_not_here_does_nothing():
    host = cluster()
    app = host.locked()
    host.locks.take_away(R, [fresh_token()], "force", host.time.now_ns)
    host.locks.take_away(b"other", [app.held.token], "force", host.time.now_ns)
    assert app.held.standing is Standing.HELD
    assert app.losses == []


def test_a_holder_that_is_cut_off_has_what_it_was_told_and_nobody_else_gets_it_before():
    """Rule 12: it may be alive, and believe in its lease until the deadline that it was last told."""
    host = cluster()
    app = host.locked(ttl_ms=3_000)
    host.pass_ms(5_000)
    promised_ns, waiter = app.held.promised_ns, host.lock(wait_ms=60_000)
    host.locks.cut_off(app.held, "it does not read", host.time.now_ns)
    assert app.held.lost_by is Loss.CUT_OFF
    renewed, token = len(host.asked(Extension)), app.held.token
    host.pass_until(promised_ns - MS)
    assert (waiter.code, shown_by(host)) == ("", [token] * 5)
    assert len(host.asked(Extension)) == renewed
    host.pass_ms(10)
    assert waiter.code == "granted"


def test_a_token_is_known_only_with_its_own_resource_and_while_its_lease_is():
    host = cluster()
    app, detached = host.locked(), host.locked(b"other", detached=True)
    assert host.locks.knows(R, app.held.token)
    assert host.locks.knows(b"other", detached.held.token)
    for resource, token in ((R, fresh_token()), (R, detached.held.token), (b"other", app.held.token)):
        assert not host.locks.knows(resource, token)
    host.unlock(app)
    assert not host.locks.knows(R, app.held.token)


# Waiting in line


def test_waiters_on_one_host_are_served_first_come_first_served():
    host = cluster()
    holder = host.locked()
    waiters = [host.lock(wait_ms=60_000, name=f"w{i}") for i in range(5)]
    served = []
    for _ in range(5):
        host.unlock(holder)
        host.fleet.settle()
        (holder,) = [w for w in waiters if w.code == "granted" and w not in served]
        served.append(holder)
    assert served == waiters


def test_a_host_runs_one_campaign_for_a_resource_whatever_the_number_of_its_waiters():
    host = cluster()
    beside(host).locked(ttl_ms=30_000)
    for _ in range(50):
        host.lock(wait_ms=60_000)
    assert len(host.asked(Attempt)) == 1
    host.pass_ms(1_000)
    alone = cluster()
    beside(alone).locked(ttl_ms=30_000)
    alone.lock(wait_ms=60_000)
    alone.pass_ms(1_000)
    assert len(host.asked(Attempt)) == len(alone.asked(Attempt))


def test_resources_do_not_wait_for_each_other():
    host = cluster()
    host.locked(b"a")
    host.lock(b"a", wait_ms=60_000)
    assert host.locked(b"b").code == "granted"


def test_a_head_of_the_line_that_gives_up_in_the_middle_of_its_try_leaves_nothing_and_the_next_tries():
    host = cluster()
    slow(host, *range(5))
    head = host.lock(wait_ms=100)
    following = host.lock(wait_ms=60_000)
    host.pass_ms(100)
    assert head.code == "NOQUORUM"
    assert queued(host) == [["Attempt", "Release", "Attempt"]] * 5
    quick(host, *range(5))
    host.fleet.settle()
    assert following.code == "granted"
    assert head.lease is None
    assert shown_by(host) == [following.held.token] * 5


def app_goes_and_gets_nothing(host: Host, app: App) -> None:
    host.app_dies(app)
    answer(host, *range(5))
    assert app.answers == []
    assert shown_by(host) == [None] * 5
    host.pass_ms(300)
    assert host.at_rest()


def test_a_waiter_whose_app_is_gone_is_dropped_and_its_try_given_back():
    """Rule 13."""
    host = cluster()
    slow(host, *range(5))
    app = host.lock(wait_ms=60_000)
    app_goes_and_gets_nothing(host, app)


def test_an_app_that_goes_during_a_second_round_gets_nothing():
    host = cluster()
    app = in_a_second_round(host)
    app_goes_and_gets_nothing(host, app)


def test_a_waiter_in_the_middle_of_the_line_can_go():
    host = cluster()
    holder = host.locked()
    first, second, third = (host.lock(wait_ms=60_000) for _ in range(3))
    host.app_dies(second)
    host.unlock(holder)
    host.fleet.settle()
    host.unlock(first)
    host.fleet.settle()
    assert second.answers == []
    assert third.code == "granted"


def test_an_app_that_goes_while_its_host_pauses_between_tries_ends_the_campaign():
    host = cluster()
    beside(host).locked(ttl_ms=30_000)
    app = host.locked(wait_ms=60_000)
    host.app_dies(app)
    assert R not in host.locks.queues
    host.pass_ms(300)
    assert host.at_rest()
    assert len(host.asked(Attempt)) == 1


def test_one_that_is_gone_twice_or_was_never_there_changes_nothing():
    host = cluster()
    app = host.lock()
    host.app_dies(app)
    host.app_dies(app)
    assert host.locks.waiting == 0


def test_requests_that_do_not_wait_share_the_outcome_of_the_try_they_came_into():
    host = cluster()
    beside(host).locked()
    slow(host, *range(5))
    apps = [host.lock() for _ in range(4)]
    answer(host, *range(5))
    assert [app.code for app in apps] == ["TAKEN"] * 4
    assert len(host.asked(Attempt)) == 1


def test_of_requests_that_do_not_wait_one_is_granted_and_the_others_are_told_it_is_taken():
    host = cluster()
    slow(host, *range(5))
    apps = [host.lock() for _ in range(3)]
    answer(host, *range(5))
    assert [app.code for app in apps] == ["granted", "TAKEN", "TAKEN"]


def test_a_request_that_does_not_wait_is_answered_at_once_while_others_pause_between_tries():
    host = cluster()
    beside(host).locked(ttl_ms=30_000)
    host.locked(wait_ms=60_000)
    app = host.lock()
    assert app.code == "TAKEN"


def test_a_request_that_does_not_wait_shares_an_outage_without_ending_the_wait_of_others():
    host = cluster()
    slow(host, *range(5))
    patient = host.lock(wait_ms=60_000)
    hasty = host.lock()
    host.pass_ms(260)
    assert hasty.code == "NOQUORUM"
    assert patient.code == ""


def test_a_granted_lease_goes_to_the_next_waiter_when_it_is_released():
    host = cluster()
    first = host.locked()
    second = host.lock(wait_ms=60_000)
    host.unlock(first)
    host.fleet.settle()
    assert second.code == "granted"
    assert second.held.fence > first.held.fence
    assert second.held.token != first.held.token


def test_a_granted_lease_goes_to_the_next_waiter_when_its_app_dies():
    host = cluster()
    first = host.locked()
    second = host.lock(wait_ms=60_000)
    host.app_dies(first)
    host.fleet.settle()
    assert second.code == "granted"


def test_a_granted_lease_goes_to_the_next_waiter_when_it_runs_out():
    host = cluster()
    first = host.locked(ttl_ms=1_000, detached=True)
    second = host.lock(wait_ms=60_000)
    host.pass_until(first.held.deadline_ns)
    host.pass_ms(200)
    assert second.code == "granted"


# Stopping


def test_an_agent_that_stops_grants_nothing_and_releases_nothing():
    """Rule 13: the holders are alive, and have it until the deadline."""
    host = cluster()
    app = host.locked()
    host.locks.drain(host.time.now_ns)
    host.fleet.settle()
    assert shown_by(host) == [app.held.token] * 5
    assert app.losses == []
    assert host.asked(Release) == []
    assert host.lock(b"other").code == "DRAINING"


def test_an_agent_that_stops_tells_its_waiters_and_gives_back_what_was_being_tried():
    host = cluster()
    slow(host, *range(5))
    trying = [host.lock(wait_ms=60_000), host.lock()]
    holder_of_b = beside(host).locked(b"b", ttl_ms=30_000)
    quick(host, *range(5))
    host.fleet.settle()
    waiting = host.locked(b"b", wait_ms=60_000)
    slow(host, *range(5))
    fresh = host.lock(b"c", wait_ms=60_000)
    host.locks.drain(host.time.now_ns)
    assert [app.code for app in (waiting, fresh)] == ["DRAINING"] * 2
    assert trying[0].code == "granted"
    answer(host, *range(5))
    assert shown_by(host, b"c") == [None] * 5
    assert shown_by(host, b"b") == [holder_of_b.held.token] * 5
    assert host.locks.waiting == 0
    assert set(host.locks.queues) == {R}


def test_a_draining_agent_still_renews_and_releases_for_its_holders():
    host = cluster()
    app = host.locked(ttl_ms=1_000)
    host.locks.drain(host.time.now_ns)
    host.pass_ms(5_000)
    assert app.losses == []
    told = host.unlock(app)
    host.fleet.settle()
    assert told.code == "done"
    host.pass_ms(300)
    assert host.at_rest()


# Bookkeeping


def test_what_is_held_and_who_waits_is_counted():
    host = cluster()
    host.locked(b"a")
    host.locked(b"b")
    host.lock(b"a", wait_ms=100)
    assert (host.locks.held, host.locks.waiting) == (2, 1)
    host.pass_ms(101)
    assert (host.locks.held, host.locks.waiting) == (2, 0)


def test_the_watcher_sees_every_outcome_once():
    host = cluster()
    app = host.locked(ttl_ms=1_000)
    host.lock()
    host.pass_ms(400)
    host.unlock(app)
    host.fleet.settle()
    assert host.watched.events == [
        ("granted", app.held.token), ("refused", "TAKEN"), ("renewed", True), ("released", "released"),
    ]  # fmt: skip


def test_a_busy_agent_keeps_no_timers_of_the_past():
    host = cluster()
    for turn in range(2_000):
        app = host.locked(b"r%d" % (turn % 7))
        host.unlock(app)
        host.fleet.settle()
        host.pass_ms(1)
    assert len(host.locks.timers._heap) < 1_000
    assert len(host.locks._running) < 1_000
    host.pass_ms(1_000)
    assert host.at_rest()
    assert not host.locks._running


def test_a_ballot_that_has_settled_is_not_settled_again_by_its_time_limit():
    host = cluster()
    app = host.locked()
    host.pass_ms(1_000)
    assert host.asked(Attempt)[0].agreed
    assert len(app.answers) == 1


@pytest.mark.parametrize("masters", [1, 3, 7, 9])
def test_clusters_of_other_sizes_work_the_same(masters):
    host = cluster(masters)
    break_all(host, *range(masters // 2))
    app = host.locked()
    assert app.code == "granted"
    if masters > 1:
        break_all(host, masters // 2)
        assert host.locked(b"other").code == "NOQUORUM"
