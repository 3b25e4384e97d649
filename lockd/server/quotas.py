"""How much of the agent each user may use: connections, leases and waiters, per user and in all."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Protocol

from lockd.config.current import Current
from lockd.core.validity import NS_PER_S
from lockd.server.buckets import Buckets
from lockd.server.log import EventLog

_BUSY_USERS_MOST = 10_000


class Buffered(Protocol):
    """A connection, as seen by what counts the bytes that are kept for it."""

    usage: "Usage"
    kept_bytes: int

    def cut_off(self, limit: str) -> None: ...

    def cut_off_soon(self, limit: str) -> None: ...


@dataclass(slots=True)
class Usage:
    """What one user, or all of them, use now. keeping: the connections for which `buffered_bytes` are kept,
    the oldest first. ahead: UNLOCKs and EXTENDs that began before it was their turn. readings: listings and
    the like that are under way."""

    connections: int = 0
    leases: int = 0
    waiters: int = 0
    ahead: int = 0
    readings: int = 0
    buffered_bytes: int = 0
    keeping: dict[Buffered, None] = field(default_factory=dict)


class Quotas:
    """Counts, and says which limit is reached."""

    def __init__(self, current: Current) -> None:
        self._current = current
        self.all = Usage()
        self.open_files: int | None = None
        """How many connections and processes may be open, whatever the limits say; None: no limit is
        known."""
        self._users: defaultdict[int, Usage] = defaultdict(Usage)
        self._rate = 0
        self._unknown_tokens = self._buckets()

    def _buckets(self) -> Buckets[int]:
        """Separate from Usage, which a user resets by closing all connections."""
        rate = self._current.config.limits.unknown_tokens_per_second
        if rate != self._rate:
            self._rate = rate
            self._unknown_tokens = Buckets[int](rate, NS_PER_S // rate, _BUSY_USERS_MOST)
        return self._unknown_tokens

    def warn_of_few_files(self, log: EventLog) -> None:
        """If fewer connections may be open than the limit says."""
        limit = self._current.config.limits.connections
        if self._connections < limit:
            log.warning("file_limit", connections=self._connections, limit=limit)

    @property
    def _connections(self) -> int:
        most = self._current.config.limits.connections
        return most if self.open_files is None else min(most, self.open_files * 2 // 3)

    def in_use(self) -> dict[str, tuple[int, int]]:
        """For each limit that all users share, how much is used and the maximum. A waiting LOCK may become a
        lease, so it counts among the leases, too, as in `refuse_lock`."""
        limits, used = self._current.config.limits, self.all
        return {
            "connections": (used.connections, self._connections),
            "leases": (used.leases + used.waiters, limits.leases),
            "waiters": (used.waiters, limits.waiters),
            "buffered_bytes": (used.buffered_bytes, limits.buffered_bytes),
        }

    @property
    def processes_most(self) -> int | None:
        """How many processes may be watched. Each is an open file, so it is what connections leave. None: no
        limit is known."""
        return None if self.open_files is None else self.open_files - self._connections

    def refuse_connection(self, uid: int, besides: int = 0) -> str | None:
        """besides: how many open connections of this user are not counted."""
        limits = self._current.config.limits
        if self.all.connections - besides >= self._connections:
            return f"connections: {self._connections} are open"
        if uid in self._users and self._users[uid].connections - besides >= limits.connections_per_user:
            return f"connections_per_user: uid {uid} has {limits.connections_per_user} open"
        return None

    def refuse_lock(self, usage: Usage, locks: int = 1) -> str | None:
        """Every LOCK counts as a waiter until it is answered, and may become a lease. One for several
        resources, or in the lines of several slots, counts for as many."""
        limits, everybody = self._current.config.limits, self.all
        if everybody.waiters + locks > limits.waiters:
            return f"waiters: {limits.waiters} may wait"
        if usage.waiters + locks > limits.waiters_per_user:
            return f"waiters_per_user: {limits.waiters_per_user} of this user may wait"
        if everybody.leases + everybody.waiters + locks > limits.leases:
            return f"leases: {limits.leases} may be held"
        if usage.leases + usage.waiters + locks > limits.leases_per_user:
            return f"leases_per_user: {limits.leases_per_user} may be held by this user"
        return None

    def refuse_unknown_token(self, uid: int, now_ns: int) -> str | None:
        """An UNLOCK or EXTEND of a lease that this agent doesn't know asks all masters, even if there is no
        such lease."""
        if self._buckets().admits(uid, now_ns):
            return None
        return (
            "unknown_tokens_per_second: this agent does not know the lease, and looks up at most "
            f"{self._rate} of them per second and user on the masters: try again in a moment"
        )

    def keeping_most(self) -> Usage:
        """The user for whom most bytes are kept."""
        return max(self._users.values(), key=lambda usage: usage.buffered_bytes)

    def connected(self, uid: int) -> Usage:
        usage = self._users[uid]
        usage.connections += 1
        self.all.connections += 1
        return usage

    def disconnected(self, uid: int) -> None:
        usage = self._users[uid]
        usage.connections -= 1
        self.all.connections -= 1
        self._forget_if_unused(uid, usage)

    def _forget_if_unused(self, uid: int, usage: Usage) -> None:
        if not (usage.connections or usage.leases or usage.waiters):
            self._users.pop(uid, None)

    def inherits(self, uid: int) -> Usage:
        """A lease of the agent before, of a user who may not have connected to this one yet."""
        usage = self._users[uid]
        self.holds(usage)
        return usage

    def gives_up(self, uid: int, usage: Usage) -> None:
        self.holds_no_more(usage)
        self._forget_if_unused(uid, usage)

    def waits(self, usage: Usage, locks: int = 1) -> None:
        usage.waiters += locks
        self.all.waiters += locks

    def waits_no_more(self, usage: Usage, locks: int = 1) -> None:
        usage.waiters -= locks
        self.all.waiters -= locks

    def holds(self, usage: Usage) -> None:
        usage.leases += 1
        self.all.leases += 1

    def holds_no_more(self, usage: Usage) -> None:
        usage.leases -= 1
        self.all.leases -= 1
