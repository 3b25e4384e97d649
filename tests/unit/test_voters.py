"""Whose votes count, and with whose."""

import pytest

from lockd.core.clocks import Clocks
from lockd.core.identities import Identity, Members
from lockd.core.membership import State
from lockd.core.voters import Voters

NAMES = ("m1", "m2", "m3")


def identities_with(members: Members) -> list[Identity | None]:
    return [Identity("prod", name, 1_000, cluster_id="ab" * 16, members=members) for name in NAMES]


FIRST = identities_with(Members.first(NAMES))
M1_ADMITTED_ANEW = identities_with(Members.of({"m1": 2, "m2": 1, "m3": 1}))


@pytest.fixture
def voters() -> Voters:
    clocks = Clocks(3, max_ttl_ms=1_000, allowance_ms=100)
    for watch in clocks.watches:
        watch.observe(0, 100, 1_000)
    return Voters(clocks)


def test_what_a_master_voted_counts_also_when_it_is_away_by_then(voters: Voters) -> None:
    voters.weigh([None, State.UP, State.UP], FIRST, 100)
    assert (voters.voting, voters.agreeing) == (0b110, 0b111)


def test_what_an_old_machine_voted_does_not_count_with_the_votes_of_those_that_know_the_new_one(
    voters: Voters,
) -> None:
    voters.weigh([None, State.UP, State.UP], [FIRST[0], *M1_ADMITTED_ANEW[1:]], 100)
    assert (voters.voting, voters.agreeing) == (0b110, 0b110)


def test_what_was_voted_by_a_clock_that_is_not_trusted_any_more_does_not_count(voters: Voters) -> None:
    voters.own_clock = "it is slewed"
    voters.weigh([None, State.UP, State.UP], FIRST, 100)
    assert voters.agreeing == 0


def test_a_master_that_answers_and_has_no_vote_has_none_from_before_either(voters: Voters) -> None:
    voters.weigh([State.COPIED, State.UP, State.UP], FIRST, 100)
    assert voters.agreeing == 0b110


def test_a_master_that_is_stalled_is_asked_nothing_more_and_what_it_was_asked_before_counts(
    voters: Voters,
) -> None:
    """Rule 5."""
    voters.weigh([State.STALLED, State.UP, State.UP], FIRST, 100)
    assert (voters.up, voters.voting, voters.trusted) == (0b110, 0b110, 0b111)
