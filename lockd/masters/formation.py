"""Forming a cluster and admitting a master: the only ways in which an identity is written (rule 8)."""

import asyncio
from dataclasses import dataclass

from lockd.clock import boottime_ns
from lockd.core.membership import State, TooFewReadings, highest_counters, wait_for_blank
from lockd.masters import scripts
from lockd.masters.fleet import Fleet
from lockd.masters.link import Link, MasterError


class NotPossible(Exception):
    """Why a master can't be formed or admitted now, and what to do."""


@dataclass(frozen=True, slots=True)
class Progress:
    """status: 'formed', 'admitted', 'already', or 'waiting': ask again."""

    status: str
    remaining_ms: int = 0
    total_ms: int = 0


async def form(fleet: Fleet, unused: bool) -> Progress:
    """Write the identities of a new cluster. All masters must be there, blank and distinct.

    Five wiped masters look like five new ones, so a max TTL is waited out first, unless the operator says
    that no agent has ever used them (unused). Raises NotPossible.
    """
    await _look_again(fleet)
    states = {link.state for link in fleet.links}
    if states == {State.UP}:
        return Progress("already")
    wrong = [link for link in fleet.links if link.state is not State.BLANK and not _unused_of_ours(link)]
    if wrong:
        why = "; ".join(f"{link.master.name}: {link.reason or link.state}" for link in wrong)
        raise NotPossible(
            f"a cluster is formed of blank masters that are all there, nothing was changed: {why}"
        )
    blank = [link for link in fleet.links if link.state is State.BLANK]
    twins = _twins(blank)
    if twins:
        raise NotPossible(
            f"{twins} lead to the same Redis, nothing was changed: give each entry an address of its own"
        )
    if not unused:
        wait = wait_for_blank(
            [link.blank_since_ns or boottime_ns() for link in blank], fleet.config.max_ttl_ms, boottime_ns()
        )
        if wait.remaining_ms:
            return Progress("waiting", wait.remaining_ms, wait.total_ms)
    for link in blank:
        await _identify(fleet, link, fleet.config.max_ttl_ms, {})
    await _look_again(fleet)
    return Progress("formed")


async def admit(fleet: Fleet, name: str) -> Progress:
    """Give a blank master its vote back: wait until every lease that it may have voted for is over, copy the
    fence counters of a quorum of the others, then write its identity. Raises NotPossible."""
    link = next((candidate for candidate in fleet.links if candidate.master.name == name), None)
    if link is None:
        known = ", ".join(candidate.master.name for candidate in fleet.links)
        raise NotPossible(f"there is no master '{name}' in the configuration, only {known}")
    await _look_again(fleet)
    if link.state is State.UP:
        return Progress("already")
    if link.state is not State.BLANK:
        raise NotPossible(f"only a blank master can be admitted, {name} is {link.state}: {link.reason}")
    others = [other for other in fleet.links if other is not link and fleet.trusted >> other.index & 1]
    quorum = len(fleet.links) // 2 + 1
    if len(others) < quorum:
        raise NotPossible(
            f"its fence counters must come from {quorum} other masters, and only {len(others)} have a vote. "
            "If the whole cluster was wiped, form it anew (lockctl cluster init)"
        )
    identities = [other.facts.identity for other in others if other.facts and other.facts.identity]
    ceiling_ms = max(identity.max_ttl_ms for identity in identities)
    longest_ms = max(identity.longest_ttl_ms for identity in identities)
    wait = wait_for_blank([link.blank_since_ns or boottime_ns()], longest_ms, boottime_ns())
    if wait.remaining_ms:
        return Progress("waiting", wait.remaining_ms, wait.total_ms)
    readings = await asyncio.gather(*(_counters(other) for other in others), return_exceptions=True)
    read = [reading for reading in readings if not isinstance(reading, BaseException)]
    try:
        counters = highest_counters(read, quorum)
    except TooFewReadings as failure:
        raise NotPossible(
            f"a quorum of the others could not be read ({failure}), nothing was changed: "
            "try again when they answer"
        ) from failure
    await _identify(fleet, link, ceiling_ms, counters)
    await _look_again(fleet)
    return Progress("admitted")


async def _look_again(fleet: Fleet) -> None:
    """The facts may be seconds old: what is decided now rests on fresh ones."""
    looks = (
        asyncio.wait_for(link.inspect_now(), fleet.config.timeouts.connect_ms / 1000)
        for link in fleet.links
        if link.introduced
    )
    await asyncio.gather(*looks, return_exceptions=True)


def _twins(links: list[Link]) -> str:
    by_run_id: dict[str, list[str]] = {}
    for link in links:
        if link.facts is not None:
            by_run_id.setdefault(link.facts.run_id, []).append(link.master.name)
    return ", ".join(" and ".join(names) for names in by_run_id.values() if len(names) > 1)


def _unused_of_ours(link: Link) -> bool:
    """A master that got its identity when forming was interrupted: it holds nothing else, so it never voted,
    and counts as blank."""
    return link.state is State.UP and link.facts is not None and link.facts.keys == 1


async def _identify(fleet: Fleet, link: Link, max_ttl_ms: int, counters: dict[int, int]) -> None:
    flat = [number for pair in counters.items() for number in pair]
    try:
        written = await link.call(
            "EVALSHA", scripts.IDENTIFY.digest, 2, scripts.IDENTITY_KEY, scripts.FENCES_KEY,
            fleet.config.cluster, link.master.name, max_ttl_ms, *flat,
        )  # fmt: skip
    except MasterError as failure:
        raise NotPossible(
            f"{link.master.name} failed while its identity was written ({failure}): do the same again"
        ) from failure
    if not written:
        raise NotPossible(
            f"{link.master.name} is not blank any more, it was left alone: somebody else is at work on it"
        )


async def _counters(link: Link) -> dict[int, int]:
    flat = await link.call("HGETALL", scripts.FENCES_KEY)
    return {int(slot): int(value) for slot, value in zip(flat[::2], flat[1::2], strict=True)}
