"""A lease as those see it who only look: metrics, and the status page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lockd.core.leases import Standing
from tests.harness.clocks import MS


def a_lease(label: str = "jobs", **more: Any) -> Any:
    """Granted at 0 for ten seconds, and on three masters, unless `more` says otherwise."""
    known = {
        "granted_ns": 0, "t1_ns": 0, "deadline_ns": 9_898 * MS, "ttl_ms": 10_000, "standing": Standing.HELD,
        "proven": 0b111, "lost_by": None, "resource": b"r", "fence": 7,
        "holder": SimpleNamespace(label=label, owner=b"web1 4711 33", detached=False),
    }  # fmt: skip
    return SimpleNamespace(**(known | more))
