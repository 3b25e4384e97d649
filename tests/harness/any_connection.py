"""A connection on which anything happens in any order: what the flow of one is tested and fuzzed with."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lockd.core import flow as flow_module
from lockd.core import sizes
from lockd.core.flow import UNDER_WAY_MOST, Flow, Place

PIPELINE_BYTES = 1_000
REPLY_BYTES_MOST = 3_000
UNREAD_BYTES = UNDER_WAY_MOST * sizes.COMMAND * 6 // 5 + REPLY_BYTES_MOST
"""As much as the commands that are under way need, and little more."""
KINDS = ("at once", "asked", "in turn", "in line", "alone")
REQUEST_BYTES = 60


@dataclass
class Connection:
    """`core.flow.Port` without a socket. A request is [kind, its reply]; that is its number, filled up.

    room: how many bytes the kernel takes, until the app reads. in_line: what waits for its turn since it came
    (a LOCK in its resource's line).
    """

    room: int = 200
    reading: bool = True
    scheduled: bool = False
    came: deque[list[bytes]] = field(default_factory=deque)
    half_bytes: int = 0
    under_way: list[tuple[Place, bytes]] = field(default_factory=list)
    in_line: list[tuple[Place, bytes]] = field(default_factory=list)
    written: bytearray = field(default_factory=bytearray)
    unsent: int = 0

    def __post_init__(self) -> None:
        self.flow = Flow(self, PIPELINE_BYTES, UNREAD_BYTES)

    # core.flow.Port

    def send(self, data: bytes) -> None:
        assert not self.unsent, "it was told that this is not taken"
        self.written += data
        self.unsent = max(0, len(data) - self.room)
        self.room = max(0, self.room - len(data))
        if self.unsent:
            self.flow.clogged(self.unsent)

    def read(self, on: bool) -> None:
        assert on != self.reading
        self.reading = on

    def run_soon(self) -> None:
        assert not self.scheduled
        self.scheduled = True

    def next_request(self) -> list[bytes] | None:
        if self.came and self.came[0][0] == b"broken":
            self.flow.say(self.came.popleft()[1])
            self.flow.ending = True
            return None
        return self.came.popleft() if self.came else None

    def pending_bytes(self) -> int:
        return REQUEST_BYTES * len(self.came) + self.half_bytes

    def waits_for_all_before(self, request: list[bytes]) -> bool:
        return request[0] in (b"alone", b"end")

    def run(self, request: list[bytes]) -> bytes | None:
        kind, reply = request
        if kind in (b"alone", b"end"):
            assert not self.flow.places, "something before it is not answered"
        if kind == b"end":
            self.flow.ending = True
        if kind == b"asked":
            self._begin(Place(), reply)
        elif kind == b"in turn":
            self._in_turn(reply)
        elif kind == b"in line":
            self._in_line(reply)
        else:
            return reply
        return None

    def _begin(self, place: Place, reply: bytes) -> None:
        self.flow.begin(place)
        self.under_way.append((place, reply))

    def _in_turn(self, reply: bytes) -> None:
        self.flow.in_turn(Place(), lambda place: self._turn_has_come(place, reply))

    def _in_line(self, reply: bytes) -> None:
        waits = (Place(), reply)
        self.in_line.append(waits)
        self.flow.in_turn(waits[0], lambda place: self._turn_has_come(place, reply))

    def _turn_has_come(self, place: Place, reply: bytes) -> None:
        assert self.flow.places[0] is place, "it is not its turn"
        assert not self.unsent or not self.flow.reads, "it could not be told, and need not be"
        self.in_line = [other for other in self.in_line if other[0] is not place]
        self.under_way.append((place, reply))

    # What happens

    def comes(self, *requests: list[bytes]) -> None:
        self.came.extend(requests)
        self.flow.arrived(self.pending_bytes())

    def turn(self, steps: int = 1_000_000) -> None:
        self.scheduled = False
        left = iter(range(steps))
        self.flow.turn(lambda: next(left, None) is not None)
        if self.flow.over:
            self.written += self.flow.close()
            self.unsent = 0

    def answer(self, which: int, composed: bool = False) -> None:
        place, reply = self.under_way.pop(which % len(self.under_way))
        self.flow.finish(place, (lambda: reply) if composed else reply)

    def wait_ends(self, which: int) -> None:
        self.flow.finish(*self.in_line.pop(which % len(self.in_line)))

    def app_reads(self, room: int) -> None:
        """All that was sent, and the kernel has so much room again."""
        self.room = room
        if self.unsent:
            self.unsent = 0
            self.flow.drained()

    def settle(self) -> None:
        """The app reads, masters answer."""
        for _ in range(100_000):
            if self.scheduled:
                self.turn()
            elif self.under_way:
                self.answer(0)
            elif self.unsent:
                self.app_reads(10_000)
            else:
                return
        raise AssertionError("it never comes to rest")


def numbered(kind: str, number: int, reply_bytes: int = 0) -> list[bytes]:
    return [kind.encode(), b"%06d;" % number + b"." * (reply_bytes - len("000000;"))]


class AnyConnection(RuleBasedStateMachine):
    """Whatever comes, in whatever order: requests in bursts of any size, half ones, answers, an app that
    reads or doesn't, turns that end early."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = Connection()
        self.sent = 0
        self.ended_at: int | None = None

    @rule(
        kinds=st.one_of(
            st.lists(st.sampled_from(KINDS), max_size=30),
            st.builds(lambda kind, number: [kind] * number, st.sampled_from(KINDS), st.integers(1, 100)),
        ),
        half_bytes=st.sampled_from((0, REQUEST_BYTES // 2, 2 * PIPELINE_BYTES)),
        reply_bytes=st.integers(1, REPLY_BYTES_MOST),
    )
    @precondition(lambda self: self.connection.reading and self.ended_at is None)
    def requests_come(self, kinds: list[str], half_bytes: int, reply_bytes: int) -> None:
        self.connection.half_bytes = half_bytes
        first, self.sent = self.sent, self.sent + len(kinds)
        self.connection.comes(*(numbered(kind, first + at, reply_bytes) for at, kind in enumerate(kinds)))

    @rule(how=st.sampled_from(("end", "broken")))
    @precondition(lambda self: self.connection.reading and self.ended_at is None)
    def it_says_that_it_goes_or_talks_nonsense(self, how: str) -> None:
        self.sent += 1
        self.ended_at = self.sent
        self.connection.comes(numbered(how, self.sent - 1))

    @rule(steps=st.integers(0, 40))
    @precondition(lambda self: self.connection.scheduled)
    def it_has_a_turn(self, steps: int) -> None:
        self.connection.turn(steps)

    @rule(which=st.integers(0, 1_000), composed=st.booleans())
    @precondition(lambda self: self.connection.under_way)
    def masters_answer(self, which: int, composed: bool) -> None:
        self.connection.answer(which, composed)

    @rule(which=st.integers(0, 1_000))
    @precondition(lambda self: self.connection.in_line)
    def a_wait_ends_before_its_turn(self, which: int) -> None:
        self.connection.wait_ends(which)

    @rule(room=st.integers(1, 500))
    def the_app_reads(self, room: int) -> None:
        self.connection.app_reads(room)

    @rule()
    @precondition(lambda self: not self.connection.flow.closed)
    def something_is_pushed(self) -> None:
        self.connection.flow.push(b"!")

    @invariant()
    @precondition(lambda self: not self.connection.flow.closed)
    def not_busy_and_nothing_pending_it_reads(self) -> None:
        flow, connection = self.connection.flow, self.connection
        if flow.ending:
            assert connection.reading, "else its end is not seen"
        if not (connection.under_way or connection.came or flow.places or flow.full or connection.scheduled):
            assert connection.reading

    @invariant()
    @precondition(lambda self: not self.connection.flow.closed)
    def it_is_never_stuck(self) -> None:
        flow, connection = self.connection.flow, self.connection
        if not flow.unread:
            first = flow.places[0] if flow.places else None
            first_is_under_way = any(place is first for place, _ in connection.under_way)
            assert connection.reading or connection.scheduled or first_is_under_way
        else:
            assert connection.unsent, "full of what nobody is asked to read"

    @invariant()
    @precondition(lambda self: not self.connection.flow.closed)
    def a_turn_that_has_come_is_had(self) -> None:
        flow, connection = self.connection.flow, self.connection
        if flow.places and flow.places[0].begin is not None:
            assert connection.scheduled or connection.unsent

    @invariant()
    @precondition(lambda self: not self.connection.flow.closed)
    def who_is_waited_for_is_known(self) -> None:
        """Nothing goes on until its app reads: it may be cut off for that."""
        flow, connection = self.connection.flow, self.connection
        if connection.unsent and flow.places and not (connection.under_way or connection.scheduled):
            assert flow.waits_for_reader or not flow._owes

    @invariant()
    def what_is_kept_is_bounded(self) -> None:
        flow = self.connection.flow
        assert flow.under_way <= UNDER_WAY_MOST
        each = sizes.COMMAND + sizes.WORD + REQUEST_BYTES + REPLY_BYTES_MOST
        late = (UNDER_WAY_MOST + 1) * each + flow_module._REPLY_BYTES_PER_TURN
        assert flow.kept_bytes <= UNREAD_BYTES + late
        assert flow.kept_bytes >= 0

    @invariant()
    def replies_come_in_order_and_once(self) -> None:
        written = bytes(self.connection.written).translate(None, b"!.").split(b";")[:-1]
        assert written == [b"%06d" % number for number in range(len(written))]

    def teardown(self) -> None:
        connection = self.connection
        connection.settle()
        expected = self.sent if self.ended_at is None else self.ended_at
        assert connection.written.count(b";") == expected, "each is answered"
        assert connection.flow.closed == (self.ended_at is not None)
        assert connection.flow.closed or connection.reading
        assert connection.flow.kept_bytes == 0
