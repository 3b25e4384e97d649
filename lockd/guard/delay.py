"""How long a quarantine takes. Agents calculate with the same time (settle_ns in lockd/core/validity.py),
which can't be imported on a master's host: a test holds the two together."""

from __future__ import annotations

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


def quarantine_ns(max_ttl_ms: int) -> int:
    """After this long, every lease that may have been granted before is over: max_ttl x 1.01 + 1 s."""
    return max_ttl_ms * NS_PER_MS * 101 // 100 + NS_PER_S
