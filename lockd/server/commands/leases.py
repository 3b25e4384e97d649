"""LOCK, UNLOCK and EXTEND."""

from random import randrange
from typing import NoReturn

from lockd.clock import boottime_ns
from lockd.config.current import Current
from lockd.config.model import LockClass
from lockd.core.errors import ErrorWord
from lockd.core.leases import Standing
from lockd.core.slot_names import slot_name
from lockd.core.values import Bound, Refusal
from lockd.metrics.leases import LeaseMetrics
from lockd.server.commands.arguments import (
    BadRequest,
    LockWords,
    Misused,
    ms_in,
    number_in,
    quoted,
    resources_in,
    token_in,
)
from lockd.server.commands.command import OTHERS, RESOURCE, Argument, Command, Group
from lockd.server.heirs import Heir
from lockd.server.joint_requests import JointRequest, Part, SeveralRequest, SlotPart, SlotsRequest
from lockd.server.lease_requests import LockRequest, UnlockOrExtend, refused_for_limits
from lockd.server.resp import replies
from lockd.server.session import Session
from lockd.server.shared import Shared

COMMANDS = Group()

_TTL = Argument("ttl-ms", "integer")
_NOTIFY = Argument("notify", "pure-token", token="NOTIFY", optional=True)
_BOUND = {b"DETACHED": Bound.TTL, b"CONNECTION": Bound.CONNECTION}
_LEASE = "map: token, fence, validity_ms, deadline_ns (CLOCK_BOOTTIME of this host), bound"
_OTHERS_NEWS = (
    "ERR NOTIFY is only for the holder, and the lease belongs to another process or connection. EXTEND it "
    "without NOTIFY"
)


class Leases:
    def __init__(self, current: Current, shared: Shared, metrics: LeaseMetrics) -> None:
        self._current = current
        self._metrics = metrics
        self._locks = shared.locks
        self._quotas = shared.quotas
        self._losses = shared.losses
        self._incidents = shared.incidents

    def _ttl_ms(self, word: bytes, lock_class: LockClass, had_ms: int = 0) -> int:
        """had_ms: a lease that was granted with this TTL may keep it in any case."""
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
            ("write", "noscript", "blocking", "movablekeys"),
            "Locks resources for the life of the process, or of the CONNECTION, up to MAXHOLD; or DETACHED.",
            f"{_LEASE}; with SLOTS also resource and slot; with AND an array of them, each with its resource",
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
                Argument("n", "integer", token="SLOTS", optional=True),
                OTHERS,
            ),
            key_access=("RW", "access", "insert"),
            resources=resources_in,
            for_lockers=True,
            promise=(
                "map: `token`, `fence`, `validity_ms`, `deadline_ns`, `bound`: `process`, `connection`, "
                "`ttl`. With `AND` all or none: a list of such maps, each with its `resource`. With "
                "`SLOTS` also `resource`, the name of the slot, and `slot`, from 0 to n - 1"
            ),
        )
    )
    def _lock(self, session: Session, words: list[bytes]) -> None:
        resource = words[1]
        lock_class = self._current.config.class_of(resource)
        request = LockRequest(session, resource, lock_class, self._ttl_ms(words[2], lock_class))
        if len(words) > 3:
            options, slots, others = LockWords.of(words)
            _read_options(request, options, lock_class)
            if others is not None and slots is not None:
                raise BadRequest("ERR SLOTS can't be combined with AND: lock one after the other")
            if others is not None:
                several = self._several(session, request, words[2], options, others)
                self._begin_in_turn(session, several, request)
                return
            if slots is not None:
                self._begin_in_turn(session, self._slots(session, request, options, slots), request)
                return
        self._begin_in_turn(session, request, request)

    def _several(
        self, session: Session, first: LockRequest, ttl: bytes, options: list[bytes], others: list[bytes]
    ) -> SeveralRequest:
        """first: the request for the first resource alone. Each part has its ttl and its options, as far as
        its class allows."""
        config, resources = self._current.config, [first.resource, *others]
        most = config.limits.resources_per_lock
        if not others:
            raise Misused("ERR AND names no other resource:")
        if first.detached:
            raise BadRequest(
                "ERR DETACHED can't be combined with AND: several resources are held and renewed for their "
                "process"
            )
        if len(resources) > most:
            self._refuse_limit(
                session, (f"resources_per_lock: {len(resources)} are named, at most {most} are allowed")
            )
        if len(set(resources)) < len(resources):
            twice = next(one for one in resources if resources.count(one) > 1)
            raise BadRequest(
                f"ERR '{twice.decode(errors='backslashreplace')}' is named twice: name each once"
            )
        several = SeveralRequest(session)
        several.takes([self._part(several, one, ttl, options) for one in resources], config.min_validity_ms)
        return several

    def _part(self, whole: JointRequest, resource: bytes, ttl: bytes, options: list[bytes]) -> Part:
        lock_class = self._current.config.class_of(resource)
        part = Part(whole, resource, lock_class, self._ttl_ms(ttl, lock_class))
        _read_options(part, options, lock_class)
        return part

    def _slots(self, session: Session, of: LockRequest, options: list[bytes], slots: bytes) -> SlotsRequest:
        """of: the request for the resource itself."""
        number, limits = number_in(slots, "SLOTS"), self._current.config.limits
        if number > limits.slots:
            self._refuse_limit(session, f"slots: {number} are requested, at most {limits.slots} are allowed")
        size = len(slot_name(of.resource, number - 1))
        if size > limits.resource_bytes:
            most = limits.resource_bytes
            self._refuse_limit(
                session, (f"resource_bytes: a slot's name has {size} bytes, at most {most} are allowed")
            )
        request = SlotsRequest(session, of.resource, self._metrics.refused)
        tries, places = (self._lines(request, of, options, number, waits=waits) for waits in (False, True))
        request.takes(tries, places if of.wait_ms else [], randrange(number))
        return request

    def _lines(
        self, whole: SlotsRequest, of: LockRequest, options: list[bytes], number: int, *, waits: bool
    ) -> list[SlotPart]:
        """One for each slot. Only those that wait have the name of the request: see `Slots`."""
        lines = [
            SlotPart(whole, slot_name(of.resource, one), of.lock_class, of.ttl_ms) for one in range(number)
        ]
        for line in lines:
            _read_options(line, options, of.lock_class)
            if not waits:
                line.wait_ms, line.named = 0, False
        return lines

    def _refuse_limit(self, session: Session, refusal: str) -> NoReturn:
        self._incidents.limit_hit(refusal, session.peer)
        raise BadRequest(f"LIMIT {refusal}")

    def _begin_in_turn(
        self, session: Session, request: LockRequest | JointRequest, options: LockRequest
    ) -> None:
        """options: those of the request, or of all its parts."""
        if options.notify:
            session.notify()
        if not options.wait_ms or session.flow.is_turn_of_next:
            session.in_turn(lambda _place: self._start_lock(session, request), request)
        else:
            session.in_turn(lambda _place: request.can_be_told(boottime_ns()), request)
            self._start_lock(session, request, ready=False)

    def _start_lock(
        self, session: Session, request: LockRequest | JointRequest, *, ready: bool = True
    ) -> None:
        self._metrics.asked("lock")
        refusal = refused_for_limits(session, request, self._metrics)
        if refusal is not None:
            session.answer(request, replies.error(str(refusal)))
            return
        request.begins(boottime_ns(), ready=ready)
        for name in request.names if request in session.waiting else ():
            self._losses.begins_anew(name)

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
            gives_back=True,
            brings_no_loss=True,
            promise=(
                "`1`, once a quorum has confirmed it, the next in line on this host has it, or its agent "
                "keeps it for the next app (`keep_ms`). From then on others can get it. If masters don't "
                "answer: `1` after `timeouts.master_ms`; they are told when they are back, and in any case "
                "forget it at its TTL. If so many answer with an error that others can't get it: `NOQUORUM`; "
                "the lease is over for its app, and its agent goes on asking until its TTL ends. Through "
                "another agent: `NOQUORUM`, try again"
            ),
        )
    )
    def _unlock(self, session: Session, words: list[bytes]) -> None:
        uid, resource, token = session.peer.uid, words[1], token_in(words[2])
        lease = self._locks.known(resource, token)
        if lease is None or lease.standing is not Standing.HELD:
            resource = self._named(uid, resource, token)
            self._report_loss(session, "unlock", resource, token)
            if not self._is_known(uid, resource, token):
                self._check_unknown(session, resource, token)
        session.at_once(
            UnlockOrExtend(session, "unlock", resource, token),
            lambda reply: self._locks.unlock(
                resource, token, reply, boottime_ns(), uid=uid, account=session.account
            ),
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
                "as `LOCK`; never shortens. The masters are asked each time, also where nothing is gained: "
                "what was released through another agent is `NOTHELD` or `EXPIRED` at once. "
                "`fence` and `bound` are nil when another agent granted it. "
                "`NOTIFY`: from now on this connection is told about a loss, if its process has locked it "
                "here"
            ),
        )
    )
    def _extend(self, session: Session, words: list[bytes]) -> None:
        token = token_in(words[2])
        resource = self._named(session.peer.uid, words[1], token)
        known = self._locks.known(resource, token)
        had_ms = 0 if known is None else known.ttl_ms
        ttl_ms = self._ttl_ms(words[3], self._terms(resource, token), had_ms)
        if any(word.upper() != b"NOTIFY" for word in words[4:]):
            raise Misused
        self._report_loss(session, "extend", resource, token)
        self._check_unknown(session, resource, token)
        if words[4:]:
            self._tell_here(session, resource, token)
        if known is not None and isinstance(known.holder, LockRequest):
            # Now, and not with the answer: its first connection may end before that.
            known.holder.was_named(known)
        session.at_once(
            UnlockOrExtend(session, "extend", resource, token),
            lambda reply: self._locks.extend(resource, token, ttl_ms, reply, boottime_ns()),
        )

    def _named(self, uid: int, resource: bytes, token: bytes) -> bytes:
        """The slot of this resource to which the token belongs, also when that was lost."""
        one = self._locks.names.slot(resource, token)
        if one is not None and one.lease is not None:
            return one.lease.resource
        if not self._is_known(uid, resource, token):
            for number in range(self._current.config.limits.slots):
                name = slot_name(resource, number)
                if self._losses.of((name, token)) is not None:
                    return name
        return resource

    def _is_known(self, uid: int, resource: bytes, token: bytes) -> bool:
        return (
            self._locks.known(resource, token) is not None
            or self._losses.of((resource, token)) is not None
            or self._locks.knows_request(uid, resource, token, boottime_ns())
        )

    def _tell_here(self, session: Session, resource: bytes, token: bytes) -> None:
        """From now on, its loss is told on this connection, as after a LOCK with NOTIFY."""
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
        """An app that names a lost lease is told why it was lost, on any connection, even if core has
        forgotten it. An app that unlocks it is done with it, so it is given back. An app that extends it may
        rely on it until it has read the reply, which may be late: nobody else gets it before its deadline
        (rule 12)."""
        lost = self._losses.of((resource, token))
        if lost is not None:
            if session.flow.places:
                # Other connections of its process are still told: this reply may be late, or never arrive.
                session.knows_of(lost.name)
            else:
                self._losses.told(session, lost.name)
            if command == "unlock":
                self._locks.forget(resource, token, boottime_ns())
            self._incidents.lease_refused(resource, lost.refusal)
            raise BadRequest(str(lost.refusal))

    def _check_unknown(self, session: Session, resource: bytes, token: bytes) -> None:
        """An invented token makes the agent ask all masters, and costs its user nothing. So a user may send
        only so many a second."""
        if self._locks.knows(resource, token):
            return
        refusal = self._quotas.refuse_unknown_token(session.account, boottime_ns())
        if refusal is not None:
            self._incidents.limit_hit(refusal, session.peer)
            self._incidents.lease_refused(resource, Refusal(ErrorWord.LIMIT, refusal))
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
            raise Misused(f"ERR syntax error at '{quoted(word)}':")
    if request.max_hold_ms < request.ttl_ms:
        raise BadRequest(
            f"ERR the ttl of {request.ttl_ms} ms is longer than the lease may be held: "
            f"{request.max_hold_ms} ms ({whose} or MAXHOLD)"
        )
