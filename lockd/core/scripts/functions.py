"""The results of Lua's functions, sums and products, and what Redis makes of a script's return value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from lockd.core.scripts.errors import NotRecognisedError
from lockd.core.scripts.operations import (
    ErrorReply,
    Left,
    Listed,
    Place,
    Reply,
    Source,
    Special,
    Status,
    Text,
)
from lockd.core.scripts.values import (
    Counted,
    Function,
    Items,
    KeysInTurn,
    Later,
    Number,
    Value,
    Whose,
    Words,
    is_whole,
)

_COMPARE = ": compare what get returns with ARGV[n] as it is"


def only(arguments: list[Value], function: Function) -> Value:
    if len(arguments) != 1:
        raise NotRecognisedError(f"{function.value} with {len(arguments)} arguments")
    return arguments[0]


def _to_number(value: Value) -> Value:
    if isinstance(value, Place):
        return Number(value)
    if isinstance(value, bytes) and value.isdigit() and len(value) < 16:
        return int(value)
    if is_whole(value) or isinstance(value, Left | Number | Later | Counted):
        return value
    raise NotRecognisedError(f"tonumber of a value that may not be a number{_COMPARE}")


def _to_string(value: Value) -> Value:
    if isinstance(value, Place | bytes):
        return value
    raise NotRecognisedError(f"tostring of a value that is not a string{_COMPARE}")


def _to_status(value: Value) -> Value:
    if isinstance(value, bytes):
        return Status(value)
    raise NotRecognisedError("a status that is not in the script")


def to_error(value: Value) -> ErrorReply:
    return ErrorReply(Text(tuple(_parts(value))))


def _to_keys_in_turn(value: Value) -> Value:
    if value is Words.KEYS:
        return KeysInTurn()
    raise NotRecognisedError("a loop that is not over all KEYS")


FUNCTIONS: dict[Function, Callable[[Value], Value]] = {
    Function.TONUMBER: _to_number,
    Function.TOSTRING: _to_string,
    Function.STATUS_REPLY: _to_status,
    Function.ERROR_REPLY: to_error,
    Function.IPAIRS: _to_keys_in_turn,
}


_DIRECTIVE = re.compile(rb"%(.?)", re.DOTALL)


def formatted(arguments: list[Value]) -> Value:
    """string.format, with %s, and with %d for what is a whole number."""
    form, *rest = arguments or [None]
    if not isinstance(form, bytes):
        raise NotRecognisedError("string.format of a text that is not in the script")
    parts: list[Value] = []
    end = 0
    for found in _DIRECTIVE.finditer(form):
        parts.append(form[end : found.start()])
        end = found.end()
        parts.append(b"%" if found[1] == b"%" else _filled(found[0], rest))
    if rest:
        raise NotRecognisedError("string.format with more words than its text has places")
    return joined([*parts, form[end:]])


def _filled(directive: bytes, rest: list[Value]) -> Value:
    value = rest.pop(0) if rest else None
    is_number = is_whole(value) or isinstance(value, Left)
    if directive == b"%s" or (directive == b"%d" and is_number):
        return value
    raise NotRecognisedError(f"string.format with {directive.decode('ascii', 'backslashreplace')}")


def joined(values: list[Value]) -> Value:
    """A text. It is a string only if all of it stands in the script."""
    parts: list[Source | Left | Special] = [b""]
    for part in (part for value in values for part in _parts(value)):
        last = parts[-1]
        if isinstance(part, bytes) and isinstance(last, bytes):
            parts[-1] = last + part
        else:
            parts.append(part)
    [first, *more] = parts
    return first if isinstance(first, bytes) and not more else Text(tuple(part for part in parts if part))


def _parts(value: Value) -> Iterator[Source | Left | Special]:
    if isinstance(value, Text):
        yield from value.parts
    elif isinstance(value, Whose):
        yield Special.STORED
    elif is_whole(value):
        yield b"%d" % value
    elif isinstance(value, bytes | Place | Left):
        yield value
    else:
        raise NotRecognisedError("a text with what can't be known here")


def total(left: Value, right: Value) -> Value:
    """The sum of a remaining TTL and a number: Lua accepts strings as numbers here."""
    if isinstance(right, Left):
        left, right = right, left
    number = Number(right) if isinstance(right, Place) else right
    if isinstance(left, Left) and isinstance(number, Number):
        return Later(left, number)
    raise NotRecognisedError("a sum other than what is left plus a number")


def product(left: Value, right: Value) -> Value:
    """A number of seconds, in milliseconds."""
    if is_whole(left):
        left, right = right, left
    number = Number(left) if isinstance(left, Place) else left
    if isinstance(number, Number) and number.factor == 1 and is_whole(right) and right == 1000:
        return Number(number.place, 1000)
    raise NotRecognisedError("a product other than seconds times 1000")


def as_reply(value: Value) -> Reply:
    """The reply that Redis makes of a Lua value."""
    if value is None or value is False:
        return Special.NIL
    if isinstance(value, bool):
        return 1
    if isinstance(value, Whose):
        return Special.STORED
    if isinstance(value, Counted):
        return Special.KEYS
    if isinstance(value, Items):
        return _as_list(value)
    if isinstance(value, int | bytes | Place | Left | Status | ErrorReply | Special):
        return value
    raise NotRecognisedError("it returns what can't be known here")


def _as_list(items: Items) -> Listed:
    if any(value is None for value in items.values):
        raise NotRecognisedError("a list that ends at its first nil")
    return Listed(tuple(as_reply(value) for value in items.values))
