"""How long a lease may be relied upon, and how long to stay away after an unknown past."""

from hypothesis import given
from hypothesis import strategies as st

from lockd.core.validity import (
    NS_PER_MS,
    deadline_ns,
    drift_ns,
    left_ms,
    longest_ttl_ms,
    notice_ns,
    settle_ns,
)

TTLS = st.integers(1, 86_400_000)


def test_a_deadline_is_counted_from_before_the_first_byte_less_a_drift_of_one_percent_and_two_ms():
    assert drift_ns(10_000) == 102 * NS_PER_MS
    assert deadline_ns(5_000, 10_000) == 5_000 + 9_898 * NS_PER_MS


@given(TTLS, st.integers(0, 1 << 62))
def test_a_deadline_always_comes_before_any_master_may_let_go(ttl_ms, t1_ns):
    assert deadline_ns(t1_ns, ttl_ms) <= t1_ns + ttl_ms * NS_PER_MS - 2 * NS_PER_MS


@given(st.integers(-(10**15), 10**17))
def test_the_longest_ttl_for_a_span_is_the_longest(span_ns):
    ttl_ms = longest_ttl_ms(span_ns)
    assert ttl_ms == 0 or (ttl_ms > 0 and deadline_ns(0, ttl_ms) <= span_ns)
    assert deadline_ns(0, ttl_ms + 1) > span_ns


def test_what_is_left_is_told_in_whole_milliseconds_and_is_never_less_than_nothing():
    assert left_ms(7 * NS_PER_MS, 5 * NS_PER_MS + 1) == 1
    assert left_ms(5 * NS_PER_MS, 5 * NS_PER_MS) == left_ms(5 * NS_PER_MS, 6 * NS_PER_MS + 1) == 0


@given(TTLS)
def test_an_unknown_past_outlasts_every_lease_that_it_may_hold(ttl_ms):
    assert settle_ns(ttl_ms) >= ttl_ms * NS_PER_MS + drift_ns(ttl_ms)
    assert settle_ns(60_000) == 61_600 * NS_PER_MS, "the guard's delay"


def test_notice_is_a_fifth_of_the_ttl_but_never_more_than_five_seconds():
    assert notice_ns(10_000) == 2_000 * NS_PER_MS
    assert notice_ns(60_000) == notice_ns(25_000) == 5_000 * NS_PER_MS
