"""Follows a script through its tree, with keys in some given state. Nothing is run: a Keyspace answers the
commands.

A decision may depend on a string that comes with the script and is not known (Condition). Then one answer is
assumed, and in a separate reading the other. Loops go over all KEYS, and only a count goes on from one key to
the next. So what a loop does with two keys it does with any number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockd.core.scripts.comparisons import Asked, Assumed, Comparisons
from lockd.core.scripts.errors import NotRecognisedError
from lockd.core.scripts.functions import FUNCTIONS, formatted, joined, only, product, to_error, total
from lockd.core.scripts.keyspace import Keyspace
from lockd.core.scripts.operations import Place, Question, Status
from lockd.core.scripts.syntax import (
    Assignment,
    Binary,
    Block,
    Called,
    CallStatement,
    Do,
    Expression,
    ForEach,
    ForNumber,
    If,
    Indexed,
    Literal,
    Local,
    Name,
    Return,
    Statement,
    Table,
    Unary,
)
from lockd.core.scripts.values import (
    Counted,
    Function,
    Items,
    KeyNumber,
    KeysInTurn,
    KeysTogether,
    Library,
    Value,
    Words,
    is_whole,
)

MOST_STEPS = 1_200
"""The limit for all readings of a script together. Libraries' scripts take 520 at most. An agent does nothing
else meanwhile: this many take a few milliseconds."""


@dataclass(slots=True)
class Steps:
    """How many steps are left."""

    left: int = MOST_STEPS

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise NotRecognisedError("it is too complex to follow")


@dataclass(slots=True)
class Returned(Exception):
    """The script is over."""

    value: Value


GLOBALS: Mapping[bytes, Value] = {
    b"KEYS": Words.KEYS,
    b"ARGV": Words.ARGV,
    b"redis": Library.REDIS,
    b"server": Library.REDIS,  # in Valkey
    b"string": Library.STRING,
    b"tonumber": Function.TONUMBER,
    b"tostring": Function.TOSTRING,
    b"ipairs": Function.IPAIRS,
    b"unpack": Function.UNPACK,
}
_IN: Mapping[Library, Mapping[Value, Function]] = {
    Library.REDIS: {
        b"call": Function.CALL,
        b"pcall": Function.PCALL,
        b"status_reply": Function.STATUS_REPLY,
        b"error_reply": Function.ERROR_REPLY,
    },
    Library.STRING: {b"format": Function.FORMAT},
}
NEVER_FAIL = frozenset((b"GET", b"EXISTS", b"PTTL", b"TTL", b"DEL", b"UNLINK", b"PERSIST", b"GETDEL"))
"""Commands that can't fail on the key of a lock, so that call and pcall do the same."""
_CURES: Mapping[bytes, str] = {b"error": ": return redis.error_reply(text)"}
"""What to write instead."""


class Evaluation:
    """One reading. `counts_keys`: whether its outcome depends on how many KEYS come with the script.
    `taken_as_given`: strings that it takes to come with the script, without an assumption that they do."""

    def __init__(self, keyspace: Keyspace, count: int, assumed: Assumed, steps: Steps) -> None:
        self._keyspace = keyspace
        self._count = count
        self._comparisons = Comparisons(keyspace, assumed)
        self._assumed = assumed
        self._steps = steps
        self._scopes: list[dict[bytes, Value]] = []
        self._loop_level = 0
        self.counts_keys = False
        self.taken_as_given: set[Asked] = set()

    @property
    def used(self) -> Assumed:
        """The assumptions that it has asked for."""
        return self._comparisons.used

    def returned(self, script: Block) -> Value:
        """What the script returns. Raises NotRecognisedError, UndecidedError, and TouchedError."""
        try:
            self._do_block(script, {})
        except Returned as returned:
            return returned.value
        return None

    # Statements

    def _do_block(self, block: Block, names: dict[bytes, Value]) -> None:
        self._scopes.append(names)
        for statement in block:
            self._do(statement)
        self._scopes.pop()

    def _do(self, statement: Statement) -> None:
        self._steps.take()
        match statement:
            case Local(names, values):
                self._scopes[-1].update(self._assigned(names, values))
            case Assignment(names, values):
                self._assign(names, values)
            case CallStatement(call):
                self._call(call, is_result_used=False)
            case If(branches):
                self._do_first(branches)
            case ForEach() | ForNumber():
                self._do_for_all(statement)
            case Do(body):
                self._do_block(body, {})
            case Return(value):
                self._return(value)

    def _assigned(self, names: tuple[bytes, ...], values: tuple[Expression, ...]) -> dict[bytes, Value]:
        found = [self._value(value) for value in values]
        if len(found) > len(names):
            raise NotRecognisedError("there are more values than names")
        return dict(zip(names, found + [None] * (len(names) - len(found)), strict=True))

    def _assign(self, names: tuple[bytes, ...], values: tuple[Expression, ...]) -> None:
        if min(self._level_of(name) for name in names) < self._loop_level:
            self._count_on(names, values)
            return
        for name, value in self._assigned(names, values).items():
            self._scopes[self._level_of(name)][name] = value

    def _level_of(self, name: bytes) -> int:
        """The innermost block that has this local name. -1: there is none."""
        level = len(self._scopes) - 1
        while level >= 0 and name not in self._scopes[level]:
            level -= 1
        return level

    def _count_on(self, names: tuple[bytes, ...], values: tuple[Expression, ...]) -> None:
        """In a loop, only `count = count + 1` goes on from one key to the next."""
        level = self._level_of(names[0])
        one_more = {Binary(b"+", Name(names[0]), Literal(1)), Binary(b"+", Literal(1), Name(names[0]))}
        if len(names) != 1 or len(values) != 1 or values[0] not in one_more or level < 0:
            raise NotRecognisedError("it gives a value to a name that is not local, or not of the loop")
        before = self._scopes[level][names[0]]
        if not (isinstance(before, Counted) or (is_whole(before) and before == 0)):
            raise NotRecognisedError("it counts something other than keys")
        so_far = before.count if isinstance(before, Counted) else 0
        self._scopes[level][names[0]] = Counted(so_far + 1)

    def _do_first(self, branches: tuple[tuple[Expression, Block], ...]) -> None:
        for condition, block in branches:
            if self._comparisons.is_true(self._value(condition)):
                self._do_block(block, {})
                return

    def _return(self, value: Expression) -> None:
        if isinstance(value, Called):
            raise Returned(self._call(value, is_returned=True))
        raise Returned(self._value(value))

    # Loops over KEYS

    def _do_for_all(self, loop: ForEach | ForNumber) -> None:
        if self._loop_level:
            raise NotRecognisedError("a nested loop")
        self.counts_keys = True
        name_values = self._of_each(loop) if isinstance(loop, ForEach) else self._of_number(loop)
        self._loop_level = len(self._scopes)
        for names in name_values:
            self._do_block(loop.body, names)
        self._loop_level = 0

    def _of_each(self, loop: ForEach) -> list[dict[bytes, Value]]:
        """`for number, key in ipairs(KEYS)`."""
        if not isinstance(self._value(loop.over), KeysInTurn) or len(loop.names) > 2:
            raise NotRecognisedError("a loop that is not over all KEYS")
        return [
            dict(zip(loop.names, (KeyNumber(number), Place("KEYS", number)), strict=False))
            for number in range(1, self._count + 1)
        ]

    def _of_number(self, loop: ForNumber) -> list[dict[bytes, Value]]:
        """`for number = 1, #KEYS`."""
        first, last = self._value(loop.first), self._value(loop.last)
        if not (is_whole(first) and first == 1 and isinstance(last, Counted) and last.count == self._count):
            raise NotRecognisedError("a loop that is not over all KEYS")
        return [{loop.name: KeyNumber(number)} for number in range(1, self._count + 1)]

    # Expressions

    def _value(self, expression: Expression) -> Value:
        self._steps.take()
        match expression:
            case Literal(value):
                return value
            case Name(text):
                return self._named(text)
            case Indexed(of, at):
                return self._indexed(self._value(of), self._value(at))
            case Called():
                return self._call(expression)
            case Unary(operator, operand):
                return self._unary(operator, self._value(operand))
            case Binary(b"and" | b"or"):
                return self._chosen(expression)
            case Binary(operator, left, right):
                return self._binary(operator, self._value(left), self._value(right))
            case Table():
                return self._table(expression)

    def _named(self, name: bytes) -> Value:
        level = self._level_of(name)
        if level >= 0:
            return self._scopes[level][name]
        if name not in GLOBALS:
            raise NotRecognisedError(f"{name.decode()} is not known here{_CURES.get(name, '')}")
        return GLOBALS[name]

    def _indexed(self, of: Value, at: Value) -> Value:
        if isinstance(of, Words) and is_whole(at) and at > 0:
            return self._given(Place(of.value, at))
        if of is Words.KEYS and isinstance(at, KeyNumber):
            return Place("KEYS", at.number)
        if isinstance(of, Library) and isinstance(at, bytes):
            if at in _IN[of]:
                return _IN[of][at]
            raise NotRecognisedError(f"{of.value}.{at.decode()} is not known here")
        if isinstance(of, Status) and at == b"ok":
            return of.text
        raise NotRecognisedError("it indexes a value that is not a table")

    def _given(self, place: Place) -> Value:
        """nil if it was found that it isn't there."""
        asked = (place, Question.GIVEN, b"")
        if asked not in self._assumed:
            self.taken_as_given.add(asked)
            return place
        return place if self._comparisons.holds(*asked) else None

    def _table(self, table: Table) -> Value:
        values = tuple(self._value(item) for item in table.items)
        if not table.fields:
            return Items(values)
        [(name, field), *more] = table.fields
        text = self._value(field)
        if name == b"err" and not (more or values):
            return to_error(text)
        if more or values or not isinstance(text, bytes) or name != b"ok":
            raise NotRecognisedError("a table that is neither a list nor a status")
        return Status(text)

    # Operators

    def _chosen(self, expression: Binary) -> Value:
        left = self._value(expression.left)
        is_left = self._comparisons.is_true(left) is (expression.operator == b"or")
        return left if is_left else self._value(expression.right)

    def _unary(self, operator: bytes, operand: Value) -> Value:
        if operator == b"not":
            return not self._comparisons.is_true(operand)
        if operator == b"#" and operand is Words.KEYS:
            self.counts_keys = True
            return Counted(self._count)
        if operator == b"-" and is_whole(operand):
            return -operand
        raise NotRecognisedError(f"{operator.decode()} of an unknown value")

    def _binary(self, operator: bytes, left: Value, right: Value) -> Value:
        if operator in (b"==", b"~="):
            return self._comparisons.are_equal(left, right) is (operator == b"==")
        if operator in (b"<", b">", b"<=", b">="):
            return self._comparisons.is_less(operator, left, right)
        if operator == b"+":
            return total(left, right)
        if operator == b"*":
            return product(left, right)
        if operator == b"..":
            return joined([left, right])
        raise NotRecognisedError(f"{operator.decode()} is in no operation")

    # Calls

    def _call(self, call: Called, *, is_result_used: bool = True, is_returned: bool = False) -> Value:
        self._steps.take()
        function = self._value(call.function)
        if not isinstance(function, Function):
            raise NotRecognisedError("it calls an unknown function")
        arguments = [self._value(argument) for argument in call.arguments]
        if function is Function.PCALL and not is_returned:
            _check_never_fails(arguments)
        if function in (Function.CALL, Function.PCALL):
            return self._keyspace.run(arguments)
        if not is_result_used:
            raise NotRecognisedError(f"{function.value} for nothing")
        if function is Function.FORMAT:
            return formatted(arguments)
        if function is Function.UNPACK:
            return self._together(only(arguments, function))
        return FUNCTIONS[function](only(arguments, function))

    def _together(self, of: Value) -> KeysTogether:
        if of is not Words.KEYS:
            raise NotRecognisedError("unpack of something other than KEYS")
        self.counts_keys = True
        return KeysTogether(self._count)


def _check_never_fails(arguments: list[Value]) -> None:
    """With call, the script would end here."""
    name = arguments[0] if arguments else None
    if not isinstance(name, bytes) or name.upper() not in NEVER_FAIL:
        raise NotRecognisedError("redis.pcall continues when the command fails")
