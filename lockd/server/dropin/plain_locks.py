"""A lock as Redis has it, with its app's own value, on its way through core: taken, released, extended."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from lockd.clock import boottime_ns
from lockd.config.model import LockClass
from lockd.core.errors import ErrorWord, Kind
from lockd.core.flow import WireReply
from lockd.core.leases import Lease, Standing
from lockd.core.plain_values import token_of
from lockd.core.validity import NS_PER_MS
from lockd.core.values import Bound, Extended, Refusal
from lockd.server.lease_requests import LockRequest, log_event, told_expired
from lockd.server.resp import replies
from lockd.server.session import Session

Answer = Callable[[WireReply], None]
"""Receives the reply: for its place on the connection, or for that of an EXEC."""
Refused = Callable[[Refusal], None]


def _heard(_: object) -> None:
    """It was answered already."""


GONE = Refusal(ErrorWord.ERR, "its connection has ended")
TOO_LATE = Refusal(ErrorWord.EXPIRED, "it had almost ended before the app could be told, so it was released")


class PlainLock(LockRequest):
    """core's `Holder`. Without a TTL it is renewed while its process lives, as a plain LOCK; with one it is
    like a DETACHED lease. It never belongs to a connection: pools take and give back on different ones.

    If the grant was certainly not read and its process has not named it since, a lease without a TTL is given
    back when its connection ends, as after a LOCK (rule 13). Only this agent extends it, so this agent knows
    who relies on it. A lease with a TTL stays until that ends, as on one Redis. Its app has chosen the value,
    and any app that knows the value (a constant, a worker's name) may have extended the lease through any
    host meanwhile, and been told that it has the lock. Nothing here shows that none has, and an extension
    can't be taken back.
    """

    __slots__ = ("_encoded", "_is_left", "_min_validity_ns", "_refused", "_says", "library", "via")

    def __init__(
        self,
        session: Session,
        resource: bytes,
        lock_class: LockClass,
        ttl_ms: int,
        value: bytes,
        *,
        has_ttl: bool,
        min_validity_ms: int,
        via: str,
    ) -> None:
        super().__init__(session, resource, lock_class, ttl_ms)
        self.value = token_of(value)
        self.detached = has_ttl
        self.bound = Bound.TTL if has_ttl else session.ties.bound(Bound.PROCESS)
        self.library = session.library
        self.via = via
        self._min_validity_ns = min_validity_ms * NS_PER_MS
        self._is_left = False

    def answers(self, encoded: bytes, says: Answer, refused: Refused) -> None:
        """encoded: the reply when it is granted; refused: called with the reason when it is not."""
        self._encoded, self._says, self._refused = encoded, says, refused

    def _asker(self) -> tuple[Answer, Refused]:
        """Who hears the one answer. The lease lives on with this request, which must not keep what asked for
        it."""
        asker = self._says, self._refused
        self._says = self._refused = _heard
        return asker

    def _is_granted(self, lease: Lease) -> None:
        session = self.session
        self._is_answered()
        self.holds(lease)
        self.is_told_on(session, lease)
        says, refused = self._asker()
        if session.is_gone and not self.detached:
            session.came_too_late(lease)
            refused(GONE)
            return
        session.last_taken = lease
        says(partial(self._told_plainly, lease))

    def gone(self, now_ns: int) -> None:
        """As `session.Waiting` has it. It may be one of several keys, which are given back."""
        self._is_left = not self.session.shared.locks.gone(self, now_ns)
        self.session.lock_answered(self)
        if not self._is_left:
            self._asker()[1](GONE)

    def _is_answered(self) -> None:
        if not self._is_left:
            self.session.lock_answered(self)

    def _told_plainly(self, lease: Lease) -> bytes:
        """Composed when it is written. Its app is told no deadline, so the lease has to be valid for a while
        longer (rule 1)."""
        session = self.session
        if lease.standing is not Standing.HELD:
            return told_expired(session, lease)
        if self.is_too_late(lease):
            session.came_too_late(lease)
            return replies.error(str(TOO_LATE))
        session.shared.tellings.begins(lease, session.ties, self._encoded)
        return self._encoded

    def is_too_late(self, lease: Lease) -> bool:
        """Too late to tell its app, which is told no deadline and has to be able to rely on the lease for a
        while."""
        return boottime_ns() >= lease.deadline_ns - self._min_validity_ns

    def _is_refused(self, refusal: Refusal) -> None:
        session = self.session
        self._is_answered()
        if refusal.code.kind is Kind.UNAVAILABLE:
            peer = session.peer
            session.shared.log.warning(
                "refused", resource=self.resource, why=str(refusal), pid=peer.pid, uid=peer.uid
            )
        elif session.shared.log.debug_on:
            log_event(session, "refused", self.resource, why=str(refusal))
        # The next step may ask core for more, and core is in the middle of its work.
        asyncio.get_running_loop().call_soon(session.guarded, self._asker()[1], refusal)


def is_over(lease: Lease) -> bool:
    """Its app may not be told any more that it has it (rule 1)."""
    is_too_late = isinstance(lease.holder, PlainLock) and lease.holder.is_too_late(lease)
    return is_too_late or lease.standing is not Standing.HELD


def give_back(session: Session, leases: Iterable[Lease]) -> None:
    """Its app is told an error instead: nothing may be left of them that it does not know of."""
    for lease in leases:
        if lease.standing is not Standing.OVER:
            session.came_too_late(lease)


class PlainReply:
    """Receives the answer to a release or an extension by value, for this connection: core's `Reply`."""

    __slots__ = ("_done", "_refused", "_session")

    def __init__(self, session: Session, done: Callable[[Extended | None], None], refused: Refused) -> None:
        self._session = session
        self._done, self._refused = done, refused

    def done(self, lease: Extended | None) -> None:
        self._session.guarded(self._done, lease)

    def refused(self, refusal: Refusal) -> None:
        self._session.guarded(self._refused, refusal)
