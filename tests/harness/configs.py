"""A configuration for what needs one and reads next to nothing of it."""

from __future__ import annotations

from typing import Any

from lockd.config.model import Config


def a_config(masters: int = 3, **more: Any) -> Config:
    """Of the cluster `shop`, with masters m1, m2, ... at 10.0.0.1:6379, 10.0.0.2:6379, ..."""
    rows = [{"name": f"m{i}", "address": f"10.0.0.{i}:6379"} for i in range(1, masters + 1)]
    return Config.read({"cluster": "shop", "masters": rows} | more)
