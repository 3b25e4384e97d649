"""Waiting in line, an agent that stops, and the books that are kept of it all."""

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.release import Release
from lockd.core.leases import Standing
from tests.harness.fleet_model import beside, cluster


def test_waiters_on_one_host_are_served_first_come_first_served_and_one_in_the_middle_can_go(host, app):
    waiters = [host.lock(wait_ms=60_000) for _ in range(5)]
    gone, served = waiters.pop(2), []
    host.app_dies(gone)
    for _ in range(4):
        host.unlocked(app)
        (app,) = [w for w in waiters if w.code == "granted" and w not in served]
        served.append(app)
    assert (served, gone.answers) == (waiters, [])


def attempts_in_a_second(waiters: int) -> int:
    host = cluster()
    beside(host).locked(ttl_ms=30_000)
    for _ in range(waiters):
        host.lock(wait_ms=60_000)
    assert len(host.asked(Attempt)) == 1
    host.pass_ms(1_000)
    return len(host.asked(Attempt))


def test_a_host_runs_one_campaign_for_a_resource_whatever_the_number_of_its_waiters():
    assert attempts_in_a_second(50) == attempts_in_a_second(1)


class NotWalked(dict):
    def __iter__(self):
        raise AssertionError("all in line are looked at")


def test_of_a_long_line_none_but_the_next_is_looked_at_for_a_hand_off(host, app):
    second, *others = [host.lock(wait_ms=60_000) for _ in range(3)]
    host.unlocked(app)
    queue = host.locks.queues[b"r"]
    queue.waiters = NotWalked(queue.waiters)
    host.unlock(second)
    assert [other.code for other in others] == ["granted", ""]


def test_a_head_of_the_line_that_gives_up_in_the_middle_of_its_try_leaves_nothing_and_the_next_tries(host):
    host.locked(b"another")
    host.slow()
    head = host.lock(wait_ms=400)
    following = host.lock(wait_ms=60_000)
    assert (host.locks.held, host.locks.waiting) == (1, 2)
    host.pass_ms(400)
    assert (head.code, host.locks.waiting) == ("NOQUORUM", 1)
    sent = ["Attempt", "Release", "Attempt", "Release", "Attempt"]
    assert [host.sent_to(master) for master in range(5)] == [sent] * 5
    host.answer_all()
    assert following.code == "granted"
    assert (head.lease, host.locks.held, host.locks.waiting) == (None, 2, 0)
    assert host.shown() == [following.held.nonce] * 5


@pytest.mark.parametrize(("is_held", "code"), [(True, "TIMEOUT"), (False, "granted")])
def test_a_wait_that_ends_before_masters_could_answer_has_their_first_answer(host, other, is_held, code):
    """Contention is no outage, and neither is an app's hurry."""
    if is_held:
        other.locked()
    host.slow()
    hasty = host.lock(wait_ms=1)
    host.pass_ms(5)
    assert hasty.answers == []
    host.answer_all()
    assert (hasty.code, host.locks.waiting) == (code, 0)


def test_a_wait_that_ends_while_another_in_line_is_tried_for_ends_with_that_try(host):
    host.slow()
    first = host.lock(wait_ms=60_000, ttl_ms=5_000)
    hasty, patient = host.lock(wait_ms=1), host.lock(wait_ms=60_000)
    host.pass_ms(5)
    host.answer_all()
    assert (first.code, hasty.code, patient.code) == ("granted", "TIMEOUT", "")
    assert host.locks.waiting == 1


def test_a_wait_that_ends_before_masters_answer_takes_no_longer_than_one_try(host):
    host.slow()
    hasty = host.lock(wait_ms=1)
    host.pass_ms(250)
    assert hasty.code == "NOQUORUM"
    assert host.locks.waiting == 0


@pytest.mark.parametrize("second_round", [False, True])
def test_a_waiter_whose_app_is_gone_gets_nothing_and_its_try_is_given_back(host, second_round):
    """Rule 13. To be gone twice is no mistake."""
    host.slow()
    app = host.in_a_second_round(wait_ms=60_000) if second_round else host.lock(wait_ms=60_000)
    for _ in range(2):
        host.app_dies(app)
        assert host.locks.waiting == 0
    host.answer()
    assert app.answers == []
    assert host.shown() == [None] * 5
    host.pass_ms(300)
    assert host.at_rest()


def test_an_app_that_goes_while_its_host_pauses_between_tries_ends_the_campaign(host, other):
    other.locked(ttl_ms=30_000)
    app = host.locked(wait_ms=60_000)
    host.app_dies(app)
    assert b"r" not in host.locks.queues
    host.pass_ms(300)
    assert host.at_rest()
    assert len(host.asked(Attempt)) == 1


@pytest.mark.parametrize(("is_held", "first"), [(True, "TAKEN"), (False, "granted")])
def test_requests_that_do_not_wait_share_the_outcome_of_the_try_they_came_into(host, other, is_held, first):
    if is_held:
        other.locked()
    host.slow()
    apps = [host.lock() for _ in range(3)]
    host.answer()
    assert [app.code for app in apps] == [first, "TAKEN", "TAKEN"]
    assert len(host.asked(Attempt)) == 1


def test_a_request_that_does_not_wait_is_answered_at_once_while_others_pause_between_tries(host, other):
    other.locked(ttl_ms=30_000)
    host.locked(wait_ms=60_000)
    assert host.lock().code == "TAKEN"


def test_a_request_that_does_not_wait_shares_an_outage_without_ending_the_wait_of_others(host):
    host.slow()
    patient = host.lock(wait_ms=60_000)
    hasty = host.lock()
    host.pass_ms(260)
    assert hasty.code == "NOQUORUM"
    assert patient.code == ""


# Stopping


def test_an_agent_that_stops_grants_nothing_and_still_renews_and_releases_for_its_holders(host, app):
    """Rule 13: they are alive, and have it until the deadline."""
    host.drain()
    host.fleet.settle()
    assert host.asked(Release) == []
    assert host.lock(b"other").code == "DRAINING"
    host.pass_ms(50_000)
    assert app.losses == []
    assert host.shown() == [app.held.nonce] * 5
    assert host.unlocked(app).code == "done"
    host.pass_ms(300)
    assert host.at_rest()


def test_an_agent_that_stops_tells_its_waiters_and_gives_back_what_was_being_tried(host, app, other):
    elsewhere = other.locked(b"b", ttl_ms=30_000)
    waiting = host.locked(b"b", wait_ms=60_000)
    host.slow()
    trying = host.lock(b"c", wait_ms=60_000)
    host.drain()
    assert (waiting.code, trying.code) == ("DRAINING", "DRAINING")
    host.answer()
    assert host.shown(b"c") == [None] * 5
    assert host.shown(b"b") == [elsewhere.held.nonce] * 5
    assert host.locks.waiting == 0
    assert set(host.locks.queues) == {b"r"}


def test_an_agent_that_stops_tells_its_waiters_in_turns_of_their_accounts_and_grants_none_meanwhile(host):
    """Others' leases are renewed in between (rule 12)."""
    holder = host.locked(b"line")
    greedy = [host.lock(b"line", wait_ms=60_000, account="greedy") for _ in range(200)]
    greedy += [
        host.lock(b"%d" % number, wait_ms=60_000, account="greedy", ready=False) for number in range(9)
    ]
    modest = host.lock(b"line", wait_ms=60_000, account="modest")
    host.locks.drain(host.time.now_ns)
    assert {app.code for app in (*greedy, modest)} == {""}, "not in the step that drains"
    assert host.locks.has_to_drain
    # Meanwhile it becomes free, and who was passed over could be told.
    host.unlock(holder)
    host.becomes_ready(greedy[-1])
    host.locks.turns.run(host.time.now_ns, 8)
    assert modest.code == "DRAINING"
    assert sum(app.code == "DRAINING" for app in greedy) <= 8
    host.pass_ms(0)
    assert [app.code for app in greedy] == ["DRAINING"] * len(greedy)
    assert (host.locks.has_to_drain, host.locks.queues, host.locks.waiting) == (False, {}, 0)
    assert host.shown(b"line") == [None] * 5


def test_one_that_gives_up_while_the_agent_stops_is_not_told_a_second_time(host, app):
    gone, stays = (host.lock(wait_ms=60_000) for _ in range(2))
    host.locks.drain(host.time.now_ns)
    host.app_dies(gone)
    host.pass_ms(0)
    assert stays.code == "DRAINING"
    host.pass_ms(61_000)
    assert (gone.answers, len(stays.answers)) == ([], 1), "nor when its WAIT would have ended"


# Bookkeeping


def test_the_watcher_sees_every_outcome_once(host):
    app = host.locked(ttl_ms=1_000)
    host.lock()
    host.pass_ms(400)
    host.unlocked(app)
    assert host.watched.events == [
        ("granted", app.held.token), ("refused", "TAKEN"), ("renewed", True), ("released", "released"),
    ]  # fmt: skip


def test_a_busy_agent_keeps_no_timers_of_the_past(host):
    for turn in range(2_000):
        host.unlocked(host.locked(b"r%d" % (turn % 7)))
        host.pass_ms(1)
    assert len(host.locks.turns._share_of("an app").jobs) < 1_000
    assert len(host.locks._votes.running) < 1_000
    host.pass_ms(1_000)
    assert host.at_rest()
    assert not host.locks._votes.running


def test_in_the_line_for_a_resource_accounts_take_turns_and_within_an_account_it_is_first_come(host):
    """Whoever stands in it with thousands waits for himself."""
    holder = host.locked()
    greedy = [host.lock(wait_ms=60_000, account="greedy") for _ in range(50)]
    modest = [host.lock(wait_ms=60_000, account="modest") for _ in range(2)]
    third = host.lock(wait_ms=60_000, account="a third")
    order = []
    while holder is not None:
        host.unlocked(holder)
        holder = next((app for app in (*greedy, *modest, third) if app not in order and app.lease), None)
        if holder is not None:
            order.append(holder)
    assert order[:6] == [greedy[0], modest[0], third, greedy[1], modest[1], greedy[2]]
    assert order[6:] == greedy[3:]


def busy(host, account):
    """It has used more than all others, and has asked for a hundred things more."""
    host.locks.turns.charge(account, 1_000_000_000)
    for _ in range(100):
        host.locks.turns.at(account, host.time.now_ns, lambda _now_ns: None)


def test_a_line_is_tried_for_in_the_turn_of_any_account_in_it_and_not_behind_all_that_its_first_has_asked_for(
    host, other
):
    """It would wait for that, and so would all behind it."""
    other.locked(b"line", ttl_ms=30_000)
    host.lock(b"line", wait_ms=60_000, account="greedy")
    host.fleet.settle()
    tried = len(host.asked(Attempt))
    busy(host, "greedy")
    host.lock(b"line", wait_ms=60_000, account="modest")
    host.time.now_ns = host.locks.queues[b"line"].rest_until_ns
    host.locks.turns.run(host.time.now_ns, 3)
    assert len(host.asked(Attempt)) == tried + 1


def full(host, *, full=True):
    """The line to the masters."""
    line = host.locks._votes.line
    line.under_way = int(line.window) if full else 1
    if not full:
        line.ended()


def test_nor_does_a_line_wait_for_the_masters_behind_all_that_its_first_has_asked_for(host):
    full(host)
    first = [host.lock(name, wait_ms=60_000, account="greedy") for name in (b"a", b"b", b"line")]
    busy(host, "greedy")
    host.lock(b"line", wait_ms=60_000, account="modest")
    full(host, full=False)
    host.locks.turns.run(host.time.now_ns, 2)
    assert [attempt.resource for attempt in host.asked(Attempt)] == [b"line"]
    host.pass_ms(100)
    assert [app.code for app in first] == ["granted"] * 3


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_request_that_was_let_in_to_the_masters_and_is_gone_before_it_begins_asks_for_nothing(
    host, comes_back
):
    full(host)
    gone = host.lock(wait_ms=60_000)
    full(host, full=False)
    host.locks.turns.run(host.time.now_ns, 1)
    host.app_dies(gone)
    if comes_back:
        full(host)
        host.lock(wait_ms=60_000)
    host.locks.turns.run(host.time.now_ns)
    assert len(host.asked(Attempt)) == comes_back
    assert (host.locks.waiting, len(host.locks.queues)) == (comes_back, comes_back)


def test_a_lease_that_ends_is_over_in_the_turn_of_who_waits_and_not_behind_all_that_its_holder_has_asked_for(
    host,
):
    app = host.locked(account="greedy", ttl_ms=3_000)
    host.slow()
    host.lock(wait_ms=60_000, account="modest")
    busy(host, "greedy")
    host.time.now_ns = app.held.deadline_ns
    for _ in range(10):
        host.locks.turns.run(host.time.now_ns, 1)
    assert host.locks.queues[b"r"].lease is None


# Asked again by its name


def again(host, wait_ms=500):
    return host.lock(named=True, value=b"job", wait_ms=wait_ms)


def test_its_wait_ends_before_the_masters_could_be_asked(host):
    first = host.locked(named=True, value=b"job")
    full(host)
    asks = again(host)
    host.pass_ms(499)
    assert asks.code == ""
    host.pass_ms(1)
    assert str(asks.refusal) == "TIMEOUT waited 500 ms behind what apps of this host asked the masters before"
    full(host, full=False)
    host.pass_ms(100)
    assert (len(asks.answers), first.held.standing) == (1, Standing.HELD)


def test_its_wait_does_not_end_while_the_masters_are_asked(host):
    host.locked(named=True, value=b"job")
    host.slow()
    asks = again(host, wait_ms=1)
    host.pass_ms(10, answering=False)
    assert asks.code == ""
    host.answer_all()
    assert asks.code == "granted"


def test_who_is_gone_is_told_nothing_when_its_wait_ends(host):
    host.locked(named=True, value=b"job")
    full(host)
    asks = again(host)
    host.locks.gone(asks, host.time.now_ns)
    full(host, full=False)
    host.pass_ms(1_000)
    assert asks.answers == []
