"""The flow of one connection: what of it may be read, begun and written now. Bytes are only counted here.

Every command has a place in the order of the replies. Most are under way as soon as they come (an UNLOCK, an
EXTEND, a listing), others wait in their place for their turn: until all before them are answered, and what
they come to can be written at once. So a LOCK, which would be held by one who isn't told of it (one with a
WAIT waits in its resource's line meanwhile, passed over). An app that uses one connection for everything can
give back what it holds while LOCKs of its own wait. A reply is composed when it is written.

What is done is decided anew from what is so, after whatever has changed it (`_settle`). Flags that were set
and cleared where things happened forgot one way that they could fall together: a connection that was never
read from again. So that holds which liveness rests on:

* nothing under way, nothing pending, and replies are read: it reads;
* while its replies are read, it reads, or there is work to do, or its first command is under way;
* while some are unread, too, as long as there is room for more: an app may send all it has to before it reads
  anything, and neither side would go on, if both waited;
* what is kept for it is bounded: requests that wait by `pipeline_bytes`, replies by `unread_bytes`.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

WireReply = bytes | Callable[[], bytes]
"""What goes out on the wire; or what makes it, when it is written."""

UNDER_WAY_MOST = 128
"""Commands of one connection that masters are asked about at a time: others want their answers, too."""
_REPLY_BYTES_PER_TURN = 16_384
PLACE_BYTES = 256
"""About what a place takes as an object, besides its reply."""


class Port(Protocol):
    """The connection itself."""

    def send(self, data: bytes) -> None:
        """Write this. When not all of it is taken at once, `Flow.clogged` is called before it returns."""

    def read(self, on: bool) -> None:
        """Go on reading, or stop."""

    def run_soon(self) -> None:
        """Have `Flow.turn` called soon: never before this returns, since core may be in the middle of its
        work."""

    def next_request(self) -> list[bytes] | None:
        """The next one of what came, if it is complete."""

    def pending_bytes(self) -> int:
        """So much came, and has not come out of `next_request`."""

    def waits_for_all_before(self, request: list[bytes]) -> bool:
        """Whether it, and what comes behind it, may be begun only when all before it are answered."""

    def run(self, request: list[bytes]) -> bytes | None:
        """Its reply; None when it took a place, and the reply comes later."""


class Place:
    """Of a command, in the order of the replies. begin: what to do when its turn comes, if that is not past,
    or was never waited for. One that waits for its turn may be answered before. gives_back: what it gives
    back its app holds no more, so it is begun also when that has closed."""

    __slots__ = ("begin", "gives_back", "reply")

    def __init__(self, *, gives_back: bool = False) -> None:
        self.begin: Callable[[Place], None] | None = None
        self.gives_back = gives_back
        self.reply: WireReply | None = None


class Flow:
    """Of one connection.

    clogged_bytes: written, and not taken. pending_bytes: came, and were not taken up. whole: a request among
    them may be complete. _held: one that waits until all before it are answered, and all that came behind it
    waits with it. not_begun: what still waited for its turn when it was closed.
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
        "_to_write",
        "_unread_bytes",
        "closed",
        "ending",
        "not_begun",
        "pending_bytes",
        "places",
        "under_way",
        "whole",
    )

    def __init__(self, port: Port, pipeline_bytes: int, unread_bytes: int) -> None:
        self._port = port
        self._pipeline_bytes = pipeline_bytes
        self._unread_bytes = unread_bytes
        self.places: deque[Place] = deque()
        self.under_way = 0
        self.pending_bytes = 0
        self.whole = False
        self._held: list[bytes] | None = None
        self.ending = False
        self.closed = False
        self.not_begun: list[Place] = []
        self._to_write = bytearray()
        self.clogged_bytes = 0
        self._kept = 0
        self._owes = False
        self._pushing = False
        self._reads = True
        self._scheduled = False
        self._in_turn = False

    # What may be done now

    @property
    def at_rest(self) -> bool:
        """Nothing is under way, waits, or was left unread: what comes now can be answered at once."""
        return not (self.places or self.whole or self.clogged_bytes or self._scheduled or self.ending)

    @property
    def kept_bytes(self) -> int:
        """What is kept of replies, in whatever state."""
        return self._kept + self.clogged_bytes + len(self._to_write)

    @property
    def full(self) -> bool:
        """So much is kept that nothing more is taken up."""
        return self._kept + self.clogged_bytes + len(self._to_write) > self._unread_bytes

    @property
    def unread(self) -> bool:
        """So much is left unread that nothing more is written."""
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
        """The reply of the first in the order would be written at once. Or it would be kept, since its app
        goes on sending without reading, and is not read from either: that may be what both wait for."""
        return not self.clogged_bytes or not (self.unread or self.reads)

    @property
    def is_turn_of_next(self) -> bool:
        """What comes now is the first in the order, and its turn would have come."""
        return not self.places and self.tells_at_once

    @property
    def turn_has_come(self) -> bool:
        """The first in the order waits for nothing more. What is kept behind it waits for its reply, and must
        not be what it waits for."""
        if self.places:
            return self.places[0].begin is not None and self.tells_at_once
        return self._held is not None and not self.unread

    @property
    def over(self) -> bool:
        """All that came before its end is answered: to be closed, after a turn."""
        return self.ending and not self.places

    @property
    def has_work(self) -> bool:
        return self.turn_has_come or self.takes or self.over

    @property
    def reads(self) -> bool:
        """What comes behind an end is read, and dropped: else its end could not be seen."""
        return self.ending or not (self.full or (self.whole and self.pending_bytes > self._pipeline_bytes))

    @property
    def waits_for_reader(self) -> bool:
        """Its app leaves unread what it asked for, and nothing else is left to be done. Pushes it did not ask
        for: it may be at work, and need not read before it wants something again."""
        return self._owes and (self.full or not (self.under_way or self.has_work))

    # What comes

    def arrived(self, pending_bytes: int) -> None:
        """More has come; so much is pending with it."""
        self.pending_bytes = pending_bytes
        self.whole = True
        self._settle()

    def turn(self, go_on: Callable[[], bool]) -> None:
        """Do what there is to do, for as long as `go_on` lets it. What comes of it is written together."""
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
        elif (reply := self._port.run(request)) is not None:
            self.say(reply)
        return True

    def _next(self) -> list[bytes] | None:
        if self._held is not None:
            if self.places:
                return None
            held, self._held = self._held, None
            return held
        if not self.takes:
            return None
        request = self._port.next_request()
        self.whole = request is not None
        return request

    # Commands

    def say(self, reply: bytes) -> None:
        """The reply of a command that was done at once."""
        if self.places:
            place = Place()
            place.reply = reply
            self.places.append(place)
            self._kept += len(reply) + PLACE_BYTES
        else:
            self._write(reply)

    def begin(self, place: Place) -> None:
        """This command is under way, last in the order of replies."""
        self.places.append(place)
        self._kept += PLACE_BYTES
        self.under_way += 1

    def in_turn(self, place: Place, begin: Callable[[Place], None]) -> None:
        """This command is begun when it is its turn: at once, if that is so."""
        its_turn = self.is_turn_of_next
        self.places.append(place)
        self._kept += PLACE_BYTES
        if its_turn:
            self.under_way += 1
            begin(place)
        else:
            place.begin = begin

    def _begin_first(self) -> None:
        """The turn of the first in the order has come."""
        place = self.places[0]
        begin, place.begin = place.begin, None
        assert begin is not None
        self.under_way += 1
        begin(place)

    def finish(self, place: Place, reply: WireReply) -> None:
        """The reply of a command that was under way, or whose turn has not come yet."""
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
            self._kept -= PLACE_BYTES
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
            places.popleft().reply = None  # that of a grant lives on with its lease
            self._kept -= PLACE_BYTES
            if type(reply) is bytes:
                self._kept -= len(reply)
                due.append(reply)
            else:
                due.append(reply())  # type: ignore[operator]  # bytes were dealt with
        self._write(due[0] if len(due) == 1 else b"".join(due))

    # Writing

    def push(self, data: bytes) -> None:
        """Something that was not asked for: it comes between two replies."""
        self._pushing = True
        self._write(data)
        self._pushing = False

    def _write(self, data: bytes) -> None:
        if self.clogged_bytes:
            # Thousands of short replies take many times their bytes as objects of their own.
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
        """Not all of what was written has been taken."""
        self.clogged_bytes = unsent_bytes
        self._owes = self._owes or not self._pushing
        if not self._in_turn:
            self._settle()

    def drained(self) -> None:
        """All of what was written has been taken."""
        self.clogged_bytes = 0
        self._owes = False
        self._write_the_rest()
        if not self._in_turn:
            self._settle()

    def close(self) -> bytes:
        """The connection is closed: nothing more is done or kept. What was still to be written."""
        self.closed = True
        self.not_begun += [place for place in self.places if place.begin is not None]
        self.places.clear()
        self._held = None
        self._kept = self.clogged_bytes = 0
        left, self._to_write = bytes(self._to_write), bytearray()
        return left

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
