"""Headers are read before they are believed: nothing is allocated on a promise, however it is cut."""

import itertools
from collections.abc import Iterator

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockd.masters.framing import LONGEST_BYTES, MOST_ELEMENTS, Framing, TooLarge

VOTE = b"*3\r\n:1\r\n:1790000000000000\r\n:1790000000000001\r\n"
SOUND = [
    VOTE,
    VOTE * 10,
    b":1\r\n",
    b":0\r\n" + VOTE,
    b"+OK\r\n",
    b"-OOM command not allowed *2147483647 $99999999999\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"$0\r\n\r\n",
    b"$22\r\n*2147483647\r\n$99999999\r\n",
    b"*2\r\n$3\r\n*99\r\n:5\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"%1\r\n+a\r\n:1\r\n",
    b"*%d\r\n" % MOST_ELEMENTS,
]
TOO_LARGE = [
    b"*2147483647\r\n",
    b"*4294967295\r\n",
    b"*%d\r\n" % (MOST_ELEMENTS + 1),
    b"$536870912\r\n",
    b"$%d\r\n" % (LONGEST_BYTES + 1),
    b"=536870912\r\n",
    b"!536870912\r\n",
    b"%2147483647\r\n",
    b"~2147483647\r\n",
    b">2147483647\r\n",
    b"|2147483647\r\n",
    b"*3\r\n:1\r\n*2147483647\r\n",
    VOTE + b"*2147483647\r\n",
    VOTE[:-2] + b"\r\n*3\r\n*99999999\r\n",
    b"*?\r\n",
    b"$?\r\n",
    b"*99999999999999999999999999\r\n",
    b"*-2\r\n",
    b"+" + b"x" * 5_000,
    b"*" + b"0" * 5_000,
]


def admission(stream: bytes, cuts: list[int]) -> str:
    framing = Framing()
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    try:
        for start, end in itertools.pairwise(edges):
            framing.admit(stream[start:end])
    except TooLarge:
        return "too large"
    return "admitted"


cuts = st.lists(st.integers(0, 10_000), max_size=6)


def ways_to_cut(stream: bytes) -> Iterator[list[int]]:
    """Once, at any place (near both ends of a long one), and a byte at a time."""
    size = len(stream)
    yield from ([at] for at in range(size) if size <= 300 or at < 40 or at >= size - 40)
    yield list(range(size))


def test_what_masters_answer_is_admitted_in_whatever_pieces() -> None:
    wholes = [VOTE + stream + VOTE for stream in SOUND]
    assert [one for one in wholes for cut in ways_to_cut(one) if admission(one, cut) != "admitted"] == []


@given(st.sampled_from(SOUND), cuts)
def test_so_it_is_when_it_is_cut_several_times(stream: bytes, cuts: list[int]) -> None:
    assert admission(VOTE + stream + VOTE, cuts) == "admitted"


def test_a_header_that_announces_too_much_is_refused_in_whatever_pieces() -> None:
    wholes = [whole for stream in TOO_LARGE for whole in (stream, VOTE + stream)]
    assert [one for one in wholes for cut in ways_to_cut(one) if admission(one, cut) != "too large"] == []


@given(st.sampled_from(TOO_LARGE), cuts)
def test_so_it_is_when_it_is_cut_several_times_too(stream: bytes, cuts: list[int]) -> None:
    assert admission(VOTE + stream, cuts) == "too large"


pieces = st.lists(
    st.sampled_from([*SOUND, *TOO_LARGE, b"*3\r\n", b"*", b"\r\n", b"$5\r\nab", b"12"]), max_size=8
)


@given(pieces, cuts)
def test_what_is_admitted_makes_hiredis_announce_nothing_larger(pieces: list[bytes], cuts: list[int]) -> None:
    """What hiredis reads as a header is read as one here, too: no text can hide one from it."""
    stream = b"".join(pieces)
    if admission(stream, cuts) != "admitted":
        return
    reader = hiredis.Reader()
    reader.feed(stream)
    try:
        while (reply := reader.gets()) is not False:
            assert not isinstance(reply, list) or len(reply) <= MOST_ELEMENTS
    except hiredis.ProtocolError:
        pass


REFUSAL = b"*4\r\n:0\r\n:29999\r\n:1700000000000000\r\n$32\r\n" + b"0f" * 16 + b"\r\n"


def test_refusals_that_name_who_has_it_may_be_cut_anywhere() -> None:
    for at in range(1, len(REFUSAL)):
        framing = Framing()
        framing.admit(REFUSAL * 2 + REFUSAL[:at])
        framing.admit(REFUSAL[at:] + b":1\r\n" + REFUSAL)
        with pytest.raises(TooLarge):
            framing.admit(b"*2147483647\r\n")
