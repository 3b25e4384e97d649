"""Leases are given back, to the masters and to the next in line."""

from collections.abc import Callable

from lockd.core.ballots.ballot import Ended
from lockd.core.ballots.gone import Gone
from lockd.core.ballots.release import How, Release, ReleaseOutcome, nothing_more
from lockd.core.errors import ErrorWord
from lockd.core.journal import Ending
from lockd.core.leases import Lease, Standing, Tenure
from lockd.core.queues import Queue
from lockd.core.refusals import NOT_HELD, expired, no_quorum, refused_by
from lockd.core.tenures.means import Means
from lockd.core.turns import cancel
from lockd.core.values import Refusal, Reply


class Returns:
    """held: how many leases there are. detached: by resource and token. They are in nobody's way here:
    another host may have extended or released them, so only the masters say whether their resource is free.

    hands_on: whether the next in line has the resource, or will in a moment, under the same tenure.
    """

    def __init__(
        self,
        means: Means,
        hands_on: Callable[[Lease, str, int, Reply | None], bool],
    ) -> None:
        self.detached: dict[tuple[bytes, bytes], Lease] = {}
        self._detached_of: dict[bytes, tuple[Lease, ...]] = {}
        self.held = 0
        self.all_masters = (1 << means.parameters.masters) - 1
        self._parameters = means.parameters
        self._masters = means.masters
        self._watcher = means.watcher
        self._journal = means.journal
        self._turns = means.turns
        self._votes = means.votes
        self._quorum = means.votes.quorum
        self._timeout_ns = means.votes.timeout_ns
        self._campaigns = means.campaigns
        self._hands_on = hands_on

    def end(self, lease: Lease, why: str, now_ns: int, reply: Reply | None = None) -> None:
        """Give a lease back. If possible, the next in line gets the resource under the same tenure. Otherwise
        it is given back on every master that may have it, and the next in line tries."""
        if self._hands_on(lease, why, now_ns, reply):
            return
        queue = self._campaigns.queues.get(lease.resource)
        # Many leases may end at once: they wait behind what apps ask now, such as a request in line.
        patient = why in ("app gone", "expired") and not (queue is not None and queue.waiters)
        # Any agent may have extended it by its value since. Each master that told it so keeps the lease, so
        # the quorum that the app of the other agent relies on stays (rule 2).
        how = How.EARLY if why in ("app gone", "expired") and lease.holder.detached else How.TENURE
        self.release(lease.tenure, now_ns, reply, patient=patient, how=how)
        self.over(lease, why, now_ns)

    def release(
        self,
        tenure: Tenure,
        now_ns: int,
        reply: Reply | None = None,
        *,
        patient: bool = False,
        how: How = How.TENURE,
    ) -> None:
        """On every master that may have it. Nobody has the resource under it any more."""
        if not tenure.terms.detached:
            self._journal.ending(tenure)
        if tenure.turn is not None and tenure.turn.recalled_ns is not None:
            self._turns.aside(self._watcher.turn_over, tenure.label, now_ns - tenure.turn.recalled_ns)
        release = Release(
            tenure.resource, tenure.nonce, quorum=self._quorum, t1_ns=now_ns, until_ns=tenure.until_ns,
            settled=self._gave_back, how=how, patient=patient, reply=reply, before=tenure.before,
        )  # fmt: skip
        release.account = tenure.account
        self._leave_place(release, tenure, now_ns)
        release.put_to(self._masters.release(release, tenure.landed))
        if release.how is How.TURN:
            self._line_up_again(release, self.all_masters & ~tenure.landed)
        if reply is None:
            self._votes.charge(release)
        else:
            self._votes.watch(release, self._timeout_ns)

    def _leave_place(self, release: Release, tenure: Tenure, now_ns: int) -> None:
        """If other hosts wait, and a request here does, too."""
        queue = self._campaigns.queues.get(tenure.resource)
        if tenure.turn is None or tenure.before or queue is None or queue.tenure is not tenure:
            return
        if queue.first() is not None and queue.has_patient:
            self._campaigns.waits_for_next_turn(queue, release, now_ns)

    def _line_up_again(self, turn: Release, masters: int) -> None:
        """On masters that never had its tenure. They would call up this host before all others, since its
        place there is from before its turn."""
        if not masters:
            return
        again = Release(
            turn.resource, b"", quorum=1, t1_ns=turn.t1_ns, until_ns=turn.t1_ns + self._timeout_ns,
            settled=nothing_more, how=How.AGAIN,
        )  # fmt: skip
        again.place, again.grace_ms = turn.place, turn.grace_ms
        again.put_to(self._masters.release(again, masters))

    def _gave_back(self, release: Release, now_ns: int) -> None:
        """From now on, or once there can't be anything left to give back, it need not be noted."""
        nonce = release.word
        if release.is_confirmed:
            self._journal.ended(nonce)
        else:
            self._turns.at(release.account, release.until_ns, lambda _now_ns: self._journal.ended(nonce))
        self._answer(release)

    def _answer(self, release: Release) -> None:
        """A release that finds the lease on no quorum means that it was not held all the time: the app must
        know. Masters that are silent are told when they are back, and serve nobody before that. Masters that
        answer with an error serve others meanwhile, and refuse them the resource: where they leave no quorum,
        it is not free, and an app that heard so would be wrong about what others can get."""
        if release.outcome is ReleaseOutcome.NOT_THERE:
            why = "no quorum of masters had it any more: it was removed by force, or data was lost"
            release.refused(Refusal(ErrorWord.EXPIRED, why))
        elif self._parameters.masters - release.erring.bit_count() < self._quorum:
            release.refused(refused_by(release, self._masters))
        else:
            release.done(None)

    def over(self, lease: Lease, why: str, now_ns: int) -> None:
        """The lease is over, and its tenure with it."""
        queue = self._campaigns.queues.get(lease.resource)
        self.lease_over(lease, why, now_ns)
        lease.tenure.is_over = True
        self.ask_no_more(lease.tenure, now_ns)
        lease.tenure.lease = None
        if lease.holder.detached:
            self._is_detached_no_more(lease)
            if queue is not None and queue.rest is not None:
                cancel(queue.rest)
                self._campaigns.rested(queue, now_ns)
        elif queue is not None:
            self.tenure_over(queue, now_ns)

    def is_granted(self, lease: Lease, now_ns: int) -> None:
        """A quorum has it: an earlier detached lease with the same token is on no quorum any more."""
        before = self.detached.get((lease.resource, lease.token))
        if before is not None:
            self.over(before, "expired", now_ns)
        if not lease.holder.detached:
            return
        self.detached[lease.resource, lease.token] = lease
        self._detached_of[lease.resource] = (*self.detached_of(lease.resource), lease)

    def detached_of(self, resource: bytes) -> tuple[Lease, ...]:
        """The detached leases of one resource. Usually there is one: others may have been released
        elsewhere."""
        return self._detached_of.get(resource, ())

    def _is_detached_no_more(self, lease: Lease) -> None:
        del self.detached[lease.resource, lease.token]
        left = tuple(other for other in self._detached_of.pop(lease.resource) if other is not lease)
        if left:
            self._detached_of[lease.resource] = left

    def lease_over(self, lease: Lease, why: str, now_ns: int) -> None:
        """Requests that wait for a ballot about it are told so."""
        lease.standing = Standing.OVER
        self._campaigns.names.slot_over(lease)
        self._campaigns.polls.is_free(lease.resource)
        for ballot in lease.tenure.under_way:
            ballot.refused(expired(lease))
        cancel(lease.timer)
        lease.timer = None
        self.held -= 1
        self._turns.aside(self._watcher.released, lease, why, now_ns)
        self._turns.aside(lease.holder.ended, lease)

    def tenure_over(self, queue: Queue, now_ns: int) -> None:
        """The next in line tries."""
        queue.tenure = queue.lease = None
        if queue.waiters:
            # They have waited for a holder, not for masters; a request whose wait ends in a moment is told
            # so.
            queue.refusal = Refusal(
                ErrorWord.TAKEN, "retry-after=1 held by another on this host until now", 1
            )
        if queue.place is not None:
            self._campaigns.rests_until_told(queue, now_ns)
        else:
            self._campaigns.move_on(queue, now_ns)

    def ask_no_more(self, tenure: Tenure, now_ns: int) -> None:
        """This agent does not go on with it. What is under way is not asked again if its connection breaks or
        its script is gone, and requests that wait for it are told now."""
        under_way, tenure.under_way = tenure.under_way, ()
        for ballot in under_way:
            if ballot.outcome is None:
                ballot.settle(Ended.ABANDONED, now_ns)

    def release_again(self, ending: Ending, now_ns: int) -> None:
        """A release that the previous agent sent, or was about to send, and that no quorum has confirmed."""
        self._journal.still_ending(ending)
        release = Release(
            ending.resource, ending.nonces[0], quorum=self._quorum, t1_ns=now_ns, until_ns=ending.until_ns,
            settled=self._gave_back, patient=True, before=ending.nonces[1:],
        )  # fmt: skip
        release.put_to(self._masters.release(release, self.all_masters))

    def answers(self, resource: bytes, asker: bytes, how: How, masters: int, now_ns: int) -> None:
        """To an agent that has asked for a tenure, through these masters."""
        release = Release(
            resource, b"", quorum=1, t1_ns=now_ns, until_ns=now_ns + self._timeout_ns, settled=nothing_more,
            how=how,
        )  # fmt: skip
        release.place = asker
        release.put_to(self._masters.release(release, masters))

    def release_unknown(self, resource: bytes, token: bytes, reply: Reply, now_ns: int) -> None:
        def settled(release: Release, _now_ns: int) -> None:
            # On fewer masters it may still be held, for an app that believes in it. Nobody tells the masters
            # that were away, so the app has to ask again.
            if release.outcome is ReleaseOutcome.NOT_THERE:
                release.refused(NOT_HELD)
            elif release.deleted and release.is_confirmed:
                self._campaigns.polls.is_free(resource)
                release.done(None)
            else:
                release.refused(no_quorum(release, self._masters, self._parameters.masters))

        # Nothing is kept for masters that are away: it isn't known whether the lease is there, they forget it
        # when its TTL ends, and a late release could hit the next lease for which an app chose the same
        # token.
        release = Release(
            resource, token, quorum=self._quorum, t1_ns=now_ns, until_ns=now_ns + self._timeout_ns,
            settled=settled, how=How.BY_APP, reply=reply,
        )  # fmt: skip
        release.put_to(self._masters.release(release, self.all_masters))
        self._votes.watch(release, self._timeout_ns)

    def take_back(self, tenure: Tenure, gone: Gone, now_ns: int) -> None:
        """It turned out to be gone. Where it was put back since its last proof, it keeps others out for
        nobody. Where it always was, it stays: see `Renewals`."""
        if gone.back:
            release = Release(
                tenure.resource, tenure.nonce, quorum=self._quorum, t1_ns=now_ns, until_ns=tenure.until_ns,
                settled=nothing_more,
            )  # fmt: skip
            release.account = tenure.account
            masters, gone.back = gone.back, 0
            release.put_to(self._masters.release(release, masters))
