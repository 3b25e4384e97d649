"""Redis's own commands as operations: each is what a script that does the same would be."""

from dataclasses import replace

from lockd.core.scripts.operations import (
    Change,
    Keys,
    Kind,
    Left,
    Only,
    Operation,
    Outcome,
    Place,
    Reply,
    Special,
    Status,
    Ttl,
    Unit,
)

KEY = Place("KEYS", 1)
VALUE = Place("ARGV", 1)
TTL = Ttl(Place("ARGV", 2), Unit.MS)

OK = Status(b"OK")
_NIL = Special.NIL
_NOTHING, _IS_SET = Outcome(Change.NONE, 0), Outcome(Change.TTL, 1, TTL)


def _only(only: Only) -> Outcome:
    return Outcome(Change.TTL, Special.IS_SET, replace(TTL, only=only))


def acquire(*, has_ttl: bool, done: Reply = OK, refused: Reply = _NIL) -> Operation:
    """SET key value NX, SETNX: if the key is free."""
    change = Outcome(Change.SET, done, TTL if has_ttl else None)
    return Operation(Kind.ACQUIRE, KEY, VALUE, Keys.ONE, (change, *[Outcome(Change.NONE, refused)] * 4))


def release(free: Reply = 0) -> Operation:
    """DELEX key IFEQ value, DELIFEQ, CAD. free: the answer when nobody has it."""
    gone, none = Outcome(Change.DELETED, 1), Outcome(Change.NONE, 0)
    return Operation(Kind.RELEASE, KEY, VALUE, Keys.ONE, (Outcome(Change.NONE, free), gone, gone, none, none))


def extend(*, done: Reply = OK, free: Reply = _NIL, refused: Reply = _NIL) -> Operation:
    """SET key value IFEQ value PX, CAS key value value: a new TTL, if it is there with the value."""
    set_anew = Outcome(Change.TTL, done, TTL)
    others = [Outcome(Change.NONE, refused)] * 2
    return Operation(
        Kind.EXTEND, KEY, VALUE, Keys.ONE, (Outcome(Change.NONE, free), set_anew, set_anew, *others)
    )


def expire(*, ending: Outcome, endless: Outcome) -> Operation:
    """PEXPIRE, EXPIRE, for locks that this process holds: what becomes of those with a TTL, and of the
    others."""
    return Operation(Kind.EXTEND, KEY, None, Keys.ONE, (_NOTHING, ending, endless, _NOTHING, _NOTHING))


def persist() -> Operation:
    """PERSIST, for locks that this process holds."""
    none = Outcome(Change.NONE, 0)
    return Operation(Kind.PERSIST, KEY, None, Keys.ONE, (none, Outcome(Change.ENDLESS, 1), none, none, none))


def delete() -> Operation:
    """DEL, UNLINK, for locks that this process holds."""
    gone, none = Outcome(Change.DELETED, 1), Outcome(Change.NONE, 0)
    return Operation(Kind.DELETE, KEY, None, Keys.ONE, (none, gone, gone, none, none))


def read(free: Reply, held: Reply) -> Operation:
    """GET, EXISTS, and the remaining TTL."""
    return Operation(
        Kind.READ, KEY, None, Keys.ONE, (Outcome(Change.NONE, free), *[Outcome(Change.NONE, held)] * 4)
    )


SET_NX = {has_ttl: acquire(has_ttl=has_ttl) for has_ttl in (True, False)}
SET_NX_GET = {
    has_ttl: acquire(has_ttl=has_ttl, done=_NIL, refused=Special.STORED) for has_ttl in (True, False)
}
SETNX = acquire(has_ttl=False, done=1, refused=0)
SETNX_WITH_TTL = acquire(has_ttl=True, done=1, refused=0)
GET = read(_NIL, Special.STORED)
EXISTS = read(0, 1)
PTTL = read(-2, Left.MS)
TTL_S = read(-2, Left.SECONDS)
DELETE = delete()
EXPIRE = {
    b"": expire(ending=_IS_SET, endless=_IS_SET),
    b"NX": expire(ending=_NOTHING, endless=_IS_SET),
    b"XX": expire(ending=_IS_SET, endless=_NOTHING),
    b"GT": expire(ending=_only(Only.LONGER), endless=_NOTHING),
    b"LT": expire(ending=_only(Only.SHORTER), endless=_only(Only.SHORTER)),
}
"""By its option. What has no TTL lasts for ever."""
PERSIST = persist()
DELETE_IF_EQUAL = release()
CAD = release(free=-1)
SET_IF_EQUAL = extend()
CAS = extend(done=1, free=-1, refused=0)
EXPIRE_IF_EQUAL = extend(done=1, free=0, refused=0)
