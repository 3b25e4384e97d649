"""Every row of the models is as expected: what must hold does in every state, and what a rule is for breaks
without it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.__main__ import main, table
from tests.model.rows import LEASES, ROWS, Row
from tests.model.search import missing_tools, search

missing = missing_tools()
needs_spin = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
STANDARD = [row for row in ROWS if not row.deep]
# More than half of the time of all rows.
LONG = {"leases", "extensions", "put-backs that land late", "no ceiling of the ttl", "progress"}


def case(row: Row) -> Any:
    marks = [pytest.mark.thorough] if row.name.lower() in LONG else []
    return pytest.param(row, id=row.name.replace(" ", "-"), marks=marks)


@needs_spin
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("row", [case(row) for row in STANDARD])
def test_row_is_as_expected(row: Row) -> None:
    outcome = search(row)
    assert outcome.as_expected, f"{table([outcome])}\n{outcome.unfinished}"


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
