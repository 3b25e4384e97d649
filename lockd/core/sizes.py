"""What things cost in the agent's memory, in bytes: measured by `python -m tests.bench.sizes`, which makes
thousands of each and fails when one has become larger. A request is asked for the most that it can cost
before anything is made of it."""

from typing import Final

CONNECTION: Final = 5_632
PROCESS: Final = 1_024
_LEASE: Final = 3_584
"""With its record in the journal, which is in memory, too, and is written anew when it is three times as
long."""
_DETACHED: Final = 2_304
"""A lease that is not renewed, and is in no journal."""
_WAITER: Final = 1_792
_PLACE: Final = 1_408
"""In one of several lines that one request stands in."""
WORD: Final = 54
"""What a word of a request is besides its bytes, once it is read."""
ANSWERED: Final = 176
"""A command that is answered, and whose reply waits for those before it: without the reply."""
COMMAND: Final = 960
"""A command that takes a place in the order of replies and is not answered yet: without its words."""
_DEBT: Final = 800


def request(words: list[bytes]) -> int:
    """One that is read, and waits."""
    return sum(map(len, words)) + WORD * len(words)


def lease(name: int, *, renewed: bool = True) -> int:
    """name: the length of the resource's name, which is there more than once."""
    return (_LEASE if renewed else _DETACHED) + 3 * name


def waiter(name: int, places: int = 1) -> int:
    """places: in how many lines it stands."""
    return _WAITER + 2 * name + (places - 1) * (_PLACE + 2 * name)


def debt(name: int) -> int:
    """A release that a master is owed, with its request."""
    return _DEBT + 2 * name
