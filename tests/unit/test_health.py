"""What the person who was just woken up reads first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockd.health import AgentHealth, Level, availability, safety

WELL = AgentHealth(masters=5, quorum=3, voting=5)


def test_all_masters_vote_and_nothing_is_lost_is_good() -> None:
    assert availability(WELL).level is Level.GOOD
    assert safety(WELL).level is Level.GOOD


@pytest.mark.parametrize(
    ("voting", "level", "words"),
    [
        (4, Level.WARNING, "4 of 5 masters have a vote, 3 are needed. 1 more may fail"),
        (3, Level.BAD, "WITHOUT MARGIN"),
        (2, Level.BAD, "NOT available"),
        (0, Level.BAD, "NOT available"),
    ],
)
def test_fewer_votes_are_worse_and_below_the_quorum_locks_are_not_available(
    voting: int, level: Level, words: str
) -> None:
    assessment = availability(replace(WELL, voting=voting))
    assert assessment.level is level
    assert words in assessment.text


def test_without_a_quorum_locks_are_still_safe() -> None:
    assert safety(replace(WELL, voting=1)).level is Level.GOOD


@pytest.mark.parametrize("trouble", [{"responsive": False}, {"draining": True}])
def test_an_agent_that_hangs_or_stops_gives_no_locks_whatever_the_masters_do(
    trouble: dict[str, bool],
) -> None:
    assessment = availability(replace(WELL, **trouble))
    assert assessment.level is Level.BAD
    assert "NOT available" in assessment.text


def test_a_canary_that_fails_again_and_again_means_no_locks_although_all_masters_vote() -> None:
    refused = replace(WELL, canary_failures=2, canary_trouble="NOQUORUM m1=OOM m2=OOM m3=OOM")
    assert availability(refused).level is Level.BAD
    assert availability(refused).text == (
        "Locks are NOT available on this host: 5 of 5 masters have a vote, 3 are needed, but the agent's own "
        "lock failed (NOQUORUM m1=OOM m2=OOM m3=OOM), 2 times in a row."
    )
    assert safety(refused).level is Level.GOOD


def test_a_canary_that_failed_once_is_a_warning_and_never_good() -> None:
    once = availability(replace(WELL, canary_failures=1, canary_trouble="NOQUORUM"))
    assert once.level is Level.WARNING
    assert once.text == (
        "Locks should be available: 5 of 5 masters have a vote, 3 are needed, "
        "but the agent's own lock failed (NOQUORUM) just now."
    )


def test_without_margin_a_failing_canary_makes_it_no_better() -> None:
    for failures in (0, 1, 2):
        assert availability(replace(WELL, voting=3, canary_failures=failures)).level is Level.BAD


def test_a_lost_quorum_is_said_before_the_canary_which_fails_because_of_it() -> None:
    assert "own lock" not in availability(replace(WELL, voting=2, canary_failures=9)).text


def test_why_the_canary_failed_is_cut_however_many_masters_have_something_to_say() -> None:
    assert len(availability(replace(WELL, canary_failures=2, canary_trouble="x" * 5_000)).text) < 500


def test_a_lost_lease_is_bad_even_when_locks_are_available() -> None:
    health = replace(WELL, lost=1)
    assert availability(health).level is Level.GOOD
    assert safety(health).level is Level.BAD
    assert safety(health).text.startswith("1 lease of this host was LOST")
    assert safety(replace(WELL, lost=2)).text.startswith("2 leases of this host were LOST")


def test_leases_on_fewer_masters_are_safe_with_a_warning() -> None:
    assessment = safety(replace(WELL, on_fewer=3))
    assert assessment.level is Level.WARNING
    assert "3 leases are on a quorum" in assessment.text
