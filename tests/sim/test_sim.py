"""The simulator: it is deterministic, and finds nothing where all rules are in place. What it finds where one
is taken out: test_mutations.py.

Nothing here goes by the time that passes, so that a run says the same on any machine. `make test` runs the
seeds of THE_SEARCH and some that no day before has run, `make test-all` those of THE_LONG_SEARCH and more of
the day as well, and `make sim HOURS=8` others, for as long as one likes. A seed that breaks a promise is said
with the command that runs it again. It comes into ONCE_RED, and is run each time from then on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import count, islice, pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockd.core import notices
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
from tests.sim.__main__ import try_seed
from tests.sim.cluster import Cluster, Outcome, run
from tests.sim.plain import PlainApp
from tests.sim.plan import SHARED, Fault, Greed, Kind, Plan, Shape, draw, of_today, theme_of, themes
from tests.sim.shrink import shrink, story

A_FEW = range(140)
THE_SEARCH = range(215, 285)
"""Half a minute of processor time. They draw every theme, every kind of fault and every shape: see below."""
THE_LONG_SEARCH = range(1_000, 2_800)
"""Ten minutes of processor time."""
ON_SHARED_HOSTS = range(SHARED, SHARED + 14)
"""A quarter of a minute of processor time."""
LONG_ON_SHARED_HOSTS = range(SHARED + 14, SHARED + 134)
OF_THE_DAY, LONG_OF_THE_DAY = range(50), range(50, 1_850)
ON_SHARED_HOSTS_OF_THE_DAY, LONG_ON_SHARED_HOSTS_OF_THE_DAY = range(10), range(10, 130)
"""Places among the seeds of the day: a run that goes on past midnight has the same tests."""
ONCE_RED = {
    900225: "a list that was asked again by its token of the next agent could not be withdrawn",
    399566: "an extension that a dead agent had under way landed late, and was taken for a living one's",
    2096: "what was handed on, and told to nobody, was expected to end by the TTL of the first one",
    401470: "a renewal that was read after its host stood still was taken to last longer by that time",
}
# Only for what hangs: a run that does not end is broken off by the processor time it takes, and told.
pytestmark = pytest.mark.timeout(3_600)


def parts(seeds: range, size: int) -> list[range]:
    """For workers side by side."""
    return [seeds[at : at + size] for at in range(0, len(seeds), size)]


def shown(seeds: range) -> str:
    return f"{seeds.start}-{seeds.stop - 1}"


def keeps_all_promises(seeds: Collection[int]) -> None:
    grants = 0
    for seed in seeds:
        result = try_seed(seed)
        assert not result.promises, (
            f"{result.failure}{', '.join(result.promises)} broken: python -m tests.sim --seed {seed}"
            " (once that is mended, keep the seed in ONCE_RED)"
        )
        grants += result.grants
    assert grants > 10 * len(seeds)


def of_the_day(places: range, first: int = 0) -> range:
    seeds = of_today(places.start, len(places))
    return range(first + seeds.start, first + seeds.stop)


@pytest.mark.parametrize("seed", ONCE_RED)
def test_a_seed_that_broke_a_promise_once_breaks_none(seed: int) -> None:
    keeps_all_promises([seed])


@pytest.mark.parametrize("seeds", parts(THE_SEARCH, 20), ids=shown)
def test_no_seed_breaks_a_promise(seeds: range) -> None:
    keeps_all_promises(seeds)


@pytest.mark.parametrize("seeds", parts(ON_SHARED_HOSTS, 4), ids=shown)
def test_no_seed_breaks_a_promise_on_a_host_that_greedy_accounts_share(seeds: range) -> None:
    keeps_all_promises(seeds)


@pytest.mark.parametrize("places", parts(OF_THE_DAY, 10), ids=shown)
def test_no_seed_of_the_day_breaks_a_promise(places: range) -> None:
    keeps_all_promises(of_the_day(places))


@pytest.mark.parametrize("places", parts(ON_SHARED_HOSTS_OF_THE_DAY, 5), ids=shown)
def test_no_seed_of_the_day_breaks_a_promise_on_a_shared_host(places: range) -> None:
    keeps_all_promises(of_the_day(places, SHARED))


def test_each_day_has_seeds_of_its_own_and_none_is_of_a_shared_host(monkeypatch: pytest.MonkeyPatch) -> None:
    firsts = set()
    for days in range(450):
        today = SimpleNamespace(today=partial(date.fromordinal, 740_000 + days))
        monkeypatch.setattr("tests.sim.plan.date", today)
        seeds = of_the_day(range(LONG_OF_THE_DAY.stop))
        assert THE_LONG_SEARCH.stop <= seeds.start < seeds.stop <= SHARED
        firsts.add(seeds.start)
    assert len(firsts) == 450
    assert min(b - a for a, b in pairwise(sorted(firsts))) >= LONG_OF_THE_DAY.stop


def test_of_greedy_accounts_all_is_drawn_that_they_can_do() -> None:
    shapes = [draw(seed).shape for seed in ON_SHARED_HOSTS]
    assert {greed for shape in shapes for greeds in shape.greedy for greed in greeds} == set(Greed)
    assert {len(shape.greedy) for shape in shapes} == {1, 2, 3}
    assert {bool(draw(seed).faults) for seed in ON_SHARED_HOSTS} == {False, True}


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", parts(LONG_ON_SHARED_HOSTS, 20), ids=shown)
def test_no_seed_of_a_long_search_breaks_a_promise_on_a_shared_host(seeds: range) -> None:
    keeps_all_promises(seeds)


@pytest.mark.thorough
@pytest.mark.parametrize("places", parts(LONG_ON_SHARED_HOSTS_OF_THE_DAY, 20), ids=shown)
def test_no_seed_of_a_long_search_of_the_day_breaks_a_promise_on_a_shared_host(places: range) -> None:
    keeps_all_promises(of_the_day(places, SHARED))


@pytest.mark.thorough
@pytest.mark.parametrize("places", parts(LONG_OF_THE_DAY, 100), ids=shown)
def test_no_seed_of_a_long_search_of_the_day_breaks_a_promise(places: range) -> None:
    keeps_all_promises(of_the_day(places))


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", parts(THE_LONG_SEARCH, 100), ids=shown)
def test_no_seed_of_a_long_search_breaks_a_promise(seeds: range) -> None:
    keeps_all_promises(seeds)


SHAPES: dict[str, Callable[[Shape], bool]] = {
    "three masters": lambda shape: shape.masters == 3,
    "five masters": lambda shape: shape.masters == 5,
    "two agents": lambda shape: shape.agents == 2,
    "three agents": lambda shape: shape.agents == 3,
    "leases of half a second": lambda shape: shape.max_ttl_ms == 500,
    "leases of ten seconds": lambda shape: shape.max_ttl_ms == 10_000,
    "messages lost": lambda shape: shape.loss > 0,
    "a lock delay": lambda shape: shape.lock_delay_ms > 0,
    "no guard": lambda shape: not shape.guarding.enabled,
    "clocks that no guard watches": lambda shape: shape.guarding.steps_seen_after_ms is None,
    "disks that lie": lambda shape: shape.guarding.synced_ms > 0,
    "masters to be formed": lambda shape: not shape.formed and not shape.old_format,
    "masters of the old format": lambda shape: shape.old_format,
    "two operators": lambda shape: shape.operators == 2,
    "all ask together": lambda shape: shape.beat_ms > 0,
    "crowds": lambda shape: shape.crowded and not shape.taking_turns,
    "turns, and exact notices": lambda shape: shape.taking_turns and not shape.notices,
    "turns, and wrong notices": lambda shape: shape.taking_turns and shape.notices > 0,
    "tenures that are kept": lambda shape: shape.keep_ms > 0 and not shape.crowded,
    "tenures of crowds that are kept": lambda shape: shape.keep_ms > 0 and shape.crowded,
    "pools": lambda shape: shape.pools,
    "lists and slots": lambda shape: shape.joint,
    "values of their own": lambda shape: shape.plain,
    "values of their own, and wrong notices": lambda shape: shape.plain and shape.notices > 0,
}


def test_the_search_draws_every_theme_every_kind_of_fault_and_every_shape() -> None:
    plans = [draw(seed) for seed in THE_SEARCH]
    assert {theme_of(seed) for seed in THE_SEARCH} == set(range(len(themes())))
    assert {fault.kind for plan in plans for fault in plan.faults} == set(Kind)
    for name, has in SHAPES.items():
        assert any(has(plan.shape) for plan in plans), name


def test_a_search_goes_on_for_so_many_cluster_minutes() -> None:
    command = [sys.executable, "-m", "tests.sim", "--minutes", "6", "--jobs", "2", "--from", "7", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    tally = json.loads(done.stdout)
    assert (tally["first"], tally["broken"], tally["violations"]) == (7, [], {})
    assert tally["simulated_s"] > 6 * 60
    assert 0 < tally["runs"] < 20
    assert tally["grants"] > tally["runs"]


def test_a_run_is_a_function_of_its_seed():
    first, again = run(draw(7)), run(draw(7))
    assert [str(event) for event in first.history] == [str(event) for event in again.history]
    assert [str(event) for event in run(draw(8)).history] != [str(event) for event in first.history]


@pytest.mark.parametrize("seed", [7, 1_000, 401_470])
def test_another_process_runs_the_same_with_that_seed(seed: int) -> None:
    """Where sets are in another order, too: of the last one, the agent once took accounts in that order."""
    command = [sys.executable, "-m", "tests.sim", "--seed", str(seed)]
    here = [str(event) for event in run(draw(seed)).history]
    for order in ("1", "5", "4711"):
        there = subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": order}, capture_output=True, text=True, check=True
        )
        assert there.stdout.splitlines()[:-1] == here


def test_a_session_lock_is_kept_up_to_its_max_hold_when_nothing_goes_wrong():
    ends = Counter[bool]()
    for seed in range(17):
        plan = draw(seed)
        # A pool may close a connection behind a reply of which nobody can tell whether it was read, and who
        # has the same value may release it through another agent.
        shape = replace(plan.shape, loss=0, pools=False, joint=False, plain=False)
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


def with_a_standstill_under_a_dead_agent(plan: Plan) -> Plan:
    """And a clock that is slewed then: it moves the deadlines that apps believe in."""
    nothing_else = replace(plan.shape.guarding, max_ttl_ms=10_000, steps_seen_after_ms=20, enabled=True)
    shape = replace(
        plan.shape, masters=5, agents=2, busy_agents=2, apps=6, resources=1, ttls_ms=(5_000, 10_000),
        guarding=nothing_else, drifts_ppm=(0,) * 7, master_offs_ns=(0,) * 5, agent_offs_ns=(0, 0), loss=0,
        hold_ms=(2_000, 9_000), think_ms=(100, 1_000), chaos_ms=36_000, forgets=0.9, plain=True,
        joint=False, pools=False,
    )  # fmt: skip
    faults = []
    for at_ms in range(4_000, 30_000, 8_000):
        faults += [
            Fault(at_ms, Kind.CRASH_AGENT, 0, 0, 6_000),
            Fault(at_ms + 50, Kind.STAND_STILL, 0, 0, 2_500),
            Fault(at_ms + 2_700, Kind.SLEW_AGENT, 0, 0, 2_000, 2_000),
        ]
    return replace(plan, shape=shape, faults=tuple(faults))


def test_that_a_host_stood_still_under_a_dead_agent_who_has_a_lease_with_a_ttl_cannot_know() -> None:
    """No journal has that lease: its app believes in it for too long, as docs/explanation/guarantees.md says.
    What it believes is no promise: this was once taken for two holders."""
    assert run(with_a_standstill_under_a_dead_agent(draw(3))).violations == []


def with_apps_that_read_after_a_standstill(plan: Plan) -> Plan:
    """They stand still before their host does, and go on with it."""
    faults: list[Fault] = []
    for at_ms in range(4_000, 60_000, 7_000):
        faults += [Fault(at_ms, Kind.PAUSE_APP, app, 0, 1_000) for app in range(4)]
        faults.append(Fault(at_ms + 300, Kind.STAND_STILL, 0, 0, 4_000))
    return replace(plan, faults=tuple(faults))


@pytest.mark.parametrize("seed", [1, 19, 23, 25])
def test_a_renewal_that_is_read_after_the_host_stood_still_lasts_no_longer_for_that(seed: int) -> None:
    """By true time: what its app believes by its own clock is no promise. This was once taken for two
    holders."""
    assert run(with_apps_that_read_after_a_standstill(draw(seed))).violations == []


@pytest.mark.parametrize(
    ("detached", "said_released", "ends_ns", "is_known"),
    [(True, False, 2, True), (True, False, 1, False), (True, True, 2, False), (False, False, 1, True)],
)
def test_a_release_by_value_is_of_no_certain_lease_where_its_agent_asks_the_masters(
    detached: bool, said_released: bool, ends_ns: int, is_known: bool
) -> None:
    """Another may have that value there by now: what it loses so is no agent's fault."""
    holder = SimpleNamespace(detached=detached)
    lease = SimpleNamespace(
        holder=holder, said_gone=notices.Kind.RELEASED if said_released else None, deadline_ns=ends_ns
    )
    agent = SimpleNamespace(locks=SimpleNamespace(known=lambda _resource, _token: lease))
    found = PlainApp._known(cast("Any", None), cast("Any", agent), b"r", b"1", 1)
    assert found is (lease if is_known else None)


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
