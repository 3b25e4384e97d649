"""What a script does with a key in each state, and what it answers.

The states are enough. The most that a script can find out is whether a value is its own and whether the
remaining TTL is above 0: any other question ends the reading.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from lockd.core.scripts.comparisons import Asked, Assumed
from lockd.core.scripts.errors import NotRecognisedError
from lockd.core.scripts.evaluation import Evaluation, Steps
from lockd.core.scripts.functions import as_reply
from lockd.core.scripts.keyspace import Found, Key, Keyspace, Remaining, TouchedError
from lockd.core.scripts.operations import (
    Change,
    Keys,
    Left,
    Outcome,
    Place,
    Reply,
    Signal,
    Source,
    Special,
    State,
    Ttl,
)
from lockd.core.scripts.syntax import Block, list_pushed_to
from lockd.core.scripts.values import Counted, Value, Whose

_FOUND = {
    State.FREE: (Found(None),),
    State.OWN: tuple(Found(Whose.OWN, remaining) for remaining in Remaining),
    State.OWN_ENDLESS: (Found(Whose.OWN),),
    State.ANOTHERS: tuple(Found(Whose.ANOTHERS, remaining) for remaining in Remaining),
    State.ANOTHERS_ENDLESS: (Found(Whose.ANOTHERS),),
}
"""Each state, with all ways in which a key can be in it."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """key: the only one, or the first. outcomes: in the order of State. asked: all TTLs that commands had,
    whether or not they changed anything."""

    key: Place
    value: Source | None
    keys: Keys
    outcomes: tuple[Outcome, ...]
    asked: frozenset[Ttl]


@dataclass(frozen=True, slots=True)
class _Reading:
    """The result of one reading."""

    found: tuple[Found, ...]
    keys: tuple[Key, ...]
    returned: Value
    signal: Signal | None
    value: Source | None
    counts_keys: bool
    asked: frozenset[Ttl]

    def changes(self) -> list[tuple[Change, Ttl | None]]:
        return [(key.change, key.ttl) for key in self.keys]

    def outcome(self) -> Outcome:
        """The outcome for its only key."""
        [key] = self.keys
        return Outcome(key.change, as_reply(self.returned), key.ttl, self.signal)


@dataclass(frozen=True, slots=True)
class _Known:
    """A reading, with everything that it depended on. found: None if the remaining TTL made no difference."""

    reading: _Reading
    used: Assumed
    taken_as_given: frozenset[Asked]
    found: tuple[Found, ...] | None

    def is_as_with(self, assumed: Assumed, found: tuple[Found, ...]) -> bool:
        return (
            self.found in (None, found)
            and all(assumed.get(asked) is holds for asked, holds in self.used.items())
            and all(assumed.get(asked, True) for asked in self.taken_as_given)
        )


_Keys = tuple[tuple[Place, Whose | None], ...]


class Script:
    """What all cases of a script share. A reading that would have the same result is not done again."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.list_key = list_pushed_to(block)
        self.steps = Steps()
        self._known: defaultdict[_Keys, list[_Known]] = defaultdict(list)

    def known(self, keys: _Keys, found: tuple[Found, ...], assumed: Assumed) -> _Reading | None:
        fitting = (known.reading for known in self._known[keys] if known.is_as_with(assumed, found))
        return next(fitting, None)

    def knows(self, keys: _Keys, reading: _Reading, evaluation: Evaluation) -> None:
        is_left_asked = any(key.is_left_asked for key in reading.keys)
        found = reading.found if is_left_asked else None
        taken_as_given = frozenset(evaluation.taken_as_given)
        self._known[keys].append(_Known(reading, evaluation.used, taken_as_given, found))


class Reader:
    """Reads one script, under assumptions."""

    def __init__(self, script: Script, assumed: Assumed) -> None:
        self._script = script
        self._assumed = assumed

    def meaning(self) -> Meaning:
        """Raises NotRecognisedError, and UndecidedError."""
        key = self._first_key()
        readings = {state: [self._read([key], [way]) for way in ways] for state, ways in _FOUND.items()}
        outcomes = {state: _only_outcome(of_state) for state, of_state in readings.items()}
        every = [reading for of_state in readings.values() for reading in of_state]
        counts_keys = any(reading.counts_keys for reading in every)
        keys = self._keys_of_many(key, outcomes) if counts_keys else Keys.ONE
        asked = frozenset(ttl for reading in every for ttl in reading.asked)
        return Meaning(key, _only_value(every), keys, tuple(outcomes.values()), asked)

    def _first_key(self) -> Place:
        """They are found by not telling it of any key."""
        try:
            self._read([], [])
        except TouchedError as touched:
            return touched.place
        raise NotRecognisedError("it uses no key")

    def _read(self, places: Sequence[Place], found: Sequence[Found]) -> _Reading:
        """places: the keys of the lock. Touching another key ends the reading."""
        script, ways = self._script, tuple(found)
        keys = tuple((place, way.whose) for place, way in zip(places, ways, strict=True))
        known = script.known(keys, ways, self._assumed)
        if known is not None:
            return known
        keyspace = Keyspace(dict(zip(places, ways, strict=True)), script.list_key)
        evaluation = Evaluation(keyspace, max(len(places), 1), self._assumed, script.steps)
        reading = self._evaluated(evaluation, keyspace, ways)
        script.knows(keys, reading, evaluation)
        return reading

    def _evaluated(self, evaluation: Evaluation, keyspace: Keyspace, found: tuple[Found, ...]) -> _Reading:
        try:
            returned = evaluation.returned(self._script.block)
        except TouchedError as touched:
            if not found:
                raise
            raise NotRecognisedError(f"it also uses {touched.place}") from None
        return _Reading(
            found,
            tuple(keyspace.keys.values()),
            returned,
            keyspace.signal(),
            keyspace.value,
            evaluation.counts_keys,
            frozenset(keyspace.asked),
        )

    # Several keys

    def _keys_of_many(self, first: Place, outcomes: Mapping[State, Outcome]) -> Keys:
        """What holds for two keys, in all states, holds for any number of them: a loop does the same with
        each, and only a count, or the end of the script, goes on from one to the next."""
        if first != Place("KEYS", 1) or all(outcome.change is Change.NONE for outcome in outcomes.values()):
            raise NotRecognisedError("it has several keys and changes none of them")
        readings = [
            (self._read_in(states), [outcomes[state] for state in states])
            for states in product(State, repeat=2)
        ]
        for keys, is_so in ((Keys.ALL, _is_of_all), (Keys.EACH, _is_of_each)):
            if all(is_so(reading, each) and reading.signal is None for reading, each in readings):
                return keys
        raise NotRecognisedError("it is neither of all keys together nor of each by itself")

    def _read_in(self, states: Sequence[State]) -> _Reading:
        places = [Place("KEYS", number) for number in range(1, len(states) + 1)]
        return self._read(places, [_FOUND[state][-1] for state in states])


def _only_outcome(readings: Sequence[_Reading]) -> Outcome:
    """The outcome for a state: the same in all ways to be in it."""
    *others, last = readings
    outcome = last.outcome()
    if not all(_is_the_same(reading, outcome) for reading in others):
        raise NotRecognisedError("what it does depends on how much is left")
    return outcome


def _is_the_same(reading: _Reading, outcome: Outcome) -> bool:
    """A 0 for the remaining TTL stands for the remaining TTL if that is 0."""
    own = reading.outcome()
    if own.reply == 0 and isinstance(outcome.reply, Left):
        [found] = reading.found
        is_zero = found.remaining is not None and not found.remaining.is_above_zero(outcome.reply)
        own = Outcome(own.change, outcome.reply if is_zero else 0, own.ttl, own.signal)
    return own == outcome


def _only_value(readings: Sequence[_Reading]) -> Source | None:
    values = {reading.value for reading in readings} - {None}
    if len(values) > 1:
        raise NotRecognisedError("it has two values for one key")
    return next(iter(values), None)


def _is_of_all(reading: _Reading, each: Sequence[Outcome]) -> bool:
    """All keys are changed if each of them alone would be, else none; any refusal stands for all."""
    refusals = [outcome for outcome in each if outcome.change is Change.NONE]
    if refusals:
        is_changed = any(change is not Change.NONE for change, _ in reading.changes())
        return not is_changed and all(_is_reply(reading.returned, refusal.reply, 0) for refusal in refusals)
    return _is_changed_so(reading, each) and all(
        _is_reply(reading.returned, outcome.reply, len(each)) for outcome in each
    )


def _is_of_each(reading: _Reading, each: Sequence[Outcome]) -> bool:
    """Each key is changed as if it were alone, and the reply is how many were."""
    changed = [outcome for outcome in each if outcome.change is not Change.NONE]
    rest = [outcome.reply for outcome in each if outcome.change is Change.NONE]
    if any(outcome.reply is not Special.KEYS for outcome in changed) or any(reply != 0 for reply in rest):
        return False
    return _is_changed_so(reading, each) and _is_reply(reading.returned, Special.KEYS, len(changed))


def _is_changed_so(reading: _Reading, each: Sequence[Outcome]) -> bool:
    return reading.changes() == [(outcome.change, outcome.ttl) for outcome in each]


def _is_reply(returned: Value, reply: Reply, count: int) -> bool:
    """count: the value of Special.KEYS."""
    if reply is Special.KEYS:
        return returned in (count, Counted(count)) if count == 0 else returned == Counted(count)
    return as_reply(returned) == reply
