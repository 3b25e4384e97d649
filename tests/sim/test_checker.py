"""The checker is only worth what it finds: each promise is broken here once, and kept once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.harness.checker import Bounds, check
from tests.harness.clocks import MS
from tests.harness.history import (
    Answered,
    Asked,
    Began,
    Believes,
    Calm,
    Claimed,
    Declined,
    Died,
    Ended,
    Event,
    Extended,
    ExtensionAsked,
    Failed,
    Fault,
    Found,
    GivenBack,
    Granted,
    Handed,
    HungUp,
    Knows,
    Landed,
    LetGo,
    Lost,
    Moved,
    Prolonged,
    Read,
    Refused,
    ReleasedByValue,
    Removed,
    Slewed,
    Stopped,
    TakenBack,
    TakenOver,
    ToldGone,
    Tried,
    Withdrawn,
    Wrote,
)

A, B = b"a" * 32, b"b" * 32
R = b"r"
BOUNDS = Bounds(serve_ms=1_000, leftover_ms=50, give_back_ms=300, min_validity_ms=10)


def broken(*events: Event) -> list[str]:
    return [violation.promise for violation in check(events, BOUNDS)]


def asked(at_ms: int, request: int, wait_ms: int | None = None, max_hold_ms: int | None = None) -> Asked:
    return Asked(at_ms * MS, request, f"app{request}", R, 1_000, wait_ms, max_hold_ms)


def granted(at_ms: int, request: int, token: bytes, fence: int, until_ms: int, tried_ms: int) -> Granted:
    return Granted(at_ms * MS, request, R, token, fence, until_ms * MS, tried_ms * MS)


ONE_AFTER_THE_OTHER = (
    asked(0, 1),
    granted(5, 1, A, 10, until_ms=900, tried_ms=0),
    asked(905, 2),
    granted(910, 2, B, 20, until_ms=1_900, tried_ms=905),
)


def test_one_lease_after_the_other_breaks_nothing():
    assert broken(*ONE_AFTER_THE_OTHER) == []


class TestExclusion:
    def test_a_grant_while_another_lease_is_valid(self):
        assert broken(
            asked(0, 1), granted(5, 1, A, 10, 900, 0), asked(1, 2), granted(899, 2, B, 20, 1_900, 890)
        ) == ["exclusion"]

    def test_it_also_counts_when_a_third_one_ended_in_between(self):
        c = b"c" * 32
        assert broken(
            asked(0, 1),
            granted(5, 1, A, 10, 5_000, 0),
            LetGo(4_000 * MS, A, "unlock"),
            asked(4_100, 2),
            granted(4_110, 2, B, 20, 9_000, 4_100),
            asked(4_200, 3),
            granted(4_210, 3, c, 30, 4_300, 4_200),
        ) == ["exclusion"]

    def test_who_has_let_go_is_in_nobodys_way(self):
        assert not broken(
            asked(0, 1),
            granted(5, 1, A, 10, 900, 0),
            LetGo(100 * MS, A, "unlock"),
            asked(101, 2),
            granted(102, 2, B, 20, 1_000, 101),
        )

    def test_an_extension_counts_to_its_new_deadline(self):
        assert broken(
            asked(0, 1),
            granted(5, 1, A, 10, 900, 0),
            Extended(500 * MS, A, 1_400 * MS),
            asked(1_000, 2),
            granted(1_100, 2, B, 20, 1_900, 1_000),
        ) == ["exclusion"]

    def test_who_is_told_after_the_deadline_to_go_on_goes_on(self):
        assert broken(
            asked(0, 1),
            granted(5, 1, A, 10, 900, 0),
            Extended(901 * MS, A, 1_400 * MS),
            asked(1_000, 2),
            granted(1_100, 2, B, 20, 1_900, 1_000),
        ) == ["exclusion"]


class TestFences:
    def test_a_later_grant_with_a_smaller_fence(self):
        assert broken(
            asked(0, 1), granted(5, 1, A, 10, 900, 0), asked(905, 2), granted(910, 2, B, 9, 1_900, 905)
        ) == ["fences"]

    def test_order_is_asked_for_also_where_exclusion_is_broken(self):
        assert broken(
            asked(0, 1), granted(5, 1, A, 10, 900, 0), asked(10, 2), granted(20, 2, B, 9, 1_900, 10)
        ) == ["exclusion", "fences"]

    def test_grants_whose_tries_overlap_may_have_any_order(self):
        assert not broken(asked(0, 1), asked(0, 2), granted(5, 1, A, 10, 6, 0), granted(8, 2, B, 9, 900, 1))

    def test_the_same_fence_twice(self):
        assert "fences" in broken(
            asked(0, 1), granted(5, 1, A, 10, 6, 0), asked(0, 2), granted(8, 2, B, 10, 900, 1)
        )


class TestWrites:
    def test_a_write_behind_one_of_a_later_lease(self):
        writes = (Wrote(920 * MS, R, B, 20, True), Wrote(930 * MS, R, A, 10, True))
        assert broken(*ONE_AFTER_THE_OTHER, *writes) == ["stale writes"]

    def test_one_that_the_resource_refused_harms_nobody(self):
        writes = (Wrote(920 * MS, R, B, 20, True), Wrote(930 * MS, R, A, 10, False))
        assert not broken(*ONE_AFTER_THE_OTHER, *writes)


class TestAnswers:
    CALM = (Calm(100 * MS), Ended(9_000 * MS))

    def test_a_request_without_an_answer(self):
        assert broken(asked(50, 1), *self.CALM) == ["answers"]

    def test_an_answer_that_comes_too_late(self):
        assert broken(asked(50, 1), Refused(1_200 * MS, 1, "NOQUORUM"), *self.CALM) == ["answers"]

    def test_a_wait_is_no_lateness(self):
        assert not broken(asked(50, 1, wait_ms=5_000), Refused(5_060 * MS, 1, "TIMEOUT"), *self.CALM)

    def test_two_answers(self):
        assert broken(asked(50, 1), Refused(60 * MS, 1, "TAKEN"), Refused(61 * MS, 1, "TAKEN")) == ["answers"]

    def test_who_has_gone_is_owed_none(self):
        assert not broken(asked(50, 1), Withdrawn(60 * MS, 1), *self.CALM)

    def test_one_host_stays_out_with_all_mended(self):
        """Others get it: that is no help to an agent that finds no quorum any more."""
        others = (asked(300, 2), granted(305, 2, A, 10, 900, 300))
        outage = (asked(150, 1, wait_ms=2_000), Refused(2_150 * MS, 1, "NOQUORUM"))
        assert broken(*outage, *others, *self.CALM) == ["served"]

    def test_others_have_it_all_the_time(self):
        others = (asked(300, 2), granted(305, 2, A, 10, 900, 300))
        waited = (asked(150, 1, wait_ms=2_000), Refused(2_150 * MS, 1, "TIMEOUT"))
        assert not broken(*waited, *others, *self.CALM)

    def test_nobody_gets_it_with_all_mended(self):
        assert broken(asked(150, 1, wait_ms=2_000), Refused(2_150 * MS, 1, "NOQUORUM"), *self.CALM) == [
            "served"
        ]


def test_one_lease_for_two():
    assert broken(asked(0, 1), asked(0, 2), granted(5, 1, A, 10, 900, 0), granted(6, 2, A, 10, 900, 0)) == [
        "exclusion"
    ]


class TestReleases:
    def test_a_lease_taken_from_a_master_under_its_holder(self):
        assert broken(*ONE_AFTER_THE_OTHER, Removed(950 * MS, "m1", B)) == ["live releases"]

    def test_of_one_that_has_ended(self):
        assert not broken(*ONE_AFTER_THE_OTHER, Removed(950 * MS, "m1", A))

    @pytest.mark.parametrize(("comes_at_ms", "promises"), [(940, []), (960, ["live releases"])])
    def test_of_one_whose_clock_was_slewed(self, comes_at_ms, promises):
        moved = Moved(920 * MS, B, comes_at_ms * MS)
        assert broken(*ONE_AFTER_THE_OTHER, moved, Removed(950 * MS, "m1", B)) == promises


class TestValues:
    word = b"\0locked"
    began = (Tried(905 * MS, R, B, 1_000, "agent1"), *ONE_AFTER_THE_OTHER)

    def taken(self, word: bytes = word, host: str = "agent2") -> Removed:
        return Removed(950 * MS, "m1", B, word, host)

    def test_what_an_app_with_the_same_value_releases_is_taken_from_its_holder(self):
        there = granted(960, 3, b"c" * 32, 30, 1_950, 955)
        by = ReleasedByValue(949 * MS, R, self.word, "agent2")
        assert broken(*self.began, by, self.taken(), asked(954, 3), there) == []

    @pytest.mark.parametrize(
        "by",
        [
            ReleasedByValue(951 * MS, R, word, "agent2"),
            ReleasedByValue(949 * MS, b"other", word, "agent2"),
            ReleasedByValue(949 * MS, R, b"\0another", "agent2"),
            ReleasedByValue(949 * MS, R, word, "agent3"),
        ],
    )
    def test_what_nobody_has_asked_for_is_a_live_release(self, by: ReleasedByValue):
        assert broken(*self.began, by, self.taken()) == ["live releases"]

    def test_what_was_released_by_its_try_is_one_too(self):
        by = ReleasedByValue(949 * MS, R, self.word, "agent2")
        assert broken(*self.began, by, self.taken(word=b"")) == ["live releases"]

    @pytest.mark.parametrize(("at_ms", "promises"), [(1_899, ["told gone"]), (1_900, [])])
    def test_who_holds_it_is_told_that_nobody_does(self, at_ms: int, promises: list[str]):
        bounds = replace(BOUNDS, quorum=3)
        told = ToldGone(at_ms * MS, B)
        found = check((*self.began, LetGo(1_000 * MS, B, "left"), told), bounds)
        assert [violation.promise for violation in found] == promises

    def test_where_something_is_broken_that_may_be(self):
        bounds = replace(BOUNDS, quorum=3)
        events = (*self.began, Fault(930 * MS, "a cut"), ToldGone(1_000 * MS, B))
        assert check(events, bounds) == []


class TestHolds:
    def test_a_renewal_past_max_hold(self):
        assert broken(
            asked(0, 1, max_hold_ms=2_000), granted(5, 1, A, 10, 900, 0), Extended(800 * MS, A, 2_100 * MS)
        ) == ["max hold"]

    def test_a_grant_past_max_hold(self):
        assert broken(asked(0, 1, max_hold_ms=800), granted(5, 1, A, 10, 900, 0)) == ["max hold"]

    def test_a_renewal_up_to_it(self):
        assert not broken(
            asked(0, 1, max_hold_ms=2_000), granted(5, 1, A, 10, 900, 0), Extended(800 * MS, A, 2_000 * MS)
        )

    @pytest.mark.parametrize(("had_ms", "promises"), [(1_990, []), (2_010, ["max hold"])])
    def test_a_tenure_that_is_too_old_is_handed_on(self, had_ms: int, promises: list[str]):
        """One of a list is had before that is answered."""
        first, second = A + b" 1", A + b" 2"
        handed = (Tried(0, R, A, 1_000, "h1"), Handed(5 * MS, first), Handed(had_ms * MS, second))
        got = Granted(2_500 * MS, 1, R, second, 10, 3_000 * MS, 1_900 * MS, 2_490 * MS)
        assert broken(asked(1_000, 1, max_hold_ms=2_000), *handed, got) == promises


@pytest.mark.parametrize(("had_ms", "promises"), [(90, []), (110, ["slewing"])])
def test_nothing_is_handed_on_where_the_clock_is_slewed_too_fast(had_ms: int, promises: list[str]):
    """One of a list is had before that is answered."""
    first, second = A + b" 1", A + b" 2"
    handed = (Tried(0, R, A, 1_000, "h1"), Handed(5 * MS, first), Handed(had_ms * MS, second))
    got = Granted(150 * MS, 1, R, second, 10, 900 * MS, 0, 140 * MS)
    assert broken(asked(50, 1), *handed, Slewed(100 * MS, "h1"), got) == promises


class TestLeftovers:
    TRY = (Tried(0, R, A, 1_000, "h1"), Failed(10 * MS, A))

    def test_what_is_seen_after_its_ttl(self):
        assert broken(*self.TRY, Found(1_060 * MS, "m1", R, A)) == ["leftovers"]

    def test_the_ttl_begins_where_it_landed(self):
        assert not broken(*self.TRY, Landed(500 * MS, "m1", A), Found(1_400 * MS, "m1", R, A))

    def test_what_is_not_given_back_when_all_is_mended(self):
        assert broken(*self.TRY, Calm(20 * MS), Found(400 * MS, "m1", R, A)) == ["leftovers"]

    def test_an_agent_that_died_has_forgotten_what_it_owes(self):
        assert not broken(*self.TRY, Died(15 * MS, "h1"), Calm(20 * MS), Found(400 * MS, "m1", R, A))


@pytest.mark.parametrize(("host", "promises"), [("h1", ["overtaking"]), ("h2", [])])
def test_a_release_that_overtakes_what_its_own_agent_asked_before(host, promises):
    assert broken(GivenBack(5 * MS, "m1", A, "h1"), Landed(6 * MS, "m1", A, host)) == promises
    assert not broken(Landed(4 * MS, "m1", A, host), GivenBack(5 * MS, "m1", A, "h1"))


def test_a_token_that_is_used_twice():
    assert broken(Tried(0, R, A, 1_000), Tried(5_000 * MS, R, A, 1_000)) == ["tokens"]


@pytest.mark.parametrize(("answered_ms", "promises"), [(889, []), (891, ["validity"])])
def test_a_grant_has_to_leave_its_holder_some_time(answered_ms, promises):
    grant = Granted(895 * MS, 1, R, A, 10, 900 * MS, 0, answered_ms * MS)
    assert broken(asked(0, 1), grant) == promises


@pytest.mark.parametrize(
    ("died_ms", "promises"),
    [(None, ["standstills"]), (700, []), (950, ["standstills"])],
    ids=["by its agent", "nobody is there to tell", "it died when that was due"],
)
def test_what_was_over_while_its_host_stood_still_is_told(died_ms: int | None, promises: list[str]) -> None:
    stood_still = (Believes(400 * MS, A, "h1", 100 * MS, 1_000 * MS), Knows(410 * MS, "h1"))
    died = () if died_ms is None else (Died(died_ms * MS, "h1.2"),)
    taken = (asked(0, 1), granted(5, 1, A, 10, until_ms=900, tried_ms=0))
    assert broken(*taken, *stood_still, *died) == promises


@pytest.mark.parametrize(
    ("at_ms", "excused", "promises"), [(899, False, []), (901, False, ["notice"]), (901, True, [])]
)
def test_a_loss_is_told_before_the_deadline(at_ms, excused, promises):
    grant = (asked(0, 1), granted(5, 1, A, 10, 900, 0))
    assert broken(*grant, Lost(at_ms * MS, A, 900 * MS, excused)) == promises


NOBODYS = Bounds(
    serve_ms=1_000, leftover_ms=50, give_back_ms=300, quorum=2, lock_delay_ms=200, at_once_ms=100
)


def nobodys(*events: Event, bounds: Bounds = NOBODYS) -> list[str]:
    return [violation.promise for violation in check(events, bounds)]


def given_back(at_ms: int, *masters: str) -> list[Event]:
    return [GivenBack(at_ms * MS, master, A, "h1") for master in masters]


class TestFreeAtOnce:
    """What belongs to nobody any more."""

    HELD = (asked(1_000, 1), Tried(1_000 * MS, R, A, 1_000, "h1"), granted(1_005, 1, A, 10, 1_900, 1_000))
    DIED = (*HELD, LetGo(1_100 * MS, A, "died"), Ended(9_000 * MS))
    ANSWERED = (*HELD[:2], Answered(1_005 * MS, 1, A, "process"), Ended(9_000 * MS))

    def test_a_quorum_has_to_hear_of_a_death_once_the_lock_delay_is_over(self):
        assert nobodys(*self.DIED, *given_back(1_390, "m1", "m2")) == []
        assert nobodys(*self.DIED, *given_back(1_390, "m1")) == ["free at once"]
        assert nobodys(*self.DIED, *given_back(1_410, "m1", "m2")) == ["free at once"]

    def test_what_was_never_read_waits_for_no_lock_delay(self):
        hung_up = HungUp(1_050 * MS, 1)
        assert nobodys(*self.ANSWERED, hung_up, *given_back(1_140, "m1", "m2")) == []
        assert nobodys(*self.ANSWERED, hung_up) == ["free at once"]

    @pytest.mark.parametrize(("at_ms", "promises"), [(2_140, []), (2_160, ["free at once"])])
    def test_what_was_unlocked_by_its_name_may_be_kept(self, at_ms: int, promises: list[str]):
        keeping, hung_up = replace(NOBODYS, keep_ms=1_000), HungUp(1_050 * MS, 1)
        back = given_back(at_ms, "m1", "m2")
        assert nobodys(*self.ANSWERED, hung_up, TakenBack(1_051 * MS, 1), *back, bounds=keeping) == promises
        assert nobodys(*self.ANSWERED, hung_up, *back, bounds=keeping) == ["free at once"]

    def test_unless_it_was_asked_for_again(self):
        again = (asked(1_040, 2), Answered(1_041 * MS, 2, A, "process"))
        assert nobodys(*self.ANSWERED, *again, HungUp(1_050 * MS, 1)) == []

    def test_nothing_is_asked_of_an_agent_that_has_died_or_of_masters_that_may_be_away(self):
        assert nobodys(*self.DIED, Died(1_200 * MS, "h1")) == []
        assert nobodys(*self.DIED, Fault(1_200 * MS, "cut path")) == []
        assert nobodys(*self.DIED, TakenOver(1_050 * MS, A, B, "h1.2"), Died(1_200 * MS, "h1.2")) == []

    def test_it_may_be_given_back_by_the_nonce_of_the_agent_that_took_it_over(self):
        taken_over = (Died(1_020 * MS, "h1"), TakenOver(1_050 * MS, A, B, "h1.2"))
        back = [GivenBack(1_390 * MS, master, B, "h1.2") for master in ("m1", "m2")]
        assert nobodys(*self.DIED, *taken_over) == ["free at once"]
        assert nobodys(*self.DIED, *taken_over, *back) == []

    @pytest.mark.parametrize(("at_ms", "promises"), [(1_250, ["lock delay"]), (1_350, [])])
    def test_nobody_gets_it_within_its_lock_delay(self, at_ms: int, promises: list[str]):
        next_one = (asked(1_210, 2), granted(at_ms, 2, B, 20, 2_100, at_ms - 5))
        assert nobodys(*self.DIED, *given_back(1_290, "m1", "m2"), *next_one) == promises

    @pytest.mark.parametrize(("ttl_ms", "promises"), [(1_000, ["lock delay"]), (3_000, [])])
    def test_unless_it_was_lost_by_the_ttl_that_its_app_has_asked_for_since(
        self, ttl_ms: int, promises: list[str]
    ):
        died = (*self.HELD, ExtensionAsked(1_400 * MS, A, ttl_ms), LetGo(1_600 * MS, A, "died"))
        next_one = (asked(1_210, 2), granted(1_650, 2, B, 20, 2_100, 1_645))
        assert nobodys(*died, *given_back(1_600, "m1", "m2"), *next_one) == promises


class TestForNobody:
    TAKEN = (asked(0, 1, max_hold_ms=2_000), Tried(0, R, A, 1_000, "h1"), Landed(1 * MS, "m1", A, "h1"))

    @pytest.mark.parametrize(("seen_ms", "promises"), [(6_040, []), (6_060, ["for nobody"])])
    def test_what_nobody_has_is_renewed_for_no_longer_than_it_may_be_held(
        self, seen_ms: int, promises: list[str]
    ):
        seen = Found(seen_ms * MS, "m1", R, A)
        assert broken(*self.TAKEN, Answered(5 * MS, 1, A, "process"), seen) == promises

    @pytest.mark.parametrize(("bound", "promises"), [("process", []), ("connection", ["for nobody"])])
    def test_what_a_connection_had_is_not_renewed_when_its_agent_is_dead(
        self, bound: str, promises: list[str]
    ):
        seen = Found(5_000 * MS, "m1", R, A)
        told = Answered(5 * MS, 1, A, bound)
        assert broken(*self.TAKEN, told, Died(100 * MS, "h1"), seen) == promises

    @pytest.mark.parametrize(("ttl_ms", "promises"), [(1_000, ["for nobody"]), (3_000, [])])
    def test_or_its_app_has_asked_for_a_longer_ttl_just_before(self, ttl_ms: int, promises: list[str]):
        told = granted(5, 1, A, 10, 900, 0), Answered(5 * MS, 1, A, "connection"), Died(100 * MS, "h1")
        extended, seen = ExtensionAsked(90 * MS, A, ttl_ms), Found(5_000 * MS, "m1", R, A)
        assert broken(asked(0, 1, max_hold_ms=9_000), *self.TAKEN[1:], *told, extended, seen) == promises

    @pytest.mark.parametrize(("host", "promises"), [("h1", []), ("h2", ["for nobody"])])
    def test_unless_what_the_dead_agent_had_asked_lands_late(self, host: str, promises: list[str]):
        told = granted(5, 1, A, 10, 900, 0), Answered(5 * MS, 1, A, "connection"), Died(100 * MS, "h1")
        late = Prolonged(2_000 * MS, "m1", A, host)
        seen = Found(5_500 * MS, "m1", R, A)
        assert broken(asked(0, 1, max_hold_ms=9_000), *self.TAKEN[1:], *told, late, seen) == promises

    @pytest.mark.parametrize(("by_app", "promises"), [(True, []), (False, ["for nobody"])])
    def test_unless_its_app_extends_it(self, by_app: bool, promises: list[str]):
        told = granted(5, 1, A, 10, 900, 0), Answered(5 * MS, 1, A, "connection"), Died(100 * MS, "h1")
        went_on = Extended(800 * MS, A, 1_900 * MS, by_app), LetGo(1_000 * MS, A, "unlock")
        seen = Found(4_500 * MS, "m1", R, A)
        assert broken(asked(0, 1, max_hold_ms=9_000), *self.TAKEN[1:], *told, *went_on, seen) == promises

    @pytest.mark.parametrize(("host", "promises"), [("h1.2", []), ("h1.3", ["for nobody"])])
    def test_what_nobody_was_told_of_is_renewed_by_no_later_agent_but_a_dead_one_s_extension_may_land_late(
        self, host: str, promises: list[str]
    ):
        taken_over = Died(100 * MS, "h1.1"), TakenOver(200 * MS, A, B, "h1.2"), Died(400 * MS, "h1.2")
        late, seen = Prolonged(3_000 * MS, "m1", B, host), Found(5_500 * MS, "m1", R, B)
        tried = Tried(0, R, A, 1_000, "h1.1"), Landed(1 * MS, "m1", A, "h1.1")
        assert broken(asked(0, 1, max_hold_ms=2_000), *tried, *taken_over, late, seen) == promises

    @pytest.mark.parametrize(("ttl_ms", "promises"), [(1_000, ["for nobody"]), (3_000, [])])
    def test_what_nobody_was_told_of_lasts_as_long_as_the_last_to_whom_it_was_handed_on_has_asked(
        self, ttl_ms: int, promises: list[str]
    ):
        handed_on = Asked(50 * MS, 2, "app2", R, ttl_ms, None, 2_000), Claimed(60 * MS, 2, A)
        taken_over = Died(100 * MS, "h1.1"), TakenOver(200 * MS, A, B, "h1.2")
        tried, seen = Tried(0, R, A, 1_000, "h1.1"), Found(6_000 * MS, "m1", R, B)
        assert broken(asked(0, 1, max_hold_ms=2_000), tried, *handed_on, *taken_over, seen) == promises


class TestKept:
    """What a living process was told of, over a restart of its agent."""

    HELD = (
        Fault(400 * MS, "   0.400 s  crash agent (m1, h1)"),
        asked(0, 1, max_hold_ms=9_000),
        Tried(0, R, A, 1_000, "h1.1"),
        granted(5, 1, A, 10, 1_900, 0),
        Read(6 * MS, A, "h1.1"),
        Died(500 * MS, "h1.1"),
        Lost(1_850 * MS, A, 1_900 * MS),
    )

    @pytest.mark.parametrize(
        ("began_ms", "trusts", "promises"),
        [(600, True, ["kept"]), (1_700, True, []), (600, False, [])],
        ids=["in time", "too late", "without a journal"],
    )
    def test_it_is_lost_although_the_next_agent_could_have_taken_it_over(
        self, began_ms: int, trusts: bool, promises: list[str]
    ):
        assert nobodys(*self.HELD, Began(began_ms * MS, "h1.2", trusts)) == promises

    @pytest.mark.parametrize(("ttl_ms", "promises"), [(1_000, ["kept"]), (3_000, [])])
    def test_there_is_less_time_for_that_with_the_longer_ttl_that_its_app_has_asked_for(
        self, ttl_ms: int, promises: list[str]
    ):
        extended = ExtensionAsked(100 * MS, A, ttl_ms)
        assert nobodys(*self.HELD, extended, Began(600 * MS, "h1.2")) == promises

    def test_nothing_is_kept_where_masters_are_away(self):
        away = Fault(450 * MS, "   0.450 s  isolate master (m1, h1)")
        assert nobodys(*self.HELD, away, Began(600 * MS, "h1.2")) == []


TURNS = Bounds(1_000, 50, 300, idle_ms=100, turn_ms=50, turns=2)


def of_turns(*events: Event) -> list[str]:
    promises = ("idle", "recalls", "turns")
    return [violation.promise for violation in check(events, TURNS) if violation.promise in promises]


def wants(at_ms: int, request: int, host: str, wait_ms: int = 5_000) -> Asked:
    return Asked(at_ms * MS, request, f"app{request}", R, 1_000, wait_ms, None, host=host)


def had(request: int, host: str, from_ms: int, to_ms: int, fence: int) -> list[Event]:
    """A tenure of that host, for one lease."""
    token = b"%032d" % request
    return [
        wants(from_ms - 2, request, host),
        Tried((from_ms - 2) * MS, R, token, 1_000, f"{host}.1"),
        Handed((from_ms - 1) * MS, token + b" 1"),
        Granted(from_ms * MS, request, R, token + b" 1", fence, (from_ms + 900) * MS, (from_ms - 2) * MS),
        LetGo(to_ms * MS, token + b" 1", "unlock"),
    ]


@pytest.mark.parametrize(("granted_ms", "promises"), [(190, []), (210, ["idle"])])
def test_nobody_waits_for_long_while_nobody_holds(granted_ms: int, promises: list[str]) -> None:
    waiting = wants(50, 9, "h2")
    got = Granted(granted_ms * MS, 9, R, B + b" 1", 20, 2_000 * MS, 50 * MS)
    assert of_turns(*had(1, "h1", 10, 100, 10), waiting, got) == promises


@pytest.mark.parametrize(
    "stopped", [Died(120 * MS, "h3"), Stopped(120 * MS, "h3")], ids=["dies", "stands still"]
)
@pytest.mark.parametrize(("granted_ms", "promises"), [(5_190, []), (5_210, ["idle"])])
def test_nor_for_much_longer_than_an_agent_may_block_it_that_dies_or_stands_still(
    stopped: Event, granted_ms: int, promises: list[str]
) -> None:
    waiting = wants(50, 9, "h2", wait_ms=9_000)
    got = Granted(granted_ms * MS, 9, R, B + b" 1", 20, 9_000 * MS, 50 * MS)
    assert of_turns(*had(1, "h1", 10, 100, 10), waiting, stopped, got) == promises


LIST_HAS = (
    replace(wants(90, 8, "h3"), whole=8),
    Tried(101 * MS, R, B, 1_000, "h3.1"),
    Claimed(102 * MS, 8, B + b" 1"),
)


@pytest.mark.parametrize(("over_ms", "promises"), [(210, []), (190, ["idle"])])
def test_what_a_list_has_while_it_waits_for_more_is_held(over_ms: int, promises: list[str]) -> None:
    got = Granted(300 * MS, 9, R, A + b" 1", 20, 2_000 * MS, 290 * MS)
    taken = (*had(1, "h1", 10, 100, 10), *LIST_HAS, wants(50, 9, "h2"), got)
    assert of_turns(*taken, Declined(over_ms * MS, 8)) == promises
    assert of_turns(*taken, Declined(290 * MS, 8), GivenBack(over_ms * MS, "m1", B, "h3.1")) == promises


def test_a_list_may_wait_elsewhere_while_nobody_holds_this() -> None:
    part = replace(wants(50, 8, "h2"), whole=8)
    assert of_turns(*had(1, "h1", 10, 100, 10), part) == []
    assert of_turns(*had(1, "h1", 10, 100, 10), replace(part, whole=0)) == ["idle"]


@pytest.mark.parametrize(("at_ms", "promises"), [(99, []), (101, ["recalls"])])
def test_a_recall_is_heeded_within_a_turn(at_ms: int, promises: list[str]) -> None:
    first = had(1, "h1", 10, 95, 10)
    token = b"%032d" % 1
    handed_on = Handed(at_ms * MS, token + b" 2")
    got = Granted(160 * MS, 9, R, B + b" 1", 20, 2_000 * MS, 50 * MS)
    assert of_turns(*first, wants(50, 9, "h2"), handed_on, got) == promises
    assert of_turns(*first, wants(50, 9, "h1"), handed_on, got) == [], "it waits for its own host"


@pytest.mark.parametrize(("turns", "promises"), [(2, []), (3, ["turns"])])
def test_no_host_is_overtaken_without_bound(turns: int, promises: list[str]) -> None:
    others = [event for n in range(turns) for event in had(n + 1, "h1", 20 + 20 * n, 30 + 20 * n, 10 + n)]
    got = Granted(150 * MS, 9, R, B + b" 1", 90, 2_000 * MS, 10 * MS)
    assert of_turns(wants(10, 9, "h2"), *others, got) == promises
