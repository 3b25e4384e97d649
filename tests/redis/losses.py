"""What `on_lost` was told, for the tests of both clients."""

from __future__ import annotations

from lockd.client.state import HeldLease
from lockd.clock import boottime_ns


class ToldLosses:
    """An `on_lost` that remembers its calls, and what the lease said at that moment."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.left_s: list[float] = []

    def __call__(self, lease: HeldLease, reason: str) -> None:
        self.left_s.append((lease.deadline_ns - boottime_ns()) / 1e9)
        self.reasons.append(reason)
