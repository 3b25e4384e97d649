"""A LOCK of several resources, or of one of several slots. It has one place in the order of replies, and a
part for each lock that it stands in line for (core/several.py, core/slots.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockd.clock import boottime_ns
from lockd.config.model import LockClass
from lockd.core.claims import Joint
from lockd.core.flow import Place
from lockd.core.leases import Lease, Standing
from lockd.core.several import Several
from lockd.core.slot_names import slot_number
from lockd.core.slots import Slots
from lockd.core.validity import NS_PER_MS, left_ms
from lockd.core.values import Refusal
from lockd.server.lease_requests import LockRequest, asked_again, tell_refused, told_expired
from lockd.server.losses import LeaseName
from lockd.server.quotas import Cost
from lockd.server.resp import replies
from lockd.server.session import Session


class Part(LockRequest):
    """A part of a request. It has no place in the order of replies, and its lease becomes the app's only when
    the whole request is answered."""

    __slots__ = ("whole",)

    def __init__(self, whole: JointRequest, resource: bytes, lock_class: LockClass, ttl_ms: int) -> None:
        super().__init__(whole.session, resource, lock_class, ttl_ms)
        self.whole = whole

    def _is_granted(self, lease: Lease) -> None:
        if lease.holder is self:
            self.holds(lease)
        self.whole.part_granted(self, lease, boottime_ns())

    def holds(self, lease: Lease) -> None:
        # It is not counted twice.
        self.whole.session.lock_has(self.whole, 1)
        super().holds(lease)

    def _is_refused(self, refusal: Refusal) -> None:
        self.whole.parts_of_core.refused(self, refusal, boottime_ns())

    def ended(self, lease: Lease) -> None:
        self.whole.session.lock_has(self.whole, -1)
        super().ended(lease)


class JointRequest(Place):
    """Core's `Whole`. parts: those with which it is answered. parts_of_core: receives their answers."""

    __slots__ = ("_answered", "parts", "parts_of_core", "session")
    parts_of_core: Joint

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.parts: Sequence[Part] = ()
        self._answered = False

    @property
    def resource(self) -> bytes:
        """The class under which it is logged and counted."""
        return self.parts[0].resource

    @property
    def label(self) -> str:
        return self.parts[0].label

    @property
    def names(self) -> tuple[LeaseName, ...]:
        """The name by which its leases will be known, if its app has named it."""
        return tuple(name for part in self.parts for name in part.names)

    @property
    def cost(self) -> Cost:
        """The most that it can cost, as if all had the longest name and the shortest TTL."""
        name = max(len(part.resource) for part in self.parts)
        renewed = [part.ttl_ms for part in self.parts if not part.detached]
        return Cost(self.leases, len(self.parts), name, min(renewed, default=None))

    @property
    def leases(self) -> int:
        """How many it may get."""
        return len(self.parts)

    def begins(self, now_ns: int, *, ready: bool) -> None:
        """It is its turn on its connection, or its wait for that begins."""
        self.session.lock_starts(self, self.cost)
        self.parts_of_core.begins(now_ns, ready=ready)

    def can_be_told(self, now_ns: int) -> None:
        if not self._answered:
            self.parts_of_core.can_be_told(now_ns)

    def gone(self, now_ns: int) -> None:
        """As `session.Waiting` has it."""
        self._is_answered()
        self.parts_of_core.gone(now_ns)

    def part_granted(self, part: Part, lease: Lease, now_ns: int) -> None:
        self.parts_of_core.granted(part, lease, now_ns)

    def granted(self, leases: list[Lease], fresh: list[Lease], now_ns: int) -> None:
        self.session.guarded(self._is_granted, leases, fresh, granted=fresh)

    def _is_granted(self, leases: list[Lease], fresh: list[Lease]) -> None:
        session = self.session
        notify = self.parts[0].notify
        self._is_answered()
        for lease in fresh:
            if isinstance(lease.holder, LockRequest):
                lease.holder.notify = lease.holder.notify or notify
                lease.holder.is_told_on(session, lease)
        if session.is_gone:
            self._comes_too_late(fresh)
            return
        for lease in leases:
            if lease not in fresh:
                asked_again(lease, session, notify=notify)
        session.answer(self, lambda: self._told(leases))

    def refused(self, refusal: Refusal) -> None:
        self.session.guarded(self._is_refused, refusal)

    def _is_refused(self, refusal: Refusal) -> None:
        resource = self.resource
        self._is_answered()
        tell_refused(self.session, self, resource, refusal)

    def _is_answered(self) -> None:
        self.session.lock_answered(self)
        self._answered = True
        self.parts = ()  # which refer to it

    def _comes_too_late(self, leases: list[Lease]) -> None:
        for lease in leases:
            self.session.came_too_late(lease)

    def _told(self, leases: list[Lease]) -> bytes:
        """Composed when it is written, with the leases as they are then: all of them, or none."""
        session = self.session
        lost = next((lease for lease in leases if lease.standing is not Standing.HELD), None)
        if lost is not None:
            self._comes_too_late(leases)
            return told_expired(session, lost)
        now_ns = boottime_ns()
        reply = self.encoded([_row(lease, now_ns) for lease in leases])
        for lease in leases:
            session.shared.tellings.begins(lease, session.ties, reply)
        return reply

    def encoded(self, rows: list[dict[str, object]]) -> bytes:
        """What the app is told of them. rows: one for each."""
        raise NotImplementedError


class SeveralRequest(JointRequest):
    """All of several resources, or none."""

    __slots__ = ()

    def takes(self, parts: Sequence[Part], min_validity_ms: int) -> None:
        """Of these resources, in the order in which they were asked for."""
        shared = self.session.shared
        self.parts = parts
        self.parts_of_core = Several(
            shared.locks, shared.claims, parts, self, min_validity_ns=min_validity_ms * NS_PER_MS
        )

    def begins(self, now_ns: int, *, ready: bool) -> None:
        for part in self.parts:
            part.asks(now_ns)
        super().begins(now_ns, ready=ready)

    def encoded(self, rows: list[dict[str, object]]) -> bytes:
        return replies.value(rows, self.session.protocol)


class SlotPart(Part):
    """One of many lines that a request stands in. None of them is a request by itself."""

    __slots__ = ()
    counted = False


class SlotsRequest(JointRequest):
    """One of several equal locks. _tell: counts its refusal."""

    __slots__ = ("_asked_ns", "_places", "_resource", "_tell")

    def __init__(self, session: Session, resource: bytes, tell: Callable[[str, Refusal, int], None]) -> None:
        super().__init__(session)
        self._resource = resource
        self._tell = tell
        self._asked_ns = 0

    @property
    def resource(self) -> bytes:
        return self._resource

    def takes(self, tries: Sequence[SlotPart], places: Sequence[SlotPart], first: int) -> None:
        """As `Slots` has them, but sorted by name. first: the one that is tried first."""
        shared = self.session.shared
        self.parts = tries
        self._places = [*places[first:], *places[:first]]
        self.parts_of_core = Slots(
            shared.locks, shared.claims, self._resource, [*tries[first:], *tries[:first]], self._places, self
        )

    @property
    def names(self) -> tuple[LeaseName, ...]:
        value = self.parts[0].value
        return tuple((part.resource, value) for part in self.parts) if value else ()

    def begins(self, now_ns: int, *, ready: bool) -> None:
        self._asked_ns = now_ns
        places, self._places = self._places, []  # which refer to it
        for part in (*self.parts, *places):
            part.asks(now_ns)
        super().begins(now_ns, ready=ready)

    @property
    def leases(self) -> int:
        return 1

    def _is_refused(self, refusal: Refusal) -> None:
        self._tell(self.label, refusal, boottime_ns() - self._asked_ns)
        super()._is_refused(refusal)

    def encoded(self, rows: list[dict[str, object]]) -> bytes:
        [row] = rows
        name = row["resource"]
        assert isinstance(name, bytes)
        return replies.value(row | {"slot": slot_number(name)}, self.session.protocol)


def _row(lease: Lease, now_ns: int) -> dict[str, object]:
    return {
        "resource": lease.resource,
        "token": lease.token,
        "fence": lease.fence,
        "validity_ms": left_ms(lease.deadline_ns, now_ns),
        "deadline_ns": lease.deadline_ns,
        "bound": lease.holder.bound.value,
    }
