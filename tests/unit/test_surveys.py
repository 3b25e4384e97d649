"""Surveys are shared: each reads everything once, for all who asked before it began, and for nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from lockd.masters import survey
from lockd.masters.survey import ASKINGS_MOST, Asking
from lockd.server.commands.listings import Listings
from lockd.server.commands.readings import OPERATORS, Surveys
from tests.harness.sessions import NeverBusy

ROOT = 0


class Read:
    """Stands for the reading itself: each takes until the test ends it. begun: whose questions it answers."""

    def __init__(self) -> None:
        self.begun: list[list[str]] = []
        self.put_off: set[str] = set()
        self.failure: Exception | None = None
        self._go_on = asyncio.Event()

    async def all_copies(self, _fleet: Any, askings: Sequence[Asking], through: Any) -> None:
        self.through = through
        self.begun.append([str(asking.wanted) for asking in askings])
        self._go_on.clear()
        await self._go_on.wait()
        if self.failure is not None:
            raise self.failure
        for asking in askings:
            asking.listing.answered = len(self.begun)
            if asking.wanted in self.put_off:
                self.put_off.discard(str(asking.wanted))
                asking.put_off = True

    async def ends(self) -> None:
        """The one under way; whoever it answers goes on."""
        self._go_on.set()
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    it = Read()
    monkeypatch.setattr(survey, "all_copies", it.all_copies)
    return it


@pytest.fixture
def surveys(read: Read) -> Surveys:
    fleet: Any = None
    return Surveys(fleet, NeverBusy())


def asks(surveys: Surveys, uid: int, name: str) -> asyncio.Task[survey.Listing]:
    wanted: Any = name
    return asyncio.ensure_future(surveys.ask(f"{uid}", wanted, first=uid == ROOT))


async def test_who_asks_while_one_is_under_way_shares_the_next_with_all_who_do(surveys: Surveys, read: Read):
    """The one under way may have read already what changed before the question."""
    first = asks(surveys, 1000, "first")
    await settle()
    others = [asks(surveys, 1001 + n, f"other {n}") for n in range(5)]
    await settle()
    assert read.begun == [["first"]]
    await read.ends()
    assert first.done()
    assert read.begun[1:] == [[f"other {n}" for n in range(5)]]
    assert not any(other.done() for other in others)
    await read.ends()
    assert [(await other).answered for other in others] == [2] * 5


async def test_an_operator_waits_for_nobody_whoever_lists_in_a_loop(surveys: Surveys, read: Read):
    """Twelve users have ten questions each. The survey for them is broken off, and begins anew for the same
    ones when two operators have their answers."""
    users = [asks(surveys, 1000 + uid, f"{uid}/{n}") for n in range(10) for uid in range(12)]
    await settle()
    operators = [asks(surveys, ROOT, "operator"), asks(surveys, ROOT, "another")]
    await settle()
    assert read.begun[1:] == [["operator", "another"]]
    late = asks(surveys, ROOT, "late")
    await settle()
    assert not any(task.done() for task in users)
    await read.ends()
    assert [operator.done() for operator in operators] == [True, True]
    assert read.begun[2:] == [["late"]], "one for operators is not broken off"
    await read.ends()
    assert late.done()
    assert read.begun[3:] == [read.begun[0]]
    await read.ends()
    assert [task.done() for task in users[:9]] == [True] * ASKINGS_MOST + [False]
    for user in users:
        user.cancel()
    await asyncio.gather(*users, return_exceptions=True)


async def test_another_users_single_question_is_in_the_next_however_many_one_user_has(
    surveys: Surveys, read: Read
):
    many = [asks(surveys, 1000, f"many {n}") for n in range(50)]
    await settle()
    single = asks(surveys, 7, "single")
    await settle()
    await read.ends()
    assert "single" in read.begun[1]
    assert [len(askings) for askings in read.begun] == [ASKINGS_MOST] * 2
    await read.ends()
    assert single.done()
    for task in many:
        task.cancel()
    await asyncio.gather(*many, return_exceptions=True)


async def test_who_is_put_off_is_the_first_of_all_users_in_the_next(surveys: Surveys, read: Read):
    first = [asks(surveys, 1000 + n, f"first {n}") for n in range(3)]
    await settle()
    second = asks(surveys, 2000, "second")
    await settle()
    read.put_off = {"first 1", "first 2"}
    await read.ends()
    assert [task.done() for task in first] == [True, False, False]
    assert read.begun[1] == ["first 1", "first 2", "second"]
    await read.ends()
    assert [(await task).answered for task in (*first[1:], second)] == [2, 2, 2]


async def test_what_an_operator_waits_for_is_not_read_in_a_users_turn(surveys: Surveys, read: Read):
    turns: Any = surveys._turns
    accounts, done = list[str](), list[str]()
    turns.add = lambda account, work: (accounts.append(account), work(1 << 62))
    for uid in (1000, ROOT):
        asked = asks(surveys, uid, "what is there")
        await settle()
        await read.through(map(done.append, ["a page"]))
        await read.ends()
        assert asked.done()
    assert accounts == ["1000", OPERATORS]
    assert len(done) == 2


async def test_what_breaks_one_survey_breaks_no_other(surveys: Surveys, read: Read):
    first = asks(surveys, 1000, "first")
    await settle()
    second = asks(surveys, 1000, "second")
    read.failure = ValueError("a mistake")
    await read.ends()
    with pytest.raises(ValueError, match="a mistake"):
        await first
    read.failure = None
    await read.ends()
    assert (await second).answered == 2


async def test_for_who_has_gone_no_survey_is_made(surveys: Surveys, read: Read):
    first = asks(surveys, 1000, "first")
    await settle()
    gone = [asks(surveys, 1001, f"gone {n}") for n in range(10)]
    await settle()
    for task in gone:
        task.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    await read.ends()
    assert first.done()
    assert read.begun == [["first"]]
    last = asks(surveys, 1001, "last")
    await settle()
    assert read.begun[1:] == [["last"]]
    await read.ends()
    assert last.done()


def session_with_room_for(most: int) -> Any:
    refuse = lambda size: [b"-LIMIT\r\n"] if size > most else []  # noqa: E731
    return SimpleNamespace(
        protocol=2, peer=SimpleNamespace(uid=1000), account="uid 1000", refuse_reply=refuse
    )


async def test_of_a_reply_that_its_user_has_no_room_for_no_more_is_made_than_there_is_room_for():
    listings = Listings.__new__(Listings)
    listings._shared = SimpleNamespace(
        turns=NeverBusy(), permissions=SimpleNamespace(is_admin=lambda _peer: False)
    )  # type: ignore[assignment]
    made = count()
    rows = ({"name": b"x" * 1_000, "n": next(made)} for _ in range(9_000))
    assert await listings._listing(session_with_room_for(1_000_000), rows) == b"-LIMIT\r\n"
    assert next(made) < 1_200
