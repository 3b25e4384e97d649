"""An operator's decision that the next start, or the one that waits now, need not wait."""

from __future__ import annotations

import os

from .delay import NS_PER_S
from .errors import GuardError, Unreadable
from .guard import Guard
from .records import Override
from .state_folder import OVERRIDE

# An override that was not used must not end a quarantine months later.
OVERRIDE_VALID_NS = 15 * 60 * NS_PER_S


def write_override(guard: Guard, reason: str) -> str:
    """Let the start that waits now, or the next one, not wait. Returns what that means."""
    guard.folder.prepare()
    by = guard.host.environ.get("SUDO_USER") or guard.host.environ.get("USER") or f"uid {os.getuid()}"
    override = Override(guard.host.boot_id(), guard.host.boottime_ns(), by, reason)
    try:
        guard.folder.put(OVERRIDE, override)
    except OSError as error:
        raise GuardError(
            f"the override can't be written ({error}). Nothing has changed. Next: repair "
            f"{guard.config.state_dir}"
        ) from None
    guard.host.log("warning", "override_written", by=by, reason=reason)
    minutes = OVERRIDE_VALID_NS // (60 * NS_PER_S)
    return f"the current quarantine, or that of a start in the next {minutes} minutes, is skipped"


def take_override(guard: Guard) -> Override | None:
    """The override, used up. It counts only once it is gone for good. Raises OSError."""
    try:
        override = guard.folder.get(OVERRIDE, Override)
    except Unreadable as error:
        guard.folder.remove(OVERRIDE)
        guard.host.log("error", "override_ignored", why=f"it is {error}")
        return None
    if override is None:
        return None
    guard.folder.remove(OVERRIDE)
    age_ns = guard.host.boottime_ns() - override.at_ns
    if override.boot_id == guard.host.boot_id() and 0 <= age_ns <= OVERRIDE_VALID_NS:
        return override
    guard.host.log("warning", "override_ignored", why="it is too old", by=override.by)
    return None


def discard_override(guard: Guard) -> None:
    override = take_override(guard)
    if override is not None:
        guard.host.log("warning", "override_discarded", why="this start needs no override", by=override.by)
