"""What is held is kept: renewed, put back where it is missing, and its holder told in time when that can't be
done."""

from lockd.core.ballots.ballot import Ended, bits
from lockd.core.ballots.extension import Extension, ExtensionOutcome
from lockd.core.ballots.gone import Gone
from lockd.core.ballots.put_back import PutBack
from lockd.core.errors import ErrorWord
from lockd.core.interfaces import Journal, Masters, Watcher
from lockd.core.leases import Lease, Loss, Standing, on_masters
from lockd.core.queues import Queue
from lockd.core.refusals import NOT_HELD, UNREAD, expired
from lockd.core.tenures.campaigns import Campaigns
from lockd.core.tenures.returns import Returns
from lockd.core.tenures.votes import Votes
from lockd.core.timers import Timers
from lockd.core.validity import NEVER_NS, NS_PER_MS, deadline_ns, drift_ns
from lockd.core.values import Extended, RedlockParameters, Refusal, Reply


class Renewals:
    """Of all leases of this host."""

    def __init__(
        self,
        parameters: RedlockParameters,
        masters: Masters,
        watcher: Watcher,
        journal: Journal,
        timers: Timers,
        votes: Votes,
        campaigns: Campaigns,
        returns: Returns,
    ) -> None:
        self._parameters = parameters
        self._masters = masters
        self._watcher = watcher
        self._journal = journal
        self._timers = timers
        self._votes = votes
        self._quorum = votes.quorum
        self._timeout_ns = votes.timeout_ns
        self._campaigns = campaigns
        self._returns = returns

    def granted(self, queue: Queue, lease: Lease, now_ns: int) -> None:
        """It is kept from now on, as long as it may be."""
        self._returns.held += 1
        if lease.holder.detached:
            self._keep_detached(lease, now_ns)
        else:
            queue.lease = lease
            self._journal.held(lease, self._masters.clock_lows_ns())
        lease.timer = self._timers.at(self._first_look_ns(lease), lambda at_ns: self.look_after(lease, at_ns))

    def _keep_detached(self, lease: Lease, now_ns: int) -> None:
        """A quorum has granted it: one before it of the same token is on no quorum any more."""
        before = self._returns.detached.get((lease.resource, lease.token))
        if before is not None:
            self._returns.over(before, "expired", now_ns)
        self._returns.detached[lease.resource, lease.token] = lease

    def _first_look_ns(self, lease: Lease) -> int:
        return lease.lose_at_ns() if lease.holder.detached else lease.renew_at_ns()

    def look_after(self, lease: Lease, now_ns: int) -> None:
        """The lease's own timer: renew it, tell of its loss before its deadline, or end it."""
        lease.timer = None
        if lease.standing is Standing.OVER:
            return
        if now_ns >= lease.promised_ns:
            self.run_out(lease, now_ns)
            return
        if lease.let_go_ns is not None and now_ns >= lease.let_go_ns:
            self._returns.end(lease, "app gone", now_ns)
            return
        next_ns = lease.promised_ns
        if lease.standing is Standing.HELD:
            if now_ns >= lease.lose_at_ns():
                self.lose(lease, *self._why_not_renewed(lease, now_ns), now_ns)
            elif lease.holder.detached:
                next_ns = lease.lose_at_ns()
            else:
                if lease.extending is None or lease.extending.outcome is Ended.BROKEN:
                    self._renew(lease, now_ns)
                next_ns = min(
                    now_ns + max(lease.ttl_ms * NS_PER_MS // 10, 10 * NS_PER_MS), lease.lose_at_ns()
                )
        if lease.let_go_ns is not None:
            next_ns = min(next_ns, lease.let_go_ns)
        if lease.timer is None:
            lease.timer = self._timers.at(next_ns, lambda at_ns: self.look_after(lease, at_ns))

    def run_out(self, lease: Lease, now_ns: int) -> None:
        """The validity that is known here has ended. What a session lock left is given back at once. A
        detached lease may have been extended through another agent: nothing is taken from the masters, where
        it ends by itself."""
        if lease.holder.detached:
            self._returns.over(lease, "expired", now_ns)
            return
        if lease.standing is Standing.HELD and lease.let_go_ns is None:
            # Late: the timer that should have told of it in time ran only now.
            by, _ = self._why_not_renewed(lease, now_ns)
            self.lose(lease, by, "its validity ended before it could be renewed", now_ns)
        if lease.is_ours or lease.let_go_ns is not None:
            self._returns.end(lease, "expired", now_ns)
        else:
            # What this agent could not prove may be another's word for what a living app has (rule 13).
            self._journal.ended(lease.nonce)
            self._returns.over(lease, "expired", now_ns)

    def look_again(self, lease: Lease, when_ns: int) -> None:
        self._timers.cancel(lease.timer)
        lease.timer = self._timers.at(when_ns, lambda at_ns: self.look_after(lease, at_ns))

    def _why_not_renewed(self, lease: Lease, now_ns: int) -> tuple[Loss, str]:
        if not lease.is_wanted and lease.loss:
            return Loss.NOT_RENEWED, lease.loss
        if now_ns < lease.lose_at_ns() + lease.missing_ns:
            gone_s = lease.missing_ns / 1e9
            return Loss.CLOCKS, f"{gone_s:.3f} s of it are gone: this host stood still, or clocks were set"
        if lease.extension_ttl_ms(lease.ttl_ms, now_ns) == 0:
            return Loss.MAX_HOLD, "it was held for max_hold"
        return Loss.NOT_RENEWED, lease.loss or "it could not be renewed: no quorum"

    def _renew(self, lease: Lease, now_ns: int) -> None:
        ttl_ms = lease.extension_ttl_ms(lease.ttl_ms, now_ns)
        if lease.inherited is not None and lease.inherited.goes_on and not lease.is_wanted:
            lease.loss = UNREAD
        elif ttl_ms and lease.is_wanted:
            lease.extending = self.extension(lease, ttl_ms, now_ns, None)

    def extension(self, lease: Lease, ttl_ms: int, now_ns: int, reply: Reply | None) -> Extension:
        """Ask all masters to go on with a lease whose present validity is proven (rule 2)."""
        timeout_ns = min(self._timeout_ns, ttl_ms * NS_PER_MS // 2)
        extension = Extension(
            lease.resource, lease.nonce, ttl_ms=ttl_ms, mark=lease.mark, proof=lease.proof,
            gone=lease.gone, quorum=self._quorum, t1_ns=now_ns, until_ns=now_ns + timeout_ns,
            settled=lambda ballot, at_ns: self._extended(lease, ballot, at_ns), reply=reply,
            before=self._old_nonces(lease), token=lease.token, there_ms=self._there_ms(lease, now_ns),
        )  # fmt: skip
        extension.missed = lambda ballot, at_ns: self._put_back(lease, ballot, at_ns)
        extension.gained_ns = self._masters.gained_ns()
        extension.put_to(self._masters.extend(extension))
        self._goes_on(lease, extension, ttl_ms, now_ns)
        self._votes.watch(extension, timeout_ns)
        return extension

    def _old_nonces(self, lease: Lease) -> tuple[bytes, ...]:
        """As long as some master may know it by one."""
        on_all = lease.is_ours and lease.proven.bit_count() == self._parameters.masters
        return () if on_all else lease.before

    def _there_ms(self, lease: Lease, now_ns: int) -> int | None:
        """Where one that was taken over counts it must have been for so long: what the agent before had under
        way may lie in this host's kernel, and land after another's lease."""
        if lease.is_ours:
            return None
        proven_ns = max(lease.t1_ns, lease.granted_ns) + self._timeout_ns + drift_ns(lease.ttl_ms)
        return max(0, now_ns - proven_ns) // NS_PER_MS

    def _goes_on(self, lease: Lease, ballot: Extension | PutBack, ttl_ms: int, now_ns: int) -> None:
        """It may last this long on some master, whatever becomes of what was asked: a release is worth
        sending until then, to all that were asked."""
        lease.under_way += (ballot,)
        lease.landed |= ballot.asked
        lease.until_ns = max(lease.until_ns, now_ns + ttl_ms * NS_PER_MS)

    def _extended(self, lease: Lease, extension: Extension, now_ns: int) -> None:
        if lease.extending is extension:
            lease.extending = None
        lease.under_way = tuple(other for other in lease.under_way if other is not extension)
        if lease.standing is not Standing.HELD:
            extension.refused(expired(lease))
            return
        # Counts only while the old validity still holds: after it another may have had the resource in
        # between (rule 2).
        agreed = extension.agreed and self._votes.agree_now(extension.confirmed)
        worked = agreed and now_ns < self.sure_until_ns(lease)
        self._watcher.renewed(lease, worked)
        if worked:
            self._proven(lease, extension, now_ns)
        else:
            self._not_proven(lease, extension, now_ns)

    def sure_until_ns(self, lease: Lease) -> int:
        """Its deadline, if what is in doubt about clocks is the worst that it can be (rule 11d)."""
        cut_ns = self._masters.suspected_cut_ns(lease.gained_ns, lease.proven)
        return lease.deadline_ns - max(0, cut_ns - lease.cut_ns) - self._unseen_ns(lease)

    def _unseen_ns(self, lease: Lease) -> int:
        """For how long this host may have stood still while no agent was here, under a lease that was taken
        over and not proven since (rule 11d). Where that can't be known, nothing is sure."""
        if lease.is_ours:
            return 0
        assert lease.inherited is not None
        gained_ns = self._masters.gained_since_ns(lease.inherited.clock_lows_ns)
        return NEVER_NS if gained_ns is None else gained_ns

    def _proven(self, lease: Lease, extension: Extension, now_ns: int) -> None:
        cut_ns = self._masters.suspected_cut_ns(extension.gained_ns, extension.confirmed)
        sure_until_ns = self.sure_until_ns(lease)
        if not lease.is_ours:
            assert lease.inherited is not None
            lease.cut(lease.cut_ns + self._unseen_ns(lease), now_ns, 0)
            lease.inherited.proof = extension
        lease.prove(extension, sure_until_ns, cut_ns)
        lease.loss = ""
        if extension.reply is not None:
            lease.ttl_ms = max(lease.ttl_ms, extension.ttl_ms)
        self.note(lease)
        if lease.inherited is not None and lease.inherited.proof is extension:
            self._campaigns.share(self._campaigns.queues[lease.resource], lease, now_ns)
        if extension.reply is not None:
            extension.done(Extended(lease.token, lease.fence, lease.deadline_ns, lease.holder.bound))
        else:
            lease.holder.renewed(lease)
        if lease.let_go_ns is None:
            self.look_again(lease, self._first_look_ns(lease))
        self._put_back(lease, extension, now_ns)

    def _put_back(self, lease: Lease, extension: Extension, now_ns: int) -> None:
        """Rule 2: a lease wants to be on all masters. It is put on those that never had it, and only behind a
        proof of just now: what somebody took away meanwhile (an UNLOCK or a force-release through another
        agent) can't be proven, and so comes back nowhere."""
        if not extension.missing or extension is not lease.proof or lease.standing is not Standing.HELD:
            return
        if lease.inherited is not None and lease.inherited.proof is extension:
            return  # where the agent before had it is not known: what is missing may have been taken away
        missing, extension.missing = extension.missing, 0
        if now_ns >= self.sure_until_ns(lease):
            return
        put_back = PutBack(
            lease.resource, lease.nonce, ttl_ms=extension.ttl_ms,
            text=on_masters(lease.holder, lease.mark), age_ms=(now_ns - lease.granted_ns) // NS_PER_MS,
            gone=lease.gone, t1_ns=now_ns, until_ns=now_ns + self._timeout_ns,
            settled=lambda ballot, at_ns: self._was_put_back(lease, ballot, at_ns),
        )  # fmt: skip
        put_back.put_to(self._masters.put_back(put_back, missing))
        lease.gone.is_put_on(put_back.asked, now_ns)
        self._goes_on(lease, put_back, extension.ttl_ms, now_ns)
        self._votes.watch(put_back, self._timeout_ns)

    def _was_put_back(self, lease: Lease, put_back: PutBack, now_ns: int) -> None:
        if not put_back.pending:
            lease.under_way = tuple(other for other in lease.under_way if other is not put_back)
        if lease.lost_by is Loss.GONE and lease.standing is Standing.LOST:
            self._returns.take_back(lease, put_back.gone, now_ns)

    def _not_proven(self, lease: Lease, extension: Extension, now_ns: int) -> None:
        refusal = self._votes.no_quorum(extension, extension.confirmed)
        if not lease.is_ours and extension.agreed and now_ns >= self.sure_until_ns(lease) > 0:
            reason = "this host stood still, or clocks were set, while no agent was here"
            self.lose(lease, Loss.CLOCKS, reason, now_ns)
            extension.refused(expired(lease))
            return
        lease.loss = f"it could not be renewed: {refusal.text}"
        without = lease.gone.mask | extension.others
        if without.bit_count() > self._parameters.masters - self._quorum:
            # So many masters lost it, or never had it, that another may have it already: no retry can prove
            # that it was held all the time. Its holder may learn of that late, so where it still is, it stays
            # until the holder gives it back or its last promise is over: it may be all that keeps others out
            # (rule 12).
            names = ", ".join(self._masters.name(m) for m in bits(lease.gone.mask))
            reason = f"it is gone from {names}: removed by force, or data was lost"
            self.lose(lease, Loss.GONE, reason, now_ns, gone=True)
            self._returns.take_back(lease, lease.gone, now_ns)
            extension.refused(expired(lease))
        else:
            extension.refused(refusal)
            if now_ns < lease.spared_until_ns:
                # It was asked when the clocks were not understood yet, and there is little time left. Not at
                # once: where no master is up, that settles at once too, and would go round.
                again_ns = now_ns + self._parameters.backoff_first_ms * NS_PER_MS
                self.look_again(lease, min(again_ns, lease.lose_at_ns()))

    def clocks_moved(self, now_ns: int) -> None:
        """Masters' clocks have gained on this host's: where a quorum's did, it stood still, or they were set.
        That comes off every deadline held here (rule 11d); holders past theirs are told."""
        for lease in [
            *self._returns.detached.values(),
            *(q.lease for q in self._campaigns.queues.values() if q.lease),
        ]:
            cut_ns = self._masters.cut_ns(lease.gained_ns, lease.proven)
            if cut_ns > lease.cut_ns:
                lease.cut(cut_ns, now_ns, 2 * self._timeout_ns)
                self.note(lease)
                # Not at once: there may be thousands.
                self.look_again(lease, now_ns)

    def lose(self, lease: Lease, by: Loss, reason: str, now_ns: int, *, gone: bool = False) -> None:
        """Tell the holder, while its validity still holds if that is possible (rule 12). gone: that can't be
        said any more."""
        lease.standing = Standing.LOST
        if gone:
            lease.deadline_ns = min(lease.deadline_ns, now_ns)
        lease.loss = reason
        lease.lost_by = by
        self.note(lease)
        self._watcher.lost(lease, reason)
        lease.holder.lost(lease, reason)
        # Behind that: who waits for it is told of the same loss, which need not be told a second time.
        self._returns.ask_no_more(lease, now_ns)

    def extend_unknown(self, resource: bytes, token: bytes, ttl_ms: int, reply: Reply, now_ns: int) -> None:
        """Granted by another agent, or by this one before it was restarted: nothing is known of its validity,
        so only masters that still have it may prove it, and it is put back nowhere."""

        def settled(extension: Extension, at_ns: int) -> None:
            worked = extension.agreed and self._votes.agree_now(extension.confirmed)
            cut_ns = self._masters.suspected_cut_ns(extension.gained_ns, extension.confirmed) if worked else 0
            if worked and at_ns < (ends_ns := deadline_ns(now_ns, extension.lasts_ms) - cut_ns):
                extension.done(Extended(token, None, ends_ns, None))
            elif extension.held_out:
                extension.refused(
                    Refusal(
                        ErrorWord.EXPIRED,
                        "it was held for max_hold, or is a session lock: its own agent extends it",
                    )
                )
            elif extension.outcome is ExtensionOutcome.GONE:
                extension.refused(self._not_here(extension))
            else:
                extension.refused(self._votes.no_quorum(extension, extension.confirmed))

        timeout_ns = min(self._timeout_ns, ttl_ms * NS_PER_MS // 2)
        extension = Extension(
            resource, token, ttl_ms=ttl_ms, mark=b"", proof=None, gone=Gone(), quorum=self._quorum,
            t1_ns=now_ns, until_ns=now_ns + timeout_ns, settled=settled, reply=reply,
        )  # fmt: skip
        extension.gained_ns = self._masters.gained_ns()
        extension.put_to(self._masters.extend(extension))
        self._votes.watch(extension, timeout_ns)

    def _not_here(self, extension: Extension) -> Refusal:
        """Nobody else can have what a quorum shows, also where some of it was put back, which proves nothing
        to another agent than its own."""
        back = extension.gone.mask
        if (extension.confirmed | back).bit_count() < self._quorum:
            return NOT_HELD
        names = ", ".join(self._masters.name(m) for m in bits(back))
        return Refusal(
            ErrorWord.NOQUORUM, f"it was put back on {names}: only the agent that granted it extends it"
        )

    def note(self, lease: Lease) -> None:
        """What has changed of a lease, for the next agent."""
        if not lease.holder.detached:
            was = lease.inherited
            known_ns = was.clock_lows_ns if was and was.proof is None else self._masters.clock_lows_ns()
            self._journal.moved(lease, known_ns)
