"""What a master says is looked at before it counts: any reply is a sane one, or refused in a word."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockd.core.answers import Flaw, flaw_of, is_of_release, refuses_all
from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.ballot import Ballot
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.ballots.put_back import PutBack
from lockd.core.fences import BLOCK, COUNTER_AHEAD_US, SANE_MOST, largest_sane
from tests.harness.ballots import a_fence_round, a_put_back, an_attempt, an_extension

NOW_US = 1_700_000_000_000_000
MOST = largest_sane(NOW_US)


def attempt() -> Attempt:
    return an_attempt(hint=NOW_US)


def fence_round() -> FenceRound:
    return a_fence_round(NOW_US)


ANOTHERS = b"1" * 32
BALLOTS = [attempt(), fence_round(), an_extension(), a_put_back()]
SANE = [
    (attempt(), [1, NOW_US, NOW_US]),
    (attempt(), [1, 1, NOW_US]),
    (attempt(), [0, 0, NOW_US, ANOTHERS]),
    (attempt(), [0, 86_400_000, NOW_US, ANOTHERS]),
    (attempt(), [0, 0, NOW_US, b"not a lease"]),
    (attempt(), [0, 0, NOW_US, b""]),
    (attempt(), [-1, 0, NOW_US]),
    (attempt(), [-2, 60_000, NOW_US]),
    (attempt(), [-5, 0, NOW_US]),
    (fence_round(), [1, NOW_US, NOW_US]),
    (fence_round(), [0, NOW_US + BLOCK, NOW_US]),
    (fence_round(), [-4, 0, NOW_US]),
    (an_extension(), [1, 1_000, NOW_US]),
    (an_extension(), [2, 1_000, NOW_US]),
    (an_extension(), [3, 0, NOW_US]),
    (an_extension(), [4, 0, NOW_US]),
    (an_extension(), [0, 10**12, NOW_US]),
    (a_put_back(), [2, 1_000, NOW_US]),
    (a_put_back(), [1, 1_000, NOW_US]),
    (a_put_back(), [0, 10**12, NOW_US]),
]


@pytest.mark.parametrize(("ballot", "reply"), SANE)
def test_what_the_scripts_answer_is_sane(ballot: Ballot, reply: list[int]) -> None:
    assert flaw_of(ballot, reply, MOST) is None


@pytest.mark.parametrize("ballot", BALLOTS)
@pytest.mark.parametrize(
    "reply",
    [
        None, 1, True, 1.0, b"OK", [], [1], [1, 1], [1, 1, NOW_US, 0], (1, 1, NOW_US),
        {1: 1, 2: 2, 3: NOW_US}, hiredis.PushNotification([1, 1, NOW_US]),
        [1, None, NOW_US], [None, 1, NOW_US], [1, 1, None], [True, 1, NOW_US], [1, 1.5, NOW_US],
        [1, b"1", NOW_US], [1, [1], NOW_US], [[1], 1, NOW_US], [float("nan"), 1, NOW_US],
        [1, 1, -1], [1, 1, 0], [1, 1, SANE_MOST], [1, 1, 1 << 80], [1, 1, float("inf")],
        [6, 0, NOW_US], [5, 251, NOW_US], [-5, 1, NOW_US], [-6, 0, NOW_US], [1 << 62, 0, NOW_US],
        [-1, 1, NOW_US],
    ],
)  # fmt: skip
def test_what_no_script_answers_is_nonsense(ballot: Ballot, reply: object) -> None:
    assert flaw_of(ballot, reply, MOST) is Flaw.NONSENSE


@pytest.mark.parametrize("named", [[], [ANOTHERS, ANOTHERS], [b"1" * 33], [None], [1], ["1" * 32]])
def test_a_try_is_refused_with_the_nonce_of_who_has_it(named: list[object]) -> None:
    assert flaw_of(attempt(), [0, 700, NOW_US, ANOTHERS], MOST) is None
    assert flaw_of(attempt(), [0, 700, NOW_US, *named], MOST) is Flaw.NONSENSE


@pytest.mark.parametrize("value", [-1, -2, 86_400_001, 1 << 62, -(1 << 62)])
def test_a_ttl_that_no_lease_can_have_is_nonsense(value: int) -> None:
    assert flaw_of(attempt(), [0, value, NOW_US, ANOTHERS], MOST) is Flaw.NONSENSE
    assert flaw_of(an_extension(), [1, value, NOW_US], MOST) is Flaw.NONSENSE
    assert flaw_of(an_extension(), [2, value, NOW_US], MOST) is Flaw.NONSENSE


@pytest.mark.parametrize("status", [0, 1])
@pytest.mark.parametrize(
    "fence", [0, -1, NOW_US + COUNTER_AHEAD_US + 1, SANE_MOST, (1 << 53) - 1, (1 << 63) - 1, -(1 << 63)]
)
def test_a_fence_that_no_counter_can_have_come_to_is_miscounted(status: int, fence: int) -> None:
    ballots = [fence_round()] if status == 0 else [attempt(), fence_round()]
    for ballot in ballots:
        assert flaw_of(ballot, [status, fence, NOW_US], MOST) is Flaw.MISCOUNTS


def test_a_fence_is_measured_by_the_masters_own_clock_and_by_the_median() -> None:
    """A clock in 2110 does not make a fence of 2110 sane, and one of last week no fence of today."""
    future_us, past_us = 1 << 51, NOW_US - 7 * COUNTER_AHEAD_US
    assert flaw_of(attempt(), [1, future_us, future_us], MOST) is Flaw.MISCOUNTS
    assert flaw_of(attempt(), [1, NOW_US, past_us], MOST) is Flaw.MISCOUNTS
    assert flaw_of(attempt(), [1, MOST, NOW_US], MOST) is None


def test_a_master_that_says_that_its_counter_is_wrong_miscounts() -> None:
    assert flaw_of(attempt(), [-3, 0, NOW_US], MOST) is Flaw.MISCOUNTS
    assert flaw_of(fence_round(), [-3, 0, NOW_US], MOST) is Flaw.MISCOUNTS
    assert flaw_of(an_extension(), [-3, 0, NOW_US], MOST) is Flaw.NONSENSE


def test_an_answer_never_makes_a_lease_longer_than_was_asked_for() -> None:
    """Rule 1."""
    asked = an_extension()
    asked.put_to(0b111)
    for master in range(3):
        assert flaw_of(asked, [1, 80_000_000, NOW_US], MOST) is None
        asked.answered(master, 1, 80_000_000, True, 0)
    assert asked.lasts_ms == 1_000


def test_a_release_is_answered_with_one_or_none() -> None:
    assert is_of_release(0)
    assert is_of_release(1)
    for reply in (2, -1, True, None, b"1", [1], 1.0, 1 << 70):
        assert not is_of_release(reply)


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers(), inner, max_size=2),
    max_leaves=8,
)
statuses = st.integers(-6, 6) | st.integers()
values = st.sampled_from([0, 1, NOW_US, NOW_US + COUNTER_AHEAD_US]) | st.integers()
votes = st.tuples(statuses, values, st.just(NOW_US) | st.integers()).map(list)
refusals = st.tuples(st.just(0), values, st.just(NOW_US), st.just(ANOTHERS) | anything).map(list)


@given(st.sampled_from(BALLOTS), anything | votes | refusals | st.lists(anything, min_size=3, max_size=4))
def test_of_anything_what_passes_can_be_counted(ballot: Ballot, reply: Any) -> None:
    if flaw_of(ballot, reply, MOST) is not None:
        return
    status, value, master_us, *holder_nonce = reply
    assert {type(word) for word in reply[:3]} == {int}
    assert [(type(word), len(word)) for word in holder_nonce] == [(bytes, 32)] * (
        isinstance(ballot, Attempt) and status == 0
    )
    assert 0 < master_us < SANE_MOST
    if status == 1 and not isinstance(ballot, Extension | PutBack):
        assert 0 < value <= min(MOST, master_us + COUNTER_AHEAD_US)
    made = {Attempt: attempt, FenceRound: fence_round, Extension: an_extension, PutBack: a_put_back}
    fresh = made[type(ballot)]()
    fresh.put_to(0b11111)
    fresh.answered(0, status, value, True, 0, *holder_nonce)


IN_6_2 = "ERR Error running script (call to f_4f8f9981771e1c57): @user_script:1: @user_script: 1: "


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'. script: 4f8f, on @user_script:1.", "OOM"),
        (f"{IN_6_2}-OOM command not allowed when used memory > 'maxmemory'.", "OOM"),
        (f"{IN_6_2}-NOREPLICAS Not enough good replicas to write.", "NOREPLICAS"),
        ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to", "MISCONF"),
        ("READONLY You can't write against a read only replica.", "READONLY"),
        ("NOPERM this user has no permissions to run the 'evalsha' command", "NOPERM"),
        ("ERR unknown command 'EVALSHA', with args beginning with: '4f8f' '1' ", "unknown command"),
        ("ERR Unknown Redis command called from script script: 4f8f, on @user_script:1.", "unknown command"),
        (f"{IN_6_2}Unknown Redis command called from Lua script", "unknown command"),
        ("ERR ACL failure in script: User u has no permissions to run the 'set' command", "NOPERM"),
        (f"{IN_6_2}The user executing the script can't run this command or subcommand", "NOPERM"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", ""),
        (f"{IN_6_2.replace(' @user_script: 1:', '')}WRONGTYPE Operation against a key", ""),
        ("ERR user_script:1: attempt to compare boolean with number script: on @user_script:1.", ""),
        ("", ""),
    ],
)
def test_an_error_costs_a_master_its_vote_when_it_is_about_more_than_one_key(error: str, why: str) -> None:
    """As Redis 6.2, Redis 7 and Valkey say it."""
    assert refuses_all(error) == why
