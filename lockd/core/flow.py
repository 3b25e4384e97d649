"""The flow of one connection: what of it may be read, begun and written now. Bytes are only counted here.

Every command has a place in the order of the replies. Most commands begin as soon as they arrive (an UNLOCK,
an EXTEND, a listing). Others wait for their turn: until all commands before them are answered and their own
reply can be written at once. A LOCK waits like that, since otherwise an app would hold it without knowing.
(A LOCK with WAIT stands in its resource's line meanwhile, and is passed over.) So an app that uses one
connection for everything can give back what it holds while its own LOCKs wait. A reply is composed when it is
written.

After every change, what to do next is decided again from the whole state (`_settle`). An earlier version had
flags that were set and cleared where things happened. It missed one combination, and a connection was never
read from again. This is what liveness rests on:

* nothing under way, nothing pending, and replies are read: it reads;
* while its replies are read, it reads, or there is work to do, or its first command is under way;
* the same while some replies are unread and there is room for more: an app may send everything before it
  reads anything, and if both sides waited, neither would go on;
* what is kept for it is bounded: requests that wait by `pipeline_bytes`, replies by `unread_bytes`.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from lockd.core import sizes

WireReply = bytes | Callable[[], bytes]
"""What goes out on the wire, or a function that makes it when it is written."""

UNDER_WAY_MOST = 128
"""How many commands of one connection masters are asked about at a time: others want their answers, too."""
_REPLY_BYTES_PER_TURN = 16_384


class Port(Protocol):
    """The connection itself."""

    def send(self, data: bytes) -> None:
        """Write this. When not all of it is taken at once, `Flow.clogged` is called before it returns."""

    def read(self, on: bool) -> None:
        """Go on reading, or stop."""

    def run_soon(self) -> None:
        """Have `Flow.turn` called soon, but never before this returns: core may be in the middle of its
        work."""

    def next_request(self) -> list[bytes] | None:
        """The next of the requests that arrived, if it is complete."""

    def pending_bytes(self) -> int:
        """How many bytes have arrived and not come out of `next_request`."""

    def waits_for_all_before(self, request: list[bytes]) -> bool:
        """Whether this request, and what follows it, may begin only when all before it are answered."""

    def run(self, request: list[bytes]) -> bytes | None:
        """The reply to this request; None when it took a place, and the reply comes later."""


class Place:
    """The place of a command in the order of the replies. begin: what to do when its turn comes; None once it
    has begun, or if it need not wait. A command may be answered while it waits for its turn. gives_back: it
    gives back what its app does not hold any more, so it is begun even after that app has closed. size: what
    is kept for it besides its reply, as far as that is known before it has its place."""

    __slots__ = ("begin", "gives_back", "reply", "size")

    def __init__(self, *, gives_back: bool = False) -> None:
        self.begin: Callable[[Place], None] | None = None
        self.gives_back = gives_back
        self.reply: WireReply | None = None
        self.size = 0


class _Nobody:
    """The port of a connection that has ended: its flow does not refer to the connection any more, which
    refers to its flow."""

    def send(self, data: bytes) -> None:
        pass

    def read(self, on: bool) -> None:
        pass

    def run_soon(self) -> None:
        pass

    def next_request(self) -> list[bytes] | None:
        return None

    def pending_bytes(self) -> int:
        return 0

    def waits_for_all_before(self, request: list[bytes]) -> bool:
        return False

    def run(self, request: list[bytes]) -> bytes | None:
        return None


_NOBODY = _Nobody()


class Flow:
    """The flow of one connection.

    clogged_bytes: written, and not yet taken by the kernel. pending_bytes: arrived, and not yet taken up.
    whole: a request among the pending bytes may be complete. _held: a request that waits until all before it
    are answered; everything that arrived after it waits with it. _taken_up: the size of the request that is
    being run, which what takes a place for it may keep.
    """

    __slots__ = (
        "clogged_bytes",
        "_held",
        "_in_turn",
        "_kept",
        "_owes",
        "_pipeline_bytes",
        "_port",
        "_pushing",
        "_reads",
        "_scheduled",
        "_taken_up",
        "_to_write",
        "_unread_bytes",
        "closed",
        "ending",
        "_not_begun",
        "pending_bytes",
        "places",
        "under_way",
        "whole",
    )

    def __init__(self, port: Port, pipeline_bytes: int, unread_bytes: int) -> None:
        self._port: Port = port
        self._pipeline_bytes = pipeline_bytes
        self._unread_bytes = unread_bytes
        self.places: deque[Place] = deque()
        self.under_way = 0
        self.pending_bytes = 0
        self.whole = False
        self._held: list[bytes] | None = None
        self.ending = False
        self.closed = False
        self._not_begun: list[Place] = []
        self._to_write = bytearray()
        self.clogged_bytes = 0
        self._kept = 0
        self._taken_up = 0
        self._owes = False
        self._pushing = False
        self._reads = True
        self._scheduled = False
        self._in_turn = False

    # What may be done now

    @property
    def at_rest(self) -> bool:
        """Nothing is under way, waits, or is unread: what arrives now can be answered at once."""
        return not (self.places or self.whole or self.clogged_bytes or self._scheduled or self.ending)

    @property
    def kept_bytes(self) -> int:
        """All bytes that are kept of replies, in whatever state."""
        return self._kept + self.clogged_bytes + len(self._to_write)

    @property
    def full(self) -> bool:
        """So many bytes are kept that nothing more is taken up."""
        return self._kept + self.clogged_bytes + len(self._to_write) > self._unread_bytes

    @property
    def unread(self) -> bool:
        """So many bytes are unread that nothing more is written."""
        return self.clogged_bytes + len(self._to_write) > self._unread_bytes

    @property
    def takes(self) -> bool:
        """The next request may be taken up."""
        return (
            self.whole
            and self._held is None
            and not (self.ending or self.full)
            and self.under_way < UNDER_WAY_MOST
        )

    @property
    def tells_at_once(self) -> bool:
        """The reply to the first command in the order would be written at once. Or it would be kept, because
        its app goes on sending without reading and is not read from either: both may be waiting for just this
        reply."""
        return not self.clogged_bytes or not (self.unread or self.reads)

    @property
    def is_turn_of_next(self) -> bool:
        """What arrives now is first in the order, and its turn has come."""
        return not self.places and self.tells_at_once

    @property
    def turn_has_come(self) -> bool:
        """The first command in the order waits for nothing more. Replies that are kept behind it wait for its
        reply, so it must not wait for them."""
        if self.places:
            return self.places[0].begin is not None and self.tells_at_once
        return self._held is not None and not self.unread

    @property
    def over(self) -> bool:
        """Everything that arrived before the end is answered: close it after one more turn."""
        return self.ending and not self.places

    @property
    def has_work(self) -> bool:
        return self.turn_has_come or self.takes or self.over

    @property
    def reading(self) -> bool:
        """What the connection was last told."""
        return self._reads

    @property
    def reads(self) -> bool:
        """What arrives after an end is read and dropped: otherwise the end could not be seen."""
        return self.ending or not (self.full or (self.whole and self.pending_bytes > self._pipeline_bytes))

    @property
    def waits_for_reader(self) -> bool:
        """Its app does not read what it asked for, and nothing else is left to do. Pushes do not count, since
        the app did not ask for them: it may be at work, and need not read before it wants something again."""
        return self._owes and (self.full or not (self.under_way or self.has_work))

    # What comes

    def arrived(self, pending_bytes: int) -> None:
        """More bytes have arrived; this many are pending with them."""
        self.pending_bytes = pending_bytes
        self.whole = True
        self._settle()

    def turn(self, go_on: Callable[[], bool]) -> None:
        """Do what can be done, for as long as `go_on` allows. The results are written together."""
        self._scheduled = False
        self._in_turn = True
        most = len(self._to_write) + _REPLY_BYTES_PER_TURN
        try:
            while go_on() and len(self._to_write) <= most and self._step():
                pass
        finally:
            self.pending_bytes = self._port.pending_bytes()
            self._write_the_rest()
            self._in_turn = False
            if not self.over:
                self._settle()

    def _step(self) -> bool:
        """False when there is nothing to do."""
        if self.places and self.turn_has_come:
            self._begin_first()
            return True
        request = self._next()
        if request is None:
            return False
        if self.places and self._port.waits_for_all_before(request):
            self._held = request
            self._kept += sizes.request(request)
            return True
        self._taken_up = sizes.request(request)
        reply = self._port.run(request)
        self._taken_up = 0
        if reply is not None:
            self.say(reply)
        return True

    def _next(self) -> list[bytes] | None:
        if self._held is not None:
            if self.places:
                return None
            held, self._held = self._held, None
            self._kept -= sizes.request(held)
            return held
        if not self.takes:
            return None
        request = self._port.next_request()
        self.whole = request is not None
        return request

    # Commands

    def say(self, reply: bytes) -> None:
        """The reply to a command that was done at once."""
        if self.places:
            place = Place()
            place.reply = reply
            place.size = sizes.ANSWERED
            self.places.append(place)
            self._kept += len(reply) + place.size
        else:
            self._write(reply)

    def begin(self, place: Place) -> None:
        """This command is under way, and is last in the order of replies. After the end there is no order."""
        if self.closed:
            return
        self._takes_place(place)
        self.under_way += 1

    def in_turn(self, place: Place, begin: Callable[[Place], None]) -> None:
        """This command begins when its turn comes: at once, if it has come already, or there are no turns any
        more."""
        if self.closed:
            begin(place)
            return
        its_turn = self.is_turn_of_next
        self._takes_place(place)
        if its_turn:
            self.under_way += 1
            begin(place)
        else:
            place.begin = begin

    def _takes_place(self, place: Place) -> None:
        self.places.append(place)
        place.size += sizes.COMMAND + self._taken_up
        self._kept += place.size

    def _begin_first(self) -> None:
        """The turn of the first command in the order has come."""
        place = self.places[0]
        begin, place.begin = place.begin, None
        assert begin is not None
        self.under_way += 1
        begin(place)

    def finish(self, place: Place, reply: WireReply) -> None:
        """The reply to a command that was under way, or whose turn has not come yet."""
        if self.closed:
            return
        if place.begin is None:
            self.under_way -= 1
        else:
            place.begin = None
        places = self.places
        if len(places) == 1:
            # The usual case.
            places.popleft()
            self._kept -= place.size
            data = reply if type(reply) is bytes else reply()  # type: ignore[operator]
            if self.clogged_bytes or self._in_turn:
                self._write(data)
            else:
                self._port.send(data)
        else:
            place.reply = reply
            if type(reply) is bytes:
                self._kept += len(reply)
            if place is places[0]:
                self._write_due()
        if not self._in_turn:
            self._settle()

    def _write_due(self) -> None:
        places, due = self.places, []
        while places and (reply := places[0].reply) is not None:
            place = places.popleft()
            place.reply = None  # that of a grant lives on with its lease
            self._kept -= place.size
            if type(reply) is bytes:
                self._kept -= len(reply)
                due.append(reply)
            else:
                due.append(reply())  # type: ignore[operator]  # bytes were dealt with
        self._write(due[0] if len(due) == 1 else b"".join(due))

    # Writing

    def push(self, data: bytes) -> None:
        """Something that was not asked for: it goes between two replies."""
        self._pushing = True
        self._write(data)
        self._pushing = False

    def _write(self, data: bytes) -> None:
        if self.clogged_bytes:
            # As separate objects, thousands of short replies take many times their bytes.
            self._to_write += data
            self._owes = self._owes or not self._pushing
        elif self._in_turn:
            self._to_write += data
        else:
            self._port.send(data)

    def _write_the_rest(self) -> None:
        if self._to_write and not self.clogged_bytes:
            data, self._to_write = bytes(self._to_write), bytearray()
            self._port.send(data)

    def clogged(self, unsent_bytes: int) -> None:
        """Not everything that was written has been taken."""
        self.clogged_bytes = unsent_bytes
        self._owes = self._owes or not self._pushing
        if not self._in_turn:
            self._settle()

    def drained(self) -> None:
        """Everything that was written has been taken."""
        self.clogged_bytes = 0
        self._owes = False
        self._write_the_rest()
        if not self._in_turn:
            self._settle()

    def close(self) -> bytes:
        """The connection is closed: nothing more is done or kept. Returns what was still to write."""
        self.closed = True
        self._port = _NOBODY
        self._not_begun += [place for place in self.places if place.begin is not None and place.gives_back]
        for place in self.places:
            if not place.gives_back:
                place.begin = None  # it refers to its place
        self.places.clear()
        self._held = None
        self._kept = self.clogged_bytes = 0
        left, self._to_write = bytes(self._to_write), bytearray()
        return left

    def give_up_waiting(self) -> list[Place]:
        """The commands that still waited for their turn when the connection was closed, and have to be begun
        all the same. They are named once."""
        waited, self._not_begun = self._not_begun, []
        return waited

    def _settle(self) -> None:
        if self.closed:
            return
        if self._reads and not (self.places or self.whole or self.clogged_bytes or self.ending):
            return
        reads = self.reads
        if reads is not self._reads:
            self._reads = reads
            self._port.read(reads)
        if not self._scheduled and self.has_work:
            self._scheduled = True
            self._port.run_soon()
