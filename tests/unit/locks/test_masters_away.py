"""Slow and dead masters cost no request anything (rule 5), and an outage is told as one."""

from itertools import pairwise

import pytest

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.release import Release
from lockd.core.line import LEAST
from tests.harness.clocks import MS
from tests.harness.fleet_model import Host, break_tries_for

LOST = "down:-connection-lost"


def test_a_dead_master_is_not_even_asked(host):
    host.break_off(0, 1)
    assert host.locked().code == "granted"
    assert host.asked(Attempt)[0].asked == 0b11100


def test_a_master_that_stays_away_is_tried_again_less_and_less_often_and_each_second_at_least(host):
    rests_ms = []
    for _ in range(40):
        host.fleet.fail_to_connect(0)
        rests_ms.append(host.fleet.links[0].rest_ns(0.5) // MS)
    assert rests_ms[:8] == [10, 20, 40, 80, 160, 320, 640, 1_000]
    assert set(rests_ms[8:]) == {1_000}


def test_without_a_quorum_of_voting_masters_nothing_is_asked_and_each_says_why(host):
    host.break_off(0, 1)
    host.demote(2)
    replica = "misconfigured:-its-role-is-slave,-it-must-be-master"
    assert str(host.lock().refusal) == f"NOQUORUM m1={LOST} m2={LOST} m3={replica}"
    assert host.fleet.asked == []
    assert host.at_rest()


def test_when_only_clocks_stand_between_the_masters_and_a_quorum_the_refusal_is_about_clocks(host):
    for master in host.fleet.masters[2:]:
        master.ahead_us += 3_000_000
    host.fleet.probe()
    host.fleet.probe()
    assert host.lock().code == "CLOCK"
    host.break_off(3, 4)
    assert host.lock().code == "CLOCK"
    host.break_off(2)
    assert host.lock().code == "NOQUORUM"


@pytest.mark.parametrize(("ttl_ms", "limit_ms"), [(10_000, 250), (100, 50)])
def test_masters_that_do_not_answer_in_time_are_named_and_a_short_ttl_shortens_it(host, ttl_ms, limit_ms):
    host.slow(1, 2, 4)
    app = host.lock(ttl_ms=ttl_ms)
    host.pass_ms(1_000)
    assert str(app.refusal) == "NOQUORUM m2=no-answer-in-time m3=no-answer-in-time m5=no-answer-in-time"
    assert app.answered_ns == app.asked_ns + limit_ms * MS


def test_an_outage_is_told_as_soon_as_a_quorum_has_become_impossible(host):
    host.slow()
    app = host.lock()
    host.break_off(0, 1, 2)
    for master in (0, 1, 2):
        assert app.code == ""
        host.fleet.fail_to_connect(master)
    assert app.code == "NOQUORUM"


def test_each_of_many_tries_has_its_own_time_limit(host):
    host.slow()
    apps = []
    for i in range(8):
        apps.append(host.lock(b"r%d" % i))
        host.pass_ms(20)
    host.pass_ms(1_000)
    assert [app.answered_ns - app.asked_ns for app in apps] == [250 * MS] * 8


@pytest.mark.parametrize("known", [True, False], ids=["they are known to be away", "nothing is heard"])
def test_tries_that_fail_together_leave_room_for_what_else_is_due(host, known):
    """All masters stand still, and a thousand tries with them. Those that wait until they may ask are refused
    as soon as it is known that nobody would answer."""
    host.slow()
    apps = [host.lock(b"%d" % number) for number in range(1_000)]
    if known:
        host.break_off(0, 1, 2, 3, 4)
        for master in range(5):
            host.fleet.fail_to_connect(master)
    else:
        host.time.now_ns += 250 * MS
    answered = [sum(app.code != "" for app in apps)]
    for _ in range(4_000):
        next_ns = host.locks.turns.run(host.time.now_ns, 1)
        answered.append(sum(app.code != "" for app in apps))
        if next_ns is None or next_ns > host.time.now_ns:
            break
    assert answered[-1] == (1_000 if known else LEAST)
    assert max(after - before for before, after in pairwise(answered)) <= 1


def test_the_leases_of_an_app_that_died_are_given_back_behind_what_apps_ask_now(host):
    dead, waited_for, given_back = (host.locked(resource) for resource in (b"a", b"b", b"c"))
    host.lock(b"b", wait_ms=1_000, detached=True)
    host.app_dies(dead)
    host.app_dies(waited_for)
    host.unlock(given_back)
    assert [(release.resource, release.patient) for release in host.asked(Release)] == [
        (b"a", True), (b"b", False), (b"c", False),
    ]  # fmt: skip


def test_a_wait_that_ends_in_an_outage_says_why_and_a_longer_one_gets_it_once_the_masters_are_back(host):
    host.break_off(0, 1, 2)
    short, longer = host.lock(wait_ms=1_000), host.lock(wait_ms=10_000)
    host.pass_ms(2_000)
    assert str(short.refusal) == f"NOQUORUM m1={LOST} m2={LOST} m3={LOST}"
    assert short.answered_ns == short.give_up_ns
    host.come_back(0, 1, 2)
    host.pass_ms(200)
    assert longer.code == "granted"


def test_a_mistake_where_the_time_of_a_ballot_is_up_is_that_requests_alone(host, monkeypatch):
    """All that is asked later has its time limit, too."""
    host.slow()
    break_tries_for(b"cursed", monkeypatch)
    cursed, app = host.lock(b"cursed"), host.lock(b"another")
    with pytest.raises(ZeroDivisionError):
        host.pass_ms(1_000)
    host.pass_ms(1_000)
    assert (cursed.code, app.code) == ("ERR", "NOQUORUM")
    later = host.lock(b"another")
    host.pass_ms(1_000)
    assert later.code == "NOQUORUM"
    assert host.locks.waiting == 0


def refused_with(host: Host, error: str) -> None:
    """One master answers the only vote that it is asked for with this error."""
    host.slow(0)
    host.lock(b"poison")
    host.pass_ms(0)
    link = host.fleet.links[0]
    link.sent.popleft()
    link.heard(error, host.time.now_ns, is_error=True)
    link.slow = False


@pytest.mark.parametrize(
    ("error", "giving"),
    [("WRONGTYPE Operation against a key", 0b11111), ("OOM command not allowed", 0b11110)],
)
def test_an_error_about_one_key_takes_no_vote_and_one_about_the_master_does(host, error, giving):
    refused_with(host, error)
    assert host.fleet.giving() == giving


def test_what_a_master_refused_on_one_connection_is_forgotten_on_the_next(host):
    refused_with(host, "OOM command not allowed")
    assert "OOM" in host.fleet.why_not(0)
    host.break_off(0)
    host.come_back(0)
    assert host.fleet.giving() == 0b11111
