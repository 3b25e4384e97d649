"""LOCK, UNLOCK and EXTEND."""

from typing import TYPE_CHECKING

from lockd.clock import boottime_ns
from lockd.config.model import LockClass
from lockd.core.flow import Place
from lockd.core.values import Refusal
from lockd.server.canary import RESERVED
from lockd.server.commands import catalog
from lockd.server.commands.arguments import BadRequest, ms_in, resource_in, token_in
from lockd.server.resp import replies
from lockd.server.session import Handler, LeaseCommand, LockRequest, Session

if TYPE_CHECKING:
    from lockd.server.agent import Agent

_SPARE = "connections: all are in use, and this one is for what operators ask"
_DENIED = Refusal("DENIED", "")


class Leases:
    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._config = agent.config

    def handlers(self) -> dict[bytes, Handler]:
        return {b"LOCK": self._lock, b"UNLOCK": self._unlock, b"EXTEND": self._extend}

    def _class_for(self, session: Session, resource: bytes, *, extending: bool = False) -> LockClass:
        lock_class = self._config.class_of(resource)
        if not self._agent.permissions.may_lock(session.peer, lock_class):
            self._agent.denied(session.peer, resource, lock_class.name)
            if extending:
                self._agent.lease_refused("extend", resource, _DENIED)
            else:
                self._agent.metrics.refused(lock_class.name, _DENIED, 0)
            raise BadRequest(
                f"DENIED uid {session.peer.uid} may not lock resources of the class '{lock_class.name}'"
            )
        return lock_class

    def _ttl_ms(self, word: bytes, lock_class: LockClass) -> int:
        return ms_in(
            word,
            "the ttl",
            lock_class.max_ttl_ms or self._config.max_ttl_ms,
            f"class '{lock_class.name}'",
            self._config.min_ttl_ms,
        )

    def _lock(self, session: Session, words: list[bytes]) -> None:
        resource = resource_in(self._agent, session, words[1])
        if resource.startswith(RESERVED):
            raise BadRequest("DENIED resources that begin with 'lockd:canary:' are the agents' own")
        lock_class = self._class_for(session, resource)
        ttl_ms = self._ttl_ms(words[2], lock_class)
        wait_ms, max_hold_ms, detached, notify = 0, lock_class.max_hold_ms, False, False
        whose = f"class '{lock_class.name}'"
        options = iter(words[3:])
        for word in options:
            option = word.upper()
            if option == b"WAIT":
                wait_ms = ms_in(next(options, b""), "WAIT", lock_class.max_wait_ms, whose)
            elif option == b"MAXHOLD":
                max_hold_ms = ms_in(next(options, b""), "MAXHOLD", lock_class.max_hold_ms, whose, least_ms=1)
            elif option == b"DETACHED":
                detached = True
            elif option == b"NOTIFY":
                notify = True
            else:
                shown = word[:32].decode(errors="backslashreplace")
                raise BadRequest(f"ERR syntax error at '{shown}': {catalog.usage('lock')}")
        if max_hold_ms < ttl_ms:
            raise BadRequest(
                f"ERR the ttl of {ttl_ms} ms is longer than the lease may be held: "
                f"{max_hold_ms} ms ({whose} or MAXHOLD)"
            )

        if notify:
            session.notify()

        def begin(place: Place) -> None:
            now_ns = boottime_ns()
            request = LockRequest(
                session, place, resource, lock_class, ttl_ms, wait_ms, max_hold_ms, detached, notify, now_ns
            )
            self._start_lock(session, request)

        session.in_turn(begin)

    def _start_lock(self, session: Session, request: LockRequest) -> None:
        no_room = session.is_spare and not session.finds_room()
        refusal = _SPARE if no_room else self._agent.quotas.refuse_lock(session.usage)
        if refusal is not None:
            self._agent.limit_hit(refusal, session.peer)
            self._agent.metrics.refused(request.label, Refusal("LIMIT", refusal), 0)
            session.answer(request.place, replies.error(f"LIMIT {refusal}"))
            if no_room:
                # An app of root's: its pool would have this connection for the next LOCK, too.
                session.end()
            return
        session.lock_starts(request)
        self._agent.locks.lock(request, request.asked_ns)

    def _unlock(self, session: Session, words: list[bytes]) -> None:
        resource, token = resource_in(self._agent, session, words[1]), token_in(words[2])
        self._report_loss(session, "unlock", resource, token)
        self._check_unknown(session, "unlock", resource, token)
        session.at_once(
            LeaseCommand(session, "unlock", resource, token),
            lambda reply: self._agent.locks.unlock(resource, token, reply, boottime_ns()),
        )

    def _extend(self, session: Session, words: list[bytes]) -> None:
        resource, token = resource_in(self._agent, session, words[1]), token_in(words[2])
        ttl_ms = self._ttl_ms(words[3], self._class_for(session, resource, extending=True))
        self._report_loss(session, "extend", resource, token)
        self._check_unknown(session, "extend", resource, token)
        session.at_once(
            LeaseCommand(session, "extend", resource, token),
            lambda reply: self._agent.locks.extend(resource, token, ttl_ms, reply, boottime_ns()),
        )

    def _report_loss(self, session: Session, command: str, resource: bytes, token: bytes) -> None:
        """Who names a lease that was lost is told why, on whatever connection, also when core has forgotten
        it already; and it is given back."""
        lost = self._agent.losses.of(token)
        if lost is not None and lost.resource == resource:
            if session.flow.places:
                # Others of its process are told all the same: this reply may wait for long, or never come.
                session.knows_of(token)
            else:
                self._agent.losses.told(session, token)
            self._agent.locks.forget(resource, token, boottime_ns())
            self._agent.lease_refused(command, resource, lost.refusal)
            raise BadRequest(str(lost.refusal))

    def _check_unknown(self, session: Session, command: str, resource: bytes, token: bytes) -> None:
        """Whoever makes up tokens has all masters asked, at no cost of his own: so many a second, and no
        more."""
        if self._agent.locks.knows(resource, token):
            return
        refusal = self._agent.quotas.refuse_unknown_token(session.peer.uid, boottime_ns())
        if refusal is not None:
            self._agent.limit_hit(refusal, session.peer)
            self._agent.lease_refused(command, resource, Refusal("LIMIT", refusal))
            raise BadRequest(f"LIMIT {refusal}")
