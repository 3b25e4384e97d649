"""COMMAND: which commands there are, and everything that their descriptors say about them.

The layout is that of Redis 7, types included: redis-cli asserts them, and would abort if flags were sent as
bulk strings.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

from lockd.config.globs import PATTERN_BYTES_MOST, matcher
from lockd.server.commands import (
    connection,
    info,
    leases,
    listings,
    operators,
    plain,
    reload,
    scripting,
    transactions,
    waiting,
)
from lockd.server.commands.command import OTHERS, Argument, Command, Group, arity_error
from lockd.server.resp import replies
from lockd.server.resp.replies import ReplySet, SimpleString
from lockd.server.session import Session
from lockd.server.turns import LoopTurns

COMMAND = Group()
SUBCOMMANDS = Group()

_NAMES = Argument("command-name", optional=True, multiple=True)


def command_count() -> int:
    """COMMAND COUNT. As in Redis, subcommands don't count."""
    return len(COMMANDS)


def command_list(filter_by: str | None = None, wanted: str = "") -> list[str]:
    """COMMAND LIST: all names, subcommands too, or those that a filter (module, aclcat, pattern) leaves.

    ValueError when there is no such filter, or when its pattern would only cost time.
    """
    if filter_by is None:
        return list(_BY_NAME)
    keep = _FILTERS.get(filter_by.lower())
    if keep is None:
        raise ValueError("syntax error")
    if len(wanted.encode(errors="replace")) > PATTERN_BYTES_MOST:
        raise ValueError(f"pattern longer than {PATTERN_BYTES_MOST}")
    return [command.name for command in filter(keep(wanted.lower()), _with_subcommands())]


def _matching(pattern: str) -> Callable[[Command], bool]:
    matches = matcher(pattern.encode(errors="replace"))
    return lambda command: matches(command.name.encode())


_FILTERS: dict[str, Callable[[str], Callable[[Command], bool]]] = {
    "module": lambda wanted: lambda command: False,
    "aclcat": lambda wanted: lambda command: "@" + wanted in _acl_categories(command),
    "pattern": _matching,
}


def command_info(names: Sequence[str] = ()) -> list[list[object] | None]:
    """COMMAND INFO: ten elements for each name, as Redis 7 sends them, or None. No names: all commands."""
    if not names:
        return [_info(command) for command in COMMANDS]
    return [_info(command) if command else None for command in map(find, names)]


def _info(command: Command) -> list[object]:
    return [
        command.name,
        command.arity,
        _simple_strings(command.flags),
        *_key_positions(command),
        _simple_strings(_acl_categories(command)),
        ReplySet(),
        ReplySet(_key_specifications(command)),
        [_info(subcommand) for subcommand in command.subcommands],
    ]


def _simple_strings(words: Sequence[str]) -> ReplySet:
    return ReplySet(map(SimpleString, words))


def _acl_categories(command: Command) -> list[str]:
    """As Redis derives them from the flags."""
    flags = command.flags
    of_flag = {
        "write": ["@write"],
        "readonly": ["@read"],
        "admin": ["@admin", "@dangerous"],
        "blocking": ["@blocking"],
    }
    categories = [category for flag in flags for category in of_flag.get(flag, [])]
    categories.append("@fast" if "fast" in flags else "@slow")
    return [*categories, "@connection"] if command.group == "connection" else categories


def _key_positions(command: Command) -> tuple[int, int, int]:
    """First, last, step. None if they follow a number that says how many there are."""
    if not command.key_access or not _begins_with_key(command):
        return 0, 0, 0
    return 1, -1 if _is_all_keys(command) else 1, 1


def _begins_with_key(command: Command) -> bool:
    return command.arguments[0].type == "key"


def _is_all_keys(command: Command) -> bool:
    return command.arguments[-1].multiple and all(
        argument.type == "key" and argument.token is None for argument in command.arguments
    )


def _key_specifications(command: Command) -> list[dict[str, object]]:
    """The first argument, and with OTHERS all that come last; or the keys of a script."""
    if not command.key_access:
        return []
    if not _begins_with_key(command):
        return [_keys_from(command, "index", {"index": 2}, "keynum", {"keynumidx": 0, "firstkey": 1})]
    last = -1 if _is_all_keys(command) else 0
    first = _keys_from(command, "index", {"index": 1}, "range", {"lastkey": last, "limit": 0})
    if OTHERS not in command.arguments:
        return [first]
    behind: dict[str, object] = {"keyword": OTHERS.token, "startfrom": 3}
    return [first, _keys_from(command, "keyword", behind, "range", {"lastkey": -1, "limit": 0})]


def _keys_from(
    command: Command, begin: str, where: dict[str, object], find: str, which: dict[str, object]
) -> dict[str, object]:
    return {
        "flags": _simple_strings(command.key_access),
        "begin_search": {"type": begin, "spec": where},
        "find_keys": {"type": find, "spec": {**which, "keystep": 1}},
    }


def command_docs(names: Sequence[str] = ()) -> dict[str, dict[str, object]]:
    """COMMAND DOCS: documentation by name, without the unknown ones, as in Redis. No names: all commands."""
    commands = map(find, names) if names else COMMANDS
    return {command.name: _docs(command) for command in commands if command}


def _docs(command: Command) -> dict[str, object]:
    docs: dict[str, object] = {
        "summary": command.summary,
        "since": command.since,
        "group": command.group,
        "reply": command.reply,  # ours: Redis has no such field, and its clients skip what they don't know
    }
    if command.arguments:
        docs["arguments"] = [_argument_docs(argument) for argument in command.arguments]
    if command.subcommands:
        docs["subcommands"] = {subcommand.name: _docs(subcommand) for subcommand in command.subcommands}
    return docs


def _argument_docs(argument: Argument) -> dict[str, object]:
    docs: dict[str, object] = {"name": argument.name, "type": argument.type}
    if argument.type not in ("block", "oneof", "pure-token"):
        docs["display_text"] = argument.name
    if argument.type == "key":
        docs["key_spec_index"] = argument.key_spec
    if argument.token:
        docs["token"] = argument.token
    flags = [flag for flag in ("optional", "multiple") if getattr(argument, flag)]
    if flags:
        docs["flags"] = _simple_strings(flags)
    if argument.arguments:
        docs["arguments"] = [_argument_docs(part) for part in argument.arguments]
    return docs


@cache
def _encoded_info(name: str | None, protocol: int) -> bytes:
    return replies.value(_info(_BY_NAME[name]) if name else None, protocol)


@cache
def _encoded_docs(name: str, protocol: int) -> tuple[bytes, bytes]:
    return replies.value(name, protocol), replies.value(_docs(_BY_NAME[name]), protocol)


# The command


@SUBCOMMANDS(
    Command(
        "command|count",
        2,
        "server",
        ("loading", "stale"),
        "Returns how many commands there are.",
        "integer",
    )
)
def _count_reply(_: Sequence[str], __: int) -> bytes:
    return replies.integer(command_count())


@SUBCOMMANDS(
    Command(
        "command|docs",
        -2,
        "server",
        ("loading", "stale"),
        "Documents one, several or all commands.",
        "map: command name → map of summary, since, group, reply, arguments, subcommands",
        (_NAMES,),
    )
)
def _docs_reply(names: Sequence[str], protocol: int) -> bytes:
    commands = map(find, names) if names else COMMANDS
    known = dict.fromkeys(command.name for command in commands if command)
    return replies.mapping([_encoded_docs(name, protocol) for name in known], protocol)


@SUBCOMMANDS(
    Command(
        "command|info",
        -2,
        "server",
        ("loading", "stale"),
        "Returns arity, flags and keys of one, several or all commands.",
        "array: an array of 10 for each command, nil for an unknown one",
        (_NAMES,),
    )
)
def _info_reply(names: Sequence[str], protocol: int) -> bytes:
    names = names or [command.name for command in COMMANDS]
    known = [(command.name if (command := find(name)) else None) for name in names]
    if len(known) - known.count(None) > len(set(known) - {None}):
        # The same long entry a thousand times would make 700 KB out of a request of 12.
        return replies.error("ERR COMMAND INFO takes each command name only once")
    return replies.array([_encoded_info(name, protocol) for name in known])


@SUBCOMMANDS(
    Command(
        "command|list",
        -2,
        "server",
        ("loading", "stale"),
        "Lists the names of all commands and subcommands.",
        "array of bulk strings",
        (
            Argument(
                "filterby",
                "oneof",
                token="FILTERBY",
                optional=True,
                arguments=(
                    Argument("module-name", token="MODULE"),
                    Argument("category", token="ACLCAT"),
                    Argument("pattern", "pattern", token="PATTERN"),
                ),
            ),
        ),
    )
)
def _list_reply(words: Sequence[str], protocol: int) -> bytes:
    if words and (len(words) != 3 or words[0].lower() != "filterby"):
        return replies.error("ERR syntax error")
    try:
        return replies.value(command_list(*words[1:]), protocol)
    except ValueError as error:
        return replies.error(f"ERR {error}")


_REPLIES: dict[str, Callable[[Sequence[str], int], bytes]] = {
    command.name: reply for command, reply in SUBCOMMANDS.handlers()
}


def answer(words: Sequence[bytes], protocol: int) -> bytes:
    """The reply to COMMAND, encoded, errors included. `words` are those after COMMAND itself.

    What it says about each command is encoded once: a client that asks for everything over and over should
    cost others nothing.
    """
    if not words:
        return _info_reply([command.name for command in COMMANDS], protocol)
    texts = [word.decode("utf-8", "replace") for word in words]
    subcommand = find(f"command|{texts[0]}")
    if texts[0].lower() in ("getkeys", "getkeysandflags"):
        return replies.error(
            "ERR COMMAND GETKEYS is not supported: COMMAND INFO shows where the keys of a command are"
        )
    if subcommand is None:
        return replies.error(f"ERR unknown subcommand '{texts[0][:128]}'. Try {_BY_NAME['command'].usage()}")
    if not subcommand.accepts(len(words) + 1):
        return replies.error(f"ERR {arity_error(subcommand.name)}")
    return _REPLIES[subcommand.name](texts[1:], protocol)


class Catalog:
    def __init__(self, turns: LoopTurns) -> None:
        self._turns = turns

    @COMMAND(
        Command(
            "command",
            -1,
            "server",
            ("loading", "stale"),
            "Describes the commands.",
            "as COMMAND INFO for all of them",
            subcommands=SUBCOMMANDS.commands,
        )
    )
    def _command(self, session: Session, words: list[bytes]) -> None:
        answers = partial(answer, words[1:], session.protocol)
        session.later(lambda _place: self._turns.answer(session.account, answers))


GROUPS = (
    leases.COMMANDS,
    listings.COMMANDS,
    operators.COMMANDS,
    reload.COMMANDS,
    info.COMMANDS,
    connection.COMMANDS,
    COMMAND,
    plain.COMMANDS,
    scripting.COMMANDS,
    transactions.COMMANDS,
    waiting.COMMANDS,
)
COMMANDS = tuple(command for group in GROUPS for command in group.commands if command.listed)


def _with_subcommands() -> Iterator[Command]:
    for command in COMMANDS:
        yield command
        yield from command.subcommands


_BY_NAME = {command.name: command for command in _with_subcommands()}


def find(name: str) -> Command | None:
    """The command of that name, in any case. Subcommands are named as in "client|id"."""
    return _BY_NAME.get(name.lower())
