"""What an agent of the lab says of the masters."""

from __future__ import annotations

import json
from typing import Any


def masters(on: Any, host: str = "a1") -> list[dict[str, Any]]:
    """As `lockctl masters` has them on that host."""
    rows: list[dict[str, Any]] = json.loads(on(host).check_output("lockctl masters --json"))
    return rows


def votes(on: Any) -> dict[str, int]:
    """By name, 1 for each master that has its vote."""
    return {row["name"]: row["vote"] for row in masters(on)}
