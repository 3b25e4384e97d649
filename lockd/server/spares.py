"""A few connections beyond all limits, for operators: an app of root's that leaks connections must not keep
root's `lockctl` out. Nothing is locked on them, and the one that was idle longest makes room for the next. If
one wants to lock when the limits have room again, it becomes an ordinary connection."""

from typing import Protocol

from lockd.core.validity import NS_PER_S

_MOST = 8
_LEFT_ALONE_NS = NS_PER_S
"""A connection that has just asked something does not have to make room."""


class Spare(Protocol):
    """A connection beyond the limits."""

    def give_way(self) -> None: ...


class SpareConnections:
    def __init__(self) -> None:
        # The one that was used longest ago is the first.
        self._used_ns: dict[Spare, int] = {}

    def admit(self, session: Spare, now_ns: int) -> bool:
        """Whether there is one for this operator."""
        if len(self._used_ns) >= _MOST and not self._make_room(now_ns):
            return False
        self._used_ns[session] = now_ns
        return True

    def _make_room(self, now_ns: int) -> bool:
        idle, used_ns = next(iter(self._used_ns.items()))
        if now_ns < used_ns + _LEFT_ALONE_NS:
            return False
        self.forget(idle)
        idle.give_way()
        return True

    def used(self, session: Spare, now_ns: int) -> None:
        """It has asked something."""
        if self._used_ns.pop(session, None) is not None:
            self._used_ns[session] = now_ns

    def forget(self, session: Spare) -> None:
        """It is closed, or an ordinary connection now."""
        self._used_ns.pop(session, None)
