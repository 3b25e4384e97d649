"""The link to one master, without its bytes: in which order it is asked over connections that break (rule 3),
and which of its answers count.

There is one connection at a time, and everything on it goes in the order in which it was asked. When a
connection breaks, questions without an answer are asked again on the next one, in the same order, as long as
that is useful. Before that, the master is told to close the old connection: commands still in its buffers
would otherwise run after those of the new one.

A link is told what happens: `connects`, `inspected`, `introduce`, `heard`, `broken`, `look`. It puts what has
to be sent into `out`. Whatever else it needs, the driver that carries its bytes does for it (the methods that
raise NotImplementedError). Time is an argument.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from lockd.build import mypyc_attr
from lockd.core.admission import Elsewhere, Numbered
from lockd.core.answers import Flaw, Nonsense, flaw_of, is_of_release, one_line, refuses_all
from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.ballot import (
    ELSEWHERE,
    MISCOUNTS,
    NO_IDENTITY,
    NO_LEASE,
    PUT_BACK,
    TTL_TOO_LONG,
    YES,
    Ballot,
)
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.ballots.put_back import PutBack
from lockd.core.ballots.release import Release
from lockd.core.clocks import ClockWatch
from lockd.core.counters import CountersSeen
from lockd.core.debts import Debts, is_debt
from lockd.core.fences import is_right_counter, largest_sane, slot_of
from lockd.core.identities import FORMAT, Identity
from lockd.core.membership import BY_OTHERS, MasterFacts, State
from lockd.core.notices import Notice, read
from lockd.core.stakes import Stock
from lockd.core.validity import NEVER_NS, NS_PER_MS

_VOTES = frozenset((Attempt, FenceRound, Extension, PutBack))
LOCK, EXTEND, UNLOCK = "LOCK", "EXTEND", "UNLOCK"
_KIND_OF = {Attempt: LOCK, FenceRound: LOCK, PutBack: LOCK, Extension: EXTEND, Release: UNLOCK}
"""What apps call what these are for. A master may refuse one kind, by a right that it doesn't give or a
command that it doesn't have, and do all others."""
_WRITTEN = {Attempt: (YES,), Extension: (YES, ELSEWHERE, PUT_BACK)}
"""The answers behind which a master has done all that it needs for their kind: it does not refuse that."""
_REFUSED = {
    NO_IDENTITY: "no_identity",
    TTL_TOO_LONG: "ttl_above_ceiling",
    MISCOUNTS: "miscounting",
    NO_LEASE: "no_lease",
}
_ADVICE = "wipe it and admit it again (see the runbook of LockdMasterMiscounting)"
_FORGIVEN_NS = 60_000 * NS_PER_MS
_FLUSHED_AGAIN_NS = 1_000 * NS_PER_MS
_LEFT_ALONE_MOST_NS = 30_000 * NS_PER_MS
_NOTHING = b""
"""What follows a question that is not a vote."""

RECENT_NS = 100 * NS_PER_MS
"""A master that has answered something within this time stands by what it said before."""
LOOK_NS = 50 * NS_PER_MS
"""How often to call `look` while a question is unanswered."""
PROBE_NS = 1_000 * NS_PER_MS
"""How often to read a master's clock, outside of votes."""
INSPECT_EVERY = 5
"""With every so many of these readings, its facts are read, too."""
LOOK_AGAIN_NS = 100 * NS_PER_MS
"""The facts are read at once when something looked wrong, but not sooner than this after the last time: a
flood of errors is no reason to look a thousand times a second."""


class Call(Protocol):
    """A single question to one master, outside of any ballot."""

    def take(self, reply: Any) -> None: ...

    def fail(self, why: str) -> None: ...


Question = tuple[Ballot | Call, Any, int]
"""A ballot or a call, how it reads on the wire, and when it was sent."""


@dataclass(frozen=True, slots=True)
class VoteTaken:
    """This agent has taken a master's vote, to form its cluster again or to upgrade it (changes/votes.py). It
    has the digest of members that the master shows since then, which no other has, and since when the master
    has not voted."""

    members_digest: str
    since_ns: int


class Listener(Protocol):
    """The fan-out, as a link sees it."""

    trusted: int
    fence_most: int
    """The largest fence that the masters' clocks allow."""

    def flush_soon(self) -> None:
        """Send all links' `out` at the end of this turn."""

    def state_changed(self, link: Any, now_ns: int) -> None: ...

    def judge(self, link: Any, facts: MasterFacts) -> tuple[State, str]: ...

    def identity_changed(self, link: Any, now_ns: int) -> None: ...

    def members_digest_of(self, link: Any, identity: Identity) -> str:
        """The digest of members by this agent's own list of masters."""

    def introduced(self, link: Any) -> None: ...

    def not_counted(self, link: Any, why: str) -> None: ...

    def nonsense(self, link: Any) -> None: ...

    def counter_fell(self, link: Any, slot: int) -> None: ...

    def broke(self, ballot: Ballot, failure: Exception, now_ns: int) -> None: ...

    def weigh(self, now_ns: int) -> None: ...

    def noticed(self, link: Any, notice: Notice, now_ns: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a master may take to answer before it is skipped, and before its connection is given up (rule
    5)."""

    timeout_ns: int
    dead_ns: int


@mypyc_attr(allow_interpreted_subclasses=True)
class Link:
    """One master. `state` and `reason` say what it is to this agent; only an `up` master is asked for votes.

    introduced: there is a connection on which anything may be asked. out: what has to be sent, in pairs: a
    question, and the digest of members that follows it if it is a vote. facts: as they were last read.
    """

    def __init__(
        self,
        index: int,
        listener: Listener,
        watch: ClockWatch,
        patience: Patience,
        spell: Callable[[str], Any],
        room: Stock | None = None,
    ) -> None:
        """spell: how a digest of members reads on the wire. room: the memory that accounts share; None: there
        is enough for everything that is owed to this master."""
        self.index = index
        self.bit = 1 << index
        self.state = State.CONNECTING
        self.reason = "not connected yet"
        self.facts: MasterFacts | None = None
        self.introduced = False
        self.refuses: dict[str, str] = {}
        """What it refuses to everybody on this connection, by kind, and with what error. Other threads read
        this: it is replaced as a whole."""
        self.blank_since_ns: int | None = None
        self.numbered: Numbered | None = None
        """While it is being admitted: the number that was written on the others."""
        self.taken: VoteTaken | None = None
        self.elsewhere = Elsewhere()
        self.out: list[Any] = []
        self._listener = listener
        self._watch = watch
        self._patience = patience
        self._spell = spell
        self._members_digest = spell("")
        self._members_digest_since_ns = 0
        self._in_flight: deque[Question] = deque()
        self._to_ask_again: list[Question] = []
        self._debts = Debts(room if room is not None else Stock("bytes", NEVER_NS, 0, 100))
        self._session: tuple[str, int] | None = None
        self._session_began = False
        self._heard_ns = 0
        self._introduced_ns = 0
        self._tries = 0
        self._offences = 0
        self._offended_ns = 0
        self._left_alone = False
        self._flushed_ns = -_FLUSHED_AGAIN_NS
        self._wrong_slot: int | None = None
        self.counters = CountersSeen()
        self._is_there = False
        self._dropped = ""
        self._unfit = False

    @property
    def identity(self) -> Identity | None:
        """As it was last read."""
        return self.facts.identity if self.facts is not None else None

    # What the driver does for it

    def hang_up(self) -> None:
        """Close this connection at once; `broken` is called when it is closed."""
        raise NotImplementedError

    def look_closer(self) -> None:
        """Something looked wrong: read its facts soon, and settle its debts."""
        raise NotImplementedError

    def give_back_soon(self) -> None:
        """Call `give_back_more` in a later turn of the loop."""
        raise NotImplementedError

    # Asking

    def ask(self, question: Question) -> None:
        """Send this question at the end of this turn."""
        self._listener.flush_soon()
        self._put(question)

    def _put(self, question: Question) -> None:
        self._in_flight.append(question)
        self.out += (question[1], _NOTHING)

    def ask_vote(self, question: Question) -> None:
        """The same for a vote: only this master, as this agent knows it, may say yes to it (rule 8)."""
        self._listener.flush_soon()
        self.put_vote(question)

    def put_vote(self, question: Question) -> None:
        """The same for one of several links that are asked: the caller has them flushed."""
        self._in_flight.append(question)
        self.out += (question[1], self._members_digest)

    def give_back(self, release: Release, question: Question) -> bool:
        """Ask for this release now, behind what apps ask, or when the master is back. False: it is not kept
        for that. The caller has the link flushed."""
        if not self.introduced:
            if is_debt(release):
                self._keep(release, question[1])
            return is_debt(release)
        if release.patient:
            self._debts.add(release, question[1])
            self._gives_up_soon()
            if self._debts.is_quiet:
                self._ask_releases(question[2])
        else:
            self._in_flight.append(question)
            self.out += (question[1], _NOTHING)
        return True

    def _keep(self, ballot: Ballot, payload: Any) -> None:
        self._debts.keep(ballot, payload)
        self._gives_up_soon()

    def _gives_up_soon(self) -> None:
        """Not in the middle of what core is doing."""
        if len(self._debts.forgotten) == 1:
            self.give_back_soon()

    # Hearing

    def heard(self, reply: Any, now_ns: int, *, is_error: bool = False) -> int:
        """The answer to the oldest question; is_error: it is the text of an error.

        Returns how long a vote took, for the metrics, or 0 if that means nothing. Raises Nonsense when no
        master of ours would answer this; the caller passes it to `talks_nonsense`.
        """
        if not self._in_flight:
            raise Nonsense("it answered something that was not asked")
        question, payload, sent_ns = self._in_flight.popleft()
        self._heard_ns = now_ns
        kind = question.__class__
        try:
            if is_error:
                self._refused(question, payload, one_line(reply), now_ns)
            elif kind is Release:
                self._released(question, payload, reply, now_ns)
            elif kind in _VOTES:
                return self._voted(question, payload, sent_ns, reply, now_ns)
            else:
                question.take(reply)  # type: ignore[union-attr]  # it is no ballot
        except Nonsense:
            raise
        except Exception as failure:
            # An error of the agent. It happens where the deciding answer arrives, so it is not that master's
            # fault, and concerns no other ballot.
            self._broke(question, failure, now_ns)
        return 0

    def noticed(self, payload: object, now_ns: int) -> None:
        """A notice that came through its master. Any agent may publish one, so an invalid one is nothing, and
        not the master's fault."""
        notice = read(payload)
        if notice is not None:
            self._listener.noticed(self, notice, now_ns)

    def _voted(self, ballot: Any, payload: Any, sent_ns: int, reply: Any, now_ns: int) -> int:
        listener = self._listener
        flaw = flaw_of(ballot, reply, listener.fence_most)
        if flaw is not None:
            self._flawed(ballot, reply, flaw, now_ns)
            return 0
        # A master that refuses a try says which lease it has.
        holder_nonce = reply.pop() if len(reply) == 4 else b""
        status, value, master_us = reply
        if self.refuses and status in _WRITTEN.get(ballot.__class__, ()):
            self._does(_KIND_OF[ballot.__class__], now_ns)
        if self._watch.observe(sent_ns, now_ns, master_us):
            listener.weigh(now_ns)
        if status == NO_IDENTITY and self._looks_first(ballot, payload, sent_ns):
            return 0
        # Whether it counts is known only after its clock has been looked at (rule 11).
        counts = listener.trusted & self.bit != 0
        if ballot.__class__ is Attempt and status == YES and value > ballot.hint:
            self.counters.named(ballot.slot, value)
        took_ns = now_ns - sent_ns
        if took_ns > self._patience.timeout_ns or status < 0 or not counts:
            listener.not_counted(self, self._why_not_counted(status, counts))
        ballot.answered(self.index, status, value, counts, now_ns, holder_nonce)
        return took_ns

    def _looks_first(self, ballot: Ballot, payload: Any, sent_ns: int) -> bool:
        """The master has another digest than this link knew. If only the list of members has changed (another
        master is being admitted), the vote is asked again after the link has looked, within its time, so that
        no app has to hear of it. For a lease that is over, core has settled everything already."""
        self.look_closer()
        if ballot.outcome is not None:
            return False
        self._to_ask_again.append((ballot, payload, sent_ns))
        return True

    def ask_refused_again(self, now_ns: int) -> None:
        """The link has looked. What was refused was asked earlier than all other questions, so it is asked
        again before them."""
        refused, self._to_ask_again = self._to_ask_again, []
        for ballot, payload, sent_ns in refused:
            assert isinstance(ballot, Ballot)
            # Judged by when it was sent, not by when it was answered: the link may have looked in between.
            other = sent_ns < self._members_digest_since_ns
            if other and self._worth_asking(ballot) and now_ns < ballot.until_ns:
                self.ask_vote((ballot, payload, now_ns))
                continue
            self._listener.not_counted(self, _REFUSED[NO_IDENTITY])
            try:
                ballot.answered(self.index, NO_IDENTITY, 0, False, now_ns)
            except Exception as failure:
                self._broke(ballot, failure, now_ns)

    def _worth_asking(self, ballot: Ballot) -> bool:
        return self.state is State.UP and ballot.outcome is None

    def _released(self, release: Any, payload: Any, reply: Any, now_ns: int) -> None:
        if self._debts.asked and self._debts.was_answered(release):
            self.give_back_more(now_ns)
        if is_of_release(reply):
            if self.refuses and reply:
                self._does(UNLOCK, now_ns)
            release.answered(self.index, reply, 0, True, now_ns)
            return
        # It is not known what the release did, so it is still a debt (rule 3).
        release.asked_again |= self.bit
        self._keep(release, payload)
        raise Nonsense("its answer to a release is invalid")

    def _flawed(self, ballot: Ballot, reply: Any, flaw: Flaw, now_ns: int) -> None:
        """This costs the master its vote, and the ballot only this vote. What may have landed there all the
        same is given back with the rest (rule 3)."""
        self._listener.not_counted(self, flaw)
        if flaw is Flaw.NONSENSE:
            self._unanswered(ballot, "its answer is invalid", now_ns)
            raise Nonsense("its answer to a vote is invalid")
        assert isinstance(ballot, Attempt | FenceRound)
        self._wrong_slot = slot_of(ballot.resource)
        if self.state in (State.UP, State.STALLED):
            named = f" named {reply[1]}" if reply[0] >= 0 else " refuses"
            self._change(State.MISCOUNTING, f"its fence counter {self._wrong_slot}{named}: {_ADVICE}", now_ns)
        if reply[0] == MISCOUNTS:
            ballot.answered(self.index, MISCOUNTS, 0, False, now_ns)
        else:
            self._unanswered(ballot, "fence counter is wrong", now_ns)

    def _refused(self, question: Ballot | Call, payload: Any, error: str, now_ns: int) -> None:
        if isinstance(question, Ballot):
            self._ballot_refused(question, payload, error, now_ns)
        else:
            question.fail(error)

    def _ballot_refused(self, ballot: Ballot, payload: Any, error: str, now_ns: int) -> None:
        if self._debts.was_answered(ballot):
            self.give_back_more(now_ns)
        if error.startswith("NOSCRIPT"):
            # The scripts were flushed: a new connection loads them, and asks again.
            self._keep(ballot, payload)
            self._scripts_are_gone(now_ns)
            return
        why = refuses_all(error)
        if why:
            self._refuses_now(self.refuses | {_KIND_OF[ballot.__class__]: why}, now_ns)
        if isinstance(ballot, Release):
            ballot.erring |= self.bit
        elif ballot.pending & self.bit:
            self._listener.not_counted(self, "error")
        if is_debt(ballot):
            # It is still a debt (rule 3).
            self._keep(ballot, payload)
        self._unanswered(ballot, f"error {why or error.split(' ', 1)[0]}", now_ns)
        self.look_closer()

    def _does(self, kind: str, now_ns: int) -> None:
        self._refuses_now({other: why for other, why in self.refuses.items() if other != kind}, now_ns)

    def _refuses_now(self, refuses: dict[str, str], now_ns: int) -> None:
        """It is asked all the same: nothing else shows when it does that again."""
        before, self.refuses = self.refuses, refuses
        if before != refuses:
            self._listener.state_changed(self, now_ns)

    def _scripts_are_gone(self, now_ns: int) -> None:
        if self._dropped:
            return  # it says so to all that was on its way
        before_ns, self._flushed_ns = self._flushed_ns, now_ns
        if now_ns - before_ns < _FLUSHED_AGAIN_NS:
            self.talks_nonsense("its scripts are gone as soon as they are loaded", now_ns)
        else:
            self.drop("its scripts were flushed", now_ns)

    def talks_nonsense(self, what: str, now_ns: int) -> None:
        """The master is left alone for a while, and longer each time: its answers can't be used, and each try
        costs something."""
        if now_ns - self._offended_ns > _FORGIVEN_NS:
            self._offences = 0
        self._offended_ns = now_ns
        self._offences += 1
        self._left_alone = True
        self._listener.nonsense(self)
        self.drop(f"it talks nonsense: {what}", now_ns)

    def _unanswered(self, ballot: Ballot, why: str, now_ns: int) -> None:
        try:
            ballot.unanswered(self.index, why, now_ns)
        except Exception as failure:
            self._broke(ballot, failure, now_ns)

    def _broke(self, question: Ballot | Call, failure: Exception, now_ns: int) -> None:
        assert isinstance(question, Ballot), failure  # a call only takes its answer
        self._listener.broke(question, failure, now_ns)

    def _why_not_counted(self, status: int, counts: bool) -> str:
        """The reason in a word, for the metrics. A master that is up and has no vote has none because of its
        clock."""
        if status < 0:
            return _REFUSED.get(status, "error")
        if counts:
            return "late"
        return "clock" if self.state in (State.UP, State.STALLED) else "state"

    # Connections

    def connects(self, now_ns: int) -> None:
        """A new connection is made. Until it is introduced, only questions about who is there may be
        asked."""
        self._heard_ns = now_ns
        self._is_there = True
        self._dropped, self.refuses = "", {}
        self._unfit = self._session_began = False

    def session_to_end(self) -> int | None:
        """The number of the last connection. The master has to drop what arrived on it and was not run yet:
        that must not run after what arrives now (rule 3). Call it once the link is `inspected`."""
        assert self.facts is not None
        # After a restart the numbers begin again, so another client may have this one.
        if self._session is not None and self._session[0] == self.facts.run_id:
            return self._session[1]
        return None

    def session_began(self, number: int) -> None:
        """The old session, if there was one to end, has ended: only now it may be forgotten."""
        assert self.facts is not None
        self._session = (self.facts.run_id, number)
        self._session_began = True

    def introduce(self, now_ns: int) -> None:
        """Everything is known about the master, and the old session has ended. First, what was left
        unanswered is asked again."""
        assert self._session_began, "what lies in the old connection may run after what is asked now (rule 3)"
        self.introduced = True
        self._introduced_ns = now_ns
        self._tries = 0
        self.judge_again(now_ns)  # meanwhile the others may have become known
        self._listener.introduced(self)
        self.settle_debts(now_ns, after_break=True)
        self._listener.state_changed(self, now_ns)

    def broken(self, why: str, now_ns: int) -> None:
        """This connection is closed."""
        self._is_there = self.introduced = False
        # The number is for the machine that was there: next time, another may be behind the address (rule 8).
        self.blank_since_ns = self.numbered = None
        self.out.clear()
        # What was refused was asked before everything in flight: no put-back may pass an older extension.
        for question, payload, _ in (*self._to_ask_again, *self._in_flight):
            if not isinstance(question, Ballot):
                question.fail("connection lost")
                continue
            if isinstance(question, Release):
                question.asked_again |= self.bit
            self._keep(question, payload)
        self._in_flight.clear()
        self._to_ask_again.clear()
        self._debts.broke_off()
        if self.state is not State.DOWN and not self._unfit:
            self._change(State.DOWN, why, now_ns)

    def failed_to_connect(self, why: str, now_ns: int, unfit: State | None = None) -> None:
        """There is no connection, or none on which the master may be asked; unfit: its state in that case.
        Votes are given up; releases are kept."""
        # If the link was dropped for a reason, "connection lost" is only the consequence.
        why = self._dropped or why
        self._tries += 1
        self._unfit = unfit is not None
        self._change(unfit or State.DOWN, why, now_ns)
        _, votes = self._debts.take_votes(now_ns, up=False)
        for ballot in votes:
            self._give_up(ballot, why, now_ns)

    @property
    def is_dropped(self) -> bool:
        """The connection was given up: nothing that still arrives on it counts."""
        return self._dropped != ""

    def drop(self, why: str, now_ns: int) -> None:
        """Give this connection up. If it has broken already, the reason for that is the better one."""
        if not self._is_there:
            return
        self._dropped = why
        self._change(State.DOWN, why, now_ns)
        self.hang_up()

    def rest_ns(self, chance: float) -> int:
        """How long to wait before the next connection. chance: from 0 to 1, so that the agents of all hosts
        don't come back at the same moment."""
        if self._left_alone:
            self._left_alone = False
            rest_ns = min(_LEFT_ALONE_MOST_NS, 250 * NS_PER_MS << min(self._offences, 10))
        else:
            rest_ns = min(1_000 * NS_PER_MS, 5 * NS_PER_MS << min(self._tries, 10))
        return int(rest_ns * (0.5 + chance))

    def settle_debts(self, now_ns: int, *, after_break: bool) -> None:
        """Ask again what the last connection left unanswered, and what was refused with an error (a full
        disk, for example), as far as that is still useful: votes at once, releases a few at a time."""
        votes, given_up = self._debts.take_votes(now_ns, up=self.state is State.UP)
        for ballot, payload in votes:
            ask = self.ask if isinstance(ballot, Release) else self.ask_vote
            ask((ballot, payload, now_ns))
        for ballot in given_up:
            self._give_up(ballot, "connection lost", now_ns)
        self._debts.come_due(after_break=after_break)
        self.give_back_more(now_ns)

    def give_back_more(self, now_ns: int) -> None:
        """The next few of the releases that are due. Nobody asks for those that were forgotten."""
        forgotten, self._debts.forgotten = self._debts.forgotten, []
        for release in forgotten:
            self._give_up(release, "its account has no room for more", now_ns)
        if self.introduced:
            self._ask_releases(now_ns)

    def _ask_releases(self, now_ns: int) -> None:
        releases, given_up = self._debts.take_releases(now_ns)
        for release, payload in releases:
            self.ask((release, payload, now_ns))
        for release in given_up:
            self._give_up(release, "connection lost", now_ns)
        if self._debts.is_quiet:
            self.give_back_soon()

    def _give_up(self, ballot: Ballot, why: str, now_ns: int) -> None:
        """There will be no answer to this."""
        if not isinstance(ballot, Release):
            self._listener.not_counted(self, "connection_lost")
        self._unanswered(ballot, why, now_ns)

    # Watching over it

    def look(self, now_ns: int) -> None:
        """A master that doesn't answer in time is skipped, and after a while given up (rule 5)."""
        if not self._in_flight:
            return
        waiting_ns = self.waits_ns(now_ns)
        if self.state is State.UP and waiting_ns > self._patience.timeout_ns:
            self._change(State.STALLED, f"no answer for {waiting_ns // NS_PER_MS} ms", now_ns)
        if min(waiting_ns, now_ns - self._heard_ns) > self._patience.dead_ns:
            self.drop(f"no answer for {self._patience.dead_ns // NS_PER_MS} ms", now_ns)

    def waits_ns(self, now_ns: int) -> int:
        """For how long the oldest question waits for its answer."""
        return now_ns - self._in_flight[0][2] if self._in_flight else 0

    def stands_since(self, t1_ns: int, now_ns: int) -> bool:
        """A question of that time was asked on this connection, and the master has answered something just
        now."""
        return self.introduced and self._introduced_ns <= t1_ns and now_ns - self._heard_ns <= RECENT_NS

    def look_if_alive(self, now_ns: int) -> None:
        """It was stalled, and has answered something."""
        if self.state is State.STALLED and self.waits_ns(now_ns) <= self._patience.timeout_ns:
            self._change(State.UP, "", now_ns)

    def _change(self, state: State, reason: str, now_ns: int) -> None:
        reason = one_line(reason)
        if (state, reason) != (self.state, self.reason):
            self.state, self.reason = state, reason
            self._listener.state_changed(self, now_ns)

    # What it is

    def inspected(self, facts: MasterFacts, now_ns: int) -> None:
        """Its facts were read, before it is introduced and again every few seconds. Afterwards
        `counter_to_read` says whether more has to be read."""
        before, self.facts = self.facts, facts
        for slot in self.counters.fallen(facts):
            self._listener.counter_fell(self, slot)
        if before is None or before.identity != facts.identity:
            self._take_members_digest(facts.identity, now_ns)
            self._listener.identity_changed(self, now_ns)
        state, reason = self._listener.judge(self, facts)
        if state is State.BLANK:
            self._wrong_slot = None
        elif state is State.UP and self._wrong_slot is not None:
            wrong = f"its fence counter {self._wrong_slot} was wrong"
            state, reason = State.MISCOUNTING, self.reason if self.state is State.MISCOUNTING else wrong
        if state is not State.BLANK:
            self.blank_since_ns = self.numbered = None
            self.elsewhere.is_over()
        elif self.blank_since_ns is None:
            self.blank_since_ns = now_ns
        self._change(state, reason, now_ns)

    @property
    def counter_to_read(self) -> int | None:
        """The slot of the counter that was wrong: the master has no vote until it is right again (rule 6)."""
        has_counters = self.facts is not None and self.facts.has_counters
        return self._wrong_slot if self.state is State.MISCOUNTING and has_counters else None

    def counter_read(self, slot: int, stored: str, master_us: int, now_ns: int) -> None:
        """Check whether the counter that was wrong is right again: the fault may have been in the master's
        clock. stored: as the master has it."""
        if slot != self.counter_to_read:
            return
        if is_right_counter(stored, min(self._listener.fence_most, largest_sane(master_us))):
            assert self.facts is not None
            self._wrong_slot = None
            self._change(*self._listener.judge(self, self.facts), now_ns)
        else:
            shows = f"its fence counter {slot} is at {stored[:20]}, its clock at {master_us}"
            self._change(State.MISCOUNTING, f"{shows}: {_ADVICE}", now_ns)

    @property
    def copy_to_write_down(self) -> bool:
        """A promoted copy forgets that it is one when it is restarted."""
        facts = self.facts
        return (
            facts is not None
            and facts.copying.was_replica
            and not facts.copying.known
            and facts.identity is not None
        )

    def probed(self, sent_ns: int, now_ns: int, master_us: int) -> None:
        """Its clock, outside of any vote (rule 11)."""
        if self._watch.observe(sent_ns, now_ns, master_us):
            self._listener.weigh(now_ns)

    def shows_another(self, digest: object) -> bool:
        """This tells an agent with nothing to do that another member was admitted, before an app needs to
        know."""
        identity = self.identity
        return (
            identity is not None and identity.format == FORMAT and digest != identity.members_digest.encode()
        )

    def _take_members_digest(self, identity: Identity | None, now_ns: int) -> None:
        """No master can make this agent vote for members that are not in its configuration."""
        word = self._listener.members_digest_of(self, identity) if identity is not None else ""
        before, self._members_digest = self._members_digest, self._spell(word)
        if self._members_digest != before:
            self._members_digest_since_ns = now_ns

    def wait_anew(self, now_ns: int) -> None:
        """From now on, the times are measured again since it was blank, since the others know its number, and
        since its vote was taken."""
        if self.blank_since_ns is not None:
            self.blank_since_ns = now_ns
        if self.numbered is not None:
            self.numbered = Numbered(self.numbered.number, now_ns)
        if self.taken is not None:
            self.taken = VoteTaken(self.taken.members_digest, now_ns)

    def judge_again(self, now_ns: int) -> None:
        """Judge it by what another master shows now."""
        if self.introduced and self.facts is not None and self.state in BY_OTHERS:
            self._change(*self._listener.judge(self, self.facts), now_ns)
