"""From tokens to the tree of a script.

Functions, while, methods, fractions: what Lua has and no lock needs ends the reading, just as what is not Lua
does.
"""

from __future__ import annotations

from collections.abc import Callable

from lockd.core.scripts.errors import NotLuaError
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
from lockd.core.scripts.tokens import Token, TokenKind

MOST_NESTED = 30
"""How deeply blocks and expressions may be nested."""

_CONSTANTS = {b"nil": None, b"true": True, b"false": False}
_STRENGTHS = {
    b"or": 1, b"and": 2,
    b"<": 3, b">": 3, b"<=": 3, b">=": 3, b"~=": 3, b"==": 3,
    b"..": 4, b"+": 5, b"-": 5, b"*": 6, b"/": 6, b"%": 6, b"^": 8,
}  # fmt: skip
_STRENGTH_OF_UNARY = 7
_RIGHT_TO_LEFT = (b"..", b"^")
_MOST_DIGITS = 15
"""Lua's numbers are exact up to 2^53."""


def parsed(tokens: list[Token]) -> Block:
    """The whole script. Raises NotLuaError."""
    return _Parser(tokens).script()


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._nested = 0

    # Tokens

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at += token.kind is not TokenKind.END
        return token

    def _skip(self, symbol: bytes) -> bool:
        """Skip this token, if it is the next."""
        is_next = self._next.is_symbol(symbol)
        self._at += is_next
        return is_next

    def _expect(self, symbol: bytes) -> None:
        if not self._skip(symbol):
            raise self._not_read(f"expected {symbol.decode()!r}")

    def _name(self) -> bytes:
        if self._next.kind is not TokenKind.NAME:
            raise self._not_read("expected a name")
        return self._take().text

    def _not_read(self, why: str) -> NotLuaError:
        shown = self._next.text.decode("ascii", "backslashreplace")[:40] or "the end"
        return NotLuaError(self._next.line, f"{shown!r} is not read: {why}")

    def _deeper(self) -> None:
        self._nested += 1
        if self._nested > MOST_NESTED:
            raise NotLuaError(self._next.line, f"more than {MOST_NESTED} levels are not supported")

    # Statements

    def script(self) -> Block:
        block = self._block()
        if self._next.kind is not TokenKind.END:
            raise self._not_read("expected the end of the script")
        return block

    def _block(self) -> Block:
        """Up to its end. A `return` is the last statement of its block, in Lua too."""
        self._deeper()
        statements: list[Statement] = []
        while not (self._next.kind is TokenKind.END or self._next.is_symbol(b"end", b"else", b"elseif")):
            statements.append(self._statement())
            self._skip(b";")
            if isinstance(statements[-1], Return):
                break
        self._nested -= 1
        return tuple(statements)

    def _statement(self) -> Statement:
        readers: dict[bytes, Callable[[], Statement]] = {
            b"local": self._local,
            b"if": self._if,
            b"for": self._for,
            b"do": self._do,
            b"return": self._return,
        }
        read = readers.get(self._next.text) if self._next.kind is TokenKind.SYMBOL else None
        if read is None:
            return self._call_or_assignment()
        self._take()
        return read()

    def _local(self) -> Local:
        names = self._names()
        return Local(names, self._expressions() if self._skip(b"=") else ())

    def _names(self) -> tuple[bytes, ...]:
        names = [self._name()]
        while self._skip(b","):
            names.append(self._name())
        return tuple(names)

    def _if(self) -> If:
        branches = [self._condition_and_block()]
        while self._skip(b"elseif"):
            branches.append(self._condition_and_block())
        if self._skip(b"else"):
            branches.append((Literal(True), self._block()))
        self._expect(b"end")
        return If(tuple(branches))

    def _condition_and_block(self) -> tuple[Expression, Block]:
        condition = self._expression()
        self._expect(b"then")
        return condition, self._block()

    def _for(self) -> ForEach | ForNumber:
        names = self._names()
        if len(names) == 1 and self._skip(b"="):
            return self._for_number(names[0])
        self._expect(b"in")
        over = self._expression()
        return ForEach(names, over, self._body())

    def _for_number(self, name: bytes) -> ForNumber:
        first = self._expression()
        self._expect(b",")
        last = self._expression()
        return ForNumber(name, first, last, self._body())

    def _do(self) -> Do:
        return Do(self._rest_of_body())

    def _body(self) -> Block:
        self._expect(b"do")
        return self._rest_of_body()

    def _rest_of_body(self) -> Block:
        block = self._block()
        self._expect(b"end")
        return block

    def _return(self) -> Return:
        is_over = self._next.kind is TokenKind.END or self._next.is_symbol(b"end", b"else", b"elseif", b";")
        return Return(Literal(None) if is_over else self._expression())

    def _call_or_assignment(self) -> CallStatement | Assignment:
        if self._next.is_symbol(b"("):
            raise self._not_read("a statement must be a call or an assignment")
        read = self._suffixed()
        if isinstance(read, Called):
            return CallStatement(read)
        names: list[Expression] = [read]
        while self._skip(b","):
            names.append(self._suffixed())
        self._expect(b"=")
        if not all(isinstance(name, Name) for name in names):
            raise self._not_read("only names can be assigned")
        values = self._expressions()
        return Assignment(tuple(name.text for name in names if isinstance(name, Name)), values)

    # Expressions

    def _expressions(self) -> tuple[Expression, ...]:
        expressions = [self._expression()]
        while self._skip(b","):
            expressions.append(self._expression())
        return tuple(expressions)

    def _expression(self, weakest: int = 0) -> Expression:
        """An expression whose operators all bind more strongly than that. Each is a level, so the tree gets
        that deep."""
        nested = self._nested
        self._deeper()
        left = self._operand()
        while (operator := self._operator_above(weakest)) is not None:
            self._deeper()
            strength = _STRENGTHS[operator]
            right = self._expression(strength - (operator in _RIGHT_TO_LEFT))
            left = Binary(operator, left, right)
        self._nested = nested
        return left

    def _operator_above(self, weakest: int) -> bytes | None:
        token = self._next
        if token.kind is not TokenKind.SYMBOL or _STRENGTHS.get(token.text, 0) <= weakest:
            return None
        return self._take().text

    def _operand(self) -> Expression:
        token = self._next
        if token.is_symbol(b"not", b"-", b"#"):
            return Unary(self._take().text, self._expression(_STRENGTH_OF_UNARY))
        if token.is_symbol(*_CONSTANTS):
            return Literal(_CONSTANTS[self._take().text])
        if token.kind is TokenKind.STRING:
            return Literal(self._take().text)
        if token.kind is TokenKind.NUMBER:
            return self._number()
        return self._table() if self._skip(b"{") else self._suffixed()

    def _number(self) -> Literal:
        text = self._next.text
        if not text.isdigit() or len(text) > _MOST_DIGITS:
            raise self._not_read("only whole numbers of at most 15 digits are supported")
        self._take()
        return Literal(int(text))

    def _suffixed(self) -> Expression:
        """A name or an expression in parentheses, with the indexes and calls that follow it."""
        nested = self._nested
        value = self._in_parentheses() if self._skip(b"(") else Name(self._name())
        while True:
            self._deeper()
            if self._skip(b"."):
                value = Indexed(value, Literal(self._name()))
            elif self._skip(b"["):
                value = Indexed(value, self._expression())
                self._expect(b"]")
            elif (arguments := self._arguments()) is not None:
                value = Called(value, arguments)
            else:
                self._nested = nested
                return value

    def _in_parentheses(self) -> Expression:
        inner = self._expression()
        self._expect(b")")
        return inner

    def _arguments(self) -> tuple[Expression, ...] | None:
        if self._next.kind is TokenKind.STRING:
            return (Literal(self._take().text),)
        if not self._next.is_symbol(b"("):
            return None
        if self._next.line != self._tokens[self._at - 1].line:
            raise self._not_read("this may or may not be a call")
        self._take()
        if self._skip(b")"):
            return ()
        arguments = self._expressions()
        self._expect(b")")
        return arguments

    def _table(self) -> Table:
        items: list[Expression] = []
        fields: list[tuple[bytes, Expression]] = []
        while not self._skip(b"}"):
            if self._next.kind is TokenKind.NAME and self._tokens[self._at + 1].is_symbol(b"="):
                name = self._name()
                self._take()
                fields.append((name, self._expression()))
            else:
                items.append(self._expression())
            if not self._next.is_symbol(b"}"):
                self._expect(b",")
        return Table(tuple(items), tuple(fields))
