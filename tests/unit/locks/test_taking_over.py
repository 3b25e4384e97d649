"""The next agent on a host takes over what the one before held (rule 13)."""

from __future__ import annotations

from collections import Counter

import pytest

from lockd.core.ballots.extension import Extension
from lockd.core.ballots.put_back import PutBack
from lockd.core.ballots.release import Release
from lockd.core.journal import Replayed, replay, replaying
from lockd.core.takeover import Seen, Taken, taking_over
from lockd.core.values import Bound
from tests.harness.clocks import MS
from tests.harness.fleet_model import App, Host, Successor, beside, cluster, written_anew


def answering(agent: Successor) -> Successor:
    agent.pass_ms(1)
    return agent


def test_what_a_living_process_holds_goes_on_under_a_new_nonce_and_its_own_token(host: Host, app: App):
    before = app.held
    host.pass_ms(1_000)
    agent = answering(host.next_agent())
    lease = agent.lease
    assert (agent.did, lease.is_ours) == (Taken.GOES_ON, True)
    assert lease.nonce != before.nonce
    assert agent.shown() == [lease.nonce] * 5
    assert (lease.token, lease.fence) == (before.token, before.fence)
    assert lease.deadline_ns > before.deadline_ns
    assert lease.hold_until_ns == pytest.approx(before.hold_until_ns, abs=3 * MS)
    agent.pass_ms(60_000)
    assert agent.heir.losses == []
    assert len(agent.heir.renewals) > 10
    assert agent.unlocked(app).code == "done"
    assert (agent.shown(), agent.locks.held) == ([None] * 5, 0)


def test_what_was_asked_for_in_the_future_keeps_nobody_out(host: Host, app: App):
    lease = app.held
    lease.tenure.t1_ns = lease.deadline_ns = lease.promised_ns = host.time.now_ns + 3_600_000 * MS
    host.ledger.moved(lease, (0,) * 5)
    agent = host.next_agent()
    assert (agent.taken, agent.locks.held) == ({}, 0)


UNREAD = "before the app had read the reply to LOCK"


def test_what_nobody_is_known_to_have_read_of_is_kept_as_long_as_it_lasts_and_no_longer(host: Host):
    """Its agent was killed between the record and the reply, or just behind that."""
    app = host.locked(reads=False)
    host.pass_ms(1_000)
    first = answering(host.next_agent())
    assert (first.did, first.lease.is_ours) == (Taken.UNTOLD, True)
    assert first.shown() == [first.lease.nonce] * 5
    agent = answering(first.next_agent())
    assert agent.did is Taken.UNTOLD, "also for the one that comes after it"
    assert agent.locked().code == "TAKEN"
    agent.pass_until(app.held.deadline_ns - 1)
    assert agent.shown() == [agent.lease.nonce] * 5
    assert [UNREAD in why for _, why in agent.heir.losses] == [True]
    assert max(agent.heir.renewals) <= app.held.deadline_ns
    agent.pass_ms(1)
    assert (agent.shown(), agent.at_rest()) == ([None] * 5, True)


@pytest.mark.parametrize("late", [False, True])
def test_an_app_that_names_it_until_then_goes_on_with_it(host: Host, late: bool):
    app = host.locked(reads=False)
    agent = answering(host.next_agent())
    agent.pass_ms(6_000 if late else 0)
    assert agent.extended(app, 10_000).code == "done"
    agent.pass_ms(60_000)
    assert agent.heir.losses == []
    again = answering(agent.next_agent())
    assert again.did is Taken.GOES_ON
    again.pass_ms(60_000)
    assert again.heir.losses == []


def test_an_app_that_is_found_to_have_read_of_it_from_the_next_agent_goes_on_with_it(host: Host):
    host.locked(reads=False)
    agent = answering(host.next_agent())
    agent.pass_ms(5_000)
    agent.locks.told(agent.lease, agent.time.now_ns)
    agent.pass_ms(60_000)
    assert agent.heir.losses == []


def test_what_nobody_read_of_keeps_its_lock_delay_when_its_process_has_died(host: Host):
    """It may have been read all the same."""
    host.locked(reads=False, ttl_ms=6_000, lock_delay_ms=20_000)
    agent = host.next_agent(Seen.DEAD)
    agent.pass_ms(19_900)
    assert agent.shown() == [agent.lease.nonce] * 5
    agent.pass_ms(200)
    assert agent.shown() == [None] * 5


def test_its_app_extends_and_releases_it_by_its_token_also_before_it_is_proven(host: Host, app: App):
    agent = host.next_agent()
    assert agent.extended(app, 30_000).extended.deadline_ns > app.held.deadline_ns + 15_000 * MS
    again = agent.next_agent()
    assert again.unlocked(app).code == "done"
    assert again.shown() == [None] * 5


def test_late_commands_of_the_agent_before_miss(host: Host, app: App):
    host.slow()
    host.extend(app, 30_000)
    host.unlock(app)
    late = [list(link.sent) for link in host.fleet.links]
    agent = answering(host.next_agent(journal=b"".join(host.written[:2])))
    for master, asked in zip(agent.fleet.masters, late, strict=True):
        for ballot, digest in asked:
            master.run(ballot, digest)
    assert agent.shown() == [agent.lease.nonce] * 5


def test_of_two_agents_with_one_journal_one_goes_on(host: Host, app: App):
    first, second = host.next_agent(), host.next_agent()
    answering(first)
    answering(second)
    assert first.lease.is_ours
    assert [len(agent.heir.losses) for agent in (first, second)] == [0, 1]
    second.pass_until(app.held.deadline_ns)
    assert second.locks.held == 0
    assert second.asked(Release) == []
    assert first.shown() == [first.lease.nonce] * 5


def test_it_is_tried_again_until_masters_answer(host: Host, app: App):
    agent = host.next_agent()
    agent.break_off(0, 1, 2)
    agent.pass_ms(5_000)
    assert not agent.lease.is_ours
    assert agent.lease.deadline_ns == app.held.deadline_ns
    agent.come_back(0, 1, 2)
    agent.pass_ms(2_000)
    assert agent.lease.is_ours
    assert agent.shown() == [agent.lease.nonce] * 5


def test_what_is_not_proven_before_the_old_deadline_is_lost_and_nothing_is_released(host: Host, app: App):
    agent = host.next_agent()
    agent.break_off()
    agent.pass_until(app.held.deadline_ns - 1)
    assert [at_ns < app.held.deadline_ns for at_ns, _ in agent.heir.losses] == [True]
    agent.come_back()
    agent.pass_ms(5_000)
    assert agent.asked(Release) == []
    assert agent.at_rest()


def test_an_answer_that_comes_after_the_old_deadline_counts_for_nothing(host: Host):
    app = host.locked(ttl_ms=2_000)
    agent = host.next_agent()
    agent.slow()
    agent.pass_ms(1)
    for master in range(5):
        agent.fleet.arrive(master)
    agent.time.now_ns = app.held.deadline_ns
    agent.quick()
    agent.pass_ms(1)
    assert agent.locks.held == 0


def test_nobody_on_the_host_gets_it_while_it_is_not_proven(host: Host, app: App):
    agent = host.next_agent()
    agent.break_off(0, 1, 2)
    assert agent.locked().code == "TAKEN"


def test_a_lease_that_was_taken_away_meanwhile_is_lost_at_once_and_put_back_nowhere(host: Host, app: App):
    beside(host).unlocked(app)
    agent = answering(host.next_agent())
    assert len(agent.heir.losses) == 1
    agent.pass_ms(20_000)
    assert agent.asked(PutBack) == []
    assert agent.shown() == [None] * 5


def test_where_it_is_missing_it_is_not_put_back_behind_the_take_over(host: Host, app: App):
    host.forget(4)
    agent = answering(host.next_agent())
    assert agent.lease.is_ours
    assert agent.shown() == [agent.lease.nonce] * 4 + [None]
    assert agent.asked(PutBack) == []


def test_where_it_was_put_back_since_the_proof_that_was_noted_it_proves_nothing(host: Host):
    host.break_off(3, 4)
    app = host.locked(ttl_ms=9_000)
    host.come_back(3, 4)
    host.pass_ms(3_001)
    assert host.shown() == [app.held.nonce] * 5
    host.forget(0)
    agent = answering(host.next_agent())
    assert not agent.lease.is_ours
    assert agent.locks.held == 1
    assert agent.heir.losses != []


def test_where_a_put_back_may_land_late_it_proves_nothing(host: Host):
    host.break_off(4)
    app = host.locked(ttl_ms=9_000)
    host.come_back(4)
    host.slow(4)
    host.pass_ms(3_001)
    host.fleet.arrive(4)
    host.fleet.hear(4)
    assert host.sent_to(4) == ["PutBack"]
    host.pass_ms(3_001)
    assert app.held.tenure.gone.mask == 0b10000
    host.forget(0, 1)
    agent = host.next_agent()
    nonce = app.held.nonce
    agent.fleet.masters[4].store.put_back(
        b"r", nonce, 9_000, agent.fleet.links[4].identity.members_digest.encode(), b"0 host 1 0 p0", 0,
        agent.fleet.masters[4].now_us,
    )  # fmt: skip
    answering(agent)
    assert not agent.lease.is_ours


def test_a_try_of_the_agent_before_that_lands_late_proves_nothing(host: Host):
    """It lay in the kernel of its host, while it was taken away elsewhere and another had it."""
    host.slow(3, 4)
    app = host.locked()
    late = [(master, *host.fleet.links[master].sent[0]) for master in (3, 4)]
    host.pass_ms(1_000)
    host.forget(0, 1)
    other = beside(host)
    other.unlocked(other.locked())
    for master, attempt, digest in late:
        host.fleet.masters[master].run(attempt, digest)
    agent = answering(host.next_agent())
    assert agent.shown() == [None, None] + [agent.lease.nonce] * 3
    assert not agent.lease.is_ours
    agent.pass_ms(10_000)
    assert [at_ns < app.held.deadline_ns for at_ns, _ in agent.heir.losses] == [True]


def test_the_lock_of_a_process_that_has_died_is_free_at_once(host: Host, app: App):
    agent = answering(host.next_agent(Seen.DEAD))
    assert agent.did is Taken.FREED
    assert agent.shown() == [None] * 5
    assert agent.locked().code == "granted"


def test_a_process_of_that_pid_that_began_at_another_time_is_another_one(host: Host):
    host.locked(started=8)
    host.locked(b"of a process that could not be seen", started=0)
    assert host.next_agent().taken == {Taken.FREED: 1, Taken.LEFT: 1}


def test_a_lock_delay_begins_when_the_process_is_found_dead_and_one_that_runs_goes_on(host: Host):
    app = host.locked(ttl_ms=6_000, lock_delay_ms=20_000)
    agent = host.next_agent(Seen.DEAD)
    agent.pass_ms(8_000)
    assert agent.shown() == [agent.lease.nonce] * 5
    again = agent.next_agent(Seen.DEAD)
    again.pass_ms(11_900)
    assert again.shown() == [again.lease.nonce] * 5
    again.pass_ms(110)
    assert again.shown() == [None] * 5
    assert app.losses == again.heir.losses == []


@pytest.mark.parametrize("seen", [Seen.DEAD, Seen.UNKNOWN])
def test_a_lock_delay_that_runs_ends_what_a_dead_process_had(host: Host, seen: Seen):
    """That it is dead the agent before has seen."""
    app = host.locked(lock_delay_ms=3_000)
    host.app_dies(app)
    agent = host.next_agent(seen)
    agent.pass_ms(2_990)
    assert None not in agent.shown()
    agent.pass_ms(20)
    assert agent.shown() == [None] * 5
    assert agent.watched.count("released", "app gone") == 1


@pytest.mark.parametrize(
    ("seen", "bound"), [(Seen.UNKNOWN, Bound.PROCESS), (Seen.ALIVE, Bound.CONNECTION)], ids=lambda one: one
)
def test_what_nobody_can_say_anything_of_is_left_to_its_deadline(seen: Seen, bound: Bound, host: Host):
    """It is not renewed, and not released: its app may have it extended elsewhere, or be alive."""
    app = host.locked(bound=bound)
    agent = host.next_agent(seen)
    assert agent.did is Taken.LEFT
    agent.pass_until(app.held.deadline_ns - 1)
    assert agent.locked().code == "TAKEN"
    assert agent.asked(Extension) == agent.asked(Release) == []
    agent.pass_ms(1)
    assert agent.locks.held == 0
    assert agent.asked(Release) == []


def test_its_app_may_release_what_is_left_to_its_deadline(host: Host):
    app = host.locked(bound=Bound.CONNECTION)
    agent = host.next_agent()
    assert agent.unlocked(app).code == "done"
    assert agent.shown() == [None] * 5


def test_a_release_that_no_quorum_has_confirmed_is_sent_again(host: Host, app: App):
    host.slow()
    host.unlock(app)
    host.pass_ms(300)
    agent = host.next_agent(journal=written_anew(host.ledger))
    assert agent.shown() == [app.held.nonce] * 5
    answering(agent)
    assert agent.shown() == [None] * 5
    agent.locked(b"another")  # what is done with is noted with what comes next
    assert agent.next_agent().asked(Release) == []


def test_a_release_is_not_sent_again_once_its_lease_is_over_everywhere(host: Host, app: App):
    host.slow()
    host.unlock(app)
    host.time.now_ns = app.held.tenure.until_ns
    assert host.next_agent().asked(Release) == []


def test_a_release_that_no_quorum_has_confirmed_is_noted_as_long_as_its_lease_may_last(host: Host, app: App):
    """Not for ever: there is an outage now and then in the life of an agent."""
    host.slow()
    host.unlock(app)
    host.pass_until(app.held.tenure.until_ns - 1)
    assert host.next_agent(journal=written_anew(host.ledger)).asked(Release) != []
    host.pass_ms(1)
    assert written_anew(host.ledger) == written_anew(cluster().ledger)


def test_an_agent_that_dies_while_it_takes_over_is_taken_over_too(host: Host, app: App):
    """Some masters know it by its first nonce then, some by the next one."""
    first = host.next_agent()
    first.slow()
    first.pass_ms(1)
    first.fleet.arrive(0)
    first.fleet.arrive(1)
    second = first.next_agent()
    assert second.shown() == [first.lease.nonce] * 2 + [app.held.nonce] * 3
    answering(second)
    assert second.lease.is_ours
    assert second.shown() == [second.lease.nonce] * 5
    third = answering(second.next_agent())
    assert third.lease.tenure.before == (second.lease.nonce,)
    assert third.shown() == [third.lease.nonce] * 5
    assert third.lease.token == app.held.token


def test_agents_that_die_one_after_the_other_leave_it_to_its_deadline_in_the_end(host: Host, app: App):
    agent = host.next_agent()
    for _ in range(30):
        agent = agent.next_agent()
    assert agent.did is Taken.LEFT


def test_max_hold_is_kept(host: Host):
    app = host.locked(ttl_ms=6_000, max_hold_ms=20_000)
    host.pass_ms(12_000)
    agent = host.next_agent()
    agent.pass_ms(20_000)
    assert len(agent.heir.losses) == 1
    assert agent.heir.losses[0][0] <= app.held.hold_until_ns
    assert max(agent.heir.renewals) <= app.held.hold_until_ns


def test_max_hold_is_kept_where_the_host_stood_still_while_no_agent_was_there(host: Host):
    """How long that was turns out only when what was asked for until then is answered."""
    app = host.locked(ttl_ms=6_000, max_hold_ms=8_000)
    host.pass_ms(3_000)
    for master in host.fleet.masters:
        master.ahead_us += 500_000
    agent = answering(host.next_agent())
    assert agent.lease.is_ours
    agent.pass_ms(8_000)
    assert 0 < max(agent.heir.renewals) <= app.held.hold_until_ns - 500 * MS


def test_what_was_lost_already_is_not_renewed(host: Host):
    app = host.locked(ttl_ms=6_000)
    host.break_off()
    host.pass_until(app.held.lose_at_ns())
    assert len(app.losses) == 1
    agent = host.next_agent()
    assert agent.did is Taken.LEFT
    agent.pass_until(app.held.promised_ns)
    assert agent.asked(Extension) == agent.asked(Release) == []
    assert agent.at_rest()


def test_what_the_host_stood_still_while_no_agent_was_there_comes_off_the_old_deadline(host: Host, app: App):
    for master in host.fleet.masters:
        master.ahead_us += 9_000_000
    host.time.now_ns += 500 * MS
    agent = answering(host.next_agent())
    assert agent.lease.is_ours
    assert agent.lease.hold_until_ns <= app.held.hold_until_ns - 9_000 * MS
    for master in host.fleet.masters:
        master.ahead_us += 9_900_000
        master.store.leases[b"r"].expires_ms += 60_000  # however that comes: it proves nothing
    again = answering(agent.next_agent())
    assert not again.lease.is_ours
    assert "was paused" in again.heir.losses[0][1]


def test_what_came_off_comes_off_for_the_next_agent_too_where_this_one_had_no_time_to_note_it(
    host: Host, app: App
):
    """Rules 11d and 13: it dies after it has understood that the host stood still."""
    until_ns, noted = app.held.hold_until_ns, len(host.written)
    for master in host.fleet.masters:
        master.ahead_us += 9_000_000
    host.time.now_ns += 500 * MS
    for _ in range(2):
        host.fleet.probe()
    assert app.held.hold_until_ns <= until_ns - 9_000 * MS
    assert len(host.written) == noted
    agent = answering(host.next_agent())
    assert agent.lease.hold_until_ns <= until_ns - 9_000 * MS


def test_where_it_is_not_known_for_how_long_the_host_stood_still_nothing_is_sure(host: Host, app: App):
    host.fleet.clock_lows_ns = lambda: (1 << 62,) * 5
    host.pass_ms(4_000)
    agent = host.next_agent()
    agent.pass_ms(8_000)
    assert not agent.heir.renewals
    assert len(agent.heir.losses) == 1


def test_a_stale_journal_takes_nothing_from_who_holds_it_now(host: Host, app: App):
    """An older copy of it, from before its holder has had it extended, or has given it back."""
    old = host.journal
    host.pass_ms(5_000)
    agent = answering(host.next_agent(journal=old))
    assert agent.lease.is_ours
    unlocked = agent.journal
    agent.unlocked(app)
    next_one = agent.locked()
    again = agent.next_agent(journal=unlocked)
    again.pass_ms(1)
    assert len(again.heir.losses) == 1
    again.pass_ms(20_000)
    assert again.asked(Release) == []
    assert again.shown()[0] in (next_one.held.nonce, None)


def test_a_master_that_was_away_when_it_was_taken_over_knows_it_by_its_new_nonce_soon(host: Host, app: App):
    """And counts from the proof behind that: what the agent before had under way may have put it there."""
    agent = host.next_agent()
    agent.break_off(4)
    answering(agent)
    agent.come_back(4)
    assert agent.shown()[4] == app.held.nonce
    agent.pass_until(agent.lease.renew_at_ns() + MS)
    assert agent.shown() == [agent.lease.nonce] * 5
    assert not agent.lease.proven >> 4 & 1
    agent.pass_until(agent.lease.renew_at_ns() + MS)
    assert agent.lease.proven == 0b11111
    agent.pass_until(agent.lease.renew_at_ns() + MS)
    assert agent.asked(Extension)[-1].before == ()


def test_one_that_is_found_shortly_before_its_deadline_is_asked_for_all_the_same(host: Host):
    app = host.locked(ttl_ms=10_000)
    host.time.now_ns = app.held.deadline_ns - 1_500 * MS
    agent = answering(host.next_agent())
    assert (agent.did, agent.lease.is_ours, agent.heir.losses) == (Taken.GOES_ON, True, [])


@pytest.mark.parametrize("journal_is_old", [False, True])
@pytest.mark.parametrize("wait_ms", [None, 60_000])
def test_a_request_that_is_asked_again_is_not_granted_by_what_the_journal_says(
    host: Host, journal_is_old: bool, wait_ms: int | None
):
    host.locked(value=b"name", named=True)
    journal = host.journal
    host.forget()
    assert beside(host).locked().code == "granted"
    agent = host.next_agent(journal=journal if journal_is_old else None)
    again = agent.lock(value=b"name", named=True, wait_ms=wait_ms)
    assert again.code == ("" if wait_ms else "NOQUORUM")
    answering(agent)
    assert again.code != "granted"


def test_a_request_that_is_asked_again_gets_its_lease_when_that_is_proven(host: Host):
    first = host.locked(value=b"name", named=True)
    agent = host.next_agent()
    again = agent.lock(value=b"name", named=True, wait_ms=60_000)
    answering(agent)
    assert (again.code, again.held.fence) == ("granted", first.held.fence)


def test_a_longer_ttl_that_its_app_asked_for_lives_on(host: Host):
    app = host.locked(ttl_ms=5_000)
    host.extended(app, 30_000)
    assert answering(host.next_agent()).lease.ttl_ms == 30_000


@pytest.mark.parametrize(("seen", "bound"), [(Seen.ALIVE, Bound.PROCESS), (Seen.UNKNOWN, Bound.PROCESS)])
def test_the_holder_of_what_has_ended_without_an_agent_is_told(seen: Seen, bound: Bound, host: Host):
    app = host.locked(ttl_ms=2_000, bound=bound)
    host.time.now_ns = app.held.promised_ns + MS
    agent = answering(host.next_agent(seen))
    assert agent.did is Taken.OVER
    assert ["ended" in why for _, why in agent.heir.losses] == [True]
    assert agent.heir.ends != []
    assert agent.asked(Release) == agent.asked(Extension) == []
    assert agent.at_rest()


def test_what_ends_first_is_asked_for_first(host: Host):
    ttls_ms = [30_000, 5_000, 20_000, 10_000]
    for ttl_ms in ttls_ms:
        host.locked(b"%d" % ttl_ms, ttl_ms=ttl_ms)
    agent = host.next_agent()
    agent.slow()
    agent.pass_ms(1)
    assert [int(asked.resource) for asked in agent.asked(Extension)] == sorted(ttls_ms)


def test_a_journal_that_names_two_leases_of_one_resource_gives_its_holders_one(host: Host):
    """What the other counted for is given up: its limits have room again."""
    host.locked()
    other = cluster()
    other.locked(ttl_ms=20_000)
    agent = host.next_agent(journal=host.journal + b"".join(other.written[1:]))
    assert sorted((len(heir.ends), len(heir.losses)) for heir in agent.heirs) == [(0, 0), (1, 1)]
    assert agent.locks.held == 1


def without_the_journal(host: Host) -> Successor:
    """Another agent still has it."""
    return host.next_agent(journal=host.written[0])


@pytest.mark.parametrize("trying", [False, True], ids=["between two tries", "in a try"])
def test_who_waits_for_what_is_taken_over_late_waits_for_its_holder(host: Host, app: App, trying: bool):
    """The other agent ended while this one was at work. Its holder keeps what it was told that it has."""
    agent = without_the_journal(host)
    waiter = agent.locked(wait_ms=60_000)
    agent.pass_ms(1_000)
    if trying:
        agent.slow()
        while agent.locks.queues[b"r"].attempt is None:
            agent.pass_ms(1)
        hasty = agent.lock()
    agent.takes_over(host.journal)
    if trying:
        assert hasty.code == "TAKEN"
        agent.answer_all()
    agent.pass_ms(30_000)
    assert (agent.lease.fence, agent.heir.losses, waiter.code) == (app.held.fence, [], "")
    agent.unlocked(app)
    assert waiter.code == "granted"
    assert agent.shown() == [waiter.held.nonce] * 5


def test_what_is_handed_on_while_a_late_take_over_finds_that_it_was_anothers_is_given_back(
    host: Host, app: App
):
    """That one has ended long ago. Nobody would renew what is between two here, nor answer who gave it
    back."""
    agent = without_the_journal(host)
    agent.pass_until(app.held.deadline_ns + 500 * MS)
    first = agent.locked()
    waiter = agent.lock(wait_ms=60_000)
    agent.slow()
    answer = agent.unlock(first)
    agent.takes_over(host.journal)
    agent.answer_all()
    agent.pass_ms(100)
    assert (answer.code, waiter.code) == ("done", "granted")
    agent.unlocked(waiter)
    agent.pass_ms(10_000)
    assert (agent.shown(), agent.at_rest()) == ([None] * 5, True)


def test_who_had_what_another_has_by_the_time_of_a_late_take_over_is_told(host: Host, app: App):
    agent = without_the_journal(host)
    host.forget()
    next_one = agent.locked()
    agent.takes_over(host.journal)
    assert (len(agent.heir.losses), len(agent.heir.ends)) == (1, 1)
    agent.pass_ms(30_000)
    assert (agent.lease, next_one.losses) == (next_one.held, [])


def test_a_late_take_over_is_one_lease_at_a_time_and_apps_are_served_in_between(host: Host):
    """Others' leases are renewed meanwhile. What is not taken over yet keeps out whom it kept out before."""
    short, *long = (host.locked(b"%d" % number, ttl_ms=5_000 + 10_000 * (number > 0)) for number in range(5))
    agent, replayed, counts = without_the_journal(host), Replayed(), Counter[Taken]()
    assert len(list(replaying(host.journal, host.origin, replayed, is_last=True))) >= 5
    steps = taking_over(agent.locks, replayed, lambda _: 1, agent._heir, lambda: agent.time.now_ns, counts)
    first = next(steps)
    assert first is not None
    assert (first.resource, [*agent.locks.queues]) == (b"0", [b"0"])
    assert agent.locked(b"4").code == "TAKEN"
    assert agent.locked(b"free").code == "granted"
    agent.pass_until(short.held.promised_ns)
    assert first.deadline_ns > short.held.promised_ns, "it is renewed meanwhile"
    for lease in steps:
        assert lease is not None
        agent.pass_ms(1)
    assert counts == {Taken.GOES_ON: 5}
    assert [agent.locks.queues[app.resource].lease is None for app in long] == [False] * 4


def test_what_has_ended_while_others_were_taken_over_late_is_over(host: Host):
    """Rule 13: its fate is judged by the time at which its turn comes."""
    host.locked(b"a", ttl_ms=5_000)
    ends = host.locked(b"b", ttl_ms=6_000)
    agent, counts = without_the_journal(host), Counter[Taken]()
    replayed = replay(host.journal, host.origin)
    steps = taking_over(agent.locks, replayed, lambda _: 1, agent._heir, lambda: agent.time.now_ns, counts)
    next(steps)
    agent.time.now_ns = ends.held.promised_ns
    assert len(list(steps)) == 1
    assert counts == {Taken.GOES_ON: 1, Taken.OVER: 1}


def test_who_has_got_it_again_by_its_token_is_not_told_of_the_lease_before(host: Host):
    """News of a token would be taken for that of the lease that has it now."""
    host.locked(value=b"name", named=True)
    agent = without_the_journal(host)
    host.forget()
    assert agent.locked(value=b"name", named=True).code == "granted"
    agent.takes_over(host.journal)
    assert (agent.heir.losses, len(agent.heir.ends)) == ([], 1)


def test_a_loss_is_told_once_more_by_the_next_agent_as_the_news_may_have_been_lost(host: Host):
    app = host.locked(ttl_ms=6_000, notify=True)
    host.break_off()
    host.pass_until(app.held.lose_at_ns())
    host.come_back()
    assert answering(host.next_agent()).heir.losses


def test_what_a_child_goes_on_with_is_left_to_its_deadline_when_the_agent_dies_too(host: Host):
    """Its process is dead, and nobody can see the child, who may rely on it until then."""
    app = host.locked()
    host.locks.outlived(app.held, host.time.now_ns)
    host.pass_ms(3_000)
    deadline_ns = app.held.deadline_ns
    agent = answering(host.next_agent(Seen.DEAD))
    assert agent.did is Taken.LEFT
    again = answering(agent.next_agent(Seen.DEAD))
    assert again.did is Taken.LEFT, "also for the one that comes after it"
    again.pass_until(deadline_ns - 1)
    assert again.locked().code == "TAKEN"
    again.pass_ms(200)
    assert again.asked(Extension) == []
    assert again.locked().lease is not None
