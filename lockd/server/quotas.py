"""How much of the agent each account may hold (core/stakes.py): memory, files, and renewals that are
promised."""

from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from lockd.config.current import Current
from lockd.config.model import Limits
from lockd.core import sizes
from lockd.core.stakes import STOCKS, Stock
from lockd.core.validity import NS_PER_S
from lockd.server.buckets import Buckets

_MIB: Final = 1 << 20
_FLOOR_BYTES: Final = 4 * _MIB
_FLOOR_FILES: Final = 32
_THOUSANDTHS: Final = 1_000
"""Of a renewal a second: a lease of a minute needs 50."""
_FLOOR_RENEWALS: Final = 10 * _THOUSANDTHS
AGENT_BYTES: Final = 64 * _MIB
"""For itself, whatever apps do."""
_AGENT_FILES: Final = 160
"""For itself and operators: 40 at rest with nine masters, 16 readers of metrics, 8 operators, inlets of as
many accounts as have floors, and newcomers who are refused in a moment."""
_DEFAULT_MEMORY: Final = 1_792 * _MIB
"""Where the unit has no limit."""
_RENEWED_AT: Final = 3
"""So many times in a TTL."""


class Buffered(Protocol):
    """A connection, as seen by what counts the bytes that are kept for it."""

    usage: "Usage"
    kept_bytes: int

    def cut_off(self, limit: str) -> None: ...

    def cut_off_soon(self, limit: str) -> None: ...


@dataclass(slots=True)
class Usage:
    """What one account, or all of them, use now. keeping: the connections for which `buffered_bytes` are
    kept, the oldest first. ahead: UNLOCKs and EXTENDs that began before it was their turn. readings: listings
    and the like that are under way."""

    account: str = ""
    connections: int = 0
    leases: int = 0
    waiters: int = 0
    ahead: int = 0
    readings: int = 0
    buffered_bytes: int = 0
    keeping: dict[Buffered, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Holding:
    """What a lease takes until it is over. ttl_ms: None if it is not renewed."""

    name: int
    ttl_ms: int | None

    @property
    def bytes(self) -> int:
        return sizes.lease(self.name, renewed=self.ttl_ms is not None)

    @property
    def renewals(self) -> int:
        return 0 if self.ttl_ms is None else renewals_of(self.ttl_ms)


def renewals_of(ttl_ms: int) -> int:
    """How often a lease of this TTL is renewed, in thousandths a second."""
    return _RENEWED_AT * 1_000 * _THOUSANDTHS // ttl_ms


@dataclass(frozen=True, slots=True)
class Cost:
    """The most that a LOCK can cost. leases: that it may get; places: lines in which it stands; name, ttl_ms:
    of each of them, as for `Holding`."""

    leases: int
    places: int
    name: int
    ttl_ms: int | None

    @property
    def _each(self) -> Holding:
        return Holding(self.name, self.ttl_ms)

    @property
    def bytes(self) -> int:
        return self.leases * self._each.bytes + sizes.waiter(self.name, self.places)

    @property
    def renewals(self) -> int:
        return self.leases * self._each.renewals

    def without(self, leases: int) -> "Cost":
        """So many are there, and counted by themselves."""
        return replace(self, leases=self.leases - leases)


@dataclass(frozen=True, slots=True)
class Room:
    """What the agent may have: bytes by its unit, files by its limit; None: no limit is known."""

    memory: int | None = None
    files: int | None = None


class Quotas:
    """Counts, and says which stock has no more for an account."""

    def __init__(self, current: Current, room: Room = Room()) -> None:
        self._current = current
        self._room = room
        self.all = Usage()
        of_bytes, of_files, of_renewals = STOCKS
        self.bytes = Stock(of_bytes, 0, _FLOOR_BYTES, 0)
        self.files = Stock(of_files, 0, _FLOOR_FILES, 0)
        self.renewals = Stock(of_renewals, 0, _FLOOR_RENEWALS, 0, _THOUSANDTHS)
        self.reconfigure()
        self._accounts: dict[str, Usage] = {}
        self._rate = 0
        self._unknown_tokens = self._buckets()

    def _bytes_in(self, limits: Limits) -> int:
        memory = limits.memory_mib * _MIB if limits.memory_mib else self._room.memory or _DEFAULT_MEMORY
        return max(memory // 4 * 3 - AGENT_BYTES, AGENT_BYTES)

    def _files_in(self, limits: Limits) -> int:
        files = min(limits.files or 1 << 20, self._room.files or 1 << 20)
        return max(files - _AGENT_FILES, files // 2)

    def has_memory(self, limit: int | None) -> None:
        """By its unit, which may have got another limit."""
        if limit != self._room.memory:
            self._room = replace(self._room, memory=limit)
            self.reconfigure()

    def reconfigure(self) -> None:
        """By the present configuration. What is held stays held."""
        limits = self._current.config.limits
        self.bytes.change(self._bytes_in(limits), limits.share_percent)
        self.files.change(self._files_in(limits), limits.share_percent // 2)
        self.renewals.change(limits.renewals_per_second * _THOUSANDTHS, limits.share_percent)

    def _buckets(self) -> Buckets:
        """Separate from Usage, which an account resets by closing all connections."""
        rate = self._current.config.limits.unknown_tokens_per_second
        if rate != self._rate:
            self._rate = rate
            self._unknown_tokens = Buckets(rate, NS_PER_S // rate)
        return self._unknown_tokens

    def in_use(self) -> dict[str, tuple[int, int]]:
        """For each stock, how much is used and how much there is."""
        return {
            self.bytes.name: (self.bytes.used, self.bytes.total),
            self.files.name: (self.files.used, self.files.total),
            self.renewals.name: (self.renewals.used // _THOUSANDTHS, self.renewals.total // _THOUSANDTHS),
        }

    # What may not be

    def refuse_connection(self, account: str, *, of_new_process: bool) -> str | None:
        """A process that is watched is an open file, too. Without it a lock could not belong to the
        process."""
        size = sizes.CONNECTION + of_new_process * sizes.PROCESS
        return self.files.refusal(account, 1 + of_new_process) or self.bytes.refusal(account, size)

    def refuse_lock(self, usage: Usage, cost: Cost) -> str | None:
        return self.bytes.refusal(usage.account, cost.bytes) or self.renewals.refusal(
            usage.account, cost.renewals
        )

    def refuse_reply(self, usage: Usage, size: int) -> str | None:
        """If its reader took none of it."""
        return self.bytes.refusal(usage.account, size)

    def refuse_unknown_token(self, account: str, now_ns: int) -> str | None:
        """An UNLOCK or EXTEND of a lease that this agent doesn't know asks all masters, even if there is no
        such lease."""
        if self._buckets().admits(account, now_ns):
            return None
        return (
            "unknown_tokens_per_second: this agent does not know the lease, and looks up at most "
            f"{self._rate} of them per second and account on the masters: try again in a moment"
        )

    # What is

    def usage_of(self, account: str) -> Usage:
        usage = self._accounts.get(account)
        if usage is None:
            usage = self._accounts[account] = Usage(account)
        return usage

    def connected(self, account: str) -> Usage:
        usage = self.usage_of(account)
        usage.connections += 1
        self.all.connections += 1
        self.files.take(account, 1)
        self.bytes.take(account, sizes.CONNECTION)
        return usage

    def disconnected(self, usage: Usage) -> None:
        usage.connections -= 1
        self.all.connections -= 1
        self.files.give_back(usage.account, 1)
        self.bytes.give_back(usage.account, sizes.CONNECTION)
        self._forget_if_unused(usage)

    def _forget_if_unused(self, usage: Usage) -> None:
        is_used = usage.connections or usage.leases or usage.waiters or usage.buffered_bytes
        if not is_used and self._accounts.get(usage.account) is usage:
            del self._accounts[usage.account]

    def watches(self, account: str) -> None:
        """A process of it."""
        self.files.take(account, 1)
        self.bytes.take(account, sizes.PROCESS)

    def watches_no_more(self, account: str) -> None:
        self.files.give_back(account, 1)
        self.bytes.give_back(account, sizes.PROCESS)

    def waits(self, usage: Usage, cost: Cost) -> None:
        usage.waiters += cost.leases
        self.all.waiters += cost.leases
        self._take(usage, cost)

    def waits_no_more(self, usage: Usage, cost: Cost) -> None:
        usage.waiters -= cost.leases
        self.all.waiters -= cost.leases
        self._give_back(usage, cost)

    def holds(self, usage: Usage, lease: Holding) -> None:
        usage.leases += 1
        self.all.leases += 1
        self._take(usage, lease)

    def holds_no_more(self, usage: Usage, lease: Holding) -> None:
        usage.leases -= 1
        self.all.leases -= 1
        self._give_back(usage, lease)

    def _take(self, usage: Usage, what: Cost | Holding) -> None:
        self.bytes.take(usage.account, what.bytes)
        self.renewals.take(usage.account, what.renewals)

    def _give_back(self, usage: Usage, what: Cost | Holding) -> None:
        self.bytes.give_back(usage.account, what.bytes)
        self.renewals.give_back(usage.account, what.renewals)
        self._forget_if_unused(usage)

    def keeps(self, usage: Usage, more: int) -> None:
        """So many bytes more (or fewer) for its connections."""
        usage.buffered_bytes += more
        self.all.buffered_bytes += more
        self.bytes.take(usage.account, more)
        if more < 0:
            self._forget_if_unused(usage)
