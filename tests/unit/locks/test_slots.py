"""One of n equal locks, whichever is free first."""

from __future__ import annotations

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.claims import Claims
from lockd.core.leases import Standing
from lockd.core.slot_names import resource_of, slot_name, slot_number
from tests.harness.fleet_model import Answer, Host, beside
from tests.harness.joint import JointApp, slots

ALL = [slot_name(b"r", number) for number in range(5)]


def unlock(host: Host, whole: JointApp, token: bytes = b"") -> None:
    [lease] = whole.leases
    host.locks.unlock(lease.resource, token or lease.token, Answer(), host.time.now_ns, uid=0)
    host.pass_ms(20)


def slot_of(whole: JointApp) -> int:
    [lease] = whole.leases
    return slot_number(lease.resource)


def nothing_is_left(host: Host) -> bool:
    host.pass_ms(300)
    assert host.locks.names.slot(b"r", b"mine") is None
    return host.at_rest() and all(host.shown(name) == [None] * 5 for name in ALL)


def test_a_slot_has_a_name_that_says_whose_it_is():
    assert slot_name(b"gpu", 2) == b"gpu:slot:2"
    assert resource_of(b"gpu:slot:2") == resource_of(b"gpu:slot:2:slot:7") == b"gpu"
    for name in (b"gpu", b"gpu:slot:", b"gpu:slot:x", b":slot:1", b"gpu:slot:-1"):
        assert resource_of(name) == name


def test_as_many_hold_one_each_as_there_are_and_the_next_is_told_that_all_are_taken(host):
    holders = [slots(host, 3) for _ in range(3)]
    assert {slot_of(holder) for holder in holders} == {0, 1, 2}
    late = slots(host, 3)
    assert late.code == "TAKEN"
    assert "all 3 slots" in late.refusal.text
    assert late.refusal.retry_after_ms > 0
    assert host.locks.held == 3


def test_the_slots_of_another_host_count_as_well(host):
    other = beside(host)
    assert {slot_of(slots(one, 2)) for one in (host, other)} == {0, 1}
    assert [slots(one, 2).code for one in (host, other)] == ["TAKEN", "TAKEN"]


def test_one_is_asked_for_at_a_time_and_no_more_than_needed(host):
    host.slow()
    slots(host, 5, first=3, wait_ms=60_000)
    assert [ballot.resource for ballot in host.asked(Attempt)] == [ALL[3]]
    host.answer_all()
    host.pass_ms(300)
    assert len(host.asked(Attempt)) == 1
    assert host.locks.waiting == 0


def test_waiters_have_the_first_that_is_freed_in_the_order_in_which_they_came(host):
    holders = [slots(host, 3) for _ in range(3)]
    first, second = (slots(host, 3, wait_ms=60_000, first=start) for start in (2, 0))
    unlock(host, holders[1])
    assert (first.code, second.code) == ("granted", "")
    assert slot_of(first) == slot_of(holders[1])
    unlock(host, holders[0])
    assert slot_of(second) == slot_of(holders[0])
    assert (host.locks.waiting, host.locks.held) == (0, 3)


def test_who_comes_later_and_does_not_wait_overtakes_nobody(host):
    holders = [slots(host, 2) for _ in range(2)]
    waiting = slots(host, 2, wait_ms=60_000)
    host.slow()
    [lease] = holders[0].leases
    host.locks.unlock(lease.resource, lease.token, Answer(), host.time.now_ns)
    hasty = slots(host, 2)
    host.answer_all()
    host.pass_ms(10)
    assert (waiting.code, hasty.code) == ("granted", "TAKEN")


def test_of_two_that_are_freed_at_once_one_is_given_back_and_goes_to_the_next(host):
    holders = [slots(host, 2) for _ in range(2)]
    first = slots(host, 2, wait_ms=60_000)
    second = slots(host, 2, wait_ms=60_000)
    host.slow()
    for holder in holders:
        [lease] = holder.leases
        host.locks.unlock(lease.resource, lease.token, Answer(), host.time.now_ns)
    host.answer()  # both tries are for the first
    host.answer_all()
    host.pass_ms(20)
    assert (first.code, second.code) == ("granted", "granted")
    assert host.locks.held == 2, "no slot is held for nobody"


def test_what_is_freed_elsewhere_is_had_too(host):
    other = beside(host)
    held = slots(other, 1)
    waiting = slots(host, 1, wait_ms=60_000)
    unlock(other, held)
    host.pass_ms(200)
    assert waiting.code == "granted"


def test_the_wait_is_for_the_whole_and_is_counted_once(host):
    for _ in range(3):
        slots(host, 3)
    whole = slots(host, 3, wait_ms=500)
    host.pass_ms(500)
    assert whole.code == "TIMEOUT"
    assert host.locks.waiting == 0
    assert host.watched.count("refused", "TIMEOUT") == 0, (
        "its parts are no requests: the whole is counted by who asked"
    )
    assert len([event for event in host.watched.events if event[0] == "refused"]) == 0


def test_an_outage_is_no_contention_and_with_a_wait_it_is_tried_again(host):
    host.slow()
    hasty, patient = slots(host, 3), slots(host, 3, wait_ms=5_000)
    host.pass_ms(260)
    assert (hasty.code, patient.code) == ("NOQUORUM", "")
    host.answer_all()
    host.pass_ms(500)
    assert patient.code == "granted"


def test_a_wait_that_ends_while_one_is_tried_ends_with_what_is_known(host):
    slots(host, 2)
    host.slow()
    one_is_held = slots(host, 2, wait_ms=100)
    host.pass_ms(101)
    assert one_is_held.code == "TIMEOUT"
    assert "all slots that were tried are still held" in one_is_held.refusal.text


@pytest.mark.parametrize(("is_held", "code"), [(True, "TIMEOUT"), (False, "granted")])
def test_a_wait_that_ends_before_masters_could_answer_has_their_first_answer(host, other, is_held, code):
    if is_held:
        other.locked(ALL[0])
    host.slow()
    hasty = slots(host, 3, first=0, wait_ms=1)
    host.pass_ms(5)
    assert hasty.answers == []
    host.answer_all()
    host.pass_ms(1)
    assert (hasty.code, host.locks.waiting) == (code, 0)


def test_a_wait_that_ends_before_masters_answer_at_all_is_an_outage(host):
    host.slow()
    hasty = slots(host, 3, wait_ms=1)
    host.pass_ms(251)
    assert (hasty.code, host.locks.waiting) == ("NOQUORUM", 0)


def test_a_wait_that_ends_behind_others_of_its_connection_says_so(host):
    whole = slots(host, 3, wait_ms=100, ready=False)
    host.pass_ms(101)
    assert whole.code == "TIMEOUT"
    assert "behind earlier commands of its connection" in whole.refusal.text


@pytest.mark.parametrize("wait_ms", [None, 60_000])
def test_an_app_that_goes_leaves_nothing_in_whatever_line_it_stands(host, wait_ms):
    holders = [slots(host, 2) for _ in range(2)] if wait_ms else []
    host.slow()
    whole = slots(host, 2, wait_ms=wait_ms)
    whole.gone()
    host.answer_all()
    for holder in holders:
        unlock(host, holder)
    assert whole.answers == []
    assert nothing_is_left(host)


def test_one_that_comes_behind_others_of_its_connection_keeps_its_place_and_holds_nothing_before(host):
    [holder] = [slots(host, 1)]
    passed_over = slots(host, 1, wait_ms=60_000, ready=False)
    host.pass_ms(1)
    later = slots(host, 1, wait_ms=60_000)
    passed_over.core.can_be_told(host.time.now_ns)
    host.pass_ms(0)
    unlock(host, holder)
    assert (passed_over.code, later.code) == ("granted", "")
    behind = slots(host, 2, wait_ms=60_000, ready=False)
    host.pass_ms(1_000)
    assert behind.code == "", "a slot is free, but nobody could be told"


def test_an_agent_that_stops_refuses_it_once(host):
    slots(host, 1)
    waiting = slots(host, 1, wait_ms=60_000)
    host.drain()
    host.pass_ms(0)
    assert waiting.code == "DRAINING"
    assert slots(host, 3, wait_ms=1_000).code == "DRAINING"


# By its name


def test_asked_again_by_its_token_it_is_the_same_slot(host):
    claims = Claims()
    first = slots(host, 3, value=b"mine", claims=claims)
    again = slots(host, 3, value=b"mine", claims=claims, first=2)
    waits = slots(host, 3, value=b"mine", claims=claims, wait_ms=1_000)
    assert first.leases == again.leases == waits.leases
    assert (len(first.fresh), again.fresh, host.locks.held) == (1, [], 1)


@pytest.mark.parametrize("wait_ms", [None, 60_000])
@pytest.mark.parametrize(("number", "held_by_others"), [(3, 0), (1, 0), (3, 2)])
def test_of_one_token_that_asks_at_once_one_slot_is_tried_for_at_a_time_and_all_get_it(
    host, wait_ms, number, held_by_others
):
    claims = Claims()
    for first in range(held_by_others):
        slots(host, number, first=first)
    host.slow()
    asked = [
        slots(host, number, value=b"mine", claims=claims, first=at % number, wait_ms=wait_ms)
        for at in range(4)
    ]
    tried = host.asked(Attempt)[held_by_others:]
    assert len(tried) == 1, "no two of them try for different slots"
    host.answer_all()
    host.pass_ms(300)
    assert all(one.leases == asked[0].leases for one in asked)
    assert (len(asked[0].leases), host.locks.held) == (1, held_by_others + 1)
    assert [len(one.fresh) for one in asked].count(1) == 1, "its app is told of it once as of a new one"
    unlock(host, asked[0], b"mine")
    assert host.locks.held == held_by_others
    assert host.locks.names.slot(b"r", b"mine") is None


def test_of_one_token_only_the_next_goes_on_when_the_first_is_gone(host):
    claims = Claims()
    host.slow()
    first, second, third = (slots(host, 3, value=b"mine", claims=claims, first=at) for at in range(3))
    first.gone()
    assert [ballot.resource for ballot in host.asked(Attempt)] == ALL[:2]
    host.answer_all()
    host.pass_ms(300)
    assert second.leases == third.leases
    assert (first.answers, host.locks.held) == ([], 1)


def test_of_one_token_each_waits_for_as_long_as_it_wants(host):
    claims = Claims()
    holders = [slots(host, 2) for _ in range(2)]
    short, long = (slots(host, 2, value=b"mine", claims=claims, wait_ms=ms) for ms in (100, 60_000))
    hasty = slots(host, 2, value=b"mine", claims=claims)
    assert (hasty.code, short.code, long.code) == ("TAKEN", "", "")
    host.pass_ms(101)
    assert (short.code, long.code) == ("TIMEOUT", "")
    unlock(host, holders[1])
    assert long.code == "granted"


def test_one_that_does_not_wait_gets_what_another_of_its_token_was_waiting_for(host):
    holder, claims = slots(host, 1), Claims()
    waiting = slots(host, 1, value=b"mine", claims=claims, wait_ms=60_000)
    host.slow()
    [lease] = holder.leases
    host.locks.unlock(lease.resource, lease.token, Answer(), host.time.now_ns)
    hasty = slots(host, 1, value=b"mine", claims=claims)
    host.answer_all()
    host.pass_ms(20)
    assert waiting.leases == hasty.leases


def test_a_wait_that_ends_while_another_of_its_token_tries_says_so(host):
    claims = Claims()
    host.slow()
    slots(host, 2, value=b"mine", claims=claims)
    hasty = slots(host, 2, value=b"mine", claims=claims, wait_ms=1)
    host.pass_ms(2)
    assert hasty.code == "TIMEOUT"
    assert "another request with its token" in hasty.refusal.text


def test_requests_of_one_token_for_different_numbers_of_slots_are_no_same_request(host):
    claims = Claims()
    host.slow()
    first = slots(host, 3, value=b"mine", claims=claims, first=2)
    others = [slots(host, number, value=b"mine", claims=claims) for number in (1, 2, 4)]
    host.answer_all()
    later = slots(host, 1, value=b"mine", claims=claims, wait_ms=60_000)
    assert first.code == "granted"
    for other in (*others, later):
        assert other.code == "ERR"
        assert "another number of SLOTS" in other.refusal.text
    unlock(host, first, b"mine")
    assert slots(host, 1, value=b"mine", claims=claims).code == "NOTHELD"
    assert nothing_is_left(host)


@pytest.mark.parametrize("answered", [True, False])
def test_of_one_token_for_the_resource_and_for_a_slot_the_later_is_told_which_came_first(host, answered):
    host.slow()
    whole, plain = slots(host, 2, value=b"a"), host.lock(b"r", value=b"b", named=True)
    if answered:
        host.answer_all()
    late_plain, late_whole = host.lock(b"r", value=b"a", named=True), slots(host, 2, value=b"b")
    host.answer_all()
    assert (whole.code, plain.code) == ("granted", "granted")
    assert (late_plain.code, late_whole.code) == ("ERR", "ERR")
    assert "with SLOTS" in late_plain.refusal.text
    assert "without SLOTS" in late_whole.refusal.text


def test_its_token_has_the_same_slot_with_the_next_agent(host):
    [before] = slots(host, 3, value=b"mine", first=2).leases
    host.locks.told(before, host.time.now_ns)
    agent = host.next_agent()
    agent.answer_all()
    for number, code in ((1, "ERR"), (3, "granted"), (4, "ERR")):
        assert slots(agent, number, value=b"mine").code == code
    assert agent.locks.held == 1
    agent.locks.unlock(before.resource, b"mine", Answer(), host.time.now_ns, uid=0)
    assert slots(agent, 1, value=b"mine").code == "NOTHELD"
    assert nothing_is_left(agent)


def test_another_process_with_its_token_is_refused(host):
    claims = Claims()
    host.slow()
    mine = slots(host, 2, value=b"mine", claims=claims)
    theirs = slots(host, 2, value=b"mine", claims=claims, pid=2)
    host.answer_all()
    assert (mine.code, theirs.code) == ("granted", "ERR")
    assert "another process" in theirs.refusal.text


def test_an_unlock_of_a_slot_ends_no_lock_of_the_resource_that_has_the_same_token(host):
    plain, slot = (host.locked(name, value=b"mine", named=True) for name in (b"r", ALL[0]))
    for held in (slot, plain):
        told = Answer()
        host.locks.unlock(held.resource, b"mine", told, host.time.now_ns, uid=0)
        host.pass_ms(20)
        assert told.all == [None]
    assert nothing_is_left(host)
    assert host.shown(b"r") == [None] * 5


def test_an_unlock_of_its_token_ends_all_that_try_or_wait_for_it(host):
    claims = Claims()
    host.slow()
    asked = [slots(host, 2, value=b"mine", claims=claims, wait_ms=ms) for ms in (None, 60_000, None)]
    told = Answer()
    host.locks.unlock(b"r", b"mine", told, host.time.now_ns, uid=0)
    host.pass_ms(0)
    assert told.all == [None]
    assert [one.code for one in asked] == ["NOTHELD"] * 3
    host.answer_all()
    assert nothing_is_left(host)


def test_an_unlock_after_all_of_its_token_were_granted_it_leaves_nothing(host):
    claims = Claims()
    host.slow()
    one, other = (slots(host, 3, value=b"mine", claims=claims, first=first) for first in (0, 1))
    for master in range(3):  # what was asked for the first: they are a quorum
        host.fleet.arrive(master)
        host.fleet.hear(master)
    host.pass_ms(0)
    assert one.leases == other.leases
    unlock(host, one, b"mine")
    host.answer_all()
    assert nothing_is_left(host)


def test_two_of_one_token_that_wait_get_the_same_slot(host):
    holder, claims = slots(host, 1), Claims()
    one, other = (slots(host, 1, value=b"mine", claims=claims, wait_ms=60_000) for _ in range(2))
    unlock(host, holder)
    assert one.leases == other.leases
    assert host.locks.held == 1


@pytest.mark.parametrize("number", [0, 1])
def test_an_unlock_of_its_token_withdraws_it_from_all_lines(host, number):
    holders = [slots(host, 2) for _ in range(2)]
    waiting = slots(host, 2, value=b"mine", wait_ms=60_000)
    host.locks.unlock(ALL[number], b"mine", Answer(), host.time.now_ns, uid=0)
    host.pass_ms(0)
    assert (waiting.code, host.locks.waiting) == ("NOTHELD", 0)
    for holder in holders:
        unlock(host, holder)
    assert nothing_is_left(host)


@pytest.mark.parametrize("name", [b"r", ALL[1]])
def test_a_token_that_was_unlocked_gets_no_slot_any_more(host, name):
    host.locks.unlock(name, b"mine", Answer(), host.time.now_ns, uid=0)
    host.pass_ms(300)
    assert slots(host, 2, value=b"mine").code == "NOTHELD"
    assert slots(host, 2, value=b"mine", wait_ms=1_000).code == "NOTHELD"
    assert host.locks.held == 0


def test_a_token_that_is_unlocked_while_a_slot_is_tried_for_gets_none(host):
    host.slow()
    whole = slots(host, 2, value=b"mine")
    host.locks.unlock(b"r", b"mine", Answer(), host.time.now_ns, uid=0)
    host.answer_all()
    host.pass_ms(10)
    assert whole.code == "NOTHELD"
    assert host.locks.held == 0


def test_a_token_that_is_unlocked_while_one_is_tried_for_is_tried_for_no_other(host):
    slots(beside(host), 1)
    host.slow()
    whole = slots(host, 2, value=b"mine")
    host.locks.unlock(b"r", b"mine", Answer(), host.time.now_ns, uid=0)
    host.answer_all()
    host.pass_ms(300)
    assert whole.code == "NOTHELD"
    assert [ballot.resource for ballot in host.asked(Attempt)] == [ALL[0]]


def test_a_slot_is_a_lease_as_any_other_and_is_lost_as_one(host):
    whole = slots(host, 2, ttl_ms=1_000)
    [lease] = whole.leases
    host.pass_ms(10_000)
    assert lease.standing is Standing.HELD
    host.locks.take_away(lease.resource, [lease.nonce], "an operator wanted it", host.time.now_ns)
    assert len(lease.holder.losses) == 1
