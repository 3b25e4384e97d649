"""Requests that have a name: a token that their app has chosen (LOCK … TOKEN). One name, one grant (rule 4).

An app that has given up on a LOCK, or has lost its reply, can name it on any connection: to ask once more, to
withdraw it, or to give back its lease. So a request that is over is remembered for a minute. A LOCK that
arrives after the UNLOCK that withdrew it must not be granted, since no one would know of the grant. And an
app that has not heard that its UNLOCK worked asks again, and hears it then.
"""

from typing import Protocol

from lockd.core.errors import ErrorWord
from lockd.core.leases import Holder, Lease
from lockd.core.slot_names import whole_of
from lockd.core.tables import Table
from lockd.core.validity import NS_PER_S
from lockd.core.values import Bound, Extended, Refusal, Reply

REMEMBERED_NS = 60 * NS_PER_S
_MOST, _FLOOR = 20_000, 100


def same_process(one: Holder, other: Holder) -> bool:
    """Whether both requests come from one process. A process that can't be seen may be any, and what belongs
    to a connection belongs to no other connection."""
    if one.bound is Bound.CONNECTION or not one.started:
        return False
    return (one.pid, one.started) == (other.pid, other.started)


class Over:
    """A request that was unlocked, with the outcome for all that ask. core.values.Reply.

    worked: None until the outcome is known. It also stays None for a request that was not here, and masters
    are asked about it again. So they are where they refused it: they may do it by now.
    """

    __slots__ = ("_asking", "_refusal", "is_here", "until_ns", "worked")

    def __init__(self, until_ns: int, *, is_here: bool) -> None:
        self.until_ns = until_ns
        self.is_here = is_here
        self.worked: bool | None = None
        self._refusal: Refusal | None = None
        self._asking: list[Reply] = []

    @property
    def answers(self) -> bool:
        """Whether this agent answers when the app asks again."""
        if self._refusal is not None and self._refusal.code is ErrorWord.NOQUORUM:
            return False
        return self.is_here or self.worked is True

    def tell(self, reply: Reply) -> None:
        """At once, or when the outcome is known."""
        if self.worked is None:
            self._asking.append(reply)
        elif self._refusal is None:
            reply.done(None)
        else:
            reply.refused(self._refusal)

    def done(self, _lease: Extended | None) -> None:
        self._settle(None)

    def refused(self, refusal: Refusal) -> None:
        self._settle(refusal)

    def _settle(self, refusal: Refusal | None) -> None:
        self.worked, self._refusal = refusal is None, refusal
        asking, self._asking = self._asking, []
        for reply in asking:
            self.tell(reply)


class AsksForSlot(Protocol):
    """A request for one of several slots (core/slots.py)."""

    @property
    def asker(self) -> Holder:
        """One of its parts."""

    def has(self, lease: Lease, now_ns: int) -> None:
        """Its name has got this slot."""

    def may_try(self, now_ns: int) -> None:
        """No other request of its name tries the slots any more."""

    def withdrawn(self, now_ns: int) -> None:
        """Its token was unlocked."""


class OneSlot:
    """A name that stands for one slot of several: the requests of it that are under way, oldest first, and
    what it has got. number: of how many; 0 if the lease was taken over. trying: one tries the slots at a
    time, so that no two of them try for different ones."""

    __slots__ = ("lease", "number", "requests", "trying")

    def __init__(self, number: int) -> None:
        self.number = number
        self.requests: dict[AsksForSlot, None] = {}
        self.trying: AsksForSlot | None = None
        self.lease: Lease | None = None

    def has(self, lease: Lease, now_ns: int) -> None:
        """All requests under way get what one of them was granted."""
        self.lease = lease
        for request in tuple(self.requests):
            request.has(lease, now_ns)

    def leaves(self, request: AsksForSlot, now_ns: int) -> None:
        self.requests.pop(request, None)
        self.tries_no_more(request, now_ns)

    def tries_no_more(self, request: AsksForSlot, now_ns: int) -> None:
        if self.trying is request:
            self.trying = None
            for other in tuple(self.requests):
                other.may_try(now_ns)


class Names:
    """The named requests of one agent. Those that are over are remembered for each user separately. So a
    flood of one user's requests does not push out another's, and a user that guesses your token can't
    withdraw your request in advance."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[bytes, bytes], dict[Holder, None]] = {}
        self._slots: dict[tuple[bytes, bytes], OneSlot] = {}
        self._over = Table[tuple[int, bytes, bytes], Over](_MOST, _FLOOR)

    # Requests that wait

    def waits(self, holder: Holder) -> None:
        self._waiting.setdefault((holder.resource, holder.value), {})[holder] = None

    def waits_no_more(self, holder: Holder) -> None:
        named = holder.resource, holder.value
        waiting = self._waiting.get(named)
        if waiting is not None:
            waiting.pop(holder, None)
            if not waiting:
                del self._waiting[named]

    def first(self, resource: bytes, token: bytes) -> Holder | None:
        """The oldest request of that name: all of them are of one process."""
        return next(iter(self._waiting.get((resource, token), ())), None)

    def end_waiting(self, resource: bytes, token: bytes) -> list[Holder]:
        """The requests of that name, oldest first: they have an outcome."""
        return list(self._waiting.pop((resource, token), ())) if self._waiting else []

    # Requests for one of several slots

    def slot(self, resource: bytes, token: bytes) -> OneSlot | None:
        """What is known of that name, from when the first request of it begins until the slot that it has got
        is over."""
        return self._slots.get((resource, token))

    def wanting_slot(self, resource: bytes, token: bytes) -> list[AsksForSlot]:
        """The requests of that name that are under way, by the name of the resource or of any slot."""
        both = (self.slot(name, token) for name in (resource, whole_of(resource)))
        return [request for one in both if one is not None for request in one.requests]

    def wants_slot(self, resource: bytes, token: bytes, number: int) -> OneSlot:
        """A request of that name begins."""
        one = self._slots.setdefault((resource, token), OneSlot(number))
        one.number = number
        return one

    def was_taken_over(self, lease: Lease) -> None:
        """It may be what a name has got from the previous agent."""
        whole = whole_of(lease.resource)
        if whole and (one := self.wants_slot(whole, lease.token, 0)).lease is None:
            one.lease = lease

    def slot_over(self, lease: Lease) -> None:
        """A lease is over, which may be of a slot."""
        whole = whole_of(lease.resource)
        one = self.slot(whole, lease.token)
        if one is not None and one.lease is lease:
            one.lease = None
            self.forget_slot(whole, lease.token)

    def forget_slot(self, resource: bytes, token: bytes) -> None:
        """Unless it is still of use."""
        one = self.slot(resource, token)
        if one is not None and not one.requests and one.lease is None:
            del self._slots[resource, token]

    # Requests that are over

    def over(self, uid: int, resource: bytes, token: bytes, now_ns: int) -> Over | None:
        """The outcome of that request, if it was this user's."""
        over = self._over.get((uid, resource, token))
        return over if over is not None and now_ns < over.until_ns else None

    def ends(
        self, users: dict[int, str], resource: bytes, token: bytes, now_ns: int, *, is_here: bool
    ) -> Over:
        """It was unlocked: remember it for these users, each of whose accounts pays for that. is_here: this
        agent granted it, or would have. With a slot, the request for one of the slots is over."""
        over = Over(now_ns + REMEMBERED_NS, is_here=is_here)
        for uid, account in users.items():
            for name in filter(None, (resource, whole_of(resource))):
                self._over.put(account, (uid, name, token), over)
            self._forget_the_past_of(account, now_ns)
        return over

    def _forget_the_past_of(self, account: str, now_ns: int) -> None:
        while (oldest := self._over.oldest_of(account)) is not None:
            over = self._over.get(oldest)
            if over is not None and over.until_ns > now_ns:
                return
            self._over.pop(oldest)
