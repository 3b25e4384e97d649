"""What an hour of mixed use (tests/bench/soak) makes of its figures, and that it uses every command."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import islice

import pytest

from tests.bench.soak.__main__ import LEAST_DONE, MOST_FAILED, report, wrong_with
from tests.bench.soak.curve import FIRST_PART, MOST_GROWN_MIB, Sample, grown_mib, picture, settled
from tests.bench.soak.work import Done, in_some_order
from tests.harness.uses import USES

MINUTES = 60
WELL = Done(uses=10_000)


def curve(mib: Callable[[float], float]) -> list[Sample]:
    """A sample each ten seconds, as a share of the hour gives it."""
    return [Sample(at * 10.0, mib(at / (MINUTES * 6))) for at in range(1, MINUTES * 6 + 1)]


FLAT = curve(lambda _: 50.0)


def test_what_grows_all_the_time_fails() -> None:
    growing = curve(lambda share: 50.0 + 2 * MOST_GROWN_MIB * share)
    assert grown_mib(growing) == pytest.approx(2 * MOST_GROWN_MIB * (1 - FIRST_PART), rel=0.01)
    [wrong] = wrong_with(growing, WELL)
    assert wrong.startswith("memory grows: 6.4 MiB")


def test_what_grows_first_and_then_stays_is_well() -> None:
    assert wrong_with(curve(lambda share: 40.0 + 100.0 * min(share, FIRST_PART / 2)), WELL) == []


def test_what_goes_up_and_down_is_well() -> None:
    noise = random.Random(1)
    assert wrong_with(curve(lambda _: 50.0 + noise.uniform(-3, 3)), WELL) == []


def test_what_grows_under_noise_fails() -> None:
    noise = random.Random(1)
    assert wrong_with(curve(lambda share: 50.0 + 8 * share + noise.uniform(-3, 3)), WELL)


def test_a_few_samples_say_nothing() -> None:
    for samples in ([], FLAT[:2]):
        [wrong] = wrong_with(samples, WELL)
        assert "too few samples" in wrong
        assert list(report(samples, WELL, [wrong]))[-1] == wrong


def test_use_that_was_not_done_or_that_failed_fails() -> None:
    assert wrong_with(FLAT, WELL) == []
    assert wrong_with(FLAT, Done())
    assert wrong_with(FLAT, Done(uses=1_000, skipped=int(1_100 / LEAST_DONE) - 1_000))
    assert wrong_with(FLAT, Done(uses=1_000, failures=Counter(it=int(1_000 * MOST_FAILED)))) == []
    assert wrong_with(FLAT, Done(uses=1_000, failures=Counter(it=int(1_000 * MOST_FAILED) + 1)))


def test_the_picture_marks_what_is_not_looked_at() -> None:
    lines = list(picture(FLAT))
    assert len(lines) <= 30
    assert lines[0].endswith("·")
    assert lines[-1].endswith("█")
    assert len(settled(FLAT)) == pytest.approx(len(FLAT) * (1 - FIRST_PART), abs=1)


def test_each_round_has_every_use_in_it_and_slow_ones_in_few() -> None:
    quick = {name for name, use in USES.items() if not use.slow}
    uses = in_some_order(operator=True, seed=1)
    assert {use.name for use in islice(uses, len(USES))} == set(USES)
    second = [use.name for use in islice(uses, len(quick))]
    assert set(second) == quick
    assert second != [use.name for use in islice(uses, len(quick))]


def test_who_is_no_operator_does_what_apps_may() -> None:
    may = {name for name, use in USES.items() if not use.by_operator}
    assert {use.name for use in islice(in_some_order(operator=False, seed=1), len(may))} == may
