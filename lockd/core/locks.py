"""The agent's rules at work: from LOCK to UNLOCK.

Events come in as methods (`lock`, `unlock`, `extend`, `gone`, and the answers of ballots), each with the
time. What has to be done goes out through `Masters` and `Holder`. This is the life of a lease:

    lock ─▶ Queue ─▶ Attempt ──quorum──▶ (FenceRound) ──still valid──▶ Lease ─▶ Extension … ─▶ Release
              ▲          │ no                                            │ can't be proven
              └── rest ◀─┴─▶ Release on all that may have it             └─▶ lost: its holder is told in time
"""

from collections.abc import Set
from functools import partial

from lockd.build import mypyc_attr
from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.ballot import Ballot, Ended
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.errors import ErrorWord
from lockd.core.interfaces import Journal, Masters, Watcher
from lockd.core.journal import Ending, Unkept
from lockd.core.leases import Holder, Lease, Loss, Standing, Tenure, pid_and_uid
from lockd.core.names import same_process
from lockd.core.notices import Kind, Notice
from lockd.core.plain_values import is_plain, token_of
from lockd.core.queues import Queue
from lockd.core.refusals import (
    ANOTHERS,
    BROKEN,
    DRAINING,
    NOT_HELD,
    TRIED_AGAIN,
    UNLOCKED_BEFORE,
    UNPROVEN,
    WITH_SLOTS,
    WITHDRAWN,
    expired,
    held_here,
    waited_in_line,
)
from lockd.core.tenures.campaigns import Campaigns
from lockd.core.tenures.handing_on import HandingOn
from lockd.core.tenures.keeping import Keeping
from lockd.core.tenures.means import Means
from lockd.core.tenures.renewals import Renewals
from lockd.core.tenures.returns import Returns
from lockd.core.tenures.votes import Votes
from lockd.core.turns import Turns, cancel
from lockd.core.validity import NS_PER_MS
from lockd.core.values import Chance, Extended, RedlockParameters, Refusal, Reply


@mypyc_attr(allow_interpreted_subclasses=True)
class Locks:
    """All the resources that apps on this host hold or wait for."""

    def __init__(
        self,
        parameters: RedlockParameters,
        masters: Masters,
        watcher: Watcher,
        chance: Chance,
        journal: Journal | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.turns = turns or Turns()
        self.draining = False
        self.draining_since_ns: int | None = None
        self._parameters = parameters
        self._masters = masters
        self._watcher = watcher
        self._chance = chance
        self._journal: Journal = journal or Unkept()
        masters.before_sending = self._journal.keep_up
        self._votes = Votes(parameters, masters, self.turns, self.broke)
        self._campaigns = Campaigns(
            parameters, masters, watcher, chance, self.turns, self._votes, self._holds, self._put_down,
            self._wanted_again, self._looked_at, self._asks_again,
        )  # fmt: skip
        self.queues = self._campaigns.queues
        self.names = self._campaigns.names
        means = Means(parameters, masters, watcher, self._journal, self.turns, self._votes, self._campaigns)
        self._asking_again: dict[Holder, _AskedAgain] = {}
        self._returns = Returns(means, self._hands_on)
        self.detached = self._returns.detached
        self._renewals = Renewals(means, self._returns, self._was_asked)
        self._keeping = Keeping(means, self._returns, self._put_down)
        self._handing_on = HandingOn(means, self._returns, self._renewals, self._keeping)

    # What a part needs from parts that are made after it

    def _holds(self, queue: Queue, lease: Lease, now_ns: int) -> None:
        self._renewals.granted(queue, lease, now_ns)

    def _put_down(self, queue: Queue, now_ns: int) -> None:
        self._handing_on.put_down(queue, now_ns)

    def _wanted_again(self, queue: Queue, now_ns: int) -> None:
        self._handing_on.wanted_again(queue, now_ns)

    def _looked_at(self, lease: Lease, now_ns: int) -> None:
        self._renewals.look_again(lease, now_ns)

    def _hands_on(self, lease: Lease, why: str, now_ns: int, reply: Reply | None) -> bool:
        if self.draining:
            return False
        again = self._keeping.is_wanted_again(lease, why, now_ns)
        if self._handing_on.hands_on(lease, why, now_ns, reply):
            return True
        return again and self._keeping.keeps(lease, now_ns, reply)

    def _was_asked(self, tenure: Tenure, extension: Extension, worked: bool, now_ns: int) -> None:
        self._handing_on.was_asked(tenure, extension, worked, now_ns)

    # What others see of it

    @property
    def held(self) -> int:
        """How many leases are held here."""
        return self._returns.held

    @property
    def waiting(self) -> int:
        """How many wait in line."""
        return self._campaigns.waiting

    @property
    def wall_ahead_ns(self) -> int:
        """How far the wall clock is ahead of CLOCK_BOOTTIME. Only hints for fences rest on it, and the order
        of fences does not."""
        return self._campaigns.wall_ahead_ns

    @wall_ahead_ns.setter
    def wall_ahead_ns(self, ahead_ns: int) -> None:
        self._campaigns.wall_ahead_ns = ahead_ns

    def clocks_moved(self, now_ns: int) -> None:
        """Masters' clocks have gained on this host's (rule 11d)."""
        self._renewals.clocks_moved(now_ns)
        self._keeping.give_back(now_ns)

    def release_again(self, ending: Ending, now_ns: int) -> None:
        """A release that the previous agent sent, or was about to send, and that no quorum has confirmed."""
        self._returns.release_again(ending, now_ns)

    def known_counters(self) -> dict[int, int]:
        """The values that the masters' fence counters are known to have reached, by slot. A cluster that is
        formed again begins from there (rule 6)."""
        return self._campaigns.hints.seen

    def lock(self, holder: Holder, now_ns: int, *, ready: bool = True) -> None:
        """An app wants a resource. It is answered once, by `holder.granted` or `holder.refused`.

        ready: the answer could be sent at once. Otherwise the request waits in line from now on, and is
        passed over until `can_be_told`: its app would hold the resource without knowing, perhaps for long.
        Only a request with a WAIT may arrive before it is ready: a single try would only wait for its turn to
        be answered.
        """
        if self.draining:
            self._campaigns.refuse(holder, DRAINING, now_ns)
            return
        if holder.named and self._is_known(holder, now_ns):
            return
        if is_plain(holder.value) and (known := self._campaigns.polls.refusal(holder.resource, now_ns)):
            self._campaigns.refuse(holder, known, now_ns)
            return
        queue = self.queues.get(holder.resource)
        if queue is None:
            queue = self.queues[holder.resource] = Queue(holder.resource)
        if holder.give_up_ns is None:
            if queue.lease is not None:
                self._campaigns.refuse(holder, held_here(queue.lease, now_ns), now_ns)
                return
            refusal = queue.refusal
            lately = now_ns < queue.refused_ns + self._parameters.backoff_most_ms * NS_PER_MS
            rests = queue.rest is not None and not queue.recall and lately
            if rests and refusal is not None and refusal not in TRIED_AGAIN:
                self._campaigns.refuse(holder, refusal, now_ns)
                return
            self._campaigns.rests_no_longer(queue, now_ns)
        self._campaigns.joins(queue, holder, now_ns, ready=ready)

    def _is_known(self, holder: Holder, now_ns: int) -> bool:
        """A request whose lease is held already gets the same lease. One that is over or belongs to another
        process is refused (rule 4). One that is waiting already then waits twice, and both get the same
        outcome."""
        resource, token = holder.resource, holder.value
        _, uid = pid_and_uid(holder.owner)
        lease = self._find(resource, token, now_ns)
        held = lease if lease is not None and _is_held(lease, now_ns) else None
        before = held.holder if held is not None else self.names.first(resource, token)
        if self.names.over(uid, resource, token, now_ns) is not None:
            self._campaigns.refuse(holder, UNLOCKED_BEFORE, now_ns)
        elif self.names.slot(resource, token) is not None:
            self._campaigns.refuse(holder, WITH_SLOTS, now_ns)
        elif before is not None and not same_process(before, holder):
            self._campaigns.refuse(holder, ANOTHERS, now_ns)
        elif held is None or (not held.is_ours and holder.give_up_ns is not None):
            return False
        else:
            self._asks_again(holder, held, now_ns)
        return True

    def _asks_again(self, holder: Holder, lease: Lease, now_ns: int) -> None:
        """Its name has this lease, which may have been released through another agent: it is granted again
        when it is proven."""
        _, uid = pid_and_uid(holder.owner)
        if self.names.over(uid, lease.resource, lease.token, now_ns) is not None:
            self._campaigns.refuse(holder, UNLOCKED_BEFORE, now_ns)
        elif lease.is_ours or not _is_held(lease, now_ns):
            again = self._asking_again[holder] = _AskedAgain(self, holder, lease)
            self._extend(lease, 0, again, now_ns)
        else:
            self._campaigns.refuse(holder, UNPROVEN, now_ns)

    def _answer_again(self, holder: Holder, lease: Lease, refusal: Refusal | None, now_ns: int) -> None:
        """Unless its app is gone meanwhile."""
        again = self._asking_again.pop(holder, None)
        if again is None:
            return
        cancel(again.timer)
        if refusal is None:
            self.turns.aside(holder.granted, lease, now_ns)
        else:
            self._campaigns.refuse(holder, refusal, now_ns)

    def can_be_told(self, holder: Holder, now_ns: int) -> None:
        """From now on the answer to a waiting LOCK could be sent at once, so it is not passed over any
        more."""
        queue = self.queues.get(holder.resource)
        if queue is not None and not self.draining and queue.passes_over(holder):
            queue.becomes_ready(holder)
            self._campaigns.wake(queue, holder, now_ns)

    def gone(self, holder: Holder, now_ns: int) -> bool:
        """The app of a waiting LOCK is gone: the request is dropped, and what was tried for it is given back.
        False: the try goes on, and the holder will be told its outcome (core/plain_values.py)."""
        if (again := self._asking_again.pop(holder, None)) is not None:
            cancel(again.timer)
        queue = self.queues.get(holder.resource)
        if queue is None or holder not in queue.waiters:
            return True
        if queue.tried_for is holder and is_plain(holder.value):
            queue.abandoned_by = holder
            return False
        if holder.named:
            self.names.waits_no_more(holder)
        self._campaigns.leave(queue, holder, now_ns)
        return True

    def extend(self, resource: bytes, token: bytes, ttl_ms: int, reply: Reply, now_ns: int) -> None:
        """An app's own EXTEND, of a lease granted by this agent or another."""
        lease = self._find(resource, token, now_ns)
        if lease is not None and not lease.told:
            self.told(lease, now_ns)
        if lease is None:
            self._renewals.extend_unknown(resource, token, ttl_ms, reply, now_ns)
        else:
            self._extend(lease, ttl_ms, reply, now_ns)

    def prove(self, lease: Lease, reply: Reply, now_ns: int) -> None:
        """For an app that is about to be told of a lease which was granted a while ago."""
        self._extend(lease, 0, reply, now_ns, let_in=True)

    def _extend(
        self, lease: Lease, wanted_ms: int, reply: Reply, now_ns: int, *, let_in: bool = False
    ) -> None:
        """The masters are asked even if the lease lasts long enough already: any agent may have released it
        since they last answered, and who hears that it is held relies on that (rule 2). let_in: it has waited
        for its turn to ask them."""
        if not _is_held(lease, now_ns):
            reply.refused(expired(lease))
        elif now_ns + NS_PER_MS >= lease.hold_until_ns:
            reply.refused(Refusal(ErrorWord.EXPIRED, "it was held for max_hold and can't be extended"))
        elif let_in or self._votes.line.has_room:
            ask_ms = lease.extension_ttl_ms(wanted_ms, now_ns) or lease.proof_ttl_ms(now_ns)
            self._renewals.extension(lease.tenure, ask_ms, now_ns, reply)
        else:
            begin = partial(self._extend_in_turn, lease, wanted_ms, reply)
            self._votes.line.wait(lease.holder.account, lease.deadline_ns, begin)

    def _extend_in_turn(self, lease: Lease, wanted_ms: int, reply: Reply, now_ns: int) -> None:
        self._extend(lease, wanted_ms, reply, now_ns, let_in=True)

    def unlock(
        self,
        resource: bytes,
        token: bytes,
        reply: Reply,
        now_ns: int,
        *,
        uid: int | None = None,
        account: str = "",
    ) -> None:
        """An app's UNLOCK. It is answered when a quorum has confirmed it, so that any app can get the
        resource from then on. uid: the app's user, for whom the end of the request is remembered
        (core/names.py); account: who pays for that."""
        withdrawn = self._withdraw(resource, token, now_ns)
        lease = self._find(resource, token, now_ns)
        over = None if uid is None else self.names.over(uid, resource, token, now_ns)
        # Something may be held under the name all the same: the token of a slot was perhaps another's, too.
        if over is not None and over.answers and lease is None and not withdrawn:
            over.tell(reply)
            return
        requests = [lease.holder] if lease is not None and lease.holder.named else withdrawn
        if requests or lease is None:
            by = None if uid is None else (uid, account)
            reply = self._remembered(reply, requests, by, (resource, token), now_ns)
        if lease is None and withdrawn:
            reply.done(None)
        else:
            self._release(lease, resource, token, reply, now_ns)

    def release(self, resource: bytes, value: bytes, reply: Reply, now_ns: int) -> None:
        """A compare-and-delete of an app's own value (core/plain_values.py). It names a lease and not a
        request: the same value may be locked with again at once, and nothing of it is remembered."""
        token = token_of(value)
        self._withdraw_abandoned(resource, token, now_ns)
        self._release(self.with_value(resource, value, now_ns), resource, token, reply, now_ns)

    def with_value(self, resource: bytes, value: bytes, now_ns: int) -> Lease | None:
        """The lease here with that value. A master may have said that a lease with a TTL was given back
        through another agent: then that lease is over here, and the masters are asked which lease has the
        value by now (rule 4). If that master was wrong, only the entry here is lost that listings show."""
        lease = self._find(resource, token_of(value), now_ns)
        if lease is not None and lease.holder.detached and lease.said_gone is Kind.RELEASED:
            self._returns.over(lease, "released elsewhere", now_ns)
            return None
        return lease

    def _withdraw_abandoned(self, resource: bytes, token: bytes, now_ns: int) -> None:
        """Withdraw a try with that value whose answer nobody waits for: a release of the value means that
        try."""
        queue = self.queues.get(resource)
        holder = None if queue is None else queue.abandoned_by
        if queue is not None and holder is not None and holder is queue.tried_for and holder.value == token:
            self._campaigns.refuse(holder, WITHDRAWN, now_ns)
            self._campaigns.leave(queue, holder, now_ns)

    def tried_by(self, resource: bytes, value: bytes) -> bytes:
        """The owner of a try with that value on this host, or b"". What masters show of a try may come to
        nothing."""
        queue = self.queues.get(resource)
        holder = None if queue is None else queue.tried_for
        return holder.owner if holder is not None and holder.value == token_of(value) else b""

    def _release(self, lease: Lease | None, resource: bytes, token: bytes, reply: Reply, now_ns: int) -> None:
        if lease is None:
            self._returns.release_unknown(resource, token, reply, now_ns)
        elif _is_held(lease, now_ns):
            self._returns.end(lease, "released", now_ns, reply)
        else:
            reply.refused(expired(lease))
            self._returns.end(lease, "released", now_ns)

    def set_ttl(self, resource: bytes, value: bytes, ttl_ms: int, reply: Reply, now_ns: int) -> None:
        """The lease with that value has this TTL from now on. A lease without a TTL is renewed until the TTL
        is over, whatever happens to its process. A lease with a TTL is not shortened on the masters (rule 2):
        this agent gives it back at that time, where no other agent has extended it by its value since."""
        lease = self.with_value(resource, value, now_ns)
        if lease is None and self.tried_by(resource, value):
            reply.refused(NOT_HELD)
            return
        if lease is None:
            self._renewals.extend_unknown(resource, token_of(value), ttl_ms, reply, now_ns)
            return
        if not lease.told:
            self.told(lease, now_ns)
        ends_ns = now_ns + ttl_ms * NS_PER_MS
        ends_early = not lease.holder.detached or ends_ns + ROUNDED_NS < lease.deadline_ns
        if ends_early or lease.let_go_ns is not None:
            reply = _Ending(lease, ends_ns if ends_early else None, reply, self._renewals)
        # Its app relies on the whole TTL, even if this agent ends: so the masters have to have it.
        self._extend(lease, ttl_ms, reply, now_ns)

    def persist(self, lease: Lease, reply: Reply, now_ns: int) -> None:
        """For a lease that was locked without a TTL: it has none again, and lives with its process."""
        if not lease.told:
            self.told(lease, now_ns)
        self._extend(lease, 0, _Ending(lease, None, reply, self._renewals), now_ns)

    def _remembered(
        self,
        reply: Reply,
        requests: list[Holder],
        by: tuple[int, str] | None,
        name: tuple[bytes, bytes],
        now_ns: int,
    ) -> Reply:
        """An UNLOCK that is repeated gets the same answer as this one, and no request of that name is granted
        any more. That holds for the users of the requests, and for the user that unlocked them."""
        # There may be thousands, of a few owners.
        owners = {holder.owner: holder.account for holder in requests}
        users = {pid_and_uid(owner)[1]: account for owner, account in owners.items()}
        if by is not None:
            users.setdefault(*by)
        over = self.names.ends(users, *name, now_ns, is_here=bool(requests))
        over.tell(reply)
        return over

    def _withdraw(self, resource: bytes, token: bytes, now_ns: int) -> list[Holder]:
        """The requests of this name that were still waiting: they are not granted any more."""
        waiting = self.names.end_waiting(resource, token)
        if waiting:
            self._campaigns.refuse_all(self.queues[resource], waiting, WITHDRAWN, now_ns)
        for request in self.names.wanting_slot(resource, token):
            request.withdrawn(now_ns)
            waiting.append(request.asker)
        return waiting

    def holder_gone(self, lease: Lease, now_ns: int) -> None:
        """The process or connection that a lease belonged to is gone: the lease is free at once, or after the
        lock_delay of its class (rule 13)."""
        if lease.standing is Standing.OVER:
            return
        if lease.ends_early:
            return  # at the time that its app has given it, as any lock with a TTL; lost, at its last promise
        if lease.holder.lock_delay_ms and lease.standing is Standing.HELD:
            lease.let_go_ns = now_ns + lease.holder.lock_delay_ms * NS_PER_MS
            self._renewals.note(lease)
            self._renewals.look_again(lease, now_ns)
        else:
            self._returns.end(lease, "app gone", now_ns)

    def untold(self, lease: Lease, now_ns: int) -> None:
        """Its app was never told of it, and will ask again: the lease is free at once (rule 13)."""
        if lease.standing is not Standing.OVER:
            self._returns.end(lease, "app gone", now_ns)

    def cut_off(self, lease: Lease, reason: str, now_ns: int) -> None:
        """Its holder can't be told anything any more, but may be alive and believe in the deadline that it
        was last told (rule 12). So the lease is not renewed, and is given back only then."""
        if lease.standing is Standing.HELD:
            self._renewals.lose(lease, Loss.CUT_OFF, reason, now_ns)

    def noticed(self, master: int, notice: Notice, now_ns: int) -> None:
        """A notice from a master. It may be late, wrong or repeated."""
        if notice.kind is Kind.RECALL:
            self.recalled(notice.resource, notice.word, now_ns)
        elif notice.kind is Kind.TURN:
            self._campaigns.told(notice.word, notice.resource, master, notice.wait_ms, now_ns)
        elif notice.kind is Kind.ASK:
            queue = self._queue_with(notice.resource, notice.word)
            if queue is not None:
                self._handing_on.asked_for(queue, notice.asker, master, now_ns)
        elif notice.kind in (Kind.FREED, Kind.USED):
            self._campaigns.was_told(notice, master, now_ns)
        elif notice.kind is Kind.HELD:
            self._campaigns.is_next(notice.word, notice.resource, master, now_ns)
        else:
            self._is_doubted(notice, now_ns)

    def _is_doubted(self, notice: Notice, now_ns: int) -> None:
        """The masters are asked about a lease that has a queue. A DETACHED lease is in nobody's way here."""
        queue = self._queue_with(notice.resource, notice.word)
        lease = self.detached_with(notice.resource, notice.word)
        tenure = queue.tenure if queue is not None else lease.tenure if lease is not None else None
        if tenure is not None:
            tenure.is_said_gone(notice.kind, now_ns)
        if queue is not None:
            self._handing_on.doubted(queue, now_ns)

    def recalled(self, resource: bytes, nonce: bytes, now_ns: int) -> None:
        """A master says that another host waits for the tenure of that nonce, or for a try of that nonce. The
        only effect is that it is given back earlier."""
        queue = self._queue_with(resource, nonce)
        if queue is not None:
            self._handing_on.recalled(queue, now_ns)
        elif (waiting := self.queues.get(resource)) and waiting.attempt and waiting.attempt.nonce == nonce:
            waiting.attempt.recalled = True

    def _queue_with(self, resource: bytes, nonce: bytes) -> Queue | None:
        """The queue whose tenure the masters know by that nonce."""
        queue = self.queues.get(resource)
        if queue is None or queue.tenure is None or nonce not in queue.tenure.nonces:
            return None
        return queue

    def detached_with(self, resource: bytes, nonce: bytes) -> Lease | None:
        """The DETACHED lease of this agent that the masters know by that nonce."""
        return next((one for one in self._returns.detached_of(resource) if one.nonce == nonce), None)

    def fences_of(self, resource: bytes, nonces: Set[bytes]) -> set[int]:
        """The fences of leases here under tenures with these nonces. For a tenure that is kept, it is the
        fence of its last lease."""
        fences = {lease.fence for lease in self._returns.detached_of(resource) if lease.nonce in nonces}
        queue = self.queues.get(resource)
        if queue is not None and queue.tenure is not None and not nonces.isdisjoint(queue.tenure.nonces):
            fences |= {last.fence for last in (queue.lease, queue.kept) if last is not None}
        return fences

    def take_away(self, resource: bytes, nonces: Set[bytes], reason: str, now_ns: int) -> None:
        """An operator releases leases by force, named as the masters name them. A holder on this host is
        told."""
        queue = self.queues.get(resource)
        leases = list(self._returns.detached_of(resource))
        if queue is not None and queue.lease is not None:
            leases.append(queue.lease)
        elif queue is not None and queue.tenure is not None and not nonces.isdisjoint(queue.tenure.nonces):
            self._put_down(queue, now_ns)
        for lease in leases:
            if any(nonce in nonces for nonce in lease.nonces):
                self._renewals.was_forced(lease, reason, now_ns)

    def forget(self, resource: bytes, token: bytes, now_ns: int) -> None:
        """The holder of a lost lease knows of the loss and is done, so nothing has to wait for the deadline
        any more."""
        lease = self._find(resource, token, now_ns)
        if lease is not None and lease.standing is Standing.LOST:
            self._returns.end(lease, "released", now_ns)

    def knows(self, resource: bytes, token: bytes) -> bool:
        """Whether this agent granted that lease and remembers it. Otherwise an UNLOCK or EXTEND of it asks
        all masters."""
        return self.known(resource, token) is not None

    def known(self, resource: bytes, token: bytes) -> Lease | None:
        """That lease."""
        lease = self.detached.get((resource, token))
        if lease is not None:
            return lease
        queue = self.queues.get(resource)
        return queue.lease if queue is not None and queue.lease and queue.lease.token == token else None

    def held_of(self, resource: bytes, now_ns: int) -> list[Lease]:
        """The leases of a resource that this agent has granted and believes to be held. There is one, apart
        from leases that may have been released elsewhere."""
        queue = self.queues.get(resource)
        leases = list(self._returns.detached_of(resource))
        if queue is not None and queue.lease is not None:
            leases.append(queue.lease)
        return [lease for lease in leases if _is_held(lease, now_ns)]

    def seems_free(self, resource: bytes) -> None:
        """No master shows it now, so polls are not refused because of what masters said before."""
        self._campaigns.polls.is_free(resource)

    def knows_request(self, uid: int, resource: bytes, token: bytes, now_ns: int) -> bool:
        """Whether an UNLOCK of that token is answered here although no lease here has it."""
        over = self.names.over(uid, resource, token, now_ns)
        waits = self.names.first(resource, token) or self.names.wanting_slot(resource, token)
        return bool(waits) or (over is not None and over.answers)

    def _find(self, resource: bytes, token: bytes, now_ns: int) -> Lease | None:
        """A lease that this agent granted and remembers. A detached lease that has run out is forgotten here:
        it may have been extended elsewhere."""
        lease = self.detached.get((resource, token))
        if lease is not None:
            if now_ns < lease.deadline_ns:
                return lease
            self._renewals.run_out(lease, now_ns)
            return None
        queue = self.queues.get(resource)
        if queue is None or queue.lease is None or queue.lease.token != token:
            return None
        return queue.lease

    def proof_before(self, holder: Holder, nonce: bytes | None, t1_ns: int, proven: int) -> Attempt:
        """The last proof of a lease by the previous agent: which masters, and when. nonce: None if this agent
        goes on with the lease, under a new nonce."""
        attempt = Attempt(
            holder, holder.resource, nonce=nonce or self._chance.nonce(), ttl_ms=holder.ttl_ms, hint=0,
            quorum=self._votes.quorum, t1_ns=t1_ns, until_ns=t1_ns, settled=_nothing_is_tried,
        )  # fmt: skip
        attempt.put_to((1 << self._parameters.masters) - 1)
        attempt.proof.masters, attempt.gained_ns = proven, self._masters.gained_ns()
        attempt.ends(Ended.DONE)
        return attempt

    def adopt(self, lease: Lease, now_ns: int) -> bool:
        """This agent takes care of a lease of the previous agent from now on, unless something else is held
        here under that name; see takeover.py. Requests that wait for it go on waiting: the other agent may
        have ended while this one was at work."""
        queue = self.queues.get(lease.resource)
        if queue is not None and queue.tenure is not None and queue.lease is None:
            # A tenure of this agent that is kept or being handed on: nobody would take care of it any more.
            self._put_down(queue, now_ns)
        queue = self.queues.setdefault(lease.resource, Queue(lease.resource))
        if queue.lease is not None:
            return False
        queue.tenure, queue.lease = lease.tenure, lease
        lease.tenure.lease = lease
        self._campaigns.is_held(queue, lease, now_ns)
        self._returns.held += 1
        self.names.was_taken_over(lease)
        inherited = lease.tenure.inherited
        assert inherited is not None
        if inherited.goes_on:
            # Asked once at least, even if its holder should have been told of a loss already.
            lease.spare(now_ns, 2 * self._votes.timeout_ns)
        self._journal.held(lease, inherited.clock_lows_ns)
        self.turns.aside(self._watcher.taken_over, lease)
        self._renewals.look_again(lease, now_ns)
        return True

    def told(self, lease: Lease, now_ns: int) -> None:
        """Its app is known to have read of it, or has named it: it is the app's, whatever happens to this
        agent (rule 13). This may be called in the middle of other work: writing a reply shows what was read
        before."""
        if lease.standing is Standing.HELD and not lease.holder.detached:
            lease.told = True
            self._journal.told(lease)
            if lease.inherited is not None:
                lease.loss = ""
                self._renewals.look_again(lease, now_ns)

    def outlived(self, lease: Lease, now_ns: int) -> None:
        """Its process is dead, and a child goes on with it. The next agent can't see the child, so it leaves
        the lease to its deadline (rule 13)."""
        if lease.standing is Standing.HELD and not lease.outlived:
            lease.outlived = True
            self._renewals.note(lease)

    def broke(self, ballot: Ballot, now_ns: int) -> None:
        """This ballot raised an exception while an answer was counted. Its request is refused, what it may
        have left is given back, and it does not count any more. Everything else goes on."""
        ballot.ends(Ended.BROKEN)
        ballot.refused(BROKEN)
        self._handing_on.broke(ballot, now_ns)
        attempt = ballot.attempt if isinstance(ballot, FenceRound | Extension) else ballot
        if not isinstance(attempt, Attempt):
            return
        queue = self.queues.get(attempt.resource)
        if queue is not None and queue.attempt is attempt:
            waiting = [one for one in (queue.tried_for,) if one in queue.waiters]
            self._campaigns.refuse_all(queue, waiting, BROKEN, now_ns)

    def drain(self, now_ns: int) -> None:
        """Grant nothing any more. What is held stays held: its holders are alive, and the next agent takes it
        over (rule 13). Who waits is told in its account's turn: there may be thousands."""
        if not self.draining:
            self.draining_since_ns = now_ns
        self.draining = True
        waiting = list[Holder]()
        for queue in list(self.queues.values()):
            queue.passes_all_over()
            waiting.extend(queue.waiters)
            if queue.attempt is not None:
                self._campaigns.abandon(queue, now_ns)
            self._campaigns.move_on(queue, now_ns)
        self._keeping.give_back(now_ns)
        self._campaigns.answer_in_turns(waiting, self._turn_away, now_ns)

    def _turn_away(self, holder: Holder, now_ns: int) -> None:
        self._campaigns.refuse(holder, DRAINING, now_ns)

    @property
    def has_to_drain(self) -> bool:
        """It grants nothing any more, and not all that waited were told so, or something is still kept."""
        return self.draining and self.waiting + self._keeping.count > 0

    def keep_no_longer(self, now_ns: int) -> None:
        """Give back soon what is kept: the limit for keeping was changed."""
        self._keeping.give_back(now_ns)


ROUNDED_NS = 1_000 * NS_PER_MS
"""A TTL in whole seconds may be so much shorter than what is left: then the lease lasts as long as before."""
_EXTENDED_ELSEWHERE = Refusal(
    ErrorWord.ERR,
    "the TTL is shorter than what is left, and nothing was changed: another host has extended the lock by "
    "its value, and relies on that. Release it, or take it with a shorter TTL",
)


class _Ending:
    """For a lease that gets an end before its own, or that has none again (None): it takes effect when the
    lease is proven. core.values.Reply."""

    def __init__(self, lease: Lease, ends_ns: int | None, reply: Reply, renewals: Renewals) -> None:
        self._lease = lease
        self._ends_ns = ends_ns
        self._reply = reply
        self._renewals = renewals

    def done(self, extended: Extended | None) -> None:
        lease, ends_ns = self._lease, self._ends_ns
        if ends_ns is not None and extended is not None and extended.is_elsewhere:
            self._reply.refused(_EXTENDED_ELSEWHERE)
            return
        lease.let_go_ns, lease.ends_early = ends_ns, ends_ns is not None
        self._renewals.note(lease)
        deadline_ns = lease.deadline_ns
        if ends_ns is not None:
            self._renewals.look_again(lease, min(ends_ns, lease.renew_again_at_ns()))
            deadline_ns = min(ends_ns, deadline_ns)
        self._reply.done(Extended(lease.token, lease.fence, deadline_ns, lease.holder.bound))

    def refused(self, refusal: Refusal) -> None:
        self._reply.refused(refusal)


class _AskedAgain:
    """A LOCK that has asked again by its name: it is granted what it has when masters prove that once more.
    Its wait may end before their turn has come. core.values.Reply."""

    def __init__(self, locks: Locks, holder: Holder, lease: Lease) -> None:
        self._answer = partial(locks._answer_again, holder, lease)
        self._holder = holder
        self._lease = lease
        ends_ns = holder.give_up_ns
        self.timer = None if ends_ns is None else locks.turns.at(holder.account, ends_ns, self._give_up)

    def done(self, _lease: Extended | None) -> None:
        self._answer(None, self._holder.asked_ns)

    def refused(self, refusal: Refusal) -> None:
        self._answer(refusal, self._holder.asked_ns)

    def _give_up(self, now_ns: int) -> None:
        if not any(ballot.reply is self for ballot in self._lease.tenure.under_way):
            self._answer(waited_in_line(self._holder, now_ns), now_ns)


def _is_held(lease: Lease, now_ns: int) -> bool:
    return lease.standing is Standing.HELD and now_ns < lease.deadline_ns


def _nothing_is_tried(_attempt: Attempt, _now_ns: int) -> None:
    """The try was another agent's."""
