"""Admitting a master, and bringing one up to date that was away meanwhile. The steps are those of
lockd/core/admission.py."""

import asyncio

from lockd.clock import boottime_ns
from lockd.core.admission import Numbered, Ready, Renumber, TooFewOthers, brought_up, next_step
from lockd.core.ballots.ballot import bits
from lockd.core.identities import Identity, voting_together
from lockd.core.membership import State, TooFewReadings, Wait, longest_possible_ttl_ms
from lockd.masters.aside import Credentials
from lockd.masters.fleet import Fleet
from lockd.masters.identifying import (
    BLANK,
    NotPossible,
    Progress,
    begin_from,
    counters_of,
    identity_of,
    look_again,
    write,
)
from lockd.masters.link import Link


async def admit(fleet: Fleet, name: str, writer: Credentials | None = None) -> Progress:
    """Give a blank master its vote, or one that was away while others were admitted. Raises NotPossible."""
    link = next((candidate for candidate in fleet.links if candidate.master.name == name), None)
    if link is None:
        known = ", ".join(candidate.master.name for candidate in fleet.links)
        raise NotPossible(f"there is no master '{name}' in the configuration, only {known}")
    await look_again(fleet)
    if link.state is State.UP:
        return Progress("already")
    if link.state is State.OUTDATED:
        return await _bring_up(fleet, link, writer)
    if link.state is not State.BLANK:
        raise NotPossible(f"only a blank master can be admitted, {name} is {link.state}: {link.reason}")
    return await _admit(fleet, link, writer)


async def _admit(fleet: Fleet, link: Link, writer: Credentials | None) -> Progress:
    step = _next_step(fleet, link)
    if isinstance(step, Renumber):
        await _renumber(fleet, link, step, writer)
        await look_again(fleet)
        link.elsewhere.was_here()
        step = _next_step(fleet, link)
    if isinstance(step, Wait):
        return Progress("waiting", step.remaining_ms, step.total_ms)
    if isinstance(step, Renumber):
        raise NotPossible(
            f"somebody else is admitting {link.master.name}: do the same again when they are done"
        )
    await _let_in(fleet, link, step, writer)
    return Progress("admitted")


def voting_others(fleet: Fleet, link: Link) -> dict[int, Identity]:
    """The identities of the masters that vote together, without this one."""
    states = (State.UP, State.STALLED)
    shown = [
        identity_of(other) if other is not link and other.introduced and other.state in states else None
        for other in fleet.links
    ]
    together = bits(voting_together(shown))
    return {i: of for i in together if (of := shown[i]) is not None}


def _next_step(fleet: Fleet, link: Link) -> Renumber | Wait | Ready:
    others, quorum = voting_others(fleet, link), fleet.config.quorum
    ceilings_ms = [of.longest_ttl_ms for of in others.values()] or [fleet.config.max_ttl_ms]
    try:
        return next_step(
            link.master.name,
            others,
            quorum,
            link.numbered,
            link.elsewhere,
            link.blank_since_ns or boottime_ns(),
            longest_possible_ttl_ms(ceilings_ms, len(fleet.links)),
            boottime_ns(),
        )
    except TooFewOthers:
        raise NotPossible(
            f"its fence counters must come from {quorum} other masters, and only {len(others)} have a vote. "
            "If so many lost their data, start anew with those that have theirs (lockctl cluster recover); "
            "if all did, form the cluster anew (lockctl cluster init)"
        ) from None


async def _renumber(fleet: Fleet, link: Link, step: Renumber, writer: Credentials | None) -> None:
    """One after the other: agents ask each again that refused them, and the others are a quorum
    meanwhile."""
    written, failure = 0, ""
    for i, members in step.lists.items():
        other = fleet.links[i]
        identity = identity_of(other)
        assert identity is not None
        try:
            fields = identity.with_members(members).list_fields
            await write(fleet, other, writer, identity.electorate, fields)
            written += 1
        except NotPossible as why:
            failure = str(why)
    if written < fleet.config.quorum:
        raise NotPossible(
            f"the new number of {link.master.name} has to be on {fleet.config.quorum} other masters, and "
            f"is on {written}: {failure}"
        )
    link.numbered = Numbered(step.number, boottime_ns())


async def _let_in(fleet: Fleet, link: Link, ready: Ready, writer: Credentials | None) -> None:
    others = [fleet.links[i] for i in ready.numbered if fleet.trusted >> i & 1]
    readings = await asyncio.gather(*(counters_of(other) for other in others), return_exceptions=True)
    try:
        counters = begin_from(fleet, [one for one in readings if not isinstance(one, BaseException)])
    except TooFewReadings as failure:
        raise NotPossible(
            f"a quorum of the others could not be read ({failure}), {link.master.name} was not changed: "
            "try again when they answer"
        ) from failure
    identities = [of for other in others if (of := identity_of(other)) is not None]
    # What a quorum allows: one of the others that says too much is not copied.
    ceiling_ms = sorted((of.max_ttl_ms for of in identities), reverse=True)[fleet.config.quorum - 1]
    new = Identity(
        fleet.config.cluster, link.master.name, ceiling_ms,
        cluster_id=identities[0].cluster_id, members=ready.members,
    )  # fmt: skip
    await write(fleet, link, writer, BLANK, new.fields, counters)
    link.numbered = None
    await look_again(fleet)


async def _bring_up(fleet: Fleet, link: Link, writer: Credentials | None) -> Progress:
    """Its own data are whole: only its list is behind, and takes no waiting."""
    identity, others = identity_of(link), voting_others(fleet, link)
    assert identity is not None
    if len(others) < fleet.config.quorum:
        raise NotPossible(
            f"who the members are is known from {fleet.config.quorum} other masters, and only {len(others)} "
            "have a vote"
        )
    members = brought_up(identity, others.values())
    if members is None:
        raise NotPossible(f"another {link.master.name} was admitted since: wipe this one, and admit it")
    await write(fleet, link, writer, identity.electorate, identity.with_members(members).list_fields)
    await look_again(fleet)
    return Progress("updated")
