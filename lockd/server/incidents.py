"""What goes wrong for an app, or in the agent itself: counted, and logged with its user."""

from lockd.config.current import Current
from lockd.core.values import Refusal
from lockd.metrics.collector import Metrics
from lockd.server.log import EventLog
from lockd.server.peer import Peer


class Incidents:
    def __init__(self, current: Current, metrics: Metrics, log: EventLog) -> None:
        self._current = current
        self._metrics = metrics
        self._log = log

    # An app is refused

    def limit_hit(self, refusal: str, peer: Peer) -> None:
        self._metrics.agent.limit_refusals[refusal.split(":", 1)[0]] += 1
        self._log.warning("limit", limit=refusal, pid=peer.pid, uid=peer.uid)

    def lease_refused(self, resource: bytes, refusal: Refusal) -> None:
        label = self._current.config.class_of(resource).name
        self._metrics.leases.lease_refused(label, refusal.code)

    def denied(self, peer: Peer, resource: bytes, lock_class: str) -> None:
        self._log.warning("denied", resource=resource, lock_class=lock_class, pid=peer.pid, uid=peer.uid)

    def operator_denied(self, peer: Peer, command: str, why: str) -> None:
        self._log.warning("operator_denied", command=command, why=why, pid=peer.pid, uid=peer.uid)

    def protocol_error(self, error: str, peer: Peer) -> None:
        self._metrics.agent.protocol_errors += 1
        self._log.warning("protocol_error", error=error, pid=peer.pid, uid=peer.uid)

    # An error of the agent

    def internal_error(self, what: str, failure: BaseException | None) -> None:
        self._metrics.agent.internal_errors += 1
        self._log.error("internal_error", what=what, error=repr(failure))
