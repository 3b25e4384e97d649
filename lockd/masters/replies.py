"""A master's answers to single questions. Each is read as what it has to be, or not at all."""

from collections.abc import Sequence

from lockd.core.answers import Nonsense, one_line


def integer(reply: object, lowest: int, highest: int) -> int:
    # By class: True is an int to isinstance.
    if reply.__class__ is not int or not lowest <= reply <= highest:
        raise Nonsense(f"{_kind(reply)} where a number from {lowest} to {highest} was expected")
    return reply


def text(reply: object) -> str:
    if not isinstance(reply, bytes):
        raise Nonsense(f"{_kind(reply)} where a text was expected")
    return reply.decode(errors="replace")


def digits(reply: object, highest: int) -> int:
    """A number that Redis gives as a text."""
    word = text(reply)
    if not (word.isascii() and word.isdigit() and len(word) <= 16 and int(word) <= highest):
        raise Nonsense(f"'{one_line(word)}' where a number up to {highest} was expected")
    return int(word)


def pairs(reply: object) -> Sequence[tuple[bytes, bytes]]:
    """A hash, or settings: a map, or name, value, name, value."""
    if reply.__class__ is dict:
        reply = [word for pair in reply.items() for word in pair]
    if reply.__class__ is not list or len(reply) % 2 or not all(isinstance(word, bytes) for word in reply):
        raise Nonsense(f"{_kind(reply)} where pairs of texts were expected")
    return list(zip(reply[::2], reply[1::2], strict=True))


def flags(reply: object, count: int) -> list[int]:
    """A list of this many 0s and 1s."""
    if reply.__class__ is not list or len(reply) != count:
        raise Nonsense(f"{_kind(reply)} where {count} were expected")
    return [integer(flag, 0, 1) for flag in reply]


def texts(reply: object, count: int) -> list[bytes | None]:
    """A list of this many texts, of which some are missing."""
    if reply.__class__ is not list or len(reply) != count:
        raise Nonsense(f"{_kind(reply)} where {count} were expected")
    if not all(isinstance(word, bytes | None) for word in reply):
        raise Nonsense("a list of something else where texts were expected")
    return reply


def time_us(reply: object, highest: int) -> int:
    """TIME: seconds and microseconds."""
    if reply.__class__ is not list or len(reply) != 2:
        raise Nonsense(f"{_kind(reply)} where a time was expected")
    seconds, micros = reply
    return digits(seconds, highest // 1_000_000) * 1_000_000 + digits(micros, 999_999)


def _kind(reply: object) -> str:
    """What kind of reply it is, in a few words. Never all of it: it may be a million nested lists."""
    if isinstance(reply, list):
        return f"{len(reply)} elements"
    return one_line(repr(reply)) if isinstance(reply, int | float | None) else type(reply).__name__
