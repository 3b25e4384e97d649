"""Which masters' clocks may be trusted (rule 11c)."""

import pytest

from lockd.core.clocks import Clocks
from lockd.core.fences import COUNTER_AHEAD_US, SANE_MOST
from tests.harness.clocks import MS, S

MAX_TTL_MS = 60_000
SETTLE_S = 62
"""A little more than settle_ns(MAX_TTL_MS)."""


class Watch:
    """Five masters whose clocks an agent reads once a second, over a round trip of 0.2 ms."""

    def __init__(self, masters: int = 5) -> None:
        self.clocks = Clocks(masters, max_ttl_ms=MAX_TTL_MS, allowance_ms=100)
        self.now_ns = 1000 * S
        self.ahead_us = [1_700_000_000_000_000] * masters

    def sample(self, *masters: int, rtt_ns: int = 200_000) -> list[bool]:
        chosen = masters or range(len(self.ahead_us))
        changed = []
        for m in chosen:
            master_us = (self.now_ns - rtt_ns // 2) // 1000 + self.ahead_us[m]
            seen = self.clocks.watches[m].observe(self.now_ns - rtt_ns, self.now_ns, master_us)
            if seen:
                self.clocks.look_into_jumps(self.now_ns)
            changed.append(seen)
        return changed

    def go_on(self, seconds: float, *masters: int, every_s: float = 1.0) -> None:
        end_ns = self.now_ns + int(seconds * S)
        while self.now_ns < end_ns:
            self.now_ns = min(end_ns, self.now_ns + int(every_s * S))
            self.sample(*masters)

    def trusted(self) -> list[int]:
        return [m for m in range(len(self.ahead_us)) if self.clocks.distrust(m, self.now_ns) is None]

    def why(self, master: int) -> str:
        return self.clocks.distrust(master, self.now_ns) or ""


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def settled(watch: Watch) -> Watch:
    """An agent that has watched all for longer than a max TTL."""
    watch.sample()
    watch.go_on(SETTLE_S)
    return watch


@pytest.mark.parametrize(
    ("ahead_us", "trusted"), [((0, 0), [3, 4]), ((99_000, -99_000), [3, 4]), ((101_000, 0), [4])]
)
def test_a_fresh_agent_trusts_masters_that_agree_with_their_median_within_the_allowance(
    watch, ahead_us, trusted
):
    for master, us in zip((3, 4), ahead_us, strict=True):
        watch.ahead_us[master] += us
    watch.sample()
    assert watch.trusted() == [0, 1, 2, *trusted]
    assert watch.why(3) == "" or "+0.101 s off the median" in watch.why(3)


def test_a_fresh_agent_that_sees_fewer_than_a_quorum_can_compare_nothing(watch):
    watch.sample(0, 1)
    assert watch.trusted() == []
    assert "fewer than a quorum" in watch.why(0)
    watch.sample(2)
    assert watch.trusted() == [0, 1, 2]


@pytest.mark.parametrize("ceiling", [1, 2])
def test_a_steady_offset_is_harmless_once_it_was_watched_for_a_max_ttl(watch, ceiling):
    """For twice as long where the masters have twice the ceiling: other agents may hold leases as long."""
    watch.ahead_us[3] += 3_600_000_000
    watch.clocks.allow_for(ceiling * MAX_TTL_MS)
    watch.sample()
    watch.go_on(ceiling * SETTLE_S - 3)
    assert 3 not in watch.trusted()
    watch.go_on(3)
    for said_ms, trusted in ((ceiling * MAX_TTL_MS, True), (86_400_000, False), (1_000, True)):
        watch.clocks.allow_for(said_ms)
        assert (3 in watch.trusted()) == trusted, "it is waited for no longer than it is said"


@pytest.mark.parametrize("back_us", [0, 5_000_000])
def test_a_jump_forward_takes_the_vote_for_a_max_ttl_also_when_the_clock_is_set_right(settled, back_us):
    settled.ahead_us[2] += 5_000_000
    settled.now_ns += S
    assert settled.sample() == [False, False, True, False, False]
    assert settled.trusted() == [0, 1, 3, 4]
    assert "clock jumped forward by 4.998 s" in settled.why(2)
    settled.ahead_us[2] -= back_us
    settled.go_on(SETTLE_S - 2)
    assert 2 not in settled.trusted()
    settled.go_on(2)
    assert settled.trusted() == [0, 1, 2, 3, 4]


def test_a_jump_of_what_every_lease_gives_away_is_tolerated_and_of_more_is_not(settled):
    """However short the leases of other agents are: those of 10 ms give away 2 ms and a little."""
    settled.ahead_us[0] += 1_700
    settled.ahead_us[1] += 2_500
    settled.now_ns += 10 * MS
    settled.sample()
    assert settled.trusted() == [0, 2, 3, 4]


@pytest.mark.parametrize(("jumps", "slowest_ms"), [(20, 1), (60, 7)])
def test_many_small_jumps_are_found_as_surely_as_a_large_one(settled, jumps, slowest_ms):
    """Also where round trips of many lengths hide them."""
    for i in range(jumps):
        settled.ahead_us[4] += 500
        settled.now_ns += 100 * MS
        settled.sample(rtt_ns=(1 + i % slowest_ms) * MS)
    assert settled.trusted() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("ppm", "seconds", "trusted"), [(500, 4_000, 5), (-500, 4_000, 5), (1_900, 4_000, 5), (3_000, 30, 4)]
)
def test_the_drift_of_an_honest_clock_is_tolerated_for_hours_and_faster_is_a_jump(
    settled, ppm, seconds, trusted
):
    for _ in range(seconds):
        settled.ahead_us[1] += ppm
        settled.go_on(1)
    assert settled.trusted() == ([0, 1, 2, 3, 4] if trusted == 5 else [0, 2, 3, 4])
    assert (settled.clocks.watches[1].jumps == 0) == (trusted == 5)


def test_a_clock_that_goes_backwards_only_keeps_leases_longer_and_keeps_its_vote_until_it_is_back(settled):
    settled.ahead_us[1] -= 30_000_000
    settled.go_on(1)
    assert -30_001_000 < settled.clocks.off_median_us(1, settled.now_ns) < -29_999_000
    settled.go_on(4)
    assert settled.trusted() == [0, 1, 2, 3, 4]
    settled.ahead_us[1] += 30_000_000
    settled.go_on(2)
    assert 1 not in settled.trusted()
    assert settled.clocks.watches[1].jumps == 1


def test_slow_answers_are_no_jump_and_hide_none_that_is_larger_than_their_uncertainty(settled):
    for rtt_ms in (1, 200, 5, 900, 1, 400):
        settled.now_ns += S
        settled.sample(rtt_ns=rtt_ms * MS)
    assert settled.trusted() == [0, 1, 2, 3, 4]
    settled.ahead_us[0] += 1_000_000
    settled.now_ns += S
    settled.sample(0, rtt_ns=800 * MS)
    assert 0 not in settled.trusted()


def test_a_master_that_was_not_watched_for_a_while_is_trusted_by_the_median_as_on_a_fresh_agent(settled):
    settled.go_on(6, 0, 1, 2, 3)
    assert settled.trusted() == [0, 1, 2, 3]
    assert settled.why(4) == "clock not watched yet"
    assert settled.sample() == [False, False, False, False, True]
    assert settled.trusted() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("jump_us", [4_000_000, 60_000])
def test_a_jump_within_a_gap_is_found_also_when_the_median_would_allow_it(settled, jump_us):
    settled.ahead_us[4] += jump_us
    settled.go_on(6, 0, 1, 2, 3)
    settled.sample()
    assert settled.trusted() == [0, 1, 2, 3]
    settled.go_on(6, 0, 1, 2, 3)
    settled.sample()
    assert "jumped forward" in settled.why(4), "and another gap does not lift the bar"
    settled.go_on(SETTLE_S)
    assert settled.trusted() == [0, 1, 2, 3, 4]


def test_the_drift_of_an_honest_clock_within_a_long_gap_is_no_jump(settled):
    settled.ahead_us[4] += 300_000
    settled.go_on(600, 0, 1, 2, 3)
    settled.sample()
    assert settled.clocks.watches[4].jumps == 0


def test_the_offset_of_a_master_is_from_the_median_of_all_that_were_seen(watch):
    """Which one that is far off does not move."""
    watch.ahead_us[4] += 10**12
    offsets = []
    for seen in ((), (0,), range(5)):
        for master in seen:
            watch.sample(master)
        offsets.append([watch.clocks.off_median_us(master, watch.now_ns) for master in (0, 1, 4)])
    assert offsets == [[None] * 3, [0, None, None], [0, 0, 10**12]]


@pytest.mark.parametrize("seen", [(), (0, 3)], ids=["of all", "of two"])
def test_the_largest_sane_fence_is_a_day_ahead_of_the_median_whatever_one_clock_shows(watch, seen):
    assert watch.clocks.largest_sane_fence(watch.now_ns) == SANE_MOST
    watch.ahead_us[3] = 1 << 51
    watch.sample(*seen)
    watch.clocks.take_median(watch.now_ns)
    median_us = watch.clocks.median_us(watch.now_ns)
    assert abs(median_us - (watch.now_ns // 1000 + watch.ahead_us[0])) < 1_000
    assert watch.clocks.largest_sane_fence(watch.now_ns) == median_us + COUNTER_AHEAD_US


def test_one_slow_answer_does_not_make_a_good_clock_look_far_off(watch):
    watch.sample()
    watch.now_ns += S
    master_us = (watch.now_ns - 100_000) // 1000 + watch.ahead_us[2]
    watch.clocks.watches[2].observe(watch.now_ns - 900 * MS, watch.now_ns, master_us)
    assert watch.trusted() == [0, 1, 2, 3, 4]


def test_a_jump_too_small_for_the_median_costs_the_vote_for_as_long_as_any_other():
    watch = Watch()
    watch.go_on(30)
    watch.ahead_us[1] += 50_000
    watch.sample()
    for _ in range(SETTLE_S - 3):
        watch.go_on(1)
        assert watch.trusted() == [0, 2, 3, 4]
    watch.go_on(3)
    assert watch.trusted() == [0, 1, 2, 3, 4]


# This host's own


def test_what_waits_for_a_max_ttl_waits_anew_while_this_hosts_clock_is_slewed(settled):
    """Rule 11e: it may show that a max TTL has passed before it has."""
    settled.ahead_us[2] += 5_000_000
    settled.go_on(SETTLE_S - 2)
    settled.clocks.wait_anew(settled.now_ns)
    settled.go_on(SETTLE_S - 2)
    assert settled.trusted() == [0, 1, 3, 4], "what was over before stays over"
    settled.go_on(2)
    assert settled.trusted() == [0, 1, 2, 3, 4]


def test_a_clock_that_is_off_is_watched_anew_while_this_hosts_clock_is_slewed(watch):
    watch.ahead_us[3] += 3_600_000_000
    watch.sample()
    watch.go_on(SETTLE_S - 2)
    watch.clocks.wait_anew(watch.now_ns)
    watch.go_on(SETTLE_S - 2)
    assert 3 not in watch.trusted()
    watch.go_on(2)
    assert 3 in watch.trusted()
