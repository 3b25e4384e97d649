"""The flow of a connection: none is left unread for ever, replies come in order, what is kept is bounded."""

from __future__ import annotations

import pytest
from hypothesis import settings

from lockd.core.flow import UNDER_WAY_MOST
from tests.harness.any_connection import KINDS, UNREAD_BYTES, AnyConnection, Connection, numbered

AnyConnection.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAnyConnection = AnyConnection.TestCase


@pytest.fixture
def connection() -> Connection:
    return Connection()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [1, 17, 64, 65, 3_000])
def test_after_a_burst_of_any_size_and_kind_it_is_read_from(
    connection: Connection, number: int, kind: str
) -> None:
    connection.comes(*(numbered(kind, at) for at in range(number)))
    connection.settle()
    assert connection.reading
    assert connection.written.count(b";") == number


def test_what_came_in_one_piece_is_not_read_on_until_it_is_begun(connection: Connection) -> None:
    connection.comes(*(numbered("asked", at) for at in range(1_000)))
    assert not connection.reading
    connection.turn()
    assert len(connection.under_way) == UNDER_WAY_MOST, "masters are asked about so many at a time"


def test_a_command_behind_one_that_waits_is_begun_and_answered_in_its_place(connection: Connection) -> None:
    """An app with one connection for everything: the UNLOCK is what its own LOCK waits for."""
    connection.comes(numbered("in turn", 0), numbered("in turn", 1), numbered("asked", 2))
    connection.turn()
    assert [reply for _, reply in connection.under_way] == [b"000000;", b"000002;"]
    connection.answer(1)
    assert not connection.written
    connection.answer(0)
    connection.turn()
    connection.answer(0)
    assert connection.written == b"000000;000001;000002;"


def test_what_waits_in_line_has_its_turn_as_the_first_and_may_be_answered_before(
    connection: Connection,
) -> None:
    """LOCKs of one connection, of which one's wait ends: each is told in its place."""
    connection.comes(*(numbered("in line", at) for at in range(3)))
    connection.turn()
    assert [reply for _, reply in connection.under_way] == [b"000000;"]
    connection.wait_ends(0)
    connection.answer(0)
    assert connection.written == b"000000;000001;"
    connection.turn()
    assert [reply for _, reply in connection.under_way] == [b"000002;"]


def test_what_may_come_to_a_grant_waits_until_replies_are_read(connection: Connection) -> None:
    """It would be held by one who doesn't read what he holds."""
    connection.comes(numbered("at once", 0, 300), numbered("in turn", 1))
    connection.turn()
    connection.comes(numbered("in line", 2))
    connection.answer(0)
    assert connection.unsent
    connection.turn()
    assert not connection.under_way
    assert connection.flow.waits_for_reader
    connection.app_reads(1_000)
    connection.turn()
    assert connection.under_way


@pytest.mark.parametrize("kind", ["in turn", "in line"])
def test_one_that_sends_all_before_it_reads_anything_is_not_waited_for(
    connection: Connection, kind: str
) -> None:
    """It can't read before it is read from, and can't be read from before some of this is answered."""
    connection.room = 0
    connection.comes(*(numbered(kind, at) for at in range(300)))
    while not connection.reading:
        assert connection.scheduled or connection.under_way
        if connection.scheduled:
            connection.turn()
        else:
            connection.answer(0)
    assert connection.unsent, "it has read nothing"


@pytest.mark.parametrize(
    ("kind", "number", "reply_bytes"), [("asked", 1_000, 7), ("at once", 1, UNREAD_BYTES + 4_000)]
)
def test_what_is_kept_behind_the_first_does_not_keep_it_from_being_begun(
    connection: Connection, number: int, kind: str, reply_bytes: int
) -> None:
    """Only that one could make room: a LOCK that waited behind another, with thousands of UNLOCKs or long
    replies behind it."""
    connection.comes(numbered("in turn", 0), numbered("in turn", 1))
    connection.comes(*(numbered(kind, 2 + at, reply_bytes) for at in range(number)))
    while connection.scheduled or len(connection.under_way) > 1:
        if connection.scheduled:
            connection.turn()
        else:
            connection.answer(-1)
    assert connection.flow.full
    assert not connection.reading
    connection.answer(0)
    connection.turn()
    assert connection.under_way, "the second one"
    connection.settle()
    assert connection.reading
    assert connection.written.count(b";") == number + 2


def test_a_reply_is_composed_when_it_is_written(connection: Connection) -> None:
    composed = list[int]()
    connection.comes(numbered("in turn", 0), numbered("asked", 1))
    connection.turn()
    place, _ = connection.under_way.pop()
    connection.flow.finish(place, lambda: composed.append(1) or b"000001;")
    assert not composed
    connection.answer(0)
    assert composed == [1]


def test_one_that_does_not_read_its_replies_is_not_read_from_until_it_does(connection: Connection) -> None:
    number = 0
    while connection.reading and number < 80_000:
        connection.comes(numbered("at once", number))
        connection.turn()
        number += 1
    assert number < 80_000
    assert connection.flow.waits_for_reader
    connection.settle()
    assert connection.reading
    assert connection.written.count(b";") == number


def test_one_that_sends_for_long_before_it_reads_is_read_from_while_there_is_room(
    connection: Connection,
) -> None:
    """As redis-py does with a pipeline: neither side would go on, if either stopped."""
    for number in range(400):
        connection.comes(numbered("asked", number))
        connection.turn()
        connection.answer(0)
        assert connection.reading
    assert connection.flow.clogged_bytes
    connection.settle()
    assert connection.written.count(b";") == 400


def test_what_it_did_not_ask_for_need_not_be_read(connection: Connection) -> None:
    connection.flow.push(b"!" * 300)
    assert connection.flow.clogged_bytes
    assert not connection.flow.waits_for_reader
    connection.comes(numbered("at once", 0))
    connection.turn()
    assert connection.flow.waits_for_reader
