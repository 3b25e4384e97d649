"""What is known of the stop before a start."""

from __future__ import annotations

from collections.abc import Mapping

from .reasons import Dirt, Reason
from .records import GuardState


def why_no_marker(state: GuardState | None) -> Dirt:
    """A start without a marker: what is known about the stop before."""
    if state is None:
        return Dirt(Reason.FIRST_START, "no earlier start is on record")
    if state.revoked:
        return Dirt(Reason.CLOCK_STEP, state.revoked)
    if state.phase == "stopped" and state.reason in [reason.value for reason in Reason]:
        return Dirt(Reason(state.reason), state.detail)
    if state.phase == "quarantine":
        return _interrupted(state)
    if state.phase == "in_service":
        return Dirt(Reason.NO_MARKER, "Redis ended without a record: the host was killed or lost power")
    return Dirt(Reason.NO_MARKER, "an earlier start, or the stop before it, was interrupted")


def _interrupted(state: GuardState) -> Dirt:
    before = f"; it was for: {state.reason.replace('_', ' ')}" if state.reason else ""
    return Dirt(Reason.QUARANTINE_INTERRUPTED, f"it starts again{before}")


def how_it_ended(environ: Mapping[str, str]) -> str:
    """What systemd says about a stop that is not clean; nothing when all three conditions hold."""
    result, code, exit_status = (
        environ.get(name, "") for name in ("SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS")
    )
    if (result, code, exit_status) == ("success", "exited", "0"):
        return ""
    if not code:
        return f"Redis did not run (result {result or 'unknown'})"
    how = f"exited with status {exit_status}" if code == "exited" else f"{code} by SIG{exit_status}"
    return how if result in ("success", "exit-code", "signal", "core-dump") else f"{how} (result {result})"


def without_permit(state: GuardState, ended: str, unsound: str) -> Dirt:
    """A stop of a Redis that had no permit: it never started, or this guard did not start it."""
    if state.phase == "quarantine":
        return _interrupted(state)
    if state.phase == "stopped" and state.reason in [reason.value for reason in Reason]:
        return Dirt(Reason(state.reason), state.detail)
    return Dirt(Reason.NO_MARKER, unsound or f"the guard had not let it start; {ended or 'clean exit'}")
