"""`leave`, after Redis has ended: was that a clean stop?"""

from __future__ import annotations

from .aof import data_fingerprint
from .clock_steps import unexplained_rise_ns
from .clocks import Offset, read_offset
from .data import mark_at_the_end
from .delay import NS_PER_S
from .errors import GuardError, Unreadable
from .guard import Guard
from .last_stop import how_it_ended, without_permit
from .printable import said
from .reasons import Dirt, Reason
from .records import GuardState, Marker, Permit, Rest
from .state_folder import MARKER, PERMIT, REST, STATE, STATE_LOCK


def leave(guard: Guard) -> None:
    """Write the marker if this stop was clean; if not, note why. Raises GuardError."""
    guard.folder.prepare()
    try:
        with guard.lock(STATE_LOCK):
            dirt = _leave(guard)
    except OSError as error:
        raise GuardError(
            f"the stop can't be recorded ({error}). That is safe: the next start waits in full. Next: "
            f"repair {guard.config.state_dir}: check whether its disk is full, read-only or failing"
        ) from None
    level = "warning" if dirt else "info"
    guard.host.log(level, "stopped", clean="no" if dirt else "yes", why=dirt or "clean stop")


def _leave(guard: Guard) -> Dirt | None:
    permit, unsound = None, ""
    try:
        permit = guard.folder.get(PERMIT, Permit)
    except Unreadable as error:
        unsound = f"the permit is {error}"
    rest, restless = None, "it ended without a stop by systemd"
    try:
        rest = guard.folder.get(REST, Rest)
    except Unreadable as error:
        restless = f"the note of it is {error}"
    # The marker as well: none of an earlier stop may outlive this one.
    guard.folder.remove(PERMIT, REST, MARKER)
    try:
        state = guard.folder.state() or GuardState()
    except Unreadable as error:
        # Left as it is, for the next enter to see.
        return Dirt(Reason.STATE_UNREADABLE, f"{STATE} is {error}")
    offset = read_offset(guard.host)
    dirt = _unclean(guard, permit, unsound, state, offset) or _restless(guard, rest, restless, state)
    if permit is not None and permit.generation == state.generation:
        replaced = mark_at_the_end(guard)
        if replaced and dirt is None:
            dirt = Dirt(Reason.DATA_CHANGED, f"not by Redis: {replaced}")
    data: dict[str, str] = {}
    if dirt is None:
        try:
            data = data_fingerprint(guard.config, sync=True)
        except OSError as error:
            dirt = Dirt(Reason.DATA_CHANGED, f"the AOF could not be synced ({said(error)})")
    guard.begin_phase(state, "stopped", dirt)
    guard.folder.put(STATE, state)
    guard.write_metrics()
    if dirt is None:
        guard.folder.put(MARKER, _marker(guard, state, offset, data))
    return dirt


def _marker(guard: Guard, state: GuardState, offset: Offset, data: dict[str, str]) -> Marker:
    return Marker(
        generation=state.generation,
        host_id=guard.host.host_id(),
        boot_id=state.boot_id,
        at_ns=offset.at_ns,
        offset_ns=offset.high_ns,
        synchronised=guard.host.clock_synchronised(),
        longest_ttl_ms=state.longest_ttl_ms,
        data=data,
    )


def _unclean(
    guard: Guard, permit: Permit | None, unsound: str, state: GuardState, offset: Offset
) -> Dirt | None:
    """Why this stop is not clean, None when it is."""
    ended = how_it_ended(guard.host.environ)
    if state.revoked:
        return Dirt(Reason.CLOCK_STEP, state.revoked)
    if permit is None:
        return without_permit(state, ended, unsound)
    if permit.boot_id != guard.host.boot_id() or permit.generation != state.generation:
        return Dirt(Reason.NO_MARKER, "the permit was from an earlier start")
    if ended:
        return Dirt(Reason.UNCLEAN_STOP, ended)
    rise_ns = unexplained_rise_ns(guard, permit, offset)
    if rise_ns:
        return Dirt(Reason.CLOCK_STEP, f"forward by {rise_ns / NS_PER_S:.3f} s since the start")
    return None


def _restless(guard: Guard, rest: Rest | None, restless: str, state: GuardState) -> Dirt | None:
    """Why its file may not hold all that Redis was told, None when it does."""
    if rest is None:
        return Dirt(Reason.SETTINGS_UNPROVEN, restless)
    if rest.boot_id != guard.host.boot_id() or rest.generation != state.generation:
        return Dirt(Reason.SETTINGS_UNPROVEN, "it was last paused at an earlier stop")
    if rest.fault:
        return Dirt(Reason.SETTINGS_UNPROVEN, rest.fault)
    if guard.host.boottime_ns() > rest.until_ns:
        return Dirt(Reason.SETTINGS_UNPROVEN, "it ended too long after it was paused")
    return None
