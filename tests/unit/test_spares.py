"""Connections for operators, beyond all limits."""

from __future__ import annotations

from typing import Any

from lockd.server import spares as spares_module
from lockd.server.spares import SpareConnections
from tests.harness.clocks import S


class Connection:
    gave_way = False

    def give_way(self) -> None:
        self.gave_way = True


def admitted(spares: SpareConnections, now_ns: int) -> Any:
    connection: Any = Connection()
    return connection if spares.admit(connection, now_ns) else None


def test_there_are_a_few_and_the_one_idle_longest_gives_way() -> None:
    spares = SpareConnections()
    there = [admitted(spares, number) for number in range(spares_module._MOST)]
    assert all(there)
    spares.used(there[0], 2 * S)
    assert admitted(spares, 2 * S)
    assert [one.gave_way for one in there] == [False, True] + [False] * (spares_module._MOST - 2)


def test_one_that_has_just_asked_gives_way_to_nobody_and_one_that_is_closed_makes_room() -> None:
    spares = SpareConnections()
    there = [admitted(spares, S) for _ in range(spares_module._MOST)]
    assert not admitted(spares, S + S // 2)
    assert not any(one.gave_way for one in there)
    spares.forget(there[3])
    spares.used(there[3], S)
    assert admitted(spares, S)
    assert not admitted(spares, S)
