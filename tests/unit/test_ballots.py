"""What the masters' answers add up to."""

from itertools import permutations, product

import pytest

from lockd.core.ballots.attempt import Attempt, AttemptOutcome
from lockd.core.ballots.extension import Extension, ExtensionOutcome
from lockd.core.ballots.fence_round import FenceOutcome, FenceRound
from lockd.core.ballots.gone import Gone
from lockd.core.ballots.release import Release, ReleaseOutcome
from lockd.core.refusals import no_quorum
from tests.harness.ballots import a_fence_round, a_release, an_attempt, an_extension
from tests.harness.fleet_model import Fleet, Time, masters_of

FENCE = 1_000
ALL = 0b11111
N = 5
QUORUM = 3


class Settled:
    """Notes how often a ballot settles."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, ballot, now_ns: int) -> None:
        self.times += 1


def asked(ballot, masters: int = ALL):
    ballot.put_to(masters)
    return ballot


def attempt(masters: int = ALL, **other) -> Attempt:
    return asked(an_attempt(**other), masters)


def fence_round(**other) -> FenceRound:
    return asked(a_fence_round(2_000, **other))


def extension(proven: int = ALL, **other) -> Extension:
    before = attempt()
    before.proof.masters = proven
    return asked(an_extension(ttl_ms=10_000, last=before.proof, **other))


def release(masters: int = ALL, **other) -> Release:
    return asked(a_release(**other), masters)


def say(ballot, master: int, what: str) -> None:
    """One master's answer: y(es), t(aken), o (taken by another), s(ilent), u(nheeded yes), x (a taken that
    doesn't count)."""
    if what == "s":
        ballot.unanswered(master, "down", 1)
        return
    status, counts = {"y": (1, True), "t": (0, True), "o": (0, True), "u": (1, False), "x": (0, False)}[what]
    holder_nonce = (what.encode() * 32,) if what in "to" and isinstance(ballot, Attempt) else ()
    ballot.answered(master, status, FENCE if status else 700, counts, 1, *holder_nonce)


def all_say(ballot, votes) -> None:
    for master, vote in enumerate(votes):
        say(ballot, master, vote)


def right_outcome(votes) -> AttemptOutcome:
    yes = sum(v == "y" for v in votes)
    seen = [v for v in votes if v in "yto"]
    if yes >= QUORUM:
        return AttemptOutcome.GRANTED
    if len(seen) < QUORUM:
        return AttemptOutcome.NO_QUORUM
    # What nobody has heard of may be anybody's.
    unknown = N - len(seen)
    may_hold = any(seen.count(other) + unknown >= QUORUM for other in "to" if other in seen)
    return AttemptOutcome.TAKEN if may_hold else AttemptOutcome.SPLIT


def could_end(votes, heard) -> set[AttemptOutcome]:
    """All outcomes that are possible still, whatever the masters not heard yet will say."""
    open_ones = [m for m in range(N) if m not in heard]
    ends = set()
    for rest in product("ytos", repeat=len(open_ones)):
        whole = list(votes)
        for master, vote in zip(open_ones, rest, strict=True):
            whole[master] = vote
        ends.add(right_outcome(whole))
    return ends


# Every combination of votes; of the 120 orders of arrival, those that differ for it.
COMBINATIONS = ["".join(votes) for votes in product("ytos", repeat=N)]
ORDERS = list(permutations(range(N)))


def distinct_orders(votes):
    seen = set()
    for order in ORDERS:
        shape = "".join(votes[m] for m in order)
        if shape not in seen:
            seen.add(shape)
            yield order


@pytest.mark.parametrize("hollow", ["s", "u", "x"])
def test_every_vote_in_every_order_comes_to_what_a_count_of_voters_says(hollow):
    """Never TAKEN without a quorum of voters and one who may have a quorum, never NO_QUORUM with a quorum of
    voters, never YES without a quorum of yes. What does not count is as good as silence (rules 8, 11, 14)."""
    for votes in COMBINATIONS:
        for order in distinct_orders(votes):
            settled = Settled()
            ballot = attempt(settled=settled)
            for master in order:
                say(ballot, master, hollow if votes[master] == "s" else votes[master])
            assert (ballot.outcome, settled.times) == (right_outcome(votes), 1), (votes, order)


def test_every_vote_settles_with_the_very_answer_that_makes_its_outcome_certain():
    certain: dict[tuple[int, ...], set[AttemptOutcome]] = {}
    # Whose vote it is makes no difference: every order of each combination comes to all of them.
    for votes in sorted({"".join(sorted(votes)) for votes in COMBINATIONS}):
        for order in distinct_orders(votes):
            asked = attempt()
            for turn, master in enumerate(order, 1):
                say(asked, master, votes[master])
                heard = order[:turn]
                shape = (*(sum(votes[m] == v for m in heard) for v in "ytos"),)
                ends = certain.setdefault(shape, could_end(votes, heard))
                expected = next(iter(ends)) if len(ends) == 1 else None
                assert asked.outcome is expected, (votes, order, turn)


def test_running_out_of_time_in_any_state_counts_those_not_heard_as_silent():
    for votes in COMBINATIONS:
        for heard in range(N + 1):
            settled = Settled()
            asked = attempt(settled=settled)
            for master in range(heard):
                say(asked, master, votes[master])
            before = asked.outcome
            asked.time_out(2)
            expected = right_outcome(votes[:heard] + "s" * (N - heard))
            assert asked.outcome is (expected if before is None else before)
            assert settled.times == 1


@pytest.mark.parametrize(
    ("votes", "masters", "yes", "landed"),
    [("yyyyt", ALL, 0b01111, 0b01111), ("ytsu", ALL, 0b00001, 0b11101), ("y", 0b00111, 0b00001, 0b00111)],
)
def test_a_try_may_have_landed_wherever_it_was_sent_and_no_no_was_heard(votes, masters, yes, landed):
    """Also what was answered after the quorum."""
    ballot = attempt(masters)
    all_say(ballot, votes)
    assert (ballot.yes, ballot.landed) == (yes, landed)


@pytest.mark.parametrize(
    ("status", "reason"), [(-1, "no identity"), (-2, "ttl above its ceiling"), (-3, "fence counter is wrong")]
)
def test_a_master_that_refuses_for_its_own_reasons_is_no_voter_and_says_why(status, reason):
    asked = attempt()
    for master in range(3):
        asked.answered(master, status, 0, True, 1)
    assert asked.outcome is AttemptOutcome.NO_QUORUM
    assert asked.silent[0] == reason
    assert asked.landed == 0b11000


def test_a_master_that_falls_silent_twice_or_after_its_answer_changes_nothing():
    asked = attempt()
    say(asked, 0, "y")
    asked.unanswered(0, "down", 1)
    asked.unanswered(1, "down", 1)
    asked.unanswered(1, "again", 1)
    assert asked.silent == {1: "down"}
    assert asked.yes == 1


@pytest.mark.parametrize(
    ("named", "fence"),
    [([7, 7, 7], 7), ([9, 5, 5, 5], 5), ([1, 2, 2], None), ([2, 2, 1], None), ([1, 2, 3], None)],
)
def test_the_fence_is_what_a_quorum_named_by_votes_that_count(named, fence):
    ballot = attempt()
    for master, value in enumerate(named):
        ballot.answered(master, 1, value, True, 1)
    ballot.answered(4, 1, 7, False, 1)
    assert (ballot.agreed_fence(), list(ballot.fences)) == (fence, named)


@pytest.mark.parametrize(("left_ms", "after_ms"), [([900, 100, 500], 500), ([0, 0, 0], 1)])
def test_retry_after_is_when_enough_of_the_others_leases_will_have_ended(left_ms, after_ms):
    asked = attempt()
    asked.answered(0, 1, FENCE, True, 1)
    for master, ms in enumerate(left_ms, 1):
        asked.answered(master, 0, ms, True, 1)
    assert asked.outcome is AttemptOutcome.TAKEN
    assert asked.retry_after_ms() == after_ms
    assert attempt().retry_after_ms() == 1, "at least a millisecond"


def test_a_refusal_gives_a_reason_for_each_master_that_had_no_say_and_only_for_those():
    fleet = Fleet(Time(), masters_of(Time(), N))
    assert "too late" in no_quorum(attempt(), fleet, N).text, "by time alone"
    fleet.links[4].break_off()
    asked = attempt(masters=0b01111)
    say(asked, 0, "y")
    say(asked, 1, "t")
    asked.unanswered(2, "connection lost", 1)
    asked.time_out(2)
    refusal = no_quorum(asked, fleet, N)
    assert str(refusal) == "NOQUORUM m3=connection-lost m4=no-answer-in-time m5=down:-connection-lost"


# Second rounds of a fence


def test_a_proposal_needs_a_quorum_of_acceptances_that_count():
    table = {
        FenceOutcome.ACCEPTED: ["yyy", "yytty"],
        FenceOutcome.OUTBID: ["ttt", "yyttt", "yytss"],
        FenceOutcome.NO_QUORUM: ["sss", "yysss", "yyuuu"],
    }
    told = {votes: outcome for outcome, some in table.items() for votes in some}
    for votes in (*told, *map("".join, product("ytsu", repeat=N))):
        settled = Settled()
        proposal = fence_round(settled=settled)
        all_say(proposal, votes)
        assert proposal.outcome is told.get(votes, proposal.outcome)
        assert (proposal.outcome is FenceOutcome.ACCEPTED) == (votes.count("y") >= QUORUM)
        assert (settled.times, proposal.highest) == (1, 700 if "t" in votes else 0)


# Extensions


def extended(votes: str, **known) -> Extension:
    """y(es), p(ut back), t (another's), m(issing), s(ilent), u(nheeded), i (no identity)"""
    ballot = extension(**known)
    status = {"y": 1, "p": 2, "t": 0, "m": 3, "u": 1, "i": -1}
    for master, vote in enumerate(votes):
        if vote == "s":
            ballot.unanswered(master, "down", 1)
        else:
            ballot.answered(master, status[vote], 10_000, vote != "u", 1)
    return ballot


def test_an_extension_is_proven_by_a_quorum_that_kept_the_lease_all_the_time():
    table = {
        ExtensionOutcome.PROVEN: ["yyy"],
        ExtensionOutcome.GONE: ["yyttt", "mmm", "ppp", "yyppp"],
        ExtensionOutcome.NO_QUORUM: ["yysss", "yyuuu", "iii"],
    }
    told = {votes: outcome for outcome, some in table.items() for votes in some}
    for votes in (*told, *map("".join, product("ypmsu", repeat=N))):
        outcome = extended(votes).outcome
        assert outcome is told.get(votes, outcome)
        assert (outcome is ExtensionOutcome.PROVEN) == (votes.count("y") >= QUORUM)


@pytest.mark.parametrize("votes", ["smm", "msm", "ssmm", "stt"])
def test_whether_it_is_held_at_all_is_not_called_an_outage_before_all_are_heard_that_may_say_so(votes: str):
    """By another agent than its own. Its own knows, and has no time to lose."""
    assert extended(votes, mark=b"").outcome is None
    assert extended(votes, mark=b"p1").outcome is ExtensionOutcome.NO_QUORUM
    assert extended(votes + "m", mark=b"").outcome is ExtensionOutcome.GONE
    assert extended((votes + "sss")[:N], mark=b"").outcome is ExtensionOutcome.NO_QUORUM


def test_a_master_that_lost_the_lease_and_got_it_back_is_reported_and_stays_distrusted():
    ballot = extended("ppyyy")
    assert ballot.outcome is ExtensionOutcome.PROVEN
    assert (ballot.confirmed, ballot.gone.mask) == (0b11100, 0b00011)
    gone = Gone()
    extended("psssm", gone=gone)
    ballot = extended("yyyss", gone=gone)
    assert ballot.outcome is not ExtensionOutcome.PROVEN
    assert ballot.confirmed == 0b00110


def test_what_one_extension_found_gone_does_not_count_for_another_that_is_under_way():
    gone = Gone()
    first, second = extension(gone=gone), extension(gone=gone)
    for master in (0, 1):
        first.answered(master, 2, 10_000, True, 1)
        second.answered(master, 1, 10_000, True, 1)
    second.answered(2, 1, 10_000, True, 1)
    assert second.confirmed == 0b00100
    assert second.outcome is None


@pytest.mark.parametrize(
    ("answers_ms", "lasts_ms"), [([9_000, 4_000, 12_000], 4_000), ([9_000, 4_000, 12_000, 8_000], 8_000)]
)
def test_an_extension_lasts_as_long_as_a_quorum_keeps_it(answers_ms, lasts_ms):
    ballot = extension()
    for master, answer_ms in enumerate(answers_ms):
        assert ballot.outcome is None, "three alone may be one master's word"
        ballot.answered(master, 1, answer_ms, True, 1)
    ballot.time_out(2)
    assert (ballot.outcome, ballot.lasts_ms) == (ExtensionOutcome.PROVEN, lasts_ms)


def test_an_extension_that_is_held_out_says_so():
    ballot = extension(proven=0)
    for master in range(3):
        ballot.answered(master, 4, 10, True, 1)
    assert ballot.held_out
    assert ballot.outcome is not ExtensionOutcome.PROVEN


# Releases


@pytest.mark.parametrize(
    ("deleted", "outcome"),
    [
        ([1, 1, 1], ReleaseOutcome.DELETED),
        ([0, 1, 0, 1, 1], ReleaseOutcome.DELETED),
        ([0, 0, 0], ReleaseOutcome.NOT_THERE),
        ([1, 0, 1, 0, 0], ReleaseOutcome.NOT_THERE),
    ],
)
def test_a_release_is_done_when_a_quorum_has_let_go_and_says_whether_a_quorum_had_it(deleted, outcome):
    """Another app's release of the same lease may be under way, and first on most masters."""
    settled = Settled()
    ballot = release(settled=settled)
    for master, here in enumerate(deleted):
        assert ballot.outcome is None
        ballot.answered(master, here, 0, True, 1)
    assert ballot.outcome is outcome
    for master in range(len(deleted), 5):
        ballot.answered(master, 1, 0, True, 1)
    assert (ballot.outcome, settled.times) == (outcome, 1)


def test_a_release_asked_again_that_finds_nothing_may_have_done_it_the_first_time():
    ballot = release()
    ballot.asked_again = 0b00111
    for master in range(3):
        ballot.answered(master, 0, 0, True, 1)
    assert ballot.outcome is ReleaseOutcome.NO_QUORUM
    assert (ballot.unknown, ballot.missing) == (3, 0)


def test_a_release_on_fewer_than_a_quorum_ends_when_all_of_them_have_answered():
    ballot = release(masters=0b00011)
    ballot.answered(0, 1, 0, True, 1)
    ballot.unanswered(1, "down", 1)
    assert ballot.outcome is ReleaseOutcome.DELETED
    unanswered = release()
    unanswered.time_out(1)
    assert unanswered.outcome is ReleaseOutcome.NO_QUORUM
