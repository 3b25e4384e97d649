"""What a request must pass before it is run, according to its command's descriptor: which users may run the
command, how long a resource may be, and whether its user may lock in the resource's class."""

from collections.abc import Callable

from lockd.config.current import Current
from lockd.core.errors import ErrorWord
from lockd.core.leases import pid_and_uid
from lockd.core.values import Refusal
from lockd.metrics.leases import LeaseMetrics
from lockd.server.canary import RESERVED
from lockd.server.commands.arguments import BadRequest
from lockd.server.commands.command import Command
from lockd.server.peer import FOR_OPERATORS, Peer
from lockd.server.session import Session
from lockd.server.shared import Shared

Check = Callable[[Session, Command, list[bytes], list[bytes]], None]
"""Checks the words of a request and the resources that they name. Raises BadRequest."""

_DENIED = Refusal(ErrorWord.DENIED, "")


class Checks:
    def __init__(self, current: Current, shared: Shared, metrics: LeaseMetrics) -> None:
        self._current = current
        self._metrics = metrics
        self._shared = shared
        self._incidents = shared.incidents

    def of(self, command: Command) -> tuple[Check, ...]:
        """The checks, in order. Most commands need none."""
        checks = {
            self._is_operator: "admin" in command.flags,
            self._names_resource: bool(command.key_access),
            self._is_not_reserved: command.grants,
            self._may_lock: command.for_lockers,
        }
        return tuple(check for check, needed in checks.items() if needed)

    def _is_operator(
        self, session: Session, command: Command, words: list[bytes], _resources: list[bytes]
    ) -> None:
        why_not = session.why_no_operator()
        if why_not:
            self._incidents.operator_denied(session.peer, command.name, why_not)
            raise BadRequest(f"{FOR_OPERATORS} ({why_not})")

    def _names_resource(
        self, session: Session, command: Command, words: list[bytes], resources: list[bytes]
    ) -> None:
        most = self._current.config.limits.resource_bytes
        for size in map(len, resources):
            if not size:
                raise BadRequest("ERR the resource has an empty name")
            if size > most:
                refusal = f"resource_bytes: the resource has {size} bytes, at most {most} are allowed"
                self._incidents.limit_hit(refusal, session.peer)
                raise BadRequest(f"LIMIT {refusal}")

    def _is_not_reserved(
        self, session: Session, command: Command, words: list[bytes], resources: list[bytes]
    ) -> None:
        for resource in resources:
            if resource.startswith(RESERVED):
                raise BadRequest("DENIED resources that begin with 'lockd:canary:' are reserved for agents")

    def _may_lock(
        self, session: Session, command: Command, words: list[bytes], resources: list[bytes]
    ) -> None:
        for resource in resources:
            self._may_lock_one(session, command, words, resource)

    def _may_lock_one(self, session: Session, command: Command, words: list[bytes], resource: bytes) -> None:
        holds = self._holds(session.peer, command, words)
        self.may(session, resource, takes=command.grants, about=command.about_a_lease, holds=holds)

    def may(self, session: Session, resource: bytes, *, takes: bool, about: str, holds: bool) -> None:
        """Whether this user may do something that only users that may lock the resource can do. takes: it
        locks it. about: what is done to a lease, if anything. holds: the user has the lease, and may go on
        with it: a reload takes nothing from holders."""
        peer = session.peer
        lock_class = self._current.config.class_of(resource)
        if self._shared.permissions.may_lock(peer, lock_class) or holds:
            return
        self._incidents.denied(peer, resource, lock_class.name)
        if takes:
            self._metrics.refused(lock_class.name, _DENIED, 0)
        elif about:
            self._incidents.lease_refused(resource, _DENIED)
        raise BadRequest(f"DENIED uid {peer.uid} may not lock resources of the class '{lock_class.name}'")

    def _holds(self, peer: Peer, command: Command, words: list[bytes]) -> bool:
        """A user that may not lock it any more may still extend a lease that it has."""
        lease = None if command.grants else self._shared.locks.known(words[1], words[2])
        return lease is not None and pid_and_uid(lease.holder.owner)[1] == peer.uid
