"""From Lua source to operations: the entry point.

A meaning is an operation because of what it does in every state. What it answers is up to the script, and
becomes part of the operation as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from lockd.core.scripts.comparisons import Assumed, UndecidedError
from lockd.core.scripts.errors import NotRecognisedError
from lockd.core.scripts.meaning import Meaning, Reader, Script
from lockd.core.scripts.normal_form import normal_form
from lockd.core.scripts.operations import (
    ANOTHERS,
    Case,
    Change,
    Condition,
    Keys,
    Kind,
    NotRecognised,
    Operation,
    Outcome,
    Place,
    Recognised,
    State,
)
from lockd.core.scripts.other_data import with_cause
from lockd.core.scripts.parser import parsed
from lockd.core.scripts.tokens import Token, tokens_of, writes_nothing

MOST_CONDITIONS = 3
"""How many conditions a script may ask about, one after the other."""


def recognise(script: bytes) -> Recognised | NotRecognised:
    """What the script is. It takes time in proportion to the script's length, and never fails."""
    tokens: list[Token] = []
    try:
        tokens = tokens_of(script)
        cases = list(_cases(Script(parsed(tokens)), {}))
        if writes_nothing(script) and any(case.operation.kind is not Kind.READ for case in cases):
            raise NotRecognisedError("it writes, and its first line says no-writes")
        return Recognised(_simplified(cases))
    except NotRecognisedError as error:
        return NotRecognised(with_cause(str(error), tokens), normal_form(tokens))


def _cases(script: Script, assumed: Assumed) -> Iterator[Case]:
    """All cases: each condition that it asks about is assumed both ways."""
    try:
        meaning = Reader(script, assumed).meaning()
    except UndecidedError as undecided:
        if len(assumed) == MOST_CONDITIONS:
            raise NotRecognisedError("it has too many conditions") from None
        for holds in (True, False):
            yield from _cases(script, {**assumed, undecided.asked: holds})
        return
    when = tuple(Condition(*asked, holds=holds) for asked, holds in assumed.items())
    yield Case(when, _operation(meaning))


def _simplified(cases: list[Case]) -> tuple[Case, ...]:
    """Without conditions that make no difference."""
    if len({case.operation for case in cases}) == 1:
        return (Case((), cases[0].operation),)
    return tuple(cases)


def _operation(meaning: Meaning) -> Operation:
    outcomes = dict(zip(State, meaning.outcomes, strict=True))
    kind = _kind(outcomes)
    if kind is None:
        raise NotRecognisedError(f"it is not one of the known operations: {_told(outcomes)}")
    _check_signals(outcomes, kind)
    operation = Operation(kind, meaning.key, meaning.value, meaning.keys, meaning.outcomes)
    _check_strings(operation, meaning)
    return operation


def _check_strings(operation: Operation, meaning: Meaning) -> None:
    """Key, value and TTL have to be different strings. Redis reads a TTL before it looks at the key, so even
    a TTL that is never set could cause an error."""
    signal = operation.signal
    ttls = {outcome.ttl for outcome in operation.outcomes} | {signal.ttl if signal else None}
    if not meaning.asked <= ttls:
        raise NotRecognisedError("it has a TTL that it doesn't set")
    sources = [operation.key, operation.value, *{ttl.source for ttl in ttls if ttl}]
    sources += [signal.pushed_to] if signal else []
    places = [source for source in sources if isinstance(source, Place)]
    is_shared = operation.keys is not Keys.ONE and any(place.words == "KEYS" for place in places[1:])
    if is_shared or len(set(places)) < len(places):
        raise NotRecognisedError("one string is used for two things")


def _kind(outcomes: dict[State, Outcome]) -> Kind | None:
    changes = {state: (outcome.change, outcome.ttl) for state, outcome in outcomes.items()}
    anothers = {changes[state] for state in ANOTHERS}
    free, own, endless = changes[State.FREE], changes[State.OWN], changes[State.OWN_ENDLESS]
    if {own, endless, *anothers} == {_DELETED} and free == _NONE:
        return Kind.DELETE
    if anothers != {_NONE}:
        return None
    if free[0] is Change.SET:
        return _kind_of_acquire(free, own, endless)
    if free != _NONE:
        return None
    return _kind_of_own(own, endless)


_Changed = tuple[Change, object]
_NONE: _Changed = (Change.NONE, None)
_DELETED: _Changed = (Change.DELETED, None)
_ENDLESS: _Changed = (Change.ENDLESS, None)


def _kind_of_acquire(free: _Changed, own: _Changed, endless: _Changed) -> Kind | None:
    """The second grant lasts as long as the first."""
    if own == endless == _NONE:
        return Kind.ACQUIRE
    is_extended = own == endless == (Change.TTL, free[1])
    return Kind.ACQUIRE_OR_EXTEND if is_extended else None


def _kind_of_own(own: _Changed, endless: _Changed) -> Kind | None:
    if own == endless == _NONE:
        return Kind.READ
    if own == endless == _DELETED:
        return Kind.RELEASE
    if own == _ENDLESS and endless == _NONE:
        return Kind.PERSIST
    is_extended = own[0] is Change.TTL and endless in (own, _NONE)
    return Kind.EXTEND if is_extended else None


def _check_signals(outcomes: dict[State, Outcome], kind: Kind) -> None:
    """Only for what is deleted. A DELETE may always send one: nobody waits for a free lock."""
    deleting = [state for state, outcome in outcomes.items() if outcome.change is Change.DELETED]
    signalling = [state for state, outcome in outcomes.items() if outcome.signal is not None]
    signals = {outcome.signal for outcome in outcomes.values()} - {None}
    is_always = kind is Kind.DELETE and len(signalling) == len(outcomes)
    if len(signals) > 1 or not (is_always or signalling in ([], deleting)):
        raise NotRecognisedError("it sends a signal, but not exactly when it deletes")


def _told(outcomes: dict[State, Outcome]) -> str:
    return ", ".join(f"{state.value}: {outcome.change.value}" for state, outcome in outcomes.items())
