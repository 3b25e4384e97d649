"""`status`: the state of the master, for operators."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from .delay import NS_PER_S
from .errors import GuardError, Unreadable
from .guard import Guard
from .records import GuardState
from .state_folder import MARKER


def status(guard: Guard) -> dict[str, Any]:
    """The state of the master, for operators. Raises GuardError when that can't be read."""
    try:
        state = guard.folder.state() or GuardState()
        return _status(guard, state)
    except (Unreadable, OSError) as error:
        raise GuardError(
            f"the guard's record can't be read ({error}). That changes nothing now. If it persists, the "
            "next start waits in full. Next: try it as root"
        ) from None


def _status(guard: Guard, state: GuardState) -> dict[str, Any]:
    now = guard.now(state)
    left_ns = max(0, state.until_ns - guard.host.boottime_ns()) if now == "quarantined" else 0
    clean = now == "stopped" and not state.reason and guard.is_there(MARKER)
    return {
        "state": now.replace(" ", "_"),
        "reason": state.reason,
        "detail": state.detail,
        "left_s": -(-left_ns // NS_PER_S),
        "next_start": "at once" if clean else "after a quarantine" if now == "stopped" else "",
        "delay_s": guard.delay_s(state),
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(state.changed_at_s)),
        "quarantines": state.quarantines,
        "overrides": state.overrides,
        "clock_steps": {"forward": state.steps_forward, "backward": state.steps_backward},
        "moved_aside": {"count": state.moved_aside, "latest": state.aside},
    }


def described(status: Mapping[str, Any]) -> str:
    """The status in a few lines."""
    why = f" ({status['reason'].replace('_', ' ')}: {status['detail']})" if status["reason"] else ""
    left = f", {status['left_s']} s left" if status["state"] == "quarantined" else ""
    counts = ", ".join(f"{reason} {count}" for reason, count in status["quarantines"].items() if count)
    steps, aside = status["clock_steps"], status["moved_aside"]
    lines = [
        f"state:       {status['state'].replace('_', ' ')}{left}{why}",
        f"since:       {status['since']}",
        f"next start:  {status['next_start']}" if status["next_start"] else "",
        f"delay:       {status['delay_s']:g} s",
        f"quarantines: {counts or 'none'}",
        f"overrides:   {status['overrides']}",
        f"clock steps: {steps['forward']} forward, {steps['backward']} backward",
        f"moved aside: {aside['count']}, latest {aside['latest']}" if aside["count"] else "",
    ]
    return "\n".join(line for line in lines if line)
