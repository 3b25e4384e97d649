"""Fences are unique and ordered, even if mutual exclusion fails (rule 6)."""

import pytest

from lockd.core.ballots.fence_round import FenceRound
from lockd.core.fences import BLOCK, COUNTER_AHEAD_US, slot_of
from tests.harness.clocks import MS
from tests.harness.fleet_model import Host, beside

SLOT = slot_of(b"r")
FAR = 1_700_004_600_000_000  # an hour ahead of the clocks
APART = [FAR, FAR + 10, FAR + 20, FAR + 30, FAR + 40]


def give_counters(host: Host, *values: int) -> None:
    """Each master's fence counter, as if other agents with other clocks had been there."""
    for master, value in zip(host.fleet.masters, values, strict=True):
        master.fences[SLOT] = value


def test_masters_that_differ_are_made_to_agree_on_a_value_above_all(host):
    give_counters(host, *APART)
    app = host.locked()
    (proposal,) = host.asked(FenceRound)
    assert app.held.fence == proposal.value > FAR + 20
    counters = [master.fences[SLOT] for master in host.fleet.masters]
    assert sum(counter >= app.held.fence for counter in counters) >= 3
    assert host.watched.count("fence round") == 1


def test_a_proposal_that_is_refused_is_made_again_higher(host):
    give_counters(host, FAR, FAR + 1000, FAR + 2000, FAR + 9_000_000, FAR + 9_000_000)
    host.slow()
    app = host.lock()
    host.answer(0, 1, 2)
    assert len(host.asked(FenceRound)) == 1
    host.fleet.masters[0].fences[SLOT] = FAR + 50_000_000
    host.answer_all()
    assert len(host.asked(FenceRound)) == 2
    assert app.held.fence > FAR + 50_000_000


def test_a_proposal_that_is_no_larger_than_a_counter_is_refused(host):
    """A counter is the last fence of a block that was given to somebody."""
    give_counters(host, *APART)
    host.slow()
    app = host.lock()
    host.answer(0, 1, 2)
    (proposal,) = host.asked(FenceRound)
    for master in host.fleet.masters:
        master.fences[SLOT] = proposal.value
    host.answer_all()
    assert app.held.fence > proposal.value


def test_validity_is_checked_again_after_a_second_round(host):
    """Rule 1: etcd's 'lock returned after its lease expired while queued'."""
    app = host.in_a_second_round(0, 1, 2, ttl_ms=200)
    host.time.now_ns += 189 * MS
    host.answer_all()
    assert app.code == "NOQUORUM"
    assert host.shown() == [None] * 5


def test_a_second_round_that_nobody_answers_is_an_outage_and_given_back(host):
    app = host.in_a_second_round()
    host.pass_ms(251)
    assert app.code == "NOQUORUM"
    assert "no-answer-in-time" in app.refusal.text
    host.answer()
    assert host.shown() == [None] * 5
    assert host.at_rest()


def test_refused_second_rounds_end_when_the_lease_would_be_too_old(host):
    give_counters(host, *APART)
    host.slow()
    app = host.lock(ttl_ms=1_000)
    for turn in range(1, 40):
        for master in range(5):
            host.fleet.masters[master].fences[SLOT] = FAR + turn * 10_000_000 + master
            host.answer(master)
        host.pass_ms(50)
    assert app.code == "NOQUORUM"
    assert len(host.asked(FenceRound)) > 2
    assert app.answered_ns < app.asked_ns + 1_100 * MS


def test_fences_grow_from_grant_to_grant_whichever_host_is_granted_and_whatever_its_clock_says(host):
    hosts = [host, beside(host), beside(host)]
    hosts[1].locks.wall_ahead_ns -= 3_600_000 * MS
    hosts[2].locks.wall_ahead_ns += 3_600_000 * MS
    fences = []
    for turn in range(30):
        agent, away = hosts[turn * 7 % 3], (turn % 5, (turn + 2) % 5)
        agent.break_off(*away)
        app = agent.locked()
        fences.append(app.held.fence)
        agent.unlocked(app)
        agent.come_back(*away)
        agent.fleet.settle()
    assert fences == sorted(set(fences))


def test_a_grant_reserves_a_block_of_fences(host, app):
    host.unlocked(app)
    assert host.locked().held.fence >= app.held.fence + BLOCK


def test_counters_that_are_all_wrong_grant_nothing(host):
    give_counters(host, *[2**53 - 10] * 5)
    app = host.locked()
    assert app.code == "NOQUORUM"
    assert "m1=fence-counter-is-wrong" in app.refusal.text


def test_one_wrong_counter_costs_its_master_the_vote_and_nobody_else(host):
    """It spread to all masters by the hints of whoever had seen it: NOQUORUM for ever."""
    give_counters(host, 2**52 - 1000, 5, 5, 5, 5)
    for _ in range(3):
        app = host.locked()
        assert app.held.fence < host.time.wall_us + COUNTER_AHEAD_US
        host.unlocked(app)
    assert all(max(m.fences.values()) < host.time.wall_us + COUNTER_AHEAD_US for m in host.fleet.masters[1:])


@pytest.mark.parametrize("off_ms", [84 * 365 * 86_400_000, -40 * 365 * 86_400_000, 7 * 86_400_000])
def test_an_agent_whose_clock_is_far_off_gets_locks_and_spreads_no_fences(host, other, off_ms):
    """In 2110 its hints would be the floor of every counter it ever used."""
    host.locks.wall_ahead_ns += off_ms * MS
    for agent in [host, other] * 2:
        app = agent.locked()
        assert abs(app.held.fence - host.time.wall_us) < COUNTER_AHEAD_US
        agent.unlocked(app)
