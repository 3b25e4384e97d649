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
        return Dirt(Reason.NO_MARKER, "nobody saw Redis end: the host was killed or lost power")
    return Dirt(Reason.NO_MARKER, "an earlier start, or the stop before it, was cut short")


def _interrupted(state: GuardState) -> Dirt:
    before = f"; it was for: {state.reason.replace('_', ' ')}" if state.reason else ""
    return Dirt(Reason.QUARANTINE_INTERRUPTED, f"it begins anew{before}")


def how_it_ended(environ: Mapping[str, str]) -> str:
    """What systemd says of a stop that is not clean; nothing when it is: all three conditions."""
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
    """A stop of what had no permit: it never started, or its start was not this guard's doing."""
    if state.phase == "quarantine":
        return _interrupted(state)
    if state.phase == "stopped" and state.reason in [reason.value for reason in Reason]:
        return Dirt(Reason(state.reason), state.detail)
    return Dirt(Reason.NO_MARKER, unsound or f"it had not been let start; {ended or 'clean exit'}")
