"""Names for requests: 32 hex digits that no other request has."""

from __future__ import annotations

import os
from itertools import count

from lockd.clock import boottime_ns

_COUNT_MASK, _TIME_MASK = (1 << 24) - 1, (1 << 40) - 1
"""Six and ten digits."""


class Tokens:
    """The tokens of one process, from randomness that the OS gave once. Asking for more each time would
    release the interpreter, for which dozens of threads may be waiting. The clock is part of them because of
    machines that were copied while they ran: both copies would count on alike."""

    def __init__(self) -> None:
        self._count = count()
        self.begin_anew()

    def begin_anew(self) -> None:
        self._prefix = os.urandom(8).hex().encode()

    def next(self) -> bytes:
        return b"%b%06x%010x" % (self._prefix, next(self._count) & _COUNT_MASK, boottime_ns() & _TIME_MASK)


tokens = Tokens()
"""Of this process."""
os.register_at_fork(after_in_child=tokens.begin_anew)
