"""How much one account may hold: its floor, and a share of what is free."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockd.core.stakes import FLOORS, Stock
from lockd.core.turns import HOUSE

COMMON = 90_000
FLOOR = 10


def a_stock(share: int = 50) -> Stock:
    return Stock("things", COMMON + FLOORS * FLOOR, FLOOR, share)


def takes_all(stock: Stock, account: str) -> int:
    """As much as it may, one by one."""
    taken = 0
    while stock.refusal(account, 100) is None:
        stock.take(account, 100)
        taken += 100
    return taken


def test_one_greedy_account_gets_a_third_and_eight_leave_a_fifth() -> None:
    stock = a_stock()
    assert takes_all(stock, "greedy") == pytest.approx(COMMON / 3, rel=0.01)
    while sum(takes_all(stock, f"greedy {number}") for number in range(7)):
        # Each got less while others had more: until nobody gets any more.
        stock.give_back("greedy", max(0, stock.held["greedy"] - stock.most_of("greedy")))
    assert COMMON - stock.used == pytest.approx(COMMON / 5, rel=0.35)


def test_with_one_app_on_a_host_the_share_may_be_so_large_that_it_gets_nearly_all() -> None:
    assert takes_all(a_stock(800), "the app") == pytest.approx(COMMON * 8 / 9, rel=0.01)


def test_whatever_others_hold_there_is_a_floor_for_each() -> None:
    stock = a_stock(100_000)
    for number in range(FLOORS - 1):
        takes_all(stock, f"greedy {number}")
    assert stock.refusal("modest", FLOOR) is None
    most = stock.most_of("modest")
    assert FLOOR <= most < 3 * FLOOR
    assert stock.refusal("modest", most + 1) == (
        f"things: modest has 0, and may have {most} while others have {stock.used}"
    )


def test_with_more_accounts_than_floors_each_has_less_and_not_nothing() -> None:
    stock = a_stock(100_000)
    for number in range(FLOORS * 3):
        stock.take(f"{number}", 1)
    assert stock.floor == FLOOR // 4
    for number in range(FLOORS * 3):
        stock.give_back(f"{number}", 1)
    assert stock.floor == FLOOR
    assert stock.used == 0
    assert not stock.held


def test_the_floors_of_a_small_stock_are_half_of_it() -> None:
    stock = Stock("files", 256, 32, 25)
    assert stock.floor == 2
    assert stock.most_of("one") == 2 + 128 * 25 // 125


def test_the_house_is_refused_nothing() -> None:
    stock = a_stock()
    takes_all(stock, "greedy")
    assert stock.refusal(HOUSE, COMMON) is None


def test_when_more_is_in_use_than_was_counted_nobody_gets_more_than_a_floor() -> None:
    stock = a_stock()
    stock.only_floors = True
    assert stock.refusal("one", FLOOR) is None
    assert stock.refusal("one", FLOOR + 1) is not None


def test_a_lower_limit_takes_nothing_away() -> None:
    stock = a_stock()
    held = takes_all(stock, "one")
    stock.change(1_000, 50)
    assert stock.held == {"one": held}
    assert stock.refusal("one", 1) is not None
    stock.give_back("one", held)
    assert stock.most_of("one") > 100


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(1, 3_000), st.booleans()), max_size=400),
    st.sampled_from([10, 50, 800]),
)
def test_what_is_held_is_what_was_taken_and_the_common_pot_is_never_used_up(
    events: list[tuple[int, int, bool]], share: int
) -> None:
    stock, held = a_stock(share), dict[str, int]()
    for number, amount, takes in events:
        account = f"{number}"
        if takes and stock.refusal(account, amount) is None:
            stock.take(account, amount)
            held[account] = held.get(account, 0) + amount
        elif not takes and held.get(account):
            back = min(amount, held[account])
            stock.give_back(account, back)
            held[account] -= back
        assert stock.held == {one: much for one, much in held.items() if much}
        assert stock._common_used == sum(max(0, much - stock.floor) for much in held.values())
        assert stock.used <= COMMON + FLOORS * FLOOR
