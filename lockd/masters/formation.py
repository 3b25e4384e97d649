"""Forming a cluster and admitting a master: the only ways in which an identity is written (rule 8).

`writer` is whose right it is. Agents may only read identities, so that a lost app host can't wipe who the
masters are; without a writer the agent tries it as itself, which works where no ACL says otherwise.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lockd.clock import boottime_ns
from lockd.core.fences import SLOTS
from lockd.core.identities import Identity, Members
from lockd.core.membership import (
    State,
    TooFewReadings,
    highest_counters,
    longest_possible_ttl_ms,
    wait_for_blank,
)
from lockd.masters import replies, scripts
from lockd.masters.aside import Credentials, ask_as
from lockd.masters.failures import MasterError
from lockd.masters.fleet import Fleet
from lockd.masters.link import Link

BLANK = ""
"""What a blank master shows of its electorate, see identify.lua."""


class NotPossible(Exception):
    """Why a master can't be formed or admitted now, and what to do."""


@dataclass(frozen=True, slots=True)
class Progress:
    """status: 'formed', 'admitted', 'already', or 'waiting': ask again."""

    status: str
    remaining_ms: int = 0
    total_ms: int = 0


async def form(fleet: Fleet, unused: bool, writer: Credentials | None = None) -> Progress:
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
    begun = next((of for link in fleet.links if (of := identity_of(link)) is not None), None)
    cluster_id = begun.cluster_id if begun is not None else secrets.token_hex(16)
    members = Members.first(fleet.configured.names)
    for link in blank:
        new = Identity(
            fleet.config.cluster, link.master.name, fleet.config.max_ttl_ms,
            cluster_id=cluster_id, members=members,
        )  # fmt: skip
        await _write(fleet, link, writer, BLANK, new.fields, {})
    await _look_again(fleet)
    return Progress("formed")


async def admit(fleet: Fleet, name: str, writer: Credentials | None = None) -> Progress:
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
    identities = [of for other in others if (of := identity_of(other)) is not None]
    longest_ms = longest_possible_ttl_ms([of.longest_ttl_ms for of in identities], len(fleet.links))
    # What a quorum allows: one of the others that says too much is not copied.
    ceiling_ms = sorted((of.max_ttl_ms for of in identities), reverse=True)[quorum - 1]
    wait = wait_for_blank([link.blank_since_ns or boottime_ns()], longest_ms, boottime_ns())
    if wait.remaining_ms:
        return Progress("waiting", wait.remaining_ms, wait.total_ms)
    readings = await asyncio.gather(*(counters_of(other) for other in others), return_exceptions=True)
    read = [reading for reading in readings if not isinstance(reading, BaseException)]
    try:
        counters = begin_from(fleet, read)
    except TooFewReadings as failure:
        raise NotPossible(
            f"a quorum of the others could not be read ({failure}), nothing was changed: "
            "try again when they answer"
        ) from failure
    new = replace(identities[0], name=name, max_ttl_ms=ceiling_ms)
    await _write(fleet, link, writer, BLANK, new.fields, counters)
    await _look_again(fleet)
    return Progress("admitted")


def identity_of(link: Link) -> Identity | None:
    return link.facts.identity if link.facts is not None else None


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


async def _write(
    fleet: Fleet,
    link: Link,
    writer: Credentials | None,
    shown: str,
    fields: Mapping[str, str],
    counters: Mapping[int, int],
) -> None:
    """Only where the master still shows that. Raises NotPossible."""
    words = scripts.identify(shown, fields, counters)
    try:
        if writer is None:
            written = await link.call(*words)
        else:
            written = await ask_as(writer, fleet.config, link.master, *words)
    except MasterError as failure:
        raise NotPossible(_not_written(link, writer, str(failure))) from failure
    if not written:
        raise NotPossible(
            f"{link.master.name} is not as it was a moment ago, it was left alone: somebody else is at work "
            "on it"
        )


def _not_written(link: Link, writer: Credentials | None, why: str) -> str:
    name = link.master.name
    if not why.startswith(("NOPERM", "WRONGPASS", "NOAUTH")):
        return f"{name} failed while its identity was written ({why}): do the same again"
    if writer is None:
        return (
            f"{name} lets this agent not write identities ({why}): they are for operators. Do the same with "
            "AUTH user password (lockctl … --operator-user lockd_operator)"
        )
    return f"{name} lets '{writer.username}' not write identities ({why}): give the user who may"


def begin_from(fleet: Fleet, readings: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """The counters of a master that is admitted, by what the others show. Raises TooFewReadings."""
    most = fleet.clocks.largest_sane_fence(boottime_ns())
    return highest_counters(readings, fleet.config.quorum, most)


async def counters_of(link: Link) -> dict[int, int]:
    shown = replies.pairs(await link.call("HGETALL", scripts.FENCES_KEY))
    return {replies.digits(slot, SLOTS - 1): replies.digits(value, 10**16) for slot, value in shown}
