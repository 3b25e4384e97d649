"""What an app knows about its lease, in both clients. No I/O.

The agent renews a lease without being asked and reports that in pushes (RESP3). So an app knows the last
deadline that it heard of, on its own clock (client/deadlines.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from lockd.client.deadlines import AgentClock
from lockd.client.errors import AgentUnreachable, Draining, LockdError, LockLost, NoQuorum
from lockd.clock import boottime_ns
from lockd.core.validity import NS_PER_MS

_LONGEST_NOTICE_NS = 5_000 * NS_PER_MS
_HEAD_START_NS = 50 * NS_PER_MS

LONGEST_SLEEP_S = 1.0
"""Timers stand still while the machine is suspended, deadlines don't: a watcher of a lease looks at the clock
this often."""


class LeaseView:
    """A lease as its app knows it: from replies, from pushes, and from the clock.

    loss: why it is certainly lost. broken: its connection is closed, so there is no news of it, and it isn't
    known whether an agent renews it: the next agent on this host will, when it is there. In any case it is
    valid until its deadline.
    """

    __slots__ = (
        "_clock", "broken", "deadline_ns", "detached", "fence", "key", "loss", "resource", "slot", "token",
        "ttl_ms",
    )  # fmt: skip

    def __init__(
        self,
        resource: str | bytes,
        key: bytes,
        ttl_ms: int,
        detached: bool,
        reply: dict[bytes, Any],
        clock: AgentClock,
        now_ns: int,
    ) -> None:
        """reply: the agent's answer, which was read just now."""
        self.resource = resource
        self.key: bytes = reply.get(b"resource", key)
        """Its name as the agent knows it: a slot's differs from the resource's."""
        self.slot: int | None = reply.get(b"slot")
        self.ttl_ms = ttl_ms
        self.detached = detached
        self.token: bytes = reply[b"token"]
        self.fence: int = reply[b"fence"]
        self.deadline_ns = clock.deadline_ns(reply, now_ns)
        self._clock = clock
        self.broken = False
        self.loss = ""

    @property
    def parts(self) -> tuple[LeaseView, ...]:
        """The leases that it stands for: see LeaseViews."""
        return (self,)

    def hear(self, push: list[Any]) -> None:
        """A push from the agent. Pushes about an earlier lease of the same connection don't count."""
        kind = push[0]
        if push[1:3] != [self.key, self.token]:
            return
        if kind == b"renewed":
            self.deadline_ns = max(self.deadline_ns, self._clock.here_ns(push[3]))
        elif kind == b"lost":
            self.lose(push[3].decode(errors="replace"))
            self.deadline_ns = self._clock.here_ns(push[4])

    def lose(self, reason: str) -> None:
        """It is certainly lost. The first reason counts: others follow from it."""
        self.loss = self.loss or reason or "the agent did not say why"

    def extended(self, ttl_ms: int, reply: dict[bytes, Any], now_ns: int) -> None:
        """The answer to an EXTEND, which was read just now."""
        self.ttl_ms = max(self.ttl_ms, ttl_ms)
        self.deadline_ns = max(self.deadline_ns, self._clock.deadline_ns(reply, now_ns))

    @property
    def may_last_until_ns(self) -> int:
        """An agent may have renewed it a moment ago, and its push may not have arrived."""
        return max(self.deadline_ns, boottime_ns() + self.ttl_ms * NS_PER_MS)

    @property
    def notice_ns(self) -> int:
        """How long before its deadline a lease that was not renewed counts as lost: the agent's rule."""
        return min(self.ttl_ms * NS_PER_MS // 5, _LONGEST_NOTICE_NS)

    @property
    def alarm_ns(self) -> int:
        """When to warn without the agent. An agent that can speak did so a moment before, with the reason."""
        return self.deadline_ns - self.notice_ns + min(self.notice_ns // 10, _HEAD_START_NS)

    def due(self, now_ns: int) -> str:
        """Why its holder has to be warned now; '' while there is no reason."""
        if self.loss:
            return self.loss
        if now_ns < self.alarm_ns:
            return ""
        if self.detached:
            return "its TTL ends"
        if self.broken:
            return "its agent closed the connection, and no other agent took over in time"
        return "the agent did not renew it in time, and gave no reason"

    def stale(self, now_ns: int) -> bool:
        """True when an agent may know more: it does not push to an app that doesn't read, and after a restart
        it doesn't know yet who wants to hear."""
        if self.loss or self.detached:
            return False
        return self.broken or now_ns >= self.deadline_ns - self.notice_ns

    def why_lost(self, now_ns: int) -> str:
        """Why it can't be relied upon now; '' while it can."""
        if self.loss:
            return self.loss
        if now_ns >= self.deadline_ns:
            return "its deadline has passed"
        if self.broken and now_ns >= self.deadline_ns - self.notice_ns:
            return "its agent closed the connection, and the deadline is near"
        return ""


class LeaseViews:
    """Several leases that were granted together, as one: as good as the worst of them. As LeaseView."""

    __slots__ = ("parts", "resource")
    detached = False

    def __init__(self, resources: Sequence[str | bytes], parts: tuple[LeaseView, ...]) -> None:
        self.resource = resources
        self.parts = parts

    @property
    def ttl_ms(self) -> int:
        return max(part.ttl_ms for part in self.parts)

    @property
    def token(self) -> bytes:
        """One token for all: it was chosen here."""
        return self.parts[0].token

    @property
    def deadline_ns(self) -> int:
        return min(part.deadline_ns for part in self.parts)

    @property
    def may_last_until_ns(self) -> int:
        return max(part.may_last_until_ns for part in self.parts)

    @property
    def alarm_ns(self) -> int:
        return min(part.alarm_ns for part in self.parts)

    @property
    def loss(self) -> str:
        return self._first(lambda part: part.loss)

    @property
    def broken(self) -> bool:
        return self.parts[0].broken

    @broken.setter
    def broken(self, broken: bool) -> None:
        for part in self.parts:
            part.broken = broken

    def hear(self, push: list[Any]) -> None:
        for part in self.parts:
            part.hear(push)

    def lose(self, reason: str) -> None:
        self.parts[0].lose(reason)

    def due(self, now_ns: int) -> str:
        return self._first(lambda part: part.due(now_ns))

    def stale(self, now_ns: int) -> bool:
        return not self.loss and any(part.stale(now_ns) for part in self.parts)

    def why_lost(self, now_ns: int) -> str:
        return self._first(lambda part: part.why_lost(now_ns))

    def _first(self, reason_of: Callable[[LeaseView], str]) -> str:
        """The first reason that there is, and the lease that it is about."""
        found = ((part, reason_of(part)) for part in self.parts)
        return next((f"{reason} ({part.resource!r})" for part, reason in found if reason), "")


View = LeaseView | LeaseViews


def names_of(view: View) -> list[tuple[bytes, bytes]]:
    """Its leases, as the agent knows them: each by resource and token."""
    return [(part.key, part.token) for part in view.parts]


class HeldLease:
    """A resource that this process holds, or several that it locked together, in either client. In a forked
    child it holds nothing."""

    __slots__ = ("_over", "_pid", "_view")

    def __init__(self, view: View) -> None:
        self._view = view
        self._pid = os.getpid()
        self._over = False

    @property
    def resource(self) -> str | bytes | Sequence[str | bytes]:
        """The resource or resources, as they were given."""
        return self._view.resource

    @property
    def token(self) -> str:
        """Identifies the holder: 32 hex digits that no other lease has."""
        return self._view.token.decode()

    @property
    def fence(self) -> int:
        """The order of grants: larger than the fence of any earlier lease of the resource. With several
        resources, each has its own: ValueError, see `fences`."""
        [(_, fence)] = self.fences.items()
        return fence

    @property
    def fences(self) -> dict[str | bytes, int]:
        """The fences, by resource."""
        return {part.resource: part.fence for part in self._view.parts}

    @property
    def deadline_ns(self) -> int:
        """The end of its validity on CLOCK_BOOTTIME, as last known. Renewals move it on."""
        return self._view.deadline_ns

    def check(self) -> None:
        """Raise LockLost when the resource can't be relied upon to be held now."""
        if reason := self._why_lost():
            raise self._lost(reason)

    @property
    def lost(self) -> bool:
        """True when `check` would raise."""
        return bool(self._why_lost())

    def remaining(self) -> float:
        """For how many seconds it is valid if it is not renewed any more; 0 when it is lost."""
        lost = self._why_lost()
        return 0.0 if lost else max(0.0, (self._view.deadline_ns - boottime_ns()) / 1e9)

    def _why_lost(self) -> str:
        return self._gone() or self._view.why_lost(boottime_ns())

    def _gone(self) -> str:
        """Why this object holds nothing, whatever the agent says; '' when it may hold."""
        if self._pid != os.getpid():
            return "it belongs to the parent of this forked process"
        return "it was released" if self._over else ""

    def _lost(self, reason: str) -> LockLost:
        error = LockLost(f"the lease of {self._view.resource!r} is lost: {reason}")
        error.reason, error.deadline_ns = reason, self._view.deadline_ns
        return error

    def _judge(self, lost_before: str, failure: LockdError | None) -> bool:
        """The result of a release, from what was known before it and how UNLOCK failed. True: given back."""
        view = self._view
        if isinstance(failure, LockLost):
            raise self._lost(view.loss or failure.reason) from None
        # While its connection was open, the agent knew better than the last deadline that arrived here.
        if lost_before and (failure or view.broken or view.detached):
            raise self._lost(lost_before) from failure
        if failure is None or isinstance(failure, AgentUnreachable | NoQuorum | Draining):
            return failure is None
        raise failure

    @property
    def slot(self) -> int | None:
        """The number of its slot, from 0 on; None if it is not a slot."""
        return self._view.parts[0].slot

    def __repr__(self) -> str:
        state = self._gone() or self._view.why_lost(boottime_ns()) or "held"
        fences = ", ".join(str(part.fence) for part in self._view.parts)
        return f"<Lease of {self._view.resource!r}, fence {fences}: {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lease can't be pickled: it belongs to the process that has its connection")


class PushReceiver:
    """Passes a connection's pushes on to the lease that it carries now, if any."""

    __slots__ = ("view",)

    def __init__(self) -> None:
        self.view: View | None = None

    def hear(self, push: list[Any]) -> None:
        if self.view is not None:
            self.view.hear(push)

    async def hear_async(self, push: list[Any]) -> None:
        self.hear(push)
