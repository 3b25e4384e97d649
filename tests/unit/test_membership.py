"""Who a master says it is, and whether that gives it a vote (rules 8 and 14)."""

from dataclasses import replace
from itertools import permutations

import pytest

from lockd.core.identities import Identity, Members
from lockd.core.membership import (
    Configured,
    Copying,
    MasterFacts,
    OtherMaster,
    State,
    TooFewReadings,
    Wait,
    highest_counters,
    judge,
    longest_possible_ttl_ms,
    wait_for_blank,
)
from tests.harness.clocks import MS

MOST = 1_700_000_000_000_000
NAMES = ("m1", "m2", "m3")
MEMBERS = Members.first(NAMES)
ME, M2, M3 = (Identity("prod", name, 60_000, cluster_id="ab" * 16, members=MEMBERS) for name in NAMES)
PROD = Configured("prod", NAMES)
SOUND = MasterFacts(
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
OTHERS = [OtherMaster("m2", "bb", M2), OtherMaster("m3", "cc", M3)]


def judged(facts: MasterFacts, others=OTHERS) -> tuple[State, str]:
    return judge("m1", PROD, facts, others)


BLANK = replace(SOUND, identity=None, keys=0)


@pytest.mark.parametrize(
    ("facts", "state", "says"),
    [
        (SOUND, State.UP, ""),
        (replace(SOUND, loading=True, identity=None), State.LOADING, "loading"),
        (replace(SOUND, settings={}), State.MISCONFIGURED, "appendfsync=? (must be always)"),
        (replace(SOUND, role="slave"), State.MISCONFIGURED, "slave"),
        (replace(SOUND, copying=Copying(replicas=1)), State.COPIED, "1 replicas are attached"),
        (BLANK, State.BLANK, "lockctl master admit m1"),
        (replace(BLANK, keys=3), State.UNIDENTIFIED, "3 keys"),
        (replace(SOUND, identity=replace(ME, cluster="staging")), State.FOREIGN, "staging"),
        (
            replace(SOUND, identity=replace(ME, cluster_id="cd" * 16)),  # from the same template
            State.FOREIGN,
            "another cluster of the same name ('prod'): its id is cdcdcdcd, that of m2 abababab",
        ),
        (
            replace(SOUND, identity=replace(ME, members=Members.first([*NAMES, "m4", "m5"]))),
            State.OTHER_MEMBERS,
            "has the masters m1, m2, m3, m4, m5; this agent's configuration has m1, m2, m3",
        ),
        (replace(SOUND, identity=replace(ME, format=1)), State.OTHER_FORMAT, "lockctl cluster upgrade"),
        (replace(SOUND, identity=replace(ME, format=3)), State.OTHER_FORMAT, "format 3"),
        (replace(SOUND, identity=replace(ME, format=3)), State.OTHER_FORMAT, "upgrade the agent"),
    ],
)
def test_a_master_has_a_vote_when_all_is_as_it_must_be_and_else_says_what_is_not(facts, state, says):
    judged_state, reason = judged(facts)
    assert judged_state is state
    assert says in reason
    assert bool(reason) == (state is not State.UP)


@pytest.mark.parametrize("setting", SOUND.settings)
def test_a_setting_that_breaks_a_promise_takes_the_vote_and_says_which(setting):
    state, reason = judged(replace(SOUND, settings={**SOUND.settings, setting: "other"}))
    assert state is State.MISCONFIGURED
    assert f"{setting}=other" in reason


@pytest.mark.parametrize("copying", [Copying(was_replica=True), Copying(known=True)])
@pytest.mark.parametrize("identity", [ME, None])
def test_a_promoted_copy_has_no_vote_until_it_was_wiped_also_after_a_restart(copying, identity):
    state, reason = judged(replace(SOUND, copying=copying, identity=identity, keys=0))
    assert state is State.COPIED
    assert "wipe its data" in reason


def test_a_master_that_shows_another_masters_identity_beside_that_one_is_a_copy_of_it():
    """Its address is right: to put it into the entry of that name would be the worst that one could do."""
    state, reason = judged(replace(SOUND, identity=M2))
    assert state is State.COPIED
    assert "it shows the identity of 'm2', which answers too" in reason
    mixed_up = [OtherMaster("m2", "bb", ME), OtherMaster("m3", "cc", M3)]
    for others in (mixed_up, mixed_up[1:]):
        state, reason = judged(replace(SOUND, identity=M2), others)
        assert state is State.MISPLACED
        assert "m2" in reason


def test_of_two_entries_that_lead_to_one_redis_the_one_it_is_named_after_keeps_its_vote():
    twin = [OtherMaster("m2", "aa", ME), OtherMaster("m3", "cc", M3)]
    assert judged(SOUND, twin)[0] is State.UP
    state, reason = judge("m2", PROD, SOUND, [OtherMaster("m1", "aa", ME)])
    assert state is State.DUPLICATE
    assert "m1" in reason
    for one, other in permutations(("m1", "m2")):
        assert judge(one, PROD, BLANK, [OtherMaster(other, "aa")])[0] is State.DUPLICATE, "none is"


def test_never_more_than_one_of_the_entries_that_lead_to_one_redis_has_a_vote():
    entries = ["m1", "m2", "m3"]
    for named in [*entries, "m9", None]:
        facts = replace(SOUND, identity=replace(ME, name=named) if named else None)
        ups = [
            e
            for e in entries
            if judge(e, PROD, facts, [OtherMaster(o, "aa", facts.identity) for o in entries if o != e])[0]
            is State.UP
        ]
        assert len(ups) <= 1


@pytest.mark.parametrize(
    ("admitted", "state", "says"),
    [
        ("m1", State.REPLACED, "admission 1, and 2 was admitted since"),
        ("m2", State.OUTDATED, "(m1:1 m2:1 m3:1; m2 is of admission 2): lockctl master admit m1"),
    ],
)
def test_who_does_not_show_the_last_admission_is_an_old_machine_or_was_away(admitted, state, says):
    lists = MEMBERS.with_number(admitted, 2)
    others = [
        OtherMaster("m2", "bb", M2.with_members(lists)),
        OtherMaster("m3", "cc", M3.with_members(lists)),
    ]
    judged_state, reason = judged(SOUND, others)
    assert judged_state is state
    assert says in reason
    assert judged(replace(SOUND, identity=ME.with_members(lists)), others)[0] is State.UP


def test_what_answers_in_other_entries_and_is_none_of_ours_has_no_say():
    strangers = [replace(M2, format=1, cluster_id=""), replace(M3, cluster="staging")]
    for stranger in strangers:
        others = [OtherMaster("m2", "bb", stranger), OtherMaster("m3", "cc", replace(stranger, name="m3"))]
        assert judged(SOUND, others)[0] is State.UP


def test_while_a_master_is_being_admitted_the_others_vote_with_whatever_list():
    """The operator may stop in the midst of it: nothing that is held or asked for is the worse for it."""
    others = [OtherMaster("m2", "bb", M2.with_members(MEMBERS.with_number("m3", 2)))]
    assert judged(SOUND, others)[0] is State.UP


@pytest.mark.parametrize(
    ("now_ns", "left_ms"), [(0, 61_600), (61_600 * MS - 1, 1), (61_600 * MS, 0), (10**15, 0)]
)
def test_a_blank_master_is_left_alone_until_every_lease_it_may_have_had_is_over(now_ns, left_ms):
    assert wait_for_blank([0], 60_000, now_ns) == Wait(left_ms, 61_600)
    assert wait_for_blank([0, now_ns, 0], 60_000, now_ns).remaining_ms == 61_600, "the last one decides"


def test_counters_begin_from_the_largest_that_a_quorum_of_others_shows():
    assert highest_counters([{1: 5, 2: 9}, {1: 7}, {3: 0}], 3, MOST) == {1: 7, 2: 9, 3: 0}
    assert highest_counters([{}, {}], 2, MOST) == {}
    with pytest.raises(TooFewReadings, match="3 are needed, 2 were read"):
        highest_counters([{1: 5}, {1: 7}], 3, MOST)


@pytest.mark.parametrize("wrong", [{1: MOST + 1}, {1: -1}, {1: 1 << 60}, {4096: 1}, {-1: 1}])
def test_a_master_with_a_wrong_counter_is_none_of_those_that_an_admitted_one_begins_from(wrong):
    assert highest_counters([{1: 5}, {1: 7}, wrong | {2: 9}], 2, MOST) == {1: 7}
    with pytest.raises(TooFewReadings, match="1 more with wrong counters"):
        highest_counters([{1: 5}, {1: 7}, wrong], 3, MOST)


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
