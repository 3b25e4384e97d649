"""Scripts of locks: as articles and libraries outside the registries used here have them, and wrong ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lockd.core.scripts.tokens import Token, TokenKind, tokens_of

RELEASES = {
    "redis.io": """
        if redis.call("get",KEYS[1]) == ARGV[1] then
            return redis.call("del",KEYS[1])
        else
            return 0
        end""",
    "redis.io, of late": 'if redis.call("GET",KEYS[1])==ARGV[1] then return redis.call("DEL",KEYS[1]) else return 0 end',
    "in one line, single quotes": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
    "the other way round": "if ARGV[1] == redis.call('GET', KEYS[1]) then return redis.call('DEL', KEYS[1]) end return 0",
    "parentheses and semicolons": "if ((redis.call('get', (KEYS[1]))) == (ARGV[1])) then return (redis.call('del', KEYS[1])); else return 0; end;",
    "names": """
        -- KEYS[1] is the lock, ARGV[1] the token
        local lockKey, lockValue = KEYS[1], ARGV[1]
        local holder = redis.call("GET", lockKey)
        if holder ~= lockValue then return 0 end
        --[[ it is ours ]]
        return redis.call("DEL", lockKey)""",
    "refusal first": "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 else return redis.call('del', KEYS[1]) end",
    "not": "if not (redis.call('get', KEYS[1]) == ARGV[1]) then return 0 end return redis.call('del', KEYS[1])",
    "and or": "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) or 0",
    "unlink": "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('UNLINK', KEYS[1]) end return 0",
    "it exists first": """
        if redis.call('exists', KEYS[1]) == 1 and redis.call('get', KEYS[1]) == ARGV[1] then
            redis.call('del', KEYS[1])
            return 1
        end
        return 0""",
    "call under a name": "local call = redis.call; if call('get', KEYS[1]) == ARGV[1] then return call('del', KEYS[1]) end return 0",
    "pcall": "if redis.pcall('get', KEYS[1]) == ARGV[1] then return redis.pcall('del', KEYS[1]) else return 0 end",
    "long strings": "if redis.call([[get]], KEYS[1]) == ARGV[1] then return redis.call([==[del]==], KEYS[1]) end return 0",
}  # fmt: skip
"""Each is the canonical one: 1 or 0."""

OTHERS = {
    "set nx px in a script (redigo)": "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])",
    "set ex nx, OK or 0": "if redis.call('set', KEYS[1], ARGV[1], 'ex', ARGV[2], 'nx') then return 1 else return 0 end",
    "set px, seconds times 1000": "return redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2] * 1000, 'nx')",
    "setnx and expire": """
        if redis.call("setnx", KEYS[1], ARGV[1]) == 1 then
            redis.call("expire", KEYS[1], ARGV[2])
            return 1
        else
            return 0
        end""",
    "setnx and expire, its reply": """
        if redis.call('setnx',KEYS[1],ARGV[1]) == 1 then
            return redis.call('expire',KEYS[1],tonumber(ARGV[2]))
        else
            return 0
        end""",
    "setnx and pexpire, three KEYS": """
        local key = KEYS[1]
        local ttl = KEYS[2]
        local content = KEYS[3]
        local lockSet = redis.call('setnx', key, content)
        if lockSet == 1 then
          redis.call('pexpire', key, ttl)
        end
        return lockSet""",
    "exists and psetex": """
        if redis.call('EXISTS', KEYS[1]) == 0 then
            redis.call('PSETEX', KEYS[1], ARGV[2], ARGV[1])
            return true
        end
        return false""",
    "a constant value": "if redis.call('setnx', KEYS[1], 'locked') == 1 then redis.call('expire', KEYS[1], 30) return 1 end return 0",
    "compare and expire, in seconds": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('expire', KEYS[1], ARGV[2]) else return 0 end",
    "compare and pexpire, tonumber": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], tonumber(ARGV[2])) else return 0 end",
    "extend by SET XX": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'XX', 'PX', ARGV[2]) end",
    "go-zero": """
        if redis.call("GET", KEYS[1]) == ARGV[1] then
            redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2])
            return "OK"
        else
            return redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2])
        end""",
    "Spring's obtain": """
        local lockClientId = redis.call('GET', KEYS[1])
        if lockClientId == ARGV[1] then
          redis.call('PEXPIRE', KEYS[1], ARGV[2])
          return true
        elseif not lockClientId then
          redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
          return true
        end
        return false""",
    "Spring's unlink and publish": """
        local lockClientId = redis.call('GET', KEYS[1])
        if (lockClientId == ARGV[1] and redis.call('UNLINK', KEYS[1]) == 1) then
          redis.call('PUBLISH', ARGV[2], KEYS[1])
          return true
        end
        return false""",
    "RedLock.net's extend": """
        local currentVal = redis.call('get', KEYS[1])
        if (currentVal == false) then
            return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) and 1 or 0
        elseif (currentVal == ARGV[1]) then
            return redis.call('pexpire', KEYS[1], ARGV[2])
        else
            return -1
        end""",
    "redlock-rb's lock": """
        if (redis.call("exists", KEYS[1]) == 0 and ARGV[3] == "yes") or redis.call("get", KEYS[1]) == ARGV[1] then
          return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])
        end""",
    "redlock-rb's pttl": "return { redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1]) }",
    "compare and persist": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('persist', KEYS[1]) end return 0",
    "who holds it": "return redis.call('get', KEYS[1]) == ARGV[1]",
    "a TTL that may be missing": """
        if redis.call('setnx', KEYS[1], ARGV[1]) == 0 then return redis.error_reply('LOCKED by another') end
        if ARGV[2] then redis.call('pexpire', KEYS[1], ARGV[2]) end
        return {ok = 'OK'}""",
    "compare and getdel": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('getdel', KEYS[1]) end return false",
    "an error that names the key": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return redis.error_reply(string.format('NOTMINE %s is not held by %s', KEYS[1], ARGV[1]))",
    "an error that names who has it": "local v = redis.call('get', KEYS[1]) if v == ARGV[1] then return redis.call('del', KEYS[1]) elseif v then return {err = 'HELD by ' .. v} end return 0",
    "exists of all keys": "local taken = redis.call('exists', unpack(KEYS)) if taken > 0 then return 0 end for i, key in ipairs(KEYS) do redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS",
    "exists of all keys, none": "local taken = redis.call('exists', unpack(KEYS)) if taken == 0 then for i, key in ipairs(KEYS) do redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS end return 0",
    "deletes all keys": "for i, key in ipairs(KEYS) do if redis.call('get', key) ~= ARGV[1] then return 0 end end return redis.call('del', unpack(KEYS))",
    "deletes whatever there is": "return redis.call('unlink', unpack(KEYS))",
    "all keys, by number": """
        for i = 1, #KEYS do
          if redis.call('get', KEYS[i]) ~= ARGV[1] then return 0 end
        end
        for i = 1, #KEYS do redis.call('pexpire', KEYS[i], ARGV[2]) end
        return #KEYS""",
}  # fmt: skip

SINCE_REDIS_7 = {
    "compare and pexpire, GT": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2], 'GT') end return 0",
    "compare and pexpire, LT": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2], 'LT') end return 0",
    "compare and expire, XX": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('expire', KEYS[1], ARGV[2], 'xx') end return 0",
    "setnx and pexpire, NX": "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then redis.call('pexpire', KEYS[1], ARGV[2], 'NX') return 1 end return 0",
}  # fmt: skip

NO_OPERATIONS = {
    "a counter beside": "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('incr', KEYS[2]) return redis.call('del', KEYS[1]) end return 0",
    "a log line": "if redis.call('get', KEYS[1]) == ARGV[1] then redis.log(redis.LOG_NOTICE, 'x') return redis.call('del', KEYS[1]) end return 0",
    "deletes two keys": "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[2]) return redis.call('del', KEYS[1]) end return 0",
    "deletes several at once": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1], KEYS[2]) end return 0",
    "deletes what is another's": "if redis.call('get', KEYS[1]) ~= ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
    "deletes what is anybody's or free": "if redis.call('get', KEYS[1]) == ARGV[1] or true then return redis.call('set', KEYS[1], ARGV[1]) end",
    "two values": "local v = redis.call('get', KEYS[1]) if v == ARGV[1] or v == ARGV[2] then return redis.call('del', KEYS[1]) end return 0",
    "compares numbers": "if tonumber(redis.call('get', KEYS[1])) == tonumber(ARGV[1]) then return redis.call('del', KEYS[1]) end return 0",
    "compares a part": "if string.sub(redis.call('get', KEYS[1]), 1, 3) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
    "a key that is made": "if redis.call('get', 'lock:' .. KEYS[1]) == ARGV[1] then return redis.call('del', 'lock:' .. KEYS[1]) end return 0",
    "a hash": "if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then return redis.call('del', KEYS[1]) end return 0",
    "a counted reentrant lock": "if redis.call('incr', KEYS[1]) == 1 then redis.call('pexpire', KEYS[1], ARGV[1]) return 1 end return 0",
    "overwrites": "return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])",
    "sets only what is there": "return redis.call('set', KEYS[1], ARGV[1], 'XX', 'PX', ARGV[2])",
    "keeps the TTL, whatever that is": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[2], 'KEEPTTL') end",
    "adds to -1": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[2]) end return 0",
    "adds seconds to milliseconds": "if redis.call('get', KEYS[1]) == ARGV[1] and redis.call('ttl', KEYS[1]) >= 0 then return redis.call('pexpire', KEYS[1], redis.call('ttl', KEYS[1]) + ARGV[2]) end return 0",
    "extends when little is left": "if redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pttl', KEYS[1]) < 5000 then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
    "another TTL for the second grant": "local v = redis.call('get', KEYS[1]) if not v then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) elseif v == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[3]) end return 0",
    "extends if it has no TTL": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2], 'NX') end return 0",
    "asks whether it was set": "if redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pexpire', KEYS[1], ARGV[2], 'GT') == 1 then return 'OK' end return 0",
    "an option that is none": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2], ARGV[3]) end return 0",
    "gets all keys": "return redis.call('get', unpack(KEYS))",
    "unpacks its arguments": "return redis.call('del', unpack(ARGV))",
    "deletes all keys and one more": "return redis.call('del', unpack(KEYS), KEYS[1])",
    "goes on when it fails": "if redis.call('get', KEYS[1]) == ARGV[1] then redis.pcall('pexpire', KEYS[1], ARGV[2]) return 1 end return 0",
    "deletes and sets": "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) redis.call('set', KEYS[1], ARGV[1]) end return 0",
    "wakes who waits before it is free": "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('publish', KEYS[2], 'x') return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
    "the first of all keys only": "for i, key in ipairs(KEYS) do if redis.call('get', key) == ARGV[1] then return redis.call('del', key) end end return 0",
    "up to the first that is not own": "local n = 0 for i, key in ipairs(KEYS) do if redis.call('get', key) ~= ARGV[1] then return n end redis.call('del', key) n = n + 1 end return n",
    "the first key decides for all": "local n = 0 for i, key in ipairs(KEYS) do if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', key) n = n + 1 end end return n",
    "counts twice": "local n = 0 for i, key in ipairs(KEYS) do if redis.call('get', key) == ARGV[1] then redis.call('del', key) n = n + 2 end end return n",
    "asks how many there are": "if #KEYS == 1 and redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
    "a value for each key": "for i = 1, #KEYS do redis.call('setnx', KEYS[i], ARGV[i]) end return #KEYS",
    "a function": "local function f() return redis.call('del', KEYS[1]) end if redis.call('get', KEYS[1]) == ARGV[1] then return f() end return 0",
    "while": "while redis.call('get', KEYS[1]) == ARGV[1] do redis.call('del', KEYS[1]) end return 0",
    "a global name": "v = redis.call('get', KEYS[1]) if v == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
    "a name of nothing": "if redis.call('get', KEYS[1]) == token then return redis.call('del', KEYS[1]) end return 0",
    "the time": "local t = redis.call('time') return redis.call('set', KEYS[1], t[1], 'NX')",
    "a table is no status": "local r = redis.call('set', KEYS[1], ARGV[1], 'NX') if r.err then return 0 end return 1",
    "a shebang": "#!lua flags=no-writes\nif redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
    "extends what has more than 0 left": "if redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pttl', KEYS[1]) > 0 then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
    "deletes only what has a TTL": "if redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pttl', KEYS[1]) >= 0 then return redis.call('del', KEYS[1]) end return 0",
    "the value is the TTL, too": "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[1])",
    "a TTL that is never set": "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) redis.call('pexpire', KEYS[1], ARGV[2]) return 1 end return 0",
    "a TTL of SET that is never set": "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) return redis.call('del', KEYS[1]) end return 0",
    "its value is one of all keys": "local n = 0 for i, key in ipairs(KEYS) do if redis.call('get', key) == KEYS[9] then redis.call('del', key) n = n + 1 end end return n",
    "asks what is left to each key": "local n = 0 for i, key in ipairs(KEYS) do if redis.call('get', key) == ARGV[1] and redis.call('pttl', key) >= 0 then redis.call('del', key) n = n + 1 end end return n",
    "reads several keys": "for i, key in ipairs(KEYS) do if redis.call('exists', key) == 1 then return 0 end end return 1",
    "a nested loop": "for i, key in ipairs(KEYS) do for j, other in ipairs(KEYS) do if redis.call('get', key) == ARGV[1] then redis.call('del', key) end end end return #KEYS",
    "counts from 1": "local n = 1 for i, key in ipairs(KEYS) do if redis.call('get', key) == ARGV[1] then redis.call('del', key) n = n + 1 end end return n",
    "compares its count": "local n = 0 for i, key in ipairs(KEYS) do if redis.call('get', key) == ARGV[1] then redis.call('del', key) n = n + 1 end end if n == 4 then return 0 end return n",
    "depends on how many items are pushed": "if redis.call('get', KEYS[1]) == ARGV[1] then if redis.call('lpush', KEYS[2], 1) == 1 then redis.call('ltrim', KEYS[2], 0, 0) return redis.call('del', KEYS[1]) end end return 0",
    "its list keeps two items": "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('lpush', KEYS[2], 1) redis.call('ltrim', KEYS[2], 0, 1) return redis.call('del', KEYS[1]) end return 0",
    "its list grows": "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('lpush', KEYS[2], 1) return redis.call('del', KEYS[1]) end return 0",
    "publishes twice": "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('publish', KEYS[2], 1) redis.call('publish', KEYS[2], 1) return redis.call('del', KEYS[1]) end return 0",
    "asks for the TTL that it has set": "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('pexpire', KEYS[1], ARGV[2]) return redis.call('pttl', KEYS[1]) end return 0",
    "a TTL of nothing": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], 0) end return 0",
    "what is returned in parts": "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]), 1 end return 0",
    "a list that ends at its nil": "return {redis.call('pttl', KEYS[1]), nil}",
    "four conditions": "if ARGV[2] == 'a' and ARGV[3] == 'b' and ARGV[4] == 'c' and ARGV[5] == 'd' then return redis.call('del', KEYS[1]) end return redis.call('exists', KEYS[1])",
    "one of its cases is none": "if redis.call('get', KEYS[1]) == ARGV[1] then if ARGV[2] == 'all' then redis.call('incr', KEYS[2]) end return redis.call('del', KEYS[1]) end return 0",
    "a call on the next line": "local x = redis.call\n('get', KEYS[1]) return x",
    "adds what is left to the first of all": "local left = redis.call('pttl', KEYS[1]) for i, key in ipairs(KEYS) do if redis.call('get', key) ~= ARGV[1] or redis.call('pttl', key) < 0 then return 0 end end for i, key in ipairs(KEYS) do redis.call('pexpire', key, left + ARGV[2]) end return #KEYS",
    "what is left, if more than 10": "if redis.call('get', KEYS[1]) == ARGV[1] then local left = redis.call('pttl', KEYS[1]) return left > 10 and left or 0 end return 0",
    "asks whether nothing is left": "if redis.call('get', KEYS[1]) == ARGV[1] then if redis.call('pttl', KEYS[1]) == 0 then return 2 end return redis.call('del', KEYS[1]) end return 0",
    "sets another value than it compares": "if redis.call('exists', KEYS[1]) == 0 then return redis.call('set', KEYS[1], ARGV[2], 'PX', ARGV[3]) elseif redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[3]) end return 0",
    "deletes what has no TTL, extends the rest": "if redis.call('get', KEYS[1]) == ARGV[1] then if redis.call('pttl', KEYS[1]) < 0 then return redis.call('del', KEYS[1]) end return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
    "Lua takes no such statement": "(redis.call('del', KEYS[1])) return 1",
    "spares a key by its name": "local n = 0 for i, key in ipairs(KEYS) do if key ~= 'main' and redis.call('get', key) == ARGV[1] then redis.call('del', key) n = n + 1 end end return n",
    "asks whether there is a second key": "local n = 0 for i, key in ipairs(KEYS) do if KEYS[2] and redis.call('get', key) == ARGV[1] then redis.call('del', key) n = n + 1 end end return n",
    "looks at all keys": "for i, key in ipairs(KEYS) do redis.call('get', key) end return 1",
    "nothing": "",
    "a constant": "return 1",
    "no key": "return redis.call('get', ARGV)",
}  # fmt: skip


# Mutants

_NUMBERS = (b"0", b"1", b"2", b"3")
_COMMANDS = (b"GET", b"DEL", b"EXISTS", b"PTTL", b"TTL", b"PEXPIRE", b"EXPIRE", b"PERSIST", b"SETNX", b"SET",
             b"INCR", b"LPUSH", b"PUBLISH")  # fmt: skip
_SWAPS: dict[bytes, tuple[bytes, ...]] = {
    b"==": (b"~=",), b"~=": (b"==",), b"<": (b">", b"<=", b">="), b">": (b"<", b"<=", b">="),
    b"<=": (b">", b"<"), b">=": (b"<", b">"), b"and": (b"or",), b"or": (b"and",), b"not": (b"",),
    b"+": (b"*", b"-"), b"*": (b"+",), b"true": (b"false",), b"false": (b"true",), b"else": (b"",), b"elseif": (b"end if",),
    b"KEYS": (b"ARGV",), b"ARGV": (b"KEYS",), b"call": (b"pcall",), b"pcall": (b"call",),
    b"return": (b"local _ =",), b"if": (b"if true or", b"if not"),
}  # fmt: skip
_OPTIONS = {b"NX": (b"XX", b""), b"XX": (b"NX",), b"PX": (b"EX",), b"EX": (b"PX",)}
_MORE = (b"redis.call('incr', KEYS[1])", b"redis.call('del', KEYS[1])", b"redis.call('persist', KEYS[1])",
         b"redis.call('set', KEYS[1], ARGV[1])", b"redis.call('pexpire', KEYS[1], 1000)",
         b"redis.call('del', KEYS[2])", b"return 1")  # fmt: skip


def mutants(script: bytes) -> Iterator[bytes]:
    """The script with one thing changed, in every place and in many ways."""
    words = [written(token) for token in tokens_of(script)[:-1]]
    for at, token in enumerate(tokens_of(script)[:-1]):
        for other in _others(token):
            yield b" ".join([*words[:at], other, *words[at + 1 :]])
        if token.is_symbol(b"then", b"else", b"do", b"return") or at == 0:
            place = at + (token.is_symbol(b"then", b"else", b"do"))
            yield from (b" ".join([*words[:place], more, *words[place:]]) for more in _MORE)
    yield from _with_swapped_branches(words)


def written(token: Token) -> bytes:
    """As it may stand in a script."""
    if token.kind is not TokenKind.STRING:
        return token.text
    return b'"' + re.sub(rb"[^ -!#-\[\]-~]", lambda sign: b"\\%03d" % sign[0][0], token.text) + b'"'


def _others(token: Token) -> Iterator[bytes]:
    if token.kind is TokenKind.NUMBER:
        yield from (number for number in _NUMBERS if number != token.text)
    elif token.kind is TokenKind.STRING:
        names = _OPTIONS.get(token.text.upper()) or (
            _COMMANDS if token.text.upper() in _COMMANDS else (b"x",)
        )
        yield from (b'"' + name + b'"' for name in names if name != token.text.upper())
    else:
        yield from _SWAPS.get(token.text, ())


def _with_swapped_branches(words: Sequence[bytes]) -> Iterator[bytes]:
    """`then A else B end`, of innermost ones."""
    pattern = (
        rb"\bthen ((?:(?!\b(?:if|then|else|elseif|end)\b).)*) else ((?:(?!\b(?:if|then|else|end)\b).)*) end\b"
    )
    for found in re.finditer(pattern, b" ".join(words)):
        text = b" ".join(words)
        yield (
            text[: found.start()] + b"then " + found[2] + b" else " + found[1] + b" end" + text[found.end() :]
        )
