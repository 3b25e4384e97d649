"""Globs of the agent beside those of a real server: KEYS is the oracle."""

from __future__ import annotations

import random

from lockd.config.globs import matcher
from tests.redis.scripted import Scripted

ROUNDS = 400
PIECES = (
    b"a", b"b", b"-", b"]", b"[", b"^", b"\\", b"*", b"?", b"[a-c]", b"[^b]", b"[ab", b"[^", b"[\\]", b"[c-a]"
)  # fmt: skip
NAMED = (b"a", b"b", b"c", b"-", b"]", b"[", b"^", b"\\", b"?", b"*")


def test_a_glob_matches_what_a_server_says_it_matches(blank: Scripted) -> None:
    choose = random.Random(11)
    names = {b"n" + b"".join(choose.choices(NAMED, k=choose.randrange(5))) for _ in range(300)}
    for name in names:
        blank.redis.set(name, "x")
    for _ in range(ROUNDS):
        pattern = b"n" + b"".join(choose.choices(PIECES, k=choose.randrange(6)))
        found = {key.encode() for key in blank.redis.keys(pattern)}
        assert found == set(filter(matcher(pattern), names)), pattern
