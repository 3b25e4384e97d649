"""The checks of lists and slots: each promise is broken here once, and kept once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.harness.checker import Bounds, check
from tests.harness.clocks import MS
from tests.harness.history import (
    Answered,
    Asked,
    Began,
    Calm,
    Claimed,
    Declined,
    Ended,
    Event,
    Fault,
    Granted,
    Handed,
    HungUp,
    Landed,
    LostUntold,
    Refused,
    Removed,
    TakenBack,
    Tried,
    Withdrawn,
)
from tests.harness.together import ALL_CHECKS, in_line_no_more

A, B, C = b"a" * 32, b"b" * 32, b"c" * 32
BOUNDS = Bounds(serve_ms=1_000, leftover_ms=50, give_back_ms=300, quorum=2, at_once_ms=100)
SLOTS = (b"s:slot:0", b"s:slot:1")


def broken(*events: Event) -> list[str]:
    history = Began(0, "h1"), *events, Ended(99_000 * MS)
    return [violation.promise for violation in check(history, BOUNDS, ALL_CHECKS)]


def part(at_ms: int, request: int, resource: bytes, wait_ms: int | None = None) -> Asked:
    return Asked(at_ms * MS, request, "app", resource, 1_000, wait_ms, whole=1)


def for_a_slot(at_ms: int, request: int, wait_ms: int | None = None) -> Asked:
    return Asked(at_ms * MS, request, "app", b"s", 1_000, wait_ms, among=SLOTS)


def granted(at_ms: int, request: int, resource: bytes, token: bytes, until_ms: int) -> Granted:
    fence = 1_000_000 + 4 * at_ms + request
    return Granted(at_ms * MS, request, resource, token, fence, until_ms * MS, (at_ms - 4) * MS)


def refused(at_ms: int, request: int, code: str) -> Refused:
    return Refused(at_ms * MS, request, code)


def had(resource: bytes, token: bytes, from_ms: int, to_ms: int) -> tuple[Event, ...]:
    """By both masters."""
    return (
        Tried(from_ms * MS, resource, token, 1_000, "h1"),
        *(Landed((from_ms + 1) * MS, master, token, "h1") for master in ("m1", "m2")),
        *(Removed(to_ms * MS, master, token) for master in ("m1", "m2")),
    )


class TestAllOrNone:
    ASKED = (part(600, 1, b"a"), part(600, 2, b"b"))
    FIRST = granted(610, 1, b"a", A, 1_500)

    def test_a_part_is_told_without_the_rest(self):
        assert broken(*self.ASKED, self.FIRST, refused(610, 2, "TIMEOUT")) == ["all or none"]
        assert broken(*self.ASKED, self.FIRST, granted(610, 2, b"b", B, 1_500)) == []
        assert broken(*self.ASKED, refused(610, 1, "TIMEOUT"), refused(610, 2, "TIMEOUT")) == []

    def test_what_was_lost_while_the_rest_was_waited_for_is_told_all_the_same(self):
        both = (*self.ASKED, self.FIRST, granted(610, 2, b"b", B, 1_500))
        told = (Answered(609 * MS, 1, A, "process"), Answered(609 * MS, 2, B, "process"))
        assert broken(*both, *told) == []
        assert broken(*both, *told, LostUntold(605 * MS, A)) == ["all or none"]


class TestClaimed:
    """What a list has while it waits for the rest."""

    HAS = (part(600, 1, b"a"), part(600, 2, b"b"), *had(b"a", A, 601, 9_000), Claimed(605 * MS, 1, A))
    REFUSED = (Declined(700 * MS, 1), Declined(700 * MS, 2))

    def answered(self, at_ms: int) -> tuple[Event, ...]:
        return refused(at_ms, 1, "TIMEOUT"), refused(at_ms, 2, "TIMEOUT")

    def test_a_list_that_is_refused_keeps_what_it_has(self):
        assert broken(*self.HAS, *self.REFUSED, *self.answered(701)) == ["free at once"]

    def test_it_is_kept_for_another_request_of_the_same_name(self):
        other = (replace(part(650, 3, b"a"), whole=3), Claimed(651 * MS, 3, A), refused(9_100, 3, "TIMEOUT"))
        assert broken(*self.HAS, *self.REFUSED, *self.answered(701), *other) == []

    @pytest.mark.parametrize(("at_ms", "promises"), [(790, []), (810, ["free at once"])])
    def test_it_is_handed_on_to_the_next_in_line(self, at_ms: int, promises: list[str]):
        first, second = A + b" 1", A + b" 2"
        has = (*self.HAS[:-1], Handed(605 * MS, first), Claimed(605 * MS, 1, first))
        other = (replace(part(650, 3, b"a"), whole=3), Claimed(at_ms * MS, 3, second))
        handed_on = (*other, Handed(at_ms * MS, second), refused(9_100, 3, "TIMEOUT"))
        assert broken(*has, *self.REFUSED, *self.answered(701), *handed_on) == promises

    @pytest.mark.parametrize(("tried_ms", "is_broken"), [(604, False), (606, True)])
    def test_what_was_tried_for_before_a_list_was_over_may_still_come_in(
        self, tried_ms: int, is_broken: bool
    ):
        over = (TakenBack(605 * MS, 1), TakenBack(605 * MS, 2), *self.REFUSED, *self.answered(701))
        slow = (*had(b"b", B, tried_ms, 720), Claimed(710 * MS, 2, B))
        assert ("for nobody" in broken(*self.HAS, *over, *slow)) == is_broken

    @pytest.mark.parametrize(
        ("wait_ms", "at_ms", "is_broken"), [(None, 1_095, False), (None, 1_115, True), (500, 720, True)]
    )
    def test_a_slot_that_is_not_waited_for_may_come_in_within_one_try(
        self, wait_ms: int | None, at_ms: int, is_broken: bool
    ):
        over = (for_a_slot(600, 1, wait_ms), TakenBack(605 * MS, 1))
        late = (*had(SLOTS[0], A, at_ms - 2, at_ms + 1), Claimed(at_ms * MS, 1, A))
        events = Began(0, "h1"), *over, *late, Ended(99_000 * MS)
        assert bool(check(events, BOUNDS, [in_line_no_more])) == is_broken

    def test_something_is_handed_on_to_a_list_that_is_over(self):
        over = (TakenBack(605 * MS, 1), TakenBack(605 * MS, 2), *self.REFUSED, *self.answered(701))
        of_others = (*had(b"b", B, 601, 720), Handed(602 * MS, B + b" 1"))
        handed_on = (Handed(710 * MS, B + b" 2"), Claimed(710 * MS, 2, B + b" 2"))
        assert "for nobody" in broken(*self.HAS, *over, *of_others, *handed_on)

    def test_something_is_had_for_a_list_whose_app_has_hung_up_long_ago(self):
        gone = (HungUp(605 * MS, 1), HungUp(605 * MS, 2), *self.answered(610))
        later = (*had(b"b", B, 690, 691), Claimed(710 * MS, 2, B))
        assert "for nobody" in broken(*self.HAS, *gone, *later)
        at_once = (*had(b"b", B, 605, 691), Claimed(690 * MS, 2, B))
        assert "for nobody" not in broken(*self.HAS, *gone, *at_once)

    def test_what_its_agent_hears_of_only_when_it_begins_was_not_known_before(self):
        gone = (HungUp(605 * MS, 1), HungUp(605 * MS, 2), *self.answered(610))
        later = (*had(b"b", B, 700, 720), Claimed(710 * MS, 2, B))
        elsewhere = [replace(event, host="h2") if isinstance(event, Tried) else event for event in later]
        assert "for nobody" not in broken(*self.HAS, *gone, *elsewhere, Began(701 * MS, "h2"))

    def test_a_list_of_which_something_was_unlocked_goes_on(self):
        back = (TakenBack(700 * MS, 1), TakenBack(700 * MS, 2))
        late = (Declined(900 * MS, 1), Declined(900 * MS, 2), *self.answered(901))
        assert "taken back" in broken(*self.HAS, *back, *late)
        assert "taken back" not in broken(*self.HAS, *back, *self.REFUSED, *self.answered(901))


def test_what_was_unlocked_by_its_name_is_granted():
    asked, got = for_a_slot(600, 1), granted(610, 1, SLOTS[0], A, 1_500)
    told = Answered(609 * MS, 1, A, "process")
    assert broken(asked, TakenBack(605 * MS, 1), told, got) == ["taken back"]
    assert broken(asked, told, got, TakenBack(611 * MS, 1)) == []


class TestTaken:
    """TAKEN is true of a list where one of it is had, and of slots where all are."""

    ONE = had(SLOTS[0], A, 500, 9_000)

    def test_of_a_list(self):
        asked = (part(600, 1, b"a"), part(600, 2, SLOTS[0]))
        no = (refused(610, 1, "TAKEN"), refused(610, 2, "TAKEN"))
        assert broken(*asked, *no) == ["taken", "taken"]
        assert broken(*asked, *no, *self.ONE) == []

    def test_of_slots(self):
        asked, no = for_a_slot(600, 1), refused(610, 1, "TAKEN")
        assert broken(asked, no, *self.ONE) == ["taken"]
        assert broken(asked, no, *self.ONE, *had(SLOTS[1], B, 500, 9_000)) == []


class TestWhicheverIsFree:
    """All masters are calm, and somebody waits for a slot."""

    WAITS = (for_a_slot(2_000, 1, wait_ms=3_000), refused(5_000, 1, "TIMEOUT"))
    FIRST = (
        Asked(1_900 * MS, 9, "another", SLOTS[0], 1_000),
        *had(SLOTS[0], A, 1_900, 9_000),
        Answered(1_902 * MS, 9, A, "process"),
        Withdrawn(1_902 * MS, 9),
    )

    @pytest.mark.parametrize(("freed_ms", "promises"), [(3_900, ["whichever is free"]), (4_100, [])])
    def test_one_is_free_for_long(self, freed_ms: int, promises: list[str]):
        assert broken(*self.WAITS, *self.FIRST, *had(SLOTS[1], B, 1_900, freed_ms)) == promises

    def test_it_is_free_between_two_others(self):
        second = (*had(SLOTS[1], B, 1_900, 2_500), *had(SLOTS[1], C, 3_600, 9_000))
        assert broken(*self.WAITS, *self.FIRST, *second) == ["whichever is free"]

    def test_nothing_is_asked_while_something_is_broken_or_has_just_been(self):
        second, fault = had(SLOTS[1], B, 1_900, 3_900), Fault(1_950 * MS, "cut path")
        assert broken(*self.WAITS, *self.FIRST, *second, fault) == []
        after_it = (*self.WAITS, *self.FIRST, *second, fault, Calm(3_500 * MS))
        assert broken(*after_it) == []
        assert broken(*after_it, Answered(4_100 * MS, 9, A, "process")) == []
        assert broken(*after_it, Answered(3_600 * MS, 9, A, "process")) == ["whichever is free"]

    def test_an_agent_whose_clock_was_slewed_may_stand_aside_for_a_while(self):
        slewed = (Fault(1_950 * MS, "   1.950 s  slew clock of agent"), Calm(3_500 * MS))
        taken = (*self.WAITS, *self.FIRST, *had(SLOTS[1], B, 1_900, 3_900), *slewed)
        assert broken(*taken, Answered(3_600 * MS, 9, A, "process")) == []
        later = (for_a_slot(18_000, 2, wait_ms=900), refused(19_050, 2, "TIMEOUT"))
        assert "whichever is free" in broken(*taken, Answered(15_600 * MS, 9, A, "process"), *later)


class TestServed:
    """Two lists that wait for each other, each for what the other has."""

    ASKED = (
        Calm(1_000 * MS),
        replace(part(2_000, 1, b"a", wait_ms=2_000), whole=1),
        replace(part(2_000, 2, b"b", wait_ms=2_000), whole=1),
        Asked(2_000 * MS, 3, "another", b"a", 1_000, 2_000),
        refused(4_000, 1, "TIMEOUT"),
        refused(4_000, 2, "TIMEOUT"),
    )

    @pytest.mark.parametrize(("had_ms", "promises"), [(2_100, ["served", "served"]), (3_100, [])])
    def test_who_waits_for_a_list_that_nobody_gets_a_part_of(self, had_ms: int, promises: list[str]):
        other = granted(had_ms, 3, b"a", A, had_ms + 5)
        assert broken(*self.ASKED, other, *had(b"a", A, 500, 9_000)) == promises
