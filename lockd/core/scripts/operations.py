"""What a script is recognised as: values that describe it completely, so that a server can do it without the
script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum


class Unit(Enum):
    MS = "ms"
    SECONDS = "s"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One of the strings that come with the script: `KEYS[1]` is Place("KEYS", 1)."""

    words: str
    number: int

    def __str__(self) -> str:
        return f"{self.words}[{self.number}]"

    def of(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> bytes | None:
        """The string there; None when there are fewer."""
        words = keys if self.words == "KEYS" else arguments
        return words[self.number - 1] if self.number <= len(words) else None


Source = Place | bytes
"""Where a string comes from: with the script, or out of it."""


def shown(source: Source) -> str:
    return str(source) if isinstance(source, Place) else f'"{source.decode("ascii", "backslashreplace")}"'


class Only(Enum):
    """A TTL is set only if it is more than what is left (GT), or less (LT)."""

    LONGER = "if longer"
    SHORTER = "if shorter"


@dataclass(frozen=True, slots=True)
class Ttl:
    """A time to live. `adds`: it is added to what is left, instead of replacing it."""

    source: Source
    unit: Unit
    adds: bool = False
    only: Only | None = None

    def __str__(self) -> str:
        text = f"{shown(self.source)} {self.unit.value}"
        text += f" {self.only.value}" if self.only else ""
        return f"what is left and {text}" if self.adds else text

    def is_set(self, ttl_ms: int, left_ms: int | None) -> bool:
        """Whether a key gets it that has so much left; None: it has no TTL."""
        if self.only is Only.LONGER:
            return left_ms is not None and ttl_ms > left_ms
        return self.only is None or left_ms is None or ttl_ms < left_ms


class State(Enum):
    """The state in which a key may be found. Own: with the script's value."""

    FREE = "free"
    OWN = "own"
    OWN_ENDLESS = "own without TTL"
    ANOTHERS = "another's"
    ANOTHERS_ENDLESS = "another's without TTL"


OWN = (State.OWN, State.OWN_ENDLESS)
ANOTHERS = (State.ANOTHERS, State.ANOTHERS_ENDLESS)


class Change(Enum):
    """What is done to a key."""

    NONE = "nothing"
    SET = "set to the value"
    DELETED = "deleted"
    TTL = "given another TTL"
    ENDLESS = "relieved of its TTL"


class Left(Enum):
    """The reply is the remaining TTL of the key, as PTTL or TTL gives it."""

    MS = "ms"
    SECONDS = "s"

    def __str__(self) -> str:
        return f"what is left, in {self.value}"


@dataclass(frozen=True, slots=True)
class Status:
    """A simple string, such as OK."""

    text: bytes

    def __str__(self) -> str:
        return self.text.decode("ascii", "backslashreplace")


class Special(Enum):
    NIL = "nil"
    STORED = "what is stored"
    KEYS = "how many keys"
    """The number of keys on which it was done."""
    IS_SET = "1 if it was set, else 0"
    """A TTL that is set only if it is longer, or shorter."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Text:
    """Put together from strings in the script, strings that come with it, and what is found."""

    parts: tuple[Source | Left | Special, ...]

    def __str__(self) -> str:
        return " ".join(map(reply_text, self.parts))


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error; how Redis completes its text depends on its version."""

    text: Text

    def __str__(self) -> str:
        if len(self.text.parts) == 1 and isinstance(self.text.parts[0], bytes):
            return f"error {self.text.parts[0].decode('ascii', 'backslashreplace')}"
        return f"error {self.text}"


@dataclass(frozen=True, slots=True)
class Listed:
    items: tuple[Reply, ...]

    def __str__(self) -> str:
        return f"[{', '.join(map(reply_text, self.items))}]"


Reply = int | bytes | Place | Left | Status | ErrorReply | Special | Listed
"""An integer, a string, or one of the classes above. Place: the string at that place."""


def reply_text(reply: Reply | Text) -> str:
    return shown(reply) if isinstance(reply, bytes) else str(reply)


@dataclass(frozen=True, slots=True)
class Signal:
    """What wakes waiting clients. It is part of one transaction with the change.

    pushed_to: a list that then has this text as its only item, for `ttl`; otherwise `published_on`, a
    channel.
    """

    text: Source | Text
    pushed_to: Place | None = None
    published_on: Source | None = None
    ttl: Ttl | None = None

    def __str__(self) -> str:
        if self.pushed_to is None:
            return f"{reply_text(self.text)} is published on {shown(self.published_on or b'')}"
        text = f"{reply_text(self.text)} is the only item of the list {self.pushed_to}"
        return f"{text}, for {self.ttl}" if self.ttl else text


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a script for a key in some state. `ttl`: the TTL that was set, or that the key was set
    with."""

    change: Change
    reply: Reply
    ttl: Ttl | None = None
    signal: Signal | None = None


class Kind(Enum):
    """The operations."""

    ACQUIRE = "acquire"
    ACQUIRE_OR_EXTEND = "acquire or extend"
    RELEASE = "release"
    EXTEND = "extend"
    PERSIST = "persist"
    DELETE = "delete"
    READ = "read"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Kind.ACQUIRE: "sets the key to the value, with a TTL or without, if the key is free",
    Kind.ACQUIRE_OR_EXTEND: "acquire; and the key's TTL is set anew if it is there with the value",
    Kind.RELEASE: "deletes the key if it is there with the value",
    Kind.EXTEND: "sets the key's TTL anew, or adds to it, if it is there with the value",
    Kind.PERSIST: "takes the TTL away from the key if it is there with the value",
    Kind.DELETE: "deletes the key, whatever its value",
    Kind.READ: "changes nothing: who holds it, how much is left",
}


class Keys(Enum):
    """How many keys an operation is for."""

    ONE = "one key"
    ALL = "all keys, or none of them"
    EACH = "each key by itself"


@dataclass(frozen=True, slots=True)
class Operation:
    """The whole operation: what is done and answered for a key in each state, in the order of State.

    value: None when none is compared or set. With several keys, `key` is the first of them, the outcomes are
    those of each key, and the reply for all together is the one given, or Special.KEYS.

    This holds if all its places are given, keys and the signal's list are different strings, and a TTL is a
    whole number above 0. Otherwise Redis may report an error, or do something else, so the server checks that
    first.
    """

    kind: Kind
    key: Place
    value: Source | None
    keys: Keys
    outcomes: tuple[Outcome, ...]

    ttl: Ttl | None = field(init=False)
    """The TTL; there is only one."""
    signal: Signal | None = field(init=False)
    """The signal; there is only one."""

    def __post_init__(self) -> None:
        # Found once: the server needs them for each lock.
        ttl = next((outcome.ttl for outcome in self.outcomes if outcome.ttl), None)
        signal = next((outcome.signal for outcome in self.outcomes if outcome.signal), None)
        object.__setattr__(self, "ttl", ttl)
        object.__setattr__(self, "signal", signal)

    def outcome(self, state: State) -> Outcome:
        return self.outcomes[_AT[state]]


_AT = {state: at for at, state in enumerate(State)}


class Question(Enum):
    """What a script may ask about a string that comes with it, before it decides what to do."""

    GIVEN = "is given"
    IS = "is"
    IS_NUMBER = "is the number"
    ABOVE = "is above"
    BELOW = "is below"


_NUMBER = re.compile(rb"-?[0-9]{1,15}(\.[0-9]{1,15})?")


@dataclass(frozen=True, slots=True)
class Condition:
    """`place` is asked this, and `holds` is the answer."""

    place: Place
    question: Question
    operand: bytes | int = b""
    holds: bool = True

    def __str__(self) -> str:
        operand = "" if self.question is Question.GIVEN else f" {_operand_text(self.operand)}"
        return f"{'' if self.holds else 'not: '}{self.place} {self.question.value}{operand}"

    def is_met(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> bool:
        """Raises ValueError if the script would fail, or may: something that is compared as a number is not
        one."""
        text = self.place.of(keys, arguments)
        if self.question is Question.GIVEN:
            return (text is not None) is self.holds
        if self.question is Question.IS:
            return (text == self.operand) is self.holds
        if text is None or not _NUMBER.fullmatch(text):
            raise ValueError(f"{self.place} is not a number")
        return self._compares(float(text)) is self.holds

    def _compares(self, number: float) -> bool:
        assert isinstance(self.operand, int)
        if self.question is Question.IS_NUMBER:
            return number == self.operand
        return number > self.operand if self.question is Question.ABOVE else number < self.operand


def _operand_text(operand: bytes | int) -> str:
    return str(operand) if isinstance(operand, int) else shown(operand)


@dataclass(frozen=True, slots=True)
class Case:
    """What a script is when all of these hold."""

    when: tuple[Condition, ...]
    operation: Operation


@dataclass(frozen=True, slots=True)
class Recognised:
    """The cases cover everything, and no two hold together."""

    cases: tuple[Case, ...]

    def operation(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Operation:
        """The case that holds with these strings. Raises ValueError as Condition.is_met does."""
        for case in self.cases:
            if all(condition.is_met(keys, arguments) for condition in case.when):
                return case.operation
        raise ValueError("no case of the script")


@dataclass(frozen=True, slots=True)
class NotRecognised:
    """`normal_form`: the script without comments, spelling and names; empty if it can't even be split into
    Lua's tokens."""

    why: str
    normal_form: str
