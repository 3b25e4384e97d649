"""The values of Lua's expressions when what comes with the script is not known.

nil, booleans, whole numbers and strings are Python's (`bytes`); strings that come with the script are Places;
the rest is here. Each has only what scripts of locks need: any other use of it ends the reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeGuard

from lockd.core.scripts.errors import NotRecognisedError
from lockd.core.scripts.operations import ErrorReply, Left, Place, Source, Special, Status, Text, Unit


class Whose(Enum):
    """The value stored under the key: the script's own value, or some other string."""

    OWN = "own"
    ANOTHERS = "another's"


@dataclass(frozen=True, slots=True)
class Number:
    """tonumber(place), times `factor`."""

    place: Place
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Later:
    """The remaining TTL plus a number that comes with the script."""

    left: Left
    number: Number


@dataclass(frozen=True, slots=True)
class Counted:
    """A number of keys: how many there are, or were counted."""

    count: int


@dataclass(frozen=True, slots=True)
class KeyNumber:
    """The index of a key, in a loop over all KEYS."""

    number: int


@dataclass(frozen=True, slots=True)
class KeysTogether:
    """unpack(KEYS), as the words of a command."""

    count: int


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a table."""

    values: tuple[Value, ...]


class Words(Enum):
    """The two tables that come with a script."""

    KEYS = "KEYS"
    ARGV = "ARGV"


class Function(Enum):
    CALL = "redis.call"
    PCALL = "redis.pcall"
    STATUS_REPLY = "redis.status_reply"
    ERROR_REPLY = "redis.error_reply"
    TONUMBER = "tonumber"
    TOSTRING = "tostring"
    IPAIRS = "ipairs"
    UNPACK = "unpack"
    FORMAT = "string.format"


class Library(Enum):
    REDIS = "redis"
    STRING = "string"


class Unused(Enum):
    """A number that depends on something outside the lock: it is not nil, and nothing else is known."""

    RESULT = "result"


@dataclass(frozen=True, slots=True)
class KeysInTurn:
    """ipairs(KEYS)."""


Value = (
    None | bool | int | bytes | Place | Whose | Number | Left | Later | Counted | KeyNumber | Items
    | Status | ErrorReply | Words | Function | Library | Unused | KeysInTurn | KeysTogether | Special | Text
)  # fmt: skip


def as_source(value: Value, what: str) -> Source:
    """A string that is in the script or comes with it. Numbers are written as Redis gets them."""
    if isinstance(value, bytes | Place):
        return value
    if is_whole(value):
        return b"%d" % value
    raise NotRecognisedError(f"{what} is neither an argument of the script nor a string in it")


def is_whole(value: Value) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


UNITS = {Left.MS: Unit.MS, Left.SECONDS: Unit.SECONDS}
