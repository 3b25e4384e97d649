"""The table of attacks (tests/bench/attack): each row says what it does and how much may come of it, and a
bound that is broken is seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from tests.bench.attack import __main__ as program
from tests.bench.attack.bounds import EVERYWHERE, Bound, Figures, broken
from tests.bench.attack.row import Measured, Row, Sizes, spread
from tests.bench.attack.rows import ROWS
from tests.bench.attack.rows.nothing import NOTHING
from tests.bench.attack.table import Line

SIZES = (Sizes(), Sizes(full=True), Sizes(scale=0.1))
FIGURES = {"lost": 0, "of": 5, "failed": 0, "rss_before": 36.0, "rss_peak": 40.0, "rss_after": 37.0}
WELL = Measured(FIGURES, Counter(), load=0.5)


def line(*over: str) -> Line:
    return Line("a row", WELL, over)


def named(rows: Sequence[Row]) -> list[str]:
    return [row.name for row in rows]


@pytest.mark.parametrize("row", ROWS, ids=named(ROWS))
def test_each_row_says_in_a_sentence_what_is_done(row: Row) -> None:
    assert len(row.sentence.split()) > 5
    assert row.sentence.endswith(".")


@pytest.mark.parametrize("row", ROWS, ids=named(ROWS))
def test_each_row_bounds_what_victims_suffer_and_each_bound_has_a_reason(row: Row) -> None:
    for sizes in SIZES:
        bounds = {bound.figure: bound for bound in row.all_bounds(sizes)}
        assert bounds.keys() >= {bound.figure for bound in EVERYWHERE}
        assert all(len(bound.why.split()) > 3 for bound in bounds.values()), bounds
        assert row is NOTHING or "rss_grown" in bounds


@pytest.mark.parametrize("row", ROWS, ids=named(ROWS))
def test_each_row_but_the_first_has_an_attacker(row: Row) -> None:
    assert bool(row.attacks(Sizes())) == (row is not NOTHING)


def test_names_of_rows_differ_and_nothing_comes_first() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert ROWS[0] is NOTHING


def test_a_bound_is_broken_by_more_than_it_allows_and_by_no_figure_at_all() -> None:
    bound = Bound("lost", 2, "two may be")
    assert [bound.broken_by({"lost": found}, {}) for found in (0, 2, 3)] == [False, False, True]
    assert bound.broken_by({}, {})
    assert bound.broken_by({"lost": float("nan")}, {})


def test_what_nothing_takes_comes_on_top_only_where_a_bound_says_so() -> None:
    nothing: Figures = {"ping_p99": 40.0}
    beside, alone = (Bound("ping_p99", 30, "as it is", beside=on_top) for on_top in (True, False))
    assert broken([beside, alone], {"ping_p99": 65.0}, nothing) == ["ping_p99 65 > 30"]


def test_a_row_s_own_bound_takes_the_place_of_the_one_that_holds_everywhere() -> None:
    own = Bound("pair_p99", 1_000, "this one is slow")
    row = Row("slow", "It is slow.", lambda _: (), lambda _: (own,))
    assert [bound for bound in row.all_bounds(Sizes()) if bound.figure == "pair_p99"] == [own]


def test_the_exit_status_says_whether_a_bound_is_broken_or_a_row_was_not_measured() -> None:
    assert program.status_of([line(), line()]) == 0
    assert program.status_of([line(), line("lost 5 > 0")]) == 1
    assert program.status_of([line(), Line("a row", None, why_not="no")]) == 1


def test_a_broken_bound_ends_the_program_with_status_1_and_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "measured", lambda rows, sizes: [line(), line("lost 5 > 0")])
    done = CliRunner().invoke(program.main, [])
    assert done.exit_code == 1
    assert "OVER: lost 5 > 0" in done.output
    monkeypatch.setattr(program, "measured", lambda rows, sizes: [line()])
    assert CliRunner().invoke(program.main, []).exit_code == 0


def test_who_is_not_root_is_told_that_nothing_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1_000)
    done = CliRunner().invoke(program.main, ["--only", "log"])
    assert done.exit_code == 1
    assert done.output.count("NOT MEASURED: only root can be several users") == 2


def test_a_row_can_be_asked_for_by_a_word_and_is_shown_beside_nothing() -> None:
    assert named(program.chosen(["huge"])) == ["nothing", "huge names"]
    assert program.chosen([]) == list(ROWS)
    assert CliRunner().invoke(program.main, ["--only", "no such row"]).exit_code == 2


def test_of_what_took_a_time_the_middle_the_99th_and_the_longest_are_told() -> None:
    assert spread("pair", [n / 1e3 for n in range(101)]) == {"pair_p50": 50, "pair_p99": 99, "pair_max": 100}
    assert spread("pair", []) == {}
