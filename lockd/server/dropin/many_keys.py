"""An operation on several keys: all of them or none, or each separately (as in node-redlock's scripts)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lockd.clock import boottime_ns
from lockd.core.flow import WireReply
from lockd.core.leases import Lease
from lockd.core.scripts.operations import Change, Keys, Kind, Operation, Place, Special, State
from lockd.core.values import Refusal
from lockd.server.commands.arguments import BadRequest
from lockd.server.dropin.answers import FREE, Found, Words, encoded
from lockd.server.dropin.performing import Ground, OneKey, nobody
from lockd.server.dropin.plain_locks import TOO_LATE, Answer, PlainReply, give_back
from lockd.server.resp import replies
from lockd.server.session import Session

_NONE: Mapping[bytes, bytes] = {}
HALF_DONE = replies.error("EXECABORT what it watches has changed after the first of its commands had run")


class ManyKeys:
    """One after the other, in the order of their names: if two requests want the same keys, neither keeps
    half of them for long. When one key is refused, those that were taken are given back."""

    def __init__(
        self,
        ground: Ground,
        session: Session,
        operation: Operation,
        words: Words,
        answer: Answer,
        via: str,
        compared: Mapping[bytes, bytes] = _NONE,
    ) -> None:
        """compared: what the keys of a DEL have to have, where its app has read it. Raises BadRequest."""
        most = ground.current.config.limits.resources_per_lock
        if len(words.keys) > most:
            raise BadRequest(f"LIMIT resources_per_lock: {len(words.keys)} keys, at most {most} are allowed")
        if len(set(words.keys)) < len(words.keys):
            raise BadRequest("ERR the same key was given twice")
        if not words.keys:
            raise BadRequest("ERR the script needs keys, and none were given")
        self.ground = ground
        self.session = session
        self._operation = operation
        self._compared = compared
        self.kind = operation.kind
        self.words = words
        self._answer = answer
        numbers = sorted(range(1, len(words.keys) + 1), key=lambda number: words.keys[number - 1])
        self._left = [_Part(self, number, via) for number in reversed(numbers)]
        self._changed: list[_Part] = []

    @property
    def taken(self) -> list[Lease]:
        return [lease for part in self._changed for lease in part.taken]

    @property
    def keys(self) -> Sequence[bytes]:
        return self.words.keys

    def operation_on(self, number: int) -> Operation:
        """The operation on one of its keys. Those that are compared are deleted if they have that value."""
        one, value = self._operation, self._compared.get(self.words.keys[number - 1])
        kind = one.kind if value is None else Kind.RELEASE
        wanted = one.value if value is None else value
        return Operation(kind, Place("KEYS", number), wanted, Keys.ONE, one.outcomes)

    def watched(self, found: Mapping[bytes, Found], changed_since: Callable[[], None]) -> None:
        """As `OneKey` has it. What was deleted already is not there again."""

        def has_changed() -> None:
            is_half_done = self._operation.keys is Keys.EACH and self._changed
            self._gives_back(partial(self._answer, HALF_DONE) if is_half_done else changed_since)

        for part in self._left:
            part.watched(found, has_changed)

    def is_answered(self) -> None:
        """As `OneKey` has it."""
        self._answer = nobody
        for part in (*self._left, *self._changed):
            part.is_answered()

    def begin(self) -> None:
        self._next()

    def _next(self) -> None:
        if self._left:
            # Core may be in the middle of its work.
            asyncio.get_running_loop().call_soon(self.session.guarded, self._begin, self._left.pop())
        elif self._operation.keys is Keys.EACH:
            self._answer(lambda: replies.integer(sum(not part.is_over for part in self._changed)))
        else:
            self._answer(self._told)

    def _begin(self, part: "_Part") -> None:
        try:
            part.begin()
        except BadRequest as bad:
            self.failed(replies.error(str(bad)))

    def _told(self) -> bytes:
        """Composed when it is written: the first lease may have ended while the last was taken (rule 1)."""
        if any(part.is_over for part in self._changed):
            give_back(self.session, self.taken)
            return replies.error(str(TOO_LATE))
        done = self._operation.outcome(_changed_state(self._operation)).reply
        reply = encoded(done, FREE, self.words, self.session.protocol)
        for lease in self.taken:
            self.session.shared.tellings.begins(lease, self.session.ties, reply)
        return reply

    def came_to(self, part: "_Part", found: Found) -> None:
        outcome = self._operation.outcome(found.state)
        if outcome.change is not Change.NONE:
            self._changed.append(part)
        if outcome.change is not Change.NONE or self._operation.keys is Keys.EACH:
            self._next()
        else:
            reply = 0 if outcome.reply is Special.KEYS else outcome.reply
            self.failed(encoded(reply, found, self.words, self.session.protocol))

    def failed(self, reply: WireReply) -> None:
        self._gives_back(partial(self._answer, reply))

    def _gives_back(self, then: Callable[[], None]) -> None:
        """Give back the keys that were taken just now, not those that it had before. The app is told when the
        masters have them back: it may look at once, through another host."""
        taken = [part for part in self._changed if part.taken]
        left = len(taken)

        def is_back(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for part in taken:
            part.give_back(PlainReply(self.session, is_back, is_back))
        if not taken:
            then()


def _changed_state(operation: Operation) -> State:
    """A state in which it does something."""
    return next(state for state in State if operation.outcome(state).change is not Change.NONE)


class _Part(OneKey):
    """The answer for one of them."""

    __slots__ = ("_of_all",)

    def __init__(self, of_all: ManyKeys, number: int, via: str) -> None:
        operation = of_all.operation_on(number)
        super().__init__(of_all.ground, of_all.session, operation, of_all.words, of_all.failed, via)
        self._of_all = of_all

    def _came_to(self, found: Found) -> None:
        self._of_all.came_to(self, found)

    def _granted(self, reply: WireReply) -> None:
        self._is_taken()
        self._of_all.came_to(self, FREE)

    def _not_granted(self, refusal: Refusal) -> None:
        if refusal.code.kind.name == "CONTENDED" and self._operation.kind is Kind.ACQUIRE:
            self._says(Found(State.ANOTHERS))
        else:
            super()._not_granted(refusal)

    def give_back(self, reply: PlainReply) -> None:
        assert self._value is not None
        self._ground.shared.locks.release(self._resource, self._value, reply, boottime_ns())
