"""Waiting for what a host does by itself."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import TypeVar

from tests.harness.waiting import eventually

T = TypeVar("T")

# The machine may be busy with other things: this only ends what hangs.
PATIENCE_S = 300.0


def until(condition: Callable[[], T], what: str) -> T:
    """As `eventually`; of a command that fails on a host as well, one that is just booting say."""
    return eventually(condition, what, 0.1, (RuntimeError, subprocess.SubprocessError))
