"""Ballots as agents make them, of which nobody is told: for tests of what the answers come to."""

from __future__ import annotations

from typing import Any

from lockd.core.ballots.attempt import Attempt
from lockd.core.ballots.extension import Extension
from lockd.core.ballots.fence_round import FenceRound
from lockd.core.ballots.gone import Gone
from lockd.core.ballots.put_back import PutBack
from lockd.core.ballots.release import Release
from lockd.core.validity import NEVER_NS
from lockd.core.values import Terms
from tests.harness.fleet_model import App, Time

NONCE = b"0" * 32


def _of(**other: Any) -> dict[str, Any]:
    return {"t1_ns": 0, "until_ns": NEVER_NS, "settled": lambda *_: None} | other


def an_attempt(terms: Terms | None = None, resource: bytes = b"r", **other: Any) -> Attempt:
    known = _of(nonce=NONCE, ttl_ms=1_000, hint=1, quorum=3)
    return Attempt(terms or App(Time()), resource, **known | other)


def a_fence_round(value: int, attempt: Attempt | None = None, **other: Any) -> FenceRound:
    attempt = attempt or an_attempt()
    return FenceRound(attempt.resource, value, attempt=attempt, **_of(quorum=3) | other)


def an_extension(resource: bytes = b"r", word: bytes = NONCE, **other: Any) -> Extension:
    known = _of(ttl_ms=1_000, mark=b"p0", last=None, gone=Gone(), quorum=3)
    return Extension(resource, word, **known | other)


def a_put_back(resource: bytes = b"r", nonce: bytes = NONCE, **other: Any) -> PutBack:
    known = _of(ttl_ms=1_000, text=b"0 host 1 0 p1", age_ms=0, gone=Gone())
    return PutBack(resource, nonce, **known | other)


def a_release(resource: bytes = b"r", word: bytes = NONCE, **other: Any) -> Release:
    return Release(resource, word, **_of(quorum=3) | other)
