"""From a run that broke a promise to the smallest that still breaks it, and to what a person reads of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.harness.history import Calm, Event, Fault, Found, Removed
from tests.sim.cluster import Outcome, run

_BEFORE_NS = 15_000_000_000
_MOST_LINES = 80


def shrink(outcome: Outcome) -> Outcome:
    """Leave out faults, in halves, quarters and so on, as long as the same promise is still broken (ddmin).
    Ends soon: a run takes a tenth of a second."""
    promise = outcome.violations[0].promise
    chunk = max(1, len(outcome.plan.faults) // 2)
    while True:
        smaller = _without_a_chunk(outcome, chunk, promise)
        if smaller is not None:
            outcome = smaller
            chunk = min(chunk, max(1, len(outcome.plan.faults)))
        elif chunk == 1:
            return outcome
        else:
            chunk = max(1, chunk // 2)


def _without_a_chunk(outcome: Outcome, chunk: int, promise: str) -> Outcome | None:
    for start in range(0, len(outcome.plan.faults), chunk):
        tried = run(outcome.plan.without(set(range(start, start + chunk))))
        if any(violation.promise == promise for violation in tried.violations):
            return tried
    return None


def story(outcome: Outcome) -> str:
    """The first violation, and what led to it: the faults, and the events of the leases concerned."""
    violation = outcome.violations[0]
    named = set(re.findall(r"\b[0-9a-f]{8}\b", violation.text))
    resources = _resources_of(outcome.history, named)

    def concerns(event: Event) -> bool:
        if isinstance(event, Fault | Calm):
            return True
        if not violation.at_ns - _BEFORE_NS <= event.at_ns <= violation.at_ns + 1:
            return False
        if isinstance(event, Found | Removed):
            return event.token[:8].decode() in named
        return not resources or getattr(event, "resource", None) in resources or _token(event) in named

    lines = [str(event) for event in outcome.history if event.at_ns <= violation.at_ns and concerns(event)]
    if len(lines) > _MOST_LINES:
        lines = [f"  … {len(lines) - _MOST_LINES} earlier ones", *lines[-_MOST_LINES:]]
    shape = outcome.plan.shape
    return "\n".join(
        [f"seed {outcome.plan.seed}, {len(outcome.plan.faults)} faults, {shape}", *lines, f"==> {violation}"]
    )


def _token(event: Event) -> str:
    return getattr(event, "token", b"")[:8].decode()


def _resources_of(history: Iterable[Event], named: set[str]) -> set[bytes]:
    return {
        resource
        for event in history
        if _token(event) in named and (resource := getattr(event, "resource", None)) is not None
    }
