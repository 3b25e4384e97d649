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


@pytest.mark.parametrize(
    ("m1", "m2_and_m3", "agreeing"),
    [(None, FIRST, 0b111), (None, M1_ADMITTED_ANEW, 0b110), (State.COPIED, FIRST, 0b110)],
    ids=["it is away", "it is an old machine, and they know the new one", "it has no vote any more"],
)
def test_what_a_master_voted_before_counts_with_those_that_would_vote_together_with_it(
    voters: Voters, m1: State | None, m2_and_m3: list[Identity | None], agreeing: int
) -> None:
    voters.weigh([m1, State.UP, State.UP], [FIRST[0], *m2_and_m3[1:]], 100)
    assert (voters.voting, voters.agreeing) == (0b110, agreeing)


def test_no_vote_rests_on_a_clock_that_is_slewed_too_fast_and_that_is_named(voters: Voters) -> None:
    """Rule 11e: none from before either."""
    voters.own_clock = "this host's clock is slewed by 5000 ppm (1000 at most)"
    voters.weigh([None, State.UP, State.UP], FIRST, 100)
    assert (voters.voting, voters.barred, voters.agreeing) == (0, 0b111, 0)
    assert "slewed" in (voters.distrust[0] or "")


def test_a_master_that_is_stalled_is_asked_nothing_and_what_it_voted_before_counts(voters: Voters) -> None:
    """Rule 5."""
    voters.weigh([State.STALLED, State.UP, State.UP], FIRST, 100)
    assert (voters.up, voters.voting, voters.trusted) == (0b110, 0b110, 0b111)
