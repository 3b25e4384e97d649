"""Requests that have a name: a token that their app has chosen (LOCK … TOKEN). One name, one grant (rule 4).

An app that has given up on a LOCK, or has lost its reply, can name it on any connection: to ask once more, to
withdraw it, or to give back its lease. So a request that is over is remembered for a minute. A LOCK that
arrives after the UNLOCK that withdrew it must not be granted, since no one would know of the grant. And an
app that has not heard that its UNLOCK worked asks again, and hears it then.
"""

from lockd.core.leases import Holder
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
    are asked about it again.
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


class Names:
    """The named requests of one agent. Those that are over are remembered for each user separately. So a
    flood of one user's requests does not push out another's, and a user that guesses your token can't
    withdraw your request in advance."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[bytes, bytes], dict[Holder, None]] = {}
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

    def waiting(self, resource: bytes, token: bytes) -> list[Holder]:
        """The requests of that name, all of one process, oldest first."""
        return list(self._waiting.get((resource, token), ())) if self._waiting else []

    def first(self, resource: bytes, token: bytes) -> Holder | None:
        """The oldest of them."""
        return next(iter(self._waiting.get((resource, token), ())), None)

    def end_waiting(self, resource: bytes, token: bytes) -> list[Holder]:
        """The same requests: they have an outcome."""
        return list(self._waiting.pop((resource, token), ())) if self._waiting else []

    # Requests that are over

    def over(self, uid: int, resource: bytes, token: bytes, now_ns: int) -> Over | None:
        """The outcome of that request, if it was this user's."""
        over = self._over.get((uid, resource, token))
        return over if over is not None and now_ns < over.until_ns else None

    def ends(
        self, users: dict[int, str], resource: bytes, token: bytes, now_ns: int, *, is_here: bool
    ) -> Over:
        """It was unlocked: remember it for these users, each of whose accounts pays for that. is_here: this
        agent granted it, or would have."""
        over = Over(now_ns + REMEMBERED_NS, is_here=is_here)
        for uid, account in users.items():
            self._over.put(account, (uid, resource, token), over)
            self._forget_the_past_of(account, now_ns)
        return over

    def _forget_the_past_of(self, account: str, now_ns: int) -> None:
        while (oldest := self._over.oldest_of(account)) is not None:
            over = self._over.get(oldest)
            if over is not None and over.until_ns > now_ns:
                return
            self._over.pop(oldest)
