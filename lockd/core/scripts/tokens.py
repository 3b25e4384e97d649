"""Lua 5.1, which Redis runs, as tokens: without comments and white space, and strings as their values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from lockd.core.scripts.errors import NotLuaError

MOST_BYTES = 4_096
"""The longest script, with its comments. Those of lock libraries have 1,000 bytes at most."""
MOST_TOKENS = 300


class TokenKind(Enum):
    NAME = "name"
    NUMBER = "number"
    STRING = "string"
    SYMBOL = "symbol"  # and the words of the language
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """`text`: of a string its value, of everything else the source."""

    kind: TokenKind
    text: bytes
    line: int

    def is_symbol(self, *texts: bytes) -> bool:
        return self.kind is TokenKind.SYMBOL and self.text in texts


_WORDS = frozenset(
    b"and break do else elseif end false for function if in local nil not or repeat return then true "
    b"until while".split()
)
_SHEBANG = re.compile(rb"#!lua(?:[ \t]+flags=([a-z,-]*))?[ \t]*\n")
"""The first line, since Redis 7: the language, and what the script may do."""
_SPACE = re.compile(rb"[ \t\n\r\v\f]+")
_LINE_COMMENT = re.compile(rb"--[^\r\n]*")
_LONG_OPENING = re.compile(rb"\[(=*)\[")
_QUOTED = re.compile(rb"""(["'])((?:\\[\s\S]|[^\\\r\n"']|(?!\1)["'])*)\1""")
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(rb"\.?[0-9](?:[eE][+-]|[0-9A-Za-z_.])*")
_SYMBOL = re.compile(rb"\.\.\.|\.\.|[=~<>]=|[-+*/%^#<>=(){}\[\];:,.]")
_ESCAPE = re.compile(rb"\\([0-9]{1,3}|\r\n|\n\r|[\s\S])")
_ESCAPED = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b"\r": b"\n", b"\r\n": b"\n", b"\n\r": b"\n",
}  # fmt: skip
_NEWLINE = re.compile(rb"\r\n|\n\r|\r|\n")


def tokens_of(script: bytes) -> list[Token]:
    """All tokens, and one of kind END after them. Raises NotLuaError."""
    if len(script) > MOST_BYTES:
        raise NotLuaError(1, f"it has {len(script)} bytes: at most {MOST_BYTES} are allowed")
    shebang = _SHEBANG.match(script)
    return _Tokeniser(script, 0 if shebang is None else shebang.end() - 1).tokens()


def writes_nothing(script: bytes) -> bool:
    """It says so: Redis refuses each of its writes."""
    shebang = _SHEBANG.match(script)
    return shebang is not None and b"no-writes" in (shebang[1] or b"").split(b",")


class _Tokeniser:
    def __init__(self, script: bytes, begins_at: int) -> None:
        self._script = script
        self._at = begins_at
        self._line = 1

    def tokens(self) -> list[Token]:
        found: list[Token] = []
        while self._skip_to_token():
            found.append(self._token())
            if len(found) > MOST_TOKENS:
                raise NotLuaError(self._line, f"more than {MOST_TOKENS} tokens are not allowed")
        return [*found, Token(TokenKind.END, b"", self._line)]

    def _skip_to_token(self) -> bool:
        """Skip white space and comments. Returns whether there is a token."""
        while self._take(_SPACE) is not None or self._take_comment():
            pass
        return self._at < len(self._script)

    def _take_comment(self) -> bool:
        if not self._script.startswith(b"--", self._at):
            return False
        opening = _LONG_OPENING.match(self._script, self._at + 2)
        if opening is None:
            self._take(_LINE_COMMENT)
        else:
            self._take_long(opening, "a comment")
        return True

    def _take(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        match = pattern.match(self._script, self._at)
        if match is not None:
            self._go_to(match.end())
        return match

    def _go_to(self, at: int) -> None:
        self._line += len(_NEWLINE.findall(self._script, self._at, at))
        self._at = at

    def _take_long(self, opening: re.Match[bytes], what: str) -> bytes:
        closing = b"]" + opening[1] + b"]"
        end = self._script.find(closing, opening.end())
        if end < 0:
            raise NotLuaError(self._line, f"{what} is not closed")
        self._go_to(end + len(closing))
        return self._script[opening.end() : end]

    def _token(self) -> Token:
        line = self._line
        kind, text = self._long_string() or self._quoted() or self._word()
        return Token(kind, text, line)

    def _long_string(self) -> tuple[TokenKind, bytes] | None:
        opening = _LONG_OPENING.match(self._script, self._at)
        if opening is None:
            return None
        text = self._take_long(opening, "a string")
        text = _NEWLINE.sub(b"", text, count=1) if text[:1] in (b"\r", b"\n") else text
        return TokenKind.STRING, _NEWLINE.sub(b"\n", text)

    def _quoted(self) -> tuple[TokenKind, bytes] | None:
        quoted = self._take(_QUOTED)
        if quoted is not None:
            return TokenKind.STRING, _ESCAPE.sub(self._unescaped, quoted[2])
        if self._script[self._at : self._at + 1] in (b'"', b"'"):
            raise NotLuaError(self._line, "a string is not closed")
        return None

    def _unescaped(self, escape: re.Match[bytes]) -> bytes:
        text = escape[1]
        if not text.isdigit():
            return _ESCAPED.get(text, text)
        if int(text) > 255:
            raise NotLuaError(self._line, f"there is no byte {int(text)}")
        return bytes([int(text)])

    def _word(self) -> tuple[TokenKind, bytes]:
        if name := self._take(_NAME):
            return (TokenKind.SYMBOL if name[0] in _WORDS else TokenKind.NAME), name[0]
        if number := self._take(_NUMBER):
            return TokenKind.NUMBER, number[0]
        if symbol := self._take(_SYMBOL):
            return TokenKind.SYMBOL, symbol[0]
        sign = self._script[self._at : self._at + 1].decode("latin-1")
        raise NotLuaError(self._line, f"{sign!r} is not valid in Lua")
