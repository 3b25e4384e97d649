"""Carries the bytes of a link to its master: connects, reads, writes, and asks what core wants to know.

What is asked goes out together, once per event-loop turn.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import random
from time import CLOCK_BOOTTIME, clock_gettime_ns, perf_counter_ns
from typing import Any

import hiredis

from lockd.clock import boottime_ns
from lockd.config.model import Config
from lockd.core import introduction, link
from lockd.core.answers import Nonsense
from lockd.core.clocks import ClockWatch
from lockd.core.fences import SANE_MOST
from lockd.core.identities import MEMBERS_DIGEST
from lockd.core.membership import State
from lockd.core.stakes import Stock
from lockd.core.validity import NS_PER_MS
from lockd.masters import handshake, replies, scripts
from lockd.masters.approach import Approach
from lockd.masters.failures import MasterError, Unfit
from lockd.masters.framing import DELETED, LONGEST_BYTES, UNFINISHED, Framing, is_one_vote
from lockd.masters.scripts import command
from lockd.transport import Transport, for_loop

HEARD_AT_ONCE = 64
"""How many answers of one master are heard in a turn of the event loop. An app may wait for any of them, and
then its reply is written. If thousands arrive together, the others come after what else is due."""


_MEASURED_EACH = 16
_NOT_FOUND = (
    "its address, the password and the TLS files were not read in time: check this host's resolver and disk"
)


class FutureCall:
    """A single question to one master, outside of any ballot: a future that gets the raw answer."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Any] = loop.create_future()

    def take(self, reply: Any) -> None:
        if not self.future.done():
            self.future.set_result(reply)

    def fail(self, why: str) -> None:
        if not self.future.done():
            self.future.set_exception(MasterError(why))
            self.future.exception()  # seen: several may fail together, and only the first is waited for


def _as_sent(word: str) -> bytes:
    return scripts.bulk(word.encode())


class Link(link.Link):
    """The link to one master. Its questions are bytes."""

    def __init__(
        self,
        index: int,
        config: Config,
        listener: link.Listener,
        watch: ClockWatch,
        voted_after: Callable[[int], None],
        probed_after: Callable[[int], None],
        channel: bytes,
        heard_for: Callable[[int], None],
        room: Stock | None = None,
    ) -> None:
        """voted_after, probed_after: called with how long votes and readings of its clock took, in ns.
        channel: carries its notices for this host. heard_for: called now and then with how long the agent
        took to hear an answer, in ns. room: the memory that accounts share."""
        timeouts = config.timeouts
        patience = link.Patience(timeouts.master_ms * NS_PER_MS, timeouts.dead_ms * NS_PER_MS)
        super().__init__(index, listener, watch, patience, _as_sent, room)
        self.master = config.masters[index]
        self.approach = Approach(config, self.master)
        self.round_trip_ns = 0
        self._config = config
        self._voted_after = voted_after
        self._probed_after = probed_after
        self._transport: Transport | None = None
        self.certificate_end_s: float | None = None
        """The end of the certificate that the master has shown on the present connection."""
        self._reader = hiredis.Reader(notEnoughData=UNFINISHED)
        self._framing = Framing()
        self._unfinished_bytes = 0
        self._lags = False
        self._channel = channel
        self._speaks_resp3 = False
        self.hears_notices = False
        self._closed = asyncio.Event()
        self._closed.set()
        self._look_closer = asyncio.Event()
        self._hurried: asyncio.Task[None] | None = None
        self._heard_for = heard_for
        self._chunks = 0

    # What core.link needs done

    def hang_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def look_closer(self) -> None:
        self._look_closer.set()

    def give_back_soon(self) -> None:
        asyncio.get_running_loop().call_soon(lambda: self.give_back_more(boottime_ns()))

    # Asking

    def call(self, *words: bytes | str | int) -> "asyncio.Future[Any]":
        """Ask this master alone; the future gets its raw answer, or MasterError."""
        question = FutureCall(asyncio.get_running_loop())
        if self._transport is None:
            question.fail("not connected")
            return question.future
        self.ask((question, command(*words), boottime_ns()))
        return question.future

    def flush(self) -> None:
        """One write for all that was asked in this turn."""
        if self.out and self._transport is not None:
            self._transport.write(b"".join(self.out))
        self.out.clear()

    # Hearing

    def connection_made(self, transport: Transport) -> None:
        self._transport = transport
        self.certificate_end_s = handshake.certificate_end_s(transport.get_extra_info("ssl_object"))
        self._reader = hiredis.Reader(notEnoughData=UNFINISHED)
        self._framing = Framing()
        self._unfinished_bytes = 0
        self._closed.clear()

    def data_received(self, data: bytes) -> None:
        """Ten answers for each grant come through here and `_hear`, so both are written for speed."""
        framing = self._framing
        try:
            if framing.inside or not (data == DELETED or is_one_vote(data)):
                framing.admit(data)
            self._reader.feed(data)
            self._unfinished_bytes += len(data)
            if not self._lags:
                self._hear_measured()
            if self._unfinished_bytes > LONGEST_BYTES:
                raise Nonsense(f"an answer of more than {LONGEST_BYTES} bytes")
        except Exception as broken:
            # Ours, or the parser's: maps of RESP3 may have keys that Python's dicts can't.
            self.talks_nonsense(str(broken), boottime_ns())
        if self.state is State.STALLED:
            self.look_if_alive(boottime_ns())

    def _hear_measured(self) -> None:
        """Each of many times, how long an answer takes is measured: who asks pays for it."""
        self._chunks += 1
        if self._chunks % _MEASURED_EACH:
            self._hear()
            return
        began_ns, before = perf_counter_ns(), len(self._in_flight)
        self._hear()
        if answers := before - len(self._in_flight):
            self._heard_for((perf_counter_ns() - began_ns) // answers)

    def _hear(self) -> None:
        took_ns, gets, heard = 0, self._reader.gets, self.heard
        for _ in range(HEARD_AT_ONCE):
            if (reply := gets()) is UNFINISHED:
                break
            self._unfinished_bytes = 0
            # The clock is read again for each: what is granted must be valid now, not when the chunk began
            # (rule 1).
            now_ns = clock_gettime_ns(CLOCK_BOOTTIME)
            if reply.__class__ is hiredis.ReplyError:
                heard(str(reply), now_ns, is_error=True)
            elif reply.__class__ is hiredis.PushNotification:
                self._pushed(reply, now_ns)
            else:
                took_ns = heard(reply, now_ns) or took_ns
        else:
            self._hear_more_soon()
        if took_ns:
            self._voted_after(took_ns)

    def _pushed(self, push: list[Any], now_ns: int) -> None:
        """After SUBSCRIBE it is the answer."""
        match push:
            case [b"message", _, payload]:
                self.noticed(payload, now_ns)
            case [b"subscribe", _, _]:
                self.heard(push, now_ns)
            case _:
                raise Nonsense("it pushed something that was not requested")

    def _hear_more_soon(self) -> None:
        """The rest of what arrived, in order, in later turns of the loop. Nothing is read meanwhile: a master
        that sends faster than it is heard has to wait."""
        self._lags = True
        if self._transport is not None:
            self._transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._hear_more)

    def _hear_more(self) -> None:
        if not self._lags or self.is_dropped:
            return  # what was not heard on that connection is asked again on the next one
        self._lags = False
        self.data_received(b"")
        if not self._lags and self._transport is not None and not self.is_dropped:
            self._transport.resume_reading()

    def eof_received(self) -> None:
        """It is called once that is closed."""

    def pause_writing(self) -> None:
        """It doesn't matter: a master that does not take the bytes in time loses its vote."""

    def resume_writing(self) -> None:
        """This doesn't matter either."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.certificate_end_s = None
        self._lags = False
        self.broken(f"connection lost{f': {exc}' if exc else ''}", boottime_ns())
        self._closed.set()
        self._look_closer.set()

    # Connecting

    async def run(self) -> None:
        """Keep the link up for ever: connect, ask who it is, watch it, and start again when that ends."""
        while True:
            try:
                async with asyncio.timeout(self._config.timeouts.connect_ms / 1000):
                    await self._connect()
            except Exception as failure:
                # Whatever the failure is (refused, no answer, a password file that can't be read just now), a
                # link never gives up.
                self._failed(failure)
            else:
                await self._attend()
            await self._closed.wait()
            await asyncio.sleep(self.rest_ns(random()) / 1e9)

    async def _connect(self) -> None:
        self.connects(boottime_ns())
        _, password = await self.approach.connect(for_loop(lambda: self))
        username = self._config.auth.username
        session, self._speaks_resp3 = await handshake.log_in(self.call, username, password)
        if not await self._follow(introduction.introduce(self, session, boottime_ns)):
            raise Unfit(State.LOADING, "still loading its data")

    async def _follow(self, steps: introduction.Steps) -> bool:
        answer = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return bool(end.value)
            answer = await self._take(step)
            if self._transport is None:
                raise MasterError("connection lost")

    async def _take(self, step: introduction.Step) -> Any:
        match step:
            case introduction.ReadFacts(slots):
                return await handshake.read_facts(self.call, slots)
            case introduction.NoteCopy():
                with suppress(MasterError):
                    await self.call("HSET", scripts.FENCES_KEY, scripts.COPIED_FIELD, "1")
            case introduction.ReadCounter(slot):
                return await self._counter(slot)
            case introduction.EndSession(number):
                await self.call("CLIENT", "KILL", "ID", number)
            case introduction.HaveScripts():
                await handshake.have_scripts(self.call)
            case introduction.HearNotices():
                self.hears_notices = await self._subscribed()

    async def _subscribed(self) -> bool:
        """Not if its user may not yet; nor without RESP3, since after SUBSCRIBE nothing else could be
        asked."""
        if not self._speaks_resp3:
            return False
        try:
            await self.call("SUBSCRIBE", self._channel)
        except MasterError:
            return False
        return True

    async def _counter(self, slot: int) -> tuple[str, int]:
        asked: tuple[tuple[Any, ...], ...] = (("HGET", scripts.FENCES_KEY, slot), ("TIME",))
        # As a list, the type in which they arrive: compiled code takes the declared type literally.
        stored, time = await asyncio.gather(*(self.call(*words) for words in asked))
        return "0" if stored is None else replies.text(stored), replies.time_us(time, SANE_MOST)

    def _failed(self, failure: Exception) -> None:
        now_ns = boottime_ns()
        if isinstance(failure, Nonsense):
            self.talks_nonsense(str(failure), now_ns)
        unfit = failure.state if isinstance(failure, Unfit) else None
        self.failed_to_connect(self._in_words(failure), now_ns, unfit)
        self.hang_up()

    def _in_words(self, failure: Exception) -> str:
        """Why a connection failed, as an operator would say it."""
        if isinstance(failure, TimeoutError):
            return _NOT_FOUND if self.approach.is_looked_up else "no answer in time"
        if isinstance(failure, OSError) and failure.strerror:
            return failure.strerror.lower()
        return str(failure) or repr(failure)

    # Watching over it

    async def _attend(self) -> None:
        """Read its clock every second and its settings every five, or at once when something looked wrong."""
        beats = 0
        while not self._closed.is_set():
            self._look_closer.clear()
            looked_ns = boottime_ns()
            try:
                if beats % link.INSPECT_EVERY == 0:
                    await self._follow(introduction.beat(self, boottime_ns))
                await self._probe()
            except Nonsense as nonsense:
                self.talks_nonsense(str(nonsense), boottime_ns())
            except Exception as failure:
                # Whatever the failure is, a link never gives up.
                self.drop(str(failure) or repr(failure), boottime_ns())
            beats = 0 if await self._called_within_a_beat() else beats + 1
            if not beats:
                rest_ns = looked_ns + link.LOOK_AGAIN_NS - boottime_ns()
                await asyncio.sleep(0.0 if self._closed.is_set() else max(0.0, rest_ns / 1e9))

    async def _called_within_a_beat(self) -> bool:
        """Whether something looked wrong meanwhile. `wait_for` is not used: Python 3.11's forgets that its
        task was cancelled when both happen in one turn, and an agent that stops would wait for this link for
        ever."""
        try:
            async with asyncio.timeout(link.PROBE_NS / 1e9):
                await self._look_closer.wait()
        except TimeoutError:
            return False
        return True

    def probe_soon(self) -> None:
        """Read its clock now: others seem to have jumped."""
        self._hurried = asyncio.get_running_loop().create_task(self._probe_in_a_hurry())

    async def _probe_in_a_hurry(self) -> None:
        try:
            await self._probe()
        except Exception:
            # The next beat will see the same, and say so.
            self._look_closer.set()

    async def _probe(self) -> None:
        sent_ns = boottime_ns()
        digest = self.call("HGET", scripts.IDENTITY_KEY, MEMBERS_DIGEST)
        master_us = replies.time_us(await self.call("TIME"), SANE_MOST)
        now_ns = boottime_ns()
        self.round_trip_ns = now_ns - sent_ns
        self._probed_after(self.round_trip_ns)
        self.probed(sent_ns, now_ns, master_us)
        if self.shows_another(await digest):
            self._look_closer.set()

    async def inspect_now(self) -> None:
        """Look at the master again; also before the next beat, after it was formed or admitted."""
        await self._follow(introduction.look_again(self, boottime_ns))
