"""Bringing identities of an earlier format up to date (rule 8).

That format had no admission numbers, so two machines of one name look alike in it. If an upgrade was
interrupted, it does not continue with the same id, but begins again, as forming does, and first takes the
votes of all masters (votes.py).

A master that has data here may have been blank a moment ago: forming the cluster, or forming it again, takes
votes by writing an identity, and may have been interrupted then. So all fence counters go on above everything
that was given before, as when a cluster is formed again (founding.py).
"""

from collections.abc import Mapping, Sequence

from lockd.core.changes.founding import counters_above_all, first_identity
from lockd.core.changes.ground import Ground
from lockd.core.changes.steps import NotPossible, Progress, Steps
from lockd.core.changes.votes import have_all_votes, take_votes, wait_until_silent
from lockd.core.link import Link
from lockd.core.membership import State

_NOTHING_CHANGED = (
    "all masters must be up, with an identity of this format or an earlier one. Nothing was changed"
)


def upgrade(ground: Ground, known: Mapping[int, int]) -> Steps[Progress]:
    """All masters must be there. It waits for a max TTL, since agents of earlier versions may have been
    granted leases until just now. known: what this agent has seen of fence counters. Raises NotPossible."""
    ground.heed_own_clock()
    yield from ground.look_again()
    links = sorted(ground.links, key=ground.name)
    if all(link.state is State.UP for link in links):
        return Progress("already")
    _refuse_what_is_none_of_it(ground, links)
    identities = [of for link in links if (of := link.identity) is not None]
    yield from take_votes(ground, links)
    if (wait := wait_until_silent(ground, links, identities)).remaining_ms:
        return wait
    counters = yield from counters_above_all(ground, links, known)
    if (wait := (yield from have_all_votes(ground, links, identities))).remaining_ms:
        return wait
    yield from _write(ground, links, counters)
    return Progress("upgraded")


def _refuse_what_is_none_of_it(ground: Ground, links: Sequence[Link]) -> None:
    old = [link for link in links if ground.is_there(link) and _is_older(link)]
    known = [link for link in links if ground.is_there(link) and ground.is_left(link)]
    not_up = [link for link in links if link.state is not State.UP]
    if wrong := [link for link in links if link not in old and link not in known]:
        raise NotPossible(f"{_NOTHING_CHANGED}: {ground.reasons(wrong)}")
    if len(links) - len(not_up) >= ground.quorum:
        raise NotPossible(
            f"a quorum is upgraded: wipe the others ({ground.names(not_up)}), and admit them one by one "
            "(lockctl master admit)"
        )
    if not old and not all(link.taken for link in links):
        raise NotPossible(
            f"{_NOTHING_CHANGED}: none has an earlier format any more. To recover: lockctl cluster recover"
        )
    _refuse_misplaced(ground, links)


def _refuse_misplaced(ground: Ground, links: Sequence[Link]) -> None:
    for link in links:
        if link.identity is not None and link.identity.name != ground.name(link):
            raise NotPossible(
                f"{ground.name(link)} is the master '{link.identity.name}': correct its address first"
            )


def _is_older(link: Link) -> bool:
    return link.state is State.OTHER_FORMAT and link.identity is not None and link.identity.is_older


def _write(ground: Ground, links: Sequence[Link], counters: Mapping[int, int]) -> Steps[None]:
    """Each master keeps its max TTL."""
    cluster_id = ground.new_id()
    for link in links:
        identity = ground.identity_of(link)
        assert identity is not None
        new = first_identity(ground, link, cluster_id, identity.max_ttl_ms)
        yield from ground.write(link, new.fields, counters)
    yield from ground.look_again()
