"""What is held stays held: it is renewed, and put back where it is missing. If that can't be done, its holder
is told in time."""

from collections.abc import Callable
from functools import partial

from lockd.core.ballots.ballot import Ended, bits
from lockd.core.ballots.extension import Extension, ExtensionOutcome
from lockd.core.ballots.gone import Gone
from lockd.core.ballots.put_back import PutBack
from lockd.core.errors import ErrorWord
from lockd.core.leases import Lease, Loss, Standing, Tenure, on_masters
from lockd.core.notices import Kind
from lockd.core.queues import Queue
from lockd.core.refusals import HELD_OUT, NOT_HELD, UNREAD, expired
from lockd.core.tenures.means import Means
from lockd.core.tenures.returns import Returns
from lockd.core.turns import Job, cancel
from lockd.core.validity import NEVER_NS, NS_PER_MS, deadline_ns, drift_ns
from lockd.core.values import Extended, Refusal, Reply


class Renewals:
    """The renewals of all leases of this host. asked: called with the masters' answer about a tenure that had
    no lease just then."""

    def __init__(
        self,
        means: Means,
        returns: Returns,
        asked: Callable[[Tenure, Extension, bool, int], None],
    ) -> None:
        self._parameters = means.parameters
        self._masters = means.masters
        self._watcher = means.watcher
        self._journal = means.journal
        self._turns = means.turns
        self._votes = means.votes
        self._quorum = means.votes.quorum
        self._timeout_ns = means.votes.timeout_ns
        self._campaigns = means.campaigns
        self._returns = returns
        self._asked = asked
        self._line = means.votes.line
        self._in_line: set[Lease] = set()
        """The leases that are due, and wait for their turn to ask the masters."""
        # Bound once, for the timers of all leases.
        self._look_after = self.look_after

    def granted(self, queue: Queue, lease: Lease, now_ns: int) -> None:
        """It is held from now on, as long as it may be."""
        self._returns.held += 1
        lease.tenure.lease = lease
        self._returns.is_granted(lease, now_ns)
        if not lease.holder.detached:
            queue.tenure, queue.lease = lease.tenure, lease
            self._journal.held(lease, self._masters.clock_lows_ns())
        lease.timer = self._looks_at(lease, self._first_look_ns(lease))

    def _first_look_ns(self, lease: Lease) -> int:
        return lease.lose_at_ns() if lease.holder.detached else lease.renew_at_ns()

    def _next_look_ns(self, lease: Lease) -> int:
        """After a proof. Notices that it is gone may have been true only since the masters answered."""
        if lease.holder.detached:
            return lease.lose_at_ns()
        return lease.t1_ns if lease.tenure.said_gone else lease.renew_again_at_ns()

    def look_after(self, lease: Lease, now_ns: int) -> None:
        """The lease's own timer: renew it, tell of its loss before its deadline, or end it."""
        lease.timer = None
        if lease.standing is Standing.OVER:
            return
        if now_ns >= lease.promised_ns:
            self.run_out(lease, now_ns)
            return
        if lease.let_go_ns is not None and now_ns >= lease.let_go_ns:
            self._returns.end(lease, "expired" if lease.ends_early else "app gone", now_ns)
            return
        next_ns = lease.promised_ns
        if lease.standing is Standing.HELD:
            if now_ns >= lease.lose_at_ns():
                self.lose(lease, *self._why_not_renewed(lease, now_ns), now_ns)
            elif lease.holder.detached:
                next_ns = lease.lose_at_ns()
            else:
                self._renew_if_due(lease, now_ns)
                next_ns = min(
                    now_ns + max(lease.ttl_ms * NS_PER_MS // 10, 10 * NS_PER_MS), lease.lose_at_ns()
                )
        if lease.let_go_ns is not None:
            next_ns = min(next_ns, lease.let_go_ns)
        self._looks_after_at(lease, next_ns)

    def _looks_after_at(self, lease: Lease, when_ns: int) -> None:
        """Unless it is about to look again already."""
        if lease.timer is None:
            lease.timer = self._looks_at(lease, when_ns)

    def _looks_at(self, lease: Lease, when_ns: int) -> Job:
        return self._turns.at(self._whose_turn(lease), when_ns, self._look_after, lease)

    def _whose_turn(self, lease: Lease) -> str:
        """Its end is what others in line wait for."""
        queue = self._campaigns.queues.get(lease.resource)
        return self._campaigns.whose_turn(queue, lease.holder.account)

    def run_out(self, lease: Lease, now_ns: int) -> None:
        """The validity that is known here has ended. A session lock is given back at once. A detached lease
        may have been extended through another agent: it is left on the masters, where it ends by itself."""
        if lease.holder.detached:
            self._returns.over(lease, "expired", now_ns)
            return
        if lease.standing is Standing.HELD and lease.let_go_ns is None:
            # Late: the timer that should have told of the loss in time ran only now.
            by, _ = self._why_not_renewed(lease, now_ns)
            self.lose(lease, by, "its validity ended before it could be renewed", now_ns)
        if lease.is_ours or lease.let_go_ns is not None:
            self._returns.end(lease, "expired", now_ns)
        else:
            # What this agent could not prove may stand for what a living app has through another agent (rule
            # 13).
            self._journal.ended(lease.nonce)
            self._returns.over(lease, "expired", now_ns)

    def look_again(self, lease: Lease, when_ns: int) -> None:
        cancel(lease.timer)
        lease.timer = self._looks_at(lease, when_ns)

    def _why_not_renewed(self, lease: Lease, now_ns: int) -> tuple[Loss, str]:
        if not lease.is_wanted and lease.loss:
            return Loss.NOT_RENEWED, lease.loss
        if now_ns < lease.lose_at_ns() + lease.missing_ns:
            gone_s = lease.missing_ns / 1e9
            return Loss.CLOCKS, f"{gone_s:.3f} s of it are gone: this host was paused, or clocks were set"
        if lease.extension_ttl_ms(lease.ttl_ms, now_ns) == 0:
            return Loss.MAX_HOLD, "it was held for max_hold"
        return Loss.NOT_RENEWED, lease.loss or "it could not be renewed: no quorum"

    def _renew_if_due(self, lease: Lease, now_ns: int, *, let_in: bool = False) -> None:
        extending = lease.tenure.extending
        is_under_way = extending is not None and extending.outcome is not Ended.BROKEN
        if not is_under_way:
            self._renew(lease, now_ns, let_in=let_in)

    def _renew(self, lease: Lease, now_ns: int, *, let_in: bool) -> None:
        tenure = lease.tenure
        ttl_ms = lease.extension_ttl_ms(lease.ttl_ms, now_ns)
        if tenure.said_gone:
            ttl_ms = ttl_ms or lease.proof_ttl_ms(now_ns)
        if tenure.inherited is not None and tenure.inherited.goes_on and not lease.is_wanted:
            lease.loss = UNREAD
        elif ttl_ms and lease.is_wanted:
            if not (let_in or self._line.has_room):
                self._waits_for_its_turn(lease)
                return
            tenure.extending = self.extension(tenure, ttl_ms, now_ns)

    def _waits_for_its_turn(self, lease: Lease) -> None:
        if lease not in self._in_line:
            self._in_line.add(lease)
            self._line.wait(lease.holder.account, lease.lose_at_ns(), partial(self._is_let_in, lease))

    def _is_let_in(self, lease: Lease, now_ns: int) -> None:
        """It may have ended meanwhile."""
        self._in_line.discard(lease)
        if lease.standing is Standing.HELD and lease.tenure.lease is lease:
            self._renew_if_due(lease, now_ns, let_in=True)

    def extension(
        self, tenure: Tenure, ttl_ms: int, now_ns: int, reply: Reply | None = None, *, hides: bool = False
    ) -> Extension:
        """Ask all masters to go on with a tenure whose present validity is proven (rule 2)."""
        timeout_ns = min(self._timeout_ns, ttl_ms * NS_PER_MS // 2)
        extension = Extension(
            tenure.resource, tenure.nonce, ttl_ms=ttl_ms, mark=tenure.mark, last=tenure.proof,
            gone=tenure.gone, quorum=self._quorum, t1_ns=now_ns, until_ns=now_ns + timeout_ns,
            settled=lambda ballot, at_ns: self._extended(tenure, ballot, at_ns), reply=reply,
            before=self._old_nonces(tenure), token=b"" if hides else tenure.shown,
            there_ms=self._there_ms(tenure, now_ns), hides=hides,
        )  # fmt: skip
        extension.missed = lambda ballot, at_ns: self._put_back(tenure, ballot, at_ns)
        extension.gained_ns = self._masters.gained_ns()
        extension.account = tenure.account
        extension.put_to(self._masters.extend(extension))
        tenure.is_asked(extension, ttl_ms, now_ns)
        self._votes.let_in(extension, timeout_ns)
        return extension

    def _old_nonces(self, tenure: Tenure) -> tuple[bytes, ...]:
        """As long as some master may know it by one of them."""
        on_all = tenure.is_ours and tenure.proven.bit_count() == self._parameters.masters
        return () if on_all else tenure.before

    def _there_ms(self, tenure: Tenure, now_ns: int) -> int | None:
        """How long a tenure that was taken over must have been on a master to count there. What the previous
        agent had under way may still be in this host's kernel, and land after another's lease."""
        lease = tenure.lease
        if tenure.is_ours or lease is None:
            return None
        proven_ns = max(tenure.t1_ns, lease.granted_ns) + self._timeout_ns + drift_ns(lease.ttl_ms)
        return max(0, now_ns - proven_ns) // NS_PER_MS

    def _extended(self, tenure: Tenure, extension: Extension, now_ns: int) -> None:
        if tenure.extending is extension:
            tenure.extending = None
        tenure.was_asked(extension)
        lease = tenure.lease
        if lease is None:
            self._extended_between(tenure, extension, now_ns)
        elif lease.standing is not Standing.HELD:
            extension.refused(expired(lease))
        else:
            worked = self._worked(tenure, extension, now_ns)
            self._turns.aside(self._watcher.renewed, lease, worked)
            if worked:
                self._proven(lease, extension, now_ns)
            else:
                self._not_proven(lease, extension, now_ns)

    def _extended_between(self, tenure: Tenure, extension: Extension, now_ns: int) -> None:
        """It has no lease just now: after a proof it is handed on, otherwise given back."""
        if tenure.is_over:
            return
        if worked := self._worked(tenure, extension, now_ns):
            self._prove(tenure, extension, now_ns)
            self._put_back(tenure, extension, now_ns)
        self._asked(tenure, extension, worked, now_ns)

    def _worked(self, tenure: Tenure, extension: Extension, now_ns: int) -> bool:
        """It counts only while the old validity still holds: afterwards another may have had the resource in
        between (rule 2)."""
        agreed = extension.agreed and self._votes.agree_now(extension.confirmed)
        return agreed and now_ns < self._sure_until_ns(tenure)

    def _sure_until_ns(self, tenure: Tenure) -> int:
        """Its deadline if the doubt about clocks turns out at its worst (rule 11d)."""
        return tenure.deadline_ns - self._in_doubt_ns(tenure)

    def _in_doubt_ns(self, tenure: Tenure) -> int:
        cut_ns = self._masters.suspected_cut_ns(tenure.gained_ns, tenure.proven)
        return max(0, cut_ns - tenure.cut_ns) + self._unseen_ns(tenure)

    def _unseen_ns(self, tenure: Tenure) -> int:
        """How long this host may have stood still while no agent was here, for a tenure that was taken over
        and not proven since (rule 11d). If that can't be known, nothing is certain."""
        if tenure.is_ours:
            return 0
        assert tenure.inherited is not None
        gained_ns = self._masters.gained_since_ns(tenure.inherited.clock_lows_ns)
        return NEVER_NS if gained_ns is None else gained_ns

    def _prove(self, tenure: Tenure, extension: Extension, now_ns: int) -> None:
        lease = tenure.lease
        cut_ns = self._masters.suspected_cut_ns(extension.gained_ns, extension.confirmed)
        in_doubt_ns = self._in_doubt_ns(tenure)
        sure_until_ns = tenure.deadline_ns - in_doubt_ns
        lease_until_ns = lease.deadline_ns - in_doubt_ns if lease is not None else 0
        if not tenure.is_ours:
            assert tenure.inherited is not None
            by_ns = tenure.cut(tenure.cut_ns + self._unseen_ns(tenure))
            if lease is not None:
                lease.cut(by_ns, now_ns, 0)
            tenure.inherited.proof = extension.proof
        tenure.prove(extension, sure_until_ns, cut_ns)
        if lease is not None:
            if extension.reply is not None:
                lease.ttl_ms = max(lease.ttl_ms, extension.ttl_ms)
            lease.goes_on(extension, lease_until_ns, cut_ns)

    def _proven(self, lease: Lease, extension: Extension, now_ns: int) -> None:
        tenure = lease.tenure
        self._prove(tenure, extension, now_ns)
        lease.loss = ""
        self.note(lease)
        if tenure.inherited is not None and tenure.inherited.proof is extension.proof:
            self._campaigns.share(self._campaigns.queues[lease.resource], lease, now_ns)
        if extension.reply is not None:
            bound, is_elsewhere = lease.holder.bound, extension.is_elsewhere
            extension.done(Extended(lease.token, lease.fence, lease.deadline_ns, bound, is_elsewhere))
        else:
            self._turns.aside(lease.holder.renewed, lease)
        if lease.let_go_ns is None:
            self.look_again(lease, self._next_look_ns(lease))
        self._put_back(tenure, extension, now_ns)

    def _put_back(self, tenure: Tenure, extension: Extension, now_ns: int) -> None:
        """Rule 2: a tenure should be on all masters. It is put on those that never had it, and only after a
        fresh proof. A tenure that was taken away meanwhile (an UNLOCK or a forced release through another
        agent) can't be proven, and so comes back nowhere."""
        if not extension.missing or extension.proof is not tenure.proof or not tenure.is_held:
            return
        if tenure.inherited is not None and tenure.inherited.proof is extension.proof:
            return  # where the agent before had it is not known: what is missing may have been taken away
        missing, extension.missing = extension.missing, 0
        if now_ns >= self._sure_until_ns(tenure):
            return
        put_back = PutBack(
            tenure.resource, tenure.nonce, ttl_ms=extension.ttl_ms,
            text=on_masters(tenure.terms, tenure.shown, tenure.mark),
            age_ms=(now_ns - tenure.began_ns) // NS_PER_MS,
            gone=tenure.gone, t1_ns=now_ns, until_ns=now_ns + self._timeout_ns,
            settled=lambda ballot, at_ns: self._was_put_back(tenure, ballot, at_ns),
        )  # fmt: skip
        put_back.account = tenure.account
        put_back.put_to(self._masters.put_back(put_back, missing))
        tenure.gone.is_put_on(put_back.asked, now_ns)
        tenure.is_asked(put_back, extension.ttl_ms, now_ns)
        self._votes.watch(put_back, self._timeout_ns)

    def _was_put_back(self, tenure: Tenure, put_back: PutBack, now_ns: int) -> None:
        if not put_back.pending:
            tenure.was_asked(put_back)
        lease = tenure.lease
        if lease is not None and lease.lost_by is Loss.GONE and lease.standing is Standing.LOST:
            self._returns.take_back(tenure, put_back.gone, now_ns)

    def _not_proven(self, lease: Lease, extension: Extension, now_ns: int) -> None:
        tenure = lease.tenure
        refusal = self._votes.no_quorum(extension, extension.confirmed)
        if not tenure.is_ours and extension.agreed and now_ns >= self._sure_until_ns(tenure) > 0:
            reason = "this host was paused, or clocks were set, while no agent ran"
            self.lose(lease, Loss.CLOCKS, reason, now_ns)
            extension.refused(expired(lease))
            return
        lease.loss = f"it could not be renewed: {refusal.text}"
        without = tenure.gone.mask | extension.others
        if without.bit_count() > self._parameters.masters - self._quorum:
            self._is_gone(lease, now_ns)
            extension.refused(expired(lease))
        else:
            extension.refused(refusal)
            if now_ns < lease.spared_until_ns:
                # It was asked before the clocks were understood, and there is little time left. Not at once:
                # if no master is up, that would also settle at once, in a circle.
                again_ns = now_ns + self._parameters.backoff_first_ms * NS_PER_MS
                self.look_again(lease, min(again_ns, lease.lose_at_ns()))

    def _is_gone(self, lease: Lease, now_ns: int) -> None:
        """So many masters lost it, or never had it, that another may have it already: no retry can prove that
        it was held all the time."""
        tenure = lease.tenure
        if lease.said_gone is Kind.RELEASED and tenure.is_ours:
            self._was_released(lease, now_ns)
            return
        if lease.said_gone is Kind.GONE and tenure.is_ours:
            self.was_forced(lease, "an operator released it by force, through another agent", now_ns)
            return
        # Its holder may learn of the loss late. So where the lease still is, it stays until the holder gives
        # it back or its last promise is over: it may be all that keeps others out (rule 12).
        names = ", ".join(self._masters.name(m) for m in bits(tenure.gone.mask))
        reason = f"it is gone from {names}: removed by force, or data was lost"
        self.lose(lease, Loss.GONE, reason, now_ns, gone=True)
        self._returns.take_back(tenure, tenure.gone, now_ns)

    def _was_released(self, lease: Lease, now_ns: int) -> None:
        """It was released through another agent. It is free for all now, and this is not a loss.

        The masters have just said that no quorum has it any more, so any other host may have the resource
        already. That it was given back, and not lost, is only a notice's word. The app that gave it back
        named its token or value, which ends it for all that have that, as in Redis: no promise is left to
        keep (rule 12). If the notice is wrong, this host would be without the lease, as all others are: the
        masters decide what keeps them out, and the notice does not change that.
        """
        lease.loss = "it was released through another agent"
        lease.deadline_ns = min(lease.deadline_ns, now_ns)
        self._turns.aside(lease.holder.lost, lease, lease.loss)
        self._returns.release(lease.tenure, now_ns)
        self._returns.over(lease, "released elsewhere", now_ns)

    def was_forced(self, lease: Lease, reason: str, now_ns: int) -> None:
        """An operator took it away: its holder is told, and it is free for all now."""
        if lease.standing is Standing.HELD:
            self.lose(lease, Loss.FORCED, reason, now_ns, gone=True)
        self._returns.end(lease, "forced", now_ns)

    def clocks_moved(self, now_ns: int) -> None:
        """Masters' clocks have gained on this host's. If a quorum's did, this host stood still, or the clocks
        were set. That is taken off every deadline here (rule 11d), at once: nothing may be said or done by an
        old one. Holders whose deadline has passed are told in their accounts' turns. What is noted then may
        be late: the next agent takes off what clocks have gained since the last note."""
        tenures = [lease.tenure for lease in self._returns.detached.values()]
        tenures += [queue.tenure for queue in self._campaigns.queues.values() if queue.tenure]
        # Thousands were proven by the same masters since the same time.
        cuts_ns: dict[tuple[tuple[int, ...], int], int] = {}
        for tenure in tenures:
            proof = tenure.gained_ns, tenure.proven
            if proof not in cuts_ns:
                cuts_ns[proof] = self._masters.cut_ns(*proof)
            cut_ns = cuts_ns[proof]
            if cut_ns > tenure.cut_ns:
                by_ns = tenure.cut(cut_ns)
                lease = tenure.lease
                if lease is not None:
                    lease.cut(by_ns, now_ns, 2 * self._timeout_ns)
                    cancel(lease.timer)
                    lease.timer = self._turns.at(self._whose_turn(lease), now_ns, self._was_cut, lease)

    def _was_cut(self, lease: Lease, now_ns: int) -> None:
        self.note(lease)
        self.look_after(lease, now_ns)

    def lose(self, lease: Lease, by: Loss, reason: str, now_ns: int, *, gone: bool = False) -> None:
        """Tell the holder, while the lease is still valid if possible (rule 12). gone: it is not known to be
        valid any more."""
        lease.standing = Standing.LOST
        if gone:
            lease.tenure.deadline_ns = min(lease.tenure.deadline_ns, now_ns)
            lease.deadline_ns = min(lease.deadline_ns, now_ns)
        lease.loss = reason
        lease.lost_by = by
        self.note(lease)
        self._turns.aside(self._watcher.lost, lease, reason)
        self._turns.aside(lease.holder.lost, lease, reason)
        # After that: a request that waits for the extension gets this loss as its answer, and need not be
        # told twice.
        self._returns.ask_no_more(lease.tenure, now_ns)

    def extend_unknown(self, resource: bytes, token: bytes, ttl_ms: int, reply: Reply, now_ns: int) -> None:
        """It was granted by another agent, or by this one before a restart. Nothing is known of its validity,
        so only masters that still have it may prove it, and it is put back nowhere."""

        def settled(extension: Extension, at_ns: int) -> None:
            worked = extension.agreed and self._votes.agree_now(extension.confirmed)
            cut_ns = self._masters.suspected_cut_ns(extension.gained_ns, extension.confirmed) if worked else 0
            if worked and at_ns < (ends_ns := deadline_ns(now_ns, extension.lasts_ms) - cut_ns):
                extension.done(Extended(token, None, ends_ns, None))
            elif extension.held_out:
                extension.refused(HELD_OUT)
            elif extension.outcome is ExtensionOutcome.GONE:
                extension.refused(self._not_here(extension))
            else:
                extension.refused(self._votes.no_quorum(extension, extension.confirmed))

        timeout_ns = min(self._timeout_ns, ttl_ms * NS_PER_MS // 2)
        extension = Extension(
            resource, token, ttl_ms=ttl_ms, mark=b"", last=None, gone=Gone(), quorum=self._quorum,
            t1_ns=now_ns, until_ns=now_ns + timeout_ns, settled=settled, reply=reply,
        )  # fmt: skip
        extension.gained_ns = self._masters.gained_ns()
        extension.put_to(self._masters.extend(extension))
        self._votes.watch(extension, timeout_ns)

    def _not_here(self, extension: Extension) -> Refusal:
        """Nobody else can have what a quorum shows. That holds even where some of it was put back, which
        proves nothing to another agent than its own."""
        back = extension.gone.mask
        if (extension.confirmed | back).bit_count() < self._quorum:
            return NOT_HELD
        names = ", ".join(self._masters.name(m) for m in bits(back))
        return Refusal(
            ErrorWord.NOQUORUM, f"it was put back on {names}: only the agent that granted it can extend it"
        )

    def note(self, lease: Lease) -> None:
        """Note what has changed of a lease, for the next agent."""
        if not lease.holder.detached:
            was = lease.tenure.inherited
            known_ns = was.clock_lows_ns if was and was.proof is None else self._masters.clock_lows_ns()
            self._journal.moved(lease, known_ns)
