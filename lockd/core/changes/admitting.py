"""Admitting a blank master, and bringing up to date one that was away meanwhile: the decisions of
admission.py, carried out in order (rule 8)."""

from lockd.core.admission import Numbered, Ready, Renumber, TooFewOthers, brought_up, next_step
from lockd.core.changes.ground import Ground
from lockd.core.changes.steps import NotPossible, Progress, ReadCounters, Steps, Unread
from lockd.core.identities import Identity
from lockd.core.link import Link
from lockd.core.membership import State, TooFewReadings, Wait, highest_counters, longest_possible_ttl_ms


def admit(ground: Ground, name: str) -> Steps[Progress]:
    """Give its vote to a blank master, or to one that was away while others were admitted. Raises
    NotPossible."""
    ground.heed_own_clock()
    link = next((candidate for candidate in ground.links if ground.name(candidate) == name), None)
    if link is None:
        raise NotPossible(
            f"there is no master '{name}' in the configuration, only {ground.names(ground.links)}"
        )
    yield from ground.look_again()
    if link.state is State.UP:
        return Progress("already")
    if link.state is State.OUTDATED:
        return (yield from _bring_up(ground, link))
    if link.state is not State.BLANK:
        raise NotPossible(f"only a blank master can be admitted, {name} is {link.state}: {link.reason}")
    return (yield from _admit(ground, link))


def _admit(ground: Ground, link: Link) -> Steps[Progress]:
    step = _next_step(ground, link)
    if isinstance(step, Renumber):
        yield from _renumber(ground, link, step)
        yield from ground.look_again()
        link.elsewhere.was_here()
        step = _next_step(ground, link)
    if isinstance(step, Wait):
        return Progress("waiting", step.remaining_ms, step.total_ms)
    if isinstance(step, Renumber):
        raise NotPossible(
            f"another operator is admitting {ground.name(link)}: repeat this when they are done"
        )
    yield from _let_in(ground, link, step)
    return Progress("admitted")


def _next_step(ground: Ground, link: Link) -> Renumber | Wait | Ready:
    others, now_ns = ground.voting_others(link), ground.now_ns()
    ceilings_ms = [of.longest_ttl_ms for of in others.values()] or [ground.max_ttl_ms]
    try:
        return next_step(
            ground.name(link),
            others,
            ground.quorum,
            link.numbered,
            link.elsewhere,
            link.blank_since_ns or now_ns,
            longest_possible_ttl_ms(ceilings_ms, len(ground.links)),
            now_ns,
        )
    except TooFewOthers:
        raise NotPossible(
            f"its fence counters must come from {ground.quorum} other masters, and only {len(others)} have "
            "a vote. If the others lost their data, recover with those that still have theirs (lockctl "
            "cluster recover). If all did, form the cluster again (lockctl cluster init)"
        ) from None


def _renumber(ground: Ground, link: Link, step: Renumber) -> Steps[None]:
    """One after the other: agents that were refused by one of them ask it again, and meanwhile the others are
    a quorum."""
    written, failure = 0, ""
    for i, members in step.lists.items():
        other = ground.links[i]
        identity = ground.identity_of(other)
        assert identity is not None
        try:
            yield from ground.write(other, identity.with_members(members).list_fields)
            written += 1
        except NotPossible as why:
            failure = str(why)
    if written < ground.quorum:
        raise NotPossible(
            f"the new number of {ground.name(link)} has to be on {ground.quorum} other masters, and is on "
            f"{written}: {failure}"
        )
    link.numbered = Numbered(step.number, ground.now_ns())


def _let_in(ground: Ground, link: Link, ready: Ready) -> Steps[None]:
    others = [i for i in ready.numbered if ground.fleet.trusted >> i & 1]
    readings = (yield ReadCounters(others)).values()
    most = ground.fleet.clocks.largest_sane_fence(ground.now_ns())
    try:
        known = [reading for reading in readings if not isinstance(reading, Unread)]
        counters = highest_counters(known, ground.quorum, most)
    except TooFewReadings as failure:
        raise NotPossible(
            f"a quorum of the others could not be read ({failure}), and {ground.name(link)} was not "
            "changed: try again when they answer"
        ) from failure
    identities = [of for i in others if (of := ground.identity_of(ground.links[i])) is not None]
    # What a quorum allows: a single master that names too large a ceiling is not copied.
    ceiling_ms = sorted((of.max_ttl_ms for of in identities), reverse=True)[ground.quorum - 1]
    new = Identity(
        ground.fleet.configured.cluster, ground.name(link), ceiling_ms,
        cluster_id=identities[0].cluster_id, members=ready.members,
    )  # fmt: skip
    yield from ground.write(link, new.fields, counters)
    link.numbered = None
    yield from ground.look_again()


def _bring_up(ground: Ground, link: Link) -> Steps[Progress]:
    """Its data is complete, and only its list is outdated: no wait is needed."""
    identity, others = link.identity, ground.voting_others(link)
    assert identity is not None
    if len(others) < ground.quorum:
        raise NotPossible(
            f"who the members are is known from {ground.quorum} other masters, and only {len(others)} have a "
            "vote"
        )
    members = brought_up(identity, others.values())
    if members is None:
        raise NotPossible(f"another {ground.name(link)} was admitted since: wipe this one and admit it")
    yield from ground.write(link, identity.with_members(members).list_fields)
    yield from ground.look_again()
    return Progress("updated")
