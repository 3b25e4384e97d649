"""Looks at what a master sends before hiredis does. A header that announces more than any answer to our
questions can have is refused when it is read.

hiredis allocates an array as long as its header says, at once: thirteen bytes make a list of 2^31 places, and
freeing that stops the event loop for ten seconds. So headers are read here first. RESP is a flat sequence of
lines, and of texts whose length the line before has named: it is enough to know where in such a text a chunk
ends.
"""

import re

UNFINISHED = object()
"""What hiredis returns, because we ask it to, when it has no complete reply: False is a reply in RESP3."""
LONGEST_BYTES = 1 << 21
"""The largest text. The largest that is asked for (a page of leases, all fence counters) is a quarter of
this. A notice is half of this at most (proto-max-bulk-len of the masters): another app host may publish
anything, and no master is to blame for it."""
MOST_ELEMENTS = 1 << 15
"""The longest array. All fence counters are 8,192."""
_LONGEST_LINE = 4096
"""Headers are short, and so are errors. If one arrives byte by byte, the cost must not be quadratic."""

DELETED = b":1\r\n"
"""A release that found its lease, alone in its chunk."""
is_one_vote = re.compile(rb"\*3\r\n:1\r\n:[0-9]{1,19}\r\n:[0-9]{1,19}\r\n").fullmatch
"""The same for a grant. With `DELETED`, this is nearly everything that an agent with little to do hears. When
no text is `inside`, these need no `admit`."""

_OF_VOTES = b"*3\r\n:0123456789-"
_VOTE = b"*3\r\n"
_ANSWERS = re.compile(
    rb"(?:\*3\r\n(?::-?[0-9]{1,19}\r\n){3}|:[01]\r\n"
    rb"|\*4\r\n(?::-?[0-9]{1,19}\r\n){3}\$32\r\n[0-9a-f]{32}\r\n)+"
)
"""Votes, releases, and refusals that name the lease that the master has."""
_LINES = re.compile(rb"(?:[^*$=!%~>|\r\n][^\r\n]*\r\n)+")
_TEXTS, _AGGREGATES = b"$=!", b"*~>%|"


class TooLarge(Exception):
    """The master announced more than is ever asked for; the text says what."""


class Framing:
    """The position in the stream of one connection. `admit` each chunk before it is parsed. inside: the next
    byte is not the first one of an answer."""

    __slots__ = ("_line", "_skip", "inside")

    def __init__(self) -> None:
        self._line = b""
        self._skip = 0
        self.inside = False

    def admit(self, data: bytes) -> None:
        """Raises TooLarge. Nearly everything that arrives is whole votes and releases: these are recognised
        at once."""
        if not self.inside:
            if (
                data.endswith(b"\n")
                and not data.translate(None, _OF_VOTES)
                and data.count(b"*") == data.count(_VOTE)
            ):
                return
            if _ANSWERS.fullmatch(data):
                return
        self._read(data)

    def _read(self, data: bytes) -> None:
        data = self._line + data
        at, self._line = self._skip, b""
        while at < len(data):
            if lines := _LINES.match(data, at):
                at = lines.end()
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                self._line = self._begun(data[at:])
                at = len(data)
            else:
                at = end + 2 + self._text_behind(data[at:end])
        self._skip = at - len(data)
        self.inside = bool(self._skip or self._line)

    def _begun(self, line: bytes) -> bytes:
        """A line whose end has not arrived yet."""
        if len(line) > _LONGEST_LINE:
            raise TooLarge(f"a line of more than {_LONGEST_LINE} bytes")
        return line

    def _text_behind(self, header: bytes) -> int:
        """The length of the text that this line announces: 0 if it announces none."""
        kind, size = header[:1], header[1:]
        if kind in _TEXTS and kind:
            return self._size(size, LONGEST_BYTES, "a text of {} bytes") + 2 if size != b"-1" else 0
        if kind in _AGGREGATES and kind and size != b"-1":
            self._size(size, MOST_ELEMENTS, "an array of {} elements")
        return 0

    def _size(self, size: bytes, most: int, what: str) -> int:
        if not size.isdigit() or len(size) > 10 or int(size) > most:
            raise TooLarge(what.format(size[:20].decode(errors="backslashreplace")))
        return int(size)
