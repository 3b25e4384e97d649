"""A lock as Redis has it, with its app's own value, on its way through core: taken, released, extended."""

import asyncio
from collections.abc import Callable
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
"""Where the reply goes: to its place on the connection, or into that of an EXEC."""
Refused = Callable[[Refusal], None]


GONE = Refusal(ErrorWord.ERR, "its connection has ended")
TOO_LATE = Refusal(ErrorWord.EXPIRED, "it had nearly ended before it could be told: it is given back")


class PlainLock(LockRequest):
    """core's `Holder`. Without a TTL it is renewed while its process lives, as a plain LOCK; with one it is
    as a DETACHED lease. Nothing of it belongs to a connection: pools take and give back on different ones.

    Where the grant was certainly not read and its process has not named it since, one without a TTL is given
    back when its connection ends, as a LOCK is (rule 13): only this agent extends it, so here is known who
    relies on it. One with a TTL ends at that, as on one Redis. Its app has chosen the value, and who knows it
    (a constant, a worker's name) may have extended the lease through any host meanwhile, and been told that
    it is his: nothing here says that nobody has, and an extension can't be taken back.
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
        """encoded: what is said when it is granted; refused: is told why it is not."""
        self._encoded, self._says, self._refused = encoded, says, refused

    def granted(self, lease: Lease, now_ns: int) -> None:
        session = self.session
        self._is_answered()
        self.holds(lease)
        self.is_told_on(session, lease)
        if session.is_gone and not self.detached:
            session.came_too_late(lease)
            self._refused(GONE)
            return
        session.last_taken = lease
        self._says(partial(self._told_plainly, lease))

    def gone(self, now_ns: int) -> None:
        """As `session.Waiting` has it. It may be one of several, which are given back."""
        self._is_left = not self.session.shared.locks.gone(self, now_ns)
        self.session.lock_answered(self)
        if not self._is_left:
            self._refused(GONE)

    def _is_answered(self) -> None:
        if not self._is_left:
            self.session.lock_answered(self)

    def _told_plainly(self, lease: Lease) -> bytes:
        """Composed when it is written. Its app is told no deadline, so it has to be good for a moment yet
        (rule 1)."""
        session = self.session
        if lease.standing is not Standing.HELD:
            return told_expired(session, lease)
        if self.is_too_late(lease):
            # With a TTL it is over in that moment, or somebody has extended it by its value.
            if not self.detached:
                session.came_too_late(lease)
            return replies.error(str(TOO_LATE))
        session.shared.tellings.begins(lease, session.ties, self._encoded)
        return self._encoded

    def is_too_late(self, lease: Lease) -> bool:
        """To be told of: who is told no deadline has to be able to rely on it for a moment."""
        return boottime_ns() >= lease.deadline_ns - self._min_validity_ns

    def refused(self, refusal: Refusal) -> None:
        session = self.session
        self._is_answered()
        if refusal.code.kind is Kind.UNAVAILABLE:
            peer = session.peer
            session.shared.log.warning(
                "refused", resource=self.resource, why=str(refusal), pid=peer.pid, uid=peer.uid
            )
        elif session.shared.log.debug_on:
            log_event(session, "refused", self.resource, why=str(refusal))
        # What follows may ask core for more, which is in the middle of its work.
        asyncio.get_running_loop().call_soon(self._refused, refusal)


def is_too_late(lease: Lease) -> bool:
    """As `PlainLock` has it, of any lease."""
    return isinstance(lease.holder, PlainLock) and lease.holder.is_too_late(lease)


class PlainReply:
    """Where a release or an extension by value comes to: core's `Reply`."""

    __slots__ = ("_done", "_refused")

    def __init__(self, done: Callable[[Extended | None], None], refused: Refused) -> None:
        self._done, self._refused = done, refused

    def done(self, lease: Extended | None) -> None:
        self._done(lease)

    def refused(self, refusal: Refusal) -> None:
        self._refused(refusal)
