"""LOCKs that could not be told yet what they get: others of their connection are to be answered before them.

They wait in line, and are passed over until they are ready.
"""

from __future__ import annotations

import pytest

from lockd.core.ballots.attempt import Attempt
from tests.harness.fleet_model import App, Host


def waiting(host: Host, *, ready: bool = False, wait_ms: int | None = 60_000) -> App:
    """Behind all who came before."""
    host.pass_ms(1)
    return host.locked(ready=ready, wait_ms=wait_ms)


def test_what_is_free_is_not_granted_to_one_who_could_not_be_told(host):
    """It would be held for as long as its connection has others to answer."""
    app = waiting(host)
    host.pass_ms(50_000)
    assert app.answers == []
    assert host.asked(Attempt) == [], "nor are masters asked for it"
    host.becomes_ready(app)
    assert app.code == "granted"
    assert len(host.asked(Attempt)) == 1


def test_the_first_who_is_ready_is_next_and_who_becomes_ready_has_kept_his_place(host, app):
    early, second, third = waiting(host), waiting(host, ready=True), waiting(host, ready=True)
    host.unlocked(app)
    assert [one.code for one in (early, second, third)] == ["", "granted", ""]
    for _ in range(2):
        host.becomes_ready(early)
    host.unlocked(second)
    assert [one.code for one in (early, third)] == ["granted", ""]
    host.unlocked(early)
    assert third.code == "granted"


def test_several_of_one_line_become_ready_in_any_order_and_are_served_in_that_of_their_arrival(host, app):
    line = [waiting(host) for _ in range(6)]
    for number in (4, 0, 5, 2):
        host.pass_ms(1)
        host.becomes_ready(line[number])
    host.app_dies(line[2])
    served = []
    for _ in range(3):
        host.unlocked(app)
        (app,) = [one for one in line if one.code == "granted" and one not in served]
        served.append(app)
    assert served == [line[0], line[4], line[5]]


def test_a_release_that_finds_nobody_ready_leaves_the_line_and_asks_nobody(host, app):
    passed_over = waiting(host)
    host.unlocked(app)
    tries = len(host.asked(Attempt))
    host.pass_ms(30_000)
    assert len(host.asked(Attempt)) == tries
    assert set(host.locks.queues) == {b"r"}
    single = host.locked()
    assert single.code == "granted", "it stands in nobody's way"
    host.unlocked(single)
    host.becomes_ready(passed_over)
    assert passed_over.code == "granted"


@pytest.mark.parametrize(("wait_ms", "answer"), [(500, "TIMEOUT"), (None, "TAKEN")])
def test_a_campaign_ends_with_the_last_who_is_ready(host, other, wait_ms, answer):
    other.locked(ttl_ms=30_000)
    passed_over, tried_for = waiting(host), waiting(host, ready=True, wait_ms=wait_ms)
    host.pass_ms(500)
    assert tried_for.code == answer
    tries = len(host.asked(Attempt))
    host.pass_ms(10_000)
    assert len(host.asked(Attempt)) == tries
    host.becomes_ready(passed_over)
    assert len(host.asked(Attempt)) == tries + 1


@pytest.mark.parametrize("is_held", [False, True])
def test_a_wait_that_ends_before_its_turn_is_refused_then_and_says_what_it_waited_for(host, other, is_held):
    """No outage, though no master was ever asked."""
    if is_held:
        host.locked()
    app = waiting(host, wait_ms=200)
    host.pass_ms(199)
    assert app.code == ""
    host.pass_ms(1)
    assert app.code == "TIMEOUT"
    assert "a separate connection" in str(app.refusal)
    assert host.locks.waiting == 0
    host.becomes_ready(app)
    assert len(app.answers) == 1


def test_an_app_that_goes_while_it_is_passed_over_leaves_nothing(host, app):
    passed_over = waiting(host)
    host.app_dies(passed_over)
    host.becomes_ready(passed_over)
    host.unlocked(app)
    host.pass_ms(300)
    assert (passed_over.answers, host.at_rest()) == ([], True)


def test_an_agent_that_stops_tells_those_it_passes_over(host):
    passed_over = waiting(host)
    host.drain()
    assert (passed_over.code, host.locks.queues, host.locks.waiting) == ("DRAINING", {}, 0)


def test_a_mistake_of_ours_in_a_try_leaves_the_passed_over_their_places(host):
    passed_over = waiting(host)
    host.slow()
    tried_for = host.lock(wait_ms=60_000)
    (attempt,) = host.asked(Attempt)
    host.locks.broke(attempt, host.time.now_ns)
    host.answer_all()
    assert tried_for.code == "ERR"
    host.becomes_ready(passed_over)
    assert passed_over.code == "granted"
