"""Which app has what the masters show as a tenure of this host: the masters know only the first one."""

from dataclasses import dataclass

from lockd.core.leases import Lease, pid_and_uid
from lockd.core.locks import Locks


@dataclass(frozen=True, slots=True)
class Tenant:
    """A process of this host, and its lease: the present one, or the last one if the tenure is only kept.
    since_ns: when it was granted, or when keeping began."""

    pid: int
    uid: int
    fence: int
    since_ns: int
    kept: bool


def tenant_of(locks: Locks, resource: bytes, nonce: bytes) -> Tenant | None:
    """None: the tenure is not this agent's, or has no lease for a moment."""
    detached = locks.detached_with(resource, nonce)
    if detached is not None:
        return _tenant(detached)
    queue = locks.queues.get(resource)
    if queue is None or queue.tenure is None or nonce not in queue.tenure.nonces:
        return None
    if queue.kept is not None:
        kept = queue.kept
        return Tenant(*pid_and_uid(kept.owner), kept.fence, kept.since_ns, kept=True)
    return None if queue.lease is None else _tenant(queue.lease)


def _tenant(lease: Lease) -> Tenant:
    return Tenant(*pid_and_uid(lease.holder.owner), lease.fence, lease.granted_ns, kept=False)
