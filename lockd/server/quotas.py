"""How much of the agent anybody may use: connections, leases and waiters, per user and in all."""

from collections import defaultdict
from dataclasses import dataclass

from lockd.config import Limits


@dataclass(slots=True)
class Usage:
    """What one user, or all of them, use now."""

    connections: int = 0
    leases: int = 0
    waiters: int = 0


class Quotas:
    """Counts, and says which limit is in the way."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._connections = limits.connections
        self.all = Usage()
        self._users: defaultdict[int, Usage] = defaultdict(Usage)

    def lower_connections(self, most: int) -> None:
        """Fewer files may be open than the limit asks for."""
        self._connections = min(self._connections, most)

    def refuse_connection(self, uid: int) -> str | None:
        limits = self._limits
        if self.all.connections >= self._connections:
            return f"connections: {self._connections} are open"
        if uid in self._users and self._users[uid].connections >= limits.connections_per_user:
            return f"connections_per_user: uid {uid} has {limits.connections_per_user} open"
        return None

    def refuse_lock(self, usage: Usage) -> str | None:
        """Every LOCK counts as a waiter until it is answered, and may become a lease."""
        limits, everybody = self._limits, self.all
        if everybody.waiters >= limits.waiters:
            return f"waiters: {limits.waiters} are waiting"
        if usage.waiters >= limits.waiters_per_user:
            return f"waiters_per_user: {limits.waiters_per_user} of this user are waiting"
        if everybody.leases + everybody.waiters >= limits.leases:
            return f"leases: {limits.leases} are held"
        if usage.leases + usage.waiters >= limits.leases_per_user:
            return f"leases_per_user: {limits.leases_per_user} are held by this user"
        return None

    def connected(self, uid: int) -> Usage:
        usage = self._users[uid]
        usage.connections += 1
        self.all.connections += 1
        return usage

    def disconnected(self, uid: int) -> None:
        usage = self._users[uid]
        usage.connections -= 1
        self.all.connections -= 1
        if not (usage.connections or usage.leases or usage.waiters):
            del self._users[uid]

    def waits(self, usage: Usage) -> None:
        usage.waiters += 1
        self.all.waiters += 1

    def waits_no_more(self, usage: Usage) -> None:
        usage.waiters -= 1
        self.all.waiters -= 1

    def holds(self, usage: Usage) -> None:
        usage.leases += 1
        self.all.leases += 1

    def holds_no_more(self, usage: Usage) -> None:
        usage.leases -= 1
        self.all.leases -= 1
