"""Leases of one host follow each other under one tenure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.ballots.release import Release
from lockd.core.fences import BLOCK, NEXT_BLOCK, slot_of
from lockd.core.journal import replay
from lockd.core.leases import Standing
from lockd.core.takeover import Taken
from tests.harness.clocks import MS
from tests.harness.fleet_model import App, Host, beside


@pytest.fixture
def app(host: Host) -> App:
    """It got `r` from another app of its host: the masters show nobody's token any more."""
    first = host.locked()
    app = host.lock(wait_ms=60_000)
    assert host.unlocked(first).code == "done"
    host.fleet.asked.clear()
    return app


def asked(host: Host) -> int:
    return len(host.fleet.asked)


def unlocked_for(host: Host, app: App, **wanted: object) -> App:
    """Another app of the host waits for what this one gives back."""
    waiter = host.lock(wait_ms=60_000, **wanted)
    host.unlock(app)
    return waiter


def follow(host: Host, app: App, leases: int) -> list[App]:
    """So many, each behind the one before."""
    apps = [app]
    for _ in range(leases):
        apps.append(unlocked_for(host, apps[-1]))
        host.fleet.settle()
    return apps


def test_the_next_in_line_gets_it_without_a_round_trip(host: Host, app: App):
    waiter, before = host.lock(wait_ms=60_000), asked(host)
    answer = host.unlock(app)
    assert (waiter.code, answer.code) == ("granted", "done")
    assert asked(host) == before
    assert app.held.standing is Standing.OVER
    assert host.locks.held == 1


def test_each_lease_has_a_token_of_its_own_and_the_next_fence(host: Host, app: App):
    apps = follow(host, app, 10)
    assert [one.held.fence - app.held.fence for one in apps] == list(range(11))
    assert len({one.held.token for one in apps}) == 11
    assert {one.held.nonce for one in apps} == {app.held.nonce}
    assert app.held.nonce not in {one.held.token for one in apps}
    assert host.shown() == [app.held.nonce] * 5


def test_what_the_masters_show_of_the_first_lease_is_hidden_before_it_is_handed_on(host: Host):
    first, other = host.locked(), beside(host)
    host.break_off(4)
    waiter = unlocked_for(host, first)
    assert (waiter.code, len(host.asked(Extension))) == ("", 1)
    host.fleet.settle()
    assert waiter.code == "granted"
    other.unlocked(first)
    assert host.shown() == [waiter.held.nonce] * 4 + [None], "the one that was away has not heard of it"
    assert unlocked_for(host, waiter).code == "granted"


def test_the_token_of_one_behind_whom_others_wait_is_shown_to_nobody(host: Host):
    other = beside(host)
    theirs = other.locked()
    first, second = (host.lock(wait_ms=60_000) for _ in range(2))
    host.fleet.settle()
    other.unlocked(theirs)
    host.pass_ms(200)
    assert other.unlocked(first).code == "NOTHELD"
    host.unlocked(first)
    assert second.held.nonce == first.held.nonce


def test_what_names_the_last_lease_late_and_elsewhere_does_not_hit_the_next_one(host: Host, app: App):
    other = beside(host)
    waiter = unlocked_for(host, app)
    assert host.unlocked(app).code == "NOTHELD"
    assert other.unlocked(app).code == "NOTHELD"
    assert other.extended(app, 60_000).code == "NOTHELD"
    assert (waiter.held.standing, host.shown()) == (Standing.HELD, [waiter.held.nonce] * 5)


def test_a_lease_is_not_longer_than_its_tenure_nor_than_it_was_asked_for(host: Host, app: App):
    host.pass_ms(50)
    longer = unlocked_for(host, app, ttl_ms=12_000)
    assert longer.held.deadline_ns == app.held.tenure.deadline_ns
    shorter = unlocked_for(host, longer, ttl_ms=2_000)
    assert shorter.held.deadline_ns == host.time.now_ns + 2_000 * MS - 22 * MS


def test_two_thirds_of_its_ttl_are_left_or_the_tenure_is_renewed_first(host: Host, app: App):
    waiter = unlocked_for(host, app, ttl_ms=20_000)
    assert (waiter.code, len(host.asked(Extension))) == ("", 1)
    host.fleet.settle()
    assert (waiter.code, len(host.asked(Attempt))) == ("granted", 0)
    assert waiter.held.deadline_ns == app.held.tenure.deadline_ns > host.time.now_ns + 19_000 * MS


def test_it_is_renewed_for_whoever_has_it_now(host: Host, app: App):
    waiter = unlocked_for(host, app)
    host.pass_ms(5_000)
    assert (app.renewals, len(waiter.renewals)) == ([], 1)
    assert host.watched.count("renewed", True) == 1, "between two leases it is nobody's"


def test_an_extension_that_its_app_does_not_wait_for_any_more_counts_for_the_tenure(host: Host, app: App):
    host.slow()
    extension = host.extend(app, 30_000)
    host.time.now_ns += 10 * MS
    waiter = unlocked_for(host, app)
    assert (extension.code, waiter.code) == ("EXPIRED", "granted")
    told_ns = waiter.held.deadline_ns
    host.answer_all()
    assert app.held.tenure.deadline_ns > host.time.now_ns + 29_000 * MS
    assert told_ns >= waiter.held.deadline_ns > told_ns - 20 * MS


@pytest.mark.parametrize("broken", [(0,), (0, 1), (0, 1, 2)])
def test_it_is_handed_on_only_while_a_quorum_that_proved_it_votes_on_the_same_connection(
    host: Host, app: App, broken: tuple[int, ...]
):
    host.time.now_ns += MS
    host.break_off(*broken)
    host.come_back(*broken)
    waiter = unlocked_for(host, app)
    assert (waiter.code == "granted") is (len(broken) < 3)
    host.fleet.settle()
    assert (waiter.code, len(host.asked(Attempt))) == ("granted", 0)


def test_masters_that_have_lost_it_since_do_not_stand_by_it(host: Host, app: App):
    host.time.now_ns += MS
    host.forget(0, 1)
    host.slow(2, 3, 4)
    host.extend(app, 30_000)
    host.fleet.settle()
    host.break_off(2)
    host.come_back(2)
    assert unlocked_for(host, app).code == ""


def test_what_would_be_over_in_a_moment_is_handed_to_nobody(host: Host, app: App):
    """10 ms is the least that is handed out; of 11 ms no more than 8.89 may be relied upon."""
    waiter = unlocked_for(host, app, ttl_ms=11)
    host.fleet.settle()
    assert waiter.answers == []


@pytest.mark.parametrize("quiet_ms", [99, 101])
def test_it_is_handed_on_only_when_a_quorum_has_answered_something_just_now(
    host: Host, app: App, quiet_ms: int
):
    host.pass_ms(quiet_ms)
    waiter = unlocked_for(host, app)
    assert (waiter.code == "granted") is (quiet_ms < 100)
    host.fleet.settle()
    assert (waiter.code, len(host.asked(Attempt))) == ("granted", 0)


def test_masters_that_have_no_vote_any_more_do_not_stand_by_it(host: Host, app: App):
    host.demote(0, 1, 2)
    waiter = unlocked_for(host, app)
    host.fleet.settle()
    assert waiter.code == ""
    assert host.shown() == [None] * 5, "what can't be proven is given back"


def test_masters_whose_votes_do_not_count_for_clocks_do_not_stand_by_it(host: Host, app: App):
    host.fleet.voters.own_clock = "this host's clock is slewed"
    host.fleet.weigh(host.time.now_ns)
    assert unlocked_for(host, app).code == ""


def test_behind_a_clock_that_jumped_it_is_proven_first(host: Host, app: App):
    host.fleet.masters[0].ahead_us += 300_000
    host.fleet.probe()
    waiter = unlocked_for(host, app)
    assert (waiter.code, len(host.asked(Extension))) == ("", 1)
    host.fleet.settle()
    assert waiter.code == "granted"


def test_what_this_host_stood_still_comes_off_before_it_is_handed_on(host: Host, app: App):
    for master in host.fleet.masters:
        master.ahead_us += 11_000_000
    host.fleet.probe()
    waiter = unlocked_for(host, app)
    host.fleet.settle()
    assert len(host.asked(Attempt)) == 1, "it was over"
    assert waiter.held.nonce != app.held.nonce


def test_a_second_behind_its_last_proof_it_is_proven_first(host: Host, app: App):
    """Somebody may have taken it away, through another agent."""
    for _ in range(20):
        host.pass_ms(50)
        host.unlocked(host.locked(b"another"))
    host.forget()
    waiter, answer = host.lock(wait_ms=60_000), host.unlock(app)
    assert waiter.code == "granted", "a second is not over"
    host.pass_ms(1)
    last = host.lock(wait_ms=60_000)
    host.unlock(waiter)
    assert (answer.code, last.code) == ("done", "")
    host.pass_ms(1_000)
    assert last.held.nonce != app.held.nonce


def test_what_is_gone_when_it_is_to_be_proven_was_not_held_all_the_time(host: Host, app: App):
    host.pass_ms(101)
    host.forget()
    waiter, answer = host.lock(wait_ms=60_000), host.unlock(app)
    assert (waiter.code, answer.came) == ("", False)
    host.fleet.settle()
    assert (waiter.code, answer.code) == ("granted", "EXPIRED")
    assert waiter.held.nonce != app.held.nonce


def test_the_unlock_behind_which_it_is_proven_first_is_answered_with_the_proof(host: Host, app: App):
    host.pass_ms(1_000)
    host.slow()
    host.lock(wait_ms=60_000)
    answer = host.unlock(app)
    host.answer(0, 1)
    assert not answer.came
    host.answer(2)
    assert answer.code == "done"


def test_a_detached_lease_is_on_the_masters_itself(host: Host, app: App):
    waiter = unlocked_for(host, app, detached=True)
    assert waiter.code == ""
    host.fleet.settle()
    assert waiter.held.nonce != app.held.nonce
    last = host.lock(wait_ms=60_000)
    assert host.unlocked(waiter).code == "done"
    host.pass_ms(500)
    assert last.code == "granted"
    assert last.held.nonce != waiter.held.nonce


def test_a_tenure_that_is_older_than_the_next_may_hold_it_is_handed_on_no_more(host: Host, app: App):
    host.pass_ms(5_000)
    younger = unlocked_for(host, app, max_hold_ms=20_000)
    host.fleet.settle()
    assert younger.held.nonce == app.held.nonce
    host.pass_ms(15_000)
    older = unlocked_for(host, younger, max_hold_ms=20_000)
    host.pass_ms(1)
    assert older.held.nonce != app.held.nonce
    assert older.held.fence > younger.held.fence


def test_max_hold_counts_anew_for_each_lease(host: Host, app: App):
    host.pass_ms(5_000)
    waiter = unlocked_for(host, app, max_hold_ms=20_000)
    host.fleet.settle()
    assert waiter.held.hold_until_ns == host.time.now_ns + 20_000 * MS


def test_what_was_lost_is_not_handed_on(host: Host, app: App):
    waiter = host.lock(wait_ms=60_000)
    host.locks.take_away(b"r", {app.held.nonce}, "force", host.time.now_ns)
    host.fleet.settle()
    assert (len(app.losses), waiter.code) == (1, "granted")
    assert waiter.held.nonce != app.held.nonce


def test_what_is_taken_away_between_two_leases_is_given_back(host: Host, app: App):
    host.pass_ms(1_000)
    host.slow()
    waiter = unlocked_for(host, app)
    host.locks.take_away(b"r", {app.held.nonce}, "force", host.time.now_ns)
    host.answer_all()
    assert waiter.held.nonce != app.held.nonce


def test_one_who_cannot_be_told_is_passed_over(host: Host, app: App):
    host.lock(wait_ms=60_000, ready=False)
    ready = unlocked_for(host, app)
    assert ready.code == "granted"


def test_it_is_given_back_when_nobody_waits_any_more(host: Host, app: App):
    host.pass_ms(1_000)
    host.slow()
    waiter = unlocked_for(host, app)
    assert (waiter.code, len(host.asked(Release))) == ("", 0)
    host.app_dies(waiter)
    host.answer_all()
    assert host.shown() == [None] * 5
    host.pass_ms(300)
    assert host.at_rest()


def test_the_lock_of_a_dead_app_is_handed_on(host: Host, app: App):
    waiter = host.lock(wait_ms=60_000)
    host.app_dies(app)
    assert (waiter.code, waiter.held.nonce) == ("granted", app.held.nonce)


def test_an_agent_that_stops_hands_on_nothing(host: Host, app: App):
    host.pass_ms(1_000)
    host.slow()
    waiter = host.lock(wait_ms=60_000)
    answer = host.unlock(app)
    host.drain()
    host.answer_all()
    assert (waiter.code, answer.code, host.shown()) == ("DRAINING", "done", [None] * 5)
    host.pass_ms(300)
    assert host.at_rest()


# Fences


def used_up(host: Host, app: App) -> App:
    """The last lease of its tenure's block."""
    return follow(host, app, BLOCK - 2)[-1]


def test_when_its_block_is_used_up_the_next_one_is_asked_for(host: Host, app: App):
    last = used_up(host, app)
    assert (last.held.fence, host.asked(FenceRound)) == (app.held.fence + BLOCK - 2, [])
    first = unlocked_for(host, last)
    assert first.code == ""
    host.fleet.settle()
    assert first.held.fence > last.held.fence
    [proposal] = host.asked(FenceRound)
    assert (proposal.nonce, proposal.size) == (app.held.nonce, NEXT_BLOCK)
    second = unlocked_for(host, first)
    assert second.held.fence == first.held.fence + 1
    counters = [master.fences[slot_of(b"r")] for master in host.fleet.masters]
    assert counters == [first.held.fence + NEXT_BLOCK - 1] * 5


def test_the_next_block_is_above_what_others_were_given(host: Host, other: Host, app: App):
    last = used_up(host, app)
    with_one_counter = next(name for name in names() if slot_of(name) == slot_of(b"r"))
    theirs = follow(other, other.locked(with_one_counter), 0)[-1]
    first = unlocked_for(host, last)
    host.fleet.settle()
    assert first.held.fence > theirs.held.fence + BLOCK - 1


def names():
    return (b"%d" % number for number in range(1_000_000))


@pytest.mark.parametrize("gone", [(0, 1), (0, 1, 2)])
def test_the_next_block_is_had_only_from_masters_that_show_the_tenure(
    host: Host, app: App, gone: tuple[int, ...]
):
    last = used_up(host, app)
    host.forget(*gone)
    before = [master.fences[slot_of(b"r")] for master in host.fleet.masters]
    waiter = host.lock(wait_ms=60_000)
    host.slow()
    host.unlock(last)
    for master in range(5):
        host.fleet.arrive(master)
    after = [master.fences[slot_of(b"r")] for master in host.fleet.masters]
    assert [now > then for now, then in zip(after, before, strict=True)] == [m not in gone for m in range(5)]
    host.answer_all()
    assert (waiter.held.nonce == app.held.nonce) is (len(gone) < 3)
    assert waiter.held.fence > last.held.fence


def test_a_block_dies_with_its_tenure(host: Host, app: App):
    host.unlocked(app)
    again = host.locked()
    assert again.held.fence > app.held.fence + BLOCK - 2


# The next agent


def test_a_release_and_the_next_grant_are_one_record(host: Host, app: App):
    host.lock(wait_ms=60_000, value=b"next")
    records = len(host.written)
    host.unlock(app)
    assert len(host.written) == records + 1
    [held] = replay(host.journal, host.origin).held.values()
    assert (held.nonce, held.token, held.fence) == (app.held.nonce, b"next", app.held.fence + 1)


def test_what_is_nobodys_when_its_agent_dies_is_given_back_by_the_next(host: Host, app: App):
    host.pass_ms(1_000)
    host.slow()
    unlocked_for(host, app)
    host.fleet.arrive(0)
    agent = host.next_agent()
    agent.fleet.settle()
    assert (agent.heirs, agent.shown()) == ([], [None] * 5)


def test_what_is_nobodys_may_last_as_long_as_it_is_asked_for(host: Host, app: App):
    host.pass_ms(1_000)
    host.slow()
    unlocked_for(host, app, ttl_ms=30_000)
    [ending] = replay(host.journal, host.origin).endings.values()
    assert ending.until_ns == host.time.now_ns + 30_000 * MS


def test_what_was_handed_on_behind_a_proof_is_taken_over(host: Host, app: App):
    host.pass_ms(1_000)
    waiter = unlocked_for(host, app)
    host.fleet.settle()
    host.locks.told(waiter.held, host.time.now_ns)
    agent = host.next_agent()
    assert (agent.did, agent.heir.value) == (Taken.GOES_ON, waiter.held.token)


def test_a_tenure_that_is_taken_over_has_a_new_token_and_begins_a_new_block(host: Host, app: App):
    waiter = unlocked_for(host, app)
    agent = host.next_agent()
    agent.fleet.probe()
    agent.pass_ms(10)
    heir = App(agent.time, value=waiter.held.token, lease=agent.lease)
    after = unlocked_for(agent, heir)
    agent.fleet.settle()
    assert after.held.nonce == agent.shown()[0] != app.held.nonce
    assert after.held.fence > waiter.held.fence + BLOCK - 2, "how far it came is not known for certain"
    assert after.held.tenure.began_ns == app.held.tenure.began_ns


# A mistake of ours


def test_a_mistake_of_ours_while_it_is_handed_on_stops_nobody_else(host: Host, app: App):
    host.pass_ms(1_000)
    host.slow()
    waiter = unlocked_for(host, app)
    [extension] = host.asked(Extension)
    host.locks.broke(extension, host.time.now_ns)
    host.answer_all()
    assert waiter.code == "granted"
    assert waiter.held.nonce != app.held.nonce


class Counted(OrderedDict[App, None]):
    """How many of a line were looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[App]:
        for one in super().__iter__():
            self.looked_at += 1
            yield one


def test_a_lease_is_handed_on_without_a_look_at_all_who_wait(host: Host):
    """There may be ten thousand."""
    line = [host.lock(wait_ms=60_000) for _ in range(200)]
    host.fleet.settle()
    queue = host.locks.queues[b"r"]
    queue.waiters = counted = Counted(queue.waiters)
    counted.looked_at = 0
    for app in line[:20]:
        host.unlocked(app)
    assert line[20].held.nonce == line[0].held.nonce
    assert counted.looked_at <= 20


def test_who_does_not_wait_is_found_among_those_who_do(host: Host):
    patient = [host.lock(wait_ms=60_000) for _ in range(3)]
    hasty = [host.lock() for _ in range(3)]
    later = host.lock(wait_ms=60_000)
    host.fleet.settle()
    assert [app.code for app in (*patient, *hasty, later)] == ["granted", "", "", *["TAKEN"] * 3, ""]
    assert not host.locks.queues[b"r"].impatient
