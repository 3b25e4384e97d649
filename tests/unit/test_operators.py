"""The few places for operators' connections."""

from __future__ import annotations

from typing import Any

from lockd.server.operators import PLACES, Places
from tests.harness.clocks import S


class Connection:
    gave_way = False

    def give_way(self) -> None:
        self.gave_way = True


def admitted(places: Places, now_ns: int) -> Any:
    connection: Any = Connection()
    return connection if places.admit(connection, now_ns) else None


def test_there_are_a_few_and_the_one_idle_longest_gives_way() -> None:
    places = Places()
    there = [admitted(places, number) for number in range(PLACES)]
    assert all(there)
    places.used(there[0], 2 * S)
    assert admitted(places, 2 * S)
    assert [one.gave_way for one in there] == [False, True] + [False] * (PLACES - 2)


def test_one_that_has_just_asked_gives_way_to_nobody_and_one_that_is_closed_makes_room() -> None:
    places = Places()
    there = [admitted(places, S) for _ in range(PLACES)]
    assert not admitted(places, S + S // 2)
    assert not any(one.gave_way for one in there)
    places.forget(there[3])
    places.used(there[3], S)
    assert admitted(places, S)
    assert not admitted(places, S)
