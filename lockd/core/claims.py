"""Leases that were granted to a request which has no answer yet, since it asks for more than one (several.py)
or for one of many (slots.py): whose they are until then."""

from typing import Protocol

from lockd.core.leases import Lease
from lockd.core.values import Refusal


class Claimant(Protocol):
    """A request that has such leases. Neither method may call back into `Locks` before it returns."""

    def lost(self, lease: Lease, now_ns: int) -> None:
        """One that it has."""

    def ended(self, lease: Lease, now_ns: int) -> None:
        """One that it has, in whatever way."""


class Claims:
    """Of one agent.

    A request that is asked once more under its name (TOKEN) has the same leases. So each is given back by the
    last that wants it, and by none once its app was told of it: nothing is renewed for nobody, and nothing
    taken from who has it.
    """

    def __init__(self) -> None:
        self._of: dict[Lease, dict[Claimant, None]] = {}

    def add(self, lease: Lease, claimant: Claimant, *, is_first: bool) -> None:
        """is_first: it was granted to this one. What another has that was told is the app's."""
        if is_first or lease in self._of:
            self._of.setdefault(lease, {})[claimant] = None

    def hand_out(self, lease: Lease) -> bool:
        """Its app is told of it now. Whether it is for the first time."""
        return self._of.pop(lease, None) is not None

    def leave(self, lease: Lease, claimant: Claimant) -> bool:
        """This one wants it no more. Whether nobody does, and it is to be given back."""
        wanting = self._of.get(lease)
        if wanting is None:
            return False
        wanting.pop(claimant, None)
        if not wanting:
            del self._of[lease]
        return not wanting

    def lost(self, lease: Lease, now_ns: int) -> bool:
        """Tell those who have it. False: it was handed out, and its holder is to be told."""
        claimants = tuple(self._of.get(lease, ()))
        for claimant in claimants:
            claimant.lost(lease, now_ns)
        return bool(claimants)

    def ended(self, lease: Lease, now_ns: int) -> None:
        """Tell those who have it. It counts for nothing any more."""
        for claimant in self._of.pop(lease, ()):
            claimant.ended(lease, now_ns)


class Whole(Protocol):
    """Who asked, and is answered once. Neither method may call back into `Locks` before it returns."""

    def granted(self, leases: list[Lease], fresh: list[Lease], now_ns: int) -> None:
        """fresh: those of them that its app is told of for the first time."""

    def refused(self, refusal: Refusal) -> None: ...
