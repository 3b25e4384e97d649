"""What an agent notices when somebody lowers fence counters on a master."""

from __future__ import annotations

from dataclasses import replace

from lockd.core.counters import AT_ONCE, CountersSeen
from lockd.core.fences import BLOCK, SLOTS
from lockd.core.identities import Identity, Members
from lockd.core.membership import MasterFacts

MEMBERS = Members.first(["m1", "m2", "m3"])
IDENTITY = Identity("test", "m1", 60_000, cluster_id="7" * 32, members=MEMBERS)


def facts(counters: dict[int, int], identity: Identity | None = IDENTITY) -> MasterFacts:
    return MasterFacts("run", "7", "master", 2, identity, {}, counters=counters)


def test_a_counter_that_is_lower_than_it_was_is_noticed_once() -> None:
    seen = CountersSeen()
    assert seen.fallen(facts({1: 900, 2: 5})) == []
    assert seen.fallen(facts({1: 901, 2: 5})) == []
    assert seen.fallen(facts({1: 900, 2: 0})) == [1, 2]
    assert seen.fallen(facts({1: 900, 2: 0})) == []


def test_what_a_vote_has_named_counts_as_read() -> None:
    seen = CountersSeen()
    seen.fallen(facts({}))
    seen.named(3, 1_000)
    seen.named(3, 900)
    seen.next_slots()
    assert seen.fallen(facts({3: 1_000 + BLOCK - 1})) == []
    assert seen.fallen(facts({3: 1_000 + BLOCK - 2})) == [3]


def test_a_vote_that_is_heard_before_a_look_is_over_makes_no_counter_a_fallen_one() -> None:
    """The master gave it after it had read the counters, of which the rest of the look was still to come."""
    seen = CountersSeen()
    seen.fallen(facts({3: 900}))
    seen.next_slots()
    seen.named(3, 1_000)
    assert seen.fallen(facts({3: 900, 4: 5})) == []
    seen.next_slots()
    assert seen.fallen(facts({3: 1_000 + BLOCK - 2, 4: 4})) == [3, 4]


def test_a_machine_that_was_admitted_anew_counts_anew() -> None:
    seen = CountersSeen()
    seen.fallen(facts({1: 900}))
    assert seen.fallen(facts({1: 0}, replace(IDENTITY, members=MEMBERS.with_number("m1", 2)))) == []
    assert seen.fallen(facts({1: 0}, None)) == []


def test_the_admission_of_another_changes_nothing() -> None:
    seen = CountersSeen()
    seen.fallen(facts({1: 900}))
    assert seen.fallen(facts({1: 0}, replace(IDENTITY, members=MEMBERS.with_number("m2", 2)))) == [1]


def test_all_counters_are_read_in_turn() -> None:
    seen = CountersSeen()
    assert sorted(slot for _ in range(SLOTS // AT_ONCE) for slot in seen.next_slots()) == list(range(SLOTS))
    assert seen.next_slots()[0] == 0


def test_those_that_were_ahead_of_what_a_vote_asked_for_are_read_each_time() -> None:
    seen = CountersSeen()
    for slot in range(1_000, 1_000 + 2 * AT_ONCE):
        seen.named(slot, 5)
    seen.named(1_000 + AT_ONCE, 9)
    for _ in range(2):
        assert set(seen.next_slots()[AT_ONCE:]) == set(range(1_000 + AT_ONCE, 1_000 + 2 * AT_ONCE))
