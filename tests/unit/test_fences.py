"""Fences: hints above all that was seen, near those of other agents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockd.core.fences import (
    BLOCK,
    COUNTER_AHEAD_US,
    HINT_AHEAD_US,
    SANE_MOST,
    FenceHints,
    is_right_counter,
    largest_sane,
    slot_of,
)

NOW_US = 1_700_000_000_000_000
HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("saw", "refused_at", "clock", "hint"),
    [
        ([], [], -500, -500),  # so that agents with good clocks agree
        ([], [HINT_AHEAD_US], 0, 0),  # the masters would refuse more
        ([500], [], 0, 500 + BLOCK),  # above the whole block, even when the clock is behind
        ([], [500], 0, 501),  # just above a counter that refused
        ([0, 3 - NOW_US], [], -1, BLOCK),  # an older value does not lower it
        ([0], [], BLOCK + 1, BLOCK + 1),  # the clock takes over again once it has caught up
    ],
)
def test_a_hint_is_above_what_was_seen_of_its_counter_and_the_clock(saw, refused_at, clock, hint):
    """All in microseconds from now on."""
    hints = FenceHints()
    for value in saw:
        hints.saw(1, NOW_US + value, NOW_US)
    for value in refused_at:
        hints.saw_counter(1, NOW_US + value, NOW_US)
    assert hints.next(1, NOW_US + clock, NOW_US) == NOW_US + hint


def test_what_was_seen_is_known_by_counter_to_whoever_forms_the_cluster_anew():
    hints = FenceHints()
    hints.saw(1, NOW_US, NOW_US)
    hints.saw_counter(2, NOW_US + 5, NOW_US)
    hints.saw_counter(3, 1 << 51, NOW_US)
    assert hints.seen == {1: NOW_US + BLOCK - 1, 2: NOW_US + 5}
    assert hints.next(4, NOW_US, NOW_US) == NOW_US, "which says nothing about another"


@pytest.mark.parametrize("wall_us", [NOW_US + 2 * HOUR_US, NOW_US - 2 * HOUR_US, 1 << 52, 1 << 60, -5])
def test_a_clock_that_is_far_from_the_masters_is_not_followed(wall_us):
    assert FenceHints().next(1, wall_us, NOW_US) == NOW_US


@pytest.mark.parametrize("value", [NOW_US + COUNTER_AHEAD_US + 1, SANE_MOST, 1 << 62])
def test_a_value_that_no_counter_can_have_come_to_is_forgotten(value):
    hints = FenceHints()
    hints.saw_counter(1, value, NOW_US)
    assert hints.next(1, NOW_US, NOW_US) == NOW_US
    hints.saw_counter(1, NOW_US + 500, NOW_US)
    assert hints.next(1, NOW_US, NOW_US) == NOW_US + 501, "it hides nothing that is seen later"


def test_a_counter_far_ahead_of_the_clocks_does_not_hide_those_that_the_others_are_at():
    """It is one master's word. Above it, or below where the others are, they would not all accept a hint."""
    hints = FenceHints()
    hints.saw(1, NOW_US + 500, NOW_US)
    for ahead_us in (HINT_AHEAD_US - BLOCK, HINT_AHEAD_US + HOUR_US, COUNTER_AHEAD_US - BLOCK):
        hints.saw(1, NOW_US + ahead_us, NOW_US)
        assert hints.next(1, NOW_US, NOW_US) == NOW_US + 500 + BLOCK


@given(st.lists(st.integers(0, NOW_US + HINT_AHEAD_US - HOUR_US - BLOCK)), st.integers(-(1 << 60), 1 << 60))
def test_a_hint_exceeds_all_that_was_seen_and_is_near_the_masters_clocks(seen, wall_us):
    hints = FenceHints()
    for value in seen:
        hints.saw(1, value, NOW_US)
    assert max(seen, default=0) < hints.next(1, wall_us, NOW_US) <= NOW_US + HINT_AHEAD_US


@pytest.mark.parametrize(
    "stored", ["", "-1", "1.5", "nan", "inf", "1e9", "x", "9" * 17, str(NOW_US + 1), "\u0663"]
)
def test_a_counter_that_can_not_go_on_is_wrong_and_one_up_to_a_day_ahead_is_right(stored):
    assert not is_right_counter(stored, NOW_US + BLOCK)
    assert is_right_counter(str(NOW_US), largest_sane(NOW_US - COUNTER_AHEAD_US + BLOCK))
    assert is_right_counter("0", NOW_US)


def test_the_slot_and_the_block_are_those_of_other_agents():
    """The slot is a CRC-32."""
    assert (slot_of(b"123456789"), BLOCK) == (0xCBF43926 % 4096, 64)
