"""What the person who was just woken up reads first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lockd.health import AgentHealth, Assessment, Level, availability, safety

WELL = AgentHealth(masters=5, quorum=3, voting=5)


REFUSED = "NOQUORUM m1=OOM m2=OOM m3=OOM"
AVAILABLE: list[tuple[dict[str, Any], Level, str]] = [
    ({}, Level.GOOD, "Locks are available"),
    ({"lost": 1}, Level.GOOD, "Locks are available"),
    ({"voting": 4}, Level.WARNING, "4 of 5 masters have a vote, 3 are needed. 1 more may fail"),
    ({"voting": 3}, Level.BAD, "WITHOUT MARGIN"),
    ({"voting": 3, "canary_failures": 1}, Level.BAD, ""),
    ({"voting": 3, "canary_failures": 2}, Level.BAD, ""),
    ({"voting": 2}, Level.BAD, "NOT available"),
    ({"responsive": False}, Level.BAD, "NOT available"),
    ({"draining": True}, Level.BAD, "NOT available"),
    (
        {"canary_failures": 2, "canary_trouble": REFUSED}, Level.BAD,
        "Locks are NOT available on this host: 5 of 5 masters have a vote, 3 are needed, but the agent's own "
        f"lock failed ({REFUSED}), 2 times in a row.",
    ),
    (
        {"canary_failures": 1, "canary_trouble": "NOQUORUM"}, Level.WARNING,
        "Locks should be available: 5 of 5 masters have a vote, 3 are needed, "
        "but the agent's own lock failed (NOQUORUM) just now.",
    ),
]  # fmt: skip
SAFE: list[tuple[dict[str, Any], Level, str]] = [
    ({}, Level.GOOD, ""),
    ({"voting": 1}, Level.GOOD, ""),
    ({"canary_failures": 2, "canary_trouble": REFUSED}, Level.GOOD, ""),
    ({"lost": 1}, Level.BAD, "1 lease of this host was LOST"),
    ({"lost": 2}, Level.BAD, "2 leases of this host were LOST"),
    ({"on_fewer": 3}, Level.WARNING, "3 leases are on a quorum"),
]


@pytest.mark.parametrize(
    ("assess", "found", "level", "words"),
    [*((availability, *one) for one in AVAILABLE), *((safety, *one) for one in SAFE)],
)
def test_locks_are_available_by_votes_the_agent_and_its_canary_and_safe_by_leases_alone(
    assess: Callable[[AgentHealth], Assessment], found: dict[str, Any], level: Level, words: str
) -> None:
    assessment = assess(replace(WELL, **found))
    assert assessment.level is level
    assert words in assessment.text


def test_why_the_canary_failed_is_cut_and_not_said_where_a_lost_quorum_is_why() -> None:
    assert "own lock" not in availability(replace(WELL, voting=2, canary_failures=9)).text
    assert len(availability(replace(WELL, canary_failures=2, canary_trouble="x" * 5_000)).text) < 500
