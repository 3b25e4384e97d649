"""The simulator: it is deterministic, it finds what is broken on purpose, and it finds nothing else.

LOCKD_SIM_SECONDS says how long the search takes, LOCKD_SIM_MINUTES how many cluster-minutes are simulated for
each rule that is taken out: `make test` has less of both. `make sim HOURS=8` goes on longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice

import pytest

from tests.harness.history import (
    Answered,
    Asked,
    Claimed,
    Granted,
    HungUp,
    Landed,
    Lost,
    LostUntold,
    Moved,
    Refused,
    ReleasedByValue,
    Removed,
    TakenBack,
    TakenOver,
    Tried,
)
from tests.harness.history import Fault as Noted
from tests.sim import __main__ as sim
from tests.sim.__main__ import search
from tests.sim.cluster import Cluster, Outcome, run
from tests.sim.mutation_list import MUTATIONS, Mutation
from tests.sim.mutations import copy_to, hunt
from tests.sim.plan import Fault, Kind, Plan, draw
from tests.sim.shrink import shrink, story

SECONDS = float(os.environ.get("LOCKD_SIM_SECONDS", "120"))
ALL_MINUTES = 2_000
MINUTES = float(os.environ.get("LOCKD_SIM_MINUTES", ALL_MINUTES))
A_FEW = range(140)
# They only reckon, for half a minute: with others beside them, that may be many times as long.
pytestmark = pytest.mark.timeout(1_200)


@pytest.mark.timeout(SECONDS + 120)
def test_no_seed_breaks_a_promise():
    tally = search(0, SECONDS, os.cpu_count() or 1)
    assert not tally.broken, f"python -m tests.sim --seed {tally.broken[0]}"
    assert tally.grants > tally.runs


def test_a_run_is_a_function_of_its_seed():
    first, again = run(draw(7)), run(draw(7))
    assert [str(event) for event in first.history] == [str(event) for event in again.history]
    assert [str(event) for event in run(draw(8)).history] != [str(event) for event in first.history]


def test_another_process_runs_the_same_with_that_seed():
    """Where sets are in another order, too."""
    command = [sys.executable, "-m", "tests.sim", "--seed", "7"]
    there = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": "4711"}, capture_output=True, text=True, check=True
    )
    assert there.stdout.splitlines()[:-1] == [str(event) for event in run(draw(7)).history]


def test_a_session_lock_is_kept_up_to_its_max_hold_when_nothing_goes_wrong():
    ends = Counter[bool]()
    for seed in range(30):
        plan = draw(seed)
        # A pool may close a connection behind a reply of which nobody can tell whether it was read.
        shape = replace(plan.shape, loss=0, pools=False, joint=False)
        history = run(replace(plan, faults=(), shape=shape)).history
        asked = {event.request: event for event in history if isinstance(event, Asked)}
        granted = {event.token: event for event in history if isinstance(event, Granted)}
        for lost in (event for event in history if isinstance(event, Lost)):
            grant = granted[lost.token]
            held_ms = (lost.deadline_ns - (grant.tried_ns or 0)) / 1_000_000
            ends[held_ms >= (asked[grant.request].max_hold_ms or 0) - 30] += 1
    assert ends[True] > 50
    assert ends[False] == 0


def test_a_run_in_which_the_rules_fail_or_never_end_is_found_with_its_seed(monkeypatch):
    def fails(_plan):
        raise KeyError("a bug in core")

    def goes_round(_plan):
        while True:
            pass

    monkeypatch.setattr(sim, "_RUN_CPU_S", 0.05)
    for bug, promise in ((fails, "runs"), (goes_round, "ends")):
        monkeypatch.setattr(sim, "run", bug)
        result = sim.try_seed(4711)
        assert (result.seed, result.promises) == (4711, (promise,))
        assert bug.__name__ in result.failure


def test_the_machine_that_takes_a_masters_place_is_another_one_in_histories():
    """Else a release that comes to the one seems to overtake what is under way to the other."""
    plan = draw(7)
    replaced = Fault(5_000, Kind.OLD_MACHINE, 0, 0, 9_000)
    history = run(replace(plan, faults=(replaced,), shape=replace(plan.shape, loss=0))).history
    assert {"m1", "m1.2"} <= {event.master for event in history if isinstance(event, Landed)}


def seeds_with(kind: Kind) -> Iterator[int]:
    return (seed for seed in count() if any(fault.kind is kind for fault in draw(seed).faults))


@pytest.mark.thorough
def test_every_kind_of_fault_is_made_and_leases_are_granted_and_lost_meanwhile():
    made: set[Kind] = set()
    events: Counter[type] = Counter()

    def play(seed: int) -> None:
        history = run(draw(seed)).history
        events.update(type(event) for event in history)
        noted = [event.what for event in history if isinstance(event, Noted)]
        made.update(kind for kind in Kind if any(kind in what for what in noted))

    for seed in A_FEW:
        play(seed)
    for kind in set(Kind) - made:  # the rare ones, by the first seeds that draw them
        for seed in islice(seeds_with(kind), 3):
            play(seed)
    assert made == set(Kind)
    assert events[Granted] > 1_000
    assert events[Lost] > 50


@pytest.mark.thorough
def test_clients_lose_replies_ask_again_by_their_token_and_outlive_their_agent():
    seen: Counter[str] = Counter()
    for plan in (plan for plan in map(draw, A_FEW) if plan.shape.pools):
        history = run(plan).history
        held = {event.token for event in history if isinstance(event, Granted)}
        answers = Counter(event.token for event in history if isinstance(event, Answered))
        hung_up = [event.alone for event in history if isinstance(event, HungUp)]
        seen["hung up"] += hung_up.count(True)
        seen["hung up behind other commands"] += hung_up.count(False)
        seen["answered, and not read"] += sum(token not in held for token in answers)
        seen["answered twice"] += sum(number > 1 for number in answers.values())
        seen["taken over"] += sum(isinstance(event, TakenOver) for event in history)
    assert len(seen) == 5
    assert min(seen.values()) > 10, seen


@pytest.mark.thorough
def test_apps_lock_lists_and_slots_and_lose_take_back_and_share_what_they_wait_with():
    seen: Counter[str] = Counter()
    for plan in (plan for plan in map(draw, A_FEW) if plan.shape.joint):
        history = run(plan).history
        asked = {event.request: event for event in history if isinstance(event, Asked)}
        lists = {number for number, event in asked.items() if event.whole}
        granted = [event.request for event in history if isinstance(event, Granted)]
        claimed = {(event.request, event.token) for event in history if isinstance(event, Claimed)}
        answered = {(event.request, event.token) for event in history if isinstance(event, Answered)}
        sharing = Counter(token for number, token in claimed if number in lists)
        seen["of a list"] += sum(number in lists for number in granted)
        seen["a slot"] += sum(bool(asked[number].among) for number in granted)
        seen["given back, as the rest was not had"] += len(
            {one for one in claimed if one[0] in lists} - answered
        )
        seen["had by two requests of one name"] += sum(number > 1 for number in sharing.values())
        seen["lost while the rest was waited for"] += sum(isinstance(event, LostUntold) for event in history)
        seen["taken back"] += sum(isinstance(event, TakenBack) for event in history)
    assert len(seen) == 6
    assert min(seen.values()) > 5, seen


@pytest.mark.thorough
def test_apps_with_values_of_their_own_poll_and_release_through_other_agents_and_take_from_each_other():
    seen: Counter[str] = Counter()
    for plan in (plan for plan in map(draw, A_FEW) if plan.shape.plain):
        history = run(plan).history
        polls = {event.request for event in history if isinstance(event, Asked) and "plain" in event.app}
        tried = {event.token: event for event in history if isinstance(event, Tried)}
        seen["granted"] += sum(isinstance(event, Granted) and event.request in polls for event in history)
        seen["refused"] += sum(isinstance(event, Refused) and event.request in polls for event in history)
        gone = [event for event in history if isinstance(event, Removed) and event.word]
        seen["released by its value elsewhere"] += len(gone)
        seen["by an agent of another host"] += sum(
            event.token in tried and event.host[:6] != tried[event.token].host[:6] for event in gone
        )
        seen["whosever it was"] += sum(isinstance(event, ReleasedByValue) for event in history)
        seen["shortened"] += sum(isinstance(event, Moved) for event in history)
    assert len(seen) == 6
    assert min(seen.values()) > 20, seen


def without_a_guard(seed: int) -> Plan:
    """A plan whose disks lie, and whose masters vote again at once after a crash."""
    plan = draw(seed)
    shape = plan.shape
    return replace(
        plan, shape=replace(shape, guarding=replace(shape.guarding, enabled=False, synced_ms=1_500))
    )


def broken_without_a_guard() -> Outcome:
    for seed in range(200):
        outcome = run(without_a_guard(seed))
        if any(violation.promise == "exclusion" for violation in outcome.violations):
            return outcome
    raise AssertionError("no seed breaks exclusion, although crashed masters vote at once")


@pytest.mark.thorough
def test_a_failure_is_shrunk_to_what_it_takes_and_told_as_a_story():
    outcome = broken_without_a_guard()
    small = shrink(outcome)
    assert 0 < len(small.plan.faults) <= len(outcome.plan.faults)
    assert any(violation.promise == outcome.violations[0].promise for violation in small.violations)
    told = story(small)
    assert f"seed {outcome.plan.seed}" in told
    assert "==>" in told.splitlines()[-1]
    for fault in small.plan.faults:
        # Each of those that are left is needed.
        rest = replace(small.plan, faults=tuple(f for f in small.plan.faults if f is not fault))
        assert not any(v.promise == outcome.violations[0].promise for v in run(rest).violations)


def with_all_clocks_set_forward(plan: Plan) -> Plan:
    """Every lease ends early on all masters at once, and the agents have just started: lockd can't see it."""
    shape = replace(plan.shape, guarding=replace(plan.shape.guarding, steps_seen_after_ms=None, synced_ms=0))
    faults = []
    for at_ms in range(8_000, shape.chaos_ms - 5_000, 20_000):
        faults += [Fault(at_ms, Kind.STEP_MASTER, m, 0, 100, 60_000_000_000) for m in range(shape.masters)]
        faults += [Fault(at_ms + 100, Kind.CRASH_AGENT, 0, agent, 200) for agent in range(shape.agents)]
    return replace(plan, shape=shape, faults=tuple(faults))


@pytest.mark.thorough
def test_fences_keep_their_order_where_exclusion_is_broken_on_purpose():
    broken: Counter[str] = Counter()
    for seed in range(60):
        cluster = Cluster(with_all_clocks_set_forward(draw(seed)), grave_for_all=True)
        broken.update(violation.promise for violation in cluster.run().violations)
    assert broken["exclusion"] > 20
    assert broken["fences"] == broken["stale writes"] == 0


@pytest.mark.thorough
def test_a_resource_that_looks_at_no_fences_is_written_to_by_stale_holders():
    stale = 0
    for seed in A_FEW:
        violations = Cluster(draw(seed), store_checks_fences=False).run().violations
        stale += sum(violation.promise == "stale writes" for violation in violations)
    assert stale > 0


def test_every_mutation_still_fits_the_sources(tmp_path):
    for number, mutation in enumerate(MUTATIONS):
        folder = tmp_path / str(number)
        copy_to(folder)
        for edit in mutation.edits:
            edit.apply(folder)
            if edit.file.endswith(".py"):
                compile((folder / edit.file).read_text(), edit.file, "exec")
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 20


def test_every_mutation_is_one_of_the_product_or_of_the_world():
    """And not of a copy of the product: where the simulator has a model, the product has the mutation too."""
    of_the_world = {f"tests/sim/{part}.py" for part in ("link", "network")}
    for mutation in MUTATIONS:
        files = {edit.file for edit in mutation.edits}
        assert any(file.startswith("lockd/") for file in files) or files <= of_the_world, mutation.name


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("mutation", [one for one in MUTATIONS if one.simulated], ids=lambda one: one.name)
def test_a_rule_that_is_taken_out_is_missed(mutation: Mutation):
    """Seeds and budgets are fixed, so what is found once is found again, however slow the machine."""
    found = hunt(mutation, MINUTES)
    if found.promise is None and MINUTES < ALL_MINUTES:
        pytest.skip("none of the first seeds finds it: `make test-ci` tries more")
    assert found.promise is not None
