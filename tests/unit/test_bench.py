"""How the benchmark counts: turns, shares and goals. It measures nothing here."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.bench.charts import chart
from tests.bench.contenders import CLIENT, REDLOCK_PY
from tests.bench.driver import Load, Tally, Wants
from tests.bench.report import Measurement, goals_of, rows_of
from tests.bench.scenarios import THREE_AND_ONE


def tally(*grants: tuple[int, float, float], given_up: tuple[tuple[int, float, float], ...] = ()) -> Tally:
    """Of (client, asked, got it); each holds it for half a second."""
    done = Tally(pairs=len(grants), pairs_in_time=len(grants), given_up=len(given_up))
    for client, asked_s, held_s in grants:
        done.acquires_s.append(held_s - asked_s)
        done.holds.extend((held_s, held_s + 0.5))
        done.whose.extend((client, asked_s))
    for wait in given_up:
        done.in_vain.extend(wait)
    return done


def test_a_wait_is_as_many_turns_as_others_had_meanwhile():
    done = tally((0, 0.0, 0.0), (0, 0.6, 1.0), (1, 0.1, 2.0), (0, 1.6, 3.0))
    assert done.turns_waited(1) == [1]
    assert done.turns_waited(0) == [0, 0, 1]


def test_a_wait_that_was_given_up_counts_as_long_as_it_was():
    done = tally((0, 0.0, 1.0), (0, 1.5, 2.0), (0, 2.5, 3.0), given_up=((3, 0.5, 2.9),))
    assert done.turns_waited(3) == [2]


def measured(scenario: str, contender: str, load: Load, done: Tally, cpu_s: float = 0.0) -> Measurement:
    return Measurement.of(scenario, contender, load, done, cpu_s, 0.0)


def test_the_lone_client_is_measured_by_what_another_gets():
    load = Load(4, Wants.SAME, 1.0, hosts=THREE_AND_ONE)
    grants = [(client, float(n), n + 0.5) for n, client in enumerate((0, 1, 2, 0, 1, 2, 3))]
    one = measured("three-and-one", CLIENT, load, tally(*grants))
    assert (one.lone_share, one.shares, one.host_shares) == (0.5, 2.0, 6.0)


@pytest.mark.parametrize(("ours", "reached"), [(8, True), (7, False)])
def test_a_goal_is_reached_or_not_or_was_not_measured(ours: int, reached: bool):
    load = Load(16, Wants.OWN, 1.0)
    rows = rows_of(
        measured("16-free", name, load, tally(*[(0, 0.0, 0.0)] * pairs))
        for name, pairs in ((CLIENT, ours), (REDLOCK_PY, 1))
    )
    results = {goal.what: goal.result for goal in goals_of(rows)}
    what = f"16 clients, free: {CLIENT} / {REDLOCK_PY}, pairs"
    assert results[what] == ("reached" if reached else "not reached")
    assert set(results.values()) - {results[what]} == {"not measured"}


def test_what_a_peer_costs_has_no_idle_agent_in_it():
    load, done = Load(1, Wants.OWN, 1.0), tally((0, 0.0, 0.0))
    costs = {name: measured("1-free", name, load, done, 1e-6).cpu_us for name in (CLIENT, REDLOCK_PY)}
    assert costs == {CLIENT: pytest.approx(1.0), REDLOCK_PY: 0.0}


def test_a_chart_has_a_line_and_a_name_for_each():
    lines = {"a & b": [(1, 10.0), (10, 100.0)], "c": [(1, 0.0), (10, 5.0)]}
    for log_up in (False, True):
        drawn = ElementTree.fromstring(chart("title", "x", "y", lines, log_up=log_up))
        named = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
        assert {"title", "x", "y", "a & b", "c"} <= set(named)
        assert len(list(drawn.iter("{http://www.w3.org/2000/svg}polyline"))) == 2
