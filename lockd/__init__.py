"""lockd: distributed locks over independent Redis masters, and what a Python app imports to use them.

The names of the client are looked up on first use: the agent imports this package too and must not load
redis-py.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockd.client import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """A class of `lockd.client`; names in lower case are modules, which Python finds by itself."""
    if name[:1].isupper():
        client = import_module("lockd.client")
        if name in client.__all__:
            return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
