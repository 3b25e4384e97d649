"""Taking the votes of all masters before two of them get one id: for forming a cluster again and for
upgrading (rule 8).

When a new cluster grants its first lease, no earlier lease may be relied upon. Meanwhile the masters that
have their data may not be idle: another agent may find a quorum through a machine that was replaced since, or
another operator may be doing the same through it. So the rule is: *an id that two masters share is written
only after each of all N has shown an id that no other has. Those that may have voted must have shown it for a
max TTL already, and the others must have been blank for as long*.

Why it is sound: a lease rests on a quorum. If fewer machines than that were replaced, one of these N is in
it, and it had voted before its vote was taken, or before it was blank. If two agents do this at once, the one
that takes a vote last has it: the other one finds something else when it writes there, and stops.
"""

from collections.abc import Sequence

from lockd.core.changes.founding import first_identity, wait_for
from lockd.core.changes.ground import Ground
from lockd.core.changes.steps import NotPossible, Progress, Steps
from lockd.core.identities import Identity
from lockd.core.link import Link, VoteTaken
from lockd.core.membership import longest_possible_ttl_ms


def take_votes(ground: Ground, of: Sequence[Link], blank: Sequence[Link] = ()) -> Steps[None]:
    """Take the votes that this agent doesn't have yet; those of blank masters are taken later. Raises
    NotPossible if another agent has taken one since, or if a master was wiped."""
    _refuse_where_others_are_at_it(ground, [link for link in [*of, *blank] if link.taken is not None])
    for link in of:
        if link.taken is None:
            identity = ground.identity_of(link)
            assert identity is not None
            yield from take_vote(ground, link, identity.max_ttl_ms)


def take_vote(ground: Ground, link: Link, max_ttl_ms: int) -> Steps[None]:
    """It gets an id that no other has. So nobody counts its vote any more, and it refuses everything that
    earlier members' agents ask."""
    new = first_identity(ground, link, ground.new_id(), max_ttl_ms)
    silent_since_ns = _silent_since_ns(link)
    yield from ground.write(link, new.fields)
    link.taken = VoteTaken(
        new.members_digest, ground.now_ns() if silent_since_ns is None else silent_since_ns
    )


def _silent_since_ns(link: Link) -> int | None:
    """None: it may have voted just now. Its identity may be of an earlier format, with agents of that
    version."""
    return link.taken.since_ns if link.taken is not None else link.blank_since_ns


def wait_until_silent(ground: Ground, links: Sequence[Link], identities: Sequence[Identity]) -> Progress:
    """Wait until every lease is over that these masters helped to grant before their votes were taken, or
    before they were wiped. identities: all that are known."""
    known_ms = [ground.max_ttl_ms, *(of.longest_ttl_ms for of in identities)]
    longest_ms = longest_possible_ttl_ms(known_ms, len(ground.links))
    return wait_for(ground, [_silent_since_ns(link) for link in links], longest_ms)


def have_all_votes(ground: Ground, links: Sequence[Link], identities: Sequence[Identity]) -> Steps[Progress]:
    """Whether they may get an id that they share now: at one moment this agent had the votes of all, and all
    had been silent for long enough. If so, the votes are forgotten; otherwise it says how long to wait."""
    yield from ground.look_again()
    ground.heed_own_clock()
    _refuse_where_others_are_at_it(ground, links)
    wait = wait_until_silent(ground, links, identities)
    if not wait.remaining_ms:
        _forget_all(ground)
    return wait


def _refuse_where_others_are_at_it(ground: Ground, links: Sequence[Link]) -> None:
    away = [link for link in links if not ground.is_there(link)]
    if away:
        raise NotPossible(f"{ground.reasons(away)}, nothing was changed")
    lost = [link for link in links if link.taken is None or ground.shows(link) != link.taken.members_digest]
    if lost:
        _forget_all(ground)
        raise NotPossible(
            f"another operator has changed {ground.names(lost)} since this began: repeat this when they are "
            "done"
        )


def _forget_all(ground: Ground) -> None:
    for link in ground.links:
        link.taken = None
