"""The masters of an agent as they are made at its start, before any is connected."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from lockd.config.model import Config
from lockd.masters.fleet import Fleet


def a_fleet(**timeouts: int) -> Fleet:
    """Three masters, m1 to m3, and nobody who wants to know of them."""
    masters = [{"name": f"m{n}", "address": f"127.0.0.1:{n}"} for n in (1, 2, 3)]
    config = Config.model_validate({"cluster": "test", "masters": masters, "timeouts": timeouts})
    nothing: Any = lambda *_: None  # noqa: E731
    gauge: Any = Mock()
    return Fleet(config, gauge, nothing, nothing, nothing)
