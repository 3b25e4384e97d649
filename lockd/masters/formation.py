"""Forming a cluster: of blank masters, anew around those that are left of one, or of one whose identities are
of an earlier format (rule 8).

Forming that was broken off is not gone on with by its id, but begun anew with another, also on the masters
that have the first: one of them may have been replaced meanwhile by another machine of its name, which would
get the same number under the same id. Two quorums could then be found, one through each of the two. A master
that was replaced is left with an id that no other has.

So before it is begun anew, all of them get an id that no other has, the blank ones too: another agent may
have formed the cluster meanwhile with the machine that took the place of one that this agent sees. Whoever
can't take the votes of all the others, and see that none was used, writes no id that two of them share.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256

from lockd.clock import boottime_ns
from lockd.core.answers import Nonsense
from lockd.core.identities import Identity, Members
from lockd.core.membership import State, longest_possible_ttl_ms, wait_for_blank
from lockd.core.recovery import counters_after_loss, is_left, largest_known
from lockd.masters import scripts
from lockd.masters.aside import Credentials
from lockd.masters.failures import MasterError
from lockd.masters.fleet import Fleet
from lockd.masters.identifying import (
    BLANK,
    OLD,
    NotPossible,
    Progress,
    counters_of,
    identity_of,
    look_again,
    twins,
    write,
)
from lockd.masters.link import Link

_BEGUN_FROM = "begun_from"
"""The field of an identity that says which counters were written with it."""


async def form(
    fleet: Fleet, unused: bool, known: Mapping[int, int], writer: Credentials | None = None
) -> Progress:
    """Write the identities of a new cluster. All masters must be there, blank and distinct.

    Five wiped masters look like five new ones, so a max TTL is waited out first, unless the operator says
    that no agent has ever used them (unused). For the same reason their fence counters begin from the largest
    that is known: what this agent has seen since it started (known). Raises NotPossible.
    """
    await look_again(fleet)
    if {link.state for link in fleet.links} == {State.UP}:
        return Progress("already")
    # In one order on all hosts: of two agents that form it at once, one stops at the first that they share.
    links = sorted(fleet.links, key=lambda link: link.master.name)
    blank = [link for link in links if link.state is State.BLANK and link.introduced]
    begun = [link for link in links if link not in blank]
    wrong = [link for link in begun if not await _is_begun(fleet, link)]
    if wrong:
        raise NotPossible(
            "a cluster is formed of blank masters that are all there, nothing was changed: "
            f"{_reasons(wrong)}{_way_back(fleet)}"
        )
    _refuse_twins(blank)
    if blank and not unused:
        wait = _wait(blank, fleet.config.max_ttl_ms)
        if wait.remaining_ms:
            return wait
    if begun:
        await _let_others_finish(fleet)
        # Where one was used, the blank ones stay blank: it can be begun anew around those.
        await _take_votes_from(fleet, begun, writer)
        await _take_votes_from(fleet, blank, writer)
    readings = [known, *await _counters_of(begun)]
    counters = largest_known(readings, fleet.clocks.largest_sane_fence(boottime_ns()))
    begun_from = {_BEGUN_FROM: _digest_of(counters)} if counters else {}
    # A quorum may vote before the last is written: a blank one can be admitted then, the others can't.
    await _write_all(fleet, [*begun, *blank], fleet.config.max_ttl_ms, begun_from, counters, writer)
    return Progress("formed")


async def _let_others_finish(fleet: Fleet) -> None:
    """Some masters have been begun: who is at it now makes progress meanwhile."""
    before = [_shown(link) for link in fleet.links]
    await asyncio.sleep(fleet.config.timeouts.dead_ms / 1000)
    await look_again(fleet)
    if [_shown(link) for link in fleet.links] != before:
        raise NotPossible("somebody else is forming it: do the same again when they are done")


async def _take_votes_from(fleet: Fleet, links: Sequence[Link], writer: Credentials | None) -> None:
    """Each gets an id that no other has, so that none of them votes with anybody. Only then is it certain
    that none has voted: else a lease could rest on it and on machines that are not among these any more."""
    own: dict[Link, str] = {}
    for link in links:
        new = _first_identity(fleet, link, _new_id(), fleet.config.max_ttl_ms)
        await write(fleet, link, writer, _shown(link), new.fields)
        own[link] = new.electorate
    await look_again(fleet)
    if used := [link for link in links if _shown(link) != own[link] or not await _is_begun(fleet, link)]:
        names = ", ".join(link.master.name for link in used)
        raise NotPossible(
            f"{names} voted meanwhile: look again, lockctl doctor says what to do{_way_back(fleet)}"
        )


async def _write_all(
    fleet: Fleet,
    links: Sequence[Link],
    ceiling_ms: int,
    more: Mapping[str, str],
    counters: Mapping[int, int],
    writer: Credentials | None,
) -> None:
    """Make these a new cluster, in this order."""
    cluster_id = _new_id()
    for link in links:
        new = _first_identity(fleet, link, cluster_id, ceiling_ms)
        await write(fleet, link, writer, _shown(link), {**new.fields, **more}, counters)
    await look_again(fleet)


async def recover(fleet: Fleet, known: Mapping[int, int], writer: Credentials | None = None) -> Progress:
    """Form anew around masters that still have their data, where a quorum lost theirs: a new cluster, so that
    nothing that was admitted to the old one counts any more. All masters must be there.

    It waits out a max TTL, since leases may be relied upon that the blank ones have forgotten, and puts all
    fence counters above whatever was given before (see lockd/core/recovery.py). Those that have their data
    come first: until a quorum of the new cluster is written, it can be begun again. Raises NotPossible.
    """
    await look_again(fleet)
    left = [link for link in fleet.links if _is_left(fleet, link)]
    agreeing = [link for link in left if link.state is State.UP]
    blank = [link for link in fleet.links if link.state is State.BLANK]
    wrong = [link for link in fleet.links if link not in left and link not in blank]
    if wrong:
        raise NotPossible(
            "all masters must be there, each blank or with its data, nothing was changed: " + _reasons(wrong)
        )
    if not left:
        raise NotPossible("no master has its data: form the cluster anew (lockctl cluster init)")
    if not blank:
        raise NotPossible("all masters have data: lockctl doctor says what to do with each")
    if len(agreeing) >= fleet.config.quorum:
        names = ", ".join(link.master.name for link in blank) or "none"
        raise NotPossible(
            f"{len(agreeing)} masters have their data, that is a quorum: admit the blank ones ({names}) one "
            "by one (lockctl master admit)"
        )
    _refuse_twins(blank)
    identities = [of for link in left if (of := identity_of(link)) is not None]
    known_ms = [fleet.config.max_ttl_ms, *(of.longest_ttl_ms for of in identities)]
    wait = _wait(blank, longest_possible_ttl_ms(known_ms, len(fleet.links)))
    if wait.remaining_ms:
        return wait
    await _begin_anew(fleet, left, blank, max(of.max_ttl_ms for of in identities), known, writer)
    return Progress("recovered")


async def _begin_anew(
    fleet: Fleet,
    left: Sequence[Link],
    blank: Sequence[Link],
    ceiling_ms: int,
    known: Mapping[int, int],
    writer: Credentials | None,
) -> None:
    now_ns = boottime_ns()
    counters = counters_after_loss(
        [known, *await _counters_of(left)],
        fleet.clocks.median_us(now_ns),
        fleet.clocks.largest_sane_fence(now_ns),
    )
    await _write_all(fleet, [*left, *blank], ceiling_ms, {}, counters, writer)


async def _counters_of(links: Sequence[Link]) -> list[dict[int, int]]:
    """Any of them may know of larger fences than all others. Raises NotPossible."""
    found = []
    for link in links:
        try:
            found.append(await counters_of(link))
        except (MasterError, Nonsense) as error:
            raise NotPossible(
                f"the fence counters of {link.master.name} can't be read ({error}): do the same again. If "
                "that stays so, wipe it: what it alone knew of fences is lost then"
            ) from None
    return found


async def upgrade(fleet: Fleet, writer: Credentials | None = None) -> Progress:
    """Bring identities of an earlier format up to date. All masters must be there. Raises NotPossible."""
    await look_again(fleet)
    old = [link for link in fleet.links if link.state is State.OTHER_FORMAT and _is_older(link)]
    wrong = [link for link in fleet.links if link not in old and link.state is not State.UP]
    if wrong:
        raise NotPossible(
            "all masters must be there, with an identity of this format or an earlier one, nothing was "
            f"changed: {_reasons(wrong)}"
        )
    if not old:
        return Progress("already")
    done = next((of for link in fleet.links if link not in old and (of := identity_of(link))), None)
    cluster_id = done.cluster_id if done is not None else _new_id()
    for link in old:
        before = identity_of(link)
        assert before is not None
        if before.name != link.master.name:
            raise NotPossible(f"{link.master.name} is the master '{before.name}': correct its address first")
        new = _first_identity(fleet, link, cluster_id, before.max_ttl_ms)
        await write(fleet, link, writer, OLD, new.fields)
    await look_again(fleet)
    return Progress("upgraded")


def _is_older(link: Link) -> bool:
    identity = identity_of(link)
    return identity is not None and identity.is_older


def _is_left(fleet: Fleet, link: Link) -> bool:
    return is_left(link.state, identity_of(link), fleet.config.cluster)


def _shown(link: Link) -> str:
    """What it must still show when it is written to."""
    identity = identity_of(link)
    return BLANK if identity is None else identity.electorate


def _new_id() -> str:
    """128 bits: no other cluster has it, from whatever template it was made."""
    return secrets.token_hex(16)


def _first_identity(fleet: Fleet, link: Link, cluster_id: str, max_ttl_ms: int) -> Identity:
    return Identity(
        fleet.config.cluster, link.master.name, max_ttl_ms,
        cluster_id=cluster_id, members=Members.first(fleet.configured.names),
    )  # fmt: skip


def _wait(blank: Sequence[Link], max_ttl_ms: int) -> Progress:
    now_ns = boottime_ns()
    wait = wait_for_blank([link.blank_since_ns or now_ns for link in blank], max_ttl_ms, now_ns)
    return Progress("waiting", wait.remaining_ms, wait.total_ms)


def _reasons(links: Sequence[Link]) -> str:
    return "; ".join(f"{link.master.name}: {_why_not(link)}" for link in links)


def _why_not(link: Link) -> str:
    if link.state is State.BLANK and not link.introduced:
        return "its scripts are still being loaded: do the same again"
    return link.reason or str(link.state)


def _way_back(fleet: Fleet) -> str:
    """Where a part has its data, forming is not it."""
    with_data = sum(_is_left(fleet, link) for link in fleet.links)
    if with_data >= fleet.config.quorum or not with_data:
        return ""
    return ". To start anew with those that have their data: lockctl cluster recover"


def _refuse_twins(blank: Sequence[Link]) -> None:
    if names := twins(blank):
        raise NotPossible(
            f"{names} lead to the same Redis, nothing was changed: give each entry an address of its own"
        )


async def _is_begun(fleet: Fleet, link: Link) -> bool:
    """A master that got its identity when forming was interrupted: it holds nothing else but the counters
    that it began from, so it never voted, and counts as blank."""
    if link.facts is None or not _is_left(fleet, link):
        return False
    if link.facts.keys != 2:
        return link.facts.keys == 1
    try:
        begun_from: object = await link.call("HGET", scripts.IDENTITY_KEY, _BEGUN_FROM)
        return begun_from == _digest_of(await counters_of(link)).encode()
    except MasterError:
        return False


def _digest_of(counters: Mapping[int, int]) -> str:
    return sha256(repr(sorted(counters.items())).encode()).hexdigest()
