"""A tenure stays for a while after its last lease, for apps that lock the same resource again and again: then
the next lease costs no round trip (`keep_ms` of a class).

The price: other hosts have to recall it, and while its agent is dead or cut off, nobody gets the resource
before the TTL ends. So it is kept only if it was locked here again shortly before. It is given back after a
recall, at the end of its validity, and when its agent stops. A tenure without a lease is never renewed.
"""

from collections.abc import Callable
from functools import partial

from lockd.core.leases import Lease, Standing, may_be_kept
from lockd.core.queues import Kept, KeptEnd, Queue
from lockd.core.stakes import Stock
from lockd.core.tables import Table
from lockd.core.tenures.means import Means
from lockd.core.tenures.returns import Returns
from lockd.core.turns import cancel
from lockd.core.validity import NS_PER_MS
from lockd.core.values import Reply

_MOST, _FLOOR = 16_384, 64
"""How many are kept at a time, and how many are remembered as just unlocked; and of those each account's
own."""


class Keeping:
    """The tenures that are kept. count: how many. gives_back: gives one without a lease back to the
    masters."""

    def __init__(
        self,
        means: Means,
        returns: Returns,
        gives_back: Callable[[Queue, int], None],
    ) -> None:
        self.count = 0
        self._kept = Stock("kept", _MOST, _FLOOR, 50)
        self._unlocked_ns = Table[bytes, int](_MOST, _FLOOR)
        """When each resource was last unlocked; for those that may be kept, and are not."""
        self._watcher = means.watcher
        self._journal = means.journal
        self._turns = means.turns
        self._campaigns = means.campaigns
        self._returns = returns
        self._gives_back = gives_back

    def is_wanted_again(self, lease: Lease, why: str, now_ns: int) -> bool:
        """This lease is about to end. Returns whether it was asked for so soon after the one before that its
        tenure is kept, if nobody wants it just now. If another host waits for it, the count begins again."""
        holder = lease.holder
        # Hosts that ask for it see on the masters whether its first lease could be.
        if not (may_be_kept(holder) and may_be_kept(lease.tenure.terms)):
            return False
        before_ns = self._unlocked_ns.pop(lease.resource)
        if why != "released" or lease.tenure.turn is not None:
            return False
        self._unlocked_ns.put(holder.account, lease.resource, now_ns)
        return before_ns is not None and holder.asked_ns <= before_ns + holder.keep_ms * NS_PER_MS

    def keeps(self, lease: Lease, now_ns: int, reply: Reply | None) -> bool:
        """Whether its tenure stays. It is noted as given back: the next agent keeps nothing for anybody."""
        queue, tenure = self._campaigns.queues[lease.resource], lease.tenure
        until_ns = self._until_ns(lease, now_ns)
        held = lease.standing is Standing.HELD and tenure.is_ours and tenure.was_proven_lately(now_ns)
        if not held or until_ns <= now_ns or queue.waiters or self._is_full(lease.holder.account):
            return False
        self._returns.lease_over(lease, "released", now_ns)
        queue.lease = tenure.lease = None
        self._unlocked_ns.pop(lease.resource)
        self._journal.ending(tenure)
        self._journal.keep_up()
        kept = Kept(now_ns, lease.holder.label, lease.holder.owner, lease.holder.account, lease.fence)
        self._is_kept(queue, kept, until_ns)
        if reply is not None:
            reply.done(None)
        return True

    def _until_ns(self, lease: Lease, now_ns: int) -> int:
        """Neither past its validity, nor for longer than it may be held (rule 7)."""
        tenure, holder = lease.tenure, lease.holder
        return min(
            now_ns + holder.keep_ms * NS_PER_MS,
            tenure.deadline_ns,
            tenure.began_ns + holder.max_hold_ms * NS_PER_MS,
        )

    def _is_kept(self, queue: Queue, kept: Kept, until_ns: int) -> None:
        queue.kept = kept
        kept.timer = self._turns.at(kept.account, until_ns, partial(self._time_is_up, queue))
        self.count += 1
        self._kept.take(kept.account, 1)

    def _is_full(self, account: str) -> bool:
        return self._kept.refusal(account, 1) is not None

    def _time_is_up(self, queue: Queue, now_ns: int) -> None:
        self.no_more(queue, KeptEnd.TIME, now_ns)
        self._gives_back(queue, now_ns)

    def no_more(self, queue: Queue, why: KeptEnd, now_ns: int) -> None:
        """It is wanted again, or about to be given back."""
        kept, queue.kept = queue.kept, None
        assert kept is not None
        cancel(kept.timer)
        self.count -= 1
        self._kept.give_back(kept.account, 1)
        if why is KeptEnd.LOCKED:
            self._unlocked_ns.put(kept.account, queue.resource, kept.since_ns)
        self._turns.aside(self._watcher.kept_no_more, kept.label, why, now_ns - kept.since_ns)

    def give_back(self, now_ns: int) -> None:
        """Everything that is kept. Not at once: there may be thousands."""
        for queue in self._campaigns.queues.values() if self.count else ():
            if queue.kept is not None:
                cancel(queue.kept.timer)
                queue.kept.timer = self._turns.at(
                    queue.kept.account, now_ns, partial(self._gives_back, queue)
                )
