"""What holds for any input, in any pieces: the parser's two ways agree with each other and the grammar."""

import re

import hiredis
from hypothesis import example, given
from hypothesis import strategies as st

from lockd.server.resp import replies
from lockd.server.resp.requests import MAX_HEADER_BYTES, MAX_WORDS, ExactParser, ProtocolError, RequestParser
from tests.harness.any_text import any_text
from tests.harness.wire import request

LIMIT = 200
"""Small, so that generated requests often are too big."""


def encoded(words: list[bytes]) -> bytes:
    return request(*words)


def grammar(stream: bytes) -> tuple[list[list[bytes]], bool]:
    """The requests in a whole input, and whether it ends in a mistake: what the parser should say, found out
    without a thought to speed or to pieces."""
    requests, at = [], 0
    while True:
        words, used = [], 0
        while stream.startswith(b"\r\n", at):
            at += 2
        if stream[at:] == b"\r":
            return requests, False
        header, at, wrong = line(stream, at, b"*")
        if header is None:
            return requests, wrong
        used += len(header) + 3
        count = int(header)
        if count > 0 and (count > MAX_WORDS or used + 6 * count > LIMIT):
            return requests, True
        for missing in range(count, 0, -1):
            header, at, wrong = line(stream, at, b"$")
            if header is None:
                return requests, wrong
            used += len(header) + 3 + int(header) + 2
            if int(header) < 0 or used + 6 * (missing - 1) > LIMIT:
                return requests, True
            word, end = stream[at : at + int(header)], stream[at + int(header) : at + int(header) + 2]
            if end != b"\r\n":
                return requests, len(end) == 2
            words.append(word)
            at += len(word) + 2
        if words:
            requests.append(words)


def line(stream: bytes, at: int, mark: bytes) -> tuple[bytes | None, int, bool]:
    match = re.compile(re.escape(mark) + rb"(0|-?[1-9][0-9]*)\r\n").match(stream, at, at + 32)
    if match and -(2**63) <= int(match[1]) < 2**63:
        return match[1], match.end(), False
    rest = stream[at : at + 32]
    could_go_on = b"\r\n" not in rest and len(rest) < 32 and (rest[:1] == mark or not rest)
    return None, at, not could_go_on


# fmt: off
PIECES_OF_GRAMMAR = [
    b"*", b"$", b"\r\n", b"\r", b"\n", b"-", b"+", b"0", b"1", b"9", b"PING",
    b"*0\r\n", b"*-1\r\n", b"*1\r\n", b"*2\r\n", b"*1025\r\n", b"*99999999999999999999\r\n",
    b"$0\r\n\r\n", b"$1\r\n", b"$200\r\n", b"$536870912\r\n",
]
# fmt: on

words = st.one_of(
    st.sampled_from([b"LOCK", b"orders", b"", b"\r\n", b"a\r\nb", b"\r", b"\n"]),
    st.sampled_from([b"*1", b"$1", b"*1\r\n$1\r\na", b"*1\r\n$1\r\na\r\n"]),  # requests in disguise
    st.binary(max_size=40),
)
requests = st.lists(words, min_size=1, max_size=6)
fragments = st.one_of(requests.map(encoded), st.sampled_from(PIECES_OF_GRAMMAR), st.binary(max_size=5))
hostile_streams = st.lists(fragments, max_size=12).map(b"".join)
windows = st.sampled_from([1, 5, 16, 40, 4096])


@st.composite
def in_pieces(draw: st.DrawFn, from_: st.SearchStrategy[bytes]) -> list[bytes]:
    stream = draw(from_)
    line_ends = [match.end() for match in re.finditer(b"\r\n", stream)]
    somewhere = st.one_of(st.integers(0, len(stream)), st.sampled_from([0, *line_ends]))
    cuts = sorted(draw(st.lists(somewhere, max_size=8)))
    return [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


def parser_with_window(window_bytes: int, limit: int = LIMIT) -> RequestParser:
    """A small window brings its edges, else 4096 bytes away, into the reach of small inputs."""
    parser = RequestParser(limit)
    parser._window_bytes = min(window_bytes, parser._window_bytes)
    return parser


def outcome(parser: ExactParser, pieces: list[bytes]) -> tuple[list[list[bytes]], bool]:
    taken = []
    try:
        for piece in pieces:
            parser.feed(piece)
            while (words := parser.next()) is not None:
                taken.append(words)
            assert parser.pending_bytes <= LIMIT + MAX_HEADER_BYTES
    except ProtocolError:
        return taken, True
    return taken, False


@given(st.lists(requests, max_size=8), st.data(), windows)
def test_what_goes_in_comes_out_whatever_the_pieces(sent, data, window_bytes):
    pieces = data.draw(in_pieces(st.just(b"".join(map(encoded, sent)))))
    for parser in (parser_with_window(window_bytes, 10_000), ExactParser(10_000)):
        taken = []
        for piece in pieces:
            parser.feed(piece)
            taken += iter(parser.next, None)
        assert taken == sent
        assert parser.pending_bytes == 0


HIDDEN = [
    [b"*2\r\n$9\r\n*1\r\n$1\r\na\r\n", b"$2\r\n$1\r\n*1\r\n$0\r\n\r\n"],
    [b"*2\r\n$9\r\n*1\r\n$1\r\na\r\n", b"$0\r\n\r\n*1\r\n$2\r\n$1\r\n"],
    [b"*3\r\n$2\r\n*1\r\n$0\r\n\r\n", b"$1\r\na\r\n*1\r\n$", b"0\r\n\r\n"],
]
"""Requests in the words of others. Each ran, with one line of the hand-over between the two ways left out."""


@given(in_pieces(hostile_streams), windows)
@example([b"*1\r\n$1\r\na\r", b"\n*1\r\n$0\r\n\r\n"], 5)
@example([b"*1\r\n" + b"$0\r\n\r\n" * 2], 4096)
@example([b"\r\n*1\r\n$1\r\n1\r\n\r\n\r\n*2\r\n$1\r\n2\r\n$2\r\n\r\n\r\n\r\n\r\n*1\r\n$1\r\n3\r\n\r\n"], 4096)
@example([b"*2\r\n$2\r\n\r\n\r\n$0\r\n\r\n*1\r\n$0\r\n\r\n"], 16)
@example([b"*1\r\n$11\r\n", b"*1\r\n$1\r\na\r\n", b"\r\n"], 4096)
@example([b"*1\r\n$8\r\n", b"*1\r\n$1\r\n", b"\r", b"\n"], 4096)
@example([bytes([byte]) for byte in b"*2\r\n$4\r\nECHO\r\n$4\r\na\r\nb\r\n*1\r\n$0\r\n\r\n"], 4096)
@example(HIDDEN[0], 4096)
@example(HIDDEN[1], 4096)
@example(HIDDEN[2], 4096)
def test_the_parser_says_what_the_grammar_says_whatever_the_pieces(pieces, window_bytes):
    expected = grammar(b"".join(pieces))
    assert outcome(parser_with_window(window_bytes), pieces) == expected
    assert outcome(ExactParser(LIMIT), pieces) == expected


@given(st.lists(st.one_of(in_pieces(hostile_streams), st.integers(1, 3)), max_size=6), windows)
@example(HIDDEN[:1], 4096)
@example(HIDDEN[1:2], 4096)
@example(HIDDEN[2:], 4096)
def test_the_fast_way_and_the_exact_way_agree_at_every_step_and_in_every_word_of_an_error(
    steps, window_bytes
):
    fast, exact = parser_with_window(window_bytes), ExactParser(LIMIT)

    def take(parser: ExactParser) -> list[bytes] | str | None:
        try:
            return parser.next()
        except ProtocolError as error:
            return error.message

    for step in steps:
        # Not every request is taken at once: one that waits for its lock keeps those behind it waiting too.
        for _ in range(step if isinstance(step, int) else 0):
            assert take(fast) == take(exact)
        for piece in step if isinstance(step, list) else []:
            fast.feed(piece)
            exact.feed(piece)
        assert fast.pending_bytes == exact.pending_bytes
    while (taken := take(fast)) is not None:
        assert taken == take(exact)
        if isinstance(taken, str):
            break
    assert take(exact) == take(fast)
    assert fast.pending_bytes == exact.pending_bytes


@given(any_text())
def test_an_error_is_one_line_whatever_its_text(text):
    encoded_error = replies.error(text.encode("utf-8", "replace").decode())
    assert re.fullmatch(rb"-[^\r\n]*\r\n", encoded_error)


values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.binary(max_size=20),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.binary(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(values)
def test_a_real_client_reads_back_what_was_encoded_in_resp2_with_maps_flattened(obj):
    reader = hiredis.Reader()
    for protocol, meant in ((3, obj), (2, in_resp2(obj))):
        reader.feed(replies.value(obj, protocol))
        assert reader.gets() == meant
        assert not reader.has_data()


def in_resp2(obj: object) -> object:
    if isinstance(obj, float):
        return repr(obj).encode()
    if isinstance(obj, list):
        return [in_resp2(item) for item in obj]
    if isinstance(obj, dict):
        return [item for key, value in obj.items() for item in (key, in_resp2(value))]
    return obj


@given(st.one_of(requests.map(encoded), hostile_streams))
def test_what_is_taken_as_a_single_request_is_just_that(stream):
    words = RequestParser(LIMIT).only(stream)
    exact = ExactParser(LIMIT)
    exact.feed(stream)
    if words is not None:
        assert exact.next() == words
        assert exact.pending_bytes == 0


def is_ordinary(words: list[bytes]) -> bool:
    return len(encoded(words)) <= LIMIT and not any(b"\r\n" in word for word in words)


@given(requests.filter(is_ordinary))
def test_an_ordinary_request_is_taken_as_a_single_one(words):
    assert RequestParser(LIMIT).only(encoded(words)) == words
