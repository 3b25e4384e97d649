"""Whose a lease is, and what becomes of it when its process or its connection ends (rule 13)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lockd.core.owners import Connection, Delivery, Fate, Process
from lockd.core.values import Bound

READ, UNREAD, CUT = Delivery
UNTOLD, GONE, IN_DOUBT = Fate


class ALease:
    """As much of one as its owner needs; it is told by the reply that its name is."""

    def __init__(self, name: str, bound: Bound = Bound.PROCESS) -> None:
        self.reply = name.encode()
        self.holder = SimpleNamespace(bound=bound)


class App:
    """A connection of a process, and what the kernel says of it. Steps are words, as `run` reads them."""

    def __init__(self, process: Process | None) -> None:
        self.now = READ
        self.is_open = True
        self.ties = Connection(self, process)
        self.leases: dict[str, Any] = {}

    def delivery(self) -> Delivery:
        return self.now

    def lease(self, name: str) -> Any:
        bound = self.ties.bound(Bound.CONNECTION if name.startswith("tied") else Bound.PROCESS)
        return self.leases.setdefault(name, ALease(name, bound))

    def run(self, steps: str) -> None:
        """grant X · tell X (composed; X+Y: both by one reply) · send X (or any word) · end X · read, unread,
        cut: what the kernel says from now on."""
        for step in steps.split(", "):
            what, _, name = step.partition(" ")
            if what == "grant":
                self.ties.granted(self.lease(name))
            elif what == "tell":
                for one in name.split("+"):
                    self.ties.tells(self.lease(one), name.encode())
            elif what == "send":
                self.ties.writes(name.encode())
            elif what == "end":
                self.ties.ended(self.lease(name))
            else:
                self.now = Delivery[what.upper()]

    def closed(self, delivery: Delivery, *, cut_off: bool = False) -> dict[str, Fate]:
        fates = dict(self.ties.closed(delivery, cut_off=cut_off))
        return {name: fates[lease] for name, lease in self.leases.items() if lease in fates}


LOCKED = "grant a, tell a, send a"
SEVERAL = "grant a, grant b, tell a+b, send a+b"


@pytest.mark.parametrize(
    ("steps", "delivery", "fates"),
    [
        # Its reply was the last that was written.
        (LOCKED, READ, {}),
        (LOCKED, CUT, {"a": UNTOLD}),
        (LOCKED, UNREAD, {"a": IN_DOUBT}),
        # It was not written at all, or only composed.
        ("grant a", READ, {"a": UNTOLD}),
        ("grant a, tell a", CUT, {"a": UNTOLD}),
        # Something came behind it: when it had been read, and while it had not.
        (f"{LOCKED}, read, send push", CUT, {}),
        (f"{LOCKED}, unread, send push", CUT, {"a": IN_DOUBT}),
        (f"{LOCKED}, unread, send push", READ, {}),
        (f"{LOCKED}, unread, send push, read, send push", CUT, {}),
        ("grant a, tell a, send a+pong", CUT, {"a": IN_DOUBT}),
        # What is written to who has closed comes behind nothing.
        (f"{LOCKED}, cut, send push", CUT, {"a": UNTOLD}),
        # Of two, one behind the other.
        (f"{LOCKED}, unread, grant b, tell b, send b", CUT, {"a": IN_DOUBT, "b": UNTOLD}),
        (f"{LOCKED}, read, grant b, tell b, send b", CUT, {"b": UNTOLD}),
        ("grant a, tell a, grant b, tell b, send ab", CUT, {"a": IN_DOUBT, "b": UNTOLD}),
        # Of several with one reply.
        (f"{SEVERAL}", CUT, {"a": UNTOLD, "b": UNTOLD}),
        (f"{SEVERAL}", UNREAD, {"a": IN_DOUBT, "b": IN_DOUBT}),
        (f"{SEVERAL}, unread, send push", CUT, {"a": IN_DOUBT, "b": IN_DOUBT}),
        (f"{SEVERAL}", READ, {}),
        (f"{SEVERAL}, end a", CUT, {"b": UNTOLD}),
        # What was given back is nobody's.
        (f"{LOCKED}, end a", CUT, {}),
        (f"{LOCKED}, unread, send push, end a", CUT, {}),
        ("grant a, end a, tell a, send a", CUT, {}),
        # What belongs to the connection ends with it, told or not.
        ("grant tied, tell tied, send tied", READ, {"tied": GONE}),
        ("grant tied, tell tied, send tied", UNREAD, {"tied": GONE}),
        ("grant tied, tell tied, send tied", CUT, {"tied": UNTOLD}),
    ],
)
def test_a_connection_that_ends_leaves_its_process_what_it_was_told_of(
    steps: str, delivery: Delivery, fates: dict[str, Fate]
) -> None:
    process = Process(7, 1, 0)
    app, other = App(process), App(process)
    app.run(steps)
    assert app.closed(delivery) == fates
    assert other.closed(READ) == {}, "the process lives"


@pytest.mark.parametrize(
    ("steps", "first", "fates"),
    [
        # The end of the first connection was to give it back, and has not yet: the other's does, if need be.
        (LOCKED, CUT, {CUT: {"a": UNTOLD}, READ: {}}),
        # Its app knows of it, or may hear of it on the first, which is open.
        (LOCKED, READ, {CUT: {}, READ: {}}),
        (f"{LOCKED}, unread", None, {CUT: {}, READ: {}}),
    ],
)
@pytest.mark.parametrize("second", [CUT, READ])
def test_what_an_app_asks_for_again_on_another_connection_is_given_back_only_where_neither_told_of_it(
    steps: str, first: Delivery | None, fates: dict[Delivery, dict[str, Fate]], second: Delivery
) -> None:
    process = Process(7, 1, 0)
    app, other = App(process), App(process)
    app.run(steps)
    ends = None if first is None else app.ties.closed(first)
    app.ties.hands_on(app.lease("a"), other.ties)
    assert not ends, "what was still to be ended is not"
    other.leases = app.leases
    other.run("tell a, send a")
    assert other.closed(second) == fates[second]
    if first is None:
        assert app.closed(CUT) == {}


def test_what_belongs_to_a_connection_that_was_cut_off_its_app_may_believe_in() -> None:
    app = App(Process(7, 1, 0))
    app.run(f"{LOCKED}, read, grant tied, tell tied, send tied, grant late")
    assert app.closed(UNREAD, cut_off=True) == {"tied": IN_DOUBT, "late": UNTOLD}


def test_of_an_app_that_cannot_be_seen_all_belongs_to_the_connection() -> None:
    app = App(None)
    app.run(LOCKED)
    assert app.lease("a").holder.bound is Bound.CONNECTION
    assert app.closed(READ) == {"a": GONE}


def test_a_process_ends_when_it_is_dead_and_no_connection_of_it_is_open_in_whatever_order() -> None:
    for order in ("death first", "connections first", "child"):
        process = Process(7, 1, 0)
        first, second = App(process), App(process)
        first.run(LOCKED)
        second.run("grant b, tell b, send b")
        if order == "death first":
            # Closed by the kernel before, and not read to their end.
            first.is_open = second.is_open = False
            ends = dict(process.died())
            assert (first.closed(UNREAD), second.closed(READ)) == ({}, {}), "each ends once"
        elif order == "connections first":
            assert (first.closed(READ), second.closed(READ)) == ({}, {})
            ends = dict(process.died())
        else:
            first.is_open = False
            assert process.died() == {}
            assert first.closed(READ) == {}
            ends = dict(second.ties.closed(READ))
        assert ends == {first.lease("a"): GONE, second.lease("b"): GONE}, order
        assert process.idle


def test_a_dead_process_believes_in_nothing_and_what_it_was_never_told_waits_for_no_lock_delay() -> None:
    process = Process(7, 1, 0)
    app = App(process)
    app.run(f"{LOCKED}, unread, grant b, tell b, send b")
    process.dead = True
    assert app.closed(CUT) == {"a": GONE, "b": UNTOLD}
