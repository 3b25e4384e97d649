"""What a script would ask of Redis about keys in some given state, and what it would change.

The state is all that is known of a key: whether its value is the script's own or another, and whether the
remaining TTL is above zero. The commands answer as Redis does in that state. Each key may be changed once (a
TTL that is set after SETNX is one change with it): deleting and setting again is not an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from lockd.core.scripts.errors import NotRecognisedError
from lockd.core.scripts.operations import (
    Change,
    Left,
    Only,
    Place,
    Signal,
    Source,
    Special,
    Status,
    Text,
    Ttl,
    Unit,
    shown,
)
from lockd.core.scripts.values import (
    UNITS,
    Counted,
    KeysTogether,
    Later,
    Number,
    Unused,
    Value,
    Whose,
    as_source,
)

OK = Status(b"OK")


class Remaining(Enum):
    """The remaining TTL of a key: it is only known whether PTTL and TTL are above 0."""

    NEITHER = (False, False)
    IN_MS = (True, False)
    """TTL rounds it to 0."""
    BOTH = (True, True)

    def is_above_zero(self, left: Left) -> bool:
        in_ms, in_seconds = self.value
        return in_ms if left is Left.MS else in_seconds


@dataclass(frozen=True, slots=True)
class Found:
    """The state of a key before the script. remaining: None where it has no TTL."""

    whose: Whose | None
    remaining: Remaining | None = None


class TouchedError(Exception):
    """The script touches a key that is not among those given."""

    def __init__(self, place: Place) -> None:
        super().__init__(str(place))
        self.place = place


@dataclass(slots=True)
class Key:
    """One key of a lock, and what was done to it. is_left_asked: what was done may depend on the remaining
    TTL."""

    found: Found
    whose: Whose | None = field(init=False)
    change: Change = Change.NONE
    ttl: Ttl | None = None
    is_left_asked: bool = False

    def __post_init__(self) -> None:
        self.whose = self.found.whose

    def changes(self, change: Change, ttl: Ttl | None = None) -> None:
        is_setting = self.change is Change.SET and self.ttl is None and change is Change.TTL
        if self.change is not Change.NONE and not is_setting:
            raise NotRecognisedError("it changes a key twice")
        self.change = Change.SET if is_setting else change
        self.ttl = ttl

    @property
    def remaining(self) -> Remaining | None:
        if self.change in (Change.SET, Change.TTL, Change.ENDLESS):
            raise NotRecognisedError("it asks for the TTL that it has set")
        self.is_left_asked = True
        return self.found.remaining


class Keyspace:
    """The keys of one reading.

    list_key: the key that is a list, whatever it was before. value: the script's own value, learnt from what
    the script compares and sets. asked: all TTLs in commands, even those that had no effect: Redis reads each
    of them first.
    """

    def __init__(self, keys: Mapping[Place, Found], list_key: Place | None) -> None:
        self.keys = {place: Key(found) for place, found in keys.items()}
        self.value: Source | None = None
        self.asked: set[Ttl] = set()
        self._list_key = list_key
        self._pushed: list[tuple[bytes, Source | Ttl | None]] = []
        self._published: list[Signal] = []

    # What the script knows

    def is_own(self, whose: Whose, source: Source) -> bool:
        """Whether the stored value equals that string."""
        self._learn(source)
        return whose is Whose.OWN

    def is_above_zero(self, left: Left) -> bool:
        """Whether the remaining TTL of the only key is above zero."""
        [key] = self.keys.values()
        key.is_left_asked = True
        return key.found.remaining is not None and key.found.remaining.is_above_zero(left)

    def _learn(self, source: Source) -> None:
        if self.value is None:
            self.value = source
        if self.value != source:
            raise NotRecognisedError(f"{shown(self.value)} and {shown(source)} are two values for one key")

    # What was done besides changing the keys

    def signal(self) -> Signal | None:
        signals = [*self._published, *([self._list_signal()] if self._pushed else [])]
        if len(signals) > 1:
            raise NotRecognisedError("it sends more than one signal")
        return signals[0] if signals else None

    def _list_signal(self) -> Signal:
        """The two ways to leave one item in the list."""
        names = [name for name, _ in self._pushed]
        said = dict(self._pushed)
        text, ttl = said.get(b"LPUSH"), said.get(b"EXPIRE")
        if names not in ([b"DEL", b"LPUSH", b"EXPIRE"], [b"LPUSH", b"LTRIM"]) or isinstance(text, Ttl):
            raise NotRecognisedError("it does not use its list for exactly one item, for waiters")
        assert text is not None
        assert ttl is None or isinstance(ttl, Ttl)
        return Signal(text, pushed_to=self._list_key, ttl=ttl)

    # Commands

    def run(self, words: list[Value]) -> Value:
        """The answer to a command. Raises NotRecognisedError, and TouchedError."""
        name = words[0].upper() if words and isinstance(words[0], bytes) else b""
        if name == b"PUBLISH":
            return self._publish(words[1:])
        place = words[1] if len(words) > 1 else None
        if isinstance(place, Place) and place == self._list_key:
            return self._run_on_list(name, words[2:])
        if name not in _COMMANDS:
            raise NotRecognisedError(f"{_named(name)} is not a command of any known operation")
        if isinstance(place, KeysTogether):
            return self._run_on_all(name, place.count, words[2:])
        if isinstance(place, Text):
            raise NotRecognisedError(f"{_named(name)} uses a key that is put together: put it whole in KEYS")
        if not isinstance(place, Place):
            raise NotRecognisedError(f"{_named(name)} uses a key that is not passed to the script")
        return _COMMANDS[name](self, self._key(place), words[2:])

    def _run_on_all(self, name: bytes, count: int, words: list[Value]) -> Value:
        if name not in (b"DEL", b"UNLINK", b"EXISTS"):
            raise NotRecognisedError(f"{_named(name)} of all KEYS together")
        keys = [self._key(Place("KEYS", number)) for number in range(1, count + 1)]
        done = sum(_COMMANDS[name](self, key, words) == 1 for key in keys)
        return Counted(done) if done else 0

    def _key(self, place: Place) -> Key:
        if place not in self.keys:
            raise TouchedError(place)
        return self.keys[place]

    def _publish(self, words: list[Value]) -> Value:
        channel, text = _exactly(2, words, "PUBLISH")
        said = text if isinstance(text, Text) else as_source(text, "what is published")
        signal = Signal(said, published_on=as_source(channel, "the channel"))
        self._published.append(signal)
        return Unused.RESULT

    def _run_on_list(self, name: bytes, words: list[Value]) -> Value:
        """DEL, LPUSH, LTRIM key 0 0, (P)EXPIRE."""
        said: Source | Ttl | None = None
        if name == b"LPUSH":
            said = as_source(_exactly(1, words, "LPUSH")[0], "what is pushed")
        elif name in (b"EXPIRE", b"PEXPIRE"):
            said = self._ttl(_exactly(1, words, _named(name))[0], _UNITS[name])
            name = b"EXPIRE"
        elif name == b"LTRIM" and [as_source(word, "a limit") for word in words] != [b"0", b"0"]:
            raise NotRecognisedError("its list keeps more than one item")
        elif name == b"DEL":
            _exactly(0, words, "DEL")
        self._pushed.append((name, said))
        return Unused.RESULT

    def _ttl(self, value: Value, unit: Unit, only: Only | None = None) -> Ttl:
        ttl = replace(_ttl(value, unit), only=only)
        self.asked.add(ttl)
        return ttl

    def _get(self, key: Key, words: list[Value]) -> Value:
        _exactly(0, words, "GET")
        return key.whose or False

    def _exists(self, key: Key, words: list[Value]) -> Value:
        _exactly(0, words, "EXISTS")
        return int(key.whose is not None)

    def _pttl(self, key: Key, words: list[Value]) -> Value:
        return self._left(key, words, Left.MS)

    def _seconds_left(self, key: Key, words: list[Value]) -> Value:
        return self._left(key, words, Left.SECONDS)

    def _left(self, key: Key, words: list[Value], left: Left) -> Value:
        _exactly(0, words, "TTL")
        if len(self.keys) > 1:
            raise NotRecognisedError("it asks for the TTL of one of several keys")
        if key.whose is None:
            return -2
        return -1 if key.remaining is None else left

    def _delete(self, key: Key, words: list[Value]) -> Value:
        _exactly(0, words, "DEL")
        if key.whose is None:
            return 0
        key.changes(Change.DELETED)
        key.whose = None
        return 1

    def _getdel(self, key: Key, words: list[Value]) -> Value:
        stored = self._get(key, words)
        self._delete(key, words)
        return stored

    def _expire(self, key: Key, words: list[Value]) -> Value:
        return self._set_ttl(key, words, Unit.SECONDS)

    def _pexpire(self, key: Key, words: list[Value]) -> Value:
        return self._set_ttl(key, words, Unit.MS)

    def _set_ttl(self, key: Key, words: list[Value], unit: Unit) -> Value:
        """NX and XX ask whether it has a TTL; GT and LT, how much is left."""
        option = words.pop() if len(words) == 2 else b""
        name = option.upper() if isinstance(option, bytes) else b"?"
        if name not in (b"", b"NX", b"XX", *_ONLY):
            raise NotRecognisedError(f"EXPIRE with the option {_named(name)}")
        ttl = self._ttl(_exactly(1, words, "EXPIRE")[0], unit, _ONLY.get(name))
        if key.whose is None or (name and self._is_spared(key, name)):
            return 0
        key.changes(Change.TTL, ttl)
        return 1 if ttl.only is None else Special.IS_SET

    @staticmethod
    def _is_spared(key: Key, option: bytes) -> bool:
        is_endless = key.change is Change.SET or key.remaining is None
        return is_endless is (option != b"NX") and option != b"LT"

    def _persist(self, key: Key, words: list[Value]) -> Value:
        _exactly(0, words, "PERSIST")
        if key.whose is None or key.remaining is None:
            return 0
        key.changes(Change.ENDLESS)
        return 1

    def _setnx(self, key: Key, words: list[Value]) -> Value:
        [value] = _exactly(1, words, "SETNX")
        return int(self._set_to(key, value, None, only_if=None) is OK)

    def _psetex(self, key: Key, words: list[Value]) -> Value:
        ttl, value = _exactly(2, words, "PSETEX")
        return self._set_to(key, value, self._ttl(ttl, Unit.MS), only_if=key.whose)

    def _setex(self, key: Key, words: list[Value]) -> Value:
        ttl, value = _exactly(2, words, "SETEX")
        return self._set_to(key, value, self._ttl(ttl, Unit.SECONDS), only_if=key.whose)

    def _set(self, key: Key, words: list[Value]) -> Value:
        if not words:
            raise NotRecognisedError("SET without a value")
        options = _SetOptions(words[1:])
        self.asked |= {options.ttl} if options.ttl else set()
        is_there = key.whose is not None
        if options.must_be_there is not None and options.must_be_there is not is_there:
            self._learn(as_source(words[0], "the value"))
            return False
        return self._set_to(key, words[0], options.ttl, only_if=key.whose)

    def _set_to(self, key: Key, value: Value, ttl: Ttl | None, only_if: Whose | None) -> Value:
        """only_if: whose value has to be stored for this to work; None: the key has to be free (SETNX)."""
        self._learn(as_source(value, "the value"))
        if key.whose is not only_if:
            return False
        if key.whose is Whose.ANOTHERS:
            raise NotRecognisedError("it overwrites another's value")
        if key.whose is None:
            key.changes(Change.SET, ttl)
        elif ttl is not None:
            key.changes(Change.TTL, ttl)
        elif key.remaining is not None:
            key.changes(Change.ENDLESS)
        key.whose = Whose.OWN
        return OK


class _SetOptions:
    """[NX | XX] [PX ms | EX s]. must_be_there: None if it doesn't matter."""

    def __init__(self, words: list[Value]) -> None:
        self.must_be_there: bool | None = None
        self.ttl: Ttl | None = None
        rest = iter(words)
        for word in rest:
            name = word.upper() if isinstance(word, bytes) else b""
            if name in (b"NX", b"XX") and self.must_be_there is None:
                self.must_be_there = name == b"XX"
            elif name in (b"PX", b"EX") and self.ttl is None:
                self.ttl = _ttl(next(rest, None), _UNITS[name])
            else:
                raise NotRecognisedError(f"SET with the option {_named(name)}")


_UNITS = {b"PX": Unit.MS, b"EX": Unit.SECONDS, b"PEXPIRE": Unit.MS, b"EXPIRE": Unit.SECONDS}


_ONLY = {b"GT": Only.LONGER, b"LT": Only.SHORTER}


def _ttl(value: Value, unit: Unit) -> Ttl:
    if isinstance(value, Later) and UNITS[value.left] is unit and value.number.factor == 1:
        return Ttl(value.number.place, unit, adds=True)
    if isinstance(value, Number) and value.factor == 1:
        return Ttl(value.place, unit)
    if isinstance(value, Number) and value.factor == 1000 and unit is Unit.MS:
        return Ttl(value.place, Unit.SECONDS)
    source = as_source(value, "the TTL")
    if isinstance(source, bytes) and not (source.isdigit() and len(source) < 16 and int(source)):
        raise NotRecognisedError("a TTL is a whole number above 0")
    return Ttl(source, unit)


def _exactly(count: int, words: list[Value], command: str) -> list[Value]:
    if len(words) != count:
        raise NotRecognisedError(
            f"{command} with {len(words)} words after the key is not part of any operation"
        )
    return words


def _named(name: bytes) -> str:
    return name.decode("ascii", "backslashreplace") or "a value that is not written in the script"


_COMMANDS: dict[bytes, Callable[[Keyspace, Key, list[Value]], Value]] = {
    b"GET": Keyspace._get,
    b"EXISTS": Keyspace._exists,
    b"PTTL": Keyspace._pttl,
    b"TTL": Keyspace._seconds_left,
    b"DEL": Keyspace._delete,
    b"UNLINK": Keyspace._delete,
    b"GETDEL": Keyspace._getdel,
    b"PEXPIRE": Keyspace._pexpire,
    b"EXPIRE": Keyspace._expire,
    b"PERSIST": Keyspace._persist,
    b"SET": Keyspace._set,
    b"SETNX": Keyspace._setnx,
    b"PSETEX": Keyspace._psetex,
    b"SETEX": Keyspace._setex,
}

COMMANDS = tuple(name.decode() for name in (*_COMMANDS, b"LPUSH", b"LTRIM", b"PUBLISH"))
"""All commands that are followed. LPUSH and LTRIM are for a list beside the lock, PUBLISH for any channel."""
