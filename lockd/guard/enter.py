"""`enter`, before Redis starts: it returns when Redis may start."""

from __future__ import annotations

from .aof import data_fingerprint, difference
from .clock_steps import unexplained_rise_ns
from .clocks import Offset, read_offset
from .data import look_again, note_data, without_foreign_data
from .delay import NS_PER_S
from .errors import Busy, Unreadable, refusal
from .guard import METRICS_EVERY_NS, Guard
from .last_stop import why_no_marker
from .overrides import discard_override, take_override
from .printable import said
from .reasons import Dirt, Reason
from .records import GuardState, Marker, Override, Permit
from .state_folder import ENTER_LOCK, MARKER, PERMIT, REST, STATE, STATE_LOCK


def enter(guard: Guard) -> None:
    """Return when Redis may start. Raises GuardError, or Interrupted, when it may not."""
    guard.folder.prepare()
    try:
        with guard.lock(ENTER_LOCK, 5.0):
            _enter(guard)
    except Busy:
        raise refusal("another `enter` runs already", "`guard.py status`; stop the one by hand") from None
    except OSError as error:
        raise refusal(
            f"the guard's files can't be changed ({error})",
            f"repair {guard.config.state_dir}: check whether its disk is full, read-only or failing",
        ) from None


def _enter(guard: Guard) -> None:
    with guard.lock(STATE_LOCK):
        marker, permit, unsound = _consume(guard)
        offset = read_offset(guard.host)
        state, dirt = _weigh(guard, marker, unsound, offset)
        delay_ns = _note_longest(guard, state, marker, permit)
        if dirt is not None:
            dirt = without_foreign_data(guard, state, dirt)
            note_data(guard, state, ended=True)
        if dirt is None:
            discard_override(guard)
            _admit(guard, state, offset)
        else:
            until_ns = guard.host.boottime_ns() + delay_ns
            _begin_quarantine(guard, state, dirt, until_ns)
    if dirt is None:
        _say_admitted(guard, "clean stop, no quarantine")
        return
    overridden = _sit_out(guard, dirt, until_ns)
    with guard.lock(STATE_LOCK):
        _end_quarantine(guard, overridden)
    _say_admitted(guard, f"quarantine {'ended early by an operator' if overridden else 'is over'}")


def _consume(guard: Guard) -> tuple[Marker | None, Permit | None, str]:
    """Take the proofs: before anything is done with them they are gone for good.

    Returns what they said, and why the marker is no marker when it isn't one.
    """
    marker, permit, unsound = None, None, ""
    try:
        marker = guard.folder.get(MARKER, Marker)
    except Unreadable as error:
        unsound = str(error)
    permit = guard.folder.get_if_readable(PERMIT, Permit)
    guard.folder.remove(MARKER, PERMIT, REST)
    return marker, permit, unsound


def _weigh(
    guard: Guard, marker: Marker | None, unsound: str, offset: Offset
) -> tuple[GuardState, Dirt | None]:
    """The state to go on with, and why this start is dirty, None when it is proven clean."""
    try:
        state = guard.folder.state()
    except Unreadable as error:
        guard.folder.keep_damaged_state()
        return GuardState(), Dirt(Reason.STATE_UNREADABLE, f"{STATE} is {error}")
    if unsound:
        return state or GuardState(), Dirt(Reason.MARKER_INVALID, unsound)
    if state is None and marker is not None:
        return GuardState(), Dirt(Reason.STATE_UNREADABLE, f"{STATE} is gone, the marker is not")
    if marker is None:
        return state or GuardState(), why_no_marker(state)
    assert state is not None
    return state, _unsound_marker(guard, marker, state, offset)


def _unsound_marker(guard: Guard, marker: Marker, state: GuardState, offset: Offset) -> Dirt | None:
    if marker.generation != state.generation:
        return Dirt(Reason.MARKER_INVALID, "it is not from the latest stop")
    if marker.host_id != guard.host.host_id():
        return Dirt(Reason.OTHER_HOST, "it was written on another machine")
    return _changed_data(guard, marker) or _stepped_clock(guard, marker, offset)


def _changed_data(guard: Guard, marker: Marker) -> Dirt | None:
    try:
        changed = difference(marker.data, data_fingerprint(guard.config))
    except OSError as error:
        changed = f"the AOF can't be read ({said(error)})"
    return Dirt(Reason.DATA_CHANGED, changed) if changed else None


def _stepped_clock(guard: Guard, marker: Marker, offset: Offset) -> Dirt | None:
    """Has the wall clock advanced more since the stop than time itself?

    If the offset has not risen, it has not, even over a reboot: BOOTTIME then began again, so it shows less
    time than has passed, never more.
    """
    rise_ns = unexplained_rise_ns(guard, marker, offset)
    if rise_ns <= 0:
        return None
    if marker.boot_id == guard.host.boot_id():
        return Dirt(Reason.CLOCK_STEP, f"forward by {rise_ns / NS_PER_S:.3f} s since the stop")
    if marker.synchronised and guard.host.clock_synchronised():
        return None
    return Dirt(
        Reason.CLOCK_UNPROVEN, ("rebooted, and the clock was not synchronised at the stop or is not now")
    )


def _note_longest(guard: Guard, state: GuardState, marker: Marker | None, permit: Permit | None) -> int:
    """The delay: for the largest max TTL that is known, since leases of that length may live."""
    known = [guard.config.max_ttl_ms, state.longest_ttl_ms]
    known += [proof.longest_ttl_ms for proof in (marker, permit) if proof is not None]
    state.longest_ttl_ms = max(known)
    return guard.config.quarantine_ns(state.longest_ttl_ms)


def _begin_quarantine(guard: Guard, state: GuardState, dirt: Dirt, until_ns: int) -> None:
    guard.begin_phase(state, "quarantine", dirt)
    state.until_ns = until_ns
    state.quarantines[dirt.reason.value] += 1
    guard.folder.put(STATE, state)
    guard.write_metrics()
    delay_s = (until_ns - guard.host.boottime_ns()) / NS_PER_S
    guard.host.log(
        "warning",
        "quarantine",
        reason=dirt.reason.value,
        detail=dirt.detail,
        delay_s=f"{delay_s:.1f}",
        max_ttl_ms=state.longest_ttl_ms,
    )


def _sit_out(guard: Guard, dirt: Dirt, until_ns: int) -> Override | None:
    """Return when the quarantine is over, or with the override that ended it."""
    written_ns = guard.host.boottime_ns()
    while True:
        now_ns = guard.host.boottime_ns()
        left_ns = until_ns - now_ns
        if left_ns <= 0:
            return None
        override = take_override(guard)
        if override is not None:
            return override
        guard.host.status(f"quarantined: {-(-left_ns // NS_PER_S)} s left ({dirt})")
        if now_ns - written_ns >= METRICS_EVERY_NS:
            guard.write_metrics()
            written_ns = now_ns
        guard.host.sleep(min(1.0, left_ns / NS_PER_S))


def _end_quarantine(guard: Guard, overridden: Override | None) -> None:
    try:
        state = guard.folder.state()
    except Unreadable as error:
        raise OSError(f"{STATE} is {error}") from None
    if state is None:
        raise OSError(f"{STATE} has gone")
    look_again(guard)
    if overridden is None:
        # All leases under a longer max TTL than today's are over now.
        state.longest_ttl_ms = guard.config.max_ttl_ms
    else:
        state.overrides += 1
        guard.host.log("warning", "overridden", by=overridden.by, reason=overridden.reason)
    _admit(guard, state, read_offset(guard.host))


def _admit(guard: Guard, state: GuardState, offset: Offset) -> None:
    """The permit comes last: without it the next stop is a dirty one."""
    note_data(guard, state, ended=False)
    guard.begin_phase(state, "in_service", None)
    guard.folder.put(STATE, state)
    guard.write_metrics()
    permit = Permit(state.generation, state.boot_id, offset.at_ns, offset.high_ns, state.longest_ttl_ms)
    guard.folder.put(PERMIT, permit)


def _say_admitted(guard: Guard, text: str) -> None:
    guard.host.status(f"let start: {text}")
    guard.host.log("info", "let_start", why=text)
