"""Fences: hints above all that was seen, near those of other agents."""

from hypothesis import given
from hypothesis import strategies as st

from lockd.core.fences import BLOCK, CEILING, SLOTS, FenceHints, slot_of

NOW_US = 1_700_000_000_000_000


def test_the_first_hint_is_the_clock_so_that_agents_with_good_clocks_agree():
    assert FenceHints().next(NOW_US) == NOW_US


def test_a_hint_is_above_the_whole_block_of_a_value_seen_even_when_the_clock_is_behind():
    hints = FenceHints()
    hints.saw(NOW_US + 500)
    assert hints.next(NOW_US) == NOW_US + 500 + BLOCK


def test_a_hint_is_just_above_a_counter_that_refused():
    hints = FenceHints()
    hints.saw_counter(NOW_US + 500)
    assert hints.next(NOW_US) == NOW_US + 501


def test_an_older_value_does_not_lower_the_hint():
    hints = FenceHints()
    hints.saw(NOW_US)
    hints.saw(3)
    assert hints.next(0) == NOW_US + BLOCK


def test_the_clock_takes_over_again_once_it_has_caught_up():
    hints = FenceHints()
    hints.saw(NOW_US)
    assert hints.next(NOW_US + BLOCK + 1) == NOW_US + BLOCK + 1


def test_an_insane_clock_does_not_use_up_the_counters():
    hints = FenceHints()
    hints.saw_counter(41)
    assert hints.next(1 << 52) == 42
    assert hints.next(1 << 60) == 42


def test_a_clock_before_1970_is_no_hint():
    assert FenceHints().next(-5) == 1


@given(st.lists(st.integers(0, CEILING)), st.integers(-(1 << 60), 1 << 60))
def test_a_hint_exceeds_all_that_was_seen(seen, wall_us):
    hints = FenceHints()
    for value in seen:
        hints.saw(value)
    assert hints.next(wall_us) > max(seen, default=0)


@given(st.binary(max_size=512))
def test_each_resource_has_one_slot(resource):
    assert 0 <= slot_of(resource) < SLOTS
    assert slot_of(resource) == slot_of(bytes(resource))


def test_the_slot_is_the_crc32_that_other_agents_compute():
    assert slot_of(b"123456789") == 0xCBF43926 % 4096


def test_a_block_leaves_room_for_hand_offs():
    assert BLOCK == 64
