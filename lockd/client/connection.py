"""redis-py's connections as lockd's clients use them: directly, without its layers of commands and retries.

An exchange that was interrupted closes its connection: the next bytes on it could be the answer. No lease is
lost by that, since leases belong to the process.
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

from lockd.client import in_line
from lockd.client.errors import AgentUnreachable, LockLost, error_from
from lockd.client.requests import HELLO, Request
from lockd.client.state import PushReceiver

T = TypeVar("T")


class AgentConnection(UnixDomainSocketConnection):
    """For threads. Only one at a time may use it."""

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
        """False while a reply is expected, and for good if it did not come: the next bytes could be that
        reply."""
        self._was_good = False
        self.pushes = PushReceiver()
        self._get_parser().set_pubsub_push_handler(self.pushes.hear)  # type: ignore[union-attr]

    @property
    def file(self) -> int:
        """Its file number; -1 when it is closed."""
        sock = self._get_socket()
        return -1 if sock is None else sock.fileno()

    def _connect(self) -> socket.socket:
        sock = in_line.connected(self.path, self.timeout_s)
        try:
            _greet(sock)
        except BaseException:
            sock.close()
            raise
        return sock

    def open(self) -> None:
        """Connect. AgentUnreachable when no agent is there, LimitReached when the agent has too many
        connections."""
        try:
            self.connect()  # type: ignore[no-untyped-call]
        except BaseException as failure:
            self.close()
            _raise_as_ours(failure, self.path)

    def close(self) -> None:
        self.disconnect()  # type: ignore[no-untyped-call]

    def request(self, request: Request[T]) -> T:
        """The result of a request. If no reply comes, for any reason, the connection closes itself."""
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
        # There is no need to check first whether it is still open: writing to a local socket whose other end
        # is closed fails at once.
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
        """The result of several commands. If one of them failed, the others have been run all the same."""
        replies: list[Any] = []
        for _ in range(request.replies):
            try:
                replies.append(self._read(request.wait_s))
            except ResponseError as refusal:
                replies.append(refusal)
        return _all_good(replies)

    def _read(self, wait_s: float) -> Any:
        # A separate timeout costs system calls: the connection's is right for most requests.
        return self.read_response(timeout=self.timeout_s + wait_s) if wait_s else self.read_response()

    def hear(self) -> bool:
        """Read the pushes that have arrived, without waiting for any. False when the agent has closed."""
        try:
            while self.is_connected and self.can_read():
                self.read_response(push_request=True, timeout=0, disconnect_on_error=False)
        except RedisTimeoutError:
            pass  # part of a push; the rest is on its way
        except RedisError:
            self.close()
        return self.is_connected


class AsyncAgentConnection(AsyncUnixDomainSocketConnection):
    """For asyncio. Only one task at a time may use it."""

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
            await in_line.connect_async(sock, self.path)
            _greet(sock)
            self._reader, self._writer = await asyncio.open_unix_connection(sock=sock)
        except BaseException:
            sock.close()
            raise

    async def open(self) -> None:
        """Connect. AgentUnreachable when no agent is there, LimitReached when the agent has too many
        connections."""
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
        """The result of a request. If no reply comes, for any reason, the connection closes itself."""
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
        """The result of several commands. If one of them failed, the others have been run all the same."""
        replies: list[Any] = []
        for _ in range(number):
            try:
                replies.append(await self.read_response())
            except ResponseError as refusal:
                replies.append(refusal)
        return _all_good(replies)

    async def hear(self) -> bool:
        """Wait for the next push. False when the agent has closed. If it is cancelled, nothing gets lost."""
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
    """Or the most important error: that a lease was lost."""
    errors = [reply for reply in replies if isinstance(reply, ResponseError)]
    if errors:
        raise next((one for one in errors if isinstance(error_from(str(one)), LockLost)), errors[0])
    return replies


def _greet(sock: socket.socket) -> None:
    # An agent with too many connections says so and closes at once: its error can still be read.
    with suppress(BrokenPipeError):
        sock.sendall(HELLO)


def _welcomed(connection: AgentConnection) -> None:
    connection._get_parser().on_connect(connection)  # type: ignore[no-untyped-call]
    connection.read_response()


async def _welcomed_async(connection: AsyncAgentConnection) -> None:
    connection._parser.on_connect(connection)  # type: ignore[no-untyped-call]
    await connection.read_response()


def _raise_as_ours(failure: BaseException, path: str, *, unsent: bool = False) -> NoReturn:
    """A failure of the connection as one of our exceptions; others, such as KeyboardInterrupt, unchanged."""
    if isinstance(failure, ResponseError):
        raise error_from(str(failure)) from failure
    if not isinstance(failure, RedisError | OSError):
        raise failure
    error = AgentUnreachable(f"no answer from lockd at {path}: {failure or 'it took too long'}")
    error.hangs = isinstance(failure, RedisTimeoutError | TimeoutError)
    error.unsent = unsent
    raise error from failure
