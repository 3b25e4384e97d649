"""What a campaign came to, for people and for programs."""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.chaos.campaign import Outcome, Plan
from tests.harness.checker import Violation
from tests.harness.history import Asked, Event, Fault, Found, Granted, Refused, Withdrawn

KEPT = Path(".chaos")
_SHOWN_MOST = 5
_LINES_MOST = 40
_AROUND_NS = 2_000_000_000
_TOKEN = re.compile(r"\b[0-9a-f]{8}\b")


def as_text(plan: Plan, outcome: Outcome, kept: Path | None) -> str:
    lines = [
        f"seed {plan.seed}, {outcome.seconds:.0f} s",
        f"faults     {_listed(outcome.injected)}",
        f"apps       {_listed(outcome.counts)}",
        f"refusals   {_listed(outcome.refusals)}",
        f"longest wait for a grant: {outcome.longest_wait_ms} ms",
    ]
    if not outcome.violations:
        return "\n".join([*lines, "nothing was violated"])
    promises = Counter(violation.promise for violation in outcome.violations)
    lines.append(f"VIOLATED   {_listed(promises)}")
    for violation in outcome.violations[:_SHOWN_MOST]:
        lines += ["", str(violation), *excerpt(outcome.history, violation)]
    if kept is not None:
        lines += ["", f"the whole history, and all logs: {kept}"]
    return "\n".join(lines)


def as_document(plan: Plan, outcome: Outcome, kept: Path | None) -> dict[str, Any]:
    """For --json."""
    return {
        "seed": plan.seed,
        "seconds": round(outcome.seconds, 1),
        "faults": dict(outcome.injected),
        "apps": dict(outcome.counts),
        "refusals": dict(outcome.refusals),
        "longest_wait_ms": outcome.longest_wait_ms,
        "violations": [str(violation) for violation in outcome.violations],
        "kept": str(kept) if kept is not None else None,
    }


def keep(plan: Plan, outcome: Outcome, folder: Path) -> Path:
    """Save the history, the violations and all logs; returns the folder they are in."""
    kept = KEPT / f"seed-{plan.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    shutil.copytree(folder / "log", kept / "log")
    (kept / "violations").write_text("".join(f"{violation}\n" for violation in outcome.violations))
    (kept / "history").write_text("".join(f"{event}\n" for event in outcome.history))
    return kept


def excerpt(history: Sequence[Event], violation: Violation) -> list[str]:
    """What happened to the leases that a violation names, and what was broken meanwhile."""
    tokens = {text.encode() for text in _TOKEN.findall(violation.text)}
    requests = {e.request for e in history if isinstance(e, Granted) and e.token[:8] in tokens}
    own = [event for event in history if _belongs(event, tokens, requests)]
    if not own:
        own = [event for event in history if abs(event.at_ns - violation.at_ns) < _AROUND_NS // 4]
    from_ns = min((event.at_ns for event in own), default=violation.at_ns) - _AROUND_NS
    until_ns = max((event.at_ns for event in own), default=violation.at_ns)
    broken = [e for e in history if isinstance(e, Fault) and from_ns <= e.at_ns <= until_ns]
    lines = sorted([*own, *broken], key=lambda event: event.at_ns)
    left_out = len(lines) - _LINES_MOST
    return [f"  {event}" for event in lines[:_LINES_MOST]] + [f"  … and {left_out} more"] * (left_out > 0)


def _belongs(event: Event, tokens: set[bytes], requests: set[int]) -> bool:
    if isinstance(event, Asked | Refused | Withdrawn):
        return event.request in requests
    token = getattr(event, "token", None)
    return token is not None and token[:8] in tokens and not isinstance(event, Found)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "none"
