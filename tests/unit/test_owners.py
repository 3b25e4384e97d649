"""Whose a lease is, and what becomes of it when its process or its connection ends (rule 13)."""

from __future__ import annotations

import pytest

from lockd.core.leases import Inherited, Lease, Standing
from lockd.core.owners import Connection, Delivery, Fate, Process, carry_out
from lockd.core.values import Bound
from tests.harness.fleet_model import cluster
from tests.harness.leases import a_lease

READ, UNREAD, CUT = Delivery
UNTOLD, GONE, IN_DOUBT = Fate


class App:
    """A connection of a process, and what the kernel says of it. Steps are words, as `run` reads them."""

    def __init__(self, process: Process | None) -> None:
        self.now = READ
        self.is_open = True
        self.ties = Connection(self, process)
        self.leases: dict[str, Lease] = {}
        self.known: list[str] = []
        """Of which the agent was told that the app has read."""
        self.left_to_others: list[str] = []

    def delivery(self) -> Delivery:
        return self.now

    def told(self, lease: Lease) -> None:
        self.known.append(lease.token.decode())

    def outlived(self, lease: Lease) -> None:
        self.left_to_others.append(lease.token.decode())

    def lease(self, name: str) -> Lease:
        """It is told by the reply that its name is."""
        bound = self.ties.bound(Bound.CONNECTION if name.startswith("tied") else Bound.PROCESS)
        return self.leases.setdefault(name, a_lease(token=name.encode(), bound=bound))

    def run(self, steps: str) -> None:
        """grant X · tell X (composed; X+Y: both by one reply) · send X (or any word) · end X · look · read,
        unread, cut: what the kernel says from now on."""
        for step in steps.split(", "):
            what, _, name = step.partition(" ")
            if what == "grant":
                self.ties.granted(self.lease(name))
            elif what == "tell":
                for one in name.split("+"):
                    self.ties.tells(self.lease(one), name.encode())
            elif what == "send":
                self.ties.writes(name.encode())
            elif what == "look":
                self.ties.look()
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
    ("steps", "known"),
    [
        (f"{LOCKED}, look", ["a"]),
        (f"{LOCKED}, unread, look", []),
        (f"{LOCKED}, unread, look, look, read, look, look", ["a"]),
        (f"{LOCKED}, unread, send push, look, read, look", ["a"]),
        (f"{LOCKED}, read, send push", ["a"]),
        (f"{LOCKED}, end a, look", []),
        ("grant a, tell a, look", []),
    ],
)
def test_a_look_at_a_connection_says_what_its_app_has_read_of(steps: str, known: list[str]) -> None:
    app = App(Process(7, 1, 0))
    app.run(steps)
    assert app.known == known
    assert [lease.told for lease in app.leases.values()] == [bool(known)]
    assert (app.closed(CUT) == {}) == (app.known == ["a"] or ", end" in steps)


def test_a_look_that_finds_nothing_read_does_not_count_as_something_behind_the_reply() -> None:
    app = App(Process(7, 1, 0))
    app.run(f"{LOCKED}, unread, look")
    assert app.closed(CUT) == {"a": UNTOLD}


def test_the_end_of_a_connection_tells_what_was_read_of_it() -> None:
    app = App(Process(7, 1, 0))
    app.run(LOCKED)
    app.closed(READ)
    assert app.known == ["a"]


def asked_again(number: int) -> list[App]:
    """That many connections of a process, each of which tells of one lease."""
    process = Process(7, 1, 0)
    first, *others = apps = [App(process) for _ in range(number)]
    first.run(LOCKED)
    for other in others:
        other.leases = first.leases
        other.ties.tells_too(first.lease("a"), first.ties)
        other.run("tell a, send a")
    return apps


BOTH_WAYS = pytest.mark.parametrize("turned", [False, True])


@BOTH_WAYS
@pytest.mark.parametrize(
    ("one", "two", "fates"),
    [
        (CUT, CUT, {"a": UNTOLD}),
        (UNREAD, UNREAD, {"a": IN_DOUBT}),
        (CUT, UNREAD, {"a": IN_DOUBT}),
        (READ, CUT, {}),
        (CUT, READ, {}),
        (READ, UNREAD, {}),
    ],
)
def test_what_several_connections_tell_of_is_given_back_when_all_ended_and_none_was_read(
    one: Delivery, two: Delivery, fates: dict[str, Fate], turned: bool
) -> None:
    first, second = reversed(asked_again(2)) if turned else asked_again(2)
    assert first.closed(one) == {}, "the other may tell of it"
    assert second.closed(two) == fates


@BOTH_WAYS
def test_what_one_of_several_connections_has_told_of_no_end_of_another_gives_back(turned: bool) -> None:
    first, second, third = reversed(asked_again(3)) if turned else asked_again(3)
    second.run("look")
    assert [app.closed(CUT) for app in (first, second, third)] == [{}] * 3
    assert second.known == ["a"]


@pytest.mark.parametrize("doubt", [False, True])
@pytest.mark.parametrize("second", [CUT, READ])
def test_what_is_asked_for_again_before_it_was_given_back_is_given_back_if_need_be_by_the_next_end(
    doubt: bool, second: Delivery
) -> None:
    process = Process(7, 1, 0)
    app, other = App(process), App(process)
    app.run(LOCKED)
    ends = app.ties.closed(UNREAD if doubt else CUT)
    other.ties.tells_too(app.lease("a"), app.ties)
    assert not ends, "what was still to be ended is not"
    other.leases = app.leases
    other.run("tell a, send a")
    assert other.closed(second) == ({} if second is READ else {"a": IN_DOUBT if doubt else UNTOLD})


def test_what_is_detached_lasts_though_who_asks_for_it_again_reads_nothing() -> None:
    process = Process(7, 1, 0)
    app, other, gone = App(process), App(process), App(process)
    lease = app.leases["a"] = other.leases["a"] = a_lease(token=b"a", bound=Bound.TTL)
    other.ties.tells_too(lease, app.ties)
    other.run("tell a, send a")
    assert other.closed(CUT) == {}
    gone.closed(READ)
    ends = gone.ties.came_too_late(lease)
    assert ends == {lease: UNTOLD}
    app.ties.tells_too(lease, gone.ties)
    assert ends == {}, "it is told of all the same"


def test_what_both_ends_were_to_give_back_is_asked_for_a_third_time() -> None:
    first, second = asked_again(2)
    third = App(first.ties.process)
    first.closed(CUT)
    ends = second.ties.closed(CUT)
    third.ties.tells_too(first.lease("a"), second.ties)
    assert not ends
    third.leases = first.leases
    assert third.closed(CUT) == {"a": UNTOLD}


def test_what_is_granted_when_its_connection_has_ended_is_given_back_unless_another_tells_of_it() -> None:
    process = Process(7, 1, 0)
    gone, other = App(process), App(process)
    gone.closed(READ)
    lease = gone.lease("a")
    gone.ties.granted(lease)
    ends = gone.ties.came_too_late(lease)
    assert ends == {lease: UNTOLD}
    other.ties.tells_too(lease, gone.ties)
    assert not ends
    other.leases = gone.leases
    assert other.closed(CUT) == {"a": UNTOLD}


def test_what_was_granted_to_a_process_that_was_forgotten_belongs_to_it_as_it_is_known_now() -> None:
    """Its last connection had ended; it has opened another, and asks again."""
    forgotten, now = Process(7, 1, 0), Process(7, 1, 0)
    gone = App(forgotten)
    gone.closed(READ)
    lease = gone.lease("a")
    gone.ties.granted(lease)
    ends = gone.ties.came_too_late(lease)
    other = App(now)
    other.ties.tells_too(lease, gone.ties)
    assert (ends, forgotten.idle, [*now.leases]) == ({}, True, [lease])


def test_an_app_that_names_its_lease_was_told_whatever_was_to_end_it() -> None:
    process = Process(7, 1, 0)
    app = App(process)
    app.run(LOCKED)
    ends = app.ties.closed(CUT)
    app.ties.named(app.lease("a"))
    assert (ends, app.known) == ({}, ["a"])


def test_a_dead_process_names_nothing_any_more() -> None:
    """Somebody else has its token."""
    process = Process(7, 1, 0)
    app = App(process)
    app.run(LOCKED)
    process.dead = True
    ends = app.ties.closed(UNREAD)
    app.ties.named(app.lease("a"))
    assert ends == {app.lease("a"): GONE}


def test_of_what_the_agent_before_may_have_told_no_end_of_a_connection_gives_anything_back() -> None:
    app = App(Process(7, 1, 0))
    lease = app.lease("a")
    lease.inherited = Inherited((), (), goes_on=True)
    app.ties.tells_too(lease, None)
    app.run("tell a, send a")
    assert app.closed(CUT) == {}
    other = App(app.ties.process)
    other.leases = app.leases
    other.ties.tells_too(lease, None)
    other.run("tell a, send a, look")
    assert other.known == ["a"]


def test_what_ends_with_its_process_ends_in_the_order_in_which_it_was_granted() -> None:
    process = Process(1, 7, 0)
    app = App(process)
    leases = [app.lease(f"{number}") for number in range(50)]
    for lease in leases:
        app.ties.granted(lease)
        app.ties.named(lease)
    app.ties.closed(READ)
    assert [*process.died()] == leases


def test_nothing_is_kept_of_what_is_over() -> None:
    for apps in (asked_again(3), asked_again(1)):
        process = apps[0].ties.process
        apps[0].run("end a")
        assert process is not None
        assert (process.leases, process.tellings) == ({}, {})
        assert not any(app.ties.in_question for app in apps)


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


def test_the_end_of_its_last_connection_tells_of_a_death_that_nobody_has_heard_of() -> None:
    process = Process(7, 1, 0)
    first, second = App(process), App(process)
    first.run(f"{LOCKED}, unread, send b")
    process.is_left(lambda: True)
    assert not process.dead, "another one may be a child's"
    assert second.closed(READ) == {}
    process.is_left(lambda: False)
    assert not process.dead
    process.is_left(lambda: True)
    assert process.dead
    assert first.closed(CUT) == {"a": GONE}, "nobody is left who could believe in it"


@pytest.mark.parametrize(
    ("fate", "standing", "loss"),
    [(GONE, Standing.HELD, ""), (UNTOLD, Standing.OVER, ""), (IN_DOUBT, Standing.LOST, "nobody knows")],
    ids=["for its lock_delay", "free at once", "to its deadline"],
)
def test_what_nobody_gives_back_ends_as_is_right_for_those_who_may_believe_in_it(
    fate: Fate, standing: Standing, loss: str
) -> None:
    host = cluster()
    lease = host.locked(lock_delay_ms=500).lease
    assert lease is not None
    carry_out(fate, lease, host.locks, "nobody knows", host.time.now_ns)
    assert (lease.standing, lease.loss) == (standing, loss)
    assert (lease.let_go_ns is not None) is (fate is GONE)


def test_what_a_child_goes_on_with_outlives_its_process() -> None:
    """On each connection that it has open; what it locks there from then on, too."""
    process = Process(7, 1, 0)
    parents, childs = App(process), App(process)
    parents.run("grant a, tell a, send a, grant tied, tell tied, send tied")
    childs.run("grant b, tell b, send b, grant tied to it, tell tied to it, send tied to it")
    parents.is_open = False
    assert process.died() == {}
    assert sorted(childs.left_to_others) == ["a", "b", "tied to it"]
    assert parents.left_to_others == [], "it ends with its connection"
    childs.run("grant c")
    assert childs.left_to_others[-1] == "c"


def test_who_dies_and_leaves_no_connection_leaves_nothing_to_others() -> None:
    process = Process(7, 1, 0)
    app = App(process)
    app.run(LOCKED)
    app.is_open = False
    assert set(process.died().values()) == {GONE}
    assert app.left_to_others == []
