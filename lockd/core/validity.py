"""How long a lease may be relied upon (rule 1), and how long to stay away when the past is not known (rules 8
to 11)."""

NS_PER_MS = 1_000_000
NS_PER_S = 1_000 * NS_PER_MS
DAY_MS = 86_400_000
NEVER_NS = 1 << 62

DRIFT_NUM, DRIFT_DEN = 1, 100
DRIFT_FLOOR_NS = 2 * NS_PER_MS


def drift_ns(ttl_ms: int) -> int:
    """By how much two clocks may differ over `ttl_ms` while both are sound: 1 % and 2 ms."""
    return ttl_ms * NS_PER_MS * DRIFT_NUM // DRIFT_DEN + DRIFT_FLOOR_NS


def deadline_ns(t1_ns: int, ttl_ms: int) -> int:
    """The instant at which a lease of `ttl_ms`, asked for at `t1_ns` (before the first byte was sent), ends
    for its holder."""
    return t1_ns + ttl_ms * NS_PER_MS - drift_ns(ttl_ms)


def left_ms(deadline_ns: int, now_ns: int) -> int:
    """A deadline in whole milliseconds from now, as apps are told it: 0 once it has passed."""
    left = (deadline_ns - now_ns) // NS_PER_MS
    return left if left > 0 else 0


def longest_ttl_ms(span_ns: int) -> int:
    """The largest TTL whose deadline comes no later than `span_ns` after its T1; 0 when there is none
    (rule 7)."""
    return max(0, (span_ns + DRIFT_FLOOR_NS) * DRIFT_DEN // (NS_PER_MS * (DRIFT_DEN - DRIFT_NUM)))


def settle_ns(max_ttl_ms: int) -> int:
    """After this long, every lease that could have been granted before is over: max_ttl x 1.01 + 1 s. The
    formula is repeated in lockd/guard/delay.py, which runs without lockd; a test holds the two together."""
    return max_ttl_ms * NS_PER_MS * (DRIFT_DEN + DRIFT_NUM) // DRIFT_DEN + 1000 * NS_PER_MS


def notice_ns(ttl_ms: int) -> int:
    """How long before its deadline a holder is told that its lease could not be renewed (rule 12): a fifth of
    the TTL, 5 s at most."""
    return min(ttl_ms * NS_PER_MS // 5, 5000 * NS_PER_MS)
