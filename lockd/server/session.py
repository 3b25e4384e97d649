"""One app's connection: commands in, replies out in their order, and the leases that live and die with it
(rule 13)."""

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from lockd.clock import boottime_ns
from lockd.config import LockClass
from lockd.core.leases import Lease, owner_of
from lockd.core.ports import Extended, Refusal
from lockd.core.validity import NS_PER_MS
from lockd.server import resp
from lockd.server.buffers import UNCOUNTED_BYTES
from lockd.server.namespaces import why_not_here
from lockd.server.peer import Peer

if TYPE_CHECKING:
    from lockd.server.agent import Agent

_REPLY_BYTES_PER_TURN = 16_384
_ENDED_AT_ONCE = 4
# Those take less than UNCOUNTED_BYTES as objects, too.
_UNCOUNTED_REQUEST_BYTES = 256
_LOSSES_REMEMBERED = 1_000
_LOSS_BYTES = 500
"""Of a loss as objects, besides its text."""
# The kernel doubles it, and keeps so much for each connection on our account. Its own default is 200 KB.
_SOCKET_BYTES = 16_384

_DEAF = resp.RequestParser(1)


class LockRequest:
    """A LOCK, from its arrival until its lease has ended: core's `Holder`."""

    __slots__ = (
        "asked_ns",
        "detached",
        "give_up_ns",
        "label",
        "lock_delay_ms",
        "max_hold_ms",
        "notify",
        "owner",
        "resource",
        "session",
        "ttl_ms",
    )

    def __init__(
        self,
        session: "Session",
        resource: bytes,
        lock_class: LockClass,
        ttl_ms: int,
        wait_ms: int,
        max_hold_ms: int,
        detached: bool,
        notify: bool,
        now_ns: int,
    ) -> None:
        self.session = session
        self.resource = resource
        self.label = lock_class.name
        self.lock_delay_ms = lock_class.lock_delay_ms
        self.ttl_ms = ttl_ms
        self.max_hold_ms = max_hold_ms
        self.detached = detached
        self.notify = notify
        self.owner = session.owner
        self.asked_ns = now_ns
        self.give_up_ns = now_ns + wait_ms * NS_PER_MS if wait_ms else None

    def granted(self, lease: Lease, now_ns: int) -> None:
        session = self.session
        session.lock_answered()
        session.agent.quotas.holds(session.usage)
        if session.agent.log.debug_on:
            self._log("granted", fence=lease.fence)
        if not self.detached:
            session.leases.add(lease)
        if session.is_gone:
            session.came_too_late(lease)
            return
        session.answer(
            resp.lease(
                lease.token,
                lease.fence,
                (lease.deadline_ns - now_ns) // NS_PER_MS,
                lease.deadline_ns,
                session.protocol,
            )
        )

    def refused(self, refusal: Refusal) -> None:
        session = self.session
        session.lock_answered()
        if refusal.code in ("NOQUORUM", "CLOCK"):
            peer = session.peer
            session.agent.log.warning(
                "refused", resource=self.resource, why=str(refusal), pid=peer.pid, uid=peer.uid
            )
        elif session.agent.log.debug_on:
            self._log("refused", why=str(refusal))
        session.answer(resp.error(str(refusal)))

    def renewed(self, lease: Lease) -> None:
        if self.notify:
            self.session.tell(b"renewed", lease.resource, lease.token, lease.deadline_ns)

    def lost(self, lease: Lease, reason: str) -> None:
        peer = self.session.peer
        self.session.agent.log.warning("lost", resource=self.resource, why=reason, pid=peer.pid, uid=peer.uid)
        self.session.tell_lost(lease, reason)

    def _log(self, event: str, **more: object) -> None:
        """Lease events with who and what: at debug, since a busy host has thousands a second."""
        peer = self.session.peer
        self.session.agent.log.debug(event, resource=self.resource, pid=peer.pid, uid=peer.uid, **more)

    def ended(self, lease: Lease) -> None:
        if self.session.agent.log.debug_on:
            self._log("ended", fence=lease.fence)
        self.session.leases.discard(lease)
        self.session.agent.quotas.holds_no_more(self.session.usage)


class Session(asyncio.Protocol):
    """A connection. One command runs at a time, as in Redis: what follows a waiting LOCK on the same
    connection waits with it."""

    def __init__(self, agent: "Agent") -> None:
        self.agent = agent
        self.protocol = 2
        self.name = b""
        self.id = agent.next_session_id()
        self.leases: set[Lease] = set()
        self.waiting: LockRequest | None = None
        self.closing = False
        self.peer: Peer
        self.owner = b""
        self._losses: OrderedDict[bytes, Refusal] = OrderedDict()
        self._untold: list[bytes] = []
        self._batch: list[bytes] | None = None
        self._parser = resp.RequestParser(agent.config.limits.request_bytes)
        self._transport: asyncio.Transport | None = None
        self._busy = False
        self._about = ("", b"")
        self.kept_bytes = 0
        self._loss_bytes = 0
        self._clogged = False
        self._pushing = False
        self._cut_off = False
        self._drained: asyncio.Event | None = None
        self._held_back = False
        self._more = False
        self._scheduled = False
        self._admitted = False
        self._tasks: set[asyncio.Task[None]] = set()

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        agent = self.agent
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports don't derive from asyncio's
        assert self._transport is not None
        try:
            connection = transport.get_extra_info("socket")
            self.peer = Peer.of(connection)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        except OSError:
            # Gone again already.
            self.close()
            return
        refusal = agent.quotas.refuse_connection(self.peer.uid)
        if refusal is not None:
            agent.limit_hit(refusal, self.peer)
            self.close(resp.error(f"LIMIT {refusal}"))
            return
        self._admitted = True
        self.usage = agent.quotas.connected(self.peer.uid)
        self._connected_ns = boottime_ns()
        self.owner = owner_of(agent.host, self.peer.pid, self.peer.uid)
        # From the first byte on that the kernel doesn't take, `pause_writing` is called: it is counted.
        self._transport.set_write_buffer_limits(high=0)
        agent.sessions.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._admitted:
            return
        self.closing = True
        for task in self._tasks:
            task.cancel()
        agent = self.agent
        agent.sessions.discard(self)
        agent.buffers.forget(self)
        if self.waiting is not None:
            if agent.crowd.has_room():
                self._withdraw()
            else:
                # Of thousands in one line that go together, each has the next one try.
                agent.endings.add(self.peer.uid, lambda _until_ns: self._withdraw())
        # An agent that stops leaves its holders what they hold (rule 13): they are alive, it is we who go.
        # The same holds for one that was cut off.
        if not (agent.stopped or self._cut_off):
            self._end_all(agent.locks.holder_gone)
        # A detached lease keeps its session in mind, but that need not keep what it once read.
        self._parser = _DEAF
        agent.quotas.disconnected(self.peer.uid)

    def close(self, last_words: bytes = b"") -> None:
        """Close after what is written has gone out; a client that doesn't read is not waited for long."""
        self.closing = True
        transport = self._transport
        if transport is None:
            return
        if last_words:
            transport.write(last_words)
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(1.0, transport.abort)
        transport.close()

    def why_not_on_this_host(self) -> str | None:
        """Why the process that connected isn't seen to be on the host itself, if so."""
        assert self._transport is not None
        connection = self._transport.get_extra_info("socket")
        return why_not_here(connection, self.peer.pid, self._connected_ns)

    @property
    def is_gone(self) -> bool:
        return self._transport is None

    def came_too_late(self, lease: Lease) -> None:
        """Granted when the connection was closed: nobody was told. Ended, but not inside core's work."""
        locks = self.agent.locks
        asyncio.get_running_loop().call_soon(lambda: locks.holder_gone(lease, boottime_ns()))

    def _end_all(self, end: Callable[[Lease, int], None]) -> None:
        """Its leases end: a few do so at once. Thousands, of one connection or of many that close together,
        leave the loop to others in between. Until it is their turn they are held and renewed as before: later
        than could be, and safe (rule 13)."""
        leases = list(self.leases)

        def work(until_ns: int) -> bool:
            while leases:
                end(leases.pop(), boottime_ns())
                if perf_counter_ns() >= until_ns:
                    break
            return bool(leases)

        if not leases:
            return
        if len(leases) <= _ENDED_AT_ONCE and self.agent.crowd.has_room():
            for lease in leases:
                end(lease, boottime_ns())
        else:
            self.agent.endings.add(self.peer.uid, work)

    def cut_off_soon(self, limit: str) -> None:
        """`cut_off` when core is done with what it is at."""
        asyncio.get_running_loop().call_soon(self.cut_off, limit)

    def cut_off(self, limit: str) -> None:
        """Close it for being over a limit. Its process may be alive, and believe in its leases until the
        deadlines that it was told: they are renewed no more, and nobody else gets them before (rule 12)."""
        transport = self._transport
        if transport is None:
            return
        self._cut_off = True
        self.agent.limit_hit(limit, self.peer)
        self._withdraw()
        reason = f"its connection was closed: {limit}"
        self._end_all(lambda lease, now_ns: self.agent.locks.cut_off(lease, reason, now_ns))
        if self._clogged:
            self.closing = True
            transport.abort()
        else:
            self.close(resp.error(f"LIMIT {limit}"))

    def _withdraw(self) -> bool:
        """A LOCK that still waits is not granted any more: nobody would be told, and nobody would end it. A
        lane's job, too: nothing is left to be done."""
        if self.waiting is not None:
            self.agent.locks.gone(self.waiting, boottime_ns())
            self.lock_answered()
        return False

    def pause_writing(self) -> None:
        """The client doesn't read what it asked for: nothing more is done for it until it does. Pushes it did
        not ask for: it may be at work, and need not read before it wants something again."""
        self._clogged = True
        if self._admitted and not self._pushing:
            self.agent.buffers.is_deaf(self)
        self._count_kept()

    def resume_writing(self) -> None:
        self._clogged = False
        self.agent.buffers.hears(self)
        self._count_kept()
        if self._drained is not None:
            self._drained.set()
        self._go_on()

    def _count_kept(self) -> None:
        if self._admitted and self._transport is not None and not self._cut_off:
            unsent = self._transport.get_write_buffer_size()
            self.agent.buffers.keeps(self, unsent + self._parser.held_bytes + self._loss_bytes)

    def quit(self) -> bytes:
        """Close once the replies up to this one are written."""
        self.closing = True
        return b"+OK\r\n"

    # Commands

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        idle = not (self._busy or self._clogged or self._scheduled)
        words = self._parser.only(data) if idle and not (self._untold or self._more) else None
        if words is not None and self.agent.crowd.has_room():
            self._run_only(words)
            return
        self._parser.feed(data)
        self._more = True
        if words is None or len(data) > _UNCOUNTED_REQUEST_BYTES:
            self._count_kept()
        if idle:
            self._go_on()
            return
        if self._clogged:
            self.agent.buffers.is_deaf(self)
        if self._parser.pending_bytes > self.agent.config.limits.pipeline_bytes:
            self._hold_back()

    def _run_only(self, words: list[bytes]) -> None:
        """The usual case: one whole request, with nothing before it or behind, and not in a crowd."""
        reply = self.agent.commands.run(self, words)
        if reply is not None and self._transport is not None:
            self._transport.write(reply)
        if self.closing:
            self.close()

    def _hold_back(self) -> None:
        """More has come than is kept: nothing is read for a while. Behind a LOCK that waits that won't do: a
        connection that isn't read from can't be seen to close."""
        if self.waiting is not None and self.waiting.give_up_ns is not None:
            self.agent.limit_hit("pipeline_bytes", self.peer)
            self.close(resp.error("LIMIT pipeline_bytes: too much was sent behind a LOCK that waits"))
        elif self._transport is not None and not self._held_back:
            self._held_back = True
            self._transport.pause_reading()

    def _read_again(self) -> None:
        if self._held_back and self._transport is not None:
            self._held_back = False
            self._transport.resume_reading()

    def _run(self, until_ns: int) -> bool:
        """A lane's job: run what has arrived, but not so much at a time that others have to wait for it."""
        self._scheduled = False
        if self._busy or self._clogged or self.closing:
            return False
        replies = self._batch = []
        size = 0
        self._more = True
        try:
            while perf_counter_ns() < until_ns:
                words = self._parser.next()
                if words is None:
                    self._more = False
                    break
                reply = self._report_loss(words) or self.agent.commands.run(self, words)
                if reply is not None:
                    replies.append(reply)
                    size += len(reply)
                if self._busy or self._clogged or self.closing or size > _REPLY_BYTES_PER_TURN:
                    break
        except resp.RequestTooLarge as large:
            self.agent.limit_hit(f"request_bytes: {large}", self.peer)
            replies.append(resp.error(f"LIMIT request_bytes: {large}"))
            self.closing = True
        except resp.ProtocolError as broken:
            self.agent.protocol_error(str(broken), self.peer)
            replies.append(resp.error(f"ERR {broken}"))
            self.closing = True
        self._batch = None
        if replies and self._transport is not None:
            self._transport.write(b"".join(replies))
        self._after_a_turn()
        return False

    def _after_a_turn(self) -> None:
        if self.kept_bytes or self._parser.pending_bytes > UNCOUNTED_BYTES:
            self._count_kept()
        if self.closing:
            self.close()
        elif self._more:
            left = self._parser.pending_bytes
            self._more = left > 0
            if left > self.agent.config.limits.pipeline_bytes:
                self._hold_back()
            self._go_on()
        else:
            self._read_again()

    def _go_on(self) -> None:
        """Go on with what has arrived meanwhile: in a turn of its own, since core may be in the middle of its
        work, and others want theirs."""
        if self._more and not (self._scheduled or self._busy or self._clogged or self.closing):
            self._scheduled = True
            self.agent.pipelines.add(self.peer.uid, self._run)

    def _report_loss(self, words: list[bytes]) -> bytes | None:
        """In RESP2 nothing can be pushed, so the next command has to bring it: it is not run, and fails (rule
        12)."""
        if not self._untold:
            return None
        name = words[0].upper()
        if name in (b"QUIT", b"HELLO") or (
            name in (b"UNLOCK", b"EXTEND") and len(words) > 2 and words[2] in self._losses
        ):
            # The latter name their lease, and get the same error by themselves.
            return None
        return resp.error(str(self._losses[self._untold.pop(0)]))

    def loss_of(self, token: bytes) -> Refusal | None:
        """Why the lease with this token was lost, when this connection held it. It is told once more, and
        then forgotten."""
        loss = self._losses.pop(token, None)
        if loss is not None:
            self._loss_bytes -= len(loss.text) + _LOSS_BYTES
            if token in self._untold:
                self._untold.remove(token)
        return loss

    # Answers

    def busy(self) -> None:
        """The command's reply comes later, by `answer`."""
        self._busy = True

    def answer(self, reply: bytes) -> None:
        """The reply to the command that kept this connection busy."""
        self._busy = False
        if self._batch is not None:
            # Refused at once, before the replies that it comes after were written.
            self._batch.append(reply)
        elif self._transport is not None:
            self._transport.write(reply)
            if self._clogged:
                self._count_kept()
            self._go_on()

    def lease_command_starts(self, command: str, resource: bytes) -> None:
        """An UNLOCK or EXTEND: the reply comes by `done` or `refused`."""
        self._about = (command, resource)
        self.busy()

    def lock_starts(self, request: LockRequest) -> None:
        self.waiting = request
        self._read_again()
        self.busy()
        self.agent.quotas.waits(self.usage)

    def lock_answered(self) -> None:
        self.waiting = None
        self.agent.quotas.waits_no_more(self.usage)

    def refused(self, refusal: Refusal) -> None:
        """core's `Reply`: an UNLOCK or EXTEND was refused."""
        self.agent.lease_refused(*self._about, refusal)
        self.answer(resp.error(str(refusal)))

    def done(self, lease: Extended | None) -> None:
        """core's `Reply`: an UNLOCK (None) or EXTEND was done."""
        if lease is None:
            self.answer(b":1\r\n")
            return
        validity_ms = max(0, (lease.deadline_ns - boottime_ns()) // NS_PER_MS)
        self.answer(resp.lease(lease.token, lease.fence, validity_ms, lease.deadline_ns, self.protocol))

    def later(self, work: Coroutine[Any, Any, bytes | None], *, finish: bool = False) -> None:
        """Answer with what `work` comes to; nothing else on this connection runs meanwhile. finish: also when
        the client goes."""
        self.busy()
        task = asyncio.get_running_loop().create_task(self._finish(work))
        if finish:
            self.agent.keep(task)
        else:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def hand_over(self, reply: bytes) -> None:
        """Answer with a reply that may be large, and come back when the client has read it. One that doesn't
        in time is cut off."""
        refusal = self.agent.buffers.refuse_reply(self.usage, len(reply))
        if refusal is not None:
            self.agent.limit_hit(refusal, self.peer)
            reply = resp.error(f"LIMIT {refusal}")
        self._drained = asyncio.Event()
        self.answer(reply)
        if self._clogged:
            await self._drained.wait()

    async def _finish(self, work: Coroutine[Any, Any, bytes | None]) -> None:
        try:
            reply = await work
        except Exception as failure:
            self.agent.internal_error("a command failed", failure)
            reply = resp.error("ERR the agent failed at this; its log says how")
        if reply is not None:
            self.answer(reply)

    # Pushes

    def tell(self, kind: bytes, resource: bytes, token: bytes, deadline_ns: int) -> None:
        """A push that may be left out: not to be kept for a client that doesn't read."""
        if self.protocol == 3 and self._transport is not None and not self._transport.get_write_buffer_size():
            self._push(
                [resp.bulk(kind, 3), resp.bulk(resource, 3), resp.bulk(token, 3), resp.integer(deadline_ns)]
            )

    def tell_lost(self, lease: Lease, reason: str) -> None:
        """A loss: pushed at once in RESP3, and kept for the next command in RESP2 (rule 12)."""
        if self._cut_off:
            return
        shown = lease.resource.decode(errors="backslashreplace")
        loss = Refusal("EXPIRED", f"the lease of '{shown}' was lost: {reason}")
        self._losses[lease.token] = loss
        self._loss_bytes += len(loss.text) + _LOSS_BYTES
        if len(self._losses) > _LOSSES_REMEMBERED:
            self.loss_of(next(iter(self._losses)))
        if self.protocol == 2:
            self._untold.append(lease.token)
        else:
            self._push(
                [
                    resp.bulk(b"lost", 3),
                    resp.bulk(lease.resource, 3),
                    resp.bulk(lease.token, 3),
                    resp.bulk(reason.encode(errors="replace"), 3),
                    resp.integer(lease.deadline_ns),
                ]
            )
        self._count_kept()

    def _push(self, items: list[bytes]) -> None:
        if self._transport is not None:
            self._pushing = True
            self._transport.write(resp.push(items))
            self._pushing = False


Handler = Callable[[Session, list[bytes]], bytes | None]
