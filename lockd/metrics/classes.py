"""Classes, as metrics tell them apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from lockd.config.model import CANARY

T = TypeVar("T")


def of_apps(by_class: Mapping[str, T]) -> dict[str, T]:
    """All but the canary's, which has metrics for itself (CanaryMetrics). From any thread: the mapping is
    copied in one step of the interpreter."""
    return {label: of for label, of in list(by_class.items()) if label != CANARY}
