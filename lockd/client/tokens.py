"""Names for requests: 32 hex digits that no other request has."""

from __future__ import annotations

import os
from itertools import count

from lockd.clock import boottime_ns

_COUNT_BITS, _TIME_BITS = 24, 40


class Tokens:
    """Those of one process, from the OS's randomness once: asking for it each time would let go of the
    interpreter, for which dozens of threads may be waiting. The clock is in them for machines that were
    copied while they ran, and count on alike."""

    def __init__(self) -> None:
        self._count = count()
        self.begin_anew()

    def begin_anew(self) -> None:
        self._prefix = os.urandom(8).hex()

    def next(self) -> bytes:
        number = next(self._count) % (1 << _COUNT_BITS) << _TIME_BITS | boottime_ns() % (1 << _TIME_BITS)
        return f"{self._prefix}{number:016x}".encode()


tokens = Tokens()
"""Of this process."""
os.register_at_fork(after_in_child=tokens.begin_anew)
