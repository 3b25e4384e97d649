"""What a client sends, parsed. No I/O.

The client is local but may be hostile or broken, so a request is bounded before it is believed. A header that
announces more than may be sent is refused when it is read, no memory is allocated because of an announcement,
and half-sent requests cost time in proportion to their bytes, however small the pieces in which they arrive.

There are two ways through the parser, and they agree on every input (tests/unit/test_resp_properties.py):

* `ExactParser` reads header by header and word by word, and goes on where it stopped when more bytes arrive.
  It alone decides what is an error.
* `RequestParser`, which the agent uses, splits a window of the input at its CRLFs. It takes a request from
  the lines if every length header is, byte for byte, the one that the line below it needs: that proves that
  the exact parser would return the same words. Everything that is not proven so (a word with CRLF in it, an
  incomplete request, an oversized or a wrong one) is left to the exact parser. The usual command takes a
  third of the time.
"""

import re

from lockd.core import sizes

MAX_WORDS = 128
"""Words cost more than bytes. No command has nearly so many."""
MAX_HEADER_BYTES = 32
"""Longest `*<count>` or `$<length>` line, with its CRLF."""
MAX_EMPTY_REQUESTS = 1024
"""How many empty requests one call of `next` skips before the client is called broken."""

_CRLF = b"\r\n"
_LEAST_WORD_BYTES = len(b"$0\r\n\r\n")
_NO_BULK = -1

# Splitting makes an object of some 40 bytes for each line, however short. Done for one window at a time, that
# is limited to some tens of KiB a connection, whatever it has sent ahead.
_WINDOW_BYTES = 4096
_LINES_OF_COUNT = {b"*%d" % count: 1 + 2 * count for count in range(1, MAX_WORDS + 1)}
_LENGTH_LINE = {length: b"$%d" % length for length in range(1024)}

_HTTP = re.compile(rb"(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|CONNECT|TRACE|PRI) ")
_TLS = re.compile(rb"\x16\x03")
_TEXT = re.compile(rb"[A-Za-z]")


class ProtocolError(Exception):
    """The client doesn't speak RESP, or announced more than it may send. Send it `message` (as an ERR), then
    close the connection: it can't be known where the next request would begin."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RequestTooLarge(ProtocolError):
    """A request that is, or announces that it will be, larger than a client may send."""


def _number(text: bytes) -> int | None:
    """A 64-bit integer as Redis reads it: no '+', no spaces, no leading zeros, no '-0'. None for others."""
    if text == b"0":
        return 0
    digits = text.removeprefix(b"-")
    if not digits.isdigit() or digits.startswith(b"0"):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _quoted(data: bytes) -> str:
    """Bytes of the client as they may be shown: quoted, control characters and non-ASCII escaped."""
    return "'" + ascii(data.decode("latin-1"))[1:-1] + "'"


def _what_this_looks_like(data: bytes) -> str:
    if _HTTP.match(data):
        return "this looks like HTTP; "
    if _TLS.match(data):
        return "this looks like TLS; "
    if _TEXT.match(data):
        return "this looks like an inline command; "
    return ""


class ExactParser:
    """Parse requests word by word, from bytes that arrive in any pieces. `RequestParser` is the one to
    use."""

    __slots__ = (
        "_buffer",
        "_bulk_bytes",
        "_empty_requests",
        "_failure",
        "_max_request_bytes",
        "_missing_words",
        "_offset",
        "_tail",
        "_taken_bytes",
        "_words",
    )

    def __init__(self, max_request_bytes: int) -> None:
        self._max_request_bytes = max_request_bytes
        self._buffer = b""  # being parsed, used up to _offset; b"" when nothing is left
        self._offset = 0
        self._tail = bytearray()  # came after _buffer; joined to it only once that lets the parser go on
        # The request being read:
        self._words: list[bytes] = []
        self._missing_words = 0  # 0: between two requests
        self._bulk_bytes = _NO_BULK  # length of the word that comes next, once its header is read
        self._taken_bytes = 0  # what the request has had of the input so far
        self._empty_requests = 0
        self._failure: str | None = None

    def feed(self, data: bytes) -> None:
        """Add what the connection has received. Parses nothing; after a ProtocolError it is dropped."""
        if self._buffer:
            self._tail += data
        elif self._failure is None:
            self._buffer = data

    def next(self) -> list[bytes] | None:
        """The next request, a list of at least one word, or None when it takes more bytes.

        Empty requests (`*0`, `*-1`, an empty line) are skipped as Redis does. Raises ProtocolError, and from
        then on always.
        """
        if self._failure is not None:
            raise ProtocolError(self._failure)
        self._empty_requests = 0
        try:
            while not self._read_request():
                if not self._refill():
                    return None
        except ProtocolError as error:
            self._give_up(error.message)
            raise
        return self._take_words()

    @property
    def pending_bytes(self) -> int:
        """Bytes fed that have not come out of `next` yet, those of an incomplete request included."""
        return self._taken_bytes + len(self._buffer) - self._offset + len(self._tail)

    def _read_request(self) -> bool:
        """Go on with the request in the buffer. False when the buffer does not hold all of it."""
        if not self._missing_words and not self._read_count():
            return False
        while self._missing_words:
            if not self._read_word():
                return False
        return True

    def _read_count(self) -> bool:
        while True:
            if self._buffer[self._offset : self._offset + 2] == _CRLF:
                # `redis-cli --pipe` ends its input with an empty line, and Redis skips it.
                self._take(self._offset + 2)
                self._skip_empty_request()
                continue
            count = self._read_header("*", "multibulk length", "mbulk count")
            if count is None:
                return False
            if count > 0:
                break
            self._skip_empty_request()
        if count > MAX_WORDS:
            raise ProtocolError(
                f"Protocol error: invalid multibulk length {count}: a request has at most {MAX_WORDS} words"
            )
        self._check_size(count * _LEAST_WORD_BYTES)
        self._missing_words = count
        return True

    def _skip_empty_request(self) -> None:
        # Without a limit, a client that sends nothing else would keep the event loop in one call for as long
        # as its input lasts.
        self._empty_requests += 1
        if self._empty_requests > MAX_EMPTY_REQUESTS:
            raise ProtocolError(f"Protocol error: more than {MAX_EMPTY_REQUESTS} empty requests in a row")
        self._taken_bytes = 0

    def _read_word(self) -> bool:
        if self._bulk_bytes == _NO_BULK and not self._read_length():
            return False
        buffer, start = self._buffer, self._offset
        end = start + self._bulk_bytes
        if len(buffer) < end + 2:
            return False
        if buffer[end : end + 2] != _CRLF:
            got = _quoted(buffer[end : end + 2])
            raise ProtocolError(f"Protocol error: expected CRLF after {end - start} bytes, got {got}")
        self._words.append(buffer[start:end])
        self._missing_words -= 1
        self._bulk_bytes = _NO_BULK
        self._take(end + 2)
        return True

    def _read_length(self) -> bool:
        length = self._read_header("$", "bulk length", "bulk count")
        if length is None:
            return False
        if length < 0:
            raise ProtocolError(f"Protocol error: invalid bulk length '{length}'")
        self._check_size(length + 2 + (self._missing_words - 1) * _LEAST_WORD_BYTES)
        self._bulk_bytes = length
        return True

    def _read_header(self, mark: str, what: str, redis_name: str) -> int | None:
        """The number of the line `<mark><number>` that begins here. None when the buffer has only part of
        it."""
        buffer, start = self._buffer, self._offset
        if start == len(buffer):
            return None
        if buffer[start] != ord(mark):
            if mark == "*" and buffer[start:] == b"\r":
                return None
            raise self._unexpected(mark)
        end = buffer.find(_CRLF, start, start + MAX_HEADER_BYTES)
        if end < 0:
            if len(buffer) - start < MAX_HEADER_BYTES:
                return None
            raise ProtocolError(f"Protocol error: too big {redis_name} string")
        number = _number(buffer[start + 1 : end])
        if number is None:
            raise ProtocolError(f"Protocol error: invalid {what} {_quoted(buffer[start + 1 : end])}")
        self._take(end + 2)
        return number

    def _unexpected(self, mark: str) -> ProtocolError:
        seen = self._buffer[self._offset : self._offset + 16]
        message = f"Protocol error: expected '{mark}', got {_quoted(seen[:1])}"
        if mark == "*":
            message += f" ({_what_this_looks_like(seen)}a request is a RESP array of bulk strings)"
        return ProtocolError(message)

    def _check_size(self, announced_bytes: int) -> None:
        """Refuse a request that can't stay within the limit, given what it has taken and what has to
        follow."""
        size = self._taken_bytes + announced_bytes
        if size > self._max_request_bytes:
            raise RequestTooLarge(
                f"Protocol error: request of {size} bytes or more, {self._max_request_bytes} are allowed"
            )

    def _take(self, end: int) -> None:
        self._taken_bytes += end - self._offset
        self._offset = end

    def _refill(self) -> bool:
        """Join what has arrived meanwhile, if that lets the parser go on.

        Each byte is copied here once: a word is waited for until all of it is there, and a header is short.
        """
        rest = self._buffer[self._offset :]  # and so a small rest doesn't keep a large chunk alive
        ready = bool(self._tail) and len(rest) + len(self._tail) >= self._bulk_bytes + 2
        if ready or not rest:
            rest += self._tail
            self._tail.clear()
        self._buffer = rest
        self._offset = 0
        return ready

    def _take_words(self) -> list[bytes]:
        words = self._words
        self._words = []
        self._taken_bytes = 0
        if self._offset == len(self._buffer):
            self._refill()
        return words

    def _give_up(self, message: str) -> None:
        """Hold nothing for a connection that is about to be closed."""
        self._failure = message
        self._buffer = b""
        self._offset = 0
        self._tail.clear()
        self._words = []
        self._taken_bytes = 0


class RequestParser(ExactParser):
    """Parse requests (RESP arrays of bulk strings) from bytes that arrive in any pieces.

    A request takes `max_request_bytes` at most, headers included; once `next` has returned None, no more than
    that and a header line is held. Numbers are read as Redis reads them: digits without leading zeros, '+' or
    spaces. Inline commands are refused. Stricter than Redis: a word has to be followed by CRLF, and a request
    has at most 128 words.
    """

    __slots__ = ("_line", "_lines", "_settled_line", "_whole_lines", "_window_bytes")

    def __init__(self, max_request_bytes: int) -> None:
        super().__init__(max_request_bytes)
        self._window_bytes = min(_WINDOW_BYTES, max_request_bytes)  # what fits in a window is not too big
        self._lines: list[bytes] = []  # the window: a piece of _buffer, split at its CRLFs
        self._line = 0  # where the next request begins; the lines before it are used
        self._whole_lines = 0  # how many lines end in CRLF: all but the last
        self._settled_line = 0  # where _offset is: behind _line, until somebody needs it

    def feed(self, data: bytes) -> None:
        """Add what the connection has received. After a ProtocolError it is dropped."""
        if self._buffer:
            self._tail += data
        elif self._failure is None:
            self._buffer = data
            if not self._missing_words:
                self._lines = lines = data[: self._window_bytes].split(_CRLF)
                self._whole_lines = len(lines) - 1

    def next(self) -> list[bytes] | None:
        """The next request, a list of at least one word, or None when it takes more bytes.

        Empty requests (`*0`, `*-1`, an empty line) are skipped as Redis does. Raises ProtocolError, and from
        then on always.
        """
        while True:
            first, whole = self._line, self._whole_lines
            if first < whole:
                lines = self._lines
                end = first + _LINES_OF_COUNT.get(lines[first], 0)
                if end <= whole:
                    words = lines[first + 2 : end : 2]
                    if words and lines[first + 1 : end : 2] == list(map(_LENGTH_LINE.get, map(len, words))):
                        self._line = end
                        return words
                    return self._next_exact()
            if not self._move_window():
                return self._next_exact() if self._buffer or self._failure else None

    def only(self, data: bytes) -> list[bytes] | None:
        """The words of the request if `data` is exactly one request and nothing came before it. Otherwise
        None, and nothing has changed: feed it. This is the usual case, without the work that the others
        need."""
        if self._buffer or self._missing_words or self._failure is not None or len(data) > self._window_bytes:
            return None
        lines = data.split(_CRLF)
        if _LINES_OF_COUNT.get(lines[0], 0) + 1 != len(lines) or lines[-1]:
            return None
        words = lines[2:-1:2]
        return words if words and lines[1:-1:2] == list(map(_LENGTH_LINE.get, map(len, words))) else None

    @property
    def pending_bytes(self) -> int:
        """Bytes fed that have not come out of `next` yet, those of an incomplete request included."""
        self._settle()
        return super().pending_bytes

    @property
    def held_bytes(self) -> int:
        """About how much memory the fed bytes take, including the objects that were made of them, and what a
        buffer has in reserve that grows."""
        objects = sizes.WORD * (len(self._lines) + len(self._words))
        return self.pending_bytes + (len(self._tail) >> 3) + objects

    def _settle(self) -> None:
        """Bring _offset up to _line."""
        used = self._lines[self._settled_line : self._line]
        self._offset += sum(map(len, used)) + len(_CRLF) * len(used)
        self._settled_line = self._line

    def _move_window(self) -> bool:
        """Let the window begin at the next request. False when it does already, or there is none."""
        if self._missing_words:
            return False
        is_used = self._line > 0 or not self._lines
        self._settle()
        if self._offset == len(self._buffer):
            self._close_window()
            self._refill()
        if not is_used or not self._buffer:
            return False
        self._open_window()
        return True

    def _open_window(self) -> None:
        self._lines = self._buffer[self._offset : self._offset + self._window_bytes].split(_CRLF)
        self._whole_lines = len(self._lines) - 1
        self._line = self._settled_line = 0

    def _close_window(self) -> None:
        self._lines = []
        self._line = self._settled_line = self._whole_lines = 0

    def _next_exact(self) -> list[bytes] | None:
        if not self._lines:
            return super().next()
        self._settle()
        lines, line, buffer, start = self._lines, self._line, self._buffer, self._offset
        self._close_window()
        words = super().next()
        if words is not None and self._buffer is buffer:
            # The window is still good after this request. Splitting again after each would make a stream of
            # small requests with CRLF in their words many times as expensive as it should be.
            self._lines, self._whole_lines = lines, len(lines) - 1
            self._line = self._settled_line = line + buffer.count(_CRLF, start, self._offset)
        return words
