"""The agent's rules at work: from LOCK to UNLOCK.

Events come in as methods (`lock`, `unlock`, `extend`, `gone`, and the answers of ballots), each with the
time; what is to be done goes out through `Masters` and `Holder`. A lease lives like this:

    lock ─▶ Queue ─▶ Attempt ──quorum──▶ (FenceRound) ──still valid──▶ Lease ─▶ Extension … ─▶ Release
              ▲          │ no                                            │ can't be proven
              └── rest ◀─┴─▶ Release on all that may have it             └─▶ lost: its holder is told in time
"""

from collections import deque
from collections.abc import Collection

from lockd.core.ballots.attempt import Attempt, AttemptOutcome
from lockd.core.ballots.ballot import Ballot, Ended, bits
from lockd.core.ballots.extension import Extension, ExtensionOutcome
from lockd.core.ballots.fence_round import FenceOutcome, FenceRound
from lockd.core.ballots.gone import Gone
from lockd.core.ballots.put_back import PutBack
from lockd.core.ballots.release import Release, ReleaseOutcome
from lockd.core.errors import ErrorWord
from lockd.core.fences import FenceHints, slot_of
from lockd.core.interfaces import Journal, Masters, Watcher
from lockd.core.journal import Ending, Unkept
from lockd.core.leases import Holder, Lease, Loss, Standing, on_masters, pid_and_uid
from lockd.core.names import Names, same_process
from lockd.core.queues import Queue
from lockd.core.refusals import no_quorum
from lockd.core.timers import Timer, Timers
from lockd.core.validity import NEVER_NS, NS_PER_MS, deadline_ns
from lockd.core.values import Chance, Extended, RedlockParameters, Refusal, Reply

DRAINING = Refusal(
    ErrorWord.DRAINING, "this agent is stopping and grants nothing any more: lock again when it is back"
)
_TIMED_OUT_AT_ONCE = 16
"""When all masters stand still, all that was asked times out together: what else is due wants its turn in
between."""
_SPLIT = Refusal(ErrorWord.TIMEOUT, "several try for it at the same moment, and none of them got it")
_SHIFTED = Refusal(ErrorWord.NOQUORUM, "the masters that vote changed while they were asked")
_UNCERTAIN = Refusal(
    ErrorWord.CLOCK, "the masters' clocks seem to have jumped, or this host stood still: ask again"
)
_TRIED_AGAIN = (_SPLIT, _SHIFTED, _UNCERTAIN)
"""What says of nobody that he holds it, nor of any master that it is missing: it is tried again, also for
those that don't wait, for as long as one try may take."""
_BEHIND_OTHERS = (
    "behind others of its connection, which are not answered yet, or their replies not read: a WAIT wants a "
    "connection of its own"
)
BROKEN = Refusal(ErrorWord.ERR, "the agent failed at this; its log says how")
_WITHDRAWN = Refusal(ErrorWord.NOTHELD, "it was withdrawn: its token was unlocked before it was granted")
_OVER = Refusal(ErrorWord.NOTHELD, "its token was unlocked before: each request wants a token of its own")
_ANOTHERS = Refusal(
    ErrorWord.ERR, "another process has a request of that token: each wants one that nobody else has"
)
_UNPROVEN = Refusal(
    ErrorWord.NOQUORUM, "it is held by the journal of the agent before, and not proven yet: ask again"
)
NOT_HELD = Refusal(ErrorWord.NOTHELD, "no such lease: it ended, or the token is another's")


class Locks:
    """All the resources that somebody on this host holds or waits for."""

    def __init__(
        self,
        parameters: RedlockParameters,
        masters: Masters,
        watcher: Watcher,
        chance: Chance,
        journal: Journal | None = None,
    ) -> None:
        self.timers = Timers()
        self.queues: dict[bytes, Queue] = {}
        self.detached: dict[tuple[bytes, bytes], Lease] = {}
        """By resource and token. They are in nobody's way here: another host may have extended or released
        them, so for these it is the masters who say whether their resource is free."""
        self.draining = False
        self.names = Names()
        self.held = 0
        self.waiting = 0
        self.wall_ahead_ns = 0
        """How far the wall clock is ahead of CLOCK_BOOTTIME: only hints for fences rest on it, and their
        order does not."""
        self._parameters = parameters
        self._quorum = parameters.quorum
        self._timeout_ns = parameters.master_timeout_ms * NS_PER_MS
        self._min_validity_ns = parameters.min_validity_ms * NS_PER_MS
        self._masters = masters
        self._watcher = watcher
        self._chance = chance
        self._journal: Journal = journal or Unkept()
        masters.before_sending = self._journal.keep_up
        self._hints = FenceHints()
        self._running: deque[Ballot] = deque()
        self._sweep: Timer | None = None

    def known_counters(self) -> dict[int, int]:
        """What the masters' fence counters are known to have come to, by slot: whoever forms a cluster anew
        begins from there (rule 6)."""
        return self._hints.seen

    # Asking for a lease

    def lock(self, holder: Holder, now_ns: int, *, ready: bool = True) -> None:
        """An app wants a resource. It is answered by `holder.granted` or `holder.refused`, once.

        ready: what it comes to could be told at once. Else it waits in line from now on, and is passed over
        until `can_be_told`: it would be held, for long perhaps, by one who doesn't know. Only what has a WAIT
        may come before it is ready: a single try has nothing to wait for but that.
        """
        if self.draining:
            self._refuse(holder, DRAINING, now_ns)
            return
        if holder.named and self._is_known(holder, now_ns):
            return
        queue = self.queues.get(holder.resource)
        if queue is None:
            queue = self.queues[holder.resource] = Queue(holder.resource)
        if holder.give_up_ns is None:
            if queue.lease is not None:
                self._refuse(holder, self._held_here(queue.lease, now_ns), now_ns)
                return
            if queue.rest is not None and queue.refusal is not None and queue.refusal not in _TRIED_AGAIN:
                self._refuse(holder, queue.refusal, now_ns)
                return
            queue.joins(holder, None, ready=True)
        else:
            give_up = self.timers.at(holder.give_up_ns, lambda at_ns: self._give_up(queue, holder, at_ns))
            queue.joins(holder, give_up, ready=ready)
        self.waiting += 1
        if holder.named:
            self.names.waits(holder)
        if ready and queue.idle:
            self._try(queue, now_ns)

    def _is_known(self, holder: Holder, now_ns: int) -> bool:
        """A request that is held already gets the same lease, and one that is over or another's is refused
        (rule 4). One that waits already waits twice, and both get what comes."""
        resource, token = holder.resource, holder.value
        _, uid = pid_and_uid(holder.owner)
        lease = self._find(resource, token, now_ns)
        held = lease if lease is not None and _is_held(lease, now_ns) else None
        before = [held.holder] if held is not None else self.names.waiting(resource, token)
        if self.names.over(uid, resource, token, now_ns) is not None:
            self._refuse(holder, _OVER, now_ns)
        elif before and not same_process(before[0], holder):
            self._refuse(holder, _ANOTHERS, now_ns)
        elif held is None or (not held.is_ours and holder.give_up_ns is not None):
            return False
        elif held.is_ours:
            held.shared = True
            holder.granted(held, now_ns)
        else:
            self._refuse(holder, _UNPROVEN, now_ns)
        return True

    def can_be_told(self, holder: Holder, now_ns: int) -> None:
        """What a LOCK that waits comes to could be told at once from now on: it is passed over no more."""
        queue = self.queues.get(holder.resource)
        if queue is not None and queue.passes_over(holder):
            queue.becomes_ready(holder)
            if queue.idle:
                self._try(queue, now_ns)

    def gone(self, holder: Holder, now_ns: int) -> None:
        """The app of a waiting LOCK is gone: it is dropped, and what was tried for it given back."""
        queue = self.queues.get(holder.resource)
        if queue is not None and holder in queue.waiters:
            if holder.named:
                self.names.waits_no_more(holder)
            self._leave(queue, holder, now_ns)

    def _give_up(self, queue: Queue, holder: Holder, now_ns: int) -> None:
        refusal = queue.refusal
        waited_ms = (now_ns - holder.asked_ns) // NS_PER_MS
        if queue.passes_over(holder):
            # Neither a holder nor masters kept it from being granted, as far as it came.
            refusal = Refusal(ErrorWord.TIMEOUT, f"waited {waited_ms} ms {_BEHIND_OTHERS}")
        elif queue.lease is not None or (refusal is not None and refusal.code is ErrorWord.TAKEN):
            refusal = Refusal(ErrorWord.TIMEOUT, f"waited {waited_ms} ms, it is still held by another")
        elif refusal in _TRIED_AGAIN:
            refusal = Refusal(refusal.code, f"waited {waited_ms} ms, {refusal.text}")
        elif refusal is None and queue.attempt is not None:
            refusal = no_quorum(queue.attempt, self._masters, self._parameters.masters)
        self._refuse(
            holder, refusal or Refusal(ErrorWord.NOQUORUM, f"waited {waited_ms} ms without an answer"), now_ns
        )
        self._leave(queue, holder, now_ns)

    def _leave(self, queue: Queue, holder: Holder, now_ns: int) -> None:
        self.timers.cancel(queue.leaves(holder))
        self.waiting -= 1
        if queue.tried_for is holder:
            self._abandon(queue, now_ns)
        self._move_on(queue, now_ns)

    def _abandon(self, queue: Queue, now_ns: int) -> None:
        """Nobody wants what this attempt may still bring: it is given back wherever it may have landed
        (rule 3)."""
        attempt = queue.attempt
        assert attempt is not None
        queue.attempt = queue.tried_for = None
        attempt.outcome = Ended.ABANDONED
        self._give_back(attempt, now_ns)

    def _move_on(self, queue: Queue, now_ns: int) -> None:
        """Try for the next in line. With the last who is ready the campaign ends, and a queue that nobody
        stands in is forgotten."""
        if queue.first() is None:
            self.timers.cancel(queue.rest)
            queue.rest = None
            if queue.idle:
                queue.tries, queue.refusal = 0, None
                if not queue.waiters:
                    del self.queues[queue.resource]
        elif queue.idle:
            self._try(queue, now_ns)

    def _try(self, queue: Queue, now_ns: int) -> None:
        holder = queue.first()
        assert holder is not None
        queue.tries += 1
        voting = self._masters.voting()
        if voting.bit_count() < self._quorum:
            self._turned_down(queue, self._no_voters(voting), now_ns)
            return
        timeout_ns = min(self._timeout_ns, holder.ttl_ms * NS_PER_MS // 2)
        queue.tried_for = holder
        attempt = queue.attempt = Attempt(
            holder, queue.resource, nonce=self._chance.nonce(), ttl_ms=holder.ttl_ms,
            hint=self._hint(queue.resource, now_ns), quorum=self._quorum, t1_ns=now_ns,
            until_ns=now_ns + timeout_ns, settled=self._tried,
        )  # fmt: skip
        attempt.gained_ns = self._masters.gained_ns()
        attempt.put_to(self._masters.acquire(attempt))
        self._watch(attempt, timeout_ns)

    def _no_voters(self, voting: int) -> Refusal:
        reasons = " ".join(
            self._masters.why_not(m) for m in range(self._parameters.masters) if not voting >> m & 1
        )
        only_clocks = (voting | self._masters.barred_by_clock()).bit_count() >= self._quorum
        if only_clocks and self._masters.clocks_in_doubt:
            return _UNCERTAIN
        return Refusal(ErrorWord.CLOCK if only_clocks else ErrorWord.NOQUORUM, reasons)

    def _hint(self, resource: bytes, now_ns: int) -> int:
        wall_us = (now_ns + self.wall_ahead_ns) // 1000
        return self._hints.next(slot_of(resource), wall_us, self._masters.clock_us(now_ns))

    def _watch(self, ballot: Ballot, timeout_ns: int) -> None:
        """See to it that a ballot settles in time (rule 5). Nearly all have the same limit, so a queue does
        for those."""
        if not ballot.pending:
            # Nobody was asked: it is settled at once, but not before its owner knows of it.
            timeout_ns = 0
        if timeout_ns < self._timeout_ns:
            self.timers.at(ballot.t1_ns + timeout_ns, lambda at_ns: self._time_out(ballot, at_ns))
            return
        self._running.append(ballot)
        if self._sweep is None:
            self._sweep = self.timers.at(ballot.t1_ns + timeout_ns, self._sweep_up)

    def _sweep_up(self, now_ns: int) -> None:
        running, self._sweep = self._running, None
        try:
            for _ in range(_TIMED_OUT_AT_ONCE):
                if not running or running[0].t1_ns + self._timeout_ns > now_ns:
                    break
                self._time_out(running.popleft(), now_ns)
            while running and running[0].outcome is not None:
                running.popleft()
        finally:
            # Also after a mistake of ours: the others' time goes on.
            if running and self._sweep is None:
                due_ns = max(now_ns, running[0].t1_ns + self._timeout_ns)
                self._sweep = self.timers.at(due_ns, self._sweep_up)

    def _time_out(self, ballot: Ballot, now_ns: int) -> None:
        try:
            ballot.time_out(now_ns)
        except Exception:
            self.broke(ballot, now_ns)
            raise

    def _tried(self, attempt: Attempt, now_ns: int) -> None:
        queue = self.queues[attempt.resource]
        masters_us = self._masters.clock_us(now_ns)
        # Mostly they have all named the same.
        for value in set(attempt.fences):
            self._hints.saw(attempt.slot, value, masters_us)
        if attempt.agreed and self._agree_now(attempt.yes):
            fence = attempt.agreed_fence()
            if fence is None:
                self._second_round(attempt, now_ns)
            else:
                self._grant(queue, attempt, fence, now_ns)
            return
        if attempt.outcome is AttemptOutcome.TAKEN:
            retry_ms = attempt.retry_after_ms()
            refusal = Refusal(ErrorWord.TAKEN, f"retry-after={retry_ms} held by another", retry_ms)
        elif attempt.outcome is AttemptOutcome.SPLIT:
            refusal = _SPLIT
        else:
            refusal = self._no_quorum(attempt, attempt.yes)
        self._failed(queue, attempt, refusal, now_ns)

    def _no_quorum(self, ballot: Attempt | FenceRound | Extension, voters: int) -> Refusal:
        """Why no quorum has agreed. No fault of the masters' where they changed meanwhile, or where their
        clocks have moved, which is understood in a moment (rule 11d)."""
        if ballot.agreed and not self._agree_now(voters):
            return _SHIFTED
        may_vote = self._masters.voting() | self._masters.barred_by_clock()
        if ballot.gained_ns is not self._masters.gained_ns() and may_vote.bit_count() >= self._quorum:
            return _UNCERTAIN
        return no_quorum(ballot, self._masters, self._parameters.masters)

    def _agree_now(self, voters: int) -> bool:
        """Rule 8, when votes are counted: a quorum of these vote together with one another still. One may
        have answered before this agent learned that another machine was admitted in its place, and the
        others after."""
        return (voters & self._masters.agreeing).bit_count() >= self._quorum

    def _second_round(self, attempt: Attempt, now_ns: int) -> None:
        """The masters named different fences: have one accepted by a quorum (rule 6)."""
        self._watcher.fence_round()
        timeout_ns = min(self._timeout_ns, attempt.ttl_ms * NS_PER_MS // 2)
        proposal = FenceRound(
            attempt, self._hint(attempt.resource, now_ns), quorum=self._quorum, t1_ns=now_ns,
            until_ns=now_ns + timeout_ns, settled=self._proposed,
        )  # fmt: skip
        proposal.gained_ns = attempt.gained_ns
        proposal.put_to(self._masters.propose(proposal))
        self._watch(proposal, timeout_ns)

    def _proposed(self, proposal: FenceRound, now_ns: int) -> None:
        attempt = proposal.attempt
        queue = self.queues.get(attempt.resource)
        if queue is None or queue.attempt is not attempt:
            return
        masters_us = self._masters.clock_us(now_ns)
        self._hints.saw(attempt.slot, proposal.value, masters_us)
        self._hints.saw_counter(attempt.slot, proposal.highest, masters_us)
        if proposal.agreed and self._agree_now(proposal.acceptors):
            self._grant(queue, attempt, proposal.value, now_ns)
        elif proposal.outcome is FenceOutcome.OUTBID and now_ns < self._ends_ns(attempt, 0):
            self._second_round(attempt, now_ns)
        else:
            self._failed(queue, attempt, self._no_quorum(proposal, proposal.acceptors), now_ns)

    def _ends_ns(self, attempt: Attempt, cut_ns: int) -> int:
        """Until then what it brought may be handed out: it can be relied upon for a while yet."""
        return deadline_ns(attempt.t1_ns, attempt.ttl_ms) - cut_ns - self._min_validity_ns

    def _too_late(self, attempt: Attempt, now_ns: int) -> Refusal:
        """Where only a doubt about the clocks makes it so, those that can end it are asked (rule 11d)."""
        if now_ns < self._ends_ns(attempt, 0):
            return _UNCERTAIN
        late_ms = (now_ns - attempt.t1_ns) // NS_PER_MS
        return Refusal(
            ErrorWord.NOQUORUM, f"the masters took {late_ms} ms, too long for a ttl of {attempt.ttl_ms} ms"
        )

    def _grant(self, queue: Queue, attempt: Attempt, fence: int, now_ns: int) -> None:
        # Rule 1, at the instant of answering. What this host stood still since it was asked for comes off it
        # (rule 11d).
        cut_ns = self._masters.suspected_cut_ns(attempt.gained_ns, attempt.yes)
        if now_ns >= self._ends_ns(attempt, cut_ns):
            self._failed(queue, attempt, self._too_late(attempt, now_ns), now_ns)
            return
        holder = queue.tried_for
        assert holder is not None
        self.timers.cancel(queue.leaves(holder))
        self.waiting -= 1
        self.held += 1
        queue.attempt = queue.tried_for = None
        queue.tries = 0
        queue.refusal = None
        lease = Lease(attempt, holder, fence, now_ns, cut_ns)
        if holder.detached:
            self._keep_detached(lease, now_ns)
        else:
            queue.lease = lease
            self._journal.held(lease, self._masters.clock_lows_ns())
        lease.timer = self.timers.at(self._first_look_ns(lease), lambda at_ns: self._look_after(lease, at_ns))
        self._watcher.granted(lease, now_ns - holder.asked_ns)
        holder.granted(lease, now_ns)
        if holder.named:
            self._share(queue, lease, now_ns)
        if holder.detached:
            self._turned_down(queue, self._held_here(lease, now_ns), now_ns)
        elif queue.waiters:
            self._refuse_the_impatient(queue, self._held_here(lease, now_ns), now_ns, now_ns)

    def _share(self, queue: Queue, lease: Lease, now_ns: int) -> None:
        """All requests of its name get it."""
        self.names.waits_no_more(lease.holder)
        for holder in self.names.waiting(lease.resource, lease.token):
            self.timers.cancel(queue.leaves(holder))
            self.waiting -= 1
            self.names.waits_no_more(holder)
            lease.shared = True
            holder.granted(lease, now_ns)

    def _keep_detached(self, lease: Lease, now_ns: int) -> None:
        """A quorum has granted it: one before it of the same token is on no quorum any more."""
        before = self.detached.get((lease.resource, lease.token))
        if before is not None:
            self._over(before, "expired", now_ns)
        self.detached[lease.resource, lease.token] = lease

    def _failed(self, queue: Queue, attempt: Attempt, refusal: Refusal, now_ns: int) -> None:
        """What the try left is given back before any back-off (rule 3)."""
        queue.attempt = queue.tried_for = None
        self._give_back(attempt, now_ns)
        self._turned_down(queue, refusal, now_ns)

    def _give_back(self, attempt: Attempt, now_ns: int) -> None:
        if attempt.landed:
            until_ns = attempt.t1_ns + attempt.ttl_ms * NS_PER_MS
            release = Release(
                attempt.resource, attempt.nonce, quorum=self._quorum, t1_ns=now_ns, until_ns=until_ns,
                settled=_nothing_more,
            )  # fmt: skip
            release.put_to(self._masters.release(release, attempt.landed))

    def _turned_down(self, queue: Queue, refusal: Refusal, now_ns: int) -> None:
        queue.refusal = refusal
        again_ns = now_ns + self._back_off_ns(queue.tries, refusal)
        one_try_ago_ns = again_ns - self._timeout_ns
        self._refuse_the_impatient(
            queue, refusal, now_ns, one_try_ago_ns if refusal in _TRIED_AGAIN else now_ns
        )
        if queue.first() is not None:
            queue.rest = self.timers.at(again_ns, lambda at_ns: self._rested(queue, at_ns))
        else:
            self._move_on(queue, now_ns)

    def _rested(self, queue: Queue, now_ns: int) -> None:
        queue.rest = None
        self._try(queue, now_ns)

    def _back_off_ns(self, tries: int, refusal: Refusal) -> int:
        """Exponential, jittered so that two hosts don't meet again and again, and not beyond what the holder
        has left."""
        parameters = self._parameters
        most_ms = min(parameters.backoff_most_ms, parameters.backoff_first_ms << min(tries, 16))
        wait_ns = int(most_ms * NS_PER_MS * (0.5 + self._chance.jitter()))
        if refusal.code is ErrorWord.TAKEN:
            wait_ns = min(wait_ns, int((refusal.retry_after_ms + 1 + self._chance.jitter()) * NS_PER_MS))
        return wait_ns

    def _refuse_the_impatient(self, queue: Queue, refusal: Refusal, now_ns: int, asked_until_ns: int) -> None:
        """Those in line that don't wait share the outcome of the try that they came into."""
        for holder in [w for w in queue.waiters if w.give_up_ns is None and w.asked_ns <= asked_until_ns]:
            queue.leaves(holder)
            self.waiting -= 1
            self._refuse(holder, refusal, now_ns)

    def _refuse(self, holder: Holder, refusal: Refusal, now_ns: int) -> None:
        if holder.named:
            self.names.waits_no_more(holder)
        self._watcher.refused(holder.label, refusal, now_ns - holder.asked_ns)
        holder.refused(refusal)

    def _held_here(self, lease: Lease, now_ns: int) -> Refusal:
        left_ms = max(1, -(-(lease.deadline_ns - now_ns) // NS_PER_MS))
        return Refusal(ErrorWord.TAKEN, f"retry-after={left_ms} held by another on this host", left_ms)

    # Keeping it

    def _first_look_ns(self, lease: Lease) -> int:
        return lease.lose_at_ns() if lease.holder.detached else lease.renew_at_ns()

    def _look_after(self, lease: Lease, now_ns: int) -> None:
        """The lease's own timer: renew it, tell of its loss before its deadline, or end it."""
        lease.timer = None
        if lease.standing is Standing.OVER:
            return
        if now_ns >= lease.promised_ns:
            self._run_out(lease, now_ns)
            return
        if lease.let_go_ns is not None and now_ns >= lease.let_go_ns:
            self._end(lease, "app gone", now_ns)
            return
        next_ns = lease.promised_ns
        if lease.standing is Standing.HELD:
            if now_ns >= lease.lose_at_ns():
                self._lose(lease, *self._why_not_renewed(lease, now_ns), now_ns)
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
            lease.timer = self.timers.at(next_ns, lambda at_ns: self._look_after(lease, at_ns))

    def _run_out(self, lease: Lease, now_ns: int) -> None:
        """The validity that is known here has ended. What a session lock left is given back at once. A
        detached lease may have been extended through another agent: nothing is taken from the masters, where
        it ends by itself."""
        if lease.holder.detached:
            self._over(lease, "expired", now_ns)
            return
        if lease.standing is Standing.HELD and lease.let_go_ns is None:
            # Late: the timer that should have told of it in time ran only now.
            by, _ = self._why_not_renewed(lease, now_ns)
            self._lose(lease, by, "its validity ended before it could be renewed", now_ns)
        if lease.is_ours or lease.let_go_ns is not None:
            self._end(lease, "expired", now_ns)
        else:
            # What this agent could not prove may be another's word for what a living app has (rule 13).
            self._journal.ended(lease.nonce)
            self._over(lease, "expired", now_ns)

    def _look_again(self, lease: Lease, when_ns: int) -> None:
        self.timers.cancel(lease.timer)
        lease.timer = self.timers.at(when_ns, lambda at_ns: self._look_after(lease, at_ns))

    def _why_not_renewed(self, lease: Lease, now_ns: int) -> tuple[Loss, str]:
        if now_ns < lease.lose_at_ns() + lease.missing_ns:
            gone_s = lease.missing_ns / 1e9
            return Loss.CLOCKS, f"{gone_s:.3f} s of it are gone: this host stood still, or clocks were set"
        if lease.extension_ttl_ms(lease.ttl_ms, now_ns) == 0:
            return Loss.MAX_HOLD, "it was held for max_hold"
        return Loss.NOT_RENEWED, lease.loss or "it could not be renewed: no quorum"

    def _renew(self, lease: Lease, now_ns: int) -> None:
        ttl_ms = lease.extension_ttl_ms(lease.ttl_ms, now_ns)
        if ttl_ms and (lease.inherited is None or lease.inherited.goes_on):
            lease.extending = self._extension(lease, ttl_ms, now_ns, None)

    def _extension(self, lease: Lease, ttl_ms: int, now_ns: int, reply: Reply | None) -> Extension:
        """Ask all masters to go on with a lease whose present validity is proven (rule 2)."""
        timeout_ns = min(self._timeout_ns, ttl_ms * NS_PER_MS // 2)
        extension = Extension(
            lease.resource, lease.nonce, ttl_ms=ttl_ms, mark=lease.mark, proof=lease.proof,
            gone=lease.gone, quorum=self._quorum, t1_ns=now_ns, until_ns=now_ns + timeout_ns,
            settled=lambda ballot, at_ns: self._extended(lease, ballot, at_ns), reply=reply,
            before=self._old_nonces(lease), token=lease.token, later=lease.is_ours,
        )  # fmt: skip
        extension.missed = lambda ballot, at_ns: self._put_back(lease, ballot, at_ns)
        extension.gained_ns = self._masters.gained_ns()
        extension.put_to(self._masters.extend(extension))
        self._goes_on(lease, extension, ttl_ms, now_ns)
        self._watch(extension, timeout_ns)
        return extension

    def _old_nonces(self, lease: Lease) -> tuple[bytes, ...]:
        """As long as some master may know it by one."""
        on_all = lease.is_ours and lease.proven.bit_count() == self._parameters.masters
        return () if on_all else lease.before

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
            extension.refused(_expired(lease))
            return
        # Counts only while the old validity still holds: after it another may have had the resource in
        # between (rule 2).
        agreed = extension.agreed and self._agree_now(extension.confirmed)
        worked = agreed and now_ns < self._sure_until_ns(lease)
        self._watcher.renewed(lease, worked)
        if worked:
            self._proven(lease, extension, now_ns)
        else:
            self._not_proven(lease, extension, now_ns)

    def _sure_until_ns(self, lease: Lease) -> int:
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
        sure_until_ns = self._sure_until_ns(lease)
        if not lease.is_ours:
            assert lease.inherited is not None
            lease.cut(lease.cut_ns + self._unseen_ns(lease), now_ns, 0)
            lease.inherited.proof = extension
        lease.prove(extension, sure_until_ns, cut_ns)
        lease.loss = ""
        if extension.reply is not None:
            lease.ttl_ms = max(lease.ttl_ms, extension.ttl_ms)
        self._note(lease)
        if lease.inherited is not None and lease.inherited.proof is extension:
            self._share(self.queues[lease.resource], lease, now_ns)
        if extension.reply is not None:
            extension.done(Extended(lease.token, lease.fence, lease.deadline_ns, lease.holder.bound))
        else:
            lease.holder.renewed(lease)
        if lease.let_go_ns is None:
            self._look_again(lease, self._first_look_ns(lease))
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
        if now_ns >= self._sure_until_ns(lease):
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
        self._watch(put_back, self._timeout_ns)

    def _was_put_back(self, lease: Lease, put_back: PutBack, now_ns: int) -> None:
        if not put_back.pending:
            lease.under_way = tuple(other for other in lease.under_way if other is not put_back)
        if lease.lost_by is Loss.GONE and lease.standing is Standing.LOST:
            self._take_back(lease, put_back.gone, now_ns)

    def _take_back(self, lease: Lease, gone: Gone, now_ns: int) -> None:
        """It turned out to be gone: where it was put back since it was last proven it keeps others out for
        nobody. Where it always was it stays, see `_not_proven`."""
        if gone.back:
            release = Release(
                lease.resource, lease.nonce, quorum=self._quorum, t1_ns=now_ns, until_ns=lease.until_ns,
                settled=_nothing_more,
            )  # fmt: skip
            masters, gone.back = gone.back, 0
            release.put_to(self._masters.release(release, masters))

    def _not_proven(self, lease: Lease, extension: Extension, now_ns: int) -> None:
        refusal = self._no_quorum(extension, extension.confirmed)
        if not lease.is_ours and extension.agreed and now_ns >= self._sure_until_ns(lease) > 0:
            reason = "this host stood still, or clocks were set, while no agent was here"
            self._lose(lease, Loss.CLOCKS, reason, now_ns)
            extension.refused(_expired(lease))
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
            self._lose(lease, Loss.GONE, reason, now_ns, gone=True)
            self._take_back(lease, lease.gone, now_ns)
            extension.refused(_expired(lease))
        else:
            extension.refused(refusal)
            if now_ns < lease.spared_until_ns:
                # It was asked when the clocks were not understood yet, and there is little time left. Not at
                # once: where no master is up, that settles at once too, and would go round.
                self._look_again(lease, now_ns + self._parameters.backoff_first_ms * NS_PER_MS)

    def clocks_moved(self, now_ns: int) -> None:
        """Masters' clocks have gained on this host's: where a quorum's did, it stood still, or they were set.
        That comes off every deadline held here (rule 11d); holders past theirs are told."""
        for lease in [*self.detached.values(), *(q.lease for q in self.queues.values() if q.lease)]:
            cut_ns = self._masters.cut_ns(lease.gained_ns, lease.proven)
            if cut_ns > lease.cut_ns:
                lease.cut(cut_ns, now_ns, 2 * self._timeout_ns)
                self._note(lease)
                # Not at once: there may be thousands.
                self._look_again(lease, now_ns)

    def _lose(self, lease: Lease, by: Loss, reason: str, now_ns: int, *, gone: bool = False) -> None:
        """Tell the holder, while its validity still holds if that is possible (rule 12). gone: that can't be
        said any more."""
        lease.standing = Standing.LOST
        if gone:
            lease.deadline_ns = min(lease.deadline_ns, now_ns)
        lease.loss = reason
        lease.lost_by = by
        self._note(lease)
        self._watcher.lost(lease, reason)
        lease.holder.lost(lease, reason)
        # Behind that: who waits for it is told of the same loss, which need not be told a second time.
        self._ask_no_more(lease, now_ns)

    def _ask_no_more(self, lease: Lease, now_ns: int) -> None:
        """Nothing goes on with it from here: what is under way is not asked again, should its connection
        break or its script be gone, and who waits for it is told now."""
        under_way, lease.under_way = lease.under_way, ()
        for ballot in under_way:
            if ballot.outcome is None:
                ballot.settle(Ended.ABANDONED, now_ns)

    def extend(self, resource: bytes, token: bytes, ttl_ms: int, reply: Reply, now_ns: int) -> None:
        """An app's own EXTEND, of a lease from this agent or another."""
        lease = self._find(resource, token, now_ns)
        if lease is None:
            self._extend_unknown(resource, token, ttl_ms, reply, now_ns)
        elif lease.standing is not Standing.HELD or now_ns >= lease.deadline_ns:
            reply.refused(_expired(lease))
        elif now_ns + NS_PER_MS >= lease.hold_until_ns:
            reply.refused(Refusal(ErrorWord.EXPIRED, "it was held for max_hold and is not extended any more"))
        else:
            ask_ms = lease.extension_ttl_ms(ttl_ms, now_ns)
            if ask_ms:
                self._extension(lease, ask_ms, now_ns, reply)
            elif now_ns < (sure_until_ns := self._sure_until_ns(lease)):
                reply.done(Extended(lease.token, lease.fence, sure_until_ns, lease.holder.bound))
            else:
                reply.refused(_UNCERTAIN)

    def _extend_unknown(self, resource: bytes, token: bytes, ttl_ms: int, reply: Reply, now_ns: int) -> None:
        """Granted by another agent, or by this one before it was restarted: nothing is known of its validity,
        so only masters that still have it may prove it, and it is put back nowhere."""

        def settled(extension: Extension, at_ns: int) -> None:
            worked = extension.agreed and self._agree_now(extension.confirmed)
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
                extension.refused(self._no_quorum(extension, extension.confirmed))

        timeout_ns = min(self._timeout_ns, ttl_ms * NS_PER_MS // 2)
        extension = Extension(
            resource, token, ttl_ms=ttl_ms, mark=b"", proof=None, gone=Gone(), quorum=self._quorum,
            t1_ns=now_ns, until_ns=now_ns + timeout_ns, settled=settled, reply=reply,
        )  # fmt: skip
        extension.gained_ns = self._masters.gained_ns()
        extension.put_to(self._masters.extend(extension))
        self._watch(extension, timeout_ns)

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

    # Giving it back

    def unlock(
        self, resource: bytes, token: bytes, reply: Reply, now_ns: int, *, uid: int | None = None
    ) -> None:
        """An app's UNLOCK. Answered when a quorum has confirmed it, so that from then on anybody gets the
        resource. uid: whose app it is, for whom is remembered what is over (core/names.py)."""
        over = None if uid is None else self.names.over(uid, resource, token, now_ns)
        if over is not None and over.answers:
            over.tell(reply)
            return
        withdrawn = self._withdraw(resource, token, now_ns)
        lease = self._find(resource, token, now_ns)
        requests = [lease.holder] if lease is not None and lease.holder.named else withdrawn
        if requests or lease is None:
            reply = self._remembered(reply, requests, uid, (resource, token), now_ns)
        if lease is None and not withdrawn:
            self._release_unknown(resource, token, reply, now_ns)
        elif lease is None:
            reply.done(None)
        elif _is_held(lease, now_ns):
            self._end(lease, "released", now_ns, reply)
        else:
            reply.refused(_expired(lease))
            self._end(lease, "released", now_ns)

    def _remembered(
        self, reply: Reply, requests: list[Holder], uid: int | None, name: tuple[bytes, bytes], now_ns: int
    ) -> Reply:
        """What is told to this one is told to those who ask again, and no request of that name is granted any
        more: for whose they were, and for who has unlocked them."""
        users = {pid_and_uid(holder.owner)[1] for holder in requests}
        if uid is not None:
            users.add(uid)
        over = self.names.ends(users, *name, now_ns, is_here=bool(requests))
        over.tell(reply)
        return over

    def _withdraw(self, resource: bytes, token: bytes, now_ns: int) -> list[Holder]:
        """The requests of this name that still waited: they are granted no more."""
        waiting = self.names.waiting(resource, token)
        # The last first: else each would be tried for in its turn.
        for holder in reversed(waiting):
            self._refuse(holder, _WITHDRAWN, now_ns)
            self._leave(self.queues[resource], holder, now_ns)
        return waiting

    def holder_gone(self, lease: Lease, now_ns: int) -> None:
        """The process or connection that a lease belonged to is gone: it is free at once, or after its
        class's lock_delay (rule 13)."""
        if lease.standing is Standing.OVER:
            return
        if lease.holder.lock_delay_ms and lease.standing is Standing.HELD:
            lease.let_go_ns = now_ns + lease.holder.lock_delay_ms * NS_PER_MS
            self._note(lease)
            self._look_again(lease, now_ns)
        else:
            self._end(lease, "app gone", now_ns)

    def untold(self, lease: Lease, now_ns: int) -> None:
        """Its app was never told of it, and will ask again: it is free at once (rule 13)."""
        if lease.standing is not Standing.OVER:
            self._end(lease, "app gone", now_ns)

    def cut_off(self, lease: Lease, reason: str, now_ns: int) -> None:
        """Its holder can't be told anything any more, but may be alive and believe in it until the deadline
        that it was last told (rule 12): not renewed, it is given back only then."""
        if lease.standing is Standing.HELD:
            self._lose(lease, Loss.CUT_OFF, reason, now_ns)

    def take_away(self, resource: bytes, nonces: Collection[bytes], reason: str, now_ns: int) -> None:
        """An operator releases leases by force, as the masters name them: their holder, if it is on this
        host, is told."""
        queue = self.queues.get(resource)
        leases = [lease for lease in self.detached.values() if lease.resource == resource]
        if queue is not None and queue.lease is not None:
            leases.append(queue.lease)
        for lease in leases:
            if any(nonce in nonces for nonce in lease.nonces):
                if lease.standing is Standing.HELD:
                    self._lose(lease, Loss.FORCED, reason, now_ns, gone=True)
                self._end(lease, "forced", now_ns)

    def forget(self, resource: bytes, token: bytes, now_ns: int) -> None:
        """The holder of a lost lease knows of it and is done: nothing has to wait for its deadline any
        more."""
        lease = self._find(resource, token, now_ns)
        if lease is not None and lease.standing is Standing.LOST:
            self._end(lease, "released", now_ns)

    def knows(self, resource: bytes, token: bytes) -> bool:
        """Whether this agent granted that lease and has not forgotten it: else an UNLOCK or EXTEND of it asks
        all masters."""
        return self.known(resource, token) is not None

    def known(self, resource: bytes, token: bytes) -> Lease | None:
        """That lease."""
        lease = self.detached.get((resource, token))
        if lease is not None:
            return lease
        queue = self.queues.get(resource)
        return queue.lease if queue is not None and queue.lease and queue.lease.token == token else None

    def knows_request(self, uid: int, resource: bytes, token: bytes, now_ns: int) -> bool:
        """Whether an UNLOCK of that token, which is no lease's here, is answered from here all the same."""
        over = self.names.over(uid, resource, token, now_ns)
        return bool(self.names.waiting(resource, token)) or (over is not None and over.answers)

    def _find(self, resource: bytes, token: bytes, now_ns: int) -> Lease | None:
        """A lease that this agent granted and has not forgotten. A detached one that has run out here is not
        known any more: it may have been extended elsewhere."""
        lease = self.detached.get((resource, token))
        if lease is not None:
            if now_ns < lease.deadline_ns:
                return lease
            self._run_out(lease, now_ns)
            return None
        queue = self.queues.get(resource)
        if queue is None or queue.lease is None or queue.lease.token != token:
            return None
        return queue.lease

    def _end(self, lease: Lease, why: str, now_ns: int, reply: Reply | None = None) -> None:
        """Give a lease back on every master that may have it, and let the next in line try."""

        def settled(release: Release, at_ns: int) -> None:
            if release.is_confirmed:
                self._journal.ended(lease.nonce)
            if reply is not None:
                _answer_release(release, at_ns)

        if not lease.holder.detached:
            self._journal.ending(lease)
        queue = self.queues.get(lease.resource)
        # Of leases of which many may end at once: behind what apps ask now, and that is somebody in line.
        patient = why in ("app gone", "expired") and not (queue is not None and queue.waiters)
        release = Release(
            lease.resource, lease.nonce, quorum=self._quorum, t1_ns=now_ns, until_ns=lease.until_ns,
            settled=settled, patient=patient, reply=reply, before=lease.before,
        )  # fmt: skip
        release.put_to(self._masters.release(release, lease.landed))
        if reply is not None:
            self._watch(release, self._timeout_ns)
        self._over(lease, why, now_ns)

    def _over(self, lease: Lease, why: str, now_ns: int) -> None:
        lease.standing = Standing.OVER
        self._ask_no_more(lease, now_ns)
        self.timers.cancel(lease.timer)
        self.held -= 1
        self._watcher.released(lease, why, now_ns)
        lease.holder.ended(lease)
        queue = self.queues.get(lease.resource)
        if lease.holder.detached:
            del self.detached[lease.resource, lease.token]
            if queue is not None and queue.rest is not None:
                self.timers.cancel(queue.rest)
                self._rested(queue, now_ns)
        elif queue is not None:
            queue.lease = None
            if queue.waiters:
                # They have waited for a holder, not for masters; one whose wait ends in a moment is told so.
                queue.refusal = Refusal(
                    ErrorWord.TAKEN, "retry-after=1 held by another on this host until now", 1
                )
            self._move_on(queue, now_ns)

    def _release_unknown(self, resource: bytes, token: bytes, reply: Reply, now_ns: int) -> None:
        def settled(release: Release, _now_ns: int) -> None:
            if release.deleted:
                release.done(None)
            elif release.outcome is ReleaseOutcome.NOT_THERE:
                release.refused(NOT_HELD)
            else:
                release.refused(no_quorum(release, self._masters, self._parameters.masters))

        # Nothing is kept for masters that are away: whether it is there isn't known, they forget it by its
        # TTL, and what is late could hit the next lease for which an app chose the same token.
        release = Release(
            resource, token, quorum=self._quorum, t1_ns=now_ns, until_ns=now_ns + self._timeout_ns,
            settled=settled, by_app=True, reply=reply,
        )  # fmt: skip
        release.put_to(self._masters.release(release, (1 << self._parameters.masters) - 1))
        self._watch(release, self._timeout_ns)

    # Taking over

    def proof_before(self, holder: Holder, nonce: bytes | None, t1_ns: int, proven: int) -> Attempt:
        """By which masters, and when, a lease was proven for the agent before. nonce: None where this one is
        to go on with it, under a nonce of its own."""
        attempt = Attempt(
            holder, holder.resource, nonce=nonce or self._chance.nonce(), ttl_ms=holder.ttl_ms, hint=0,
            quorum=self._quorum, t1_ns=t1_ns, until_ns=t1_ns, settled=_nothing_is_tried,
        )  # fmt: skip
        attempt.put_to((1 << self._parameters.masters) - 1)
        attempt.yes, attempt.gained_ns = proven, self._masters.gained_ns()
        attempt.outcome = Ended.DONE
        return attempt

    def adopt(self, lease: Lease, now_ns: int) -> bool:
        """A lease of the agent before is looked after from here on, if nothing else is held here under that
        name; see takeover.py."""
        if lease.resource in self.queues:
            return False
        queue = self.queues[lease.resource] = Queue(lease.resource)
        queue.lease = lease
        self.held += 1
        assert lease.inherited is not None
        if lease.inherited.goes_on:
            # Asked once at least, also where its holder ought to have been told of a loss already.
            lease.spared_until_ns = min(lease.deadline_ns, now_ns + 2 * self._timeout_ns)
        self._journal.held(lease, lease.inherited.clock_lows_ns)
        self._watcher.taken_over(lease)
        lease.timer = self.timers.at(now_ns, lambda at_ns: self._look_after(lease, at_ns))
        return True

    def release_again(self, ending: Ending, now_ns: int) -> None:
        """What the agent before gave back, or was about to, without a quorum's word for it."""

        def settled(release: Release, _now_ns: int) -> None:
            if release.is_confirmed:
                self._journal.ended(ending.nonces[0])

        self._journal.still_ending(ending)
        release = Release(
            ending.resource, ending.nonces[0], quorum=self._quorum, t1_ns=now_ns, until_ns=ending.until_ns,
            settled=settled, patient=True, before=ending.nonces[1:],
        )  # fmt: skip
        release.put_to(self._masters.release(release, (1 << self._parameters.masters) - 1))

    def _note(self, lease: Lease) -> None:
        """What has changed of a lease, for the next agent."""
        if not lease.holder.detached:
            was = lease.inherited
            known_ns = was.clock_lows_ns if was and was.proof is None else self._masters.clock_lows_ns()
            self._journal.moved(lease, known_ns)

    # A mistake of ours

    def broke(self, ballot: Ballot, now_ns: int) -> None:
        """This ballot raised where an answer was counted. Its request is refused, what it may have left is
        given back, and it counts nothing more; everybody else goes on."""
        ballot.outcome = Ended.BROKEN
        ballot.refused(BROKEN)
        attempt = ballot.attempt if isinstance(ballot, FenceRound) else ballot
        if not isinstance(attempt, Attempt):
            return
        queue = self.queues.get(attempt.resource)
        if queue is not None and queue.attempt is attempt:
            holder = queue.tried_for
            if holder is not None and holder in queue.waiters:
                self.timers.cancel(queue.leaves(holder))
                self.waiting -= 1
                self._refuse(holder, BROKEN, now_ns)
            self._abandon(queue, now_ns)
            self._move_on(queue, now_ns)

    # Stopping

    def drain(self, now_ns: int) -> None:
        """Grant nothing any more. What is held stays held: its holders are alive, and have it until its
        deadline (rule 13)."""
        self.draining = True
        for queue in list(self.queues.values()):
            for holder, timer in queue.waiters.items():
                self.timers.cancel(timer)
                self.waiting -= 1
                self._refuse(holder, DRAINING, now_ns)
            queue.waiters.clear()
            queue.ready.clear()
            if queue.attempt is not None:
                self._abandon(queue, now_ns)
            self._move_on(queue, now_ns)


def _is_held(lease: Lease, now_ns: int) -> bool:
    return lease.standing is Standing.HELD and now_ns < lease.deadline_ns


def _expired(lease: Lease) -> Refusal:
    return Refusal(ErrorWord.EXPIRED, lease.loss or "its validity has ended")


def _nothing_is_tried(_attempt: Attempt, _now_ns: int) -> None:
    """It was, by another agent."""


def _nothing_more(_release: Release, _now_ns: int) -> None:
    """Nobody waits for this release."""


def _answer_release(release: Release, _now_ns: int) -> None:
    """A release that found the lease nowhere means that it was not held all the time: the app must know."""
    if release.outcome is ReleaseOutcome.NOT_THERE:
        release.refused(
            Refusal(ErrorWord.EXPIRED, "no master had it any more: removed by force, or data was lost")
        )
    else:
        release.done(None)
