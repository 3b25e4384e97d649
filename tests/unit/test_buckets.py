"""How often something may happen for each user, in bounded memory."""

from lockd.server.buckets import Buckets

SECOND_NS = 1_000_000_000


def admitted(buckets: Buckets[int], key: int, times: int, now_ns: int) -> int:
    return sum(buckets.admits(key, now_ns) for _ in range(times))


def test_a_burst_and_then_one_an_interval():
    buckets = Buckets[int](5, SECOND_NS, 10)
    assert admitted(buckets, 1, 20, 0) == 5
    assert admitted(buckets, 1, 20, SECOND_NS - 1) == 0
    assert admitted(buckets, 1, 20, SECOND_NS) == 1
    assert admitted(buckets, 1, 20, 100 * SECOND_NS) == 5


def test_a_bucket_that_is_full_again_is_forgotten():
    buckets = Buckets[int](5, SECOND_NS, 10)
    for now_s in range(1_000):
        buckets.admits(now_s, now_s * SECOND_NS)
    assert len(buckets) <= 3


def test_users_beyond_the_bound_share_one_bucket_and_those_within_it_keep_theirs():
    buckets = Buckets[int](5, SECOND_NS, 10)
    known = [admitted(buckets, key, 3, 0) for key in range(10)]
    late = [admitted(buckets, key, 3, 0) for key in range(10, 1_000)]
    assert (known, sum(late), len(buckets)) == ([3] * 10, 5, 10)
    assert admitted(buckets, 0, 9, 0) == 2
