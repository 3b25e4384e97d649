"""The end of a connection that is not read from."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lockd.server.hangups import HangUps


class Connection:
    hung_up_times = 0

    def __init__(self) -> None:
        self.ours, self.its = socket.socketpair(socket.AF_UNIX)
        self.told = asyncio.Event()

    def hung_up(self) -> None:
        self.hung_up_times += 1
        self.told.set()


@contextmanager
def watching() -> Iterator[HangUps]:
    hang_ups, loop = HangUps(), asyncio.get_running_loop()
    hang_ups.start(loop)
    yield hang_ups
    hang_ups.stop(loop)


async def turns(number: int = 20) -> None:
    for _ in range(number):
        await asyncio.sleep(0.001)


def watched(hang_ups: HangUps) -> Any:
    connection: Any = Connection()
    hang_ups.watch(connection, connection.ours.fileno())
    return connection


async def test_it_is_told_once_however_much_was_sent_before() -> None:
    with watching() as hang_ups:
        connection, other = watched(hang_ups), watched(hang_ups)
        connection.its.sendall(b"x" * 50_000)
        await turns()
        assert not connection.hung_up_times, "it has only sent something"
        connection.its.shutdown(socket.SHUT_WR)
        await turns()
        assert not connection.hung_up_times, "it wants its replies"
        connection.its.close()
        await connection.told.wait()
        await turns()
        assert (connection.hung_up_times, other.hung_up_times) == (1, 0)


async def test_one_that_is_read_from_again_is_not_told() -> None:
    with watching() as hang_ups:
        connection = watched(hang_ups)
        hang_ups.forget(connection)
        hang_ups.forget(connection)
        connection.its.close()
        await turns()
        assert not connection.hung_up_times


async def test_a_connection_that_got_the_number_of_one_that_ended_stays_watched() -> None:
    with watching() as hang_ups:
        ended, later = watched(hang_ups), Connection()
        number = ended.ours.fileno()
        os.dup2(later.ours.fileno(), number)
        anew: Any = later
        hang_ups.watch(anew, number)
        hang_ups.forget(ended)
        later.ours.close()
        later.its.close()
        await later.told.wait()
        assert not ended.hung_up_times


async def test_connections_may_end_after_the_agent_has() -> None:
    with watching() as hang_ups:
        connection = watched(hang_ups)
    hang_ups.forget(connection)
