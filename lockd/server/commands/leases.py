"""LOCK, UNLOCK and EXTEND."""

from lockd.clock import boottime_ns
from lockd.config.current import Current
from lockd.config.model import LockClass
from lockd.core.errors import ErrorWord
from lockd.core.values import Bound, Refusal
from lockd.metrics.leases import LeaseMetrics
from lockd.server.commands.arguments import BadRequest, Misused, ms_in, token_in
from lockd.server.commands.command import RESOURCE, Argument, Command, Group
from lockd.server.heirs import Heir
from lockd.server.lease_requests import LockRequest, UnlockOrExtend
from lockd.server.resp import replies
from lockd.server.session import Session
from lockd.server.shared import Shared

COMMANDS = Group()

_TTL = Argument("ttl-ms", "integer")
_NOTIFY = Argument("notify", "pure-token", token="NOTIFY", optional=True)
_BOUND = {b"DETACHED": Bound.TTL, b"CONNECTION": Bound.CONNECTION}
_LEASE = "map: token, fence, validity_ms, deadline_ns (CLOCK_BOOTTIME of this host), bound"
_OTHERS_NEWS = (
    "ERR NOTIFY is for who has locked it: the lease is another process's, or another connection's. EXTEND it "
    "without"
)
_SPARE = "connections: all are in use, and this one is for what operators ask"


class Leases:
    def __init__(self, current: Current, shared: Shared, metrics: LeaseMetrics) -> None:
        self._current = current
        self._metrics = metrics
        self._locks = shared.locks
        self._quotas = shared.quotas
        self._losses = shared.losses
        self._incidents = shared.incidents

    def _ttl_ms(self, word: bytes, lock_class: LockClass, had_ms: int = 0) -> int:
        """had_ms: as much a lease may have in any case, that was granted so."""
        least_ms = self._current.config.min_ttl_ms
        return ms_in(
            word,
            "the ttl",
            max(had_ms, lock_class.max_ttl_ms or self._current.config.max_ttl_ms),
            f"class '{lock_class.name}'",
            min(least_ms, had_ms or least_ms),
        )

    @COMMANDS(
        Command(
            "lock",
            -3,
            "lock",
            ("write", "noscript", "blocking"),
            "Locks a resource: while the process lives, or the CONNECTION, up to MAXHOLD; or DETACHED.",
            _LEASE,
            (
                RESOURCE,
                _TTL,
                Argument("ms", "integer", token="WAIT", optional=True),
                Argument("ms", "integer", token="MAXHOLD", optional=True),
                Argument(
                    "bound",
                    "oneof",
                    optional=True,
                    arguments=(
                        Argument("detached", "pure-token", token="DETACHED"),
                        Argument("connection", "pure-token", token="CONNECTION"),
                    ),
                ),
                _NOTIFY,
                Argument("token", token="TOKEN", optional=True),
            ),
            key_access=("RW", "access", "insert"),
            for_lockers=True,
            promise=(
                "map: `token`, `fence`, `validity_ms`, `deadline_ns`, `bound`: `process`, `connection`, `ttl`"
            ),
        )
    )
    def _lock(self, session: Session, words: list[bytes]) -> None:
        resource = words[1]
        lock_class = self._current.config.class_of(resource)
        request = LockRequest(session, resource, lock_class, self._ttl_ms(words[2], lock_class))
        _read_options(request, words[3:], lock_class)
        if request.notify:
            session.notify()
        if not request.wait_ms or session.flow.is_turn_of_next:
            session.in_turn(lambda _place: self._start_lock(session, request), request)
        else:
            session.in_turn(lambda _place: self._locks.can_be_told(request, boottime_ns()), request)
            self._start_lock(session, request, ready=False)

    def _start_lock(self, session: Session, request: LockRequest, *, ready: bool = True) -> None:
        no_room = session.is_spare and not session.finds_room()
        refusal = _SPARE if no_room else self._quotas.refuse_lock(session.usage)
        if refusal is not None:
            self._incidents.limit_hit(refusal, session.peer)
            self._metrics.refused(request.label, Refusal(ErrorWord.LIMIT, refusal), 0)
            session.answer(request, replies.error(f"LIMIT {refusal}"))
            if no_room:
                # An app of root's: its pool would have this connection for the next LOCK, too.
                session.end()
            return
        request.begins(boottime_ns())
        session.lock_starts(request)
        self._locks.lock(request, request.asked_ns, ready=ready)
        if request.named and request in session.waiting:
            self._losses.begins_anew((request.resource, request.value))

    @COMMANDS(
        Command(
            "unlock",
            3,
            "lock",
            ("write", "noscript"),
            "Releases a lease.",
            "1",
            (RESOURCE, Argument("token")),
            key_access=("RW", "delete"),
            brings_no_loss=True,
            promise=(
                "`1`, once a quorum has confirmed it, or the next in line on this host has it: from then on "
                "anybody gets it. When masters don't "
                "answer, `1` after `timeouts.master_ms`: they are told when they are back, and forget it "
                "at its TTL in any case"
            ),
        )
    )
    def _unlock(self, session: Session, words: list[bytes]) -> None:
        resource, token = words[1], token_in(words[2])
        self._report_loss(session, "unlock", resource, token)
        uid, locks = session.peer.uid, self._locks
        if locks.known(resource, token) is None and not locks.knows_request(
            uid, resource, token, boottime_ns()
        ):
            self._check_unknown(session, "unlock", resource, token)
        session.at_once(
            UnlockOrExtend(session, "unlock", resource, token),
            lambda reply: locks.unlock(resource, token, reply, boottime_ns(), uid=uid),
        )

    @COMMANDS(
        Command(
            "extend",
            -4,
            "lock",
            ("write", "noscript"),
            "Extends a lease to ttl-ms from now. Never shortens it.",
            f"{_LEASE}; fence and bound are nil when another agent granted the lease",
            (RESOURCE, Argument("token"), _TTL, _NOTIFY),
            key_access=("RW", "access", "update"),
            for_lockers=True,
            brings_no_loss=True,
            promise=(
                "as `LOCK`; never shortens. `fence` and `bound` are nil when another agent granted it. "
                "`NOTIFY`: this connection gets its news from now on, if its process has locked it here"
            ),
        )
    )
    def _extend(self, session: Session, words: list[bytes]) -> None:
        resource, token = words[1], token_in(words[2])
        known = self._locks.known(resource, token)
        had_ms = 0 if known is None else known.ttl_ms
        ttl_ms = self._ttl_ms(words[3], self._terms(resource, token), had_ms)
        if any(word.upper() != b"NOTIFY" for word in words[4:]):
            raise Misused
        self._report_loss(session, "extend", resource, token)
        self._check_unknown(session, "extend", resource, token)
        if words[4:]:
            self._tell_here(session, resource, token)
        if known is not None and isinstance(known.holder, LockRequest):
            # Now, and not with the answer: its first connection may end before that.
            known.holder.was_named(known)
        session.at_once(
            UnlockOrExtend(session, "extend", resource, token),
            lambda reply: self._locks.extend(resource, token, ttl_ms, reply, boottime_ns()),
        )

    def _tell_here(self, session: Session, resource: bytes, token: bytes) -> None:
        """What becomes of it is told on this connection from now on, as to a LOCK with NOTIFY."""
        lease = self._locks.known(resource, token)
        if lease is not None and isinstance(lease.holder, LockRequest | Heir):
            if not lease.holder.is_of(session):
                raise BadRequest(_OTHERS_NEWS)
            lease.holder.hears_on(session, lease)
        session.notify()

    def _terms(self, resource: bytes, token: bytes) -> LockClass:
        """The class of a lease, as it was when it was locked here: a reload takes nothing from holders."""
        lease = self._locks.known(resource, token)
        if lease is not None and isinstance(lease.holder, LockRequest):
            return lease.holder.lock_class
        return self._current.config.class_of(resource)

    def _report_loss(self, session: Session, command: str, resource: bytes, token: bytes) -> None:
        """Who names a lease that was lost is told why, on whatever connection, also when core has forgotten
        it already. Who unlocks it is done with it, and it is given back. Who extends it may rely on it until
        he has read the reply, which may wait for long: nobody else gets it before its deadline (rule 12)."""
        lost = self._losses.of((resource, token))
        if lost is not None:
            if session.flow.places:
                # Others of its process are told all the same: this reply may wait for long, or never come.
                session.knows_of(lost.name)
            else:
                self._losses.told(session, lost.name)
            if command == "unlock":
                self._locks.forget(resource, token, boottime_ns())
            self._incidents.lease_refused(command, resource, lost.refusal)
            raise BadRequest(str(lost.refusal))

    def _check_unknown(self, session: Session, command: str, resource: bytes, token: bytes) -> None:
        """Whoever makes up tokens has all masters asked, at no cost of his own: so many a second, and no
        more."""
        if self._locks.knows(resource, token):
            return
        refusal = self._quotas.refuse_unknown_token(session.peer.uid, boottime_ns())
        if refusal is not None:
            self._incidents.limit_hit(refusal, session.peer)
            self._incidents.lease_refused(command, resource, Refusal(ErrorWord.LIMIT, refusal))
            raise BadRequest(f"LIMIT {refusal}")


def _read_options(request: LockRequest, words: list[bytes], lock_class: LockClass) -> None:
    whose = f"class '{lock_class.name}'"
    options = iter(words)
    asked: Bound | None = None
    for word in options:
        option = word.upper()
        if option == b"WAIT":
            request.wait_ms = ms_in(next(options, b""), "WAIT", lock_class.max_wait_ms, whose)
        elif option == b"MAXHOLD":
            most_ms = lock_class.max_hold_ms
            request.max_hold_ms = ms_in(next(options, b""), "MAXHOLD", most_ms, whose, least_ms=1)
        elif option in _BOUND and asked in (None, _BOUND[option]):
            request.bound = asked = _BOUND[option]
            request.detached = asked is Bound.TTL
        elif option == b"NOTIFY":
            request.notify = True
        elif option == b"TOKEN":
            request.value, request.named = token_in(next(options, b"")), True
        else:
            quoted = word[:32].decode(errors="backslashreplace")
            raise Misused(f"ERR syntax error at '{quoted}':")
    if request.max_hold_ms < request.ttl_ms:
        raise BadRequest(
            f"ERR the ttl of {request.ttl_ms} ms is longer than the lease may be held: "
            f"{request.max_hold_ms} ms ({whose} or MAXHOLD)"
        )
