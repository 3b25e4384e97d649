"""`stop`, before Redis is told to stop: make it rest, so that its end can be a clean one."""

from __future__ import annotations

import os

from .delay import NS_PER_S
from .disk import read_own
from .errors import GuardError, Unproven
from .guard import Guard
from .printable import said
from .records import Rest
from .redis_link import Ask
from .rest import RELIED_ON_NS, have_rest, rewrites
from .state_folder import REST, STATE_LOCK

REWRITE_WITHIN_NS, LOOK_AGAIN_S = 30 * NS_PER_S, 0.1


def stop(guard: Guard) -> None:
    """Before Redis is told to stop: make it rest, and note that, or why it could not. Raises GuardError."""
    guard.folder.prepare()
    generation = guard.in_service()
    if generation is None:
        guard.host.log("warning", "not_asked", why="there is no permit, so this stop is not clean")
        return
    until_ns, fault = _rest(guard)
    rest = Rest(generation, guard.host.boot_id(), until_ns, fault)
    try:
        with guard.lock(STATE_LOCK):
            guard.folder.put(REST, rest)
    except OSError as error:
        raise GuardError(
            f"that Redis is paused can't be recorded ({error}). That is safe: the next start waits in full. "
            f"Next: repair {guard.config.state_dir}: check whether its disk is full, read-only or failing"
        ) from None
    guard.host.log(
        "warning" if fault else "info", "asked_before_stop", why=fault or ("all its data is in its file")
    )


def _rest(guard: Guard) -> tuple[int, str]:
    """Until when Redis rests, or which condition of a clean stop does not hold."""
    try:
        with guard.host.asking_redis(guard.config.socket) as ask:
            _say_who_asks(guard, ask)
            _wait_for_rewrites(guard, ask)
            until_ns = guard.host.boottime_ns() + RELIED_ON_NS
            have_rest(ask, os.path.realpath(guard.config.data_dir))
            return until_ns, ""
    except (Unproven, OSError) as error:
        return 0, said(error) if isinstance(error, OSError) else str(error)


def _say_who_asks(guard: Guard, ask: Ask) -> None:
    if guard.config.password_file is not None:
        password = read_own(guard.config.password_file, 1_000).decode("utf-8-sig", "replace").strip()
        ask(("AUTH", guard.config.user, password))


def _wait_for_rewrites(guard: Guard, ask: Ask) -> None:
    """An ordinary rewrite is no fault, and soon over. From here it looks the same as one that is."""
    ends_ns = guard.host.boottime_ns() + REWRITE_WITHIN_NS
    while rewrites(ask) and guard.host.boottime_ns() < ends_ns:
        guard.host.sleep(LOOK_AGAIN_S)
