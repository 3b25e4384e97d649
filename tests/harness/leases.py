"""A lease that nobody was asked for: for those who only look at one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lockd.core.leases import Lease, Tenure
from lockd.core.values import Bound
from tests.harness.ballots import an_attempt


def a_lease(
    label: str = "jobs",
    *,
    resource: bytes = b"r",
    token: bytes = b"t",
    bound: Bound = Bound.PROCESS,
    granted_ns: int = 0,
    fence: int = 7,
    proven: int = 0b111,
    notify: bool = True,
    **more: Any,
) -> Lease:
    """Asked for at 0, for ten seconds, and on three masters, unless `more` says otherwise."""
    attempt = an_attempt(resource=resource, ttl_ms=10_000)
    attempt.proof.masters = proven
    holder: Any = SimpleNamespace(
        label=label, owner=b"web1 4711 33", account="an app", value=token, bound=bound, detached=False,
        max_hold_ms=3_600_000, ttl_ms=10_000,
        notify=notify,
    )  # fmt: skip
    lease = Lease(Tenure(attempt), holder, token, fence, began_ns=0, now_ns=granted_ns)
    for name, value in more.items():
        try:
            setattr(lease, name, value)
        except AttributeError:
            # What it only shows of its tenure, or does not have.
            setattr(lease.tenure, name, value)
    return lease
