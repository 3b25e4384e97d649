"""Beginning a cluster anew around the masters that are left of it, after a quorum lost their data (rule 8).

No lease of before may be relied upon when the new cluster grants its first. Those that have their data may
not be idle meanwhile: another agent may find a quorum with a machine that was replaced since, or another
operator may begin anew with it. So the rule is: *nobody writes an id that two masters share unless each of
all N showed an id that no other has, those with data for a max TTL already, and the others were blank for as
long*. Why it is sound: a lease rests on a quorum, so, where fewer machines than that were replaced, on one of
these N; and that one had voted before its vote was taken, or before it was blank. Of two that are at it at
once, who takes a vote last has it: the other's write finds something else there, and it stops.

What the last fences were, only a quorum could say (rule 6). But fences are microseconds of clocks: one is
given at most as far ahead of the masters' clocks as a host's clock may be before the masters' is taken
instead (fences.py), and by the time that all leases are over, those clocks have gone on. So all counters
begin above that, and above what the masters show that still have theirs.

It is not above all earlier fences where a counter was further ahead than that and no master is left that
shows it (somebody wrote it there, or 15,000 grants a second shared it for long), nor where the clocks of most
masters were set back since.
"""

from collections.abc import Mapping, Sequence

from lockd.core.changes.founding import first_identity, write_all
from lockd.core.changes.ground import Ground, electorate_on
from lockd.core.changes.steps import NotPossible, Progress, Steps
from lockd.core.fences import CLOCKS_APART_US, SLOTS, largest_known
from lockd.core.identities import Identity
from lockd.core.link import Link, Taken
from lockd.core.membership import State, longest_possible_ttl_ms, wait_for_blank


def recover(ground: Ground, known: Mapping[int, int]) -> Steps[Progress]:
    """Form anew around masters that still have their data, where a quorum lost theirs: a new cluster, so that
    nothing that was admitted to the old one counts any more. All masters must be there.

    It takes the votes of those that have their data, waits out a max TTL, and puts all fence counters above
    whatever was given before. Those that have their data come first: until a quorum of the new cluster is
    written, it can be begun again, by any agent. Raises NotPossible.
    """
    ground.heed_own_clock()
    yield from ground.look_again()
    links = sorted((link for link in ground.links if ground.is_there(link)), key=ground.name)
    left = [link for link in links if ground.is_left(link)]
    blank = [link for link in links if link.state is State.BLANK]
    _refuse_where_not_needed(ground, left, blank)
    ground.refuse_twins(blank)
    identities = [of for link in left if (of := link.identity) is not None]
    _refuse_where_others_are_at_it(ground, [*left, *blank])
    yield from _take_votes(ground, left)
    wait = _wait_for(ground, [*left, *blank], _longest_ttl_ms(ground, identities))
    if wait.remaining_ms:
        return wait
    yield from _begin_anew(ground, left, blank, max(of.max_ttl_ms for of in identities), known)
    return Progress("recovered")


def _refuse_where_not_needed(ground: Ground, left: Sequence[Link], blank: Sequence[Link]) -> None:
    wrong = [link for link in ground.links if link not in left and link not in blank]
    if wrong:
        raise NotPossible(
            "all masters must be there, each blank or with its data, nothing was changed: "
            + ground.reasons(wrong)
        )
    if not left:
        raise NotPossible("no master has its data: form the cluster anew (lockctl cluster init)")
    agreeing = sum(link.state is State.UP for link in left)
    if not blank and (agreeing >= ground.quorum or not any(_was_blank(link) for link in left)):
        raise NotPossible("all masters have data: lockctl doctor says what to do with each")
    if agreeing >= ground.quorum:
        raise NotPossible(
            f"{agreeing} masters have their data, that is a quorum: admit the blank ones "
            f"({ground.names(blank)}) one by one (lockctl master admit)"
        )


def _was_blank(link: Link) -> bool:
    """Beginning anew was broken off when it had taken this one's vote: it holds its identity, and nothing
    else."""
    return link.facts is not None and link.facts.keys == 1


def _take_votes(ground: Ground, left: Sequence[Link]) -> Steps[None]:
    """Of those whose votes this agent hasn't taken yet."""
    for link in left:
        if link.taken is None:
            assert link.identity is not None
            yield from _take_vote(ground, link, link.identity.max_ttl_ms)


def _take_vote(ground: Ground, link: Link, max_ttl_ms: int) -> Steps[None]:
    """It gets an id that no other has: nobody counts its vote any more, and whatever is asked of it by its
    electorate of before it refuses."""
    new = first_identity(ground, link, ground.new_id(), max_ttl_ms)
    blank_since_ns = link.blank_since_ns
    yield from ground.write(link, electorate_on(link), new.fields)
    link.taken = Taken(new.electorate, ground.now_ns() if blank_since_ns is None else blank_since_ns)


def _refuse_where_others_are_at_it(ground: Ground, links: Sequence[Link]) -> None:
    lost = [link for link in links if link.taken is not None and electorate_on(link) != link.taken.electorate]
    if lost:
        _forget_all(ground)
        raise NotPossible(
            f"somebody else has changed {ground.names(lost)} since this was begun: do the same again when "
            "they are done"
        )


def _forget_all(ground: Ground) -> None:
    for link in ground.links:
        link.taken = None


def _wait_for(ground: Ground, links: Sequence[Link], max_ttl_ms: int) -> Progress:
    """Until nothing is relied upon any more that these helped to grant before their votes were taken, or
    before they were wiped."""
    now_ns = ground.now_ns()
    wait = wait_for_blank([_silent_since_ns(link, now_ns) for link in links], max_ttl_ms, now_ns)
    return Progress("waiting", wait.remaining_ms, wait.total_ms)


def _silent_since_ns(link: Link, now_ns: int) -> int:
    if link.taken is not None:
        return link.taken.since_ns
    return now_ns if link.blank_since_ns is None else link.blank_since_ns


def _longest_ttl_ms(ground: Ground, identities: Sequence[Identity]) -> int:
    known_ms = [ground.max_ttl_ms, *(of.longest_ttl_ms for of in identities)]
    return longest_possible_ttl_ms(known_ms, len(ground.links))


def _begin_anew(
    ground: Ground,
    left: Sequence[Link],
    blank: Sequence[Link],
    max_ttl_ms: int,
    known: Mapping[int, int],
) -> Steps[None]:
    """The blank ones' votes are taken, too: somebody else may have written an id on them meanwhile."""
    clocks, now_ns = ground.fleet.clocks, ground.now_ns()
    readings = yield from ground.counters_of(left)
    counters = counters_after_loss(
        [known, *readings], clocks.median_us(now_ns), clocks.largest_sane_fence(now_ns)
    )
    for link in blank:
        yield from _take_vote(ground, link, max_ttl_ms)
    yield from ground.look_again()
    links = [*left, *blank]
    _refuse_where_others_are_at_it(ground, links)
    _forget_all(ground)
    yield from write_all(ground, links, ground.new_id(), max_ttl_ms, counters)


def counters_after_loss(readings: Sequence[Mapping[int, int]], masters_us: int, most: int) -> dict[int, int]:
    """The counters that all masters begin with, by slot. readings: of those that still have theirs;
    masters_us: the median of the masters' clocks. What can't be right (above most) is not taken over."""
    floor = masters_us + CLOCKS_APART_US
    return largest_known([dict.fromkeys(range(SLOTS), floor), *readings], most)
