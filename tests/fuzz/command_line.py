"""How a fuzzer that watches promises is started, and how it says what came of it."""

import argparse
import secrets
import sys
import time
from collections.abc import Callable

GoesOn = Callable[[int], bool]
"""Whether there is more to do, when so much is done."""


class BrokenPromiseError(AssertionError):
    pass


def for_seconds(seconds: float) -> GoesOn:
    """However much that is: for who looks for as long as he likes."""
    until_s = time.monotonic() + seconds
    return lambda _done: time.monotonic() < until_s


def up_to(count: int) -> GoesOn:
    """However long that takes: what a test looks at is the same on every machine."""
    return lambda done: done < count


def run(parser: argparse.ArgumentParser, fuzz: Callable[[argparse.Namespace], str]) -> int:
    """Fuzz for --seconds with --seed, and print what was done, or which promise was broken and how to have
    it again. Returns the exit status."""
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    try:
        print(fuzz(options))
    except AssertionError as broken:
        print(f"--seed {options.seed}: {broken}", file=sys.stderr)
        return 1
    return 0
