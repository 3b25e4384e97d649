"""The answers of operations, encoded."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lockd.core.scripts.operations import (
    ErrorReply,
    Left,
    Listed,
    Place,
    Reply,
    Special,
    State,
    Status,
    Text,
    Unit,
)
from lockd.server.resp import replies

_HAS_A_WORD = re.compile(r"[A-Z]+ ")


@dataclass(frozen=True, slots=True)
class Found:
    """A key as it was found. value: chosen by its app, None for a LOCK, of which only the host is shown;
    left_ms: None if it has no TTL; is_set: it has got the TTL that was asked for."""

    state: State
    value: bytes | None = None
    left_ms: int | None = None
    is_set: bool = False
    host: bytes = b""

    @property
    def stored(self) -> bytes | None:
        """What is shown of its holder. The token of a LOCK is shown to nobody."""
        return b"a LOCK, by " + self.host if self.value is None and self.host else self.value

    @property
    def seconds(self) -> int | None:
        """As Redis's TTL rounds it."""
        return None if self.left_ms is None else (self.left_ms + 500) // 1_000


FREE = Found(State.FREE)


@dataclass(frozen=True, slots=True)
class WrittenTtl:
    """text: as its app wrote it; ms: its value from now on."""

    text: str
    ms: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a command or a script. ttl: a command's; a script has it among its arguments."""

    keys: Sequence[bytes]
    arguments: Sequence[bytes]
    ttl: WrittenTtl | None = None

    def at(self, place: Place) -> bytes:
        word = place.of(self.keys, self.arguments)
        assert word is not None  # it was looked for before
        return word


def encoded(reply: Reply, found: Found, words: Words, protocol: int) -> bytes:
    """keys: for Special.KEYS, on how many keys it was done."""
    if isinstance(reply, int):
        return replies.integer(reply)
    if isinstance(reply, bytes):
        return replies.bulk(reply, protocol)
    if isinstance(reply, Place):
        return replies.bulk(words.at(reply), protocol)
    if isinstance(reply, Status):
        return replies.simple(reply.text.decode(errors="replace"))
    if isinstance(reply, ErrorReply):
        text = _text(reply.text, found, words).decode(errors="replace")
        return replies.error(text if _HAS_A_WORD.match(text) else f"ERR {text}")
    if isinstance(reply, Listed):
        return replies.array([encoded(one, found, words, protocol) for one in reply.items])
    return _of_state(reply, found, words, protocol)


def _of_state(reply: Left | Special, found: Found, words: Words, protocol: int) -> bytes:
    if reply is Left.MS:
        return replies.integer(_left(found.state, found.left_ms))
    if reply is Left.SECONDS:
        return replies.integer(_left(found.state, found.seconds))
    if reply is Special.STORED:
        return replies.bulk(found.stored, protocol)
    if reply is Special.KEYS:
        return replies.integer(len(words.keys))
    if reply is Special.IS_SET:
        return replies.integer(int(found.is_set))
    return replies.nil(protocol)


def _text(text: Text, found: Found, words: Words) -> bytes:
    return b"".join(_part(part, found, words) for part in text.parts)


def _part(part: bytes | Place | Left | Special, found: Found, words: Words) -> bytes:
    if isinstance(part, bytes):
        return part
    if isinstance(part, Place):
        return words.at(part)
    if isinstance(part, Left):
        return b"%d" % _left(found.state, found.left_ms if part is Left.MS else found.seconds)
    return found.stored or b""


def _left(state: State, left: int | None) -> int:
    if state is State.FREE:
        return -2
    return -1 if left is None else left
