"""Every row of the models is as expected: what must hold does in every state, and what a rule is for breaks
without it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import pytest

from tests.model.__main__ import main, table
from tests.model.rows import FENCES, LEASES, ROWS, TENURES, Row
from tests.model.search import missing_tools, search

missing = missing_tools()
needs_spin = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def case(row: Row) -> Any:
    marks = [pytest.mark.thorough] if row.slow else []
    return pytest.param(row, id=row.name.replace(" ", "-"), marks=marks)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Of what takes gigabytes, whatever workers there are."""
    with Path(tempfile.gettempdir(), "lockd-deep-search.lock").open("w") as turn:
        flock(turn, LOCK_EX)
        yield


# A search is limited by the processor time that it takes, and not by the time that passes.
@needs_spin
@pytest.mark.timeout(0)
@pytest.mark.parametrize("row", [case(row) for row in ROWS])
def test_row_is_as_expected(row: Row) -> None:
    with one_at_a_time() if row.deep else nullcontext():
        outcome = search(row)
    assert outcome.as_expected, f"{table([outcome])}\n{outcome.unfinished}"


def test_what_make_test_searches_breaks_each_rule_that_any_search_breaks() -> None:
    broken = [row for row in ROWS if row.broken]
    assert {row.rule for row in broken if not row.slow} == {row.rule for row in broken}
    for model in (LEASES, FENCES, TENURES):
        assert any(row.model == model and not row.broken and not row.slow for row in ROWS), model


@needs_spin
def test_a_wrong_expectation_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_too_soon = Row("wrong", "1", LEASES, "-DCRASHES=0 -DBREAKS=0 -DQUORUM_LESS_ONE")
    monkeypatch.setattr("tests.model.__main__.ROWS", (broken_too_soon,))
    assert main([]) == 1
    assert "WRONG" in capsys.readouterr().out


@needs_spin
def test_a_model_that_is_not_one_is_not_taken_for_proof() -> None:
    outcome = search(Row("wrong", "1", LEASES, "-DMASTERS=oops"))
    assert outcome.unfinished
    assert not outcome.as_expected


@needs_spin
def test_the_trail_tells_how_two_came_to_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trail", "no delay after a crash"]) == 0
    steps = capsys.readouterr().out
    assert "crashes and loses the lease" in steps
    assert steps.count("granted") == 2


def test_row_names_are_unique() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
