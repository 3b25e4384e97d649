"""A TTL as a command or a script has it. An error about it uses the words of the request: its app knows
those, and not their value in milliseconds."""

import time
from collections.abc import Callable

from lockd.core.scripts.operations import Place, Ttl, Unit
from lockd.server.commands.arguments import BadRequest, quoted, whole
from lockd.server.dropin.answers import Words, WrittenTtl

_CURE = (
    "Ask the operator to raise max_ttl_ms of this class, or lock without a TTL: then it is renewed while "
    "its process lives"
)


def ttl_of_option(option: bytes, word: bytes, command: str) -> WrittenTtl:
    """The TTL of SET and CAS."""
    number = _whole_or_less(word)
    ms = TTL_OPTIONS[option](number)
    if ms <= 0:
        raise BadRequest(f"ERR invalid expire time in '{command}' command")
    unit = Unit.SECONDS if option.startswith(b"EX") else Unit.MS
    return WrittenTtl(f"{option.decode()} {number}", ms, unit)


def ttl_of_expire(name: bytes, word: bytes) -> WrittenTtl:
    """The TTL of EXPIRE and PEXPIRE. It may be 0 or less."""
    number = _whole_or_less(word)
    unit = Unit.SECONDS if name == b"EXPIRE" else Unit.MS
    return WrittenTtl(f"{name.decode()} {number}", number * _MS_OF[unit], unit)


def ttl_of_script(ttl: Ttl, words: Words) -> WrittenTtl:
    """It may be 0 or less."""
    if isinstance(ttl.source, Place):
        word = words.at(ttl.source)
        number, text = _whole_or_less(word), f"{ttl.source} '{quoted(word)}'"
    else:
        number, text = int(ttl.source), ttl.source.decode()
    return WrittenTtl(text, number * _MS_OF[ttl.unit], ttl.unit)


def check_ttl(ttl: WrittenTtl, least_ms: int | None, most_ms: int, class_name: str) -> None:
    """Raises BadRequest. least_ms: None if it may be 0 or less."""
    if ttl.ms > most_ms:
        most = f"at most {_in_unit(most_ms, ttl.unit)} in class '{class_name}'"
        raise BadRequest(f"ERR the TTL {ttl.text} is too long: {most}. {_CURE}")
    if least_ms is not None and ttl.ms < least_ms:
        least = f"at least {_in_unit(least_ms, ttl.unit)}" if least_ms > 1 else "above 0"
        raise BadRequest(f"ERR the TTL {ttl.text} is too short: it must be {least}")


def _whole_or_less(word: bytes) -> int:
    return whole(word, least=-(10**15))


def _in_unit(ms: int, unit: Unit) -> str:
    return f"{ms} ms" if unit is Unit.MS else f"{ms / 1_000:g} s"


def _now_ms() -> int:
    return int(time.time() * 1_000)


TTL_OPTIONS: dict[bytes, Callable[[int], int]] = {
    b"PX": lambda ms: ms,
    b"EX": lambda seconds: seconds * 1_000,
    b"PXAT": lambda ms: ms - _now_ms(),
    b"EXAT": lambda seconds: seconds * 1_000 - _now_ms(),
}
"""Its value in ms from now on."""
_MS_OF = {Unit.MS: 1, Unit.SECONDS: 1_000}
