"""Forming a cluster of blank masters (rule 8).

If forming was interrupted, it does not continue with the same id, but begins again with a new one, also on
the masters that have the first. One of those may have been replaced meanwhile by another machine of its name,
which would get the same number under the same id. Then there could be two quorums, one through each of the
two machines. With a new id, a master that was replaced is left with an id that no other has.

So before forming begins again, every master gets an id that no other has, the blank ones too: meanwhile,
another agent may have formed the cluster with a machine in place of one that this agent sees. An agent that
can't take the votes of all the others, and see that none was used, writes no id that two of them share.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from lockd.core.changes.founding import counters_above_all, first_identity, wait_for, write_all
from lockd.core.changes.ground import Ground
from lockd.core.changes.steps import NotPossible, Pause, Progress, ReadCounters, ReadField, Steps, Unread
from lockd.core.fences import largest_known
from lockd.core.link import Link
from lockd.core.membership import State

_BEGUN_FROM = "begun_from"
"""The field of an identity that says which counters were written with it."""


def form(ground: Ground, unused: bool, known: Mapping[int, int]) -> Steps[Progress]:
    """Write the identities of a new cluster. All masters must be there, blank and distinct.

    Five wiped masters look like five new ones. So unless the operator says that no agent has ever used them
    (unused), it waits for a max TTL first, and all fence counters begin above everything that was given
    before (rule 6). known: what this agent has seen of counters since it started. Raises NotPossible.
    """
    ground.heed_own_clock()
    yield from ground.look_again()
    if {link.state for link in ground.links} == {State.UP}:
        return Progress("already")
    # The same order on all hosts: if two agents form it at once, one of them stops at the first master that
    # they share.
    links = sorted(ground.links, key=ground.name)
    blank = [link for link in links if ground.is_there(link) and link.state is State.BLANK]
    begun = [link for link in links if link not in blank]
    yield from _refuse_unless_begun(ground, begun)
    ground.refuse_twins(blank)
    waited_for = [] if unused else blank
    if (wait := _wait_for(ground, waited_for)).remaining_ms:
        return wait
    if begun:
        yield from _let_others_finish(ground)
        # If one was used, the blank ones stay blank: the cluster can be formed again around the used ones.
        yield from _take_votes_from(ground, begun)
        # Another blank machine may be in the place of one of them by now.
        if (wait := _wait_for(ground, waited_for)).remaining_ms:
            return wait
        yield from _take_votes_from(ground, blank)
    counters = yield from (_counters_known if unused else counters_above_all)(ground, begun, known)
    yield from _write(ground, [*begun, *blank], counters)
    return Progress("formed")


def _wait_for(ground: Ground, blank: Sequence[Link]) -> Progress:
    return wait_for(ground, [link.blank_since_ns for link in blank], ground.max_ttl_ms)


def _refuse_unless_begun(ground: Ground, links: Sequence[Link]) -> Steps[None]:
    """Forming was interrupted on these, and they have not been used."""
    wrong = yield from _not_begun(ground, links)
    if wrong:
        raise NotPossible(
            "to form a cluster, all masters must be up and blank. Nothing was changed: "
            f"{ground.reasons(wrong)}{_way_back(ground)}"
        )


def _let_others_finish(ground: Ground) -> Steps[None]:
    """Some masters were begun: an agent that is forming now makes progress meanwhile."""
    before = [ground.shows(link) for link in ground.links]
    yield Pause(ground.patience_ns)
    yield from ground.look_again()
    if [ground.shows(link) for link in ground.links] != before:
        raise NotPossible("another operator is forming it: repeat this when they are done")


def _take_votes_from(ground: Ground, links: Sequence[Link]) -> Steps[None]:
    """Each gets an id that no other has, so that none of them votes together with another. Only then is it
    certain that none has voted: otherwise a lease could rest on it and on machines that are not among these
    any more."""
    own: dict[Link, str] = {}
    for link in links:
        new = first_identity(ground, link, ground.new_id(), ground.max_ttl_ms)
        yield from ground.write(link, new.fields)
        own[link] = new.members_digest
    yield from ground.look_again()
    voted = yield from _not_begun(ground, links)
    if used := [link for link in links if ground.shows(link) != own[link] or link in voted]:
        raise NotPossible(
            f"{ground.names(used)} voted meanwhile: lockctl doctor says what to do{_way_back(ground)}"
        )


def _counters_known(ground: Ground, begun: Sequence[Link], known: Mapping[int, int]) -> Steps[dict[int, int]]:
    readings = yield from ground.counters_of(begun)
    return largest_known([known, *readings], ground.fleet.clocks.largest_sane_fence(ground.now_ns()))


def _write(ground: Ground, links: Sequence[Link], counters: Mapping[int, int]) -> Steps[None]:
    """A quorum may vote before the last is written. From then on a blank master can be admitted, but the
    others can't. So the blank ones are last."""
    begun_from = {_BEGUN_FROM: _digest_of(counters)} if counters else {}
    cluster_id = ground.new_id()
    yield from write_all(ground, links, cluster_id, ground.max_ttl_ms, counters, begun_from)


def _not_begun(ground: Ground, links: Iterable[Link]) -> Steps[list[Link]]:
    found = []
    for link in links:
        if not (yield from _is_begun(ground, link)):
            found.append(link)
    return found


def _is_begun(ground: Ground, link: Link) -> Steps[bool]:
    """A master that got its identity when forming was interrupted. It holds only the counters that it began
    from, so it never voted, and counts as blank."""
    if link.facts is None or not ground.is_there(link) or not ground.is_left(link):
        return False
    if link.facts.keys != 2:
        return link.facts.keys == 1
    begun_from = yield ReadField(link.index, _BEGUN_FROM)
    counters = (yield ReadCounters([link.index]))[link.index]
    return not isinstance(counters, Unread) and begun_from == _digest_of(counters)


def _digest_of(counters: Mapping[int, int]) -> str:
    return sha256(repr(sorted(counters.items())).encode()).hexdigest()


def _way_back(ground: Ground) -> str:
    """If some masters have their data, forming is not the right change."""
    with_data = sum(ground.is_left(link) for link in ground.links)
    if with_data >= ground.quorum or not with_data:
        return ""
    return ". To recover with the masters that have their data: lockctl cluster recover"
