"""lockd: distributed locks over independent Redis masters, and what a Python app imports to use them.

    from lockd import Client

The names of the client are looked up on first use: the agent imports this package too and must not load
redis-py.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockd.client.errors import (
        AgentUnreachable,
        ClockRefused,
        Denied,
        Draining,
        LimitReached,
        LockdError,
        LockLost,
        NoQuorum,
        NotHeld,
        Taken,
        WaitTimeout,
    )
    from lockd.client.sync.leading import Leadership
    from lockd.client.sync.lease import Lease
    from lockd.client.sync.locks import Client

__version__ = "0.1.0"

__all__ = [
    "AgentUnreachable",
    "Client",
    "ClockRefused",
    "Denied",
    "Draining",
    "Leadership",
    "Lease",
    "LimitReached",
    "LockLost",
    "LockdError",
    "NoQuorum",
    "NotHeld",
    "Taken",
    "WaitTimeout",
    "__version__",
]

_ROOMS = {"Client": "sync.locks", "Leadership": "sync.leading", "Lease": "sync.lease"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = _ROOMS.get(name, "errors")
    return getattr(import_module(f"lockd.client.{room}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
