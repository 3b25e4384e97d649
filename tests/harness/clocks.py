"""Units of time in ns, and a clock that stands still until a test moves it."""

from __future__ import annotations

US = 1_000
MS = 1_000 * US
S = 1_000 * MS


class Clock:
    def __init__(self, now_ns: int = 1) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns
