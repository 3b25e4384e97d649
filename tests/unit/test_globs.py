"""Globs as Redis reads them, at a cost that neither the name nor the pattern can drive up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockd.config.globs import PATTERN_BYTES_MOST, matcher


@pytest.mark.parametrize(
    ("glob", "matches", "does_not"),
    [
        (b"a*c", b"abc", b"abd"),
        (b"a*a", b"aa", b"a"),
        (b"a?c", b"abc", b"ac"),
        (b"a??*", b"axx", b"ax"),
        (b"g[12]", b"g1", b"g3"),
        (b"g[a-c]", b"gb", b"gd"),
        (b"g[c-a]", b"gb", b"gd"),
        (b"g[^2]", b"g1", b"g2"),
        (b"g[!2]", b"g!", b"g1"),
        (b"g[\\]x]", b"g]", b"g\\"),
        (b"g[ab", b"gb", b"gc"),
        (b"g[^]", b"g]", b"g"),
        (b"g\\1", b"g1", b"g2"),
        (b"\\*x", b"*x", b"ax"),
        (b"x\\", b"x\\", b"xx"),
        (b"\xff*", b"\xff\x00", b"\xfe"),
        (b"a*", b"a\nb", b"b"),
        (b"*a*b*?c", b"xxabxc", b"xxbaxc"),
        (b"**", b"", b""),
        (b"", b"", b"a"),
        (b"*[]a]", None, b"a"),
    ],
)
def test_a_glob_is_read_as_redis_reads_it(glob: bytes, matches: bytes | None, does_not: bytes) -> None:
    assert matches is None or matcher(glob)(matches)
    assert matches == does_not or not matcher(glob)(does_not)


@given(st.binary(max_size=PATTERN_BYTES_MOST), st.binary(max_size=64))
def test_every_pattern_means_something(pattern: bytes, name: bytes) -> None:
    assert matcher(pattern)(name) in (True, False)


class Counted(bytes):
    """A name that counts how many of its bytes are looked at one by one."""

    looked_at = 0

    def __iter__(self) -> Iterator[int]:
        for byte in bytes(self):
            Counted.looked_at += 1
            yield byte

    def __getitem__(self, part: Any) -> Any:
        return Counted(bytes.__getitem__(self, part)) if isinstance(part, slice) else self._one(part)

    def _one(self, place: int) -> int:
        Counted.looked_at += 1
        return bytes.__getitem__(self, place)


@pytest.mark.parametrize(
    "pattern",
    [b"*a" * 63 + b"?x", b"*" * 8 + b"a" * 100 + b"?x", b"*[a-z]" * 21, b"*?" * 60 + b"x?", b"*aa?aa*" * 18],
    ids=lambda pattern: ascii(pattern[:12]),
)
def test_no_pattern_has_a_name_looked_at_more_than_once(pattern: bytes) -> None:
    Counted.looked_at = 0
    assert len(pattern) <= PATTERN_BYTES_MOST
    assert matcher(pattern)(Counted(b"a" * 512 + b"bx")) in (True, False)
    assert 0 < Counted.looked_at <= 514
