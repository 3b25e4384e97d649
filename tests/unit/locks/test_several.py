"""Several resources in one request: all of them, or none."""

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.extension import Extension
from lockd.core.claims import Claims
from lockd.core.leases import Standing
from tests.harness.clocks import MS
from tests.harness.fleet_model import Answer, Host, beside
from tests.harness.joint import several

A, B, C = b"a", b"b", b"c"


def forced(host: Host, resource: bytes) -> None:
    """An operator on this host takes it away."""
    lease = host.locks.queues[resource].lease
    assert lease is not None
    host.locks.take_away(resource, [lease.nonce], "an operator wanted it", host.time.now_ns)
    host.pass_ms(0)


def is_free(host: Host, *resources: bytes) -> bool:
    return all(host.shown(resource) == [None] * 5 for resource in resources)


def test_all_are_granted_each_with_a_token_and_a_fence_of_its_own_in_the_order_of_asking(host):
    whole = several(host, [C, A, B])
    assert [lease.resource for lease in whole.leases] == [C, A, B]
    assert len({lease.token for lease in whole.leases}) == 3
    assert whole.fresh == whole.leases
    assert [ballot.resource for ballot in host.asked(Attempt)] == [A, B, C], "they are taken in sorted order"


def test_the_former_are_held_and_renewed_while_it_waits_for_a_later_one_and_all_are_granted_then(host):
    holder = host.locked(B, ttl_ms=30_000)
    whole = several(host, [A, B], wait_ms=60_000, ttl_ms=1_000)
    first = host.locks.queues[A].lease
    host.pass_ms(10_000)
    assert (whole.code, first.standing) == ("", Standing.HELD)
    assert first.deadline_ns > host.time.now_ns, "it was renewed"
    assert host.lock(A).code == "TAKEN"
    host.unlocked(holder)
    host.pass_ms(0)
    assert whole.leases[0] is first


def test_two_that_share_some_never_wait_for_each_other(host):
    one, other = (several(host, order, wait_ms=60_000) for order in ([A, B], [B, A]))
    assert (one.code, other.code) == ("granted", "")
    for lease in one.leases:
        host.locks.unlock(lease.resource, lease.token, NOBODY, host.time.now_ns)
    host.pass_ms(10)
    assert other.code == "granted"


class Nobody:
    def done(self, _lease: object) -> None: ...

    def refused(self, _refusal: object) -> None: ...


NOBODY = Nobody()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_one_that_is_taken_refuses_all_and_says_which_and_the_rest_is_given_back(host, elsewhere):
    (beside(host) if elsewhere else host).locked(B)
    whole = several(host, [A, B, C])
    assert whole.code == "TAKEN"
    assert whole.refusal.retry_after_ms > 0
    assert whole.refusal.text.endswith("('b')")
    assert is_free(host, A, C)
    assert host.locks.held == (0 if elsewhere else 1)


def test_the_wait_is_for_the_whole_and_at_its_end_all_is_given_back(host):
    first = host.locked(A, ttl_ms=30_000)
    host.locked(B, ttl_ms=30_000)
    whole = several(host, [A, B], wait_ms=1_000)
    host.pass_ms(600)
    host.unlocked(first)
    host.pass_ms(399)
    assert (whole.code, is_free(host, A)) == ("", False)
    host.pass_ms(1)
    assert whole.code == "TIMEOUT"
    assert is_free(host, A)


def test_an_outage_is_told_as_one_and_nothing_is_left(host):
    host.locked(b"another")
    host.slow()
    whole = several(host, [A, B])
    host.pass_ms(300)
    assert whole.code == "NOQUORUM"
    host.answer_all()
    host.pass_ms(300)
    assert is_free(host, A, B)


def test_an_app_that_goes_while_it_waits_leaves_nothing_held_and_no_place_in_a_line(host):
    """Rule 13: nobody was told of what it has."""
    holder = host.locked(B)
    whole = several(host, [A, B], wait_ms=60_000)
    whole.gone()
    assert is_free(host, A)
    assert host.locks.waiting == 0
    host.unlocked(holder)
    host.pass_ms(300)
    assert (whole.answers, host.at_rest()) == ([], True)


def test_an_app_that_goes_in_the_middle_of_a_try_has_that_given_back(host):
    host.slow()
    whole = several(host, [A, B], wait_ms=60_000)
    whole.gone()
    host.answer_all()
    host.pass_ms(300)
    assert (whole.answers, is_free(host, A, B), host.at_rest()) == ([], True, True)


@pytest.mark.parametrize("which", [A, B])
def test_an_unlock_of_its_token_withdraws_the_whole_whichever_resource_it_names(host, which):
    host.locked(B)
    whole = several(host, [A, B], wait_ms=60_000, value=b"mine", named=True)
    host.locks.unlock(which, b"mine", NOBODY, host.time.now_ns, uid=0)
    host.pass_ms(0)
    assert whole.code == "NOTHELD"
    assert is_free(host, A)
    assert host.locks.waiting == 0


def test_what_is_lost_while_it_waits_has_all_given_back_and_it_begins_anew_within_its_wait(host):
    holder = host.locked(C)
    whole = several(host, [A, B, C], wait_ms=60_000)
    lost = host.locks.queues[A].lease
    forced(host, A)
    host.pass_ms(10)
    assert whole.code == ""
    assert host.locks.queues[A].lease is not lost
    host.unlocked(holder)
    host.pass_ms(10)
    assert [lease.standing for lease in whole.leases] == [Standing.HELD] * 3
    assert lost not in whole.leases
    assert host.locks.held == 3


def test_what_is_lost_before_the_last_is_granted_refuses_one_that_does_not_wait(host):
    host.locked(A)
    host.slow()
    whole = several(host, [B, C])
    host.fleet.answer(0), host.fleet.answer(1), host.fleet.answer(2)
    host.pass_ms(0, answering=False)
    forced(host, B)
    host.pass_ms(0, answering=False)
    assert whole.code == "TIMEOUT"
    assert "operator" in whole.refusal.text
    host.answer_all()
    host.pass_ms(300)
    assert is_free(host, B, C)


def test_a_first_lease_that_is_too_short_when_the_last_is_had_is_not_handed_out(host):
    """Rule 1: the check is repeated at the instant of answering."""
    host.slow()
    whole = several(host, [A, B], ttl_ms=40)
    host.answer()
    host.time.now_ns += 10 * MS
    host.pass_ms(18, answering=False)
    for master in range(3):
        host.fleet.arrive(master)
        host.fleet.hear(master)
    host.pass_ms(0, answering=False)
    assert whole.code == "NOQUORUM"
    assert "too long" in whole.refusal.text
    host.answer_all()
    host.pass_ms(300)
    assert is_free(host, A, B)


def test_one_that_is_held_for_max_hold_while_it_waits_begins_anew(host):
    host.locked(B, ttl_ms=30_000)
    whole = several(host, [A, B], wait_ms=60_000, ttl_ms=1_000, max_hold_ms=3_000)
    host.pass_ms(12_000)
    assert whole.code == ""
    assert len([ballot for ballot in host.asked(Attempt) if ballot.resource == A]) > 2
    assert host.locks.queues[A].lease.standing is Standing.HELD


def test_one_that_comes_behind_others_of_its_connection_holds_nothing_before_it_could_be_told(host):
    whole = several(host, [A, B], wait_ms=60_000, ready=False)
    host.pass_ms(1_000)
    assert is_free(host, A, B)
    whole.core.can_be_told(host.time.now_ns)
    host.pass_ms(0)
    assert whole.code == "granted"


def test_an_agent_that_stops_refuses_it_and_gives_back_what_it_has(host):
    host.locked(B)
    whole = several(host, [A, B], wait_ms=60_000)
    host.drain()
    assert whole.code == "DRAINING"
    host.pass_ms(0)
    assert is_free(host, A)


# Asked once more by its name


def test_one_that_is_asked_again_by_its_token_gets_the_same_leases(host):
    claims, named = Claims(), {"value": b"mine", "named": True}
    first = several(host, [A, B], claims=claims, **named)
    again = several(host, [A, B], claims=claims, **named)
    assert again.leases == first.leases
    assert (len(first.fresh), again.fresh) == (2, [])
    again.gone()
    assert host.locks.held == 2


def asked_twice(host: Host):
    holder, claims = host.locked(B), Claims()
    named = {"value": b"mine", "named": True, "claims": claims, "wait_ms": 60_000}
    return holder, several(host, [A, B], **named), several(host, [A, B], **named)


def test_of_two_of_one_name_that_wait_the_one_that_stays_goes_on_with_what_the_other_had(host):
    holder, first, again = asked_twice(host)
    had = host.locks.queues[A].lease
    first.gone()
    assert host.locks.queues[A].lease is had
    host.unlocked(holder)
    host.pass_ms(10)
    assert (first.answers, again.leases[0], again.fresh) == ([], had, again.leases)


def with_one_that_its_app_has(host: Host):
    """It waits for the second, and its app was told of the first before."""
    claims, named = Claims(), {"value": b"mine", "named": True}
    holder, [lease] = host.locked(B), several(host, [A], claims=claims, **named).leases
    return holder, lease, several(host, [A, B], claims=claims, **named, wait_ms=60_000)


def test_an_unlock_of_what_its_app_has_already_withdraws_the_whole(host):
    _, lease, whole = with_one_that_its_app_has(host)
    host.locks.unlock(A, lease.token, NOBODY, host.time.now_ns, uid=0)
    host.pass_ms(0)
    assert whole.code == "NOTHELD"
    assert (is_free(host, A), host.locks.waiting) == (True, 0)


def test_what_its_app_has_already_is_not_given_back_with_those_that_wait(host):
    _, lease, whole = with_one_that_its_app_has(host)
    whole.gone()
    assert lease.standing is Standing.HELD
    assert host.locks.waiting == 0


def test_when_the_app_was_never_told_of_what_it_had_already_it_begins_anew(host):
    """The reply to the first request was not read, and that connection has ended."""
    holder, lease, whole = with_one_that_its_app_has(host)
    host.locks.untold(lease, host.time.now_ns)
    host.pass_ms(10)
    assert whole.code == ""
    host.unlocked(holder)
    host.pass_ms(10)
    assert (whole.fresh, lease in whole.leases) == (whole.leases, False)


def test_when_both_of_one_name_go_nothing_is_left(host):
    _, first, again = asked_twice(host)
    first.gone()
    again.gone()
    assert is_free(host, A)
    assert (host.locks.held, host.locks.waiting) == (1, 0)


def test_what_both_had_is_lost_to_both_and_both_begin_anew(host):
    holder, first, again = asked_twice(host)
    forced(host, A)
    host.pass_ms(10)
    host.unlocked(holder)
    host.pass_ms(10)
    assert first.leases == again.leases
    assert (len(first.fresh), again.fresh) == (2, [])
    assert host.locks.held == 2


def test_a_lease_that_its_app_has_already_is_not_given_back_with_the_rest(host):
    host.locked(B)
    app = host.locked(A, value=b"mine", named=True)
    whole = several(host, [A, B], value=b"mine", named=True)
    assert whole.code == "TAKEN"
    assert app.held.standing is Standing.HELD


# Unlocked through another agent


@pytest.mark.parametrize("is_heard", [False, True])
def test_one_whose_token_was_unlocked_through_another_agent_is_not_granted(
    host: Host, other: Host, is_heard: bool
):
    holder = host.locked(B)
    whole = several(host, [A, B], value=b"mine", named=True, wait_ms=60_000)
    host.pass_ms(500)
    if not is_heard:
        for master in host.fleet.masters:
            master.notifies.clear()
    unlocked = Answer()
    other.locks.unlock(A, b"mine", unlocked, other.time.now_ns, uid=1)
    other.pass_ms(0)
    assert unlocked.code == "done"
    host.unlocked(holder)
    host.pass_ms(100)
    assert whole.code == "NOTHELD"
    assert (is_free(host, A, B), host.locks.waiting) == (True, 0)


def test_what_it_has_had_for_a_while_is_proven_before_it_is_granted(host: Host):
    holder = host.locked(B)
    whole = several(host, [A, B], wait_ms=60_000, ttl_ms=30_000)
    host.pass_ms(500)
    assert host.asked(Extension) == []
    host.slow()
    host.unlock(holder)
    host.answer()
    host.pass_ms(0, answering=False)
    assert whole.code == ""
    host.answer_all()
    host.pass_ms(0)
    assert whole.code == "granted"
    assert [ballot.resource for ballot in host.asked(Extension)][-1] == A
    assert several(host, [b"c", b"d"]).code == "granted"
    assert len(host.asked(Extension)) == 2, "what was granted just now is not proven again"


def test_what_it_can_not_prove_is_not_granted(host: Host):
    holder = host.locked(B)
    whole = several(host, [A, B], wait_ms=60_000, ttl_ms=30_000)
    host.pass_ms(500)
    host.slow()
    host.unlock(holder)
    host.answer()
    host.pass_ms(0, answering=False)
    host.break_off(0, 1, 2)
    host.pass_ms(1_000)
    assert whole.code == ""
    assert host.locks.queues[A].lease is None
    host.come_back(0, 1, 2)
    host.quick(0, 1, 2, 3, 4)
    host.pass_ms(5_000)
    assert whole.code == "granted"
