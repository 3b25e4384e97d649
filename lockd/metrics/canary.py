"""The state of the canary: the lock that the agent takes, extends and gives back by itself."""

from __future__ import annotations

import time
from typing import NamedTuple

from lockd.config.current import Current
from lockd.core.values import Refusal
from lockd.metrics.counts import WAIT_S, Histogram, histograms
from lockd.metrics.families import Measured, gauge, timed
from lockd.metrics.leases import GRANTED, OUTCOMES, outcome_of

_UNRELEASED = "unreleased"
CANARY_OUTCOMES = (*OUTCOMES, _UNRELEASED)


def _sung() -> dict[str, Histogram]:
    """By outcome. The time matters only when it works: other outcomes are only counted."""
    return histograms(CANARY_OUTCOMES, ()) | {GRANTED: Histogram(WAIT_S)}


class CanaryTrouble(NamedTuple):
    """`failures` in a row until now, and why the last one failed: the first word of the error, and all of
    it."""

    failures: int = 0
    code: str = ""
    why: str = ""


class CanaryMetrics(Measured):
    """trouble: replaced as a whole, so any thread can read it."""

    def __init__(self, current: Current) -> None:
        super().__init__()
        self._current = current
        self._worked_s: float | None = None
        self.trouble = CanaryTrouble()

    @gauge("How often the agent takes, extends and releases its canary lock; 0: never.")
    def canary_interval_seconds(self) -> float:
        return self._current.config.canary_ms / 1e3

    canary_seconds = timed(
        "Time from the canary's LOCK, by its EXTEND, to the end of its UNLOCK, or to what was refused.",
        _sung,
        by="outcome",
    )

    @gauge("How often the canary has failed since it last worked; 0 while it works, or if there is none.")
    def canary_failures(self) -> int:
        return self.trouble.failures

    @gauge("When the canary last worked; absent until it has, and while it is switched off.")
    def canary_last_success_timestamp_seconds(self) -> float | None:
        return self._worked_s

    def worked(self, took_ns: int) -> None:
        """Its lock was taken, extended and given back in this time."""
        self.canary_seconds[GRANTED].observe(took_ns)
        self._worked_s = time.time()
        self.trouble = CanaryTrouble()

    def refused(self, refusal: Refusal, took_ns: int) -> None:
        """Its lock was not granted, or could not be extended."""
        self.canary_seconds[outcome_of(refusal.code)].observe(took_ns)
        self._fails(refusal.code, str(refusal))

    def unreleased(self, refusal: Refusal, took_ns: int) -> None:
        """Its lock was taken, and the release was not confirmed."""
        self.canary_seconds[_UNRELEASED].observe(took_ns)
        self._fails("UNRELEASED", f"its release was not confirmed: {refusal}")

    def stopped(self) -> None:
        """There is none any more. When it last worked would only get older, and look like trouble."""
        self._worked_s = None
        self.trouble = CanaryTrouble()

    def _fails(self, code: str, why: str) -> None:
        self.trouble = CanaryTrouble(self.trouble.failures + 1, code, why)
