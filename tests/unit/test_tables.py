"""What is remembered: a full account forgets its own oldest entry, never another's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lockd.core.tables import Table

MOST, FLOOR = 1_280, 10


def a_table() -> Table[str, int]:
    return Table(MOST, FLOOR)


def test_a_full_account_forgets_its_own_oldest_and_nobody_elses() -> None:
    table = a_table()
    table.put("modest", "first", 1)
    forgotten = [old for number in range(5_000) for old in table.put("greedy", f"{number}", number)]
    assert table.get("first") == 1
    assert forgotten == list(range(len(forgotten)))
    assert len(table) - 1 == 5_000 - len(forgotten) < MOST / 2
    assert table.get("4999") == 4_999
    assert table.get("0") is None


def test_beside_many_greedy_accounts_each_has_its_floor() -> None:
    table = a_table()
    for account in range(60):
        for number in range(200):
            table.put(f"greedy {account}", f"{account}/{number}", number)
    for number in range(FLOOR):
        assert table.put("modest", f"m{number}", number) == []
    assert len(table) <= MOST


def test_what_is_put_again_is_the_newest_and_may_be_another_accounts() -> None:
    table = a_table()
    for number in range(3):
        table.put("one", f"{number}", number)
    table.put("one", "0", 7)
    assert table.oldest_of("one") == "1"
    table.put("another", "1", 8)
    assert (table.oldest_of("one"), table.oldest_of("another"), len(table)) == ("2", "1", 3)
    assert (table.pop("1"), table.pop("1")) == (8, None)
    assert table.oldest_of("another") is None


def test_with_more_accounts_than_there_is_room_for_the_last_ones_remember_nothing() -> None:
    table = Table[str, int](64, 1)
    for number in range(1_000):
        table.put(f"{number}", f"{number}", number)
    assert len(table) <= 64
    assert table.put("new", "new", 1) == []


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40), st.booleans()), max_size=300),
)
def test_it_holds_what_was_put_and_not_taken_out_or_forgotten(plan: list[tuple[int, int, bool]]) -> None:
    table, held = Table[int, int](256, 2), dict[int, int]()
    for account, key, puts in plan:
        if puts:
            held.pop(key, None)
            for old in table.put(f"{account}", key, key):
                del held[old]
            if key in table:
                held[key] = key
        else:
            assert table.pop(key) == held.pop(key, None)
        assert {key for key in range(41) if key in table} == held.keys()
        assert len(table) == len(held)
