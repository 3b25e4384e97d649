"""A connection to the agent that hides nothing: what goes over it and comes back, byte by byte if need be.

And `Bystander`, one that uses the agent as it should be used while others do their worst.
"""

from __future__ import annotations

import re
import secrets
import socket
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import hiredis

from tests.harness.processes import computed_by
from tests.harness.waiting import PATIENCE_S

Word = bytes | str | int


def request(*words: Word) -> bytes:
    """A command as it goes over the socket."""
    encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)


def kind(reply: Any) -> str:
    """The first word of an error, which has to be one line."""
    assert isinstance(reply, hiredis.ReplyError), f"no error: {reply!r}"
    assert not re.search(r"[\r\n\0]", str(reply))
    return str(reply).split(" ", 1)[0]


def answers_ping(path: Path) -> bool:
    """Whether an agent behind this socket answers now; OSError when nobody is there."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(1)
        link.connect(str(path))
        link.sendall(request("PING"))
        return link.recv(64).startswith(b"+PONG")


def as_map(reply: Any) -> dict[Any, Any]:
    """A map reply of either protocol: RESP2 has it as a flat list."""
    if isinstance(reply, dict):
        return reply
    return dict(zip(reply[::2], reply[1::2], strict=True))


def token_of(reply: Any) -> bytes:
    """Of a lease, as LOCK and EXTEND answer it."""
    assert isinstance(reply, list | dict), reply
    token: bytes = as_map(reply)[b"token"]
    return token


class Wire:
    """A connection to the agent; replies are as hiredis reads them, and errors are returned, not raised."""

    def __init__(self, path: Path | str | socket.socket, protocol: int = 2) -> None:
        """Connect to the path, or take over a socket that is connected."""
        self.socket = path if isinstance(path, socket.socket) else socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        if self.socket is not path:
            self.socket.connect(str(path))
        self.pushes: deque[list[Any]] = deque()
        self._reader = hiredis.Reader()
        if protocol == 3:
            hello = self.ask("HELLO", 3)
            assert hello[b"proto"] == 3, hello

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, *words: Word) -> None:
        self.socket.sendall(request(*words))

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, *words: Word) -> Any:
        self.send(*words)
        return self.reply()

    def reply(self) -> Any:
        """The next reply; pushes on the way are kept in `pushes`. EOFError when the agent closed instead."""
        while (reply := self.reply_that_is_here()) is None:
            self._receive()
        return reply[0]

    def reply_that_is_here(self) -> tuple[Any] | None:
        """A reply that was received already, in a tuple, since a reply may be None."""
        while (item := self._reader.gets()) is not False:
            if not isinstance(item, hiredis.PushNotification):
                return (item,)
            self.pushes.append(list(item))
        return None

    def push(self) -> list[Any]:
        """The next push. AssertionError when a reply comes first."""
        while not self.pushes:
            reply = self.reply_that_is_here()
            assert reply is None, f"a reply instead of a push: {reply}"
            if not self.pushes:
                self._receive()
        return self.pushes.popleft()

    def _receive(self) -> None:
        if not self.feed_once():
            raise EOFError("the agent closed the connection")

    def feed_once(self) -> bool:
        """Take in what has come; False when the connection is closed."""
        try:
            data = self.socket.recv(65_536)
        except (ConnectionResetError, BrokenPipeError):
            return False
        self._reader.feed(data)
        return bool(data)

    def rest(self) -> bytes:
        """All the bytes until the agent closes the connection."""
        got = bytearray()
        with suppress(ConnectionResetError, BrokenPipeError):
            while data := self.socket.recv(65_536):
                got += data
        return bytes(got)

    def agent_pid(self) -> int:
        """The process that listens, by the kernel's word."""
        credentials = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid: int = struct.unpack("3i", credentials)[0]
        return pid

    def info(self) -> dict[str, str]:
        """INFO as a dict."""
        lines = self.ask("INFO").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def in_use(self) -> tuple[str, ...]:
        """How many connections, leases and waiters there are; this connection is one."""
        info = self.info()
        return tuple(info[name] for name in ("connected_clients", "leases", "waiters"))


def pour(wire: Wire, data: bytes, times: int, beside: Wire) -> int:
    """Send it that often, never reading, until no more is taken or the connection is closed; returns how many
    bytes were taken. No more: not after the agent has had turns, which it shows by answering `beside`."""
    taken, rest, refused = 0, memoryview(data * times), 0
    wire.socket.setblocking(False)
    while rest and refused < _TURNS:
        try:
            sent = wire.socket.send(rest[:65_536])
            taken, rest, refused = taken + sent, rest[sent:], 0
        except BlockingIOError:
            refused += 1
            assert beside.ask("PING") == b"PONG"
        except (BrokenPipeError, ConnectionResetError):
            break
    wire.socket.settimeout(PATIENCE_S)
    return taken


_TURNS = 50


class Bystander(threading.Thread):
    """Uses the agent as it should be used, whatever others do: holds one resource, locks and unlocks another.

    `worst_s` is the longest that a PING, a lock and its release took together; `worst_ping_cpu_s` how much
    the agent computed at most while a PING waited, which does not depend on what else this machine does;
    `trouble` is what went wrong.
    """

    def __init__(self, path: Path | str, ttl_ms: int = 30_000) -> None:
        super().__init__(daemon=True)
        name = secrets.token_hex(4)
        self.worst_s = 0.0
        self.worst_ping_cpu_s = 0.0
        self.rounds = 0
        self.trouble = ""
        self._ttl_ms = ttl_ms
        self._probed = f"bystander-{name}"
        self._held = f"bystander-holds-{name}"
        self._ended = threading.Event()
        self._holder = Wire(path, protocol=3)
        self._prober = Wire(path)
        self._agent_pid = self._prober.agent_pid()
        self._lease: dict[bytes, Any] = {}

    def __enter__(self) -> Bystander:
        self._lease = self._holder.ask("LOCK", self._held, self._ttl_ms, "NOTIFY")
        assert isinstance(self._lease, dict), self._lease
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._ended.set()
        self.join()
        if kind is None and not self.trouble:
            self._see_that_it_is_held()
        self._holder.close()
        self._prober.close()
        if kind is None:
            assert not self.trouble, self.trouble

    def went_on(self, rounds: int, since: int = 0) -> bool:
        """Whether it has had more than so many rounds since then. Raises what kept it from them."""
        if self.trouble:
            raise RuntimeError(self.trouble)
        return self.rounds > since + rounds

    def run(self) -> None:
        try:
            while not self._ended.wait(0.005):
                self._round()
        except Exception as failure:
            self.trouble = f"a bystander was disturbed after {self.rounds} rounds: {failure!r}"

    def _round(self) -> None:
        start_s, computed_s = time.monotonic(), computed_by(self._agent_pid)
        assert self._prober.ask("PING") == b"PONG"
        computed_s = computed_by(self._agent_pid) - computed_s
        lease = self._prober.ask("LOCK", self._probed, self._ttl_ms)
        assert isinstance(lease, list), f"a lock that nobody holds got -{lease}"
        assert self._prober.ask("UNLOCK", self._probed, as_map(lease)[b"token"]) == 1
        self.worst_ping_cpu_s = max(self.worst_ping_cpu_s, computed_s)
        self.worst_s = max(self.worst_s, time.monotonic() - start_s)
        self.rounds += 1

    def _see_that_it_is_held(self) -> None:
        unlocked = self._holder.ask("UNLOCK", self._held, self._lease[b"token"])
        assert unlocked == 1, f"the session lease was lost: {unlocked}"
        # What others of this process lost is told here too, when their own connections have ended.
        token = self._lease[b"token"]
        lost = [push for push in self._holder.pushes if (push[0], push[2]) == (b"lost", token)]
        assert not lost, lost
