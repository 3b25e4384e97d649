"""What the next agent on a host does with the journal of the one before (rule 13).

If a lease's process is alive, this agent asks the masters to go on with the lease under a new nonce. From
then on, commands that the previous agent had under way miss, so only one of the two agents goes on. The
answer counts only before the old deadline, and the lease is put back nowhere. Until then the lease is kept
here as it was noted, so that nobody else on this host gets the resource. A lease that was not proven is left
to its TTL on the masters: the journal may be an old one, and the lease may belong to a living holder by now.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum

from lockd.core.journal import Ending, Held, Replayed
from lockd.core.leases import Holder, Inherited, Lease, Standing, Tenure
from lockd.core.locks import Locks
from lockd.core.plain_values import is_plain
from lockd.core.values import Bound


class Seen(StrEnum):
    """What is known about a process."""

    ALIVE = "alive"
    DEAD = "dead"
    """There is no process with that pid, or it began at another time."""
    UNKNOWN = "unknown"


class Taken(StrEnum):
    """What happens to a lease of the previous agent."""

    GOES_ON = "goes_on"
    """Its process is alive: prove the lease."""
    UNTOLD = "untold"
    """The same, but it is not known whether its app ever read of it. It is kept for as long as it lasts, and
    longer only if its app names it."""
    FREED = "freed"
    """Its process is dead."""
    LEFT = "left"
    """Left to its deadline: nobody can say whether it is wanted, or how."""
    OVER = "over"
    """Its deadline has passed: its holder is told."""


class CannotTell(Exception):
    """Nobody can say whether there is such a process."""


def seen(held: Held, started_of: Callable[[Held], int | None]) -> Seen:
    """started_of: when the process with its pid began, in clock ticks since boot; None: there is none. Raises
    CannotTell: a process is dead only if that is certain."""
    if held.pid == 0 or held.started == 0:
        return Seen.UNKNOWN
    try:
        return Seen.ALIVE if started_of(held) == held.started else Seen.DEAD
    except CannotTell:
        return Seen.UNKNOWN


_NONCES_MOST = 16
"""How many nonces a lease may have from agents that ended before they could prove it. A lease with more is
left to its deadline."""


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
    """Everything that the previous agent held, or owed the masters. started_of: as in `seen`. holder_of: the
    holder to tell from here on, with the app's token as its `value`; called only for leases that are held
    here."""
    counts = Counter[Taken]()
    for _ in taking_over(locks, replayed, started_of, holder_of, lambda: now_ns, counts):
        pass
    return counts


def taking_over(
    locks: Locks,
    replayed: Replayed,
    started_of: Callable[[Held], int | None],
    holder_of: Callable[[Held], Holder],
    now_ns: Callable[[], int],
    counts: Counter[Taken],
) -> Iterator[Lease | None]:
    """The same in steps, for an agent that serves apps meanwhile: what is not taken over yet is still on the
    masters. Each step is one lease, which is given if it may be held here from now on."""
    if not replayed.is_whole:
        # It may have been handed on since, under the same tenure: the masters keep that until its TTL ends.
        counts[Taken.LEFT] = len(replayed.held)
        return
    for ending in replayed.endings.values():
        if now_ns() < ending.until_ns:
            locks.release_again(ending, now_ns())
        yield None
    # No agent was told of a lease before it asked for it: an invented entry keeps nobody out.
    true = (held for held in replayed.held.values() if held.now.t1_ns <= now_ns())
    # In the order in which they were asked for.
    for held in sorted(true, key=lambda held: held.now.deadline_ns):
        at_ns, lease = now_ns(), None
        fate = fate_of(held, seen(held, started_of), at_ns)
        counts[fate] += 1
        if fate is Taken.FREED and held.lock_delay_ms == 0 and held.now.let_go_ns is None:
            locks.release_again(Ending(held.resource, (held.nonce, *held.before), held.now.until_ns), at_ns)
        else:
            lease = _adopt(locks, held, fate, holder_of(held), at_ns)
        yield lease


def _adopt(locks: Locks, held: Held, fate: Taken, holder: Holder, now_ns: int) -> Lease:
    """A lease whose process is dead has to be proven, too, while its lock_delay keeps others out, or for the
    TTL that its app has given it. A lease that is over ends at once, as it would have with its agent, and its
    holder is told."""
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
    # The process is dead, whether it was told or not: its lock_delay is kept.
    lease.told = held.now.told or fate is Taken.FREED
    lease.outlived = held.now.outlived
    if not goes_on and is_plain(held.token):
        # Another may have it under that nonce by now: what could not be proven is not released (rule 13).
        lease.let_go_ns = None
    # While its process lives, only its app gives it back. Otherwise this is a lock_delay, which runs.
    lease.ends_early = lease.let_go_ns is not None and fate is Taken.GOES_ON
    if not locks.adopt(lease, now_ns):
        if not locks.knows(held.resource, held.token):
            holder.lost(lease, "another lease of it is held on this host")
        holder.ended(lease)
    elif fate is Taken.FREED and lease.let_go_ns is None:
        locks.holder_gone(lease, now_ns)
    elif held.now.lost and not goes_on:
        # The connection that should have brought the news may have ended before it did.
        holder.lost(lease, lease.loss)
    return lease


def _tenure_as_it_was(tenure: Tenure, held: Held) -> Tenure:
    """It has no fences: how much of its block the previous agent used is not known for certain."""
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
        lease.loss = "the previous agent could not renew it"
    return lease
