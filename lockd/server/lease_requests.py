"""LOCK, UNLOCK and EXTEND on their way through core: how an answer becomes a reply on its connection."""

from functools import partial
from typing import Protocol

from lockd.clock import boottime_ns
from lockd.config.model import LockClass
from lockd.core.errors import ErrorWord, Kind
from lockd.core.flow import Place, WireReply
from lockd.core.leases import Lease, Standing
from lockd.core.validity import NS_PER_MS, left_ms
from lockd.core.values import Bound, Extended, Refusal
from lockd.metrics.leases import LeaseMetrics
from lockd.server.heirs import Heir
from lockd.server.losses import LeaseName
from lockd.server.quotas import Cost, Holding
from lockd.server.resp import replies
from lockd.server.session import LeaseCommand, Session


class LockRequest(Place):
    """A LOCK, from its arrival until its lease has ended: core's `Holder`. Its options are set while they are
    read."""

    __slots__ = (
        "account",
        "asked_ns",
        "bound",
        "detached",
        "give_up_ns",
        "keep_ms",
        "label",
        "lock_class",
        "lock_delay_ms",
        "max_hold_ms",
        "named",
        "notify",
        "owner",
        "pid",
        "resource",
        "session",
        "started",
        "ttl_ms",
        "value",
        "wait_ms",
        "_holding",
        "_usage",
    )
    asked_ns: int
    started: int
    give_up_ns: int | None
    counted = True

    def __init__(self, session: Session, resource: bytes, lock_class: LockClass, ttl_ms: int) -> None:
        super().__init__()
        self.session = session
        self.resource = resource
        self.lock_class = lock_class
        self.label = lock_class.name
        self.lock_delay_ms = lock_class.lock_delay_ms
        self.keep_ms = lock_class.keep_ms
        self.ttl_ms = ttl_ms
        self.wait_ms = 0
        self.max_hold_ms = lock_class.max_hold_ms
        self.detached = False
        self.notify = False
        self.value = b""
        self.named = False
        self.owner = session.owner
        self.account = session.account
        self.pid = session.peer.pid
        process = session.ties.process
        self.started = 0 if process is None else process.started
        self._holding: Holding | None = None
        self.bound = session.ties.bound(lock_class.bound)

    @property
    def cost(self) -> Cost:
        """The most that it can cost."""
        return Cost(1, 1, len(self.resource), self._renewed_ms)

    @property
    def _renewed_ms(self) -> int | None:
        """A DETACHED lease is not renewed."""
        return None if self.detached else self.ttl_ms

    def asks(self, now_ns: int) -> None:
        """Its wait begins."""
        self.asked_ns = now_ns
        self.give_up_ns = now_ns + self.wait_ms * NS_PER_MS if self.wait_ms else None

    def begins(self, now_ns: int, *, ready: bool) -> None:
        """It is its turn on its connection, or its wait for that begins."""
        self.asks(now_ns)
        self.session.lock_starts(self, self.cost)
        self.session.shared.locks.lock(self, now_ns, ready=ready)

    def can_be_told(self, now_ns: int) -> None:
        """Its turn has come."""
        self.session.shared.locks.can_be_told(self, now_ns)

    @property
    def names(self) -> tuple[LeaseName, ...]:
        """The name by which its lease will be known, if its app has named it."""
        return ((self.resource, self.value),) if self.named else ()

    def gone(self, now_ns: int) -> None:
        """As `session.Waiting` has it."""
        self.session.shared.locks.gone(self, now_ns)
        self.session.lock_answered(self)

    def granted(self, lease: Lease, now_ns: int) -> None:
        fresh = (lease,) if lease.holder is self else ()
        self.session.guarded(self._is_granted, lease, granted=fresh)

    def _is_granted(self, lease: Lease) -> None:
        session = self.session
        first = lease.holder
        if first is self:
            self.holds(lease)
            self.is_told_on(session, lease)
        session.lock_answered(self)
        if session.is_gone:
            if first is self:
                session.came_too_late(lease)
            return
        if first is not self:
            asked_again(lease, session, notify=self.notify)
        session.answer(self, partial(self._told, lease))

    def is_of(self, session: Session) -> bool:
        """Whether its news may be told on this connection. It has to be its process's, and the lease must not
        belong to another connection."""
        process = session.ties.process
        shared = self.bound is not Bound.CONNECTION and process is not None
        return session is self.session or (shared and process is self.session.ties.process)

    def hears_on(self, session: Session, lease: Lease) -> None:
        """Its app wants to hear of it on this connection. The app has named the lease, so it was told of
        it."""
        self.was_named(lease)
        self.session, self.notify = session, True

    def was_named(self, lease: Lease) -> None:
        """Its app has named it."""
        self.session.ties.named(lease)

    def asked_again(self, session: Session, lease: Lease, notify: bool) -> None:
        """Its app has named it on this connection: from now on its news goes there."""
        session.ties.tells_too(lease, self.session.ties)
        self.session, self.notify = session, self.notify or notify

    def holds(self, lease: Lease) -> None:
        session = self.session
        holding = Holding(len(self.resource), self._renewed_ms)
        session.shared.quotas.holds(session.usage, holding)
        self._usage, self._holding = session.usage, holding
        if self.named:
            session.shared.losses.granted_anew(session, (lease.resource, lease.token))
        if session.shared.log.debug_on:
            self._log("granted", fence=lease.fence)

    def is_told_on(self, session: Session, lease: Lease) -> None:
        """Its app is told of it on this connection, for the first time."""
        self.session = session
        if not self.detached:
            session.ties.granted(lease)

    def _told(self, lease: Lease) -> bytes:
        """Composed when it is written, with the lease as it is then. From then on it matters whether it was
        read."""
        session = self.session
        if lease.standing is not Standing.HELD:
            return told_expired(session, lease)
        validity_ms = left_ms(lease.deadline_ns, boottime_ns())
        reply = replies.lease(
            lease.token, lease.fence, validity_ms, lease.deadline_ns, lease.holder.bound, session.protocol
        )
        session.shared.tellings.begins(lease, session.ties, reply)
        return reply

    def refused(self, refusal: Refusal) -> None:
        self.session.guarded(self._is_refused, refusal)

    def _is_refused(self, refusal: Refusal) -> None:
        self.session.lock_answered(self)
        tell_refused(self.session, self, self.resource, refusal)

    def renewed(self, lease: Lease) -> None:
        if self.notify:
            self.session.tell(b"renewed", lease.resource, lease.token, lease.deadline_ns)

    def lost(self, lease: Lease, reason: str) -> None:
        if self.session.shared.claims.lost(lease, boottime_ns()):
            return  # no app was told of it
        peer = self.session.peer
        self.session.shared.log.warning(
            "lost", resource=self.resource, why=reason, pid=peer.pid, uid=peer.uid
        )
        self.session.shared.losses.happened(self.session, lease, reason)

    def _log(self, event: str, **more: object) -> None:
        log_event(self.session, event, self.resource, **more)

    def ended(self, lease: Lease) -> None:
        if self.session.shared.log.debug_on:
            self._log("ended", fence=lease.fence)
        ties, shared = self.session.ties, self.session.shared
        ties.ended(lease)
        if ties.process is not None and ties.process.idle:
            shared.processes.forget(ties.process)
        shared.claims.ended(lease, boottime_ns())
        if self._holding is not None:
            shared.quotas.holds_no_more(self._usage, self._holding)


_NOTHING_HERE = Refusal(
    ErrorWord.DENIED, "nothing is locked on the operators' socket: lock on the socket for apps"
)


class Asked(Protocol):
    """A request for one or several locks."""

    @property
    def label(self) -> str: ...

    @property
    def cost(self) -> Cost: ...


def refused_for_limits(session: Session, request: Asked, metrics: LeaseMetrics) -> Refusal | None:
    """The limit because of which nothing is tried for it, if there is one; counted, and logged."""
    if session.for_operators:
        metrics.refused(request.label, _NOTHING_HERE, 0)
        return _NOTHING_HERE
    quotas = session.shared.quotas
    limit = quotas.refuse_lock(session.usage, request.cost)
    if limit is None:
        return None
    session.shared.incidents.limit_hit(limit, session.peer)
    refusal = Refusal(ErrorWord.LIMIT, limit)
    metrics.refused(request.label, refusal, 0)
    return refusal


def asked_again(lease: Lease, session: Session, *, notify: bool) -> None:
    """It was granted to another request of the same name: its app is told of it on this connection, too."""
    if isinstance(lease.holder, LockRequest | Heir):
        lease.holder.asked_again(session, lease, notify)


def told_expired(session: Session, lease: Lease) -> bytes:
    """The reply instead of its grant, of which its app never read. From then on its process knows of the
    loss."""
    session.shared.losses.told(session, (lease.resource, lease.token))
    return replies.error(str(Refusal(ErrorWord.EXPIRED, lease.loss or "it ended before the app was told")))


def tell_refused(session: Session, place: Place, resource: bytes, refusal: Refusal) -> None:
    """A LOCK ends with this error."""
    if refusal.code.kind is Kind.UNAVAILABLE:
        peer = session.peer
        session.shared.log.warning("refused", resource=resource, why=str(refusal), pid=peer.pid, uid=peer.uid)
    elif session.shared.log.debug_on:
        log_event(session, "refused", resource, why=str(refusal))
    session.answer(place, replies.error(str(refusal)))


def log_event(session: Session, event: str, resource: bytes, **more: object) -> None:
    """Log events of a lease with all details: at debug, since a busy host has thousands a second."""
    peer = session.peer
    session.shared.log.debug(event, resource=resource, pid=peer.pid, uid=peer.uid, **more)


class UnlockOrExtend(LeaseCommand):
    """An UNLOCK or EXTEND on its way: core's `Reply`."""

    __slots__ = ("_resource", "_session")

    def __init__(self, session: Session, command: str, resource: bytes, token: bytes) -> None:
        super().__init__(gives_back=command == "unlock")
        self.lease = (resource, token)
        self.ahead = False
        self._session = session
        self._resource = resource

    def refused(self, refusal: Refusal) -> None:
        self._session.guarded(self._is_refused, refusal)

    def _is_refused(self, refusal: Refusal) -> None:
        self._session.shared.incidents.lease_refused(self._resource, refusal)
        text = replies.error(str(refusal))
        self._finish(partial(self._expired, text) if refusal.code is ErrorWord.EXPIRED else text)

    def _expired(self, text: bytes) -> bytes:
        """Composed when it is written: from then on its process knows of the loss."""
        self._session.shared.losses.told(self._session, self.lease)
        return text

    def done(self, lease: Extended | None) -> None:
        reply = b":1\r\n" if lease is None else partial(self._extended, lease)
        self._session.guarded(self._finish, reply)

    def _extended(self, lease: Extended) -> bytes:
        """Composed when it is written, with the validity that is left then."""
        losses = self._session.shared.losses
        lost = losses.of(self.lease)
        if lost is not None:
            losses.told(self._session, self.lease)
            return replies.error(str(lost.refusal))
        validity_ms = left_ms(lease.deadline_ns, boottime_ns())
        return replies.lease(
            lease.token, lease.fence, validity_ms, lease.deadline_ns, lease.bound, self._session.protocol
        )

    def _finish(self, reply: WireReply) -> None:
        self._session.names_no_more(self)
        self._session.answer(self, reply)
