"""What the next agent on a host makes of the journal of the one before (rule 13).

Of a lease whose process is alive this agent asks the masters to go on with it under a nonce of its own: what
the agent before still had under way misses from then on, and of two agents one goes on. It counts only before
the old deadline, and is put back nowhere. Until then the lease is kept here with what is known of it, so that
nobody else on this host gets the resource. What was not proven is left to its TTL on the masters: the journal
may be an old one, and the lease the living holder's by now.
"""

from collections import Counter
from collections.abc import Callable
from enum import StrEnum

from lockd.core.journal import Ending, Held, Replayed
from lockd.core.leases import Holder, Inherited, Lease, Standing, Tenure
from lockd.core.locks import Locks
from lockd.core.plain_values import is_plain
from lockd.core.values import Bound


class Seen(StrEnum):
    """What is known of a process."""

    ALIVE = "alive"
    DEAD = "dead"
    """There is none of that pid, or it began at another time."""
    UNKNOWN = "unknown"


class Taken(StrEnum):
    """What becomes of a lease of the agent before."""

    GOES_ON = "goes_on"
    """Its process is alive: it is to be proven."""
    UNTOLD = "untold"
    """The same, but nobody knows whether its app ever read of it: kept for as long as it lasts, and beyond
    only when its app names it."""
    FREED = "freed"
    """Its process is dead."""
    LEFT = "left"
    """To its deadline: nobody can say whether it is wanted, or how."""
    OVER = "over"
    """Its deadline has passed: its holder is told."""


class CannotTell(Exception):
    """Nobody can say whether there is such a process."""


def seen(held: Held, started_of: Callable[[Held], int | None]) -> Seen:
    """started_of: when the process of its pid began, in clock ticks since boot; None: there is none. Raises
    CannotTell: a process is dead only where that is certain."""
    if held.pid == 0 or held.started == 0:
        return Seen.UNKNOWN
    try:
        return Seen.ALIVE if started_of(held) == held.started else Seen.DEAD
    except CannotTell:
        return Seen.UNKNOWN


_NONCES_MOST = 16
"""That a lease had with agents that ended before they could have it proven. What is beyond is left to its
deadline."""


def fate_of(held: Held, process: Seen, now_ns: int) -> Taken:
    now = held.now
    if process is Seen.DEAD and not now.outlived:
        return Taken.FREED
    if now_ns >= now.promised_ns:
        return Taken.OVER
    wanted = process is Seen.ALIVE and held.bound is Bound.PROCESS and not now.lost
    if not wanted or len(held.before) >= _NONCES_MOST:
        return Taken.LEFT
    return Taken.GOES_ON if now.told else Taken.UNTOLD


def take_over(
    locks: Locks,
    replayed: Replayed,
    started_of: Callable[[Held], int | None],
    holder_of: Callable[[Held], Holder],
    now_ns: int,
) -> Counter[Taken]:
    """All that the agent before held, or owed the masters. started_of: as in `seen`. holder_of: who is told
    from here on, with the app's token as its `value`; asked only for what is held here."""
    counts: Counter[Taken] = Counter()
    if not replayed.is_whole:
        # It may have been handed on since, under the same tenure: that is the masters' until its TTL.
        counts[Taken.LEFT] = len(replayed.held)
        return counts
    for ending in replayed.endings.values():
        if now_ns < ending.until_ns:
            locks.release_again(ending, now_ns)
    # No agent was told of a lease before it asked for it: who made that up gets nobody kept out.
    true = (held for held in replayed.held.values() if held.now.t1_ns <= now_ns)
    # In the order in which they are asked for.
    for held in sorted(true, key=lambda held: held.now.deadline_ns):
        fate = fate_of(held, seen(held, started_of), now_ns)
        counts[fate] += 1
        if fate is Taken.FREED and held.lock_delay_ms == 0 and held.now.let_go_ns is None:
            locks.release_again(Ending(held.resource, (held.nonce, *held.before), held.now.until_ns), now_ns)
        else:
            _adopt(locks, held, fate, holder_of(held), now_ns)
    return counts


def _adopt(locks: Locks, held: Held, fate: Taken, holder: Holder, now_ns: int) -> None:
    """One whose process is dead is to be proven too, for as long as its lock_delay keeps others out, or the
    TTL that its app has given it. One that is over ends at once, as it would have with its agent: with a word
    to its holder."""
    goes_on = fate not in (Taken.LEFT, Taken.OVER)
    if not goes_on:
        grant = locks.proof_before(holder, held.nonce, held.now.t1_ns, held.now.proven)
        before = held.before
    else:
        grant = locks.proof_before(holder, None, held.now.t1_ns, held.now.proven)
        before = (held.nonce, *held.before)
    tenure = _tenure_as_it_was(Tenure(grant), held)
    tenure.inherited = Inherited(before, held.now.clock_lows_ns, goes_on=goes_on)
    lease = _as_it_was(tenure, holder, held)
    lease.inherited = tenure.inherited
    # Who is dead was told or not: its lock_delay is kept.
    lease.told = held.now.told or fate is Taken.FREED
    lease.outlived = held.now.outlived
    if not goes_on and is_plain(held.token):
        # It may be another's under that nonce by now: what could not be proven is not released (rule 13).
        lease.let_go_ns = None
    # While its process lives nothing else than its app lets it go. Else that is a lock_delay, which runs.
    lease.ends_early = lease.let_go_ns is not None and fate is Taken.GOES_ON
    if not locks.adopt(lease, now_ns):
        if not locks.knows(held.resource, held.token):
            holder.lost(lease, "another lease of it is held on this host")
        holder.ended(lease)
    elif fate is Taken.FREED and lease.let_go_ns is None:
        locks.holder_gone(lease, now_ns)
    elif held.now.lost and not goes_on:
        # The connection that was to bring the news may have ended before it did.
        holder.lost(lease, lease.loss)


def _tenure_as_it_was(tenure: Tenure, held: Held) -> Tenure:
    """It has no fences: how far the agent before came with its block is not known for certain."""
    now = held.now
    tenure.began_ns, tenure.proofs = held.began_ns, now.proofs
    tenure.deadline_ns, tenure.until_ns = now.deadline_ns, now.until_ns
    tenure.gone.mask = tenure.gone.unsure = now.gone
    tenure.shown = held.token
    return tenure


def _as_it_was(tenure: Tenure, holder: Holder, held: Held) -> Lease:
    now = held.now
    lease = Lease(tenure, holder, held.token, held.fence, began_ns=now.t1_ns, now_ns=now.granted_ns)
    lease.ttl_ms = now.ttl_ms
    lease.deadline_ns, lease.promised_ns = now.deadline_ns, now.promised_ns
    lease.hold_until_ns = now.hold_until_ns
    lease.let_go_ns = now.let_go_ns
    if now.lost:
        lease.standing = Standing.LOST
        lease.loss = "it could not be renewed, by the agent before this one"
    return lease
