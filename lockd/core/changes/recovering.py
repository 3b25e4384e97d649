"""Forming a cluster again around the masters that are left of it, after a quorum lost its data (rule 8).
First it takes the votes of all masters (votes.py).

Only a quorum could say what the last fences were, so all counters go on above anything they can have been
(founding.py).
"""

from collections.abc import Mapping, Sequence

from lockd.core.changes.founding import counters_above_all, write_all
from lockd.core.changes.ground import Ground
from lockd.core.changes.steps import NotPossible, Progress, Steps
from lockd.core.changes.votes import have_all_votes, take_vote, take_votes, wait_until_silent
from lockd.core.link import Link
from lockd.core.membership import State


def recover(ground: Ground, known: Mapping[int, int]) -> Steps[Progress]:
    """Form the cluster again around masters that still have their data, after a quorum lost its data. It
    becomes a new cluster, so that nothing counts any more that was admitted to the old one. All masters must
    be there.

    It takes the votes of the masters that have their data, waits for a max TTL, and puts all fence counters
    above everything that was given before. The masters that have their data come first: until a quorum of the
    new cluster is written, any agent can begin again. Raises NotPossible.
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
    counters = yield from counters_above_all(ground, left, known)
    # The votes of blank masters, too: another agent may have written an id on them meanwhile.
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
            "all masters must be up, each blank or with its data. Nothing was changed: "
            + ground.reasons(wrong)
        )
    if not left:
        raise NotPossible("no master has its data: form the cluster again (lockctl cluster init)")
    agreeing = sum(link.state is State.UP for link in left)
    if agreeing >= ground.quorum and not blank:
        raise NotPossible("all masters have data: lockctl doctor says what to do with each")
    if agreeing >= ground.quorum:
        raise NotPossible(
            f"{agreeing} masters have their data, which is a quorum: admit the blank ones "
            f"({ground.names(blank)}) one by one (lockctl master admit)"
        )
