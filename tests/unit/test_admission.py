"""The steps by which a blank master is admitted, and one that was away brought up to date (rule 8)."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from lockd.core.admission import (
    Elsewhere,
    Numbered,
    Ready,
    Renumber,
    TooFewOthers,
    brought_up,
    current_members,
    next_step,
)
from lockd.core.identities import Identity, Members, voting_together
from lockd.core.membership import Wait
from lockd.core.validity import NS_PER_MS, settle_ns
from tests.harness.clocks import MS

NAMES = ("m1", "m2", "m3", "m4", "m5")
MEMBERS = Members.first(NAMES)
ALL = {
    i: Identity("prod", name, 60_000, cluster_id="ab" * 16, members=MEMBERS) for i, name in enumerate(NAMES)
}
OTHERS = {i: identity for i, identity in ALL.items() if identity.name != "m3"}
QUORUM = 3
SETTLED_MS = settle_ns(60_000) // NS_PER_MS


def after(number: int, *masters: int) -> dict[int, Identity]:
    """The others, of whom these were told the number of m3."""
    newer = MEMBERS.with_number("m3", number)
    return {i: of.with_members(newer) if i in masters else of for i, of in OTHERS.items()}


def step(
    others: dict[int, Identity],
    numbered: Numbered | None = None,
    now_ms: int = 0,
    blank_since_ms: int = 0,
    elsewhere: Elsewhere | None = None,
) -> Renumber | Wait | Ready:
    seen = elsewhere or Elsewhere()
    return next_step("m3", others, QUORUM, numbered, seen, blank_since_ms * MS, 60_000, now_ms * MS)


def seen(*lists: dict[int, Identity]) -> Elsewhere:
    """What an agent has seen that looked at these, one ms after the other."""
    elsewhere = Elsewhere()
    for ms, others in enumerate(lists):
        elsewhere.look("m3", others.values(), QUORUM, ms * MS)
    return elsewhere


def test_first_the_others_are_told_its_new_number() -> None:
    told = step(OTHERS)
    assert isinstance(told, Renumber)
    assert told.number == 2
    assert {str(members) for members in told.lists.values()} == {"m1:1 m2:1 m3:2 m4:1 m5:1"}
    assert sorted(told.lists) == [0, 1, 3, 4]


def test_then_a_max_ttl_is_waited_out_from_when_a_quorum_of_the_others_knew_it() -> None:
    """However long it has been blank: its old machine may have voted until then."""
    others, numbered = after(2, 0, 1, 3), Numbered(2, 500_000 * MS)
    assert step(others, numbered, now_ms=500_000) == Wait(SETTLED_MS, SETTLED_MS)
    assert step(others, numbered, now_ms=500_000 + SETTLED_MS - 1) == Wait(1, SETTLED_MS)
    settled_ms = 500_000 + SETTLED_MS
    ready = step(others, numbered, now_ms=settled_ms)
    assert isinstance(ready, Ready)
    assert (str(ready.members), ready.numbered) == ("m1:1 m2:1 m3:2 m4:1 m5:1", [0, 1, 3])
    seen_with_data = step(others, numbered, now_ms=settled_ms, blank_since_ms=settled_ms)
    assert seen_with_data == Wait(SETTLED_MS, SETTLED_MS), "it had data meanwhile"


def test_a_number_that_fewer_than_a_quorum_show_is_none_to_wait_for() -> None:
    """It was written on too few, or another agent has begun since: then this one begins anew."""
    for told in ((), (0,), (0, 4)):
        assert isinstance(step(after(2, *told), Numbered(2, 0), now_ms=SETTLED_MS), Renumber)
    begun_since = step(after(3, 0, 1, 3, 4), Numbered(2, 0), now_ms=SETTLED_MS)
    assert isinstance(begun_since, Renumber)
    assert begun_since.number == 4
    goes_on = step(after(2, 0, 1, 3), None)  # with what another began, and may have let a machine in by
    assert isinstance(goes_on, Renumber)
    assert goes_on.number == 3


def test_an_agent_that_has_seen_another_begin_lets_it_finish() -> None:
    """Two that are asked in turn would else take a number each, for ever."""
    begun = after(2, 0, 1, 3)
    other = seen(OTHERS, after(2, 0), after(2, 0, 1), begun)
    told = step(begun, now_ms=3, elsewhere=other)
    assert isinstance(told, Wait)
    assert told.remaining_ms > SETTLED_MS
    overdue = step(begun, now_ms=3 + SETTLED_MS + 10_000, elsewhere=other)
    assert isinstance(overdue, Renumber)
    assert overdue.number == 3
    passed = after(3, 0, 1, 3)
    assert isinstance(step(passed, Numbered(2, 0), elsewhere=seen(begun, passed)), Wait), "its own was passed"


class Agent:
    """One that is asked to admit m3, again and again; `told` is what the others show, to all agents."""

    def __init__(self, told: list[int]) -> None:
        self._told = told
        self._elsewhere = Elsewhere()
        self._numbered: Numbered | None = None

    def look(self, now_ms: int) -> None:
        self._elsewhere.look("m3", after(self._told[0], 0, 1, 3, 4).values(), QUORUM, now_ms * MS)

    def is_done(self, now_ms: int) -> bool:
        told = step(after(self._told[0], 0, 1, 3, 4), self._numbered, now_ms, elsewhere=self._elsewhere)
        if isinstance(told, Renumber):
            self._told[0] = told.number
            self._numbered = Numbered(told.number, now_ms * MS)
            self.look(now_ms)
            self._elsewhere.was_here()
        return isinstance(told, Ready)


@pytest.mark.parametrize("agents", [2, 3])
@pytest.mark.parametrize("every_s", [1, 60, 75, 300, 3_600])
def test_agents_asked_however_seldom_do_not_outbid_each_other_for_ever(agents: int, every_s: int) -> None:
    """Each is asked so often, in turn."""
    told = [1]
    all_of_them = [Agent(told) for _ in range(agents)]
    for agent in all_of_them:
        agent.look(0)
    for turn in range(1_000):
        now_ms = turn * every_s * 1_000 // agents
        if all_of_them[turn % agents].is_done(now_ms):
            break
        for agent in all_of_them:
            agent.look(now_ms)
    assert now_ms <= max(2 * SETTLED_MS, 10 * every_s * 1_000), f"its number is {told[0]}"


def test_what_was_so_when_an_agent_began_and_what_one_master_alone_shows_is_waited_for_by_nobody() -> None:
    begun = after(2, 0, 1, 3)
    assert seen(begun, begun).since_ns is None
    assert seen({0: OTHERS[0]}, begun).since_ns is None
    assert seen(OTHERS, after(99, 4), after(100, 4)).since_ns is None


def test_a_number_that_one_master_alone_shows_was_used_by_no_machine() -> None:
    """Nobody waited for it; one master may make up any."""
    liar = {**OTHERS, 4: OTHERS[4].with_members(MEMBERS.with_number("m3", 99_999_999))}
    told = step(liar)
    assert isinstance(told, Renumber)
    assert told.number == 2
    assert all(members.number_of("m3") == 2 for members in told.lists.values())


def test_admitting_needs_a_quorum_of_others_that_vote_together() -> None:
    with pytest.raises(TooFewOthers):
        step({i: OTHERS[i] for i in (0, 1)})


def test_each_number_that_a_quorum_was_told_is_known_to_two_of_every_quorum() -> None:
    for told in combinations(OTHERS, QUORUM):
        for asked in combinations(OTHERS, QUORUM):
            identities = after(2, *told)
            assert current_members(identities[i] for i in asked).number_of("m3") == 2


def test_who_was_away_is_brought_up_to_date_and_votes_with_the_new_one() -> None:
    others = after(2, 0, 1, 3)
    new = ALL[2].with_members(MEMBERS.with_number("m3", 2))
    voting = [others[0], others[1], new, others[3]]
    away = others[4]
    assert voting_together([*voting, away]) == 0b01111
    members = brought_up(away, voting)
    assert members is not None
    assert voting_together([*voting, away.with_members(members)]) == 0b11111
    others = after(2, 0, 1, 3, 4)
    assert brought_up(ALL[2], others.values()) is None, "an old machine never is"
    assert brought_up(replace(ALL[2], name="m1"), others.values()) is not None
