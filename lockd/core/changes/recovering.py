"""Beginning a cluster anew around the masters that are left of it, after a quorum lost their data (rule 8):
the votes of all are taken first (votes.py).

What the last fences were, only a quorum could say (rule 6). But fences are microseconds of clocks: one is
given at most as far ahead of the masters' clocks as a host's clock may be before the masters' is taken
instead (fences.py), and by the time that all leases are over, those clocks have gone on. So all counters
begin above that, and above what the masters show that still have theirs.

It is not above all earlier fences where a counter was further ahead than that and no master is left that
shows it (somebody wrote it there, or 15,000 grants a second shared it for long), nor where the clocks of most
masters were set back since.
"""

from collections.abc import Mapping, Sequence

from lockd.core.changes.founding import write_all
from lockd.core.changes.ground import Ground
from lockd.core.changes.steps import NotPossible, Progress, Steps
from lockd.core.changes.votes import have_all_votes, take_vote, take_votes, wait_until_silent
from lockd.core.fences import CLOCKS_APART_US, SLOTS, largest_known
from lockd.core.link import Link
from lockd.core.membership import State


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
    yield from take_votes(ground, left, blank)
    links = [*left, *blank]
    if (wait := wait_until_silent(ground, links, identities)).remaining_ms:
        return wait
    max_ttl_ms = max(of.max_ttl_ms for of in identities)
    counters = yield from _counters(ground, left, known)
    # The blank ones' too: somebody else may have written an id on them meanwhile.
    for link in blank:
        yield from take_vote(ground, link, max_ttl_ms)
    if (wait := (yield from have_all_votes(ground, links, identities))).remaining_ms:
        return wait
    yield from write_all(ground, links, ground.new_id(), max_ttl_ms, counters)
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
    if agreeing >= ground.quorum and not blank:
        raise NotPossible("all masters have data: lockctl doctor says what to do with each")
    if agreeing >= ground.quorum:
        raise NotPossible(
            f"{agreeing} masters have their data, that is a quorum: admit the blank ones "
            f"({ground.names(blank)}) one by one (lockctl master admit)"
        )


def _counters(ground: Ground, left: Sequence[Link], known: Mapping[int, int]) -> Steps[dict[int, int]]:
    clocks, now_ns = ground.fleet.clocks, ground.now_ns()
    readings = yield from ground.counters_of(left)
    return counters_after_loss(
        [known, *readings], clocks.median_us(now_ns), clocks.largest_sane_fence(now_ns)
    )


def counters_after_loss(readings: Sequence[Mapping[int, int]], masters_us: int, most: int) -> dict[int, int]:
    """The counters that all masters begin with, by slot. readings: of those that still have theirs;
    masters_us: the median of the masters' clocks. What can't be right (above most) is not taken over."""
    floor = masters_us + CLOCKS_APART_US
    return largest_known([dict.fromkeys(range(SLOTS), floor), *readings], most)
