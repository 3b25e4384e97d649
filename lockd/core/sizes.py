"""What things cost in the agent's memory, in bytes: measured by `python -m tests.bench.sizes`, which makes
thousands of each and fails when one has become larger. A request is asked for the most that it can cost
before anything is made of it."""

from typing import Final

CONNECTION: Final = 5_120
PROCESS: Final = 1_024
_LEASE: Final = 3_584
"""With its record in the journal, which is in memory, too, and is written anew when it is four times as
long."""
_WAITER: Final = 2_816
_PLACE: Final = 1_408
"""In one of several lines that one request stands in."""
WORD: Final = 56
"""What a word of a request is besides its bytes, once it is read."""


def lease(name: int) -> int:
    """name: the length of the resource's name, which is there more than once."""
    return _LEASE + 3 * name


def waiter(name: int, places: int = 1) -> int:
    """places: in how many lines it stands."""
    return _WAITER + 2 * name + (places - 1) * (_PLACE + 2 * name)
