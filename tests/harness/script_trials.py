"""A recognised script against a real Redis: does it do and answer what its operation says?

Each key is put into a state, the script is run by EVAL, and its reply and all that is stored are compared
with the operation's outcome. Times to live are far apart: no test depends on how fast a machine is.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import hiredis
import redis

from lockd.core.scripts.operations import (
    Case,
    Change,
    Condition,
    ErrorReply,
    Keys,
    Left,
    Listed,
    Operation,
    Outcome,
    Place,
    Question,
    Recognised,
    Reply,
    Signal,
    Source,
    Special,
    State,
    Status,
    Text,
    Ttl,
    Unit,
)
from tests.harness.waiting import PATIENCE_S
from tests.harness.wire import request

ANOTHERS = b"another's value"
VALUE = b"the value"
BEFORE_MS = 40_000
TTLS = {Unit.MS: b"90000", Unit.SECONDS: b"500"}
SLOW_MS = 15_000
"""How long a machine may take between two looks."""
_WITH_TTL = (State.OWN, State.ANOTHERS)
_OTHER_TEXTS = (b"0", b"1", b"-1", b"", b"yes", b"7", b"12")


@dataclass(frozen=True)
class Words:
    """What comes with a script."""

    keys: list[bytes]
    arguments: list[bytes]

    def text(self, text: Text | Source, stored: bytes | None = None) -> bytes:
        """With nothing in it of how much is left."""
        if not isinstance(text, Text):
            return self.of(text)
        return b"".join(stored or b"" if part is Special.STORED else self.of(part) for part in text.parts)  # type: ignore[arg-type]

    def of(self, source: Source) -> bytes:
        found = source.of(self.keys, self.arguments) if isinstance(source, Place) else source
        assert found is not None, f"the script does without {source}"
        return found


# What to send


def words_for(script: bytes, case: Case, count: int) -> Words | None:
    """With `count` keys, so that the case is met. None: no words that are easily found do."""
    operation = case.operation
    roles = _roles(operation)
    places = {
        Place(found[1].decode(), int(found[2])) for found in re.finditer(rb"(KEYS|ARGV)\W+(\d+)", script)
    }
    texts: dict[Place, bytes] = {}
    for place in places | set(roles) | {condition.place for condition in case.when}:
        asked = [condition for condition in case.when if condition.place == place]
        text = _fitting(asked, roles.get(place, b"spare %d" % place.number))
        if text is None and any(condition.question is not Question.GIVEN for condition in asked):
            return None
        if text is not None:
            texts[place] = text
    for number in range(1, count + 1):
        texts.setdefault(Place("KEYS", number), b"lock %d" % number)
    words = _as_words(texts, count if operation.keys is not Keys.ONE else 0)
    is_met = all(condition.is_met(words.keys, words.arguments) for condition in case.when)
    return words if is_met else None


def _roles(operation: Operation) -> dict[Place, bytes]:
    roles: dict[Source | Text | None, bytes] = {operation.value: VALUE}
    if operation.signal is not None:
        signal = operation.signal
        roles |= {signal.text: b"wake up", signal.pushed_to: b"list", signal.published_on: b"channel"}
        roles |= {signal.ttl.source: TTLS[signal.ttl.unit]} if signal.ttl else {}
    roles |= {operation.ttl.source: TTLS[operation.ttl.unit]} if operation.ttl else {}
    roles |= {operation.key: b"lock 1"}
    return {place: text for place, text in roles.items() if isinstance(place, Place)}


def _fitting(conditions: Sequence[Condition], wanted: bytes) -> bytes | None:
    if any(condition.question is Question.GIVEN and not condition.holds for condition in conditions):
        return None
    asked = [condition for condition in conditions if condition.question is not Question.GIVEN]
    operands = [b"%d" % one.operand if isinstance(one.operand, int) else one.operand for one in asked]
    for text in (wanted, *operands, *_OTHER_TEXTS):
        if all(_is_met(condition, text) for condition in asked):
            return text
    return None


def _is_met(condition: Condition, text: bytes) -> bool:
    words = [text] * condition.place.number
    try:
        return condition.is_met(words, words)
    except ValueError:
        return False


def _as_words(texts: dict[Place, bytes], exactly: int) -> Words:
    lists: dict[str, list[bytes]] = {"KEYS": [], "ARGV": []}
    for place in sorted(texts):
        words = lists[place.words]
        if place.words == "KEYS" and exactly and place.number > exactly:
            continue
        words += [b"spare"] * (place.number - len(words) - 1)
        words.append(texts[place])
    return Words(lists["KEYS"], lists["ARGV"])


# The trial


@dataclass(frozen=True)
class Seen:
    """What there is after a script: text and time to live of its keys; all keys; what was published."""

    stored: dict[bytes, tuple[bytes | None, int]]
    all_keys: set[bytes]
    published: list[tuple[bytes, bytes]]


class Trial:
    """Runs scripts on one server, and says what differs."""

    def __init__(self, client: redis.Redis) -> None:
        """The client's replies are bytes."""
        self._redis = client
        self.version = tuple(map(int, client.info("server")["redis_version"].split(".")))
        client.config_set("appendonly", "no")  # nothing here has to outlive the server
        connected = client.connection_pool.connection_kwargs
        address = connected["host"], connected["port"]
        self._asks, self._hears = (socket.create_connection(address, PATIENCE_S) for _ in range(2))
        self._heard = hiredis.Reader()
        self._hears.sendall(request("PSUBSCRIBE", "*"))
        assert self._next_heard()[0] == b"psubscribe"

    def close(self) -> None:
        self._asks.close()
        self._hears.close()

    def differences(self, script: bytes, taken: Recognised) -> Iterator[str]:
        """Of all its cases, with keys in all states."""
        for case in taken.cases:
            counts = (1,) if case.operation.keys is Keys.ONE else (1, 2, 3)
            for count in counts:
                words = words_for(script, case, count)
                if words is None or not _is_in_order(case.operation, words):
                    continue
                assert case.operation == taken.operation(words.keys, words.arguments)
                for states in product(State, repeat=count):
                    yield from self._try(script, case.operation, words, states)

    def _try(
        self, script: bytes, operation: Operation, words: Words, states: Sequence[State]
    ) -> Iterator[str]:
        keys = [words.of(operation.key)] if operation.keys is Keys.ONE else words.keys
        value = words.of(operation.value) if operation.value is not None else VALUE
        before = {key: _stored_in(state, value) for key, state in zip(keys, states, strict=True)}
        with_ttl = [key for key, state in zip(keys, states, strict=True) if state in _WITH_TTL]
        reply = self._evaluate(script, words, before, with_ttl)
        seen = self._look_at(keys)
        found = f"{[state.value for state in states]}, {words}: "
        each = [operation.outcome(state) for state in states]
        outcomes, expected = _together(operation, each)
        if not is_reply(reply, expected, words, states[0], value):
            yield f"{found}answers {reply!r}, not {expected}"
        for key, state, outcome in zip(keys, states, outcomes, strict=True):
            yield from (found + text for text in self._wrong_with(seen, key, state, outcome, words, value))
        yield from (found + text for text in self._wrong_beside(seen, keys, each, words))

    def _evaluate(
        self, script: bytes, words: Words, stored: dict[bytes, bytes | None], with_ttl: Sequence[bytes]
    ) -> Any:
        """Where this is stored and nothing else. As hiredis reads it; what it doesn't tell apart is put in
        words: a simple string is a Status."""
        ends = {key: ("PX", BEFORE_MS) if key in with_ttl else () for key in stored}
        sets = [request("SET", key, text, *ends[key]) for key, text in stored.items() if text is not None]
        evaluates = request("EVAL", script, len(words.keys), *words.keys, *words.arguments)
        self._asks.sendall(b"".join([request("FLUSHALL"), *sets, evaluates]))
        prepared, reader, data = b"+OK\r\n" * (1 + len(sets)), hiredis.Reader(), b""
        while True:
            data += self._received(self._asks)
            assert data[: len(prepared)] == prepared[: len(data)], data
            if len(data) <= len(prepared):
                continue
            reader.feed(data[len(prepared) :])
            reply = reader.gets()
            if reply is not False:
                return Status(reply) if data.startswith(b"+", len(prepared)) else reply
            reader = hiredis.Reader()

    def _look_at(self, keys: Sequence[bytes]) -> Seen:
        """All in one question, which ends with a message of its own: what was published came before that."""
        of_keys = [request(word, key) for key in keys for word in ("GET", "PTTL")]
        asked = [*of_keys, request("KEYS", "*"), request("PUBLISH", "trial", "is over")]
        self._asks.sendall(b"".join(asked))
        reader, replies = hiredis.Reader(), list[Any]()
        while len(replies) < len(asked):
            reader.feed(self._received(self._asks))
            while (reply := reader.gets()) is not False:
                replies.append(reply)
        found = zip(keys, replies[: 2 * len(keys) : 2], replies[1 : 2 * len(keys) : 2], strict=True)
        stored = {key: (text, left_ms) for key, text, left_ms in found}
        return Seen(stored, set(replies[-2]), list(self._published()))

    @staticmethod
    def _received(link: socket.socket) -> bytes:
        piece = link.recv(65_536)
        assert piece, "the server has closed the connection"
        return piece

    # What became of the keys

    def _wrong_with(
        self, seen: Seen, key: bytes, state: State, outcome: Outcome, words: Words, value: bytes
    ) -> Iterator[str]:
        stored, left_ms = seen.stored[key]
        expected = _stored_after(state, outcome, value)
        if stored != expected:
            yield f"{key!r} is {stored!r}, not {expected!r}"
        if not is_about(left_ms, _left_ms_after(state, outcome, words)):
            yield f"{key!r} has {left_ms} ms left, not {_left_ms_after(state, outcome, words)}"

    def _wrong_beside(
        self, seen: Seen, keys: Sequence[bytes], each: Sequence[Outcome], words: Words
    ) -> Iterator[str]:
        signal = each[0].signal
        stored = seen.all_keys - set(keys)
        lists = {words.of(signal.pushed_to)} if signal is not None and signal.pushed_to else set()
        if stored != lists:
            yield f"it leaves {stored}, not {lists}"
        elif signal is not None and signal.pushed_to:
            yield from self._wrong_with_list(signal, words)
        on = signal.published_on if signal is not None else None
        expected = [(words.of(on), words.text(signal.text))] if on is not None and signal is not None else []
        if seen.published != expected:
            yield f"it publishes {seen.published}, not {expected}"

    def _published(self) -> Iterator[tuple[bytes, bytes]]:
        """Up to a message of its own."""
        while True:
            _, _, channel, text = self._next_heard()
            if channel == b"trial":
                return
            yield channel, text

    def _next_heard(self) -> list[Any]:
        while (heard := self._heard.gets()) is False:
            self._heard.feed(self._received(self._hears))
        return list(heard)

    def _wrong_with_list(self, signal: Signal, words: Words) -> Iterator[str]:
        assert signal.pushed_to is not None
        key = words.of(signal.pushed_to)
        items, left_ms = self._redis.lrange(key, 0, -1), self._redis.pttl(key)
        if items != [words.text(signal.text)] or not is_about(left_ms, _ms(signal.ttl, words)):
            yield f"its list is {items}, for {left_ms} ms"


def _is_in_order(operation: Operation, words: Words) -> bool:
    """A TTL is a number above 0; an operation with another is refused before anything is asked."""
    ttls = [operation.ttl, operation.signal.ttl if operation.signal else None]
    return all(words.of(ttl.source).isdigit() and int(words.of(ttl.source)) for ttl in ttls if ttl)


def _together(operation: Operation, each: Sequence[Outcome]) -> tuple[Sequence[Outcome], Reply]:
    """What becomes of each of several keys, and the reply of all."""
    changed = [outcome for outcome in each if outcome.change is not Change.NONE]
    if operation.keys is Keys.EACH:
        return each, len(changed)
    refused = [outcome for outcome in each if outcome.change is Change.NONE]
    if operation.keys is Keys.ALL and refused:
        return [Outcome(Change.NONE, refused[0].reply)] * len(each), refused[0].reply
    return each, len(each) if each[0].reply is Special.KEYS else each[0].reply


def _stored_after(state: State, outcome: Outcome, value: bytes) -> bytes | None:
    if outcome.change is Change.DELETED:
        return None
    if outcome.change is Change.SET:
        return value
    return _stored_in(state, value)


def _stored_in(state: State, value: bytes) -> bytes | None:
    if state is State.FREE:
        return None
    return value if state in (State.OWN, State.OWN_ENDLESS) else ANOTHERS


def _left_ms_before(state: State) -> int:
    return {State.FREE: -2, State.OWN: BEFORE_MS, State.ANOTHERS: BEFORE_MS}.get(state, -1)


def _left_ms_after(state: State, outcome: Outcome, words: Words) -> int:
    if outcome.change is Change.NONE:
        return _left_ms_before(state)
    if outcome.change is Change.DELETED:
        return -2
    if outcome.ttl is not None and not outcome.ttl.is_set(_ms(outcome.ttl, words), _left_or_none(state)):
        return _left_ms_before(state)
    added = BEFORE_MS if outcome.ttl is not None and outcome.ttl.adds else 0
    return _ms(outcome.ttl, words) + added


def _left_or_none(state: State) -> int | None:
    return BEFORE_MS if state in _WITH_TTL else None


def _ms(ttl: Ttl | None, words: Words) -> int:
    return -1 if ttl is None else int(words.of(ttl.source)) * (1 if ttl.unit is Unit.MS else 1000)


def is_about(left_ms: int, expected_ms: int) -> bool:
    """Some time has gone by."""
    if expected_ms < 0:
        return left_ms == expected_ms
    return expected_ms - SLOW_MS <= left_ms <= expected_ms + 2


def is_reply(reply: Any, expected: Reply, words: Words, state: State, value: bytes) -> bool:
    """Whether what was read is what is said."""
    match expected:
        case Special.NIL:
            return reply is None
        case Special.STORED:
            return bool(reply == _stored_in(state, value))
        case Special.KEYS:
            return bool(reply == 1)
        case Special.IS_SET:
            return reply in (0, 1)
        case Left():
            ms = reply * (1 if expected is Left.MS else 1000) if isinstance(reply, int) else -1
            return is_about(ms, BEFORE_MS)
        case ErrorReply(text):
            told = words.text(text, _stored_in(state, value)).decode()
            return isinstance(reply, hiredis.ReplyError) and told in str(reply)
        case Status(text):
            return reply == Status(text)
        case Listed(items):
            pairs = zip(reply, items, strict=True) if isinstance(reply, list) else ()
            return isinstance(reply, list) and all(is_reply(*pair, words, state, value) for pair in pairs)
        case Place():
            return bool(reply == words.of(expected))
    return type(reply) is type(expected) and bool(reply == expected)
