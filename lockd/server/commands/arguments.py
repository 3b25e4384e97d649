"""The words of a request, parsed."""

import re
from typing import NamedTuple

_NUMBER = re.compile(rb"[0-9]{1,18}\Z")
_OF_REDIS = re.compile(rb"-?[0-9]{1,15}\Z")
_TOKEN = re.compile(rb"[!-~]{1,64}\Z")


class BadRequest(Exception):
    """A client's request can't be done; the text says why and what would be right."""


class Misused(BadRequest):
    """It does not fit the usage of its command, which is added to the text."""

    def __init__(self, text: str = "ERR syntax error:") -> None:
        super().__init__(text)


def ms_in(word: bytes, name: str, most_ms: int, whose: str, least_ms: int = 0) -> int:
    """A number of milliseconds as a client writes it; everything else is refused with a text that says what
    would be right."""
    if not _NUMBER.match(word) or not least_ms <= int(word) <= most_ms:
        raise _no_number(word, name, f"of milliseconds from {least_ms} to {most_ms} ({whose})")
    return int(word)


def number_in(word: bytes, name: str) -> int:
    """From 1 on, as a client writes it."""
    if not _NUMBER.match(word) or not int(word):
        raise _no_number(word, name, "from 1 on")
    return int(word)


def whole(word: bytes, least: int = 1) -> int:
    """A number as Redis reads it, from `least` on."""
    if not _OF_REDIS.match(word) or int(word) < least:
        raise BadRequest(f"ERR value is not an integer or out of range: '{quoted(word)}'")
    return int(word)


def _no_number(word: bytes, name: str, which: str) -> BadRequest:
    return BadRequest(f"ERR {name} must be a whole number {which}, not '{quoted(word)}'")


def quoted(word: bytes) -> str:
    """The beginning of what a client sent, as an error shows it."""
    return word[:32].decode(errors="backslashreplace")


def token_in(word: bytes) -> bytes:
    """A token that LOCK gave, or that an app chose. There is room for a UUID or the like, and every character
    is one that a log, a listing or a shell shows as it is."""
    if not _TOKEN.match(word):
        raise BadRequest("ERR a token is 1 to 64 printable ASCII characters without spaces")
    return word


_WITH_VALUE = frozenset((b"WAIT", b"MAXHOLD", b"TOKEN"))
_JOINING = frozenset((b"AND", b"SLOTS"))


class LockWords(NamedTuple):
    """The arguments of a LOCK: after the ttl, its options, and what makes it stand in more than one line."""

    options: list[bytes]
    slots: bytes | None
    others: list[bytes] | None
    """The resources after AND."""

    @classmethod
    def of(cls, words: list[bytes]) -> "LockWords":
        if not _may_stand_in_more_lines(words):
            return cls(words[3:], None, None)
        options, slots, at = list[bytes](), None, 3
        while at < len(words):
            word = words[at].upper()
            if word == b"AND":
                return cls(options, slots, words[at + 1 :])
            step = 2 if word in _WITH_VALUE or word == b"SLOTS" else 1
            if word == b"SLOTS":
                slots = words[at + 1] if at + 1 < len(words) else b""
            else:
                options += words[at : at + step]
            at += step
        return cls(options, slots, None)


def _may_stand_in_more_lines(words: list[bytes]) -> bool:
    """Almost no LOCK does, and each one is checked."""
    for word in words[3:]:  # noqa: SIM110  a generator takes three times as long
        if word.upper() in _JOINING:
            return True
    return False


def resources_in(words: list[bytes]) -> list[bytes]:
    """The resources that a LOCK names."""
    if not _may_stand_in_more_lines(words):
        return [words[1]]
    return [words[1], *(LockWords.of(words).others or ())]
