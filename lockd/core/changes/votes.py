"""Taking the votes of all masters, before two of them get one id: for beginning anew and for upgrading
(rule 8).

No lease of before may be relied upon when a new cluster grants its first. Those that have their data may not
be idle meanwhile: another agent may find a quorum with a machine that was replaced since, or another operator
may be at the same with it. So the rule is: *nobody writes an id that two masters share unless each of all N
showed an id that no other has, those that may have voted for a max TTL already, and the others were blank for
as long*. Why it is sound: a lease rests on a quorum, so, where fewer machines than that were replaced, on one
of these N; and that one had voted before its vote was taken, or before it was blank. Of two that are at it at
once, who takes a vote last has it: the other's write finds something else there, and it stops.
"""

from collections.abc import Sequence

from lockd.core.changes.founding import first_identity, wait_for
from lockd.core.changes.ground import Ground
from lockd.core.changes.steps import NotPossible, Progress, Steps
from lockd.core.identities import Identity
from lockd.core.link import Link, VoteTaken
from lockd.core.membership import longest_possible_ttl_ms


def take_votes(ground: Ground, of: Sequence[Link], blank: Sequence[Link] = ()) -> Steps[None]:
    """Of those whose votes this agent hasn't taken yet; the blank ones' are taken later. Raises NotPossible
    where somebody else has taken one since, also by wiping it."""
    _refuse_where_others_are_at_it(ground, [link for link in [*of, *blank] if link.taken is not None])
    for link in of:
        if link.taken is None:
            identity = ground.identity_of(link)
            assert identity is not None
            yield from take_vote(ground, link, identity.max_ttl_ms)


def take_vote(ground: Ground, link: Link, max_ttl_ms: int) -> Steps[None]:
    """It gets an id that no other has: nobody counts its vote any more, and whatever is asked of it by the
    members of before it refuses."""
    new = first_identity(ground, link, ground.new_id(), max_ttl_ms)
    silent_since_ns = _silent_since_ns(link)
    yield from ground.write(link, new.fields)
    link.taken = VoteTaken(
        new.members_digest, ground.now_ns() if silent_since_ns is None else silent_since_ns
    )


def _silent_since_ns(link: Link) -> int | None:
    """None: it may have voted just now, also by an identity of an earlier format, for agents of then."""
    return link.taken.since_ns if link.taken is not None else link.blank_since_ns


def wait_until_silent(ground: Ground, links: Sequence[Link], identities: Sequence[Identity]) -> Progress:
    """Until nothing is relied upon any more that these helped to grant before their votes were taken, or
    before they were wiped. identities: all that are known."""
    known_ms = [ground.max_ttl_ms, *(of.longest_ttl_ms for of in identities)]
    longest_ms = longest_possible_ttl_ms(known_ms, len(ground.links))
    return wait_for(ground, [_silent_since_ns(link) for link in links], longest_ms)


def have_all_votes(ground: Ground, links: Sequence[Link], identities: Sequence[Identity]) -> Steps[Progress]:
    """Whether they may get an id that they share now: at one moment this agent had the votes of all, and all
    had been silent for long enough. If so, nothing of that is kept in mind; else it says how long to wait."""
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
            f"somebody else has changed {ground.names(lost)} since this was begun: do the same again when "
            "they are done"
        )


def _forget_all(ground: Ground) -> None:
    for link in ground.links:
        link.taken = None
