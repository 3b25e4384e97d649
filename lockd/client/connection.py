"""redis-py's connections as lockd's clients use them: directly, without its layers of commands and retries.

An exchange that did not come to its end closes its connection: what comes next on it could be the answer. A
lease is not lost by that, since it belongs to the process.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from redis.asyncio.connection import UnixDomainSocketConnection as AsyncUnixDomainSocketConnection
from redis.connection import UnixDomainSocketConnection
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from lockd.client.errors import AgentUnreachable, LockLost, error_from
from lockd.client.requests import HELLO, Request
from lockd.client.state import PushReceiver

T = TypeVar("T")


class AgentConnection(UnixDomainSocketConnection):
    """For threads. One at a time may use it."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            path,
            timeout_s,
            socket_connect_timeout=timeout_s,
            protocol=3,
            driver_info=None,
            redis_connect_func=_welcomed,
        )
        self.timeout_s = timeout_s
        self.settled = True
        """False while a reply is to come, and for good when it did not: what comes next could be it."""
        self._was_good = False
        self.pushes = PushReceiver()
        self._get_parser().set_pubsub_push_handler(self.pushes.hear)  # type: ignore[union-attr]

    @property
    def file(self) -> int:
        """Its file number; -1 when it is closed."""
        sock = self._get_socket()
        return -1 if sock is None else sock.fileno()

    def _connect(self) -> socket.socket:
        sock: socket.socket = super()._connect()  # type: ignore[no-untyped-call]
        _greet(sock)
        return sock

    def open(self) -> None:
        """Connect. AgentUnreachable when nobody is there, LimitReached when the agent has too many."""
        try:
            self.connect()  # type: ignore[no-untyped-call]
        except BaseException as failure:
            self.close()
            _raise_as_ours(failure, self.path)

    def close(self) -> None:
        self.disconnect()  # type: ignore[no-untyped-call]

    def request(self, request: Request[T]) -> T:
        """What comes of a request. If no reply comes, whatever the cause, it closes itself."""
        self._send(request.packed)
        try:
            reply = self._read(request.wait_s) if request.replies == 1 else self._read_all(request)
            self.settled = self._was_good = True
            return request.decode(reply)
        except ResponseError as refusal:
            self.settled = self._was_good = True
            raise error_from(str(refusal)) from None
        except BaseException as failure:
            self.close()
            _raise_as_ours(failure, self.path)

    def _send(self, packed: bytes) -> None:
        # Whether it is still open need not be asked before: a local socket whose other end is closed takes
        # nothing, and says so.
        try:
            if not self.is_connected:
                raise RedisError("the connection is closed")
            self.settled = False
            self.send_packed_command((packed,), check_health=False)  # type: ignore[no-untyped-call]
        except BaseException as failure:
            self.close()
            is_closed = isinstance(failure.__context__, BrokenPipeError)
            _raise_as_ours(failure, self.path, unsent=is_closed and self._was_good)

    def _read_all(self, request: Request[T]) -> list[Any]:
        """Of several commands. Where one has failed, the others have run all the same."""
        replies: list[Any] = []
        for _ in range(request.replies):
            try:
                replies.append(self._read(request.wait_s))
            except ResponseError as refusal:
                replies.append(refusal)
        return _all_good(replies)

    def _read(self, wait_s: float) -> Any:
        # A wait of its own costs system calls: most requests do with the connection's.
        return self.read_response(timeout=self.timeout_s + wait_s) if wait_s else self.read_response()

    def hear(self) -> bool:
        """Take in the pushes that have come, without waiting for any. False when the agent has closed."""
        try:
            while self.is_connected and self.can_read():
                self.read_response(push_request=True, timeout=0, disconnect_on_error=False)
        except RedisTimeoutError:
            pass  # a part of one; the rest is on its way
        except RedisError:
            self.close()
        return self.is_connected


class AsyncAgentConnection(AsyncUnixDomainSocketConnection):
    """For asyncio. One task at a time may use it."""

    def __init__(self, path: str, timeout_s: float) -> None:
        # Time limits are set here, around a whole exchange: redis-py's cost a task for each.
        super().__init__(
            path=path,
            protocol=3,
            driver_info=None,
            socket_timeout=None,
            socket_connect_timeout=None,
            redis_connect_func=_welcomed_async,
        )
        self.timeout_s = timeout_s
        self.pushes = PushReceiver()
        self._parser.set_pubsub_push_handler(self.pushes.hear_async)  # type: ignore[attr-defined]

    @property
    def file(self) -> int:
        """Its file number; -1 when it is closed."""
        return -1 if self._writer is None else self._writer.get_extra_info("socket").fileno()

    async def _connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, self.path)
            _greet(sock)
            self._reader, self._writer = await asyncio.open_unix_connection(sock=sock)
        except BaseException:
            sock.close()
            raise

    async def open(self) -> None:
        """Connect. AgentUnreachable when nobody is there, LimitReached when the agent has too many."""
        try:
            async with asyncio.timeout(self.timeout_s):
                await self.connect()  # type: ignore[no-untyped-call]
        except BaseException as failure:
            self.close()
            _raise_as_ours(failure, self.path)

    def close(self) -> None:
        """Close at once; what was written before still goes out."""
        self._parser.on_disconnect()  # type: ignore[no-untyped-call]
        self._close()  # type: ignore[no-untyped-call]

    async def request(self, request: Request[T]) -> T:
        """What comes of a request. If no reply comes, whatever the cause, it closes itself."""
        try:
            if not self.is_connected:
                raise RedisError("the connection is closed")
            async with asyncio.timeout(self.timeout_s + request.wait_s):
                await self.send_packed_command(request.packed, check_health=False)
                one = request.replies == 1
                reply = await (self.read_response() if one else self._read_all(request.replies))
            return request.decode(reply)
        except ResponseError as refusal:
            raise error_from(str(refusal)) from None
        except BaseException as failure:
            self.close()
            _raise_as_ours(failure, self.path)

    async def _read_all(self, number: int) -> list[Any]:
        """Of several commands. Where one has failed, the others have run all the same."""
        replies: list[Any] = []
        for _ in range(number):
            try:
                replies.append(await self.read_response())
            except ResponseError as refusal:
                replies.append(refusal)
        return _all_good(replies)

    async def hear(self) -> bool:
        """Wait for the next push. False when the agent has closed. When cancelled, nothing gets lost."""
        try:
            await self.read_response(push_request=True, disconnect_on_error=False)
        except RedisError:
            self.close()
        return bool(self.is_connected)

    async def idles(self) -> bool:
        """True when it is open and nothing is left to read: good for the next request."""
        try:
            return bool(self.is_connected and not await self.can_read())
        except RedisError:
            return False


def _all_good(replies: list[Any]) -> list[Any]:
    """Or the error that says most: that a lease was lost."""
    errors = [reply for reply in replies if isinstance(reply, ResponseError)]
    if errors:
        raise next((one for one in errors if isinstance(error_from(str(one)), LockLost)), errors[0])
    return replies


def _greet(sock: socket.socket) -> None:
    # An agent that has too many connections says so and closes at once: what it said can still be read.
    with suppress(BrokenPipeError):
        sock.sendall(HELLO)


def _welcomed(connection: AgentConnection) -> None:
    connection._get_parser().on_connect(connection)  # type: ignore[no-untyped-call]
    connection.read_response()


async def _welcomed_async(connection: AsyncAgentConnection) -> None:
    connection._parser.on_connect(connection)  # type: ignore[no-untyped-call]
    await connection.read_response()


def _raise_as_ours(failure: BaseException, path: str, *, unsent: bool = False) -> NoReturn:
    """A failure of the connection as ours; what is none, such as KeyboardInterrupt, as it is."""
    if isinstance(failure, ResponseError):
        raise error_from(str(failure)) from failure
    if not isinstance(failure, RedisError | OSError):
        raise failure
    error = AgentUnreachable(f"no answer from lockd at {path}: {failure or 'it took too long'}")
    error.hangs = isinstance(failure, RedisTimeoutError | TimeoutError)
    error.unsent = unsent
    raise error from failure
