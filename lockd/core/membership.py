"""Who a master says it is, and whether that gives it a vote (rules 8 and 14). Pure: the facts come from the
link."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lockd.core.fences import SLOTS
from lockd.core.validity import settle_ns


class State(StrEnum):
    """What a master is to this agent. Only `up` is ever asked for a vote."""

    UP = "up"
    STALLED = "stalled"
    CONNECTING = "connecting"
    DOWN = "down"
    BLANK = "blank"
    FOREIGN = "foreign"
    MISPLACED = "misplaced"
    DUPLICATE = "duplicate"
    MISCONFIGURED = "misconfigured"
    MISCOUNTING = "miscounting"
    UNIDENTIFIED = "unidentified"
    LOADING = "loading"


REQUIRED_SETTINGS = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}


LONGEST_TTL_MS = 86_400_000
"""No configuration may say more: a master that does is not believed."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Written on a master when the cluster is formed or the master admitted.

    was_max_ttl_ms: the ceiling before it was lowered, for as long as leases from then may live; else 0.
    """

    cluster: str
    name: str
    max_ttl_ms: int
    was_max_ttl_ms: int = 0

    @property
    def longest_ttl_ms(self) -> int:
        """No lease that it has voted for may live for longer from now on (rule 9)."""
        return max(self.max_ttl_ms, self.was_max_ttl_ms)

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> "Identity | None":
        """None when the fields are no identity at all (a blank master, or data that isn't ours)."""
        ceiling_ms = _ttl_ms(fields.get("max_ttl_ms", ""))
        if not {"cluster", "name"} <= fields.keys() or ceiling_ms is None:
            return None
        was_ms = _ttl_ms(fields.get("was_max_ttl_ms", "")) or 0
        return cls(fields["cluster"], fields["name"], ceiling_ms, was_ms)


def _ttl_ms(text: str) -> int | None:
    """A TTL as a master has it; None when it can't be one: waits of that length would rest on it."""
    if not (text.isascii() and text.isdigit() and len(text) <= 8):
        return None
    ms = int(text)
    return ms if 0 < ms <= LONGEST_TTL_MS else None


def longest_possible_ttl_ms(ceilings_ms: Sequence[int], masters: int) -> int:
    """The longest TTL that a lease of this cluster may have. ceilings_ms: of the masters that are known, of
    so many in all.

    A lease needs a quorum, each of which allows its TTL (rule 9). So one that says too much makes nobody wait
    for longer, as long as the others are known; one that isn't known may allow anything that another does.
    """
    unknown = masters - len(ceilings_ms)
    at = max(0, masters // 2 - unknown)
    return sorted(ceilings_ms, reverse=True)[min(at, len(ceilings_ms) - 1)]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a master says of its memory; no vote rests on it.

    most_bytes: 0 where it has no bound; evicted: keys since it was started."""

    used_bytes: int = 0
    most_bytes: int = 0
    evicted: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What an agent reads from a master when it connects, and again every few seconds."""

    run_id: str
    version: str
    role: str
    keys: int
    identity: Identity | None
    settings: Mapping[str, str]
    loading: bool = False
    memory: Memory = Memory()


def judge(name: str, cluster: str, facts: Facts, others: Sequence[tuple[str, str]]) -> tuple[State, str]:
    """What a master is, and why it has no vote ('' when it may have one).

    name: what the configuration calls it; others: (name, run_id) of the other masters that are connected now.
    """
    if facts.loading:
        return State.LOADING, "still loading its data"
    twin = next((other for other, run_id in others if run_id == facts.run_id), None)
    # Of two entries that lead to one Redis, the one that it is named after keeps its vote: it is still
    # counted once only.
    if twin is not None and (facts.identity is None or facts.identity.name != name):
        return State.DUPLICATE, f"the same Redis answers as {twin}: two addresses lead to one master"
    if facts.role != "master":
        return State.MISCONFIGURED, f"its role is {facts.role}, it must be master"
    wrong = [
        f"{key}={facts.settings.get(key, '?')} (must be {value})"
        for key, value in REQUIRED_SETTINGS.items()
        if facts.settings.get(key) != value
    ]
    if wrong:
        return State.MISCONFIGURED, ", ".join(wrong)
    return _judge_identity(name, cluster, facts)


def _judge_identity(name: str, cluster: str, facts: Facts) -> tuple[State, str]:
    identity = facts.identity
    if identity is None:
        if facts.keys == 0:
            return (
                State.BLANK,
                f"its data set is empty: form the cluster, or admit it (lockctl master admit {name})",
            )
        return (
            State.UNIDENTIFIED,
            f"it holds {facts.keys} keys but no identity that makes sense: no master of this or any cluster",
        )
    if identity.cluster != cluster:
        return State.FOREIGN, f"it belongs to the cluster '{identity.cluster}', not '{cluster}'"
    if identity.name != name:
        return (
            State.MISPLACED,
            f"it is the master '{identity.name}', not '{name}': its address is in the wrong entry",
        )
    return State.UP, ""


@dataclass(frozen=True, slots=True)
class Wait:
    """How long until a master may be formed or admitted."""

    remaining_ms: int
    total_ms: int


def wait_for_blank(blank_since_ns: Sequence[int], max_ttl_ms: int, now_ns: int) -> Wait:
    """A blank master may have voted before it was wiped, so nothing is done with it until those leases are
    over (rule 8)."""
    total_ns = settle_ns(max_ttl_ms)
    remaining_ns = max(since + total_ns for since in blank_since_ns) - now_ns
    return Wait(max(0, -(-remaining_ns // 1_000_000)), total_ns // 1_000_000)


class TooFewReadings(Exception):
    """Fewer than a quorum of the other masters could be read: what they show may miss a fence."""


def highest_counters(readings: Sequence[Mapping[int, int]], quorum: int, most: int) -> dict[int, int]:
    """The fence counters a master begins with when it is admitted: per slot the largest that any of the
    others shows (rule 8). readings: one of each *other* master that has a vote. most: the largest fence that
    the median of the masters' clocks allows. Raises TooFewReadings.

    A quorum of others meets every quorum that granted with the help of this master before it was wiped. One
    with a counter that is wrong is none of them: it would be wrong on this master, too (rule 6).
    """
    sane = [reading for reading in readings if all(_can_be(*counter, most) for counter in reading.items())]
    if len(sane) < quorum:
        wrong = len(readings) - len(sane)
        but = f", {wrong} more with wrong counters" if wrong else ""
        raise TooFewReadings(f"{quorum} are needed, {len(sane)} were read{but}")
    highest: dict[int, int] = {}
    for reading in sane:
        for slot, value in reading.items():
            if value > highest.get(slot, -1):
                highest[slot] = value
    return highest


def _can_be(slot: int, counter: int, most: int) -> bool:
    return 0 <= slot < SLOTS and 0 <= counter <= most
