"""A host that stood still, and masters whose clocks were set: who jumped, and what that costs (rule 11d).

To an agent both look alike: what its host does not count, the clocks of the masters gain.
"""

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.extension import Extension
from lockd.core.clocks import Clocks
from lockd.core.leases import Loss, Standing
from tests.harness.clocks import MS
from tests.harness.fleet_model import Host, Time, beside, masters_of

MAX_TTL_MS = 10_000
S = 1_000
EVERYONE = range(5)


@pytest.fixture
def host() -> Host:
    """Its agent has watched five masters for longer than a max TTL."""
    time = Time()
    clocks = Clocks(5, max_ttl_ms=MAX_TTL_MS, allowance_ms=100)
    host = Host(time, masters_of(time, 5, MAX_TTL_MS), clocks)
    go_on(host, 12 * S)
    return host


def go_on(host: Host, ms: int, *masters: int) -> None:
    """Time passes, and the clocks of these, or of all, are looked at twice a second."""
    for _ in range(0, ms, 500):
        host.pass_ms(500)
        host.fleet.probe(*masters)


def stand_still(host: Host, ms: int) -> None:
    jump(host, ms, *EVERYONE)


def jump(host: Host, ms: int, *masters: int) -> None:
    for master in masters:
        host.fleet.masters[master].ahead_us += ms * 1000


def look(host: Host) -> None:
    """At all clocks, and what follows from them is done."""
    host.fleet.probe()
    host.pass_ms(0)


def trusted(host: Host) -> list[int]:
    host.fleet.weigh(host.time.now_ns)
    return [m for m in EVERYONE if host.fleet.trusted >> m & 1]


def jumps(host: Host) -> list[int]:
    return [watch.jumps for watch in host.fleet.clocks.watches]


# Who jumped


def test_the_first_that_jumps_is_not_trusted_before_all_have_it_was_this_host_then(host):
    stand_still(host, 3 * S)
    host.fleet.probe(0, 1, 2, 3)
    assert trusted(host) == [4]
    assert host.fleet.clocks.in_doubt
    host.fleet.probe(4)
    assert trusted(host) == [0, 1, 2, 3, 4]
    assert not host.fleet.clocks.in_doubt
    assert (jumps(host), host.fleet.clocks.standstills) == ([0] * 5, 1)
    assert abs(host.fleet.clocks.stood_still_ns - 3 * S * MS) < 20 * MS


@pytest.mark.parametrize("first", [0, 2, 4])
def test_where_some_did_not_jump_those_that_did_have_jumped(host, first):
    """A time server that three of them share."""
    jump(host, 3 * S, 0, 1, 2)
    for masters in ([first], EVERYONE, EVERYONE):
        host.fleet.probe(*masters)
    assert trusted(host) == [3, 4]
    assert jumps(host) == [1, 1, 1, 0, 0]
    assert host.fleet.clocks.standstills == 0


def test_those_that_jumped_by_different_amounts_have_jumped(host):
    jump(host, 3 * S, 0, 1, 2)
    jump(host, 5 * S, 3, 4)
    host.fleet.probe()
    go_on(host, 500)
    assert trusted(host) == []


def test_a_second_standstill_before_the_first_is_understood_is_one_with_it(host):
    stand_still(host, 3 * S)
    host.fleet.probe(0, 1)
    stand_still(host, 2 * S)
    host.fleet.probe(2, 3, 4)
    host.fleet.probe()
    assert trusted(host) == [0, 1, 2, 3, 4]
    assert abs(host.fleet.clocks.stood_still_ns - 5 * S * MS) < 40 * MS


def test_fewer_than_a_quorum_tell_nothing_of_this_host(host):
    go_on(host, 6 * S, 0, 1)
    stand_still(host, 3 * S)
    go_on(host, 6 * S, 0, 1)
    assert trusted(host) == []
    assert jumps(host) == [1, 1, 0, 0, 0]


def test_one_that_is_silent_is_waited_for_only_as_long_as_it_counts_as_watched(host):
    stand_still(host, 3 * S)
    for _ in range(9):
        host.fleet.probe(0, 1, 2, 3)
        assert not set(trusted(host)) & {0, 1, 2, 3}
        host.pass_ms(500)
    host.pass_ms(1_000)
    host.fleet.probe(0, 1, 2, 3)
    assert trusted(host) == [0, 1, 2, 3]


def test_one_that_was_away_meanwhile_is_not_distrusted_when_it_is_back(host):
    go_on(host, 10 * S, 0, 1, 2, 3)
    stand_still(host, 30 * S)
    host.fleet.probe(0, 1, 2, 3)
    go_on(host, 1_000)
    assert trusted(host) == [0, 1, 2, 3, 4]


def test_a_real_jump_is_not_forgotten_over_a_standstill_and_a_steady_offset_stays_trusted(host):
    jump(host, 600 * S, 2)
    go_on(host, 13 * S)
    jump(host, 2 * S, 3)
    go_on(host, 1_000)
    stand_still(host, 3 * S)
    go_on(host, 1_000)
    assert trusted(host) == [0, 1, 2, 4]
    assert host.fleet.clocks.standstills == 1


def test_one_that_jumps_all_the_time_brings_nobody_into_doubt_twice(host):
    jump(host, S, 1)
    go_on(host, 1_000)
    for _ in range(5):
        jump(host, S, 1)
        host.fleet.probe(1)
        assert not host.fleet.clocks.in_doubt
    assert trusted(host) == [0, 2, 3, 4]
    assert host.locked().code == "granted"


def test_one_that_jumps_at_each_look_leaves_nobody_in_doubt_once_the_others_were_heard(host):
    app = slow_grant(host)
    host.time.now_ns += MS
    for masters in ([1], [0, 1], [1, 2, 3], [1, 4], [1]):
        jump(host, S, 1)
        host.fleet.probe(*masters)
    hear_all(host)
    assert app.code == "granted"


@pytest.mark.parametrize("goes_back", [True, False])
@pytest.mark.parametrize(("every_us", "round_trip_ms"), [(200, 1), (1_000, 1), (5_000, 20)])
def test_a_clock_that_jumps_faster_than_the_others_answer_keeps_no_doubt_open(
    host, every_us, round_trip_ms, goes_back
):
    clocks, masters = host.fleet.clocks, host.fleet.masters
    in_doubt = 0
    for turn in range(2_000):
        host.time.now_ns += every_us * 1_000
        jump(host, -50 if goes_back and turn % 2 else 50, 1)
        for master in EVERYONE:
            asked_ns = host.time.now_ns - (0 if master == 1 else round_trip_ms * MS)
            shown_us = masters[master].now_us
            clocks.watches[master].observe(asked_ns, host.time.now_ns, shown_us)
        clocks.look_into_jumps(host.time.now_ns)
        in_doubt += clocks.in_doubt
    assert in_doubt * every_us < 100_000, "the others have said long ago that they did not jump"


# What that costs


@pytest.mark.parametrize(
    ("away", "jumped", "told"),
    [((), EVERYONE, True), ((), (1, 2, 3), True), ((), (1, 2), False), ((3, 4), (1,), True)],
)
def test_a_holder_is_told_when_its_lease_has_ended_on_so_many_that_a_quorum_is_free(host, away, jumped, told):
    """This host stood still, or so many masters have jumped: another may have it, from an agent that was just
    started."""
    if away:
        host.break_off(*away)
    app = host.locked(ttl_ms=10_000)
    until_ns = app.held.deadline_ns
    jump(host, 30 * S, *jumped)
    look(host)
    if told:
        [(_, reason)] = app.losses
        missing_s = f"{app.held.missing_ns / 1e9:.3f} s"
        assert reason == f"{missing_s} of it are gone: this host was paused, or clocks were set"
        assert app.held.lost_by is Loss.CLOCKS
    else:
        assert (app.losses, app.held.deadline_ns) == ([], until_ns)


def test_what_is_left_of_a_lease_is_used_to_renew_it(host):
    app = host.locked(ttl_ms=10_000)
    stand_still(host, 9_300)
    host.fleet.probe()
    go_on(host, 8 * S)
    assert app.losses == []
    assert app.held.deadline_ns > host.time.now_ns + 3 * S * MS


def test_a_detached_lease_ends_for_its_holder_when_it_does_on_the_masters(host):
    app = host.locked(ttl_ms=10_000, detached=True)
    stand_still(host, 9 * S)
    host.fleet.probe()
    host.pass_ms(1_000)
    assert len(app.losses) == 1
    assert app.losses[0][0] < app.held.deadline_ns


def test_max_hold_counts_what_the_host_stood_still(host):
    app = host.locked(ttl_ms=5_000, max_hold_ms=20_000)
    granted_ns = host.time.now_ns
    stand_still(host, 3 * S)
    go_on(host, 20 * S)
    assert app.held.lost_by is Loss.MAX_HOLD
    assert app.held.deadline_ns <= granted_ns + 17_010 * MS


def slow_grant(host: Host):
    """An app asks, three masters have said yes, and none of that was heard."""
    host.slow()
    app = host.lock(ttl_ms=10_000)
    for master in EVERYONE:
        host.fleet.arrive(master)
    return app


def quick(host: Host) -> None:
    """The masters answer again, and what was put off is done."""
    host.quick()
    for _ in range(50):
        host.fleet.settle()
        host.pass_ms(1)


def hear_all(host: Host) -> None:
    for master in EVERYONE:
        host.fleet.hear(master)


@pytest.mark.parametrize("looked_at", [[4], EVERYONE], ids=["in doubt", "known"])
def test_nothing_is_granted_on_a_try_from_before_a_standstill(host, looked_at):
    app = slow_grant(host)
    stand_still(host, 30 * S)
    host.fleet.probe(*looked_at)
    hear_all(host)
    assert app.code == ""
    host.fleet.probe()
    quick(host)
    assert app.code == "granted"
    assert len(host.asked(Attempt)) == 2


def test_a_try_from_before_a_jump_of_one_master_is_granted_once_the_others_were_heard(host):
    app = slow_grant(host)
    jump(host, 30 * S, 4)
    host.time.now_ns += MS
    host.fleet.probe()
    host.fleet.probe()
    hear_all(host)
    assert app.code == "granted"


def hear_one_after_the_other(host: Host) -> None:
    for master in EVERYONE:
        host.fleet.arrive(master)
        host.fleet.hear(master)


def test_what_was_on_its_way_when_the_host_stood_still_is_tried_again_also_for_who_does_not_wait(host):
    host.slow()
    app = host.lock(ttl_ms=10_000)
    stand_still(host, 3 * S)
    hear_one_after_the_other(host)
    assert app.code == ""
    quick(host)
    assert app.code == "granted"
    assert len(host.asked(Attempt)) == 2


def test_who_asks_while_it_is_in_doubt_who_jumped_gets_it_when_that_is_known(host):
    stand_still(host, 3 * S)
    host.fleet.probe(0, 1, 2)
    app = host.lock(ttl_ms=10_000)
    assert app.code == ""
    assert not host.asked(Attempt)
    host.fleet.probe()
    quick(host)
    assert app.code == "granted"


def test_an_extension_that_was_on_its_way_when_the_host_stood_still_is_to_be_asked_for_again(host):
    app = host.locked(ttl_ms=5_000)
    host.slow()
    answer = host.extend(app, 10_000)
    stand_still(host, 3 * S)
    hear_one_after_the_other(host)
    assert answer.code == "CLOCK"
    quick(host)
    assert app.held.standing is Standing.HELD


def test_an_extension_of_anothers_lease_lasts_no_longer_than_on_the_masters(host):
    """Of which nothing is known here but that they proved it, before the host stood still."""
    app = beside(host).locked(ttl_ms=5_000, detached=True)
    host.slow()
    answer = host.extend(app, 10_000)
    for master in EVERYONE:
        host.fleet.arrive(master)
    ends_ns = host.time.now_ns + 7 * S * MS
    stand_still(host, 3 * S)
    host.fleet.probe()
    hear_all(host)
    assert host.time.now_ns < answer.extended.deadline_ns < ends_ns


def test_all_deadlines_are_cut_at_once_and_what_follows_is_done_in_turns_of_the_accounts(host):
    """Rule 11d: by an old deadline nothing is said or done, not even while one account has hundreds to be
    told. And that others have hundreds makes nobody's renewal late."""
    greedy = [host.locked(b"%d" % number, account="greedy") for number in range(300)]
    modest = host.locked(b"modest", account="modest")
    were_ns, written = [app.held.deadline_ns for app in (*greedy, modest)], len(host.written)
    stand_still(host, 3 * S)
    host.fleet.probe()
    cut_ns = [was_ns - app.held.deadline_ns for was_ns, app in zip(were_ns, (*greedy, modest), strict=True)]
    assert min(cut_ns) > 2_900 * MS
    assert len(host.written) == written, "a note for each would take long"
    host.locks.turns.run(host.time.now_ns, 6)
    noted = b"".join(host.written[written:])
    assert modest.held.nonce in noted
    assert sum(app.held.nonce in noted for app in greedy) <= 5
    host.pass_ms(0)
    noted = b"".join(host.written[written:])
    assert all(app.held.nonce in noted for app in greedy)


def test_nothing_is_extended_past_the_cut_deadline(host):
    app = host.locked(ttl_ms=10_000, detached=True)
    host.fleet.links[4].slow = True
    stand_still(host, 30 * S)
    host.fleet.probe()
    answer = host.extend(app, 10_000)
    host.fleet.settle()
    assert answer.code in ("EXPIRED", "NOTHELD")


def test_nobody_else_has_it_while_a_holder_has_not_been_told(host):
    """The promise behind it all: another host gets it when the keys are gone, and the first holder was told
    by then, as far as its agent could know."""
    app = host.locked(ttl_ms=10_000)
    stand_still(host, 11 * S)
    taken = beside(host).locked(ttl_ms=10_000)
    assert taken.code == "granted"
    look(host)
    assert app.held.standing is Standing.LOST


def test_who_could_not_be_spared_learns_of_that_before_its_deadline(host):
    app = host.locked(ttl_ms=10_000)
    stand_still(host, 9_500)
    for master in EVERYONE:
        host.fleet.probe(master)
    told_ns, deadline_ns = app.held.spared_until_ns, app.held.deadline_ns
    assert host.time.now_ns < told_ns
    host.break_off()
    host.pass_ms(2_000)
    assert [at_ns for at_ns, _ in app.losses] == [told_ns]
    assert told_ns < deadline_ns


def test_what_nobody_can_be_asked_for_is_not_asked_for_round_and_round(host):
    """While little time is left it is tried again and again, and with no master up each try is over at
    once."""
    app = host.locked(ttl_ms=10_000)
    stand_still(host, 9 * S)
    for master in EVERYONE:
        host.fleet.probe(master)
    assert host.time.now_ns < app.held.spared_until_ns
    host.break_off()
    before = len(host.asked(Extension))
    host.pass_ms(200)
    assert 0 < len(host.asked(Extension)) - before <= 200 // host.locks._parameters.backoff_first_ms + 1
