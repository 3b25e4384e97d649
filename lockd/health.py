"""Are locks safe, and are they available? In words, as the status page and `lockctl top` show them first.

Pure: it takes what one agent knows about itself, and returns a level and a sentence. These are two questions:
without a quorum locks are not available and just as safe as before, since nobody is granted anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """How urgent it is."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class Assessment(NamedTuple):
    level: Level
    text: str


@dataclass(frozen=True)
class AgentHealth:
    """What one agent knows about itself.

    responsive: its event loop runs. lost: leases that were lost and whose holders, though told, may still
    believe in them. on_fewer: leases that not all masters have confirmed, though they had the time.
    canary_failures: how often the agent's own lock has failed since it last worked; also 0 if it has none.
    canary_trouble: why it last failed.
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
"""For how long a lost lease is a reason to look; after that, its app's log shows the consequences."""


def unmeant_losses(totals: Mapping[str, int]) -> int:
    """For a class's totals: lost leases, without those that an operator or max_hold ended."""
    return totals["losses"] - totals.get("losses_meant", 0)


def loss_is_news(lost: int, totals: Mapping[str, int]) -> bool:
    """Whether a class has lost leases (`lost` of them are not over yet), or lost some not long ago."""
    return bool(lost) or totals.get("last_loss_ms", LOSS_IS_NEWS_MS) < LOSS_IS_NEWS_MS


# A single failure may be due to a master that died in the middle of it.
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
            Level.BAD, f"Locks are available, WITHOUT MARGIN: {votes}. If one more fails, they are not."
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
    """Whether everything that is held has one holder only, as far as this agent can know."""
    if health.lost:
        were = "was" if health.lost == 1 else "were"
        return Assessment(
            Level.BAD,
            f"{_leases(health.lost)} of this host {were} LOST before they ended. Holders were told. Until "
            "they stop, others may hold the same resources. Fences still tell them apart.",
        )
    if not health.responsive:
        return Assessment(
            Level.WARNING,
            "Leases are not renewed, and end at their deadlines, which apps know, unless another agent "
            "takes over first.",
        )
    if health.on_fewer:
        are = "is" if health.on_fewer == 1 else "are"
        return Assessment(
            Level.WARNING,
            f"Locks are safe: {_leases(health.on_fewer)} {are} on a quorum of the masters, but not on all.",
        )
    if health.voting < health.quorum:
        return Assessment(Level.GOOD, "Locks are safe: none are granted, and leases end at their deadlines.")
    return Assessment(
        Level.GOOD, "Locks are safe: no lease of this host is lost, and each is on all masters."
    )


def _canary(health: AgentHealth) -> str:
    why = f" ({health.canary_trouble[:_WHY_CHARS]})" if health.canary_trouble else ""
    return f"the agent's own lock failed{why}"


def _leases(number: int) -> str:
    return "1 lease" if number == 1 else f"{number} leases"
