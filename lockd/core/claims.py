"""Requests that ask for more than one lease (several.py) or for one of many (slots.py): what they have in
common, and whose the leases are that were granted to one which has no answer yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from lockd.core.leases import Holder, Lease
from lockd.core.locks import Locks
from lockd.core.values import Refusal


class Claims:
    """Of one agent.

    A request that is asked once more under its name (TOKEN) has the same leases. So each is given back by the
    last that wants it, and by none once its app was told of it: nothing is renewed for nobody, and nothing
    taken from who has it.
    """

    def __init__(self) -> None:
        self._of: dict[Lease, dict[Joint, None]] = {}

    def add(self, lease: Lease, claimant: Joint, *, is_first: bool) -> None:
        """is_first: it was granted to this one. What another has that was told is the app's."""
        if is_first or lease in self._of:
            self._of.setdefault(lease, {})[claimant] = None

    def hand_out(self, lease: Lease) -> bool:
        """Its app is told of it now. Whether it is for the first time."""
        return self._of.pop(lease, None) is not None

    def leave(self, lease: Lease, claimant: Joint) -> bool:
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


class Joint:
    """One such request. What its parts are told comes here until the whole is answered."""

    def __init__(self, locks: Locks, claims: Claims, whole: Whole) -> None:
        self._locks = locks
        self._claims = claims
        self._whole = whole
        self._over = False
        self._scheduled = False

    def begins(self, now_ns: int, *, ready: bool = True) -> None:
        """ready: as in `Locks.lock`."""
        raise NotImplementedError

    def can_be_told(self, now_ns: int) -> None:
        """What it comes to could be told at once from now on."""
        raise NotImplementedError

    def gone(self, now_ns: int) -> None:
        """Its app is gone: nobody would be told."""
        self._over = True
        self._leave(now_ns)

    # What its parts are told. None of these may call back into `Locks` before it returns.

    def granted(self, part: Holder, lease: Lease, now_ns: int) -> None:
        raise NotImplementedError

    def refused(self, part: Holder, refusal: Refusal, now_ns: int) -> None:
        raise NotImplementedError

    def lost(self, lease: Lease, now_ns: int) -> None:
        """One that it has."""
        raise NotImplementedError

    def ended(self, lease: Lease, now_ns: int) -> None:
        """One that it has, in whatever way."""
        raise NotImplementedError

    # How it goes on

    def _succeed(self, leases: list[Lease], now_ns: int) -> None:
        self._over = True
        self._whole.granted(leases, [one for one in leases if self._claims.hand_out(one)], now_ns)

    def _fail(self, refusal: Refusal, now_ns: int) -> None:
        if not self._over:
            self._over = True
            self._whole.refused(refusal)
            self._go_on_soon(now_ns)

    def _go_on_soon(self, now_ns: int) -> None:
        """Not in the middle of what `Locks` is at, and behind the other waits that end now."""
        if not self._scheduled:
            self._scheduled = True
            self._locks.timers.at(now_ns, self._go_on)

    def _go_on(self, now_ns: int) -> None:
        self._scheduled = False
        if self._over:
            self._leave(now_ns)
        else:
            self._take_step(now_ns)

    def _take_step(self, now_ns: int) -> None:
        """One of its parts was told something."""
        raise NotImplementedError

    def _leave(self, now_ns: int) -> None:
        """The lines that it stands in, and the leases that nobody is to have."""
        raise NotImplementedError

    def _give_back(self, leases: Iterable[Lease], now_ns: int) -> None:
        for lease in leases:
            if self._claims.leave(lease, self):
                self._locks.untold(lease, now_ns)
