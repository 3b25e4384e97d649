"""A connection to Redis, which may be another program by now."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from .errors import Unproven
from .printable import one_word

# A program that has taken Redis's place may answer slowly, strangely or for ever.
ANSWER_WITHIN_S, MAX_ANSWER_BYTES, MAX_ANSWER_WORDS = 10.0, 65_536, 100

# Sends commands in one go, and returns the answers, whatever Redis has for strings as text. Raises Unproven.
Ask = Callable[..., "list[Any]"]


class RedisLink:
    """A connection to Redis. It may be another program by now: its answers are bounded, in bytes and in
    time."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._left = b""
        self._taken = 0
        self._deadline_s = 0.0

    def ask(self, *commands: Sequence[str]) -> list[Any]:
        """Raises Unproven, also for an answer that is an error."""
        self._left, self._taken = b"", 0
        self._deadline_s = time.monotonic() + ANSWER_WITHIN_S
        try:
            self._link.sendall(b"".join(map(_encoded, commands)))
            return [self._answer(depth=0) for _ in commands]
        except ValueError:
            raise Unproven("its answer is not one of Redis") from None
        except OSError as error:
            raise Unproven(f"it does not answer ({error})") from None

    def _answer(self, depth: int) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == "-":
            raise Unproven(f"it answers {one_word(rest[:200])}")
        if kind == "*" and depth < 2:
            return [self._answer(depth + 1) for _ in range(_count(rest, MAX_ANSWER_WORDS))]
        if kind == "$":
            return self._bytes(_count(rest, MAX_ANSWER_BYTES) + 2)[:-2].decode(errors="replace")
        if kind in ("+", ":"):
            return rest
        raise ValueError(line)

    def _line(self) -> str:
        while b"\r\n" not in self._left:
            self._receive()
        line, _, self._left = self._left.partition(b"\r\n")
        return line.decode(errors="replace")

    def _bytes(self, count: int) -> bytes:
        while len(self._left) < count:
            self._receive()
        found, self._left = self._left[:count], self._left[count:]
        return found

    def _receive(self) -> None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._link.settimeout(left_s)
        chunk = self._link.recv(MAX_ANSWER_BYTES)
        self._taken += len(chunk)
        if not chunk or self._taken > MAX_ANSWER_BYTES:
            raise OSError("it closed the connection" if not chunk else f"more than {MAX_ANSWER_BYTES} bytes")
        self._left += chunk


def _encoded(command: Sequence[str]) -> bytes:
    words = [word.encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def _count(text: str, most: int) -> int:
    count = int(text)
    if not 0 <= count <= most:
        raise ValueError(text)
    return count
