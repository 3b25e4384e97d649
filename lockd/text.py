"""Texts and durations as people read them: in a terminal, in a line of a table, on a page."""

from __future__ import annotations

import codecs

_SHORT = ("ms", "s", "m", "h")
_SPELLED_OUT = ("ms", "s", "min", "h")


def printable(value: object) -> str:
    """A text in which every character can be seen: names may have any characters, even control characters."""
    text = shown(value) if isinstance(value, bytes) else str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else escaped(char) for char in text)


def shown(name: bytes) -> str:
    """A name as text, of which UTF-8 makes the same bytes again."""
    return name.decode("utf-8", "surrogateescape")


def escaped(text: str) -> str:
    """Its bytes, as one writes them in quotes."""
    return "".join(f"\\x{byte:02x}" for byte in text.encode("utf-8", "surrogateescape"))


def _escape(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return escaped(error.object[error.start : error.end]), error.end


ESCAPED = "lockd-escaped"
"""How what an encoding does not have is written, as in `text.encode("ascii", ESCAPED)`."""
codecs.register_error(ESCAPED, _escape)


def format_ms(ms: int, *, spelled_out: bool = False) -> str:
    """A duration: 850ms, 12.3s, 4m05s, 1h02m; spelled out 850 ms, 12.3 s, 4 min 05 s, 1 h 02 min."""
    of_ms, of_s, of_min, of_h = _SPELLED_OUT if spelled_out else _SHORT
    gap = " " if spelled_out else ""
    if ms < 1000:
        return f"{ms}{gap}{of_ms}"
    if ms < 60_000:
        return f"{ms / 1000:.1f}{gap}{of_s}"
    minutes, seconds = divmod(ms // 1000, 60)
    if minutes < 60:
        return f"{minutes}{gap}{of_min}{gap}{seconds:02}{gap}{of_s}"
    return f"{minutes // 60}{gap}{of_h}{gap}{minutes % 60:02}{gap}{of_min}"
