"""Leases of one host follow each other under one tenure, without a round trip in between."""

from lockd.core.ballots.ballot import Ballot
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceOutcome, FenceRound
from lockd.core.ballots.release import How
from lockd.core.fences import NEXT_BLOCK
from lockd.core.leases import Holder, Lease, Standing, Tenure
from lockd.core.plain_values import is_plain
from lockd.core.queues import KeptEnd, Queue
from lockd.core.tenures.keeping import Keeping
from lockd.core.tenures.means import Means
from lockd.core.tenures.renewals import Renewals
from lockd.core.tenures.returns import Returns
from lockd.core.validity import NS_PER_MS, deadline_ns, drift_ns
from lockd.core.values import Reply


class HandingOn:
    """The purpose of a tenure. Exclusion between hosts is the tenure's; within the host it is the queue's:
    one lease is over before the next one is given.

    It is handed on without asking only while the tenure's last proof stands. A clock that jumped, a host that
    stood still, a forced release or a master that was restarted stops that until the next proof.
    """

    def __init__(
        self,
        means: Means,
        returns: Returns,
        renewals: Renewals,
        keeping: Keeping,
    ) -> None:
        self._masters = means.masters
        self._watcher = means.watcher
        self._turns = means.turns
        self._journal = means.journal
        self._votes = means.votes
        self._quorum = means.votes.quorum
        self._timeout_ns = means.votes.timeout_ns
        self._min_validity_ns = means.parameters.min_validity_ms * NS_PER_MS
        self._turn_ms = means.parameters.turn_ms
        self._campaigns = means.campaigns
        self._returns = returns
        self._renewals = renewals
        self._keeping = keeping

    def hands_on(self, lease: Lease, why: str, now_ns: int, reply: Reply | None) -> bool:
        """Whether the next in line has the resource now, or will have it after a proof. If not, the tenure
        should be given back. A lease that was lost, or has run out, is not handed on."""
        queue = self._campaigns.queues.get(lease.resource)
        if queue is None or queue.lease is not lease or not self._may_be_handed_on(queue, lease, why, now_ns):
            return False
        self._returns.lease_over(lease, why, now_ns)
        queue.lease = lease.tenure.lease = None
        queue.returning = reply
        self._go_on(queue, now_ns, proven=False)
        return True

    def wanted_again(self, queue: Queue, now_ns: int) -> None:
        """The tenure that was kept."""
        self._keeping.no_more(queue, KeptEnd.LOCKED, now_ns)
        self._go_on(queue, now_ns, proven=False)

    def _may_be_handed_on(self, queue: Queue, lease: Lease, why: str, now_ns: int) -> bool:
        holder = queue.first()
        if holder is None or why not in ("released", "app gone") or lease.standing is not Standing.HELD:
            return False
        return self._may_have(holder, lease.tenure, now_ns)

    def _may_have(self, holder: Holder, tenure: Tenure, now_ns: int) -> bool:
        """A DETACHED lease is on the masters itself, and so is one with a value (rule 4). A tenure that is
        older than its class's max_hold is not handed on any more (rule 7), nor is one whose turn is over."""
        if tenure.turn is not None and tenure.turn.is_over(now_ns):
            return False
        too_old = now_ns >= tenure.began_ns + holder.max_hold_ms * NS_PER_MS
        is_its_own = holder.detached or is_plain(holder.value)
        return tenure.is_ours and not is_its_own and not too_old and now_ns < tenure.deadline_ns

    def _go_on(self, queue: Queue, now_ns: int, *, proven: bool) -> None:
        """It has no lease just now. proven: it was proven a moment ago, so it is not asked a second time.
        After an error of the agent it is given back: nobody else would."""
        try:
            self._goes_on(queue, now_ns, proven)
        except Exception as failure:
            self._turns.fails(failure)
            if queue.tenure is not None and queue.lease is None:
                self.put_down(queue, now_ns)

    def _goes_on(self, queue: Queue, now_ns: int, proven: bool) -> None:
        tenure, holder = queue.tenure, queue.first()
        assert tenure is not None
        if holder is None or not self._may_have(holder, tenure, now_ns):
            self.put_down(queue, now_ns)
        elif not self._stands(tenure, holder, now_ns):
            if proven:
                self.put_down(queue, now_ns)
            else:
                self._ask_again(queue, tenure, holder, now_ns)
        elif not tenure.fences_left:
            self._ask_for_fences(queue, tenure, now_ns)
        else:
            self._hand_to(queue, tenure, holder, now_ns)

    def _stands(self, tenure: Tenure, holder: Holder, now_ns: int) -> bool:
        """It is as its last proof said, and for long enough: two thirds of the wanted TTL are left (otherwise
        it would be renewed at once), and no less than is ever handed out (rule 1). Where renewals are
        refused, the next app's lease would not be renewed either: see `Campaigns._has_fence`."""
        wanted_ns = holder.ttl_ms * NS_PER_MS * 2 // 3 - drift_ns(holder.ttl_ms)
        ends_ns = min(tenure.deadline_ns, deadline_ns(now_ns, holder.ttl_ms))
        if now_ns >= min(tenure.deadline_ns - wanted_ns, ends_ns - self._min_validity_ns):
            return False
        if tenure.shown or not tenure.was_proven_lately(now_ns) or not self._votes.can_renew:
            return False
        return self._nothing_has_happened(tenure, now_ns)

    def _nothing_has_happened(self, tenure: Tenure, now_ns: int) -> bool:
        """As far as can be known, no clock has jumped and this host has not stood still, and the masters that
        proved it are there as before."""
        if self._masters.clocks_in_doubt or tenure.gained_ns is not self._masters.gained_ns():
            return False
        if tenure.said_gone:
            return False
        return self._masters.stand(tenure.proven & ~tenure.gone.mask, tenure.t1_ns, now_ns)

    def _hand_to(self, queue: Queue, tenure: Tenure, holder: Holder, now_ns: int) -> None:
        tenure.is_handed_on(now_ns, self._turn_ms)
        lease = self._campaigns.next_lease(tenure, holder, now_ns)
        self._turns.aside(self._watcher.handed_on, lease)
        reply, queue.returning = queue.returning, None
        self._campaigns.grants(queue, lease, now_ns)
        if reply is not None:
            # The app that gave the last lease back held it all the time.
            reply.done(None)

    # Asking the masters

    def _ask_again(self, queue: Queue, tenure: Tenure, holder: Holder, now_ns: int) -> None:
        """The last lease is over: should this agent die now, the next agent gives the tenure back."""
        tenure.may_last(holder.ttl_ms, now_ns)
        self._journal.ending(tenure)
        queue.asked = self._renewals.extension(tenure, holder.ttl_ms, now_ns, hides=bool(tenure.shown))

    def was_asked(self, tenure: Tenure, extension: Extension, worked: bool, now_ns: int) -> None:
        """The masters' answer about a tenure that has no lease just now."""
        queue = self._campaigns.queues.get(tenure.resource)
        if queue is None or queue.tenure is not tenure:
            return
        if queue.kept is not None and not worked:
            # Its app had asked for this.
            self.put_down(queue, now_ns)
        if queue.asked is not extension:
            return
        queue.asked = None
        if worked:
            self._go_on(queue, now_ns, proven=True)
        else:
            self.put_down(queue, now_ns)

    def _ask_for_fences(self, queue: Queue, tenure: Tenure, now_ns: int) -> None:
        """The next block, from masters that show this tenure (rule 6)."""
        self._journal.ending(tenure)
        self._turns.aside(self._watcher.fence_round)
        proposal = FenceRound(
            tenure.resource, self._campaigns.hint(tenure.resource, now_ns), nonce=tenure.nonce,
            size=NEXT_BLOCK, quorum=self._quorum, t1_ns=now_ns, until_ns=now_ns + self._timeout_ns,
            settled=lambda ballot, at_ns: self._proposed(queue, ballot, at_ns),
        )  # fmt: skip
        proposal.gained_ns, proposal.account = self._masters.gained_ns(), tenure.account
        queue.asked = proposal
        proposal.put_to(self._masters.propose(proposal))
        self._votes.watch(proposal, self._timeout_ns)

    def _proposed(self, queue: Queue, proposal: FenceRound, now_ns: int) -> None:
        tenure = queue.tenure
        if queue.asked is not proposal or tenure is None:
            return
        queue.asked = None
        self._campaigns.saw(proposal, now_ns)
        if proposal.agreed and self._votes.agree_now(proposal.acceptors):
            tenure.has_block(proposal.value, proposal.size)
            self._go_on(queue, now_ns, proven=False)
        elif proposal.outcome is FenceOutcome.OUTBID:
            self._go_on(queue, now_ns, proven=False)
        else:
            self.put_down(queue, now_ns)

    # Giving it back

    def recalled(self, queue: Queue, now_ns: int) -> None:
        """Another host waits for it. Without a lease it is given back at once. Otherwise it is handed on
        until this host's turn is over, which begins with the first recall; further recalls don't matter."""
        tenure = queue.tenure
        assert tenure is not None
        if queue.kept is not None:
            self._keeping.no_more(queue, KeptEnd.RECALLED, now_ns)
        if queue.lease is None and queue.asked is None:
            self.put_down(queue, now_ns, is_wanted=True)
        else:
            tenure.is_recalled(now_ns, self._turn_ms)

    def asked_for(self, queue: Queue, asker: bytes, master: int, now_ns: int) -> None:
        """An agent that doesn't wait asks. A tenure that is only kept is given back, and that agent is told
        after the release; one in use stays in use."""
        if queue.kept is None:
            self._returns.answers(queue.resource, asker, How.USED, 1 << master, now_ns)
            return
        self._keeping.no_more(queue, KeptEnd.RECALLED, now_ns)
        self.put_down(queue, now_ns, is_wanted=True)
        self._returns.answers(queue.resource, asker, How.FREED, self._returns.all_masters, now_ns)

    def doubted(self, queue: Queue, now_ns: int) -> None:
        """A notice says that it was taken away, or given back elsewhere. Nobody else gets it without a later
        proof, and its holder, or those that wait for it here, should know soon."""
        if queue.lease is not None and queue.lease.standing is Standing.HELD:
            self._renewals.look_again(queue.lease, now_ns)

    def put_down(self, queue: Queue, now_ns: int, *, is_wanted: bool = False) -> None:
        """It has no lease, and will not get one under this tenure: the next in line tries. is_wanted: by
        another host."""
        tenure = queue.tenure
        assert tenure is not None
        assert queue.lease is None
        if queue.kept is not None:
            self._keeping.no_more(queue, KeptEnd.GIVEN_BACK, now_ns)
        reply, queue.returning, queue.asked = queue.returning, None, None
        tenure.is_over = True
        patient = reply is None and not queue.waiters and not is_wanted
        self._returns.release(tenure, now_ns, reply, patient=patient)
        self._returns.ask_no_more(tenure, now_ns)
        self._returns.tenure_over(queue, now_ns)

    def broke(self, ballot: Ballot, now_ns: int) -> None:
        """An error of the agent where its answers were counted."""
        queue = None
        if isinstance(ballot, Extension | FenceRound):
            queue = self._campaigns.queues.get(ballot.resource)
        if queue is not None and queue.asked is ballot:
            self.put_down(queue, now_ns)
