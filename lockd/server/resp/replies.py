"""Replies, encoded. No I/O."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from lockd.core.values import Bound

_CRLF = b"\r\n"

_ONE_LINE = bytes(byte if byte >= 32 and byte != 127 else 32 for byte in range(256))


class SimpleString(str):
    """Text that `value` encodes as a simple string (`+`), which is how Redis sends flags."""

    __slots__ = ()


class ReplySet(tuple[object, ...]):
    """Items that `value` encodes as a set (`~`) in RESP3 and as an array in RESP2, in the order given."""

    __slots__ = ()


def _line(text: str) -> bytes:
    # A resource decoded with surrogateescape becomes its original bytes. Nothing in it can end the line.
    return text.encode("utf-8", "surrogateescape").translate(_ONE_LINE)


def simple(text: str) -> bytes:
    """A simple string. Control characters become spaces."""
    return b"+%b\r\n" % _line(text)


def error(text: str) -> bytes:
    """An error; the first word of `text` is its kind. Control characters, CR and LF among them, become
    spaces, so that nothing quoted in `text` can begin another reply."""
    return b"-%b\r\n" % _line(text)


def integer(number: int) -> bytes:
    """An integer, which has to fit in 64 bits: clients read no others."""
    return b":%d\r\n" % number


def nil(protocol: int) -> bytes:
    return b"_\r\n" if protocol == 3 else b"$-1\r\n"


def bulk(data: bytes | None, protocol: int) -> bytes:
    """A bulk string, or nil for None."""
    if data is None:
        return nil(protocol)
    return b"$%d\r\n%b\r\n" % (len(data), data)


def array(items: Sequence[bytes]) -> bytes:
    """An array of items that are encoded already."""
    return b"*%d\r\n%b" % (len(items), b"".join(items))


def nil_array(protocol: int) -> bytes:
    """What EXEC answers when it has run nothing. Some clients take no other nil for it in RESP2."""
    return b"_\r\n" if protocol == 3 else b"*-1\r\n"


def push(items: Sequence[bytes]) -> bytes:
    """An out-of-band message of items that are encoded already. RESP3 only."""
    return b">%d\r\n%b" % (len(items), b"".join(items))


def mapping(pairs: Sequence[tuple[bytes, bytes]], protocol: int) -> bytes:
    """A map of keys and values that are encoded already; a flat array [key, value, key, value] in RESP2."""
    body = b"".join([key + item for key, item in pairs])
    if protocol == 3:
        return b"%%%d\r\n%b" % (len(pairs), body)
    return b"*%d\r\n%b" % (2 * len(pairs), body)


_Encoder = Callable[[Any, int], bytes]


def value(obj: object, protocol: int) -> bytes:
    """Encode None, bool, int, float, str, bytes, and lists, tuples and dicts of them, nested.

    What RESP2 lacks becomes: booleans 1 and 0, doubles bulk strings, maps flat arrays, sets arrays.
    Raises TypeError for anything else.
    """
    encode = _ENCODERS.get(type(obj)) or _encoder_of_base(obj)
    return encode(obj, protocol)


def _encoder_of_base(obj: object) -> _Encoder:
    for base in type(obj).__mro__:
        if base in _ENCODERS:
            return _ENCODERS[base]
    raise TypeError(f"no RESP encoding for {type(obj).__name__}")


def _bool(obj: bool, protocol: int) -> bytes:
    if protocol == 3:
        return b"#t\r\n" if obj else b"#f\r\n"
    return b":1\r\n" if obj else b":0\r\n"


def _double(obj: float, protocol: int) -> bytes:
    text = repr(obj).encode()
    return b",%b\r\n" % text if protocol == 3 else bulk(text, protocol)


def _text(obj: str, _: int) -> bytes:
    data = obj.encode("utf-8", "surrogateescape")
    return b"$%d\r\n%b\r\n" % (len(data), data)


def _items(obj: Iterable[object], protocol: int) -> bytes:
    return array([value(item, protocol) for item in obj])


def _set(obj: ReplySet, protocol: int) -> bytes:
    body = _items(obj, protocol)
    return b"~" + body[1:] if protocol == 3 else body


@lru_cache(maxsize=256)
def _key(name: str) -> bytes:
    return _text(name, 2)


def _dict(obj: Mapping[object, object], protocol: int) -> bytes:
    pairs = [
        (_key(key) if type(key) is str else value(key, protocol), value(item, protocol))
        for key, item in obj.items()
    ]
    return mapping(pairs, protocol)


_ENCODERS: dict[type, _Encoder] = {
    type(None): lambda _, protocol: nil(protocol),
    bool: _bool,
    int: lambda obj, _: b":%d\r\n" % obj,
    float: _double,
    str: _text,
    SimpleString: lambda obj, _: simple(obj),
    bytes: bulk,
    list: _items,
    tuple: _items,
    ReplySet: _set,
    dict: _dict,
}


def _lease_format(protocol: int, fence: bytes, bound: Bound | None) -> bytes:
    """A %-format over the token's length, the token, the fence (unless nil), validity_ms and deadline_ns."""
    head = b"%%5\r\n" if protocol == 3 else b"*10\r\n"
    return (
        head
        + b"$5\r\ntoken\r\n$%%d\r\n%%b\r\n$5\r\nfence\r\n%b$11\r\nvalidity_ms\r\n:%%d\r\n" % fence
        + b"$11\r\ndeadline_ns\r\n:%d\r\n"
        + b"$5\r\nbound\r\n%b" % value(bound and bound.value, protocol)
    )


_LEASE = {
    (protocol, bound): _lease_format(protocol, b":%d\r\n", bound) for protocol in (2, 3) for bound in Bound
}
_FOREIGN_LEASE = {protocol: _lease_format(protocol, nil(protocol), None) for protocol in (2, 3)}


def lease(
    token: bytes, fence: int | None, validity_ms: int, deadline_ns: int, bound: Bound | None, protocol: int
) -> bytes:
    """The reply to LOCK and EXTEND, {token, fence, validity_ms, deadline_ns, bound}, in one go.

    `fence` and `bound` are None when another agent granted the lease; `deadline_ns` is CLOCK_BOOTTIME.
    """
    if fence is None or bound is None:
        return _FOREIGN_LEASE[protocol] % (len(token), token, validity_ms, deadline_ns)
    return _LEASE[protocol, bound] % (len(token), token, fence, validity_ms, deadline_ns)
