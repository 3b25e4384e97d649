"""A link hears few answers in a turn of the event loop, whatever has come: others want their turns. And which
session on a master it ends before it asks anything on a new connection (rule 3)."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from lockd.core.ballots.release import Release, ReleaseOutcome
from lockd.core.introduction import EndSession, HaveScripts, HearNotices, ReadFacts, introduce
from lockd.core.membership import MasterFacts
from lockd.core.sizes import debt
from lockd.core.stakes import Stock
from lockd.masters.link import HEARD_AT_ONCE, Link
from tests.harness import fleet_model
from tests.harness.ballots import a_release
from tests.harness.real_fleet import a_fleet

BURST = 5_000


class Transport:
    """Of a connection to a master: what is written goes nowhere."""

    def __init__(self) -> None:
        self.reads = True
        self.aborted = False

    def write(self, data: bytes) -> None: ...

    def get_extra_info(self, name: str) -> None: ...

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def abort(self) -> None:
        self.aborted = True


class Story:
    """A link that is up, and releases on their way to its master. heard: which were answered, in order."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.room = Stock("bytes", 1 << 40, 0, 100)
        self.fleet = a_fleet(broke=lambda _ballot, why, _now_ns: self.failures.append(why), room=self.room)
        self.link: Link = self.fleet.links[0]
        self.transport = self.connect()
        self.heard: list[bytes] = []

    def connect(self) -> Transport:
        transport = Transport()
        self.link.connects(0)
        self.link.connection_made(cast(asyncio.BaseTransport, transport))
        self.link.introduced = True
        return transport

    def give_back(self, count: int) -> None:
        for number in range(count):
            release = a_release(word=b"%d" % number, settled=self._settled)
            release.put_to(self.fleet.release(release, self.link.bit))

    def _settled(self, release: Release, _now_ns: int) -> None:
        self.heard.append(release.word)

    def answered(self, count: int, *, too_many: int = 0) -> None:
        """All at once: most of them are heard in later turns."""
        self.give_back(count)
        self.link.data_received(b":1\r\n" * (count + too_many))

    async def turns(self) -> list[int]:
        """How many answers are heard in each turn until nothing more is; and nothing is read meanwhile."""
        counts = [len(self.heard)]
        while not self.transport.reads:
            await asyncio.sleep(0)
            counts.append(len(self.heard) - sum(counts))
        return counts


async def test_a_burst_of_answers_is_heard_a_few_in_a_turn_and_in_order() -> None:
    story = Story()
    story.answered(BURST)
    counts = await story.turns()
    assert max(counts) == HEARD_AT_ONCE
    assert story.heard == [b"%d" % number for number in range(BURST)]
    assert not story.failures


async def test_what_comes_behind_a_burst_is_heard_behind_it() -> None:
    story = Story()
    story.give_back(200)
    story.link.data_received(b":1\r\n" * 100 + b":")
    story.link.data_received(b"1\r\n" + b":0\r\n" * 99)  # transports may have read it already
    assert max(await story.turns()) == HEARD_AT_ONCE
    assert story.heard == [b"%d" % number for number in range(200)]


async def test_a_few_answers_are_heard_at_once_and_reading_goes_on() -> None:
    story = Story()
    story.answered(HEARD_AT_ONCE - 1)
    assert len(story.heard) == HEARD_AT_ONCE - 1
    assert story.transport.reads


async def test_what_was_not_heard_when_the_connection_broke_was_not_answered() -> None:
    """It is asked again on the next one (rule 3), and that one's answers are for what is asked there."""
    story = Story()
    story.answered(100)
    story.link.connection_lost(None)
    story.transport = story.connect()
    await asyncio.sleep(0)
    assert len(story.heard) == HEARD_AT_ONCE
    assert story.room.used == (100 - HEARD_AT_ONCE) * debt(1)


async def test_a_debt_that_its_account_has_no_room_for_is_unanswered_in_a_later_turn() -> None:
    """Otherwise it would stay in the journal for ever. Core is in the middle of its work when it is given
    back."""
    story = Story()
    story.room.change(0, 0)
    story.link.connection_lost(None)
    releases = [a_release(quorum=1, settled=story._settled) for _ in range(3)]
    for release in releases:
        release.account = "full"
        release.put_to(story.fleet.release(release, story.link.bit))
    assert not story.heard
    await asyncio.sleep(0)
    assert [release.outcome for release in releases] == [ReleaseOutcome.NO_QUORUM] * 3


async def test_nothing_is_heard_of_a_connection_that_was_given_up() -> None:
    story = Story()
    story.answered(100)
    story.link.drop("for the test", 0)
    await asyncio.sleep(0)
    assert len(story.heard) == HEARD_AT_ONCE
    assert story.transport.aborted
    assert not story.failures


async def test_an_answer_too_many_at_the_end_of_a_burst_is_nonsense() -> None:
    story = Story()
    story.answered(100, too_many=1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(story.heard) == 100
    assert story.transport.aborted


@pytest.fixture
def link() -> fleet_model.Link:
    """Its connection broke, and there is another one, on which nothing was asked yet."""
    time = fleet_model.Time()
    link = fleet_model.Fleet(time, fleet_model.masters_of(time, 1)).links[0]
    link.break_off()
    link.connects(0)
    return link


@pytest.mark.parametrize(("run_id", "ended"), [("run of m1", [EndSession(1)]), ("another", [])])
def test_the_session_of_the_connection_that_broke_is_ended_before_anything_is_asked(
    link: fleet_model.Link, run_id: str, ended: list[EndSession]
) -> None:
    """Unless its master was restarted meanwhile: its number may be somebody else's."""
    assert link.facts is not None
    steps = introduce(link, 2, lambda: 0)
    asked = [steps.send(None), steps.send(replace(link.facts, run_id=run_id))]
    while asked[-1] != HaveScripts():
        assert not link.introduced
        asked.append(steps.send(None))
    assert asked == [ReadFacts(tuple(range(64, 128))), *ended, HaveScripts()]
    assert next(steps) == HearNotices()
    assert not link.introduced
    assert next(steps, "done") == "done"
    assert link.introduced


def test_a_master_that_is_loading_its_data_is_asked_nothing_more() -> None:
    link = a_fleet().links[0]
    link.connects(0)
    steps = introduce(link, 1, lambda: 0)
    steps.send(None)
    with pytest.raises(StopIteration) as end:
        steps.send(MasterFacts("run", "test", "master", 0, None, {}, loading=True))
    assert (end.value.value, link.introduced) == (False, False)


async def test_what_has_to_be_noted_is_noted_before_anything_goes_out() -> None:
    fleet, done = a_fleet(), list[str]()
    fleet.before_sending = lambda: done.append("noted")
    for link in fleet.links:
        transport = Transport()
        transport.write = lambda _data: done.append("sent")  # type: ignore[method-assign]
        link.connection_made(transport)
        link.out.append(b"...")
    fleet.flush_soon()
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == ["noted", "sent", "sent", "sent"]
