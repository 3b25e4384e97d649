"""The campaign of a host for a resource. There is one at a time, for the first in line, until somebody is
granted the resource or nobody wants it any more."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from lockd.core.ballots.attempt import Attempt, AttemptOutcome
from lockd.core.ballots.ballot import Ended
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceOutcome, FenceRound
from lockd.core.ballots.gone import Gone
from lockd.core.ballots.release import How, Release, nothing_more
from lockd.core.errors import ErrorWord
from lockd.core.fences import FenceHints, slot_of
from lockd.core.interfaces import Masters, Watcher
from lockd.core.leases import Holder, Lease, Standing, Tenure
from lockd.core.names import Names
from lockd.core.notices import LONGEST_GRACE_MS, Kind, Notice
from lockd.core.plain_values import is_plain
from lockd.core.polls import Polls
from lockd.core.queues import Queue
from lockd.core.refusals import (
    BEHIND_OTHERS,
    RESERVED,
    SHIFTED,
    SPLIT,
    TRIED_AGAIN,
    UNCERTAIN,
    held_here,
    no_quorum,
    waited,
    waited_for_holder,
    waited_in_line,
    waited_ms,
)
from lockd.core.tenures.places import AnswerTime, Place, Recall, RecallEnd
from lockd.core.tenures.votes import Votes
from lockd.core.turns import HOUSE, Job, Turns, cancel
from lockd.core.validity import NEVER_NS, NS_PER_MS, deadline_ns
from lockd.core.values import Chance, RedlockParameters, Refusal, Terms

_SOON_TRIED_AGAIN = (SPLIT, SHIFTED, UNCERTAIN)
_AT_ONCE = 16
"""How many hear the outcome that they share in one step."""

Answer = Callable[[Holder, int], None]


class Campaigns:
    """The campaigns for all resources that requests on this host wait for. waiting: the number of these
    requests.

    granted: called to keep a lease from now on, before its holder is told. unwanted: called for a tenure that
    has no lease just now and that no request waits for any more. wanted_again: called for a tenure that was
    kept. looked_at: called for a lease for which an account waits that didn't before. asks_again: called with
    a request whose name has that lease.
    """

    def __init__(
        self,
        parameters: RedlockParameters,
        masters: Masters,
        watcher: Watcher,
        chance: Chance,
        turns: Turns,
        votes: Votes,
        granted: Callable[[Queue, Lease, int], None],
        unwanted: Callable[[Queue, int], None],
        wanted_again: Callable[[Queue, int], None],
        looked_at: Callable[[Lease, int], None],
        asks_again: Callable[[Holder, Lease, int], None],
    ) -> None:
        self.queues: dict[bytes, Queue] = {}
        self.names = Names()
        self.polls = Polls()
        self.hints = FenceHints()
        self.waiting = 0
        self.wall_ahead_ns = 0
        self._parameters = parameters
        self._min_validity_ns = parameters.min_validity_ms * NS_PER_MS
        self._masters = masters
        self._watcher = watcher
        self._chance = chance
        self._turns = turns
        self._votes = votes
        self._quorum = votes.quorum
        self._timeout_ns = votes.timeout_ns
        self._granted = granted
        self._unwanted = unwanted
        self._wanted_again = wanted_again
        self._looked_at = looked_at
        self._asks_again = asks_again
        self._agent = chance.nonce()[-8:]
        """Tells this agent from other agents whose host has the same name."""
        self._waits_as = b""
        self._answer_time = AnswerTime()

    def joins(self, queue: Queue, holder: Holder, now_ns: int, *, ready: bool) -> None:
        """This request waits in line from now on, or takes part in the next try."""
        give_up = None
        if holder.give_up_ns is not None:
            give_up = self._gives_up_at(queue, holder, holder.give_up_ns)
        queue.joins(holder, give_up, ready=ready)
        self.waiting += 1
        if holder.named:
            self.names.waits(holder)
        if ready:
            self.wake(queue, holder, now_ns)

    def wake(self, queue: Queue, holder: Holder, now_ns: int) -> None:
        """This request in line is ready."""
        if queue.kept is not None:
            self._wanted_again(queue, now_ns)
        elif queue.idle:
            self.try_next(queue, now_ns)
        elif queue.rest is not None and len(queue.accounts) > 1:
            self._goes_on_for_all(queue, now_ns)
        elif queue.lease is not None and queue.is_alone(holder):
            self._looked_at(queue.lease, now_ns)

    def whose_turn(self, queue: Queue | None, holder: str = HOUSE) -> str:
        """What is next for a resource is done in the turn of that account which is served first, of those in
        line and its holder's. In the turn of its holder, or of the first in line, it would wait behind all
        else that they have asked for, and so would the others in line."""
        if queue is None or not queue.accounts:
            return holder
        return self._turns.first_of(queue.accounts if holder == HOUSE else (holder, *queue.accounts))

    def _goes_on_for_all(self, queue: Queue, now_ns: int) -> None:
        """An account has come that may be served before those that were in line."""
        if self.whose_turn(queue) == queue.rest_of:
            return
        until_ns = queue.rest_until_ns
        cancel(queue.rest)
        if until_ns > now_ns:
            self._rests(queue, until_ns)
        else:
            queue.rest = None
            self.try_next(queue, now_ns)

    def _gives_up_at(self, queue: Queue, holder: Holder, when_ns: int) -> Job:
        return self._turns.at(holder.account, when_ns, partial(self._give_up, queue, holder))

    def _give_up(self, queue: Queue, holder: Holder, now_ns: int) -> None:
        """Not before the first try has an outcome: masters that had no time to answer are not down. That
        takes no longer than without a WAIT."""
        if queue.is_leaving(holder):
            return
        heard_ns = holder.asked_ns + self._timeout_ns
        tries_first = queue.refusal is None and queue.attempt is not None and not queue.passes_over(holder)
        if tries_first and now_ns < heard_ns:
            queue.waiters[holder] = self._gives_up_at(queue, holder, heard_ns)
            queue.waits_no_longer(holder)
            return
        self.refuse(holder, self._why_given_up(queue, holder, now_ns), now_ns)
        self.leave(queue, holder, now_ns)

    def _why_given_up(self, queue: Queue, holder: Holder, now_ns: int) -> Refusal:
        refusal = queue.refusal
        ms = waited_ms(holder, now_ns)
        if queue.passes_over(holder):
            # As far as the try came, neither a holder nor a master kept it from being granted.
            refusal = Refusal(ErrorWord.TIMEOUT, f"waited {ms} ms {BEHIND_OTHERS}")
        elif queue.tenure is not None:
            refusal = waited_for_holder(holder, now_ns)
        elif refusal is not None:
            refusal = waited(holder, refusal, now_ns)
        elif queue.rest is not None:
            refusal = waited_in_line(holder, now_ns)
        elif queue.attempt is not None:
            refusal = no_quorum(queue.attempt, self._masters, self._parameters.masters)
        return refusal or Refusal(ErrorWord.NOQUORUM, f"waited {ms} ms without an answer")

    def _leaves(self, queue: Queue, holder: Holder) -> None:
        cancel(queue.leaves(holder))
        self.waiting -= 1

    def answer_all(self, queue: Queue, holders: list[Holder], answer: Answer, now_ns: int) -> None:
        """Their outcome is known. From now on nothing is tried for them, so that none is granted it anew
        (rule 4). One app may have asked thousands of times, so only a few hear it at once."""
        later = holders[_AT_ONCE:]
        if later:
            queue.are_leaving(later)
        for holder in holders[:_AT_ONCE]:
            self._leaves(queue, holder)
            answer(holder, now_ns)
        self.answer_in_turns(later, answer, now_ns)

    def refuse_all(self, queue: Queue, holders: list[Holder], refusal: Refusal, now_ns: int) -> None:
        """Nobody wants any more what is tried for one of them."""
        tried_for = queue.tried_for
        self.answer_all(queue, holders, partial(self._refuse_one, refusal), now_ns)
        if tried_for is not None and (tried_for not in queue.waiters or queue.is_leaving(tried_for)):
            self.abandon(queue, now_ns)
        self.move_on(queue, now_ns)

    def _refuse_one(self, refusal: Refusal, holder: Holder, now_ns: int) -> None:
        self.refuse(holder, refusal, now_ns)

    def answer_in_turns(self, holders: list[Holder], answer: Answer, now_ns: int) -> None:
        """In their accounts' turns, those who still wait by then."""
        of_accounts = dict[str, list[Holder]]()
        for holder in reversed(holders):
            of_accounts.setdefault(holder.account, []).append(holder)
        for account, each in of_accounts.items():
            self._turns.at(account, now_ns, self._answer_next, (each, answer))

    def _answer_next(self, to: tuple[list[Holder], Answer], now_ns: int) -> None:
        """The last of these, and the others in later turns, whatever comes of this one."""
        holders, answer = to
        holder = holders.pop()
        if holders:
            self._turns.at(holder.account, now_ns, self._answer_next, to)
        queue = self.queues.get(holder.resource)
        if queue is not None and holder in queue.waiters:
            self._leaves(queue, holder)
            answer(holder, now_ns)
            self.move_on(queue, now_ns)

    def leave(self, queue: Queue, holder: Holder, now_ns: int) -> None:
        self._leaves(queue, holder)
        if queue.tried_for is holder:
            self.abandon(queue, now_ns)
        self.move_on(queue, now_ns)

    def abandon(self, queue: Queue, now_ns: int) -> None:
        """The result of this attempt is not wanted any more: it is given back wherever it may have landed
        (rule 3)."""
        attempt = queue.attempt
        assert attempt is not None
        queue.attempt = queue.tried_for = None
        attempt.ends(Ended.ABANDONED)
        self._give_back(attempt, How.TENURE, now_ns)

    def is_held(self, queue: Queue, lease: Lease, now_ns: int) -> None:
        """It turned out that it is held on this host, so the tries end."""
        cancel(queue.rest)
        queue.rest, queue.refusal, queue.tries, queue.place, queue.recall = None, None, 0, None, None
        if queue.attempt is not None:
            self.abandon(queue, now_ns)
        self._refuse_the_impatient(queue, held_here(lease, now_ns), now_ns, now_ns)

    def move_on(self, queue: Queue, now_ns: int) -> None:
        """Try for the next in line. When there is no ready request any more, the campaign ends, and an empty
        queue is forgotten."""
        if queue.first() is None:
            cancel(queue.rest)
            queue.rest = None
            if queue.tenure is not None and queue.lease is None and queue.kept is None:
                self._unwanted(queue, now_ns)
            elif queue.idle:
                queue.tries, queue.refusal, queue.place, queue.recall = 0, None, None, None
                if not queue.waiters:
                    del self.queues[queue.resource]
        elif queue.idle:
            self.try_next(queue, now_ns)

    def try_next(self, queue: Queue, now_ns: int) -> None:
        """At once, or when it is this host's turn to ask the masters."""
        if self._votes.line.has_room or self._masters.voting().bit_count() < self._quorum:
            self._try(queue, now_ns)
        else:
            queue.rest_until_ns, queue.rest_of = now_ns, self.whose_turn(queue)
            queue.rest = self._votes.line.wait(
                queue.rest_of, now_ns + self._timeout_ns, partial(self._is_let_in, queue)
            )

    def _is_let_in(self, queue: Queue, now_ns: int) -> None:
        """Unless nobody wants it any more, or something else is waited for: what was let in can't be
        cancelled, and begins in its account's turn."""
        if queue.rest is not None and queue.rest.due is None:
            queue.rest = None
            self._try(queue, now_ns)

    def _try(self, queue: Queue, now_ns: int) -> None:
        holder = queue.first()
        assert holder is not None
        queue.tries += 1
        if queue.place is not None:
            queue.place.tries()
        voting = self._masters.voting()
        if voting.bit_count() < self._quorum:
            self._turned_down(queue, self._no_voters(voting), now_ns)
            return
        timeout_ns = min(self._timeout_ns, holder.ttl_ms * NS_PER_MS // 2)
        token = holder.value or (b"" if holder.detached else self._chance.nonce())
        # If others wait, it will be handed on. If it has a value, any agent may be asked to release it.
        is_shown = holder.detached or len(queue.waiters) == 1 or is_plain(token)
        shown = token if is_shown else b""
        attempt = Attempt(
            holder, queue.resource, nonce=self._chance.nonce(), ttl_ms=holder.ttl_ms,
            hint=self.hint(queue.resource, now_ns), quorum=self._quorum, t1_ns=now_ns,
            until_ns=now_ns + timeout_ns, settled=self._tried, token=token, shown=shown,
        )  # fmt: skip
        queue.attempt, queue.tried_for = attempt, holder
        attempt.gained_ns = self._masters.gained_ns()
        self._takes_its_place(queue, attempt, now_ns)
        attempt.put_to(self._masters.acquire(attempt))
        self._votes.let_in(attempt, timeout_ns)

    def _takes_its_place(self, queue: Queue, attempt: Attempt, now_ns: int) -> None:
        """If a request waits. A single try leaves no place: it would be gone when its turn comes."""
        if queue.place is None:
            if not queue.has_patient:
                self._asks_for_it(queue, attempt, now_ns)
                return
            queue.place = Place(now_ns)
        queue.recall = None
        attempt.place = self._name_of(attempt.terms)
        attempt.waited_us = queue.place.waited_us(now_ns)
        attempt.grace_ms = self._answer_time.grace_ms

    def _asks_for_it(self, queue: Queue, attempt: Attempt, now_ns: int) -> None:
        """If its tenure may be kept, as the masters show, the agent that has it is asked whether it is in
        use."""
        if queue.recall is not None:
            if now_ns >= queue.recall.until_ns:
                return
            queue.recall.freed = 0
        attempt.asks = True
        attempt.place = self._name_of(attempt.terms)

    def was_told(self, notice: Notice, master: int, now_ns: int) -> None:
        """The answer of the agent that has the resource. It is tried for again when a quorum of the masters
        says that it was given back, and refused when one says that it is in use."""
        queue = self.queues.get(notice.resource)
        if queue is None or notice.word != self._agent:
            return
        attempt = queue.attempt
        recall = queue.recall if attempt is None or not attempt.asks else self._recall_of(queue, attempt)
        if recall is None:
            return
        if notice.kind is Kind.USED:
            recall.in_use = True
        else:
            recall.freed |= 1 << master
        if queue.rest is not None and (recall.in_use or recall.freed.bit_count() >= self._quorum):
            cancel(queue.rest)
            queue.rest = None
            if recall.in_use:
                assert queue.refusal is not None
                self._turned_down(queue, queue.refusal, now_ns)
            else:
                self.try_next(queue, now_ns)

    def _recall_of(self, queue: Queue, attempt: Attempt) -> Recall:
        """The question to the agent that has it, which goes on from try to try."""
        if queue.recall is None:
            until_ns = attempt.t1_ns + self._parameters.recall_ms * NS_PER_MS
            queue.recall = Recall(attempt.t1_ns, until_ns)
        return queue.recall

    def _answered(self, queue: Queue, refusal: Refusal, now_ns: int) -> Refusal | None:
        """The refusal for requests that don't wait, once the agent that has the resource has answered, or
        should have. None: not yet."""
        recall = queue.recall
        if recall is None:
            return refusal
        recall.refused = refusal.code is ErrorWord.TAKEN
        if recall.refused and not recall.in_use and now_ns < recall.until_ns:
            return None
        self._recall_ends(queue, RecallEnd.IN_USE if recall.in_use else RecallEnd.SILENT, now_ns)
        if not recall.refused or recall.in_use:
            return refusal
        return replace(refusal, text=f"{refusal.text}, and its agent did not say whether it is in use")

    def _recall_ends(self, queue: Queue, end: RecallEnd, now_ns: int) -> None:
        recall, queue.recall = queue.recall, None
        holder = queue.first()
        if recall is not None and recall.refused and holder is not None:
            self._turns.aside(self._watcher.asked_back, holder.label, end, now_ns - recall.since_ns)

    def _name_of(self, terms: Terms) -> bytes:
        """The name under which this agent waits. All that it asks for is of one host."""
        if not self._waits_as:
            self._waits_as = terms.owner.partition(b" ")[0] + b" " + self._agent
        return self._waits_as

    def waits_for_next_turn(self, queue: Queue, release: Release, now_ns: int) -> None:
        """This host's turn is over, and other requests here wait. With what it gives back it leaves its
        place, and is told when it is first again. If no other host waits, that is at once."""
        queue.place = Place(now_ns)
        assert queue.tenure is not None
        release.how = How.TURN
        release.place = self._name_of(queue.tenure.terms)
        release.grace_ms = self._answer_time.grace_ms

    def told(self, agent: bytes, resource: bytes, master: int, wait_ms: int, now_ns: int) -> None:
        """This master says that it is the turn of that agent, now or after a wait."""
        if agent != self._agent:
            return
        queue = self.queues.get(resource)
        place = None if queue is None else queue.place
        if queue is None or place is None:
            if not wait_ms and (queue is None or queue.tenure is None):
                self._passes_on(resource, master, now_ns)
            return
        place.told |= 1 << master
        if queue.rest is not None:
            self._rest_no_longer(queue, self._tries_at_ns(place, wait_ms, now_ns))

    def is_next(self, agent: bytes, resource: bytes, master: int, now_ns: int) -> None:
        """This master says that another was granted it, and that this agent is next. An agent that was told
        to try after a grace rests until it is told again."""
        queue = self.queues.get(resource)
        if agent != self._agent or queue is None or queue.place is None or queue.rest is None:
            return
        queue.place.held |= 1 << master
        if queue.place.held.bit_count() == self._quorum:
            cancel(queue.rest)
            queue.place.tries()
            self._rests_until_told(queue, now_ns)

    def _passes_on(self, resource: bytes, master: int, now_ns: int) -> None:
        """No request here wants it any more: the next host need not wait until this one's grace is over."""
        release = Release(
            resource, self._waits_as, quorum=1, t1_ns=now_ns, until_ns=now_ns + LONGEST_GRACE_MS * NS_PER_MS,
            settled=nothing_more, how=How.PASS,
        )  # fmt: skip
        release.put_to(self._masters.release(release, 1 << master))

    def _tries_at_ns(self, place: Place, wait_ms: int, now_ns: int) -> int:
        """At once when a quorum has said so. If fewer have, only a little sooner than otherwise, and once:
        the others may be silent, or these may be wrong."""
        if place.told.bit_count() >= self._quorum:
            place.hastened = False
            return now_ns + int(wait_ms * NS_PER_MS * (1 + self._chance.jitter() / 8))
        if place.hastened:
            return NEVER_NS
        place.hastened = True
        return now_ns + wait_ms * NS_PER_MS + self._jittered_ns(self._parameters.backoff_first_ms)

    def rests_no_longer(self, queue: Queue, now_ns: int) -> None:
        """A request arrives that doesn't wait. A campaign that rests until it is told may rest for longer
        than a refusal stays true."""
        if queue.rest is not None and queue.place is not None and queue.refusal not in _SOON_TRIED_AGAIN:
            self._rest_no_longer(queue, now_ns)

    def _rest_no_longer(self, queue: Queue, until_ns: int) -> None:
        if until_ns < queue.rest_until_ns:
            cancel(queue.rest)
            self._rests(queue, until_ns)

    def _rests(self, queue: Queue, until_ns: int) -> None:
        queue.rest_until_ns, queue.rest_of = until_ns, self.whose_turn(queue)
        queue.rest = self._turns.at(queue.rest_of, until_ns, partial(self.rested, queue))

    def _no_voters(self, voting: int) -> Refusal:
        reasons = " ".join(
            self._masters.why_not(m) for m in range(self._parameters.masters) if not voting >> m & 1
        )
        only_clocks = (voting | self._masters.barred_by_clock()).bit_count() >= self._quorum
        if only_clocks and self._masters.clocks_in_doubt:
            return UNCERTAIN
        return Refusal(ErrorWord.CLOCK if only_clocks else ErrorWord.NOQUORUM, reasons)

    def hint(self, resource: bytes, now_ns: int) -> int:
        """A hint for a fence above all known ones."""
        wall_us = (now_ns + self.wall_ahead_ns) // 1000
        return self.hints.next(slot_of(resource), wall_us, self._masters.clock_us(now_ns))

    def _tried(self, attempt: Attempt, now_ns: int) -> None:
        queue = self.queues[attempt.resource]
        masters_us = self._masters.clock_us(now_ns)
        # Usually all have named the same.
        for value in set(attempt.fences):
            self.hints.saw(attempt.slot, value, masters_us)
        if attempt.agreed and self._votes.agree_now(attempt.yes):
            fence = attempt.agreed_fence()
            if fence is None:
                self._second_round(attempt, now_ns)
            else:
                self._has_fence(queue, attempt, fence, now_ns)
            return
        if attempt.outcome is AttemptOutcome.TAKEN:
            self._answer_time.took(now_ns - attempt.t1_ns)
            if attempt.has_asked:
                self._recall_of(queue, attempt)
            retry_ms = attempt.retry_after_ms()
            refusal = Refusal(ErrorWord.TAKEN, f"retry-after={retry_ms} held by another", retry_ms)
        elif attempt.outcome is AttemptOutcome.SPLIT:
            # Other masters may show a lease without a quorum, for as long as its TTL: that is not waited for.
            retry_ms = min(attempt.retry_after_ms(), max(attempt.reserved_ms, default=0))
            refusal = replace(RESERVED, retry_after_ms=retry_ms) if retry_ms else SPLIT
        else:
            refusal = self._votes.no_quorum(attempt, attempt.yes)
        self._failed(queue, attempt, refusal, now_ns)

    def _second_round(self, attempt: Attempt, now_ns: int) -> None:
        """The masters named different fences: propose one to a quorum (rule 6)."""
        self._turns.aside(self._watcher.fence_round)
        timeout_ns = min(self._timeout_ns, attempt.ttl_ms * NS_PER_MS // 2)
        proposal = FenceRound(
            attempt.resource, self.hint(attempt.resource, now_ns), attempt=attempt, quorum=self._quorum,
            t1_ns=now_ns, until_ns=now_ns + timeout_ns, settled=self._proposed,
        )  # fmt: skip
        proposal.gained_ns, proposal.account = attempt.gained_ns, attempt.account
        proposal.put_to(self._masters.propose(proposal))
        self._votes.watch(proposal, timeout_ns)

    def _proposed(self, proposal: FenceRound, now_ns: int) -> None:
        attempt = proposal.attempt
        assert attempt is not None
        queue = self.queues.get(attempt.resource)
        if queue is None or queue.attempt is not attempt:
            return
        self.saw(proposal, now_ns)
        if proposal.agreed and self._votes.agree_now(proposal.acceptors):
            self._has_fence(queue, attempt, proposal.value, now_ns)
        elif proposal.outcome is FenceOutcome.OUTBID and now_ns < self._ends_ns(attempt, 0):
            self._second_round(attempt, now_ns)
        else:
            self._failed(queue, attempt, self._votes.no_quorum(proposal, proposal.acceptors), now_ns)

    def saw(self, proposal: FenceRound, now_ns: int) -> None:
        """The values of counters, as masters reported them in this round."""
        masters_us = self._masters.clock_us(now_ns)
        self.hints.saw(proposal.slot, proposal.value, masters_us, proposal.size)
        self.hints.saw_counter(proposal.slot, proposal.highest, masters_us)

    def _ends_ns(self, attempt: Attempt, cut_ns: int) -> int:
        """Until then its result may be handed out: it is valid for a while longer."""
        return deadline_ns(attempt.t1_ns, attempt.ttl_ms) - cut_ns - self._min_validity_ns

    def _too_late(self, attempt: Attempt, now_ns: int) -> Refusal:
        """If only a doubt about the clocks is the reason, the masters that can end the doubt are asked (rule
        11d)."""
        if now_ns < self._ends_ns(attempt, 0):
            return UNCERTAIN
        late_ms = (now_ns - attempt.t1_ns) // NS_PER_MS
        return Refusal(
            ErrorWord.NOQUORUM, f"the masters took {late_ms} ms, too long for a ttl of {attempt.ttl_ms} ms"
        )

    def _has_fence(self, queue: Queue, attempt: Attempt, fence: int, now_ns: int) -> None:
        """A session lock lives as long as its process (rule 13). Where masters grant and refuse extensions,
        each would be lost at its TTL, and granted to the next host while its app, which may not hear of the
        loss, goes on. That is worse than none. So it is extended once before it is granted, which also shows
        when that works again. A DETACHED lease ends at its TTL in any case."""
        holder = queue.tried_for
        assert holder is not None
        if holder.detached or self._votes.can_renew:
            self._grant(queue, attempt, fence, now_ns)
            return
        timeout_ns = min(self._timeout_ns, attempt.ttl_ms * NS_PER_MS // 2)
        extension = Extension(
            attempt.resource, attempt.nonce, ttl_ms=attempt.ttl_ms, mark=b"p0", last=None, gone=Gone(),
            quorum=self._quorum, t1_ns=now_ns, until_ns=now_ns + timeout_ns, attempt=attempt,
            settled=lambda ballot, at_ns: self._was_extended(queue, ballot, fence, at_ns),
        )  # fmt: skip
        extension.gained_ns, extension.account = attempt.gained_ns, attempt.account
        extension.put_to(self._masters.extend(extension))
        self._votes.watch(extension, timeout_ns)

    def _was_extended(self, queue: Queue, extension: Extension, fence: int, now_ns: int) -> None:
        """Its validity is that of the try all the same."""
        attempt = extension.attempt
        if attempt is None or queue.attempt is not attempt:
            return
        if extension.agreed and self._votes.agree_now(extension.confirmed):
            self._grant(queue, attempt, fence, now_ns)
            return
        refusal = self._votes.no_quorum(extension, extension.confirmed)
        if refusal not in TRIED_AGAIN:
            refusal = replace(refusal, text=f"it could not be renewed: {refusal.text}")
        self._failed(queue, attempt, refusal, now_ns)

    def _grant(self, queue: Queue, attempt: Attempt, fence: int, now_ns: int) -> None:
        # Rule 1, at the instant of answering. Time that this host stood still since the question is taken off
        # (rule 11d).
        cut_ns = self._masters.suspected_cut_ns(attempt.gained_ns, attempt.yes)
        if now_ns >= self._ends_ns(attempt, cut_ns):
            self._failed(queue, attempt, self._too_late(attempt, now_ns), now_ns)
            return
        holder = queue.tried_for
        assert holder is not None
        self._answer_time.took(now_ns - attempt.t1_ns)
        tenure = Tenure(attempt, cut_ns)
        if attempt.recalled:
            tenure.is_recalled(now_ns, self._parameters.turn_ms)
        tenure.has_block(fence)
        lease = Lease(
            tenure, holder, attempt.token, tenure.next_fence(), began_ns=tenure.began_ns, now_ns=now_ns
        )
        queue.attempt = queue.tried_for = None
        self.grants(queue, lease, now_ns)

    def next_lease(self, tenure: Tenure, holder: Holder, now_ns: int) -> Lease:
        """It has a token that no other lease has, nor the tenure, and a fence that none before it had."""
        token = holder.value or self._chance.nonce()
        return Lease(tenure, holder, token, tenure.next_fence(), began_ns=now_ns, now_ns=now_ns)

    def grants(self, queue: Queue, lease: Lease, now_ns: int) -> None:
        """To the request that it was tried for, and to all that share it. They are told last: an app may ask
        for more at once, and finds all as it is from now on."""
        holder = lease.holder
        self._recall_ends(queue, RecallEnd.GIVEN_BACK, now_ns)
        self._granted(queue, lease, now_ns)
        cancel(queue.is_granted(holder))
        self.waiting -= 1
        queue.tries = 0
        queue.refusal = queue.place = None
        others = self._of_its_name(lease) if holder.named else []
        if others:
            queue.are_leaving(others)
        if holder.detached:
            self._turned_down(queue, held_here(lease, now_ns), now_ns)
        elif queue.impatient:
            self._refuse_the_impatient(queue, held_here(lease, now_ns), now_ns, now_ns)
        self._turns.aside(self._watcher.granted, lease, now_ns - holder.asked_ns)
        self._turns.aside(holder.granted, lease, now_ns)
        self.answer_all(queue, others, partial(self._shares, lease), now_ns)
        if others and self.queues.get(lease.resource) is queue:
            self.move_on(queue, now_ns)

    def share(self, queue: Queue, lease: Lease, now_ns: int) -> None:
        """All requests of its name get it."""
        self.answer_all(queue, self._of_its_name(lease), partial(self._shares, lease), now_ns)

    def _of_its_name(self, lease: Lease) -> list[Holder]:
        """The requests that wait under its name. They have an outcome now."""
        self.names.waits_no_more(lease.holder)
        return self.names.end_waiting(lease.resource, lease.token)

    def _shares(self, lease: Lease, holder: Holder, now_ns: int) -> None:
        """It may be this one's turn much later, and any agent may have released it since: then the masters
        are asked first (rule 4)."""
        is_held = lease.standing is Standing.HELD and now_ns < lease.deadline_ns - self._min_validity_ns
        if is_held and lease.was_just_known(now_ns):
            self._turns.aside(holder.granted, lease, now_ns)
        else:
            self._asks_again(holder, lease, now_ns)

    def _failed(self, queue: Queue, attempt: Attempt, refusal: Refusal, now_ns: int) -> None:
        """What the try left is given back before any back-off (rule 3). If a quorum had it, others have to be
        told that it is free, and this host, which has used its turn, leaves its place with the next try: with
        the release it would be told at once, and try again and again without a back-off."""
        assert queue.tried_for is not None
        self._turns.aside(self._watcher.tried_in_vain, queue.tried_for.label, refusal.code)
        queue.attempt = queue.tried_for = None
        goes_on = attempt.place and queue.has_patient and not (attempt.asks or attempt.agreed)
        how = How.TENURE if attempt.agreed else How.TRY
        self._give_back(attempt, how, now_ns, queue.place if goes_on else None)
        self._turned_down(queue, refusal, now_ns)

    def _give_back(self, attempt: Attempt, how: How, now_ns: int, place: Place | None = None) -> None:
        if attempt.landed:
            until_ns = attempt.t1_ns + attempt.ttl_ms * NS_PER_MS
            release = Release(
                attempt.resource, attempt.nonce, quorum=self._quorum, t1_ns=now_ns, until_ns=until_ns,
                settled=nothing_more, how=how,
            )  # fmt: skip
            release.account = attempt.account
            if place is not None:
                release.place, release.grace_ms = attempt.place, attempt.grace_ms
                release.waited_us = place.waited_us(now_ns)
            release.put_to(self._masters.release(release, attempt.landed))
            self._votes.charge(release)

    def _turned_down(self, queue: Queue, refusal: Refusal, now_ns: int) -> None:
        queue.refusal, queue.refused_ns = refusal, now_ns
        told = self._answered(queue, refusal, now_ns)
        if told is None:
            assert queue.recall is not None
            freed = queue.recall.freed.bit_count() >= self._quorum
            self._rests(queue, now_ns if freed else queue.recall.until_ns)
            return
        queue.refusal = told
        again_ns = now_ns + self._back_off_ns(queue, refusal)
        one_try_ago_ns = again_ns - self._timeout_ns
        self._refuse_the_impatient(queue, told, now_ns, one_try_ago_ns if refusal in TRIED_AGAIN else now_ns)
        if queue.first() is not None:
            self._rests(queue, again_ns)
        else:
            self.move_on(queue, now_ns)

    def rests_until_told(self, queue: Queue, now_ns: int) -> None:
        """This host has left its place with what it gave back, and it is another host's turn."""
        queue.refusal, queue.refused_ns = RESERVED, now_ns
        self._refuse_the_impatient(queue, RESERVED, now_ns, now_ns - self._timeout_ns)
        if queue.first() is None:
            self.move_on(queue, now_ns)
        elif queue.impatient:
            # As for a request that arrives now: a turn of others may last longer than its answer.
            self._rests(queue, now_ns)
        else:
            self._rests_until_told(queue, now_ns)

    def _rests_until_told(self, queue: Queue, now_ns: int) -> None:
        """A quorum has its place, and knows who has the resource."""
        self._rests(queue, now_ns + self._jittered_ns(4 * self._parameters.turn_tried_first_ms))

    def rested(self, queue: Queue, now_ns: int) -> None:
        queue.rest = None
        self.try_next(queue, now_ns)

    def _back_off_ns(self, queue: Queue, refusal: Refusal) -> int:
        """Exponential, jittered so that two hosts don't meet again and again, and not longer than the holder
        has left. A host that waits for a holder is told when that one is done; there is no back-off if it was
        told meanwhile."""
        parameters, tries, place = self._parameters, min(queue.tries, 16), queue.place
        if place is not None and place.told.bit_count() >= self._quorum:
            return 0
        if place is None and queue.has_patient and (refusal == RESERVED or refusal.code is ErrorWord.TAKEN):
            # They joined a try of a request that doesn't wait. The next try leaves a place for them.
            return 0
        if refusal == RESERVED:
            return int((refusal.retry_after_ms + 1 + 4 * self._chance.jitter()) * NS_PER_MS)
        if place is not None and refusal.code is ErrorWord.TAKEN:
            most_ms = min(parameters.turn_tried_most_ms, parameters.turn_tried_first_ms << max(tries - 1, 0))
        else:
            most_ms = min(parameters.backoff_most_ms, parameters.backoff_first_ms << tries)
        wait_ns = self._jittered_ns(most_ms)
        if refusal.code is ErrorWord.TAKEN:
            wait_ns = min(wait_ns, int((refusal.retry_after_ms + 1 + self._chance.jitter()) * NS_PER_MS))
        return wait_ns

    def _jittered_ns(self, ms: int) -> int:
        return int(ms * NS_PER_MS * (0.5 + self._chance.jitter()))

    def _refuse_the_impatient(self, queue: Queue, refusal: Refusal, now_ns: int, asked_until_ns: int) -> None:
        """Requests in line that don't wait, or not any longer, share the outcome of the try that they
        joined."""
        joined = [one for one in queue.impatient if one.asked_ns <= asked_until_ns]
        polls = (one for one in joined if one.give_up_ns is None and is_plain(one.value))
        if refusal.code is ErrorWord.TAKEN and (poll := next(polls, None)) is not None:
            # Now: when the last of them hears it, it may be free.
            self.polls.refused(poll.account, queue.resource, refusal, now_ns)
        self.answer_all(queue, joined, partial(self._refuse_as_tried, refusal), now_ns)

    def _refuse_as_tried(self, refusal: Refusal, holder: Holder, now_ns: int) -> None:
        why = refusal if holder.give_up_ns is None else waited(holder, refusal, now_ns)
        self.refuse(holder, why, now_ns)

    def refuse(self, holder: Holder, refusal: Refusal, now_ns: int) -> None:
        if holder.named:
            self.names.waits_no_more(holder)
        if holder.counted:
            self._turns.aside(self._watcher.refused, holder.label, refusal, now_ns - holder.asked_ns)
        self._turns.aside(holder.refused, refusal)
