"""Slow readings: a few at a time."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from lockd.masters import survey
from lockd.masters.fleet import Fleet
from lockd.server.concurrency import ConcurrencyLimit, Line
from lockd.server.turns import LoopTurns

OPERATORS: Final = "operators"
"""The account of what operators list: it does not wait for what else their users do."""


class Readings:
    """Shared by all commands that read. signals: clients that wait for a lock look at it again and again."""

    def __init__(self) -> None:
        self.listings = ConcurrencyLimit(at_once=8, per_account=2)
        self.signals = ConcurrencyLimit(at_once=2, per_account=1)


class _Question:
    """Of one who waits for a survey."""

    def __init__(self, account: str, wanted: survey.Wanted, *, first: bool) -> None:
        self.account = account
        self.first = first
        self.asking = survey.Asking(wanted)
        self.answer: asyncio.Future[survey.Listing] = asyncio.get_running_loop().create_future()


class Surveys:
    """Each reads all leases of all masters, for several who ask: for those who asked before it began, since
    its answer must not be older than the question. One is under way; who asks meanwhile waits for the next.

    Operators wait for no user: when one of them asks, a survey for users is broken off. It begins anew when
    operators have their answers.
    """

    def __init__(self, fleet: Fleet, turns: LoopTurns) -> None:
        self._fleet = fleet
        self._turns = turns
        self._line = Line[_Question]()
        self._task: asyncio.Task[None] | None = None
        self._for_users: asyncio.Task[None] | None = None
        """The survey that is under way, if it is for them."""

    async def ask(self, account: str, wanted: survey.Wanted, *, first: bool) -> survey.Listing:
        """first: it is an operator's."""
        question = _Question(account, wanted, first=first)
        self._line.add(account, question, first=first)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        if first and self._for_users is not None:
            self._for_users.cancel()
        try:
            return await question.answer
        finally:
            question.asking.gone = True
            self._line.drop(account, question, first=first)

    async def _through(self, question: _Question, steps: Iterable[object]) -> None:
        await self._turns.through(OPERATORS if question.first else question.account, steps)

    async def _run(self) -> None:
        try:
            while questions := self._next():
                await self._answer(questions)
        finally:
            self._task = None

    def _next(self) -> list[_Question]:
        """Operators', or one of each account, before a second one of any."""
        questions, operators = list[_Question](), self._line.has_first
        while len(questions) < survey.ASKINGS_MOST and self._line.has_first == operators:
            if (found := self._line.next()) is None:
                break
            questions.append(found[1])
        return questions

    async def _answer(self, questions: list[_Question]) -> None:
        askings = [question.asking for question in questions]
        reading = asyncio.get_running_loop().create_task(
            survey.all_copies(self._fleet, askings, partial(self._through, questions[0]))
        )
        self._for_users = None if questions[0].first else reading
        await asyncio.wait([reading])
        self._for_users = None
        failure = None if reading.cancelled() else reading.exception()
        # The last one first: then they are in their order again.
        for question in reversed(questions):
            if question.answer.done():
                continue
            if failure is not None:
                question.answer.set_exception(failure)
            elif question.asking.put_off or reading.cancelled():
                question.asking = survey.Asking(question.asking.wanted)
                self._line.put_back(question.account, question, first=question.first)
            else:
                question.answer.set_result(question.asking.listing)
