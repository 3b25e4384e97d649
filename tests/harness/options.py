"""Numbers on command lines."""

from __future__ import annotations

import argparse
from math import isfinite


def above_zero(text: str) -> float:
    number = float(text)
    if not (isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"{text}: it must be more than 0")
    return number


def some(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: it must be at least 1")
    return number
