"""Who a master says it is, and whether that gives it a vote (rules 8 and 14). Pure: the facts come from the
link."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from lockd.core.fences import SLOTS
from lockd.core.identities import FORMAT, Identity, agree, voting_together
from lockd.core.validity import NS_PER_MS, settle_ns


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
    OTHER_FORMAT = "other_format"
    OTHER_MEMBERS = "other_members"
    REPLACED = "replaced"
    OUTDATED = "outdated"
    COPIED = "copied"
    LOADING = "loading"


BY_OTHERS = (State.UP, State.FOREIGN, State.REPLACED, State.OUTDATED)
"""States that depend on what other masters show: the master is judged again when that changes."""

REQUIRED_SETTINGS = {
    # An acknowledged vote is on disk, during a rewrite too.
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    # A full master refuses new leases; it must never make room by dropping live ones.
    "maxmemory-policy": "noeviction",
}


def longest_possible_ttl_ms(ceilings_ms: Sequence[int], masters: int) -> int:
    """The longest TTL that a lease of this cluster may have. ceilings_ms: of the masters that are known, out
    of so many in all.

    A lease needs a quorum, and each master of it has to allow the TTL (rule 9). So a master that names too
    large a ceiling makes nobody wait longer, as long as the others are known. A master that isn't known may
    allow as much as any other does.
    """
    unknown = masters - len(ceilings_ms)
    at = max(0, masters // 2 - unknown)
    return sorted(ceilings_ms, reverse=True)[min(at, len(ceilings_ms) - 1)]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a master says about its memory; no vote rests on it.

    most_bytes: 0 if it has no limit; evicted: keys since it was started.
    """

    used_bytes: int = 0
    most_bytes: int = 0
    evicted: int = 0


@dataclass(frozen=True, slots=True)
class Copying:
    """What a master says about replication. A copy carries the identity, and may lag behind, so it has no
    vote.

    was_replica: it was promoted; it forgets that when it is restarted. known: an agent has seen that, and
    written it down on the master, in a place that is wiped with its data.
    """

    replicas: int = 0
    was_replica: bool = False
    known: bool = False

    @property
    def is_copy(self) -> bool:
        return self.was_replica or self.known


@dataclass(frozen=True, slots=True)
class MasterFacts:
    """What an agent reads from a master when it connects, and again every few seconds.

    aof_rewrite_ok: whether its last rewrite of the AOF worked; None if it does not say. No vote rests on it.
    has_counters: False if somebody has put something else in the place of its fence counters. counters: some
    of them, by slot.
    """

    run_id: str
    version: str
    role: str
    keys: int
    identity: Identity | None
    settings: Mapping[str, str]
    loading: bool = False
    memory: Memory = Memory()
    aof_rewrite_ok: bool | None = None
    copying: Copying = Copying()
    has_counters: bool = True
    counters: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Configured:
    """What the configuration says about the masters: the cluster's name, and all their names."""

    cluster: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OtherMaster:
    """Another master of the configuration that is connected now, and what it shows."""

    name: str
    run_id: str
    identity: Identity | None = None


_COPY = (
    "its data was once copied from another Redis (REPLICAOF). Stop it, wipe its data, start it and admit it"
)


def judge(
    name: str, configured: Configured, facts: MasterFacts, others: Sequence[OtherMaster]
) -> tuple[State, str]:
    """What a master is, and why it has no vote ('' when it may have one). name: its name in the
    configuration."""
    if facts.loading:
        return State.LOADING, "still loading its data"
    twin = next((other.name for other in others if other.run_id == facts.run_id), None)
    # Of two entries that lead to one Redis, the one with its name keeps its vote: it still counts only once.
    if twin is not None and (facts.identity is None or facts.identity.name != name):
        return State.DUPLICATE, f"the same Redis answers as {twin}: two addresses lead to one master"
    if facts.role != "master":
        return State.MISCONFIGURED, f"its role is {facts.role}, it must be master"
    if facts.copying.replicas:
        return State.COPIED, (
            f"{facts.copying.replicas} replicas are attached to it, and each has a copy of its identity: "
            "detach them, and never let one answer in its place"
        )
    if facts.copying.is_copy:
        return State.COPIED, _COPY
    wrong = [
        f"{key}={facts.settings.get(key, '?')} (must be {value})"
        for key, value in REQUIRED_SETTINGS.items()
        if facts.settings.get(key) != value
    ]
    if wrong:
        return State.MISCONFIGURED, ", ".join(wrong)
    if facts.identity is None:
        return _without_identity(name, facts.keys)
    if not facts.has_counters:
        return (
            State.MISCOUNTING,
            "its fence counters are gone, and another key is there: wipe and admit it",
        )
    return _judge_identity(name, configured, facts.identity, others)


def _without_identity(name: str, keys: int) -> tuple[State, str]:
    if keys == 0:
        return (
            State.BLANK,
            f"its data set is empty: form the cluster, or admit it (lockctl master admit {name})",
        )
    return (
        State.UNIDENTIFIED,
        f"it holds {keys} keys but no valid identity: it is not a lockd master",
    )


def _judge_identity(
    name: str, configured: Configured, identity: Identity, others: Sequence[OtherMaster]
) -> tuple[State, str]:
    """Check that it fits the configuration: the same cluster, the same members, this entry."""
    if identity.cluster != configured.cluster:
        return State.FOREIGN, f"it belongs to the cluster '{identity.cluster}', not '{configured.cluster}'"
    if identity.format != FORMAT:
        return State.OTHER_FORMAT, _of_another_format(identity.format)
    if set(identity.members.names) != set(configured.names):
        return (
            State.OTHER_MEMBERS,
            f"its cluster has the masters {', '.join(identity.members.names)}; this agent's configuration "
            f"has {', '.join(sorted(configured.names))}",
        )
    if identity.name != name and any(_is_itself(other, identity) for other in others):
        return State.COPIED, f"it shows the identity of '{identity.name}', which answers too: {_COPY}"
    if identity.name != name:
        return (
            State.MISPLACED,
            f"it is the master '{identity.name}', not '{name}': its address is in the wrong entry",
        )
    return _judge_among_others(identity, [other for other in others if _is_like(identity, other.identity)])


def _is_like(identity: Identity, other: Identity | None) -> bool:
    """Whether the other master counts in this: one of another cluster has no say."""
    return other is not None and (other.cluster, other.format, other.members.names) == (
        identity.cluster,
        identity.format,
        identity.members.names,
    )


def _is_itself(other: OtherMaster, identity: Identity) -> bool:
    """Whether that master answers in its own entry under this name."""
    return other.identity is not None and other.name == other.identity.name == identity.name


def _of_another_format(format_: int) -> str:
    if format_ < FORMAT:
        return f"its identity is of format {format_}, this agent writes {FORMAT}: lockctl cluster upgrade"
    return f"its identity is of format {format_}, this agent knows {FORMAT} at most: upgrade the agent"


def _judge_among_others(identity: Identity, others: Sequence[OtherMaster]) -> tuple[State, str]:
    """Whether it votes together with most of them."""
    identities = [identity, *(other.identity for other in others)]
    together = voting_together(identities)
    if together & 1:
        return State.UP, ""
    against = next(
        other
        for i, other in enumerate(others, 1)
        if together >> i & 1 and other.identity is not None and not agree(identity, other.identity)
    )
    assert against.identity is not None
    return _at_odds(identity, against.identity)


def _at_odds(identity: Identity, other: Identity) -> tuple[State, str]:
    """Why it doesn't vote together with one of those that do."""
    name = identity.name
    if identity.cluster_id != other.cluster_id:
        return (
            State.FOREIGN,
            f"it belongs to another cluster of the same name ('{identity.cluster}'): its id is "
            f"{identity.cluster_id[:8]}, that of {other.name} {other.cluster_id[:8]}",
        )
    newest = other.members.number_of(name)
    if identity.number < newest:
        return (
            State.REPLACED,
            f"it is {name} of admission {identity.number}, and {newest} was admitted since: an old machine "
            f"or old data. Wipe it, and admit it (lockctl master admit {name})",
        )
    return (
        State.OUTDATED,
        f"its list of members is not up to date ({identity.members}; {other.name} is of admission "
        f"{other.number}): lockctl master admit {name}",
    )


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
    return Wait(max(0, -(-remaining_ns // NS_PER_MS)), total_ns // NS_PER_MS)


class TooFewReadings(Exception):
    """Fewer than a quorum of the other masters could be read: what they show may miss a fence."""


def highest_counters(readings: Sequence[Mapping[int, int]], quorum: int, most: int) -> dict[int, int]:
    """The fence counters with which a master begins when it is admitted: per slot the largest that any of the
    others shows (rule 8). readings: one of each *other* master that has a vote. most: the largest fence that
    the median of the masters' clocks allows. Raises TooFewReadings.

    A quorum of others meets every quorum that granted with the help of this master before it was wiped. A
    value that is wrong is left out: it would make this master's counter wrong, too (rule 6).
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
