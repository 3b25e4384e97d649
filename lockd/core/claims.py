"""What two kinds of requests have in common: those for more than one lease (several.py) and those for one of
many (slots.py). Also: who owns leases that were granted to a request which is not answered yet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from lockd.core.leases import Holder, Lease, pid_and_uid
from lockd.core.locks import Locks
from lockd.core.refusals import BROKEN
from lockd.core.values import Refusal


class Claims:
    """The claims of one agent.

    A request that is repeated under its name (TOKEN) shares the leases of the first. So a lease is given back
    by the last request that wants it, and by none once its app was told of it. Nothing is renewed for nobody,
    and nothing is taken from a holder. _apps: those that an app was told of, by this agent or the one before.
    They are the app's, but a request that waits for more has to hear when they end.
    """

    def __init__(self) -> None:
        self._of: dict[Lease, dict[Joint, None]] = {}
        self._apps: set[Lease] = set()

    def add(self, lease: Lease, claimant: Joint, *, is_first: bool) -> None:
        """is_first: the lease was granted to this request. If it wasn't, and no request that waits has it, it
        is the app's."""
        if not is_first and lease not in self._of:
            self._apps.add(lease)
        self._of.setdefault(lease, {})[claimant] = None

    def hand_out(self, lease: Lease, claimant: Joint) -> bool:
        """Its app is told of it now. Returns whether this is the first time."""
        is_first = lease not in self._apps
        self._apps.add(lease)
        self.leave(lease, claimant)
        return is_first

    def leave(self, lease: Lease, claimant: Joint) -> bool:
        """This request does not want it any more. Returns whether nobody does, so that it should be given
        back."""
        wanting = self._of.get(lease)
        if wanting is None:
            return False
        wanting.pop(claimant, None)
        if wanting:
            return False
        del self._of[lease]
        is_apps = lease in self._apps
        self._apps.discard(lease)
        return not is_apps

    def lost(self, lease: Lease, now_ns: int) -> bool:
        """Tell the requests that have it. False: it is the app's, so its holder should be told."""
        claimants = tuple(self._of.get(lease, ()))
        for claimant in claimants:
            claimant.lost(lease, now_ns)
        return bool(claimants) and lease not in self._apps

    def ended(self, lease: Lease, now_ns: int) -> None:
        """Tell the requests that have it. It does not count any more."""
        self._apps.discard(lease)
        for claimant in self._of.pop(lease, ()):
            claimant.ended(lease, now_ns)


class Whole(Protocol):
    """The asker of the whole request, which gets one answer. Neither method may call back into `Locks` before
    it returns."""

    def granted(self, leases: list[Lease], fresh: list[Lease], now_ns: int) -> None:
        """fresh: the leases that its app is told of for the first time."""

    def refused(self, refusal: Refusal) -> None: ...


class _Answered:
    """The asker of a request that is over: it has its answer."""

    def granted(self, leases: list[Lease], fresh: list[Lease], now_ns: int) -> None:
        pass

    def refused(self, refusal: Refusal) -> None:
        pass


_ANSWERED = _Answered()


class Joint:
    """One such request. The answers to its parts come here until the whole request is answered. From then on
    it refers neither to the parts nor to the whole, which refer to it."""

    def __init__(self, locks: Locks, claims: Claims, whole: Whole, account: str) -> None:
        self._locks = locks
        self._claims = claims
        self._whole: Whole = whole
        self._account = account
        self._over = False
        self._scheduled = False

    def begins(self, now_ns: int, *, ready: bool = True) -> None:
        """ready: as in `Locks.lock`."""
        raise NotImplementedError

    def can_be_told(self, now_ns: int) -> None:
        """From now on its answer could be sent at once."""
        raise NotImplementedError

    def gone(self, now_ns: int) -> None:
        """Its app is gone, so there is no one to tell."""
        self._over = True
        self._is_over_now(now_ns)

    # Answers to its parts. None of these may call back into `Locks` before it returns.

    def granted(self, part: Holder, lease: Lease, now_ns: int) -> None:
        raise NotImplementedError

    def refused(self, part: Holder, refusal: Refusal, now_ns: int) -> None:
        raise NotImplementedError

    def lost(self, lease: Lease, now_ns: int) -> None:
        """One of its leases is lost."""
        raise NotImplementedError

    def ended(self, lease: Lease, now_ns: int) -> None:
        """One of its leases is over, in whatever way."""
        raise NotImplementedError

    # How it goes on

    def _succeed(self, leases: list[Lease], now_ns: int) -> None:
        self._over = True
        self._whole.granted(leases, [one for one in leases if self._claims.hand_out(one, self)], now_ns)

    def _fail(self, refusal: Refusal, now_ns: int) -> None:
        if not self._over:
            self._over = True
            self._whole.refused(refusal)
            self._go_on_soon(now_ns)

    def _go_on_soon(self, now_ns: int) -> None:
        """Not while `Locks` is in the middle of something, and after the other waits that end now."""
        if not self._scheduled:
            self._scheduled = True
            self._locks.turns.at(self._account, now_ns, self._go_on)

    def _go_on(self, now_ns: int) -> None:
        self._scheduled = False
        if not self._over:
            try:
                self._take_step(now_ns)
            except Exception as failure:
                self._locks.turns.fails(failure)
                self._fail(BROKEN, now_ns)
        if self._over and not self._scheduled:
            self._is_over_now(now_ns)

    def _is_over_now(self, now_ns: int) -> None:
        self._leave(now_ns)
        self._whole = _ANSWERED
        self._forget_parts()

    def _take_step(self, now_ns: int) -> None:
        """One of its parts was answered."""
        raise NotImplementedError

    def _is_unlocked(self, part: Holder, name: bytes, now_ns: int) -> bool:
        """Its app has unlocked this resource by the request's token."""
        _, uid = pid_and_uid(part.owner)
        return bool(part.value) and self._locks.names.over(uid, name, part.value, now_ns) is not None

    def _leave(self, now_ns: int) -> None:
        """Leave the lines in which it stands, and give back the leases that no request wants."""
        raise NotImplementedError

    def _forget_parts(self) -> None:
        """It stands in no line any more. An answer that comes all the same is given back."""
        raise NotImplementedError

    def _give_back(self, leases: Iterable[Lease], now_ns: int) -> None:
        for lease in leases:
            if self._claims.leave(lease, self):
                self._locks.untold(lease, now_ns)
