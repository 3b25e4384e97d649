"""So many ballots are under way to the masters as they answer in time, and each account's in turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockd.core.line import LEAST, Line
from lockd.core.turns import Turns, cancel

MS = 1_000_000
ONE = "one"


class Masters:
    """Ballots that wait for their turn, and begin."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.line = Line(self.turns)
        self.now_ns = 0
        self.begun = list[str]()

    def ask(self, account: str = ONE, deadline_ns: int = 0, name: str = "") -> Callable[[int], None]:
        def begin(_now_ns: int) -> None:
            self.begun.append(name or account)
            self.line.begins()

        if self.line.has_room:
            begin(0)
        else:
            self.line.wait(account, deadline_ns, begin)
        return begin

    def answer(self, took_ms: float = 1.0) -> None:
        """One of those that are under way."""
        self.line.took(int(took_ms * MS), self.now_ns)
        self.line.ended()
        self.turns.run(self.now_ns)

    def answer_all(self, took_ms: Callable[[int], float]) -> None:
        """All that wait, round trip after round trip. took_ms: by how many were under way."""
        while self.line.under_way:
            under_way = self.line.under_way
            self.now_ns += int(took_ms(under_way) * MS)
            for _ in range(under_way):
                self.line.took(int(took_ms(under_way) * MS), self.now_ns)
                self.line.ended()
            self.turns.run(self.now_ns)


@pytest.fixture
def masters() -> Masters:
    return Masters()


def test_the_next_begins_when_one_has_its_answer(masters: Masters) -> None:
    for _ in range(LEAST + 3):
        masters.ask()
    assert len(masters.begun) == LEAST
    masters.line.ended()
    assert len(masters.begun) == LEAST, "not in the middle of what core is doing"
    masters.turns.run(0)
    assert len(masters.begun) == LEAST + 1


def test_who_asks_for_thousands_waits_for_itself(masters: Masters) -> None:
    for _ in range(5_000):
        masters.ask("greedy")
    for _ in range(100):
        masters.answer()
    masters.ask("modest")
    masters.answer()
    masters.answer()
    assert masters.begun[-2:].count("modest") == 1


def test_nobody_goes_before_those_that_wait_because_there_is_room_for_a_moment(masters: Masters) -> None:
    for name in range(LEAST + 2):
        masters.ask(name=f"{name}")
    masters.line.ended()
    masters.line.ended()
    masters.ask(name="late")
    masters.turns.run(0)
    assert "late" not in masters.begun


def test_of_one_accounts_the_one_whose_deadline_is_first_begins_first(masters: Masters) -> None:
    for _ in range(LEAST):
        masters.ask()
    for deadline_ns in (30, 10, 20):
        masters.ask(deadline_ns=deadline_ns, name=f"{deadline_ns}")
    for _ in range(3):
        masters.answer()
    assert masters.begun[LEAST:] == ["10", "20", "30"]


def test_one_that_is_not_wanted_any_more_takes_no_place(masters: Masters) -> None:
    for _ in range(LEAST):
        masters.ask()
    cancel(masters.line.wait(ONE, 0, masters.ask()))
    masters.ask(name="next")
    masters.answer()
    assert masters.begun[-1] == "next"


def test_one_that_begins_nothing_makes_room_for_the_next(masters: Masters) -> None:
    for _ in range(LEAST):
        masters.ask()
    for _ in range(100):
        masters.line.wait(ONE, 0, lambda _now_ns: None)
    masters.ask(name="last", deadline_ns=1)
    masters.answer()
    assert masters.begun[-1] == "last"
    assert masters.line.under_way == LEAST


def test_one_that_fails_makes_room_for_the_next(masters: Masters) -> None:
    def fails(_now_ns: int) -> None:
        raise ValueError

    for _ in range(LEAST):
        masters.ask()
    masters.line.wait(ONE, 0, fails)
    masters.ask(name="next", deadline_ns=1)
    masters.line.ended()
    with pytest.raises(ValueError):
        masters.turns.run(0)
    masters.turns.run(0)
    assert masters.begun[-1] == "next"


# How many


def test_masters_that_answer_together_are_asked_for_more_together(masters: Masters) -> None:
    for _ in range(8_000):
        masters.ask()
    masters.answer_all(lambda _under_way: 1.0)
    assert masters.line.window > 64


def test_when_answers_wait_for_one_another_fewer_are_under_way(masters: Masters) -> None:
    """Each takes 0.125 ms to hear: as many are under way as 2 ms are enough for."""
    for _ in range(8_000):
        masters.ask()
    masters.answer_all(lambda under_way: 1 + under_way / 8)
    assert LEAST <= masters.line.window <= 2 * LEAST


def test_masters_that_are_slow_by_themselves_are_asked_for_more_rather_than_for_fewer(
    masters: Masters,
) -> None:
    """What has to be renewed has to be renewed on a slow disk, too."""
    masters.answer(1.0)
    masters.line.under_way = 0
    for _ in range(8_000):
        masters.ask()
    masters.answer_all(lambda _under_way: 100.0)
    assert masters.line.window > 64


def test_masters_that_have_become_slower_are_believed_after_a_while(masters: Masters) -> None:
    masters.line.begins()
    masters.answer(1.0)
    for _ in range(40):
        masters.now_ns += 1_000 * MS
        masters.line.begins()
        masters.answer(5.0)
    for _ in range(2_000):
        masters.ask()
    masters.answer_all(lambda _under_way: 5.0)
    assert masters.line.window > 2 * LEAST


def test_without_anybody_that_waits_nothing_changes(masters: Masters) -> None:
    for _ in range(1_000):
        masters.ask()
        masters.answer()
    assert masters.line.window == LEAST
