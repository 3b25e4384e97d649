"""What a leadership tells about itself, in both clients. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from lockd.client.state import HeldLease

L = TypeVar("L", bound=HeldLease)

Elected = Callable[[L], object]
Deposed = Callable[[L, str], object]

RESIGNED = "it was given up here"


class Leader(Generic[L]):
    """Stands for leader, and leads with one lease after the other. In a forked child it leads nothing.

    trouble: why the last try brought no lease; '' while there is nothing to say.
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
        """The fence of the lease with which it leads; None while it does not."""
        lease = self._leads_by()
        return None if lease is None else lease.fence

    def _leads_by(self) -> L | None:
        # Read once: another thread may end the term meanwhile.
        lease = self._lease
        return None if lease is None or lease.lost else lease


def _nothing(_lease: HeldLease, _reason: str) -> None:
    """For leaderships without that callback."""
