"""Who a master says it is, and whether that gives it a vote (rules 8 and 14)."""

from dataclasses import replace

import pytest

from lockd.core.membership import (
    Facts,
    Identity,
    State,
    TooFewReadings,
    Wait,
    highest_counters,
    judge,
    longest_possible_ttl_ms,
    wait_for_blank,
)

MS = 1_000_000
MOST = 1_700_000_000_000_000
ME = Identity("prod", "m1", 60_000)
SOUND = Facts(
    run_id="aa",
    version="7.0.15",
    role="master",
    keys=12,
    identity=ME,
    settings={
        "appendonly": "yes",
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "no",
        "maxmemory-policy": "noeviction",
    },
)
OTHERS = [("m2", "bb"), ("m3", "cc")]


def judged(facts: Facts, others=OTHERS) -> tuple[State, str]:
    return judge("m1", "prod", facts, others)


def test_a_sound_master_has_a_vote_and_needs_no_reason():
    assert judged(SOUND) == (State.UP, "")


def test_a_loading_master_is_not_judged_further():
    assert judged(replace(SOUND, loading=True, identity=None))[0] is State.LOADING


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("no-appendfsync-on-rewrite", "yes"),
        ("maxmemory-policy", "allkeys-lru"),
    ],
)
def test_a_setting_that_breaks_a_promise_takes_the_vote_and_says_which(setting, value):
    state, reason = judged(replace(SOUND, settings={**SOUND.settings, setting: value}))
    assert state is State.MISCONFIGURED
    assert f"{setting}={value}" in reason


def test_a_setting_that_cannot_be_read_takes_the_vote():
    state, reason = judged(replace(SOUND, settings={}))
    assert state is State.MISCONFIGURED
    assert "appendfsync=? (must be always)" in reason


def test_a_replica_has_no_vote():
    state, reason = judged(replace(SOUND, role="slave"))
    assert state is State.MISCONFIGURED
    assert "slave" in reason


def test_a_blank_master_has_no_vote_and_says_how_it_gets_one():
    state, reason = judged(replace(SOUND, identity=None, keys=0))
    assert state is State.BLANK
    assert "lockctl master admit m1" in reason


def test_a_redis_with_data_but_no_identity_is_not_taken_for_blank():
    state, reason = judged(replace(SOUND, identity=None, keys=3))
    assert state is State.UNIDENTIFIED
    assert "3 keys" in reason


def test_another_clusters_master_has_no_vote():
    state, reason = judged(replace(SOUND, identity=replace(ME, cluster="staging")))
    assert state is State.FOREIGN
    assert "staging" in reason


def test_a_master_in_the_wrong_entry_has_no_vote():
    state, reason = judged(replace(SOUND, identity=replace(ME, name="m4")))
    assert state is State.MISPLACED
    assert "m4" in reason


def test_of_two_entries_that_lead_to_one_redis_the_one_it_is_named_after_keeps_its_vote():
    twin = [("m2", "aa"), ("m3", "cc")]
    assert judge("m1", "prod", SOUND, twin)[0] is State.UP
    state, reason = judge("m2", "prod", SOUND, [("m1", "aa")])
    assert state is State.DUPLICATE
    assert "m1" in reason


def test_two_entries_that_lead_to_one_blank_redis_are_both_duplicates():
    blank = replace(SOUND, identity=None, keys=0)
    assert judge("m1", "prod", blank, [("m2", "aa")])[0] is State.DUPLICATE
    assert judge("m2", "prod", blank, [("m1", "aa")])[0] is State.DUPLICATE


def test_never_more_than_one_of_the_entries_that_lead_to_one_redis_has_a_vote():
    entries = ["m1", "m2", "m3"]
    for named in [*entries, "m9", None]:
        facts = replace(SOUND, identity=replace(ME, name=named) if named else None)
        ups = [
            e
            for e in entries
            if judge(e, "prod", facts, [(o, "aa") for o in entries if o != e])[0] is State.UP
        ]
        assert len(ups) <= 1


def test_an_identity_is_read_from_its_fields():
    assert Identity.parse({"cluster": "prod", "name": "m1", "max_ttl_ms": "60000"}) == ME


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"cluster": "prod"},
        {"cluster": "prod", "name": "m1"},
        {"name": "m1", "max_ttl_ms": "60000"},
        {"cluster": "prod", "name": "m1", "max_ttl_ms": "x"},
        {"cluster": "prod", "name": "m1", "max_ttl_ms": "-1"},
        {"cluster": "prod", "name": "m1", "max_ttl_ms": ""},
        {"cluster": "prod", "name": "m1", "max_ttl_ms": "٣"},
    ],
)
def test_what_is_no_whole_identity_is_none(fields):
    assert Identity.parse(fields) is None


def test_a_blank_master_is_left_alone_until_every_lease_it_may_have_had_is_over():
    assert wait_for_blank([0], 60_000, 0) == Wait(61_600, 61_600)
    assert wait_for_blank([0], 60_000, 61_600 * MS - 1) == Wait(1, 61_600)
    assert wait_for_blank([0], 60_000, 61_600 * MS) == Wait(0, 61_600)


def test_the_last_master_seen_blank_decides():
    assert wait_for_blank([0, 5_000 * MS, 100], 60_000, 5_000 * MS).remaining_ms == 61_600


def test_a_wait_that_is_over_is_not_negative():
    assert wait_for_blank([0], 1_000, 10**15).remaining_ms == 0


def test_counters_begin_from_the_largest_that_any_other_master_shows():
    assert highest_counters([{1: 5, 2: 9}, {1: 7}, {3: 0}], 3, MOST) == {1: 7, 2: 9, 3: 0}
    assert highest_counters([{}, {}], 2, MOST) == {}


def test_counters_of_fewer_than_a_quorum_of_others_are_not_enough():
    with pytest.raises(TooFewReadings, match="3 are needed, 2 were read"):
        highest_counters([{1: 5}, {1: 7}], 3, MOST)


@pytest.mark.parametrize("wrong", [{1: MOST + 1}, {1: -1}, {1: 1 << 60}, {4096: 1}, {-1: 1}])
def test_a_master_with_a_wrong_counter_is_none_of_those_that_an_admitted_one_begins_from(wrong):
    assert highest_counters([{1: 5}, {1: 7}, wrong | {2: 9}], 2, MOST) == {1: 7}
    with pytest.raises(TooFewReadings, match="1 more with wrong counters"):
        highest_counters([{1: 5}, {1: 7}, wrong], 3, MOST)


@pytest.mark.parametrize(
    "ceiling", ["0", "-1", "86400001", "1000000000000000", "", "6e4", "\u0663", "1" * 400]
)
def test_an_identity_with_a_ttl_that_no_configuration_allows_is_none(ceiling):
    assert Identity.parse({"cluster": "c", "name": "m1", "max_ttl_ms": ceiling}) is None


def test_a_former_ceiling_that_makes_no_sense_is_not_waited_for():
    fields = {"cluster": "c", "name": "m1", "max_ttl_ms": "60000", "was_max_ttl_ms": "9" * 15}
    identity = Identity.parse(fields)
    assert identity is not None
    assert identity.longest_ttl_ms == 60_000


@pytest.mark.parametrize(
    ("ceilings", "longest"),
    [
        ([60, 60, 60, 60, 86_400_000], 60),
        ([60, 60, 60, 86_400_000, 86_400_000], 60),
        ([60, 90, 90, 90, 60], 90),
        ([60, 60, 60, 90], 60),
        ([60, 60, 90], 90),
        ([60], 60),
    ],
)
def test_a_lease_is_no_longer_than_a_quorum_may_allow(ceilings, longest):
    """One that isn't known may allow anything that another does."""
    assert longest_possible_ttl_ms(ceilings, 5) == longest


def test_after_the_ceiling_was_lowered_leases_from_before_may_still_live():
    fields = {"cluster": "prod", "name": "m1", "max_ttl_ms": "5000"}
    assert Identity.parse(fields).longest_ttl_ms == 5_000
    lowered = Identity.parse({**fields, "was_max_ttl_ms": "60000"})
    assert (lowered.max_ttl_ms, lowered.longest_ttl_ms) == (5_000, 60_000)
