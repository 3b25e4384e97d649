"""How often something may happen for each account."""

from lockd.server.buckets import Buckets

SECOND_NS = 1_000_000_000


def admitted(buckets: Buckets, account: str, times: int, now_ns: int) -> int:
    return sum(buckets.admits(account, now_ns) for _ in range(times))


def test_a_burst_and_then_one_an_interval() -> None:
    buckets = Buckets(5, SECOND_NS)
    assert admitted(buckets, "one", 20, 0) == 5
    assert admitted(buckets, "one", 20, SECOND_NS - 1) == 0
    assert admitted(buckets, "one", 20, SECOND_NS) == 1
    assert admitted(buckets, "one", 20, 100 * SECOND_NS) == 5


def test_however_many_accounts_are_busy_each_has_its_own() -> None:
    buckets = Buckets(5, SECOND_NS)
    assert [admitted(buckets, f"{account}", 20, 0) for account in range(1_000)] == [5] * 1_000
    assert [admitted(buckets, f"{account}", 20, 0) for account in range(1_000)] == [0] * 1_000


def test_buckets_that_are_full_again_are_forgotten() -> None:
    buckets = Buckets(5, SECOND_NS)
    for now_s in range(10_000):
        buckets.admits(f"{now_s}", now_s * SECOND_NS)
    assert len(buckets) <= 64
