"""Names that the clients give their requests: no two of them are ever the same."""

from __future__ import annotations

import os
from itertools import count

import pytest

from lockd.client import tokens as module
from lockd.client.tokens import Tokens, tokens


def test_all_are_different_also_where_the_clock_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "boottime_ns", lambda: 12_345)
    made = [Tokens().next() for _ in range(100)] + [tokens.next() for _ in range(10_000)]
    assert len(set(made)) == len(made)
    assert all(len(token) == 32 and int(token, 16) >= 0 for token in made)


def test_two_that_count_on_from_the_same_point_go_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    one, copy = Tokens(), Tokens()
    copy._prefix = one._prefix
    clock = count(1_000_000, 137)
    monkeypatch.setattr(module, "boottime_ns", lambda: next(clock))
    assert {one.next() for _ in range(100)}.isdisjoint({copy.next() for _ in range(100)})


def test_a_forked_child_has_its_own() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, tokens.next())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100)[:16] != tokens.next()[:16]
    os.close(reading)
    os.close(writing)
