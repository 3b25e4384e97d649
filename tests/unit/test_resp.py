"""RESP on the server's side: what is a request, what isn't and is refused, and what replies look like."""

import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Self

import pytest

from lockd.core.values import Bound
from lockd.server.resp import replies, requests
from lockd.server.resp.replies import ReplySet, SimpleString
from lockd.server.resp.requests import ExactParser, ProtocolError, RequestParser
from tests.harness.wire import request

LIMIT = 65_536


def drain(parser: ExactParser) -> list[list[bytes]]:
    requests = []
    while (words := parser.next()) is not None:
        requests.append(words)
        assert len(requests) < 2_000_000, "requests come out for ever"
    return requests


@pytest.fixture(params=[RequestParser, ExactParser])
def parser(request: pytest.FixtureRequest) -> ExactParser:
    return request.param(LIMIT)


class TestRequests:
    def test_empty_requests_are_skipped_as_redis_does(self, parser):
        parser.feed(b"*0\r\n*-1\r\n*-9223372036854775808\r\n" + request(b"PING") + b"*0\r\n")
        assert drain(parser) == [[b"PING"]]
        assert parser.pending_bytes == 0

    def test_a_client_may_send_an_empty_request_now_and_then_for_as_long_as_it_likes(self, parser):
        for _ in range(2 * requests.MAX_EMPTY_REQUESTS):
            parser.feed(b"*0\r\n")
            assert parser.next() is None

    def test_pending_bytes_are_those_that_have_not_come_out_yet(self, parser):
        first, second = request(b"PING"), request(b"ECHO", b"hello")
        parser.feed(first + second)
        assert parser.pending_bytes == len(first + second)
        parser.next()
        assert parser.pending_bytes == len(second)
        parser.next()
        parser.feed(second[:-3])
        assert parser.next() is None
        assert parser.pending_bytes == len(second) - 3
        parser.feed(b"l")
        assert parser.pending_bytes == len(second) - 2


class TestRefusals:
    @pytest.mark.parametrize(
        ("stream", "message"),
        [
            (
                b"GET / HTTP/1.1\r\n\r\n",
                "expected '*', got 'G' (this looks like HTTP; a request is a RESP array",
            ),
            (b"PING\r\n", "expected '*', got 'P' (this looks like an inline command; "),
            (b"\x16\x03\x01\x02\x00", "expected '*', got '\\x16' (this looks like TLS; "),
            (b"\r*0\r\n", "expected '*', got '\\r' (a request is "),
            (b"$4\r\nPING\r\n", "expected '*', got '$' (a request is "),
            (b"*1\r\n:4\r\n", "expected '$', got ':'"),
            (b"*1\r\n*1\r\n", "expected '$', got '*'"),
            (b"*05\r\n", "invalid multibulk length '05'"),
            (b"*+1\r\n", "invalid multibulk length '+1'"),
            (b"* 1\r\n", "invalid multibulk length ' 1'"),
            (b"*1 \r\n", "invalid multibulk length '1 '"),
            (b"*-0\r\n", "invalid multibulk length '-0'"),
            (b"*-\r\n", "invalid multibulk length '-'"),
            (b"*\r\n", "invalid multibulk length ''"),
            (b"*1_0\r\n", "invalid multibulk length '1_0'"),
            (b"*\xd9\xa1\r\n", "invalid multibulk length '\\xd9\\xa1'"),
            (b"*1\n$4\r\n", "invalid multibulk length '1\\n$4'"),
            (b"*-9223372036854775809\r\n", "invalid multibulk length '-9223372036854775809'"),
            (b"*129\r\n", "invalid multibulk length 129: a request has at most 128 words"),
            (b"*2147483648\r\n", "invalid multibulk length 2147483648: a request has at most 128 words"),
            (b"*1\r\n$-1\r\n", "invalid bulk length '-1'"),
            (b"*1\r\n$01\r\n", "invalid bulk length '01'"),
            (b"*1\r\n$\r\n", "invalid bulk length ''"),
            (b"*1\r\n$1\r\nab\r\n", "expected CRLF after 1 bytes, got 'b\\r'"),
            (b"*1\r\n$1\r\na\n\r\n", "expected CRLF after 1 bytes, got '\\n\\r'"),
            (b"*" + b"1" * 29 + b"\r\n", "invalid multibulk length '11111111111111111111111111111'"),
            (b"*" + b"1" * 30 + b"\r\n", "too big mbulk count string"),
            (b"*" + b"1" * 31, "too big mbulk count string"),
            (b"*1\r\n$" + b"1" * 31, "too big bulk count string"),
            (b"*1\r\n$536870912\r\n", "request of 536870930 bytes or more, 65536 are allowed"),
            (b"*2\r\n$65517\r\n", "request of 65537 bytes or more, 65536 are allowed"),
            (b"*0\r\n" * 1025, "more than 1024 empty requests in a row"),
        ],
    )
    def test_what_is_no_request_is_refused_in_words_that_say_why(self, parser, stream, message):
        parser.feed(stream)
        with pytest.raises(ProtocolError) as refusal:
            parser.next()
        assert refusal.value.message.startswith(f"Protocol error: {message}")
        assert str(refusal.value) == refusal.value.message

    def test_after_a_mistake_nothing_comes_out_any_more_and_nothing_is_kept(self, parser):
        parser.feed(request(b"PING") + b"oops" + request(b"PING"))
        parser.next()
        for _ in range(3):
            with pytest.raises(ProtocolError, match="expected '\\*', got 'o'"):
                parser.next()
            parser.feed(request(b"PING") * 100)
            assert parser.pending_bytes == 0

    def test_a_request_of_just_the_limit_is_taken_and_one_byte_more_is_refused_at_its_header(self, parser):
        longest = request(b"ECHO", b"x" * (LIMIT - len(request(b"ECHO", b"")) - len("1234")))
        assert len(longest) == LIMIT
        parser.feed(longest)
        assert parser.next() is not None
        header = b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % (LIMIT - len(request(b"ECHO", b"")) - len("1234") + 1)
        parser.feed(header)
        with pytest.raises(ProtocolError, match="65537 bytes or more"):
            parser.next()

    @pytest.mark.parametrize(("too_large", "size"), [(request(b"ECHO", b"x" * 80), 101), (b"*17\r\n", 107)])
    def test_a_limit_below_the_window_holds_for_what_comes_whole_and_for_a_count(self, too_large, size):
        parser = RequestParser(100)
        parser.feed(request(b"ECHO", b"x" * 79) + too_large)
        assert parser.next() == [b"ECHO", b"x" * 79]
        with pytest.raises(ProtocolError, match=f"request of {size} bytes or more, 100 are allowed"):
            parser.next()

    def test_128_words_are_taken(self, parser):
        words = [b"x"] * 128
        parser.feed(request(*words))
        assert parser.next() == words


def parse_an_announced_length() -> RequestParser:
    parser = RequestParser(2**40)
    parser.feed(b"*1\r\n$536870912\r\nabc")
    assert parser.next() is None
    return parser


def parse_a_half_request_behind_many() -> RequestParser:
    parser = RequestParser(LIMIT)
    parser.feed(request(b"PING") * 20_000 + request(b"PING")[:-1])
    assert sum(1 for _ in iter(parser.next, None)) == 20_000
    return parser


PIPELINE = request(b"ab") * 10_000


def parse_one_request_of_a_pipeline() -> RequestParser:
    parser = RequestParser(LIMIT)
    parser.feed(PIPELINE)
    parser.next()
    return parser


def held_and_peak_bytes(parse: Callable[[], RequestParser]) -> tuple[int, int]:
    """What a parser holds in the end, and the most that was allocated on the way there.

    In a process of its own: tracemalloc counts what all threads allocate, and in this one there may be some
    that earlier tests have left, as the watcher of leases, which takes 12 KiB each time that it looks.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_trace, parse).result()


def _trace(parse: Callable[[], RequestParser]) -> tuple[int, int]:
    tracemalloc.start()
    parser = parse()
    held_and_peak = tracemalloc.get_traced_memory()
    del parser  # and not before
    return held_and_peak


class TestCost:
    def test_an_announced_length_allocates_nothing(self):
        _, peak_bytes = held_and_peak_bytes(parse_an_announced_length)
        assert peak_bytes < 10_000

    def test_a_half_request_does_not_keep_the_chunk_that_it_came_in_alive(self):
        held_bytes, _ = held_and_peak_bytes(parse_a_half_request_behind_many)
        assert held_bytes < 10_000

    def test_lines_of_a_few_bytes_do_not_multiply_what_a_waiting_pipeline_takes(self):
        _, peak_bytes = held_and_peak_bytes(parse_one_request_of_a_pipeline)
        assert peak_bytes < 100_000

    def test_a_large_request_in_small_pieces_costs_time_in_proportion_to_its_bytes(self, parser):
        """A third of a second. Joining the pieces each time would copy 320 GB."""
        word = b"x" * 8_000_000
        stream = request(b"ECHO", word)
        parser = type(parser)(2 * len(stream))
        with Within(8.0) as limit:
            for start in range(0, len(stream), 100):
                parser.feed(stream[start : start + 100])
                words = parser.next()
                limit.check()
        assert words == [b"ECHO", word]

    def test_feeding_behind_a_waiting_pipeline_costs_time_in_proportion_too(self, parser):
        """A few hundredths of a second. Joining them each time would copy 90 GB."""
        stream = request(b"PING") * 300_000
        parser.feed(request(b"PING"))
        with Within(2.0) as limit:
            for start in range(0, len(stream), 100):
                parser.feed(stream[start : start + 100])
                limit.check()
        assert len(drain(parser)) == 300_001


class Within:
    """So much time of the processor, in this thread: what a machine does besides doesn't count."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> Self:
        self._ends_s = time.thread_time() + self._seconds
        return self

    def check(self) -> None:
        assert time.thread_time() < self._ends_s

    def __exit__(self, *_: object) -> None:
        self.check()


class TestReplies:
    def test_the_simple_types_are_encoded_as_redis_does(self):
        assert replies.simple("OK") == b"+OK\r\n"
        assert replies.error("ERR no such thing") == b"-ERR no such thing\r\n"
        assert replies.integer(-3) == b":-3\r\n"
        assert replies.bulk(b"a\r\nb", 2) == replies.bulk(b"a\r\nb", 3) == b"$4\r\na\r\nb\r\n"
        assert replies.bulk(b"", 2) == b"$0\r\n\r\n"

    def test_what_holds_others_counts_them(self):
        items = [replies.integer(1), replies.bulk(b"x", 2)]
        assert replies.array(items) == b"*2\r\n:1\r\n$1\r\nx\r\n"
        assert replies.array([]) == b"*0\r\n"
        assert replies.push(items) == b">2\r\n:1\r\n$1\r\nx\r\n"

    def test_an_error_gives_back_the_bytes_of_a_resource_that_is_no_utf8(self):
        text = b"ERR \xff\xc3\xa9".decode("utf-8", "surrogateescape")
        assert replies.error(text) == b"-ERR \xff\xc3\xa9\r\n"

    @pytest.mark.parametrize(
        ("obj", "resp2", "resp3"),
        [
            (True, b":1\r\n", b"#t\r\n"),
            (False, b":0\r\n", b"#f\r\n"),
            (7, b":7\r\n", b":7\r\n"),
            (1.5, b"$3\r\n1.5\r\n", b",1.5\r\n"),
            (float("-inf"), b"$4\r\n-inf\r\n", b",-inf\r\n"),
            ("é", b"$2\r\n\xc3\xa9\r\n", b"$2\r\n\xc3\xa9\r\n"),
            ("\udcff", b"$1\r\n\xff\r\n", b"$1\r\n\xff\r\n"),
            (SimpleString("fast"), b"+fast\r\n", b"+fast\r\n"),
            (ReplySet(["a"]), b"*1\r\n$1\r\na\r\n", b"~1\r\n$1\r\na\r\n"),
            ([b"a", (None,)], b"*2\r\n$1\r\na\r\n*1\r\n$-1\r\n", b"*2\r\n$1\r\na\r\n*1\r\n_\r\n"),
            (
                {"a": {1: b""}},
                b"*2\r\n$1\r\na\r\n*2\r\n:1\r\n$0\r\n\r\n",
                b"%1\r\n$1\r\na\r\n%1\r\n:1\r\n$0\r\n\r\n",
            ),
        ],
    )
    def test_values_are_encoded_by_their_type(self, obj, resp2, resp3):
        assert replies.value(obj, 2) == resp2
        assert replies.value(obj, 3) == resp3

    def test_a_value_of_a_derived_type_is_encoded_as_its_base(self):
        class Milliseconds(int):
            pass

        assert replies.value(Milliseconds(5), 2) == b":5\r\n"

    def test_what_has_no_encoding_says_its_type(self):
        with pytest.raises(TypeError, match="no RESP encoding for object"):
            replies.value([object()], 3)

    @pytest.mark.parametrize("fence", [2**53 - 1, None])
    @pytest.mark.parametrize("protocol", [2, 3])
    def test_the_shortcut_for_a_lease_is_the_same_map_as_the_long_way(self, fence, protocol):
        token = b"0123456789abcdef" * 2
        for bound in Bound if fence else (None,):
            lease = {"token": token, "fence": fence, "validity_ms": 29_697, "deadline_ns": 12**14}
            lease["bound"] = bound
            assert replies.lease(*lease.values(), protocol) == replies.value(lease, protocol)
