"""Are locks safe, and are they available? In words, as the status page and `lockctl top` open with them.

Pure: what one agent knows of itself in, a level and a sentence out. They are two questions. Without a
quorum locks are not available and just as safe as before: nobody is granted anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """How much of a reason it is to get up."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class Assessment(NamedTuple):
    level: Level
    text: str


@dataclass(frozen=True)
class AgentHealth:
    """What one agent knows of itself.

    responsive: its event loop runs. lost: leases that were lost and whose holders, who were told, may still
    believe in them. on_fewer: leases that not all masters have confirmed, though they had the time.
    canary_failures: how often the agent's own lock has failed since it last worked, 0 also where it has none;
    canary_trouble: why it did the last time.
    """

    masters: int
    quorum: int
    voting: int
    responsive: bool = True
    draining: bool = False
    lost: int = 0
    on_fewer: int = 0
    canary_failures: int = 0
    canary_trouble: str = ""


LOSS_IS_NEWS_MS = 3_600_000
"""For so long a lease that was lost is a reason to look; what it led to is in its app's log by then."""

# One may be a master that died in the midst of it.
_FAILURES_BELIEVED = 2
_WHY_CHARS = 200


def availability(health: AgentHealth) -> Assessment:
    """Whether an app of this host can have a lock now."""
    votes = f"{health.voting} of {health.masters} masters have a vote, {health.quorum} are needed"
    not_here = "Locks are NOT available on this host"
    if not health.responsive:
        return Assessment(Level.BAD, f"{not_here}: the agent's event loop does not run.")
    if health.draining:
        return Assessment(Level.BAD, f"{not_here}: its agent is stopping.")
    if health.voting < health.quorum:
        return Assessment(Level.BAD, f"{not_here}: {votes}.")
    if health.canary_failures >= _FAILURES_BELIEVED:
        return Assessment(
            Level.BAD, f"{not_here}: {votes}, but {_canary(health)}, {health.canary_failures} times in a row."
        )
    if health.voting == health.quorum < health.masters:
        return Assessment(
            Level.BAD, f"Locks are available, WITHOUT MARGIN: {votes}. One more lost ends that."
        )
    if health.canary_failures:
        return Assessment(
            Level.WARNING, f"Locks should be available: {votes}, but {_canary(health)} just now."
        )
    if health.voting < health.masters:
        margin = health.voting - health.quorum
        return Assessment(Level.WARNING, f"Locks are available: {votes}. {margin} more may fail.")
    return Assessment(Level.GOOD, f"Locks are available: all {health.masters} masters have a vote.")


def safety(health: AgentHealth) -> Assessment:
    """Whether what is held is held by one only, as far as this agent can know."""
    if health.lost:
        were = "was" if health.lost == 1 else "were"
        return Assessment(
            Level.BAD,
            f"{_leases(health.lost)} of this host {were} LOST before the end. The holder was told; until it "
            "has stopped, another may hold the same resource. Fences still tell them apart.",
        )
    if not health.responsive:
        return Assessment(
            Level.WARNING,
            "Nothing is renewed meanwhile; what is held ends at its deadline, which apps know, unless an "
            "agent goes on with it before.",
        )
    if health.on_fewer:
        are = "is" if health.on_fewer == 1 else "are"
        return Assessment(
            Level.WARNING,
            f"Locks are safe: {_leases(health.on_fewer)} {are} on a quorum of the masters, but not on all.",
        )
    if health.voting < health.quorum:
        return Assessment(Level.GOOD, "Locks are safe: nobody is granted one, and what is held ends in time.")
    return Assessment(
        Level.GOOD, "Locks are safe: no lease of this host is lost, and all masters have confirmed each."
    )


def _canary(health: AgentHealth) -> str:
    why = f" ({health.canary_trouble[:_WHY_CHARS]})" if health.canary_trouble else ""
    return f"the agent's own lock failed{why}"


def _leases(number: int) -> str:
    return "1 lease" if number == 1 else f"{number} leases"
