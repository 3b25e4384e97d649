"""Snippets of articles, as commands: what programs/snippet.py sends for each of its verbs.

{name}, {token}, {ms} and {s} are put in; commands after the first are sent if that one did it, or all in a
MULTI. Scripts are those that the recogniser's own tests have.
"""

from __future__ import annotations

from typing import Any

from tests.harness.lock_scripts import OTHERS, RELEASES

Command = list[str]
Snippet = dict[str, Any]


def _script(script: str, *words: str, keys: int = 1) -> list[Command]:
    return [["EVAL", script, str(keys), *words]]


def _release(spelling: str) -> list[Command]:
    return _script(RELEASES[spelling], "{name}", "{token}")


def _extend(spelling: str, unit: str = "{ms}") -> list[Command]:
    return _script(OTHERS[spelling], "{name}", "{token}", unit)


GET_THEN_DEL = "get, then del"

_FOR_EVER = {
    "SET": [["SET", "{name}", "{token}", "NX"]],
    "SETNX": [["SETNX", "{name}", "{token}"]],
}

SNIPPETS: dict[str, Snippet] = {
    "SET NX PX, compare-and-delete of redis.io": {
        "acquire": [["SET", "{name}", "{token}", "NX", "PX", "{ms}"]],
        "acquire for ever": _FOR_EVER["SET"],
        "extend": _extend("compare and pexpire, tonumber"),
        "release": _release("redis.io"),
    },
    "SET EX NX, compare-and-expire in seconds": {
        "acquire": [["set", "{name}", "{token}", "ex", "{s}", "nx"]],
        "acquire for ever": _FOR_EVER["SET"],
        "extend": _extend("compare and expire, in seconds", "{s}"),
        "release": _release("in one line, single quotes"),
    },
    "SETNX, then PEXPIRE; GET, then DEL": {
        "careless": True,
        "acquire": [["SETNX", "{name}", "{token}"], ["PEXPIRE", "{name}", "{ms}"]],
        "acquire for ever": _FOR_EVER["SETNX"],
        "extend": [["PEXPIRE", "{name}", "{ms}"]],
        "release": GET_THEN_DEL,
    },
    "MULTI of SETNX and PEXPIRE": {
        "careless": True,
        "multi": True,
        "acquire": [["SETNX", "{name}", "{token}"], ["PEXPIRE", "{name}", "{ms}"]],
        "acquire for ever": _FOR_EVER["SETNX"],
        "release": _release("names"),
    },
    "SETNX and PEXPIRE in a script, three KEYS": {
        "acquire": _script(OTHERS["setnx and pexpire, three KEYS"], "{name}", "{ms}", "{token}", keys=3),
        "extend": _extend("extend by SET XX"),
        "release": _release("refusal first"),
    },
    "SETNX and EXPIRE in a script, in seconds": {
        "acquire": _script(OTHERS["setnx and expire"], "{name}", "{token}", "{s}"),
        "extend": _extend("compare and expire, in seconds", "{s}"),
        "release": _release("the other way round"),
    },
    "Redis 8.4: SET IFEQ and DELEX": {
        "acquire": [["SET", "{name}", "{token}", "NX", "PX", "{ms}"]],
        "acquire for ever": _FOR_EVER["SET"],
        "extend": [["SET", "{name}", "{token}", "IFEQ", "{token}", "PX", "{ms}"]],
        "release": [["DELEX", "{name}", "IFEQ", "{token}"]],
    },
    "Valkey 9: SET IFEQ and DELIFEQ": {
        "acquire": [["SET", "{name}", "{token}", "NX", "PX", "{ms}"]],
        "acquire for ever": _FOR_EVER["SET"],
        "extend": [["SET", "{name}", "{token}", "IFEQ", "{token}", "PX", "{ms}"]],
        "release": [["DELIFEQ", "{name}", "{token}"]],
    },
    "Tair: CAS and CAD": {
        "acquire": [["SET", "{name}", "{token}", "NX", "EX", "{s}"]],
        "acquire for ever": _FOR_EVER["SET"],
        "extend": [["CAS", "{name}", "{token}", "{token}", "EX", "{s}"]],
        "release": [["CAD", "{name}", "{token}"]],
    },
}
"""multi: its commands go as a transaction. careless: it sets a TTL without a look at who has the key. No
"acquire for ever": it knows only locks that expire."""
