"""The tree of a script: the part of Lua in which locks are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass

from lockd.core.scripts.operations import Place


@dataclass(frozen=True, slots=True)
class Literal:
    value: bool | int | bytes | None


@dataclass(frozen=True, slots=True)
class Name:
    text: bytes


@dataclass(frozen=True, slots=True)
class Indexed:
    """`of[at]`, and `of.at`, where `at` is a Literal."""

    of: Expression
    at: Expression


@dataclass(frozen=True, slots=True)
class Called:
    function: Expression
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Unary:
    operator: bytes
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    operator: bytes
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Table:
    """`{a, b}`, or `{ok = a}`."""

    items: tuple[Expression, ...]
    fields: tuple[tuple[bytes, Expression], ...]


Expression = Literal | Name | Indexed | Called | Unary | Binary | Table


@dataclass(frozen=True, slots=True)
class Local:
    names: tuple[bytes, ...]
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    names: tuple[bytes, ...]
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class CallStatement:
    call: Called


@dataclass(frozen=True, slots=True)
class If:
    """Conditions, and what is done under the first that holds; `else` has the condition true."""

    branches: tuple[tuple[Expression, Block], ...]


@dataclass(frozen=True, slots=True)
class ForEach:
    """`for number, item in over do`."""

    names: tuple[bytes, ...]
    over: Expression
    body: Block


@dataclass(frozen=True, slots=True)
class ForNumber:
    """`for name = first, last do`."""

    name: bytes
    first: Expression
    last: Expression
    body: Block


@dataclass(frozen=True, slots=True)
class Do:
    body: Block


@dataclass(frozen=True, slots=True)
class Return:
    value: Expression


Statement = Local | Assignment | CallStatement | If | ForEach | ForNumber | Do | Return
Block = tuple[Statement, ...]


def list_pushed_to(script: Block) -> Place | None:
    """The key of its first LPUSH, by itself or under a local name."""
    parts = list(_parts(script))
    named = {name: value for part in parts if isinstance(part, Local) for name, value in _given(part)}
    for part in parts:
        if isinstance(part, Called) and len(part.arguments) > 1 and _is_lpush(part.arguments[0]):
            key = part.arguments[1]
            return _place(named.get(key.text, key) if isinstance(key, Name) else key)
    return None


def _parts(node: object) -> Iterator[object]:
    """The node, and everything in it."""
    yield node
    inner = node if isinstance(node, tuple) else ()
    if is_dataclass(node):
        inner = tuple(getattr(node, field.name) for field in fields(node))
    for part in inner:
        yield from _parts(part)


def _given(local: Local) -> list[tuple[bytes, Expression]]:
    return list(zip(local.names, local.values, strict=False))


def _is_lpush(word: Expression) -> bool:
    return isinstance(word, Literal) and isinstance(word.value, bytes) and word.value.upper() == b"LPUSH"


def _place(expression: Expression) -> Place | None:
    match expression:
        case Indexed(Name(b"KEYS" | b"ARGV" as words), Literal(int(number))):
            return Place(words.decode(), number)
    return None
