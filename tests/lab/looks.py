"""What an agent of the lab says of the masters, and what secrets the lab has."""

from __future__ import annotations

import json
from typing import Any

from tests.lab.lab import Lab


def masters(on: Any, host: str = "a1") -> list[dict[str, Any]]:
    """As `lockctl masters` has them on that host."""
    rows: list[dict[str, Any]] = json.loads(on(host).check_output("lockctl masters --json"))
    return rows


def votes(on: Any, host: str = "a1") -> dict[str, int]:
    """By name, 1 for each master that has its vote."""
    return {row["name"]: row["vote"] for row in masters(on, host)}


def states(on: Any, host: str = "a1") -> dict[str, str]:
    """By name, how each master is."""
    return {row["name"]: row["state"] for row in masters(on, host)}


def doctor(on: Any, host: str = "a1") -> tuple[int, str]:
    """Its exit status, and all that it says in one line."""
    done = on(host).run("lockctl doctor")
    return done.rc, " ".join(done.stdout.split())


def passwords(lab: Lab) -> dict[str, str]:
    """By whose they are."""
    return {path.stem: path.read_text().strip() for path in (lab.folder / "secrets").rglob("*.password")}
