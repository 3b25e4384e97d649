"""The link to one master: one connection at a time, everything in the order in which it was sent (rule 3).

What is asked goes out together, once per event-loop turn. When a connection breaks, what was asked and not
answered is asked again on the next one, in the same order, for as long as it is worth it. Before that, the
master is told to close the old connection: commands that still lie in its buffers would otherwise run after
those of the new one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from random import random
from time import CLOCK_BOOTTIME, clock_gettime_ns
from typing import Any, Protocol

import hiredis

from lockd.clock import boottime_ns
from lockd.config.model import Config, Master
from lockd.core.admission import Elsewhere, Numbered
from lockd.core.answers import Flaw, flaw_of, is_of_release
from lockd.core.ballots import (
    MISCOUNTS,
    NO_IDENTITY,
    TTL_TOO_LONG,
    Attempt,
    Ballot,
    FenceRound,
    Release,
    Verdict,
)
from lockd.core.clocks import ClockWatch
from lockd.core.debts import Debts, is_debt
from lockd.core.fences import SANE_MOST, is_right_counter, largest_sane, slot_of
from lockd.core.identities import FORMAT, Identity
from lockd.core.membership import BY_OTHERS, Copying, Facts, State
from lockd.masters import handshake, replies, scripts
from lockd.masters.failures import MasterError, Unfit
from lockd.masters.framing import DELETED, LONGEST_BYTES, Framing, is_one_vote
from lockd.masters.replies import Nonsense, as_shown
from lockd.masters.scripts import command

_PROBE_S = 1.0
_INSPECT_EVERY = 5
_REFUSED = {NO_IDENTITY: "no_identity", TTL_TOO_LONG: "ttl_above_ceiling", MISCOUNTS: "miscounting"}
_NOTHING = object()
"""What the parser gives when it has no whole reply: False is one, in RESP3."""
_ADVICE = "wipe it and admit it again (see the runbook of LockMasterMiscounting)"
_FORGIVEN_NS = 60_000_000_000
_FLUSHED_AGAIN_NS = 1_000_000_000
_LEFT_ALONE_MOST_S = 30.0
_LOOK_AGAIN_NS = 100_000_000
HEARD_AT_ONCE = 64
"""So many answers of one master are heard in a turn of the event loop: each may be what an app waits for, and
has its reply written. Of thousands that come together the others come after what else is due."""


class Call:
    """A single question to one master, outside of any ballot: a future that becomes its raw answer."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Any] = loop.create_future()

    def settle(self, reply: Any) -> None:
        if self.future.done():
            return
        if isinstance(reply, Exception):
            self.future.set_exception(MasterError(as_shown(str(reply))))
            self.future.exception()  # seen: several may fail together, and only the first is waited for
        else:
            self.future.set_result(reply)


Question = tuple[Ballot | Call, bytes, int]
"""What is asked, as a ballot or a call; how it reads on the wire; and when it was sent."""


def _in_words(failure: Exception) -> str:
    """Why a connection failed, as an operator would say it."""
    if isinstance(failure, TimeoutError):
        return "no answer in time"
    if isinstance(failure, OSError) and failure.strerror:
        return failure.strerror.lower()
    return str(failure) or repr(failure)


class Listener(Protocol):
    """The fan-out, as a link sees it."""

    trusted: int
    fence_most: int
    """The largest fence that the masters' clocks allow."""

    def flush_soon(self) -> None:
        """Have all links flushed at the end of this turn."""

    def state_changed(self, link: "Link") -> None: ...

    def judge(self, link: "Link", facts: Facts) -> tuple[State, str]: ...

    def identity_changed(self, link: "Link") -> None: ...

    def introduced(self, link: "Link") -> None: ...

    def votes_of(self, master: int) -> Callable[[int], None]:
        """What wants to know how long each vote of this master took, in ns."""

    def probed(self, link: "Link", took_ns: int) -> None: ...

    def not_counted(self, link: "Link", why: str) -> None: ...

    def nonsense(self, link: "Link") -> None: ...

    def broke(self, ballot: Ballot, failure: Exception, now_ns: int) -> None: ...

    def weigh(self, now_ns: int) -> None: ...


class Link(asyncio.Protocol):
    """One master. `state` and `reason` say what it is to us; only an `up` one is asked for votes."""

    def __init__(
        self, index: int, master: Master, config: Config, listener: Listener, watch: ClockWatch
    ) -> None:
        self.index = index
        self.bit = 1 << index
        self._watch = watch
        self.master = master
        self.state = State.CONNECTING
        self.reason = "not connected yet"
        self.facts: Facts | None = None
        self._electorate = scripts.bulk(b"")
        self._electorate_since_ns = 0
        self._to_ask_again: list[Question] = []
        self.introduced = False
        self.blank_since_ns: int | None = None
        self.numbered: Numbered | None = None
        """While it is being admitted: what was written on the others."""
        self.elsewhere = Elsewhere()
        self.round_trip_ns = 0
        self._config = config
        self._listener = listener
        self._voted_after = listener.votes_of(index)
        self._timeout_ns = config.timeouts.master_ms * 1_000_000
        self._dead_ns = config.timeouts.dead_ms * 1_000_000
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._framing = Framing()
        self._unfinished_bytes = 0
        self._lags = False
        self._offences = 0
        self._offended_ns = 0
        self._leave_alone = False
        self._flushed_ns = -_FLUSHED_AGAIN_NS
        self._wrong_slot: int | None = None
        self._out: list[bytes] = []
        self._in_flight: deque[Question] = deque()
        self._debts = Debts()
        self._closed = asyncio.Event()
        self._closed.set()
        self._look_closer = asyncio.Event()
        self._hurried: asyncio.Task[None] | None = None
        self._heard_ns = 0
        self._dropped = ""
        self._unfit = False
        self._session: tuple[str, int] | None = None

    # Asking

    def ask(self, question: Question) -> None:
        """Send what is asked at the end of this event-loop turn."""
        self._listener.flush_soon()
        self._in_flight.append(question)
        self._out.append(question[1])

    def ask_vote(self, question: Question) -> None:
        """The same for what only this master, as this agent knows it, may say yes to (rule 8)."""
        self._listener.flush_soon()
        self.put_vote(question)

    def put_vote(self, question: Question) -> None:
        """One of several links that are asked: who asks them has them flushed."""
        self._in_flight.append(question)
        self._out += (question[1], self._electorate)

    def give_back(self, release: Release, question: Question) -> bool:
        """Now, behind what apps ask, or when the master is back; False: this one is not kept for that. Who
        asks has it flushed."""
        payload = question[1]
        if not self.introduced:
            if is_debt(release):
                self._debts.keep(release, payload)
            return is_debt(release)
        if release.patient:
            self._debts.add(release, payload)
            if self._debts.is_quiet:
                self._give_back_more()
        else:
            self._in_flight.append(question)
            self._out.append(payload)
        return True

    def call(self, *words: bytes | str | int) -> "asyncio.Future[Any]":
        """Ask this master alone; the future gets its raw answer, or MasterError."""
        question = Call(asyncio.get_running_loop())
        if self._transport is None:
            question.settle(MasterError("not connected"))
            return question.future
        self.ask((question, command(*words), boottime_ns()))
        return question.future

    def flush(self) -> None:
        """One write for all that was asked in this turn."""
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out))
        self._out.clear()

    # Hearing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports don't derive from asyncio's
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._framing = Framing()
        self._unfinished_bytes = 0
        self._heard_ns = boottime_ns()
        self._dropped = ""
        self._unfit = False
        self._closed.clear()

    def data_received(self, data: bytes) -> None:
        """Ten answers for each grant come through here and `_hear`: they are written for speed."""
        framing = self._framing
        try:
            if framing.inside or not (data == DELETED or is_one_vote(data)):
                framing.admit(data)
            self._reader.feed(data)
            self._unfinished_bytes += len(data)
            if not self._lags:
                self._hear()
            if self._unfinished_bytes > LONGEST_BYTES:
                raise Nonsense(f"an answer of more than {LONGEST_BYTES} bytes")
        except Exception as broken:
            # Ours, or of the parser: maps of RESP3 may have keys that Python's can't.
            self._talks_nonsense(str(broken))
        if self.state is State.STALLED:
            self._alive_again(self._heard_ns)

    def _hear(self) -> None:
        took_ns, in_flight, gets = 0, self._in_flight, self._reader.gets
        for _ in range(HEARD_AT_ONCE):
            if (reply := gets()) is _NOTHING:
                break
            if not in_flight:
                raise Nonsense("it answers what was not asked")
            self._unfinished_bytes = 0
            question, payload, sent_ns = in_flight.popleft()
            # Read anew for each: what is granted must still be valid now, not when the chunk began (rule 1).
            now_ns = self._heard_ns = clock_gettime_ns(CLOCK_BOOTTIME)
            kind = question.__class__
            try:
                if kind is Call or reply.__class__ is hiredis.ReplyError:
                    self._take(question, payload, reply, now_ns)
                elif kind is Release:
                    self._released(question, payload, reply, now_ns)
                else:
                    took_ns = self._voted(question, payload, sent_ns, reply, now_ns)
            except Nonsense:
                raise
            except Exception as failure:
                # A mistake of ours, which happens where the deciding answer comes: no fault of its master,
                # and nobody else's ballot.
                self._broke(question, failure, now_ns)
        else:
            self._hear_more_soon()
        if took_ns:
            self._voted_after(took_ns)

    def _hear_more_soon(self) -> None:
        """The rest of what came, in their order, in turns of their own. Nothing is read meanwhile: what comes
        faster than it is heard waits at its master."""
        self._lags = True
        if self._transport is not None:
            self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._hear_more)

    def _hear_more(self) -> None:
        if not self._lags or self._dropped:
            return  # what was not heard of that connection is asked again on the next one
        self._lags = False
        self.data_received(b"")
        if not self._lags and self._transport is not None and not self._dropped:
            self._transport.resume_reading()

    def _voted(self, ballot: Any, payload: bytes, sent_ns: int, reply: Any, now_ns: int) -> int:
        """Returns how long it took, for the metrics; 0 where that says nothing."""
        listener = self._listener
        flaw = flaw_of(ballot, reply, listener.fence_most)
        if flaw is not None:
            self._flawed(ballot, reply, flaw, now_ns)
            return 0
        # Who refuses a try says for whom.
        shown = reply.pop() if len(reply) == 4 else b""
        status, value, master_us = reply
        if self._watch.observe(sent_ns, now_ns, master_us):
            listener.weigh(now_ns)
        if status == NO_IDENTITY and self._looks_first(ballot, payload, sent_ns):
            return 0
        # Whether it counts is known only now that its clock has been looked at (rule 11).
        counts = listener.trusted & self.bit != 0
        took_ns = now_ns - sent_ns
        if took_ns > self._timeout_ns or status < 0 or not counts:
            listener.not_counted(self, self._why_not_counted(status, counts))
        ballot.answered(self.index, status, value, counts, now_ns, shown)
        return took_ns

    def _looks_first(self, ballot: Ballot, payload: bytes, sent_ns: int) -> bool:
        """It is of another electorate than this link knew. When that is only another list of members (another
        master is being admitted), it is asked again once the link has looked, within its time: no app has to
        hear of it. Core has settled what belongs to a lease that is over."""
        self._look_closer.set()
        if ballot.verdict is not Verdict.OPEN:
            return False
        self._to_ask_again.append((ballot, payload, sent_ns))
        return True

    def _ask_refused_again(self) -> None:
        now_ns, refused = boottime_ns(), self._to_ask_again
        self._to_ask_again = []
        for ballot, payload, sent_ns in refused:
            assert not isinstance(ballot, Call)
            # By when it was sent, not answered: the link may have looked in between.
            other = sent_ns < self._electorate_since_ns
            if other and self._worth_asking(ballot) and now_ns < ballot.until_ns:
                self.ask_vote((ballot, payload, now_ns))
                continue
            self._listener.not_counted(self, _REFUSED[NO_IDENTITY])
            try:
                ballot.answered(self.index, NO_IDENTITY, 0, False, now_ns)
            except Exception as failure:
                self._broke(ballot, failure, now_ns)

    def _released(self, release: Any, payload: bytes, reply: Any, now_ns: int) -> None:
        if self._debts.asked and self._debts.was_answered(release):
            self._give_back_more()
        if is_of_release(reply):
            release.answered(self.index, reply, 0, True, now_ns)
            return
        # What it did is not known: it is still owed (rule 3).
        release.asked_again |= self.bit
        self._debts.keep(release, payload)
        raise Nonsense("what it answered to a release is no answer to that")

    def _flawed(self, ballot: Ballot, reply: Any, flaw: Flaw, now_ns: int) -> None:
        """It costs this master its vote, and the ballot nothing but this vote. What may have landed there all
        the same is given back with the rest (rule 3)."""
        self._listener.not_counted(self, flaw)
        if flaw is Flaw.NONSENSE:
            self._unanswered(ballot, "its answer makes no sense", now_ns)
            raise Nonsense("what it answered to a vote is no answer to that")
        assert isinstance(ballot, Attempt | FenceRound)
        self._wrong_slot = slot_of(ballot.resource)
        if self.state in (State.UP, State.STALLED):
            named = f" named {reply[1]}" if reply[0] >= 0 else " refuses"
            self._change(State.MISCOUNTING, f"its fence counter {self._wrong_slot}{named}: {_ADVICE}")
        if reply[0] == MISCOUNTS:
            ballot.answered(self.index, MISCOUNTS, 0, False, now_ns)
        else:
            self._unanswered(ballot, "fence counter is wrong", now_ns)

    def _talks_nonsense(self, what: str) -> None:
        """Left alone for a while, for longer each time: what it says can't be used, and each try costs."""
        now_ns = boottime_ns()
        if now_ns - self._offended_ns > _FORGIVEN_NS:
            self._offences = 0
        self._offended_ns = now_ns
        self._offences += 1
        self._leave_alone = True
        self._listener.nonsense(self)
        self.drop(f"it talks nonsense: {what}")

    def _unanswered(self, ballot: Ballot, why: str, now_ns: int) -> None:
        try:
            ballot.unanswered(self.index, why, now_ns)
        except Exception as failure:
            self._broke(ballot, failure, now_ns)

    def _broke(self, question: Ballot | Call, failure: Exception, now_ns: int) -> None:
        assert isinstance(question, Ballot), failure  # a call only takes its answer
        self._listener.broke(question, failure, now_ns)

    def _why_not_counted(self, status: int, counts: bool) -> str:
        """In a word, for the metrics. A master that is up and has no vote has none because of its clock."""
        if status < 0:
            return _REFUSED.get(status, "error")
        if counts:
            return "late"
        return "clock" if self.state in (State.UP, State.STALLED) else "state"

    def _take(self, question: Ballot | Call, payload: bytes, reply: Any, now_ns: int) -> None:
        if isinstance(question, Call):
            question.settle(reply)
        else:
            self._refused(question, payload, as_shown(str(reply)), now_ns)

    def _refused(self, ballot: Ballot, payload: bytes, error: str, now_ns: int) -> None:
        if self._debts.was_answered(ballot):
            self._give_back_more()
        if error.startswith("NOSCRIPT"):
            # Somebody flushed the scripts: a new connection loads them, and asks again.
            self._debts.keep(ballot, payload)
            self._scripts_are_gone()
            return
        if is_debt(ballot):
            # It is still owed (rule 3).
            self._debts.keep(ballot, payload)
        elif ballot.pending & self.bit and not isinstance(ballot, Release):
            self._listener.not_counted(self, "error")
        self._unanswered(ballot, f"error {error.split(' ', 1)[0]}", now_ns)
        self._look_closer.set()

    def _scripts_are_gone(self) -> None:
        if self._dropped:
            return  # it says so to all that was on its way
        now_ns = boottime_ns()
        before_ns, self._flushed_ns = self._flushed_ns, now_ns
        if now_ns - before_ns < _FLUSHED_AGAIN_NS:
            self._talks_nonsense("its scripts are gone as soon as they are loaded")
        else:
            self.drop("its scripts were flushed")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.introduced = False
        # The number is for the machine that was there: another may be behind the address next time (rule 8).
        self.blank_since_ns = self.numbered = None
        self._out.clear()
        # What was refused was asked before all that is on its way: no put-back may pass an older extension.
        for question, payload, _ in (*self._to_ask_again, *self._in_flight):
            if isinstance(question, Call):
                question.settle(MasterError("connection lost"))
            else:
                if isinstance(question, Release):
                    question.asked_again |= self.bit
                self._debts.keep(question, payload)
        self._in_flight.clear()
        self._lags = False
        self._to_ask_again.clear()
        self._debts.broke_off()
        if self.state is not State.DOWN and not self._unfit:
            self._change(State.DOWN, f"connection lost{f': {exc}' if exc else ''}")
        self._closed.set()
        self._look_closer.set()

    # Watching over it

    def look(self, now_ns: int) -> None:
        """Called every few tens of ms: a master that doesn't answer in time is skipped, and after a while
        given up (rule 5)."""
        if not self._in_flight:
            return
        waiting_ns = now_ns - self._in_flight[0][2]
        if self.state is State.UP and waiting_ns > self._timeout_ns:
            self._change(State.STALLED, f"no answer for {waiting_ns // 1_000_000} ms")
        if min(waiting_ns, now_ns - self._heard_ns) > self._dead_ns:
            self.drop(f"no answer for {self._config.timeouts.dead_ms} ms")

    def _alive_again(self, now_ns: int) -> None:
        if not self._in_flight or now_ns - self._in_flight[0][2] <= self._timeout_ns:
            self._change(State.UP, "")

    def drop(self, why: str) -> None:
        """Close this connection; the link connects again by itself."""
        if self._transport is not None:
            self._dropped = why
            self._change(State.DOWN, why)
            self._transport.abort()

    def _change(self, state: State, reason: str) -> None:
        reason = as_shown(reason)
        if (state, reason) != (self.state, self.reason):
            self.state, self.reason = state, reason
            self._listener.state_changed(self)

    async def run(self) -> None:
        """Keep the link up for ever: connect, ask who it is, watch it, and again when that ends."""
        tries = 0
        while True:
            try:
                async with asyncio.timeout(self._config.timeouts.connect_ms / 1000):
                    await self._connect()
            except Exception as failure:
                # Whatever it is (refused, no answer, a password file that can't be read just now): a link
                # never gives up.
                self._failed_to_connect(failure)
                tries += 1
            else:
                tries = 0
                await self._attend()
            await self._closed.wait()
            # Jittered, so that the agents of all hosts don't come back in one moment.
            await asyncio.sleep(self._rest_s(tries) * (0.5 + random()))

    def _rest_s(self, tries: int) -> float:
        """How long to wait before the next connection."""
        if self._leave_alone:
            self._leave_alone = False
            return min(_LEFT_ALONE_MOST_S, 0.25 * (1 << min(self._offences, 10)))
        return min(1.0, 0.005 * (1 << min(tries, 10)))

    async def _connect(self) -> None:
        self._dropped = ""
        loop = asyncio.get_running_loop()
        await loop.create_connection(
            lambda: self,
            self.master.host,
            self.master.port,
            ssl=handshake.tls_context(self._config),
            server_hostname=handshake.tls_name(self._config, self.master),
        )
        session = await handshake.log_in(self.call, self._config)
        await self._inspect()
        if self.state is State.LOADING:
            raise Unfit(State.LOADING, "still loading its data")
        await self._end_the_old_session(session)
        await handshake.have_scripts(self.call)
        if self._transport is None:
            raise MasterError("connection lost")
        self.introduced = True
        self.judge_again()  # the others may have become known while its scripts were loaded
        self._listener.introduced(self)
        self._settle_debts(after_break=True)
        self._listener.state_changed(self)

    async def _end_the_old_session(self, session: int) -> None:
        """Have the master throw away what the last connection sent and it did not run yet: it must not run
        after what comes now."""
        assert self.facts is not None
        run_id = self.facts.run_id
        # After a restart its numbers begin anew, and the same one may be somebody else's.
        if self._session is not None and self._session[0] == run_id:
            await self.call("CLIENT", "KILL", "ID", self._session[1])
        self._session = (run_id, session)

    def _settle_debts(self, *, after_break: bool) -> None:
        """First of all, ask what the last connection left unanswered, as far as it is still worth it: votes
        at once, releases a few at a time."""
        now_ns = boottime_ns()
        votes, given_up = self._debts.take_votes(now_ns, up=self.state is State.UP)
        for ballot, payload in votes:
            ask = self.ask if isinstance(ballot, Release) else self.ask_vote
            ask((ballot, payload, now_ns))
        for ballot in given_up:
            self._give_up(ballot, "connection lost", now_ns)
        self._debts.come_due(after_break=after_break)
        self._give_back_more()

    def _give_back_more(self) -> None:
        """The next few of the releases that are due."""
        if not self.introduced:
            return
        now_ns = boottime_ns()
        releases, given_up = self._debts.take_releases(now_ns)
        for release, payload in releases:
            self.ask((release, payload, now_ns))
        for release in given_up:
            self._give_up(release, "connection lost", now_ns)
        if self._debts.is_quiet:
            asyncio.get_running_loop().call_soon(self._give_back_more)

    def _worth_asking(self, ballot: Ballot) -> bool:
        return self.state is State.UP and ballot.verdict is Verdict.OPEN

    def _failed_to_connect(self, failure: Exception) -> None:
        # Where the link was dropped for a cause, "connection lost" is only what came of it.
        if isinstance(failure, Nonsense):
            self._talks_nonsense(str(failure))
        why = self._dropped or _in_words(failure)
        self._unfit = isinstance(failure, Unfit)
        self._change(failure.state if isinstance(failure, Unfit) else State.DOWN, why)
        if self._transport is not None:
            self._transport.abort()
        now_ns = boottime_ns()
        _, votes = self._debts.take_votes(now_ns, up=False)
        for ballot in votes:
            self._give_up(ballot, why, now_ns)

    def _give_up(self, ballot: Ballot, why: str, now_ns: int) -> None:
        """No answer to this will ever come."""
        if not isinstance(ballot, Release):
            self._listener.not_counted(self, "connection_lost")
        self._unanswered(ballot, why, now_ns)

    async def _attend(self) -> None:
        """Sample its clock every second and its settings every five, or at once when something looked
        wrong."""
        beats = 0
        while not self._closed.is_set():
            self._look_closer.clear()
            looked_ns = boottime_ns()
            try:
                if beats % _INSPECT_EVERY == 0:
                    await self.inspect_now()
                    # What was refused with an error (a full disk, say) is still owed (rule 3).
                    self._settle_debts(after_break=False)
                await self._probe()
            except Nonsense as nonsense:
                self._talks_nonsense(str(nonsense))
            except Exception as failure:
                # Whatever it is: a link never gives up.
                self.drop(str(failure) or repr(failure))
            beats = 0 if await self._called_within_a_beat() else beats + 1
            if not beats:
                # At once, but a flood of errors is no reason to look a thousand times a second.
                rest_ns = looked_ns + _LOOK_AGAIN_NS - boottime_ns()
                await asyncio.sleep(0.0 if self._closed.is_set() else max(0.0, rest_ns / 1e9))

    async def _called_within_a_beat(self) -> bool:
        """Whether something looked wrong meanwhile. Not by `wait_for`: that of Python 3.11 forgets that its
        task was cancelled when both come in one turn, and an agent that stops would wait for this link for
        ever."""
        try:
            async with asyncio.timeout(_PROBE_S):
                await self._look_closer.wait()
        except TimeoutError:
            return False
        return True

    def probe_soon(self) -> None:
        """Its clock is to be looked at now: others seem to have jumped."""
        if self.introduced:
            self._hurried = asyncio.get_running_loop().create_task(self._probe_in_a_hurry())

    async def _probe_in_a_hurry(self) -> None:
        try:
            await self._probe()
        except Exception:
            # The next beat will see the same, and say so.
            self._look_closer.set()

    async def _probe(self) -> None:
        sent_ns = boottime_ns()
        shown = self.call("HGET", scripts.IDENTITY_KEY, "electorate")
        master_us = replies.time_us(await self.call("TIME"), SANE_MOST)
        now_ns = boottime_ns()
        self.round_trip_ns = now_ns - sent_ns
        self._listener.probed(self, self.round_trip_ns)
        if self._watch.observe(sent_ns, now_ns, master_us):
            self._listener.weigh(now_ns)
        self._compare_electorate(await shown)

    def _compare_electorate(self, shown: object) -> None:
        """So that an agent with nothing to do knows of a member that was admitted before somebody asks it."""
        identity = self.facts.identity if self.facts is not None else None
        if identity is not None and identity.format == FORMAT and shown != identity.electorate.encode():
            self._look_closer.set()

    async def _inspect(self) -> None:
        before, self.facts = self.facts, await handshake.read_facts(self.call)
        if before is None or before.identity != self.facts.identity:
            self._take_electorate(self.facts.identity)
            self._listener.identity_changed(self)
        if self.facts.copying.was_replica and self.facts.identity is not None:
            await self._write_down_copy(self.facts.copying)
        state, reason = self._listener.judge(self, self.facts)
        if state is State.BLANK:
            self._wrong_slot = None
        elif state is State.UP and self._wrong_slot is not None:
            state, reason = await self._look_at_counter(self._wrong_slot)
        if state is not State.BLANK:
            self.blank_since_ns = self.numbered = None
            self.elsewhere.is_over()
        elif self.blank_since_ns is None:
            self.blank_since_ns = boottime_ns()
        self._change(state, reason)

    async def _write_down_copy(self, copying: Copying) -> None:
        """A promoted copy forgets that it is one when it is restarted. Where that can't be written (a full
        disk), it is tried again at the next look."""
        if not copying.known:
            with suppress(MasterError):
                await self.call("HSET", scripts.FENCES_KEY, scripts.COPIED_FIELD, "1")

    def _take_electorate(self, identity: Identity | None) -> None:
        """By this agent's own list of masters: what it isn't configured for, no master can make it vote
        for."""
        names = [master.name for master in self._config.masters]
        word = identity.electorate_as(self.master.name, names) if identity is not None else ""
        before, self._electorate = self._electorate, scripts.bulk(word.encode())
        if self._electorate != before:
            self._electorate_since_ns = boottime_ns()

    def wait_anew(self, now_ns: int) -> None:
        """How long it has been blank, and its number known to others, is measured from here on."""
        if self.blank_since_ns is not None:
            self.blank_since_ns = now_ns
        if self.numbered is not None:
            self.numbered = Numbered(self.numbered.number, now_ns)

    def judge_again(self) -> None:
        """By what another master shows now."""
        if self.introduced and self.facts is not None and self.state in BY_OTHERS:
            self._change(*self._listener.judge(self, self.facts))

    async def _look_at_counter(self, slot: int) -> tuple[State, str]:
        """Whether the counter that was wrong is right again: the master's clock may have been what was
        wrong."""
        shown, time = await asyncio.gather(self.call("HGET", scripts.FENCES_KEY, slot), self.call("TIME"))
        master_us = replies.time_us(time, SANE_MOST)
        word = "0" if shown is None else replies.text(shown)
        if is_right_counter(word, min(self._listener.fence_most, largest_sane(master_us))):
            self._wrong_slot = None
            return State.UP, ""
        shows = f"its fence counter {slot} is at {word[:20]}, its clock at {master_us}"
        return State.MISCOUNTING, f"{shows}: {_ADVICE}"

    async def inspect_now(self) -> None:
        """Look at the master again; also before the next beat, when it was formed or admitted. What it has
        refused is asked again before anything else is: that was asked earlier."""
        await self._inspect()
        self._ask_refused_again()
