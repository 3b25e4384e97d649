"""An app's own EXTEND, of a lease of its agent and of one that another agent granted."""

from lockd.core.leases import Standing
from lockd.core.validity import deadline_ns
from tests.harness.clocks import MS
from tests.harness.fleet_model import fresh_token

OUTAGE = "NOQUORUM " + " ".join(f"m{n}=down:-connection-lost" for n in (1, 2, 3))


def test_extend_goes_on_with_a_lease_and_never_shortens_it(host, detached):
    host.pass_ms(5_000)
    told = host.extended(detached, 20_000).extended
    assert told.deadline_ns == deadline_ns(host.time.now_ns, 20_000) == detached.held.deadline_ns
    assert (told.fence, told.token) == (detached.held.fence, detached.held.token)
    assert host.extended(detached, 500).extended.deadline_ns == told.deadline_ns
    host.pass_until(told.deadline_ns - 1)
    assert host.shown() == [detached.held.nonce] * 5


def test_extend_stops_at_max_hold(host):
    """Rule 7."""
    app = host.locked(ttl_ms=10_000, max_hold_ms=15_000, detached=True)
    until_ns = app.held.hold_until_ns
    host.pass_ms(9_000)
    told = host.extended(app, 10_000)
    assert until_ns - 2 * MS < told.extended.deadline_ns <= until_ns
    again = host.extended(app, 10_000)
    assert again.extended.deadline_ns == told.extended.deadline_ns
    host.pass_until(until_ns - MS)
    assert host.extend(app, 10_000).code == "EXPIRED"


def test_extensions_by_the_app_never_push_the_renewal_past_the_notice(host):
    """Rule 12, also for an app that mixes session locks with extensions of its own."""
    app = host.locked(ttl_ms=30_000)
    for ttl_ms in (22_000, 13_000, 5_000):
        host.pass_ms(9_000)
        host.extended(app, ttl_ms)
    host.pass_ms(60_000)
    assert app.losses == []
    assert app.held.deadline_ns > host.time.now_ns


def test_a_longer_extension_of_a_session_lease_is_kept_up(host):
    app = host.locked(ttl_ms=3_000)
    assert host.extended(app, 30_000).code == "done"
    host.pass_ms(60_000)
    assert app.losses == []
    assert app.held.deadline_ns > host.time.now_ns + 15_000 * MS


def test_extend_without_a_quorum_says_why_and_leaves_the_lease_as_it_was(host, other, detached):
    before_ns = detached.held.deadline_ns
    for agent in (host, other):
        agent.break_off(0, 1, 2)
        agent.pass_ms(1_000)
        assert agent.extended(detached, 10_000).text == OUTAGE
    assert detached.held.deadline_ns == before_ns
    assert detached.held.standing is Standing.HELD


def test_extend_of_a_lease_that_vanished_is_expired(host, app):
    host.forget(0, 1, 2)
    told = host.extended(app, 30_000)
    assert told.code == "EXPIRED"
    assert "gone from m1, m2, m3" in told.text
    assert len(app.losses) == 1


def test_a_detached_lease_whose_known_deadline_is_over_is_for_the_masters_to_decide(host, detached, other):
    """Another agent may have extended it."""
    host.pass_ms(8_000)
    other.extended(detached, 20_000)
    host.pass_ms(5_000)
    told = host.extended(detached, 30_000).extended
    assert (told.fence, told.deadline_ns) == (None, deadline_ns(host.time.now_ns, 30_000))
    assert host.unlocked(detached).code == "done"
    assert host.shown() == [None] * 5


def test_a_detached_lease_that_has_run_out_everywhere_is_not_held(host, detached):
    host.time.now_ns += 10_001 * MS  # Redis keeps a key through its last millisecond
    assert [host.extended(detached, 10_000).code, host.unlocked(detached).code] == ["NOTHELD"] * 2


# Leases that another agent granted


def test_another_agents_lease_is_extended_but_put_back_nowhere_and_its_fence_is_not_known(host, theirs):
    host.forget(3, 4)
    told = host.extended(theirs, 20_000).extended
    assert (told.fence, told.deadline_ns) == (None, deadline_ns(host.time.now_ns, 20_000))
    assert host.shown() == [theirs.held.nonce] * 3 + [None, None]
    host.forget(0)
    assert host.extended(theirs, 20_000).code == "NOTHELD", "it is on no quorum"


def test_a_lease_with_a_wrong_token_is_neither_extended_nor_released(host, app, other):
    wrong = fresh_token()
    assert host.extended(app, 20_000, wrong).code == "NOTHELD"
    assert other.extended(app, 20_000).code == "EXPIRED", "a session lease ends with its connection"
    assert host.unlocked(app, wrong).code == "NOTHELD"
    assert host.shown() == [app.held.nonce] * 5


def test_an_extension_that_was_on_its_way_until_the_lease_had_ended_brings_it_back_nowhere(host, other):
    app = host.locked(ttl_ms=1_000, detached=True)
    host.slow()
    host.extend(app, 9_000)
    host.pass_ms(1_100, answering=False)
    other.unlocked(other.locked())
    host.answer_all()
    assert host.shown() == [None] * 5
    assert other.extended(app, 5_000).code == "NOTHELD"


def test_what_its_own_agent_put_back_is_not_counted_elsewhere(host, other):
    """Only that agent knows whether another held the resource meanwhile."""
    host.break_off(3, 4)
    app = host.locked(detached=True)
    host.come_back(3, 4)
    host.extended(app, 30_000)
    assert host.shown() == [app.held.nonce] * 5
    host.forget(0)
    told = other.extended(app, 40_000)
    # It is on four of five, so it would be wrong to say that it is not held.
    assert told.code == "NOQUORUM"
    assert "put back on m4, m5" in told.text


def test_another_agents_lease_is_not_extended_past_its_max_hold(host, other):
    """Rule 7, kept by the masters."""
    app = other.locked(ttl_ms=10_000, max_hold_ms=15_000, detached=True)
    host.time.now_ns += 8_000 * MS
    told = host.extended(app, 60_000)
    assert host.time.now_ns + 6_500 * MS < told.extended.deadline_ns <= app.held.hold_until_ns
    host.time.now_ns = app.held.hold_until_ns - 50 * MS
    told = host.extended(app, 60_000)
    assert told.code != "done" or told.extended.deadline_ns <= app.held.hold_until_ns
    assert host.shown() == [app.held.nonce] * 5


def test_an_extension_elsewhere_that_is_answered_too_late_is_not_relied_upon(host, theirs):
    host.slow()
    told = host.extend(theirs, 100)
    host.time.now_ns += 98 * MS
    host.answer()
    assert told.code == "NOQUORUM"
