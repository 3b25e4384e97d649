"""A script without what doesn't matter: for logs, and for comparing two scripts.

It has no comments, white space or semicolons; one kind of quotes; local names in the order in which they
come; names and options of commands in capitals. A script is not recognised by it, but by its meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lockd.core.scripts.tokens import Token, TokenKind

_NO_SPACE_BEFORE = (b")", b"]", b"}", b",", b".", b"(", b"[")
_NO_SPACE_AFTER = (b"(", b"[", b"{", b".", b"#")
_WITH_SPACE = (b"and", b"or", b"not", b"if", b"elseif", b"return", b"=", b"==", b"~=", b"in", b",", b"..")
_OPTIONS = frozenset((b"NX", b"XX", b"PX", b"EX", b"PXAT", b"EXAT", b"KEEPTTL", b"GET"))
_CALLS = (b"call", b"pcall")


def normal_form(tokens: Sequence[Token]) -> str:
    """In one line."""
    kept = [token for token in tokens if not token.is_symbol(b";") and token.kind is not TokenKind.END]
    names = {name: b"v%d" % number for number, name in enumerate(_local_names(kept), start=1)}
    words = [_written(token, names) for token in _in_capitals(kept)]
    text = b"".join(b" " * _is_apart(kept, at) + word for at, word in enumerate(words))
    return text.decode("ascii", "backslashreplace")


def _local_names(tokens: Sequence[Token]) -> list[bytes]:
    """The names after `local` and `for`, up to the end of their list."""
    found: dict[bytes, None] = {}
    is_list = False
    for token in tokens:
        is_list = token.is_symbol(b"local", b"for") or (
            is_list and (token.kind is TokenKind.NAME or token.is_symbol(b","))
        )
        if is_list and token.kind is TokenKind.NAME:
            found[token.text] = None
    return list(found)


def _in_capitals(tokens: Sequence[Token]) -> Iterator[Token]:
    """The names of commands, and the options in their calls: for these, Redis ignores case."""
    calls: list[bool] = []
    before = None
    for token in tokens:
        if token.is_symbol(b"("):
            calls.append(before is not None and before.text in _CALLS)
        elif token.is_symbol(b")") and calls:
            calls.pop()
        if token.kind is TokenKind.STRING and calls and calls[-1] and before is not None:
            is_command = before.is_symbol(b"(")
            token = _capital(token) if is_command or token.text.upper() in _OPTIONS else token
        yield token
        before = token


def _capital(token: Token) -> Token:
    return Token(token.kind, token.text.upper(), token.line)


def _written(token: Token, names: dict[bytes, bytes]) -> bytes:
    if token.kind is TokenKind.STRING:
        return b'"' + token.text.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'
    return names.get(token.text, token.text) if token.kind is TokenKind.NAME else token.text


def _is_apart(tokens: Sequence[Token], at: int) -> bool:
    """Whether there is a space before this one."""
    if at == 0:
        return False
    before, token = tokens[at - 1], tokens[at]
    if before.is_symbol(*_WITH_SPACE) and not token.is_symbol(b")", b"]"):
        return True
    return not (before.is_symbol(*_NO_SPACE_AFTER) or token.is_symbol(*_NO_SPACE_BEFORE))
