"""Leases that were taken over from the previous agent. Their app is known by its process, and talks to this
agent on connections on which they were not taken."""

from lockd.clock import boottime_ns
from lockd.core.journal import Held
from lockd.core.leases import Lease, pid_and_uid
from lockd.core.owners import Process
from lockd.core.values import Refusal
from lockd.server.quotas import Holding
from lockd.server.session import Session
from lockd.server.shared import Shared


def _stays(_account: str) -> None:
    """Its process is gone: the lease ends soon."""


class Heir:
    """Core's `Holder`. label: its class by the present configuration. process: None if it is dead, or can't
    be seen. _news: the connection that has asked for its news."""

    detached = False
    named = counted = True
    give_up_ns: int | None = None
    asked_ns = keep_ms = 0

    def __init__(self, shared: Shared, held: Held, label: str, process: Process | None) -> None:
        self.resource = held.resource
        self.label = label
        self.ttl_ms = held.now.ttl_ms
        self.lock_delay_ms = held.lock_delay_ms
        self.max_hold_ms = held.max_hold_ms
        self.value = held.token
        self.owner = held.owner
        self.pid = held.pid
        self.started = held.started
        self.bound = held.bound
        self.notify = held.notify
        self.process = process
        self._shared = shared
        self._news: Session | None = None
        _, self.uid = pid_and_uid(held.owner)
        self.account = shared.account_of(self.uid, 0, _stays) if process is None else process.account
        self._usage = shared.quotas.usage_of(self.account)
        self._holding = Holding(len(self.resource), self.ttl_ms)
        shared.quotas.holds(self._usage, self._holding)

    def granted(self, lease: Lease, now_ns: int) -> None:
        """It was granted by the previous agent."""

    def refused(self, refusal: Refusal) -> None:
        """It asks for nothing."""

    def asked_again(self, session: Session, lease: Lease, notify: bool) -> None:
        """Its app has named it on this connection, which may be the first to tell of it."""
        session.ties.tells_too(lease, None)
        if notify:
            self.hears_on(session, lease)

    def is_of(self, session: Session) -> bool:
        """Whether its news may be told on this connection: it has to be its process's, as far as that is
        known."""
        return self.process is None or session.ties.process is self.process

    def hears_on(self, session: Session, _lease: Lease) -> None:
        """Its app wants to hear of it on this connection."""
        if self.process is not None:
            self._news, self.notify = session, True

    def renewed(self, lease: Lease) -> None:
        if self._news is not None:
            self._news.tell(b"renewed", lease.resource, lease.token, lease.deadline_ns)

    def lost(self, lease: Lease, reason: str) -> None:
        self._shared.claims.lost(lease, boottime_ns())
        self._shared.log.warning("lost", resource=self.resource, why=reason, pid=self.pid, uid=self.uid)
        if self._news is not None:
            self._shared.losses.happened(self._news, lease, reason)
        else:
            self._shared.losses.happened_to(self.process, self.account, lease, reason)

    def ended(self, lease: Lease) -> None:
        if self.process is not None:
            self.process.forgets(lease)
            if self.process.idle:
                self._shared.processes.forget(self.process)
        self._shared.quotas.holds_no_more(self._usage, self._holding)
        self._shared.claims.ended(lease, boottime_ns())
