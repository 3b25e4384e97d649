"""One app's connection: commands in, replies out in order, and what the connection tells about leases and
their owners (core/owners.py)."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter_ns
from typing import Any, Protocol, TypeVar

from lockd.build import mypyc_attr
from lockd.clock import boottime_ns
from lockd.core import sizes
from lockd.core.flow import UNDER_WAY_MOST, Flow, Place, WireReply
from lockd.core.leases import Lease, owner_of
from lockd.core.owners import Connection, Delivery
from lockd.core.refusals import BROKEN
from lockd.core.values import Bound
from lockd.server.buffers import UNCOUNTED_BYTES
from lockd.server.deliveries import delivery_to, is_open, left_at_once, unread_from
from lockd.server.endings import AT_ONCE
from lockd.server.inlets import Inlet
from lockd.server.losses import LeaseName, LostLease
from lockd.server.namespaces import why_not_here
from lockd.server.peer import Peer
from lockd.server.processes import NoRoom
from lockd.server.quotas import Cost
from lockd.server.resp import replies, requests
from lockd.server.shared import Shared
from lockd.server.turns import Work
from lockd.transport import Transport

L = TypeVar("L", bound="LeaseCommand")

# Those take less than UNCOUNTED_BYTES as objects, too.
_UNCOUNTED_REQUEST_BYTES = 256
_UNTOLD_MOST = 1_000
AHEAD_MOST = 512
"""For a user, over all connections: beyond this, each connection goes on with one at a time."""
READINGS_MOST = 64
"""The same for listings and the like: each takes more memory, and they wait for one another in any case."""
# The kernel doubles it, and keeps that much for each connection on our account. Its default is 200 KB.
_SOCKET_BYTES = 16_384

MULTI_BYTES = 32_768
"""How many bytes of commands may wait for an EXEC."""

_DEAF = requests.RequestParser(1)


class LeaseCommand(Place):
    """A command about a lease, which it names by resource and token. ahead: it began before it was its
    turn."""

    __slots__ = ("ahead", "lease")
    ahead: bool
    lease: LeaseName


class Multi:
    """The commands since MULTI. is_broken: one of them could not be queued, so none is run. size: what is
    kept for them."""

    __slots__ = ("_bytes", "is_broken", "queued", "size")

    def __init__(self) -> None:
        self.queued: list[list[bytes]] = []
        self.is_broken = False
        self._bytes = 0
        self.size = 0

    def has_room(self, words: list[bytes]) -> bool:
        """Whether it fits; if so, it is counted."""
        self._bytes += sum(map(len, words))
        return self._bytes <= MULTI_BYTES

    def queues(self, words: list[bytes]) -> None:
        self.queued.append(words)
        self.size += sizes.request(words)


class Watch:
    """What a connection watches until its next EXEC. asked, done: how many WATCH have arrived, and were
    carried out. whose: for each key whose it was (`Looking.whose`). shown: the values that GET has told of
    them since."""

    __slots__ = ("asked", "done", "whose", "shown", "size")

    def __init__(self) -> None:
        self.asked = self.done = self.size = 0
        self.whose: dict[bytes, bytes | None] = {}
        self.shown: dict[bytes, bytes] = {}

    @property
    def is_broken(self) -> bool:
        """The app may not have read that a WATCH was refused. Then nothing of the MULTI behind it may run."""
        return self.done < self.asked

    def is_shown(self, key: bytes, value: bytes | None) -> None:
        if key in self.whose and value is not None:
            self.shown[key] = value


class LargeReply:
    """The turn of one of them. A class, since an asynchronous generator can't be compiled."""

    def __init__(self, turn: asyncio.Lock, has_read_enough: Callable[[], Awaitable[None]]) -> None:
        self._turn = turn
        self._has_read_enough = has_read_enough

    async def __aenter__(self) -> None:
        await self._turn.acquire()
        try:
            await self._has_read_enough()
        except BaseException:
            self._turn.release()
            raise

    async def __aexit__(self, *_failure: object) -> None:
        self._turn.release()


class Waiting(Protocol):
    """A LOCK without an answer yet."""

    def gone(self, now_ns: int) -> None:
        """It is not granted any more: there would be no app to tell, and no app to end it."""


class Runner(Protocol):
    """Runs the commands that a connection has read. brings_no_loss: those that are run even while the
    connection has to be told of a loss."""

    brings_no_loss: frozenset[bytes]

    def run(self, session: "Session", words: list[bytes]) -> bytes | None: ...

    def is_not_run(self, session: "Session", words: list[bytes]) -> None:
        """It is answered with a loss instead: no EXEC may rely on it."""

    def give_back(self, session: "Session", words: list[bytes]) -> None:
        """For a connection whose app has closed: run the command if it only gives something back."""

    def waits_for_all_before(self, words: list[bytes]) -> bool: ...


def _told(shared: Shared, lease: Lease) -> None:
    """What belongs to a connection never outlives the agent."""
    if lease.holder.bound is Bound.PROCESS:
        shared.locks.told(lease, boottime_ns())


class _Ended:
    """core.owners.Port of a connection that has ended, without the connection: its leases may outlive it, and
    it knows of them."""

    is_open = False

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def delivery(self) -> Delivery:
        return Delivery.CUT

    def told(self, lease: Lease) -> None:
        _told(self._shared, lease)

    def outlived(self, lease: Lease) -> None:
        self._shared.locks.outlived(lease, boottime_ns())


@mypyc_attr(allow_interpreted_subclasses=True)
class Session:
    """A connection: it does what core/flow.py decides."""

    def __init__(self, shared: Shared, commands: Runner) -> None:
        limits = shared.limits
        self.shared = shared
        self._commands = commands
        self.flow = Flow(self, limits.pipeline_bytes, limits.unread_bytes)
        self.protocol = 2
        self.name = b""
        self.id = shared.next_session_id()
        self.ties: Connection
        self.waiting: dict[Waiting, Cost] = {}
        self.closing = False
        self.peer: Peer
        self.owner = b""
        self._account = ""
        self._named: dict[LeaseName, int] = {}
        self.notifies = False
        self.library = b""
        self.last_taken: Lease | None = None
        self.multi: Multi | None = None
        self.watch: Watch | None = None
        self.for_operators = False
        """It came by their socket."""
        self._untold: dict[LeaseName, LostLease] = {}
        self._parser = requests.RequestParser(limits.request_bytes)
        self._transport: Transport | None = None
        self.inlet: Inlet | None = None
        self._reset = False
        self.kept_bytes = 0
        self._untold_bytes = 0
        self._cut_off = ""
        self._hung_up = False
        self._has_read_all = False
        self._drained: asyncio.Event | None = None
        self._large_replies: asyncio.Lock | None = None
        self._admitted = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._giving_back = 0
        self._goes_on: Work | None = None

    # The connection

    def connection_made(self, transport: Transport) -> None:
        shared = self.shared
        self._transport = transport
        try:
            connection = transport.get_extra_info("socket")
            if left_at_once(connection.fileno()):
                # Thousands that one app opens and closes are in the line in which all users wait.
                self.close()
                return
            self.peer = Peer.of(connection)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        except OSError:
            # Gone again already.
            self.close()
            return
        self._connected_ns = boottime_ns()
        refusal = self._why_not_let_in()
        if refusal:
            self.close(replies.error(refusal))
            return
        self._admitted = True
        self.usage = shared.quotas.connected(self._account)
        self.owner = owner_of(shared.host, self.peer.pid, self.peer.uid)
        # From the first byte that the kernel doesn't take, `pause_writing` is called and it is counted.
        transport.set_write_buffer_limits(high=0)
        shared.sessions.add(self)
        if shared.inlets.works:
            # uvloop begins to read after this.
            asyncio.get_running_loop().call_soon(self._is_read_in_turn)

    def _is_read_in_turn(self) -> None:
        """If there is a file left for that; if not, its transport reads."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.shared.inlets.put(self, self._file, self.flow.reading):
            transport.pause_reading()

    def _why_not_let_in(self) -> str:
        """'' if it is. Finds its process, and its account."""
        shared = self.shared
        connection = self._transport.get_extra_info("socket")  # type: ignore[union-attr]  # it is open
        try:
            process, self._account = shared.processes.behind(connection, self.peer, self._is_of)
        except NoRoom as why:
            shared.incidents.limit_hit(str(why), self.peer)
            return f"LIMIT {why}"
        self.ties = Connection(self, process)
        return ""

    @property
    def account(self) -> str:
        """Who pays for what is done for it."""
        process = self.ties.process
        return self._account if process is None else process.account

    def _is_of(self, account: str) -> None:
        """The user database has answered."""
        self._account = account
        if self._admitted and self.ties.process is not None:
            self.ties.process.account = account

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._admitted or self.is_gone:
            self._transport = None
            return
        # While its file is there. If that fails, its app may have read of it.
        in_question = self.ties.in_question
        delivery = Delivery.UNREAD if in_question else Delivery.READ
        with self._all_the_same():
            if in_question:
                delivery = self._last_delivery(exc)
            if not (self._has_read_all or self.closing or self.flow.ending or self._cut_off):
                self._parser.feed(unread_from(self._file))
        self.shared.inlets.take_out(self)
        self._transport = None
        self.closing = True
        self.shared.sessions.discard(self)
        steps = (
            self._end_readings, self._end_waiting, partial(self._end_leases, delivery), self._end_flow,
            partial(self.shared.quotas.disconnected, self.usage),
        )  # fmt: skip
        for step in steps:
            with self._all_the_same():
                step()
        # Nothing that is over refers to what refers to it.
        self.last_taken = self.watch = None
        self.ties.port = _Ended(self.shared)

    @contextmanager
    def _all_the_same(self) -> Iterator[None]:
        """Its end goes on, whatever fails of it."""
        try:
            yield
        except Exception as failure:
            self.shared.incidents.internal_error("the end of a connection failed", failure)

    def _end_readings(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.shared.buffers.hears(self)
        if self.notifies:
            self.shared.losses.listens_no_more(self, list(self._untold.values()))
            self._untold.clear()

    def _end_waiting(self) -> None:
        if self.waiting:
            # When thousands in one line go together, each makes the next one try.
            self.shared.endings.begin(self.account, self._withdraw, few=len(self.waiting) <= AT_ONCE)

    def _end_flow(self) -> None:
        """A lease refers to its session, but that need not keep what it once read, nor news it still had to
        tell. What its app has given back before it closed counts until it is done."""
        if self.multi is not None:
            self._parser = _DEAF
        self.flow.close()
        waited = self.flow.give_up_waiting()
        size = self._parser.pending_bytes + sum(place.size for place in waited)
        self.shared.buffers.keeps(self, size)
        if size or waited:
            self.shared.endings.add(self.account, partial(self._gives_back, waited))

    def _end_leases(self, delivery: Delivery) -> None:
        """When the agent stops, holders keep what they hold (rule 13): they are alive, and only the agent
        goes."""
        shared, process = self.shared, self.ties.process
        if process is not None:
            shared.processes.left(process)
        ends = self.ties.closed(delivery, cut_off=bool(self._cut_off))
        if not shared.stopped:
            shared.endings.end(ends, *((self._cut_off,) if self._cut_off else ()))
        if process is not None and process.idle:
            shared.processes.forget(process)

    def _gives_back(self, waited: list[Place], until_ns: int) -> bool:
        """What its app had sent before it closed, commands that still waited for their turn first. The app
        need not wait for the answer, and what it has given back does not belong to its process any more. Not
        all of it is under way at once: there may be a million. As `Work`."""
        while self._giving_back < UNDER_WAY_MOST:
            if waited:
                place = waited.pop(0)
                begin, place.begin = place.begin, None
                assert begin is not None
                begin(place)
            elif not self._gives_back_next():
                self._parser = _DEAF
                self.shared.buffers.keeps(self, 0)
                return False
            if perf_counter_ns() >= until_ns:
                return True
        self._goes_on = partial(self._gives_back, waited)
        return False

    def _gives_back_next(self) -> bool:
        """Of what was not read from its requests yet; False: nothing is left."""
        try:
            words = self._parser.next()
        except (requests.RequestTooLarge, requests.ProtocolError):
            words = None
        if words is not None:
            self._commands.give_back(self, words)
        return words is not None

    def given_back(self) -> Callable[[WireReply], None]:
        """For the reply to one of them."""
        self._giving_back += 1
        return self._is_given_back

    def _is_given_back(self, _: WireReply) -> None:
        self._giving_back -= 1
        if self._goes_on is not None:
            self.shared.endings.add(self.account, self._goes_on)
            self._goes_on = None

    def close(self, last_words: bytes = b"") -> None:
        """Close after everything written has gone out. A client that doesn't read is not waited for long."""
        self.closing = True
        transport = self._transport
        if transport is None:
            return
        self.shared.inlets.take_out(self)
        last_words = self.flow.close() + last_words
        if last_words:
            if self._admitted:
                self.ties.writes(last_words)
            transport.write(last_words)
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(1.0, transport.abort)
        transport.close()

    def why_no_operator(self) -> str:
        """Why its peer may not do what operators may, who are seen to be on the host itself; '' if it may."""
        if not self.shared.permissions.is_admin(self.peer):
            return "not one of them"
        assert self._transport is not None
        connection = self._transport.get_extra_info("socket")
        return why_not_here(connection, self.peer.pid, self._connected_ns) or ""

    @property
    def is_gone(self) -> bool:
        return self._transport is None

    def came_too_late(self, lease: Lease) -> None:
        """It was granted when the connection was closed, so nobody was told. It ends, but not inside core's
        work, and not if another request of its name tells of it."""
        ends = self.ties.came_too_late(lease)
        asyncio.get_running_loop().call_soon(self.shared.endings.end, ends)

    def told(self, lease: Lease) -> None:
        """As `core.owners.Port` has it."""
        _told(self.shared, lease)

    def outlived(self, lease: Lease) -> None:
        """As `core.owners.Port` has it."""
        self.shared.locks.outlived(lease, boottime_ns())

    @property
    def is_open(self) -> bool:
        """As `core.owners.Port` has it."""
        return self._transport is not None and is_open(self._file)

    def delivery(self) -> Delivery:
        """As `core.owners.Port` has it. Reading the end of the connection takes the error that says whether
        everything was read before: from then on only `connection_lost` knows."""
        assert self._transport is not None
        unknown = self.flow.clogged_bytes or self._transport.is_closing()
        return Delivery.UNREAD if unknown else delivery_to(self._file)

    def _last_delivery(self, exc: Exception | None) -> Delivery:
        """At its end. What uvloop or the kernel did not take is lost with it."""
        assert self._transport is not None
        reset = self._reset or isinstance(exc, ConnectionResetError | BrokenPipeError)
        if reset or self._transport.get_write_buffer_size():
            return Delivery.CUT
        return delivery_to(self._file)

    @property
    def _file(self) -> int:
        assert self._transport is not None
        file: int = self._transport.get_extra_info("socket").fileno()
        return file

    def cut_off_soon(self, limit: str) -> None:
        """Call `cut_off` when core has finished what it is doing. What the app has sent is dropped now: after
        a standstill, thousands of connections are read in one turn."""
        self._cut_off = f"its connection was closed: {limit}"
        self._parser = _DEAF
        asyncio.get_running_loop().call_soon(self.cut_off, limit)

    def cut_off(self, limit: str) -> None:
        """Close it for being over a limit. Its app may be alive, and believe in the leases that belong to the
        connection until the deadlines that it was told. They are not renewed any more, and nobody else gets
        them before (rule 12). Leases of the process stay with the process."""
        transport = self._transport
        if transport is None:
            return
        self._cut_off = f"its connection was closed: {limit}"
        self.shared.incidents.limit_hit(limit, self.peer)
        self._withdraw()
        if self.flow.clogged_bytes:
            self.closing = True
            transport.abort()
        else:
            self.close(replies.error(f"LIMIT {limit}"))

    def _withdraw(self, until_ns: int | None = None) -> bool:
        """LOCKs that are still waiting. As `Work`, too."""
        while self.waiting:
            next(iter(self.waiting)).gone(boottime_ns())
            if until_ns is not None and perf_counter_ns() >= until_ns:
                break
        return bool(self.waiting)

    def eof_received(self) -> None:
        """It is closed then."""
        self._has_read_all = True

    def pause_writing(self) -> None:
        """Not everything that was written was taken."""
        assert self._transport is not None
        self.flow.clogged(self._transport.get_write_buffer_size())
        self._count_kept()

    def resume_writing(self) -> None:
        self.flow.drained()
        self._count_kept()
        if self._drained is not None and not self.flow.clogged_bytes:
            self._drained.set()

    def _count_kept(self) -> None:
        if not self._admitted or self._transport is None or self._cut_off:
            return
        kept = self.flow.kept_bytes + self._parser.held_bytes + self._untold_bytes
        if self.multi is not None:
            kept += self.multi.size
        if self.watch is not None:
            kept += self.watch.size
        self.shared.buffers.keeps(self, kept)
        if self.flow.waits_for_reader:
            self.shared.buffers.is_deaf(self)
        else:
            self.shared.buffers.hears(self)

    def hung_up(self) -> None:
        """Its app has closed while nothing was read. After a LOCK that waits, that would not be seen before
        the wait ends, and never if there is nothing left to do."""
        self._hung_up = True
        idle = not (self.flow.under_way or self.flow.has_work)
        if (self.waiting or idle) and self._transport is not None:
            self._transport.abort()

    # What the flow needs

    def send(self, data: bytes) -> None:
        transport = self._transport
        # A transport that is closing drops what it gets, without saying so: an app was not told of what is
        # not handed to it.
        if transport is not None and not transport.is_closing():
            self.ties.writes(data)
            transport.write(data)

    def read(self, on: bool) -> None:
        if self._transport is None or self.closing:
            return
        if self.inlet is not None:
            self.inlet.reads(self, on)
        elif on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def run_soon(self) -> None:
        """In a later turn of the loop: others need theirs."""
        self.shared.turns.add(self.account, self._run)

    # Commands

    def data_received(self, data: bytes) -> None:
        """As long as its transport reads. What has come before it to other connections goes first. Otherwise
        an app that connects again and again would begin more connections than it is seen to end."""
        if self.closing:
            return
        turns, account, began_ns = self.shared.turns, self.account, perf_counter_ns()
        is_next = turns.may_go_first(account) and not self.shared.inlets.are_in_line(account)
        if self.takes(data, is_next):
            turns.went_first(account, began_ns)
        else:
            turns.charge(account, began_ns)

    def takes(self, data: bytes, at_once: bool = True) -> bool:
        """As `inlets.Read` has it. at_once: what it asks may be done now."""
        flow = self.flow
        if self.closing or flow.ending or self._cut_off:
            return False
        if at_once and flow.at_rest and not self._untold:
            words = self._parser.only(data)
            if words is not None:
                self._run_only(words)
                return True
        self._parser.feed(data)
        flow.arrived(self._parser.pending_bytes)
        if len(data) > _UNCOUNTED_REQUEST_BYTES or flow.clogged_bytes:
            self._count_kept()
        return False

    def sent_all(self, reset: bool) -> None:
        """As `inlets.Read` has it."""
        transport = self._transport
        assert transport is not None
        self._has_read_all, self._reset = not reset, reset
        self.shared.inlets.take_out(self)
        if transport.is_closing():
            return  # a write has failed, so nobody has read that: it tells of its end by itself
        if reset:
            transport.abort()
        else:
            transport.close()
        if reset or not transport.get_write_buffer_size():
            # Now, and not for all in one turn of the loop, as the transport would call it.
            self.connection_lost(None)

    def _run_only(self, words: list[bytes]) -> None:
        """The usual case: one whole request, with nothing before or after it, and not in a crowd."""
        try:
            reply = self._commands.run(self, words)
        except Exception as failure:
            self.broke(failure)
            return
        if reply is not None:
            self.flow.say(reply)
        if self.multi is not None or self.watch is not None or self.kept_bytes:
            self._count_kept()
        if self.flow.ending:
            self.close()

    def guarded(self, step: Callable[..., None], *what: object, granted: Iterable[Lease] = ()) -> None:
        """Do this for a command that has no reply yet. It may be core that says something, and is in the
        middle of its work. granted: these are given back if that fails before its app can have read of
        them."""
        try:
            step(*what)
        except Exception as failure:
            self.broke(failure)
            for lease in granted:
                if not (lease.told or self.ties.has_written(lease)):
                    self.came_too_late(lease)

    def broke(self, failure: Exception) -> None:
        """A reply is missing, and those after it would be taken for those of other commands."""
        self.shared.incidents.internal_error("a command failed", failure)
        self.close()

    def _run(self, until_ns: int) -> bool:
        """As `Work`: run what has arrived, but not so much at a time that others have to wait."""
        flow = self.flow
        if self.closing:
            return False
        try:
            flow.turn(lambda: perf_counter_ns() < until_ns)
        except Exception as failure:
            self.broke(failure)
            return False
        waits = self.multi or self.watch
        if waits or self.kept_bytes or flow.kept_bytes or flow.pending_bytes > UNCOUNTED_BYTES:
            self._count_kept()
        if flow.over:
            self.close()
        return False

    def next_request(self) -> list[bytes] | None:
        try:
            return self._parser.next()
        except requests.RequestTooLarge as large:
            self.shared.incidents.limit_hit(f"request_bytes: {large}", self.peer)
            self._end_with(f"LIMIT request_bytes: {large}")
        except requests.ProtocolError as broken:
            self.shared.incidents.protocol_error(str(broken), self.peer)
            self._end_with(f"ERR {broken}")
        return None

    def _end_with(self, last_words: str) -> None:
        """It isn't known where its next request would begin."""
        self.flow.say(replies.error(last_words))
        self.flow.ending = True

    def pending_bytes(self) -> int:
        return self._parser.pending_bytes

    def waits_for_all_before(self, request: list[bytes]) -> bool:
        return self._commands.waits_for_all_before(request)

    def run(self, request: list[bytes]) -> bytes | None:
        lost = self._report_loss(request)
        if lost is not None:
            self._commands.is_not_run(self, request)
        return lost or self._commands.run(self, request)

    def watches(self) -> Watch:
        """A WATCH has arrived."""
        self.watch = self.watch or Watch()
        self.watch.asked += 1
        return self.watch

    def quit(self) -> bytes:
        self.end()
        return b"+OK\r\n"

    def end(self) -> None:
        """Close once the replies to everything that has arrived are written."""
        self.flow.ending = True

    def _report_loss(self, words: list[bytes]) -> bytes | None:
        """In RESP2 nothing can be pushed. So if NOTIFY was said, the next command has to bring the news: it
        fails, and is not run (rule 12). Commands that give back or extend a lease are always run, and so are
        those that only open or close a connection."""
        if not self._untold or words[0].upper() in self._commands.brings_no_loss:
            return None
        lost = self._untold[next(iter(self._untold))]
        self.knows_of(lost.name)
        return replies.error(str(lost.refusal))

    def knows_of(self, name: LeaseName) -> None:
        """The app was told that this lease was lost."""
        lost = self._untold.pop(name, None)
        if lost is not None:
            self._untold_bytes -= lost.size

    def in_turn(self, begin: Callable[[Place], None], place: Place | None = None) -> None:
        """Begin this when it is its turn: at once, if it is."""
        self.flow.in_turn(place or Place(), begin)

    def at_once(self, command: L, start: Callable[[L], None]) -> None:
        """Begin an UNLOCK or EXTEND as soon as it arrives: a LOCK before it may be waiting for it. Two for
        one lease run one after the other. So do those of a user that has this many under way already; others
        wait behind what masters are asked. Once the app has closed there are no turns any more."""
        before, usage = self._named.get(command.lease, 0), self.usage
        self._named[command.lease] = before + 1
        if (before or usage.ahead >= AHEAD_MOST) and not self.is_gone:
            self.in_turn(lambda _place: start(command), command)
        else:
            command.ahead = True
            usage.ahead += 1
            self.flow.begin(command)
            start(command)

    def names_no_more(self, command: LeaseCommand) -> None:
        """It is answered."""
        left = self._named.pop(command.lease) - 1
        if left:
            self._named[command.lease] = left
        self.usage.ahead -= command.ahead

    def answer(self, place: Place, reply: WireReply) -> None:
        self.flow.finish(place, reply)
        is_long = type(reply) is bytes and len(reply) > _UNCOUNTED_REQUEST_BYTES
        if is_long or self.kept_bytes or self.flow.clogged_bytes:
            self._count_kept()
        if self._hung_up:
            self.hung_up()

    def lock_starts(self, request: Waiting, cost: Cost) -> None:
        self.shared.quotas.waits(self.usage, cost)
        self.waiting[request] = cost
        if self._hung_up:
            asyncio.get_running_loop().call_soon(self.hung_up)

    def lock_answered(self, request: Waiting) -> None:
        self.shared.quotas.waits_no_more(self.usage, self.waiting.pop(request))

    def lock_has(self, request: Waiting, more: int) -> None:
        """So many more (or fewer) of its leases are there, and are counted by themselves, while it waits for
        the others."""
        cost = self.waiting.get(request)
        if cost is not None:
            self.waiting[request] = less = cost.without(more)
            self.shared.quotas.waits_no_more(self.usage, cost)
            self.shared.quotas.waits(self.usage, less)

    def later(
        self,
        work: Callable[[Place], Coroutine[Any, Any, bytes | None]],
        *,
        finish: bool = False,
        in_turn: bool = False,
    ) -> None:
        """Answer with the result of `work`, which is None if it has answered itself. finish: it changes
        something, so it begins in its turn, and goes on even if the client goes. in_turn: only that it begins
        in its turn."""

        def begin(place: Place) -> None:
            task = asyncio.get_running_loop().create_task(self._finish(place, work))
            if finish:
                self.shared.keep(task)
            else:
                self._tasks.add(task)
                task.add_done_callback(self._has_read)
                self.usage.readings += 1

        if finish or in_turn or self.usage.readings >= READINGS_MOST:
            self.in_turn(begin)
        else:
            place = Place()
            self.flow.begin(place)
            begin(place)

    def _has_read(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.usage.readings -= 1

    def large_reply(self) -> "LargeReply":
        """For replies that may be large: on one connection they are made one after the other, and each when
        the client has read enough of those before it. A client that doesn't read in time is cut off. One that
        may still send before it reads is not waited for: another listing after this one would block it for
        ever. Nothing that other connections wait for may be kept meanwhile."""
        if self._large_replies is None:
            self._large_replies = asyncio.Lock()
        return LargeReply(self._large_replies, self._has_read_enough)

    async def _has_read_enough(self) -> None:
        if self.flow.full and self.flow.clogged_bytes:
            self._drained = asyncio.Event()
            await self._drained.wait()

    def refuse_reply(self, size: int) -> list[bytes]:
        """What to answer instead of a reply of that size, which exceeds a limit."""
        refusal = self.shared.quotas.refuse_reply(self.usage, size)
        if refusal is None:
            return []
        self.shared.incidents.limit_hit(refusal, self.peer)
        return [replies.error(f"LIMIT {refusal}")]

    def hand_over(self, place: Place, reply: bytes) -> None:
        """Answer with a `large_reply`."""
        self.answer(place, *(self.refuse_reply(len(reply)) or [reply]))

    async def _finish(self, place: Place, work: Callable[[Place], Coroutine[Any, Any, bytes | None]]) -> None:
        try:
            reply = await work(place)
        except Exception as failure:
            self.shared.incidents.internal_error("a command failed", failure)
            reply = replies.error(str(BROKEN))
        if reply is not None:
            self.answer(place, reply)

    # Pushes

    def tell(self, kind: bytes, resource: bytes, token: bytes, deadline_ns: int) -> None:
        """A push that may be left out: it is not kept for a client that doesn't read."""
        if self.protocol == 3 and not self.flow.clogged_bytes:
            self._push(
                [
                    replies.bulk(kind, 3),
                    replies.bulk(resource, 3),
                    replies.bulk(token, 3),
                    replies.integer(deadline_ns),
                ]
            )

    def notify(self) -> None:
        """Losses of locks that were taken here are told on this connection."""
        if not self.notifies:
            self.notifies = True
            self.shared.losses.listens(self)

    @property
    def hears(self) -> bool:
        """Whether it can be told of a loss."""
        return self.notifies and not (self._cut_off or self.closing or self.is_gone)

    def tell_lost(self, lost: LostLease) -> None:
        """Pushed at once in RESP3, and kept for the next command in RESP2 (rule 12)."""
        if self.protocol == 2:
            self._untold[lost.name] = lost
            self._untold_bytes += lost.size
            if len(self._untold) > _UNTOLD_MOST:
                self.knows_of(next(iter(self._untold)))
        else:
            self._push(
                [
                    replies.bulk(b"lost", 3),
                    replies.bulk(lost.resource, 3),
                    replies.bulk(lost.token, 3),
                    replies.bulk(lost.reason.encode(errors="replace"), 3),
                    replies.integer(lost.deadline_ns),
                ]
            )
        self._count_kept()

    def _push(self, items: list[bytes]) -> None:
        if self._transport is not None:
            self.flow.push(replies.push(items))
