"""Globs over names, as Redis reads them: `*`, `?`, `[ab]`, `[a-z]`, `[^ab]`, and `\\x` for x itself.

Apps choose both the names and some of the patterns, so the cost is bounded whatever they choose. A name is
read once, byte by byte, and each byte costs a few operations on one integer. It has one bit for each element
of the pattern: bit n says that the first n elements can match what was read so far. There is no
backtracking, so stars multiply nothing. Plain text at both ends, which is all that most patterns have besides
stars, is compared as text.
"""

from collections.abc import Callable

PATTERN_BYTES_MOST = 128
"""The longest pattern that a client may send: reading it takes 1 ms at most, matching 512 bytes 0.1 ms."""

_STAR, _ANY, _BACKSLASH, _OPEN, _CLOSE, _NOT, _DASH = b"*?\\[]^-"
_EVERY_BYTE = frozenset(range(256))

_Element = frozenset[int] | None
"""The bytes that may be there; None for a star."""


def matcher(pattern: bytes) -> Callable[[bytes], bool]:
    """Whether a whole name matches the glob. Every pattern has a meaning: a set that is not closed ends with
    it."""
    elements = _elements(pattern)
    front = _plain(elements)
    back = _plain(elements[len(front) :][::-1])[::-1]
    middle = elements[len(front) : len(elements) - len(back)]
    least = len(front) + len(back)
    if not middle:
        return front.__eq__
    if set(middle) == {None}:
        return lambda name: len(name) >= least and name.startswith(front) and name.endswith(back)
    walk = _walker(middle)

    def matches(name: bytes) -> bool:
        if len(name) < least or not (name.startswith(front) and name.endswith(back)):
            return False
        return walk(name[len(front) : len(name) - len(back)])

    return matches


def _plain(elements: list[_Element]) -> bytes:
    """The text with which the elements begin."""
    text = bytearray()
    for element in elements:
        if element is None or len(element) != 1:
            break
        text.extend(element)
    return bytes(text)


def _walker(elements: list[_Element]) -> Callable[[bytes], bool]:
    """The matching itself, see above."""
    stays, anywhere, at = 0, 0, 0
    steps = [0] * 256
    for element in elements:
        bit = 1 << at
        if element is None:
            stays |= bit
            continue
        if element is _EVERY_BYTE:
            anywhere |= bit
        else:
            for byte in element:
                steps[byte] |= bit
        at += 1
    steps = [step | anywhere for step in steps]
    whole = 1 << at

    def walk(text: bytes) -> bool:
        states = 1
        for byte in text:
            states = (states & steps[byte]) << 1 | states & stays
            if not states:
                return False
        return states & whole != 0

    return walk


def _elements(pattern: bytes) -> list[_Element]:
    """A star next to a star adds nothing."""
    elements: list[_Element] = []
    at = 0
    while at < len(pattern):
        element, at = _element(pattern, at)
        if element is not None or elements[-1:] != [None]:
            elements.append(element)
    return elements


def _element(pattern: bytes, at: int) -> tuple[_Element, int]:
    """The element that begins there, and where the next one begins."""
    byte = pattern[at]
    if byte == _STAR:
        return None, at + 1
    if byte == _ANY:
        return _EVERY_BYTE, at + 1
    if byte == _OPEN:
        return _set(pattern, at + 1)
    if byte == _BACKSLASH and at + 1 < len(pattern):
        return frozenset((pattern[at + 1],)), at + 2
    return frozenset((byte,)), at + 1


def _set(pattern: bytes, at: int) -> tuple[_Element, int]:
    """After an opening bracket; without a closing one it is as if there were one at the end."""
    negated = pattern[at : at + 1] == b"^"
    at += negated
    found = set[int]()
    while at < len(pattern) and pattern[at] != _CLOSE:
        if pattern[at] == _BACKSLASH and at + 1 < len(pattern):
            at += 1
            found.add(pattern[at])
        elif pattern[at + 1 : at + 2] == b"-" and at + 2 < len(pattern):
            low, high = sorted((pattern[at], pattern[at + 2]))
            found.update(range(low, high + 1))
            at += 2
        else:
            found.add(pattern[at])
        at += 1
    return (_EVERY_BYTE - found if negated else frozenset(found)), at + 1
