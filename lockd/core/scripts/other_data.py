"""What commands keep in a Redis that is no lock, and what there is here instead: for the errors that scripts
and commands with them get."""

from __future__ import annotations

from collections.abc import Sequence

from lockd.core.scripts.tokens import Token, TokenKind

_SLOTS = "LOCK resource ttl-ms SLOTS n takes one of n equal locks, and with WAIT ms it waits in line"
_OF_COMMANDS = {
    "ZADD ZCARD ZCOUNT ZINCRBY ZPOPMAX ZPOPMIN ZRANGE ZRANGEBYSCORE ZRANK ZREM ZREMRANGEBYRANK "
    "ZREMRANGEBYSCORE ZREVRANGE ZREVRANK ZSCORE": f"there are no sorted sets: {_SLOTS}",
    "SADD SCARD SISMEMBER SMEMBERS SPOP SREM": f"there are no sets: {_SLOTS}",
    "BLMOVE BRPOP LINDEX LLEN LMOVE LPOP LRANGE LREM LSET RPOP RPOPLPUSH RPUSH": (
        f"there are no lists: {_SLOTS}"
    ),
    "DECR DECRBY INCR INCRBY INCRBYFLOAT": f"there are no counters: {_SLOTS}",
    "HDEL HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HMSET HSET HSETNX HVALS": (
        "there are no hashes: a lock is one key with one value. Count in the app how often it has taken it"
    ),
    "MSETNX MSETEX MSET MGET": "several locks at once are LOCK resource ttl-ms AND resource, all or none",
    "APPEND GETRANGE SETRANGE STRLEN SUBSTR": "a value is compared as a whole",
    "SELECT": "there is one database: put its name into the key",
    "DBSIZE KEYS RANDOMKEY SCAN": "LOCKS [pattern] lists what is locked",
}
_INSTEAD = {name: words for names, words in _OF_COMMANDS.items() for name in names.split()}


def instead_of(command: str) -> str:
    """What to use instead of it; empty: nothing."""
    return _INSTEAD.get(command.upper(), "")


def with_cause(why: str, tokens: Sequence[Token]) -> str:
    """Why a script is not recognised, and what to use instead of a command in it that is of no lock. Often
    that command is the cause, and how the script is written only what was found first."""
    strings = (token.text for token in tokens if token.kind is TokenKind.STRING)
    words = {text.decode("ascii", "replace").upper() for text in strings}
    name = next((name for name in _INSTEAD if name in words), None)
    if name is None:
        return why
    return f"{why}; {'' if why.startswith(name) else f'{name}: '}{_INSTEAD[name]}"
