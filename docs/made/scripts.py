"""scripts.md: which scripts are recognised, and as what.

docs/libraries/ has the scripts of libraries verbatim, as they are sent: a folder for each library and
version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from docs.made.markdown import DOCS, REFERENCE, table
from lockd.core.scripts.descriptions import condition, replies, sentence
from lockd.core.scripts.evaluation import MOST_STEPS
from lockd.core.scripts.keyspace import COMMANDS
from lockd.core.scripts.operations import Keys, Kind, NotRecognised, State
from lockd.core.scripts.parser import MOST_NESTED
from lockd.core.scripts.recognition import MOST_CONDITIONS, recognise
from lockd.core.scripts.tokens import MOST_BYTES, MOST_TOKENS
from lockd.core.scripts.values import Function

PAGE = REFERENCE / "scripts.md"
LIBRARIES = DOCS / "libraries"

HEAD = """# Scripts that are recognised

Made from the code by `make docs-pages`; a test checks that it is current. Don't edit it.

Lock code sends Lua scripts to Redis: compare the value, then delete. lockd reads a script, and never runs
it: what would it do with its key, and answer, if the key is {states}? When that is one of these
operations, in each of these states, the script *is* that operation, however it is written. That is how
the agent takes `EVAL`, `EVALSHA` and `SCRIPT LOAD`: [drop-in.md](drop-in.md).

"""
RULES = """
A script that does one thing more is not that operation. Nothing is guessed: what can't be followed to its
end is not recognised.

- What it answers goes with the operation: 1 or 0, OK or nil, an error, what is left. So do the places of
  key, value and TTL in `KEYS` and `ARGV`, and whether the TTL is in seconds or milliseconds. A value or a
  TTL may also stand in the script itself.
- It may ask {conditions} things at most of what comes with it (`ARGV[3] == "0"`, `tonumber(ARGV[2]) > 0`,
  `if ARGV[2]`). Then it is an operation for each answer, and each has to be one.
- Of several keys: `for … in ipairs(KEYS)` and `for i = 1, #KEYS`, when it is done with *{all}*,
  or with *{each}*.
- Beside the lock it may wake those who wait when it deletes: one item in a list, or a message that is
  published.
- `redis.pcall` is `redis.call` where the command can't fail, or where its answer is returned at once.
- `server` is `redis`, as in Valkey. A first line `#!lua` is read as in Redis 7.
- `unpack(KEYS)` is all keys together, for `DEL`, `UNLINK` and `EXISTS`.
- A text that is put together (`string.format`, `..`) may be an error, or a message that is published,
  and no key.
- `EXPIRE` and `PEXPIRE` may have `XX`, `GT` or `LT`, and behind a `SETNX` also `NX`.

Commands that are followed: {commands}.
Functions: {functions}.
Statements: `local`, assignments, `if`, `for` over all keys, `do`, `return`.
At most {bytes} bytes, {tokens} words and signs, {nested} levels, {steps} steps in all.

A script that is not recognised is refused: the error says why, and the agent logs `script_not_recognised`
with its normal form. `lockctl doctor` names the last of them.

`lockctl script FILE` shows what a script is recognised as, and asks no agent (`-`: it is read from the input;
`--json` for programs). The exit status is 1 for one that is not recognised, with its normal form.

## Libraries

Their scripts as they are in the registries. Own: found with the script's value. Replies are by what the
key was found as.

"""


def page() -> str:
    return (
        HEAD.format(states=_listed(f"*{state.value}*" for state in State))
        + operations()
        + rules()
        + libraries()
    )


def operations() -> str:
    rows = [[f"**{kind.value}**", kind.meaning] for kind in Kind]
    return table(["operation", "what it does"], rows)


def rules() -> str:
    return RULES.format(
        conditions=MOST_CONDITIONS,
        all=Keys.ALL.value,
        each=Keys.EACH.value,
        commands=_listed(f"`{name}`" for name in COMMANDS),
        functions=_listed(f"`{function.value}`" for function in Function),
        bytes=f"{MOST_BYTES:,}",
        tokens=MOST_TOKENS,
        nested=MOST_NESTED,
        steps=f"{MOST_STEPS:,}",
    )


def libraries() -> str:
    rows = [row for name, script in library_scripts().items() for row in _rows(name, script)]
    return table(["library", "script", "taken for", "replies"], rows)


def library_scripts() -> dict[str, bytes]:
    """By library, version and name, as `redis-py 8.1.0/release`."""
    paths = sorted(LIBRARIES.glob("*/*.lua"), key=lambda path: (path.parent.name.lower(), path.name))
    return {f"{path.parent.name}/{path.stem}": path.read_bytes() for path in paths}


def _rows(name: str, script: bytes) -> Iterator[list[str]]:
    library, _, short = name.partition("/")
    taken = recognise(script)
    if isinstance(taken, NotRecognised):
        yield [library, f"`{short}`", f"**not recognised**: {taken.why}", ""]
        return
    for case in taken.cases:
        when = f"if {condition(case)}: " if case.when else ""
        yield [library, f"`{short}`", when + sentence(case.operation), replies(case.operation)]


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(texts)
