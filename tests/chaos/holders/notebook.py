"""How a process of its own tells the campaign what it holds: events as lines on a pipe.

A line is written at once and with one call, so that whoever is killed leaves all that it knew, and no half of
a line. What is written tells when it was: the campaign may read it later.
"""

from __future__ import annotations

import os
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass

from lockd.clock import boottime_ns
from tests.harness.history import Asked, Event, Granted, LetGo, Refused, Withdrawn

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Begot(Event):
    """A child goes on with this lease when its parent ends."""

    token: bytes
    pid: int


@dataclass(slots=True)
class Held:
    """A lease as a process knows it, which hears of a renewal only when it asks for one. over: it does
    nothing more with it, or may have given it back."""

    resource: bytes
    token: bytes
    deadline_ns: int
    ttl_ms: int
    over: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """Of one request. max_hold_ms: its class's."""

    resource: bytes
    ttl_ms: int
    wait_ms: int
    max_hold_ms: int


class Notebook:
    """app: whose it is. first: the first of the numbers that its requests have in the history."""

    def __init__(self, app: str, first: int, note: Callable[[Event], None]) -> None:
        self.app = app
        self.note = note
        self._next = first

    def asks(self, terms: Terms) -> int:
        request, self._next = self._next, self._next + 1
        now_ns = boottime_ns()
        self.note(
            Asked(now_ns, request, self.app, terms.resource, terms.ttl_ms, terms.wait_ms, terms.max_hold_ms)
        )
        return request

    def was_granted(self, request: int, terms: Terms, token: bytes, fence: int, deadline_ns: int) -> Held:
        self.note(Granted(boottime_ns(), request, terms.resource, token, fence, deadline_ns))
        return Held(terms.resource, token, deadline_ns, terms.ttl_ms)

    def was_refused(self, request: int, error: str) -> None:
        code, _, text = error.partition(" ")
        self.note(Refused(boottime_ns(), request, code, text))

    def withdraws(self, request: int) -> None:
        self.note(Withdrawn(boottime_ns(), request))

    def lets_go(self, held: Held, why: str) -> None:
        self.note(LetGo(boottime_ns(), held.token, why))


def write_to(file: int) -> Callable[[Event], None]:
    """BrokenPipeError when nobody reads it any more."""
    return lambda event: _write(file, event)


def _write(file: int, event: Event) -> None:
    os.write(file, b64encode(pickle.dumps(event)) + b"\n")


def read_line(line: bytes) -> Event:
    event: Event = pickle.loads(b64decode(line))
    return event
