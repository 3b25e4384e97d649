"""Tokens are never given twice (rule 4), not even by two copies of one running agent."""

import os
import re

from lockd.server.tokens import fresh_token


def test_a_token_is_128_bits_in_hex():
    assert re.fullmatch(b"[0-9a-f]{32}", fresh_token())


def test_two_copies_of_one_running_agent_draw_different_tokens():
    """As after a clone of its machine: all that it had in memory is there twice."""
    fresh_token()
    here, there = os.pipe()
    child = os.fork()
    if not child:
        os.write(there, b" ".join(fresh_token() for _ in range(10)))
        os._exit(0)
    os.waitpid(child, 0)
    of_the_copy = os.read(here, 10_000).split()
    os.close(here)
    os.close(there)
    assert len(of_the_copy) == 10
    assert not {fresh_token() for _ in range(10)} & set(of_the_copy)
