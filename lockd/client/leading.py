"""What a leadership says of itself, whichever client it uses. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from lockd.client.state import HeldLease

L = TypeVar("L", bound=HeldLease)

Elected = Callable[[L], object]
Deposed = Callable[[L, str], object]

RESIGNED = "it was given up here"


class Leader(Generic[L]):
    """Stands for leader, and leads by one lease after the other. In a forked child it leads nothing.

    trouble: why there is no lease yet, by the last try; '' while there is nothing to say.
    """

    def __init__(self, elected: Elected[L], deposed: Deposed[L] | None) -> None:
        self._elected = elected
        self._deposed = deposed or _nothing
        self._lease: L | None = None
        self.trouble = ""

    @property
    def leading(self) -> bool:
        """Whether this process is the leader now, for certain."""
        return self._leads_by() is not None

    @property
    def term(self) -> int | None:
        """The fence of the lease that it leads by; None while it does not."""
        lease = self._leads_by()
        return None if lease is None else lease.fence

    def _leads_by(self) -> L | None:
        # Read once: another thread may end the term meanwhile.
        lease = self._lease
        return None if lease is None or lease.lost else lease


def _nothing(_lease: HeldLease, _reason: str) -> None:
    """Nobody wants to be told."""
