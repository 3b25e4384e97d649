"""A step of the wall clock takes the proofs away (rule 11b)."""

from __future__ import annotations

from collections.abc import Callable

from .clocks import Offset, allowed_rise_ns, read_offset
from .delay import NS_PER_S, quarantine_ns
from .errors import Busy, Unreadable
from .guard import Guard
from .records import GuardState, Marker, Permit
from .state_folder import MARKER, PERMIT, STATE, STATE_LOCK


def unexplained_rise_ns(guard: Guard, then: Marker | Permit, now: Offset) -> int:
    """How much the wall clock certainly gained on BOOTTIME since `then`; 0 when that may be drift."""
    longest_ns = quarantine_ns(max(then.longest_ttl_ms, guard.config.max_ttl_ms))
    allowed_ns = allowed_rise_ns(guard.config.clock_step_ms, now.at_ns - then.at_ns, longest_ns)
    rise_ns = now.low_ns - then.offset_ns
    return rise_ns if rise_ns > allowed_ns else 0


def rise_since_start_ns(guard: Guard) -> int:
    """How far the clock was stepped forward since Redis was let start in this boot; 0 when not."""
    permit = guard.folder.get_if_readable(PERMIT, Permit)
    if permit is None or permit.boot_id != guard.host.boot_id():
        return 0
    return unexplained_rise_ns(guard, permit, read_offset(guard.host))


def revoke(guard: Guard, step_ns: int, stop_redis: Callable[[], None]) -> int | None:
    """The wall clock went forward: no proof is good any more, then `stop_redis`, then the books.

    Returns the generation of the permit that was taken away, None when there was none. Raises OSError.
    """
    try:
        with guard.lock(STATE_LOCK, 0.1):
            return _revoke(guard, step_ns, stop_redis)
    except Busy:
        # A slow disk must not keep Redis alive. Enter and leave compare the clocks themselves.
        stop_redis()
    with guard.lock(STATE_LOCK):
        return _revoke(guard, step_ns, lambda: None)


def _revoke(guard: Guard, step_ns: int, stop_redis: Callable[[], None]) -> int | None:
    permit, failed = None, None
    try:
        permit = guard.folder.get_if_readable(PERMIT, Permit)
        guard.folder.unlink(PERMIT)
        # A marker of an earlier boot is weighed by `enter`: setting the clock at boot is not a step of it.
        if _marker_is_of_this_boot(guard):
            guard.folder.unlink(MARKER)
    except OSError as error:
        failed = error
    stop_redis()
    if failed is not None:
        raise failed
    guard.folder.sync()
    _count_step(guard, forward=True, revoked=f"forward by {step_ns / NS_PER_S:.3f} s")
    return permit.generation if permit else None


def _marker_is_of_this_boot(guard: Guard) -> bool:
    try:
        marker = guard.folder.get(MARKER, Marker)
    except Unreadable:
        return True
    return marker is not None and marker.boot_id == guard.host.boot_id()


def count_backward_step(guard: Guard) -> None:
    """A step backwards ends no lease early: it is only counted. Raises OSError."""
    with guard.lock(STATE_LOCK):
        _count_step(guard, forward=False, revoked="")


def _count_step(guard: Guard, forward: bool, revoked: str) -> None:
    try:
        state = guard.folder.state() or GuardState()
    except Unreadable:
        return  # left as it is, for the next enter to see
    state.steps_forward += forward
    state.steps_backward += not forward
    # A quarantine that runs now outlasts the step, and a clock set at boot took nothing away.
    if revoked and state.phase in ("in_service", "stopped") and state.boot_id == guard.host.boot_id():
        state.revoked = revoked
    guard.folder.put(STATE, state)
    guard.write_metrics()
