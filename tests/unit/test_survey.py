"""LOCKS reads a glob as Redis does, on the masters and in the agent."""

import pytest

from lockd.masters.survey import matcher


@pytest.mark.parametrize(
    ("glob", "matches", "does_not"),
    [
        (b"a*c", b"abc", b"abd"),
        (b"a?c", b"abc", b"ac"),
        (b"g[12]", b"g1", b"g3"),
        (b"g[a-c]", b"gb", b"gd"),
        (b"g[^2]", b"g1", b"g2"),
        (b"g[!2]", b"g!", b"g1"),
        (b"g\\1", b"g1", b"g2"),
        (b"\\*x", b"*x", b"ax"),
        (b"x\\", b"x\\", b"xx"),
        (b"\xff*", b"\xff\x00", b"\xfe"),
        (b"a*", b"a\nb", b"b"),
    ],
)
def test_a_glob_is_read_as_redis_reads_it(glob: bytes, matches: bytes, does_not: bytes):
    assert matcher(glob)(matches)
    assert not matcher(glob)(does_not)
