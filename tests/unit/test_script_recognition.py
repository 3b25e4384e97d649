"""Scripts of locks are taken for what they are, however they are written; others for nothing."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from docs.made.scripts import PAGE, library_scripts, page
from lockd.core.scripts.descriptions import condition, replies, sentence
from lockd.core.scripts.evaluation import MOST_STEPS, Steps
from lockd.core.scripts.meaning import Script
from lockd.core.scripts.normal_form import normal_form
from lockd.core.scripts.operations import Condition, Kind, NotRecognised, Place, Question, Recognised
from lockd.core.scripts.recognition import recognise
from lockd.core.scripts.tokens import MOST_BYTES, MOST_TOKENS, Token, TokenKind, tokens_of
from tests.harness.lock_scripts import NO_OPERATIONS, OTHERS, RELEASES, SINCE_REDIS_7, mutants, written

RELEASE = "release KEYS[1] · value ARGV[1] → free: 0 · own: 1 · another's: 0"
EXTEND = "extend KEYS[1] · value ARGV[1] · ttl ARGV[2] ms → free: 0 · own: 1 · another's: 0"
ADD = (
    "extend KEYS[1] · value ARGV[1] · ttl what is left and ARGV[2] ms"
    " → free: 0 · own: 1 · own without TTL: 0 · another's: 0"
)
"""Extends by what is added; what has no TTL stays so."""
EXTEND_IF_ENDING = EXTEND.replace("own: 1", "own: 1 · own without TTL: 0")
ACQUIRE = "acquire KEYS[1] · value ARGV[1] · ttl ARGV[2] ms → free: 1 · own: 0 · another's: 0"
ACQUIRE_SECONDS = ACQUIRE.replace("ms", "s")
OF_ALL = "all keys, or none of them"
SIGNAL = '"1" is the only item of the list KEYS[2]'
ACQUIRE_ALL = (
    f"acquire all KEYS · value ARGV[1] · ttl ARGV[2] ms · {OF_ALL}"
    " → free: how many keys · own: 0 · another's: 0"
)
EXTEND_ALL = (
    f"extend all KEYS · value ARGV[1] · ttl ARGV[2] ms · {OF_ALL}"
    " → free: 0 · own: how many keys · another's: 0"
)
RELEASE_EACH = (
    "release all KEYS · value ARGV[1] · each key by itself → free: 0 · own: how many keys · another's: 0"
)

TAKEN_FOR: dict[str, list[str]] = {
    "aioredis-lock 0.1.0/acquire": [ACQUIRE],
    "aioredis-lock 0.1.0/extend": [ADD],
    "aioredis-lock 0.1.0/release": [RELEASE],
    "aioredis-lock 0.1.0/renew": [EXTEND_IF_ENDING],
    "aioredlock 0.7.3/get_lock_ttl": [
        "read KEYS[1] · value ARGV[1] → free: error ERROR · own: what is left, in s"
        " · own without TTL: -1 · another's: error ERROR"
    ],
    "aioredlock 0.7.3/set_lock": [
        "acquire or extend KEYS[1] · value ARGV[1] · ttl ARGV[2] ms"
        " → free: OK · own: OK · another's: error ERROR"
    ],
    "aioredlock 0.7.3/unset_lock": [
        "release KEYS[1] · value ARGV[1] → free: OK · own: 1 · another's: error ERROR"
    ],
    "bsm redislock 0.9.4/pttl": [
        "read KEYS[1] · value ARGV[1] → free: -3 · own: what is left, in ms"
        " · own without TTL: -1 · another's: -3"
    ],
    "bsm redislock 0.9.4/refresh": [EXTEND],
    "bsm redislock 0.9.4/release": [RELEASE],
    "cashews 7.6.0/unlock": [RELEASE],
    "celery-redbeat 2.4.2/extend_to": [EXTEND_IF_ENDING],
    "coredis 6.9.0/extend": [ADD],
    "coredis 6.9.0/release": [RELEASE],
    "ioredis-lock 4.0.0/delifequal": [RELEASE],
    "ioredis-lock 4.0.0/pexpireifequal": [EXTEND],
    "node-redis-warlock 1.0.2/parityDel": [RELEASE],
    "node-redis-warlock 1.0.2/parityRelock": [
        "extend KEYS[1] · value KEYS[3] · ttl KEYS[2] ms → free: 0 · own: OK · another's: 0"
    ],
    "node-redlock 2.3.0/release": [RELEASE],
    "node-redlock 2.3.0/renew": [EXTEND],
    "pottery 3.0.1/acquired": [
        "read KEYS[1] · value ARGV[1] → free: 0 · own: what is left, in ms"
        " · own without TTL: 0 · another's: 0"
    ],
    "pottery 3.0.1/extend": [EXTEND],
    "pottery 3.0.1/release": [RELEASE],
    "pyredlock 1.0.0/extend": [EXTEND],
    "pyredlock 1.0.0/unlock": [RELEASE],
    "python-redis-lock 4.0.1/extend": [
        "extend KEYS[1] · value ARGV[1] · ttl ARGV[2] s"
        " → free: 1 · own: 0 · own without TTL: 2 · another's: 1"
    ],
    "python-redis-lock 4.0.1/reset": [
        f"delete KEYS[1] · {SIGNAL}, for ARGV[2] ms → free: 0 · own: 1 · another's: 1"
    ],
    "python-redis-lock 4.0.1/unlock": [
        f"release KEYS[1] · value ARGV[1] · {SIGNAL}, for ARGV[2] ms → free: 1 · own: 0 · another's: 1"
    ],
    "redis-lock-py 1.3.0/extend": [ADD.replace(" ms", " s")],
    "redis-lock-py 1.3.0/release": [RELEASE.replace(" →", " · ARGV[2] is published on KEYS[2] →")],
    "redis-lock-py 1.3.0/release_spin_lock": [RELEASE],
    "redis-py 2.10.6/acquire": [
        'if ARGV[2] is "": ' + ACQUIRE.replace(" · ttl ARGV[2] ms", ""),
        'if not: ARGV[2] is "": ' + ACQUIRE,
    ],
    "redis-py 2.10.6/extend": [ADD],
    "redis-py 2.10.6/release": [RELEASE],
    "redis-py 8.1.0/extend": [
        'if ARGV[3] is "0": ' + ADD,
        'if not: ARGV[3] is "0": ' + EXTEND_IF_ENDING,
    ],
    "redis-py 8.1.0/reacquire": [EXTEND],
    "redis-py 8.1.0/release": [RELEASE],
    "redis-semaphore 5.8.0/refresh": [EXTEND],
    "redis-semaphore 5.8.0/release": [RELEASE],
    "redlock (node) 3.1.2/extend": [EXTEND],
    "redlock (node) 3.1.2/lock": [
        "acquire KEYS[1] · value ARGV[1] · ttl ARGV[2] ms → free: OK · own: nil · another's: nil"
    ],
    "redlock (node) 3.1.2/unlock": [RELEASE],
    "redlock (node) 4.2.0/extend": [EXTEND_ALL],
    "redlock (node) 4.2.0/lock": [ACQUIRE_ALL],
    "redlock (node) 4.2.0/unlock": [RELEASE_EACH],
    "redlock (node) 5.0.0-beta.2/acquire": [ACQUIRE_ALL],
    "redlock (node) 5.0.0-beta.2/extend": [EXTEND_ALL],
    "redlock (node) 5.0.0-beta.2/release": [RELEASE_EACH],
    "redlock-ng 2.0.4/extend": [EXTEND],
    "redlock-ng 2.0.4/release": [RELEASE],
    "redlock-py 1.0.8/unlock": [RELEASE],
    "redlock-universal 0.8.5/delete_if_match": [RELEASE],
    "redlock-universal 0.8.5/extend_if_match": [EXTEND],
    "redlock-universal 0.8.5/inspect": [
        "read KEYS[1] → free: nil · own: [what is stored, what is left, in ms]"
        " · own without TTL: [what is stored, -1] · another's: [what is stored, what is left, in ms]"
        " · another's without TTL: [what is stored, -1]"
    ],
    "redsync 4.18.1/delete": [RELEASE.replace("free: 0", "free: -1")],
    "redsync 4.18.1/touch": [EXTEND],
    "redsync 4.18.1/touchWithSetNX": [
        "acquire or extend KEYS[1] · value ARGV[1] · ttl ARGV[2] ms → free: 1 · own: 1 · another's: 0"
    ],
    "retools 0.4.1/acquire": [ACQUIRE_SECONDS],
    "retools 0.4.1/release": [RELEASE],
    "rq 3.0.0/acquire_or_refresh_lock": [
        "acquire or extend KEYS[1] · value ARGV[1] · ttl ARGV[2] s → free: 1 · own: 2 · another's: 0"
    ],
    "rq 3.0.0/release_lock": [RELEASE],
    "sherlock 0.4.1/acquire": [ACQUIRE_SECONDS],
    "sherlock 0.4.1/release": [RELEASE],
    "sherlock 0.4.1/renew": [EXTEND.replace("ms", "s")],
    "simple-redis-mutex 3.0.0/release": [
        'release KEYS[1] · value ARGV[1] · "{ "key": "" KEYS[1] "", "value": "" ARGV[1] "" }" is published '
        "on KEYS[2] → free: nil · own: nil · another's: nil"
    ],
    "walrus 0.9.8/lock_acquire": [
        "if ARGV[2] is above 0: " + ACQUIRE,
        "if not: ARGV[2] is above 0: " + ACQUIRE.replace(" · ttl ARGV[2] ms", ""),
    ],
    "walrus 0.9.8/lock_release": [RELEASE.replace(" →", f" · {SIGNAL} →")],
}
NOT_RECOGNISED = {
    "@sesamecare-oss redlock 1.4.0/acquire": "redis.pcall",
    "@sesamecare-oss redlock 1.4.0/extend": "redis.pcall",
    "@sesamecare-oss redlock 1.4.0/release": "redis.pcall",
    "bsm redislock 0.10.0/obtain": "MSETNX: several locks at once are LOCK resource ttl-ms AND resource",
    "bsm redislock 0.10.0/pttl": "MGET is not a command",
    "bsm redislock 0.10.0/refresh": "MGET is not a command",
    "bsm redislock 0.10.0/release": "MGET is not a command",
    "bsm redislock 0.9.4/obtain": "GETRANGE: a value is compared as a whole",
    "python-redis-lock 4.0.1/reset_all": "KEYS is not a command",
    "redlock-universal 0.8.5/atomic_extend": "sizes that are not known",
    "redlock-universal 0.8.5/batch_acquire": "an unknown value",
}
"""They select a database; compare parts of values; read several keys; are of all locks; want more than 0
left; have a value for each key."""


def taken_for(script: bytes) -> list[str]:
    taken = recognise(script)
    assert isinstance(taken, Recognised), taken
    return [
        (f"if {condition(case)}: " if case.when else "")
        + f"{sentence(case.operation)} → {replies(case.operation)}"
        for case in taken.cases
    ]


# What there is


def test_scripts_of_libraries_are_recognised_as_they_are_sent() -> None:
    assert {name: taken_for(library_scripts()[name]) for name in TAKEN_FOR} == TAKEN_FOR


@pytest.mark.parametrize("name", NOT_RECOGNISED)
def test_what_more_a_library_does_is_said(name: str) -> None:
    taken = recognise(library_scripts()[name])
    assert isinstance(taken, NotRecognised)
    assert NOT_RECOGNISED[name] in taken.why
    assert taken.normal_form


def test_every_script_that_is_here_has_a_test() -> None:
    assert set(library_scripts()) == set(TAKEN_FOR) | set(NOT_RECOGNISED)


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run `make docs-pages`"


def test_the_page_names_every_operation() -> None:
    assert re.findall(r"^\| \*\*(.*)\*\* \| \S", PAGE.read_text(), re.M) == [kind.value for kind in Kind]


# Spelling


@pytest.mark.parametrize("name", RELEASES)
def test_a_compare_and_delete_is_one_however_it_is_written(name: str) -> None:
    assert taken_for(RELEASES[name].encode()) == [RELEASE]


@pytest.mark.parametrize("name", [*OTHERS, *SINCE_REDIS_7])
def test_what_articles_and_other_libraries_have_is_recognised(name: str) -> None:
    assert taken_for({**OTHERS, **SINCE_REDIS_7}[name].encode())


SPACES = st.sampled_from(
    [b" ", b"\n", b"\t ", b" -- a comment\n", b" --[[ one\n more ]] ", b" --[==[ ]] ]==]\r\n"]
)


def respelled(token: Token, draw: Callable[[st.SearchStrategy[bytes]], bytes]) -> bytes:
    """The same token, in other words."""
    if token.kind is not TokenKind.STRING:
        return token.text
    text = token.text
    plain = [b"'%b'" % text, b'"%b"' % text, b"[[%b]]" % text, b"[=[\n%b]=]" % text]
    return draw(st.sampled_from([written(token), *plain])) if text.isalnum() else written(token)


@given(st.sampled_from(sorted(TAKEN_FOR)), st.data())
def test_comments_white_space_quotes_and_local_names_do_not_matter(name: str, data: st.DataObject) -> None:
    script = library_scripts()[name]
    locals_ = {match[1] for match in re.finditer(rb"(?:local|for) (\w+)\b", script)}
    text = b""
    for token in tokens_of(script)[:-1]:
        word = b"renamed_" + token.text if token.kind is TokenKind.NAME and token.text in locals_ else None
        is_call = token.is_symbol(b"(")  # Lua wants it on the line of its name
        text += (b"" if is_call else data.draw(SPACES)) + (word or respelled(token, data.draw))
    assert taken_for(text) == TAKEN_FOR[name]


def test_a_normal_form_is_its_own_and_that_of_what_differs_in_spelling_only() -> None:
    scripts = library_scripts()
    assert [name for name in (*TAKEN_FOR, *NOT_RECOGNISED) if not has_one_normal_form(scripts[name])] == []


def has_one_normal_form(script: bytes) -> bool:
    broken_up = b"\n ".join(written(token) for token in tokens_of(script)[:-1]).replace(b"\n (", b"(")
    forms = [normal_form_of(text) for text in (script, broken_up, b"-- x\n" + script.replace(b"\t", b"  "))]
    return forms == [normal_form_of(forms[0].encode())] * 3


def normal_form_of(script: bytes) -> str:
    return normal_form(tokens_of(script))


def test_a_normal_form_has_neither_names_nor_semicolons_nor_small_letters_of_commands() -> None:
    script = b"local token = redis.call('get', KEYS[1]); return redis.call('set', KEYS[2], token, 'px', 'x');"
    assert normal_form_of(script) == (
        'local v1 = redis.call("GET", KEYS[1]) return redis.call("SET", KEYS[2], v1, "PX", "x")'
    )


REDIS_IO = RELEASES["redis.io"].strip()
NEWER = {
    "Valkey's server": REDIS_IO.replace("redis.", "server."),
    "a shebang": "#!lua\n" + REDIS_IO,
    "a shebang with flags": "#!lua flags=allow-oom,no-cluster\n" + REDIS_IO,
}


@pytest.mark.parametrize("name", NEWER)
def test_what_only_newer_servers_run_is_taken_for_the_same(name: str) -> None:
    assert taken_for(NEWER[name].encode()) == [RELEASE]


def test_a_script_that_says_no_writes_may_read_and_nothing_else() -> None:
    assert taken_for(b"#!lua flags=no-writes\nreturn redis.call('get', KEYS[1])")
    taken = recognise(b"#!lua flags=no-writes\n" + REDIS_IO.encode())
    assert isinstance(taken, NotRecognised)
    assert taken.why == "it writes, and its first line says no-writes"


@pytest.mark.parametrize("first_line", [b"#!lua", b"#!js\n", b"#!lua x\n", b" #!lua\n"])
def test_no_other_shebang_is_read(first_line: bytes) -> None:
    assert isinstance(recognise(first_line + REDIS_IO.encode()), NotRecognised)


def test_a_text_that_is_put_together_is_the_same_however_it_is() -> None:
    kept = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return "
    texts = [
        "redis.error_reply(string.format('HELD %s by 100%% %s, for %d ms', KEYS[1], ARGV[1], 5))",
        "{err = 'HELD ' .. KEYS[1] .. ' by 100% ' .. ARGV[1] .. ', for ' .. 5 .. ' ms'}",
    ]
    same = [recognise((kept + text).encode()) for text in texts]
    assert same[0] == same[1]
    assert isinstance(same[0], Recognised)


@pytest.mark.parametrize(
    "text",
    ["string.format('%5s', ARGV[1])", "string.format('%s')", "string.format('x', ARGV[1])",
     "string.format(ARGV[1])", "string.format('%d', ARGV[1])", "string.format('%s', nil)",
     "string.rep('x', 5)", "'x' .. redis.call('set', KEYS[1], ARGV[1], 'NX')"],
)  # fmt: skip
def test_a_text_that_can_not_be_known_is_none(text: str) -> None:
    assert isinstance(
        recognise(f"redis.call('get', KEYS[1]) return redis.error_reply({text})".encode()), NotRecognised
    )


# What is none


@pytest.mark.parametrize("name", NO_OPERATIONS)
def test_a_script_that_does_something_else_or_more_is_not_recognised(name: str) -> None:
    taken = recognise(NO_OPERATIONS[name].encode())
    assert isinstance(taken, NotRecognised), taken
    assert taken.why


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("overwrites", "it overwrites another's value"),
        ("a nested loop", "a nested loop"),
        ("counts from 1", "it counts something other than keys"),
        ("a counter beside", "INCR is not a command of any known operation"),
        ("deletes two keys", "it also uses KEYS[2]"),
        ("the value is the TTL, too", "one string is used for two things"),
        ("deletes only what has a TTL", "it is not one of the known operations: free: nothing, own: deleted"),
    ],
)
def test_why_it_is_none_is_said(name: str, why: str) -> None:
    taken = recognise(NO_OPERATIONS[name].encode())
    assert isinstance(taken, NotRecognised)
    assert taken.why.startswith(why)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            NO_OPERATIONS["a key that is made"],
            "GET uses a key that is put together: put it whole in KEYS",
        ),
        (
            "if redis.call('get', KEYS[1]) ~= ARGV[1] then error('LOST') end redis.call('del', KEYS[1])",
            "error is not known here: return redis.error_reply(text)",
        ),
        (
            NO_OPERATIONS["compares numbers"],
            "tonumber of a value that may not be a number: compare what get returns with ARGV[n] as it is",
        ),
        (
            "return tostring(redis.call('get', KEYS[1])) == ARGV[1]",
            "tostring of a value that is not a string: compare what get returns with ARGV[n] as it is",
        ),
        (
            "redis.call('zremrangebyscore', KEYS[1], 0, ARGV[1]) return redis.call('zadd', KEYS[1], ARGV[2])",
            "ZREMRANGEBYSCORE is not a command of any known operation; ZADD: there are no sorted sets: LOCK "
            "resource ttl-ms SLOTS n takes one of n equal locks, and with WAIT ms it waits in line",
        ),
        (
            "local function all() return redis.call('msetnx', unpack(KEYS)) end return all()",
            "line 1: 'function' is not read: expected a name; MSETNX: several locks at once are LOCK "
            "resource ttl-ms AND resource, all or none",
        ),
        (
            "return redis.call('hincrby', KEYS[1], ARGV[1], 1)",
            "HINCRBY is not a command of any known operation; "
            "there are no hashes: a lock is one key with one value. "
            "Count in the app how often it has taken it",
        ),
    ],
)
def test_what_to_do_about_it_is_said_where_that_is_known(script: str, why: str) -> None:
    taken = recognise(script.encode())
    assert isinstance(taken, NotRecognised)
    assert taken.why == why


PLAIN = {
    "release": RELEASES["redis.io"],
    "extend": OTHERS["compare and expire, in seconds"],
    "acquire": OTHERS["setnx and expire"],
    "acquire in a script": OTHERS["set nx px in a script (redigo)"],
    "three KEYS": OTHERS["setnx and pexpire, three KEYS"],
}
"""Scripts in which nothing is there for nothing, so that a mutant is another."""


def taken_for_the_same(script: bytes) -> list[bytes]:
    """Its mutants that are, but for redis.pcall where nothing can fail."""
    whole = b" ".join(written(token) for token in tokens_of(script)[:-1]).replace(b"pcall", b"call")
    same = [mutant for mutant in mutants(script) if recognise(mutant) == recognise(script)]
    return [mutant for mutant in same if mutant.replace(b"pcall", b"call") != whole]


@pytest.mark.parametrize("name", PLAIN)
def test_a_mutant_is_never_taken_for_what_it_was(name: str) -> None:
    assert taken_for_the_same(PLAIN[name].encode()) == []


@pytest.mark.parametrize("name", ["acquire", "extend", "release"])
def test_nor_is_one_of_a_script_of_several_keys(name: str) -> None:
    assert taken_for_the_same(library_scripts()[f"redlock (node) 5.0.0-beta.2/{name}"]) == []


# Conditions


def test_which_case_it_is_depends_on_what_comes_with_the_script() -> None:
    taken = recognise(library_scripts()["redis-py 8.1.0/extend"])
    assert isinstance(taken, Recognised)
    ttls = [taken.operation([b"k"], [b"v", b"9", mode]).ttl for mode in (b"0", b"1", b"")]
    assert [ttl is not None and ttl.adds for ttl in ttls] == [True, False, False]


@pytest.mark.parametrize(
    ("condition", "arguments", "is_met"),
    [
        (Condition(Place("ARGV", 1), Question.GIVEN), [b""], True),
        (Condition(Place("ARGV", 2), Question.GIVEN), [b""], False),
        (Condition(Place("ARGV", 1), Question.IS, b"0"), [b"0"], True),
        (Condition(Place("ARGV", 1), Question.IS, b"0", holds=False), [], True),
        (Condition(Place("ARGV", 1), Question.IS_NUMBER, 0), [b"0.0"], True),
        (Condition(Place("ARGV", 1), Question.ABOVE, 0), [b"0.5"], True),
        (Condition(Place("ARGV", 1), Question.ABOVE, 0), [b"-1"], False),
        (Condition(Place("ARGV", 1), Question.BELOW, 0, holds=False), [b"0"], True),
    ],
)
def test_conditions_are_met_as_lua_has_it(condition: Condition, arguments: list[bytes], is_met: bool) -> None:
    assert condition.is_met([], arguments) is is_met


@pytest.mark.parametrize("text", [b"", b"x", b"nan", b"inf", b"0x10", b"1e3", b" 1", b"1_0", "١".encode()])
def test_what_may_be_no_number_is_not_compared_as_one(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"ARGV\[1\] is not a number"):
        Condition(Place("ARGV", 1), Question.ABOVE, 0).is_met([], [text])


# Anything at all


@given(st.binary(max_size=200))
def test_any_bytes_are_recognised_or_not(script: bytes) -> None:
    assert isinstance(recognise(script), Recognised | NotRecognised)


WORDS = sorted({written(token) for name in TAKEN_FOR for token in tokens_of(library_scripts()[name])})


@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_so_are_any_words_of_scripts(words: list[bytes]) -> None:
    assert isinstance(recognise(b" ".join(words)), Recognised | NotRecognised)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (b"x" * (MOST_BYTES + 1), f"at most {MOST_BYTES} are allowed"),
        (b"; " * (MOST_TOKENS + 1), f"more than {MOST_TOKENS} tokens"),
        (b"return " + b"(" * 250, "levels are not supported"),
        (b"return " + b"not " * 250, "levels are not supported"),
        (b"return 1" + b"+1" * 140, "levels are not supported"),
        (b"return a" + b".a" * 140, "levels are not supported"),
        (b"if a then " * 90, "levels are not supported"),
        (b"return " + b"9" * 4000, "only whole numbers"),
        (b"return 'x", "a string is not closed"),
        (b"return [==[x]=]", "a string is not closed"),
        (b"--[[", "a comment is not closed"),
        (b"return '\\300'", "there is no byte 300"),
        (b"return 1 return 2", "expected the end of the script"),
        (b"return 1.5", "only whole numbers"),
        (b"redis.call\n('get', KEYS[1])", "this may or may not be a call"),
        (b"\0", "not valid in Lua"),
    ],
)
def test_what_is_too_much_or_no_lua_is_said_with_its_line(script: bytes, why: str) -> None:
    taken = recognise(script)
    assert isinstance(taken, NotRecognised)
    assert why in taken.why
    assert taken.why.startswith("line ")


LOOKS_LONG = {
    "in a loop": b"for i, key in ipairs(KEYS) do "
    + b"if not key then end " * 50
    + b"redis.call('del', key) end return #KEYS",
    "in all cases": b"local x = redis.call('get', KEYS[1]) " * 18
    + b"if ARGV[3] == '0' then if ARGV[4] == '1' then if ARGV[5] == '2' then return 1 end end end "
    + b"return redis.call('get', KEYS[1])",
}


@pytest.mark.parametrize("script", LOOKS_LONG.values(), ids=LOOKS_LONG)
def test_how_long_is_looked_at_a_script_is_bounded(script: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """So one can't keep an agent from its work: it does nothing else meanwhile."""
    assert MOST_STEPS <= 1_200, "a few milliseconds"
    taken: list[Steps] = []
    take = Steps.take
    monkeypatch.setattr(Steps, "take", lambda steps: (taken.append(steps), take(steps)))
    refused = recognise(script)
    assert isinstance(refused, NotRecognised)
    assert refused.why == "it is too complex to follow"
    assert len(taken) == MOST_STEPS + 1


def test_scripts_of_libraries_take_half_of_it_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Since what would come to the same is not read again."""
    taken: list[Steps] = []
    take = Steps.take
    monkeypatch.setattr(Steps, "take", lambda steps: (taken.append(steps), take(steps)))

    def steps_of(script: bytes) -> int:
        taken.clear()
        recognise(script)
        return len(taken)

    steps = {name: steps_of(library_scripts()[name]) for name in TAKEN_FOR}
    assert min(steps.values()) > 1
    assert {name: count for name, count in steps.items() if count > MOST_STEPS // 2} == {}


ASKS = [b"ARGV[3] == 'x'", b"ARGV[4]", b"tonumber(ARGV[2]) > 0", b"v == ARGV[1]", b"v", b"t > 0", b"t == -1"]
DOES = [
    b"return redis.call('del', KEYS[1])", b"return redis.call('persist', KEYS[1])", b"return v", b"return t",
    b"return redis.call('pexpire', KEYS[1], ARGV[2])", b"return redis.call('set', KEYS[1], ARGV[1])",
    b"return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])", b"return 0", b"return ARGV[4]",
]  # fmt: skip
_IF = st.builds(b"if %b then %b else %b end ".__mod__, st.tuples(*map(st.sampled_from, (ASKS, DOES, DOES))))
SOMETHING = st.lists(_IF, max_size=3).map(b"".join)
_READS = b"local v, t = redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1]) "


@given(SOMETHING, st.sampled_from(ASKS), SOMETHING, st.sampled_from(DOES))
@example(b"if ARGV[4] then return redis.call('del', KEYS[1]) end ", b"v == ARGV[1]", b"", b"return ARGV[4]")
def test_what_is_not_read_again_would_come_to_the_same(
    inner: bytes, asked: bytes, other: bytes, last: bytes
) -> None:
    script = b"%bif %b then %belse %bend %b" % (_READS, asked, inner, other, last)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Steps, "take", lambda steps: None)
        shared = recognise(script)
        patched.setattr(Script, "known", lambda *_: None)
        assert recognise(script) == shared
