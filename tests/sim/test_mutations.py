"""The simulator misses each rule that is taken out: by a seed that is written down for it, in one run.

Where that seed finds nothing any more, because the product or the drawing of plans has changed, others are
tried, of a fixed number of cluster-minutes: a warning says then how to write the record anew.
"""

from __future__ import annotations

import ast
import warnings
from dataclasses import asdict
from functools import cache

import pytest

from tests.sim import __main__ as sim
from tests.sim import mutated, mutations
from tests.sim.__main__ import Result
from tests.sim.mutated import ROOT, Breach, Search, Seen
from tests.sim.mutation_list import CONTROL, MUTATIONS, Edit, Mutation, one
from tests.sim.mutations import hunt, recorded

BUDGET_MINUTES = 500
"""Of a cluster, less than two minutes of processor time: of what few seeds find, --record tries more."""
SIMULATED = [mutation for mutation in MUTATIONS if mutation.simulated]
# Only for what hangs.
pytestmark = pytest.mark.timeout(3_600)


class StaleRecord(UserWarning):
    """found_by.json no longer has a seed that finds a mutation, at its first place."""


def is_missed(mutation: Mutation, minutes: float = BUDGET_MINUTES) -> None:
    found = hunt(mutation, minutes)
    anew = f"python -m tests.sim.mutations --record --only '{mutation.name}'"
    assert found.promise is not None, f"no seed of {minutes} cluster-minutes finds it; to try more: {anew}"
    if found.stale:
        told = f"'{mutation.name}' is found by seed {found.seed}, and not by the one in found_by.json: {anew}"
        warnings.warn(StaleRecord(told), stacklevel=2)


@pytest.mark.parametrize("mutation", SIMULATED, ids=lambda mutation: mutation.name)
def test_a_rule_that_is_taken_out_is_missed(mutation: Mutation) -> None:
    is_missed(mutation)


BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}
QUORUM = BY_NAME["quorum off by one"]
RARE = BY_NAME["no drift allowance"]
"""What few seeds find, and not the first one."""


def test_a_record_that_is_stale_is_told_with_the_command_that_writes_it_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stale = {RARE.name: (0, *recorded()[RARE.name]), QUORUM.name: ()}
    monkeypatch.setattr(mutations, "recorded", lambda: stale)
    for mutation in (RARE, QUORUM):
        with pytest.warns(StaleRecord, match=f"--record --only '{mutation.name}'"):
            is_missed(mutation)


def test_where_nothing_is_taken_out_nothing_is_found() -> None:
    with pytest.raises(AssertionError, match="no seed of 4 cluster-minutes finds it"):
        is_missed(CONTROL, minutes=4)


@pytest.mark.parametrize(
    ("breaks_anyway", "found"),
    [((), ("exclusion", "taken")), (("exclusion",), ("taken",)), (("exclusion", "taken"), ())],
)
def test_a_promise_that_a_seed_breaks_with_nothing_taken_out_is_not_found(
    monkeypatch: pytest.MonkeyPatch, breaks_anyway: tuple[str, ...], found: tuple[str, ...]
) -> None:
    """Else a fresh seed that is red finds whatever is taken out."""

    def control(asked: Search) -> Seen:
        assert (asked.edits, asked.seeds) == ((), (4711,))
        return Seen([Breach(4711, breaks_anyway, 1)] if breaks_anyway else [])

    monkeypatch.setattr(mutated, "search_without", control)
    monkeypatch.setattr(sim, "try_seed", lambda seed: Result(seed, 60.0, 1, 0, ("exclusion", "taken")))
    seen = mutated.searched(asdict(Search(QUORUM.edits, (4711,))))
    assert seen.breaches == ([Breach(4711, found, 0)] if found else [])


@pytest.mark.parametrize("broken", ["masters // 0", "return_"])
def test_a_mutation_that_breaks_the_program_is_not_taken_for_found(broken: str) -> None:
    edit = QUORUM.edits[0]
    with pytest.raises(RuntimeError, match="the mutated program failed"):
        hunt(one("broken", 1, edit.file, edit.old, broken), minutes=4)


def test_each_rule_has_a_record_that_is_of_a_mutation_there_is() -> None:
    assert list(recorded()) == [mutation.name for mutation in SIMULATED]


@cache
def source(file: str) -> str:
    return (ROOT / file).read_text()


def mutated_sources(edits: tuple[Edit, ...]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for edit in edits:
        texts[edit.file] = edit.made_in(texts.get(edit.file, source(edit.file)))
    return texts


def test_every_mutation_still_fits_the_sources() -> None:
    for mutation in (CONTROL, *MUTATIONS):
        for file, text in mutated_sources(mutation.edits).items():
            if file.endswith(".py"):
                ast.parse(text, file)
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 20


def test_every_mutation_is_one_of_the_product_or_of_the_world() -> None:
    """And not of a copy of the product: where the simulator has a model, the product has the mutation too."""
    of_the_world = {f"tests/sim/{part}.py" for part in ("link", "network")}
    for mutation in MUTATIONS:
        files = {edit.file for edit in mutation.edits}
        assert any(file.startswith("lockd/") for file in files) or files <= of_the_world, mutation.name
