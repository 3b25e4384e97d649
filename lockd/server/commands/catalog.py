"""The commands that the agent answers, as data, and what COMMAND says about them.

One table serves them all: the check of a request's length, the usage in error texts and in the README,
`COMMAND INFO` for clients that look for keys and flags, and `COMMAND DOCS`, from which redis-cli shows hints
as one types. The layout is that of Redis 7, types included: redis-cli asserts them, so flags sent as bulk
strings would make it abort.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from lockd.config.globs import PATTERN_BYTES_MOST, matcher
from lockd.server.resp import replies
from lockd.server.resp.replies import ReplySet, SimpleString

SINCE = "0.1.0"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument, or with `arguments` a group of them: a "block" takes all, "oneof" a single one of them.

    `type` is a word of Redis: key, string, integer, pattern, pure-token (its token is all of it), block or
    oneof. `token` is the fixed word that comes before the value.
    """

    name: str
    type: str = "string"
    token: str | None = None
    optional: bool = False
    multiple: bool = False
    arguments: tuple["Argument", ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a subcommand: then its name is "client|id".

    `arity` counts the command's own words too and is negative when it is the least. `key_access` says in
    flags of Redis what it does to its first argument, if that is a resource. `reply` is what success returns.
    """

    name: str
    arity: int
    group: str
    flags: tuple[str, ...]
    summary: str
    reply: str
    arguments: tuple[Argument, ...] = ()
    key_access: tuple[str, ...] = ()
    subcommands: tuple["Command", ...] = ()
    since: str = SINCE

    def accepts(self, word_count: int) -> bool:
        """Is this a possible length of a request, the command's own words included?"""
        return word_count == self.arity if self.arity >= 0 else word_count >= -self.arity


_RESOURCE = Argument("resource", "key")
_TTL = Argument("ttl-ms", "integer")
_WRITER = Argument(
    "auth",
    "block",
    token="AUTH",
    optional=True,
    arguments=(Argument("username"), Argument("password")),
)
_NAMES = Argument("command-name", optional=True, multiple=True)

_LEASE = "map: token, fence, validity_ms, deadline_ns (CLOCK_BOOTTIME of this host)"
_PROGRESS = "remaining_ms, total_ms"

_CONNECTION = ("noscript", "loading", "stale")
_HANDSHAKE = ("noscript", "loading", "stale", "fast", "no_auth", "allow_busy")
_ADMIN = ("write", "admin", "noscript", "stale")

_CLIENT_SUBCOMMANDS = (
    Command(
        "client|getname",
        2,
        "connection",
        _CONNECTION,
        "Returns the name of this connection.",
        "bulk string, or nil when it has none",
    ),
    Command(
        "client|id",
        2,
        "connection",
        _CONNECTION,
        "Returns the number of this connection, which no other had since the agent started.",
        "integer",
    ),
    Command(
        "client|info",
        2,
        "connection",
        _CONNECTION,
        "Describes this connection.",
        "text: field=value, separated by spaces",
    ),
    Command(
        "client|setinfo",
        4,
        "connection",
        _CONNECTION,
        "Says which library the client uses.",
        "OK",
        (
            Argument(
                "attr",
                "oneof",
                arguments=(Argument("libname", token="LIB-NAME"), Argument("libver", token="LIB-VER")),
            ),
        ),
    ),
    Command(
        "client|setname",
        3,
        "connection",
        _CONNECTION,
        "Names this connection.",
        "OK",
        (Argument("connection-name"),),
    ),
)

_COMMAND_SUBCOMMANDS = (
    Command(
        "command|count",
        2,
        "server",
        ("loading", "stale"),
        "Returns how many commands there are.",
        "integer",
    ),
    Command(
        "command|docs",
        -2,
        "server",
        ("loading", "stale"),
        "Documents one, several or all commands.",
        "map: command name → map of summary, since, group, reply, arguments, subcommands",
        (_NAMES,),
    ),
    Command(
        "command|info",
        -2,
        "server",
        ("loading", "stale"),
        "Returns arity, flags and keys of one, several or all commands.",
        "array: an array of 10 for each command, nil for an unknown one",
        (_NAMES,),
    ),
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
    ),
)

COMMANDS: tuple[Command, ...] = (
    Command(
        "lock",
        -3,
        "lock",
        ("write", "noscript", "blocking"),
        "Locks a resource: while the connection lives and at most MAXHOLD, or DETACHED for ttl-ms.",
        _LEASE,
        (
            _RESOURCE,
            _TTL,
            Argument("ms", "integer", token="WAIT", optional=True),
            Argument("ms", "integer", token="MAXHOLD", optional=True),
            Argument("detached", "pure-token", token="DETACHED", optional=True),
            Argument("notify", "pure-token", token="NOTIFY", optional=True),
        ),
        key_access=("RW", "access", "insert"),
    ),
    Command(
        "unlock",
        3,
        "lock",
        ("write", "noscript"),
        "Releases a lease.",
        "1",
        (_RESOURCE, Argument("token")),
        key_access=("RW", "delete"),
    ),
    Command(
        "extend",
        4,
        "lock",
        ("write", "noscript"),
        "Extends a lease to ttl-ms from now. Never shortens it.",
        f"{_LEASE}; fence is nil when another agent granted the lease",
        (_RESOURCE, Argument("token"), _TTL),
        key_access=("RW", "access", "update"),
    ),
    Command(
        "holder",
        2,
        "lock",
        ("readonly", "noscript"),
        "Says who holds a resource, and on how many masters, to those who may lock it, and operators.",
        "map: resource, holder, host, pid, uid, ttl_ms, held_ms, masters, of, quorum; nil when it is free",
        (_RESOURCE,),
        key_access=("RO", "access"),
    ),
    Command(
        "locks",
        -1,
        "lock",
        ("readonly", "noscript"),
        "Lists what is locked and may be seen: on the masters, or with LOCAL the leases of this agent alone.",
        "array of maps, as of HOLDER; with LOCAL: resource, holder, class, pid, uid, fence, ttl_ms, held_ms, "
        "masters, of, detached, lost, waiters",
        (
            Argument("pattern", "pattern", optional=True),
            Argument("local", "pure-token", token="LOCAL", optional=True),
        ),
    ),
    Command(
        "masters",
        1,
        "masters",
        ("readonly", "noscript", "stale"),
        "Lists the masters: which of them have a vote, and why the others don't.",
        "array of maps: name, address, state, vote, reason, rtt_us, clock_offset_us, version, max_ttl_ms",
    ),
    Command(
        "forcerelease",
        -2,
        "lock",
        _ADMIN,
        "Takes a resource from whoever holds it. The holder isn't stopped: fences are what protects from it.",
        "integer: on how many masters it was deleted",
        (_RESOURCE, Argument("id", token="HOLDER", optional=True)),
        key_access=("RW", "delete"),
    ),
    Command(
        "form",
        -1,
        "masters",
        _ADMIN,
        "Makes masters a cluster: blank ones, all that is left (RECOVER), or of an old format (UPGRADE).",
        f"map: status (formed, recovered, upgraded, already or waiting), {_PROGRESS}",
        (
            Argument(
                "how",
                "oneof",
                optional=True,
                arguments=(
                    Argument("unused", "pure-token", token="UNUSED"),
                    Argument("recover", "pure-token", token="RECOVER"),
                    Argument("upgrade", "pure-token", token="UPGRADE"),
                ),
            ),
            _WRITER,
        ),
    ),
    Command(
        "admit",
        -2,
        "masters",
        _ADMIN,
        "Gives a blank master its vote a max TTL after the others were told, or one that was away.",
        f"map: status (admitted, updated, already or waiting), {_PROGRESS}",
        (Argument("name"), _WRITER),
    ),
    Command(
        "info",
        -1,
        "server",
        ("loading", "stale"),
        "Returns what the agent knows of itself.",
        "text: lines of field:value under # headings",
        (Argument("section", optional=True),),
    ),
    Command(
        "ping",
        -1,
        "connection",
        ("fast",),
        "Shows that the agent answers.",
        "PONG, or the message",
        (Argument("message", optional=True),),
    ),
    Command(
        "echo",
        2,
        "connection",
        ("loading", "stale", "fast"),
        "Returns the message.",
        "bulk string",
        (Argument("message"),),
    ),
    Command(
        "quit",
        -1,
        "connection",
        _HANDSHAKE,
        "Closes the connection, which releases its session locks.",
        "OK",
    ),
    Command(
        "select",
        2,
        "connection",
        ("loading", "stale", "fast"),
        "Does nothing: there is only database 0.",
        "OK",
        (Argument("index", "integer"),),
    ),
    Command(
        "hello",
        -1,
        "connection",
        _HANDSHAKE,
        "Agrees on RESP2 or RESP3. A loss, where LOCK said NOTIFY, is pushed to RESP3 connections only.",
        "map: server, version, proto, id, mode, role, modules",
        (
            Argument(
                "arguments",
                "block",
                optional=True,
                arguments=(
                    Argument("protover", "integer"),
                    Argument(
                        "auth",
                        "block",
                        token="AUTH",
                        optional=True,
                        arguments=(Argument("username"), Argument("password")),
                    ),
                    Argument("clientname", token="SETNAME", optional=True),
                ),
            ),
        ),
    ),
    Command(
        "auth",
        -2,
        "connection",
        _HANDSHAKE,
        "Does nothing: the kernel says who is at this socket.",
        "OK",
        (Argument("username", optional=True), Argument("password")),
    ),
    Command(
        "client",
        -2,
        "connection",
        (),
        "A container for commands on this connection.",
        "depends on the subcommand",
        subcommands=_CLIENT_SUBCOMMANDS,
    ),
    Command(
        "command",
        -1,
        "server",
        ("loading", "stale"),
        "Describes the commands.",
        "as COMMAND INFO for all of them",
        subcommands=_COMMAND_SUBCOMMANDS,
    ),
)


def _with_subcommands() -> Iterator[Command]:
    for command in COMMANDS:
        yield command
        yield from command.subcommands


_BY_NAME = {command.name: command for command in _with_subcommands()}


def find(name: str) -> Command | None:
    """The command of that name, in any case. Subcommands are named as in "client|id"."""
    return _BY_NAME.get(name.lower())


def arity_error(name: str) -> str:
    """What Redis says to a request with too few or too many words, to be sent as an ERR."""
    return f"wrong number of arguments for '{name.lower()}' command"


def usage(name: str) -> str:
    """How a command is written, like `UNLOCK resource token`. KeyError when there is no such command."""
    command = _BY_NAME[name.lower()]
    words = command.name.upper().replace("|", " ")
    return " ".join([words, *_subcommand_usage(command), *map(_argument_usage, command.arguments)])


def _subcommand_usage(command: Command) -> list[str]:
    if not command.subcommands:
        return []
    names = " | ".join(subcommand.name.partition("|")[2].upper() for subcommand in command.subcommands)
    return [f"<{names}>" if command.arity == -2 else f"[{names}]"]


def _argument_usage(argument: Argument) -> str:
    parts = [part for part in (argument.token, _value_usage(argument)) if part]
    if argument.multiple:
        parts.append("...")
    text = " ".join(parts)
    return f"[{text}]" if argument.optional else text


def _value_usage(argument: Argument) -> str:
    if argument.type == "pure-token":
        return ""
    if argument.type == "block":
        return " ".join(map(_argument_usage, argument.arguments))
    if argument.type == "oneof":
        return "<" + " | ".join(map(_argument_usage, argument.arguments)) + ">"
    return argument.name


def command_count() -> int:
    """COMMAND COUNT. As in Redis subcommands don't count."""
    return len(COMMANDS)


def command_list(filter_by: str | None = None, wanted: str = "") -> list[str]:
    """COMMAND LIST: all names, subcommands too, or those that a filter (module, aclcat, pattern) leaves.

    ValueError when there is no such filter, or its pattern is one that only costs time.
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
    key = 1 if command.key_access else 0
    return [
        command.name,
        command.arity,
        _simple_strings(command.flags),
        key,
        key,
        key,
        _simple_strings(_acl_categories(command)),
        ReplySet(),
        ReplySet([_key_specification(command)] if key else []),
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


def _key_specification(command: Command) -> dict[str, object]:
    """The first argument, and only that, is a key."""
    return {
        "flags": _simple_strings(command.key_access),
        "begin_search": {"type": "index", "spec": {"index": 1}},
        "find_keys": {"type": "range", "spec": {"lastkey": 0, "keystep": 1, "limit": 0}},
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
        docs["key_spec_index"] = 0
    if argument.token:
        docs["token"] = argument.token
    flags = [flag for flag in ("optional", "multiple") if getattr(argument, flag)]
    if flags:
        docs["flags"] = _simple_strings(flags)
    if argument.arguments:
        docs["arguments"] = [_argument_docs(part) for part in argument.arguments]
    return docs


def answer(words: Sequence[bytes], protocol: int) -> bytes:
    """The reply to COMMAND, encoded, errors included. `words` are those after COMMAND itself.

    What it says of each command is encoded once: a client that asks for all of it over and over should cost
    the others nothing.
    """
    if not words:
        return _info_reply([command.name for command in COMMANDS], protocol)
    texts = [word.decode("utf-8", "replace") for word in words]
    subcommand = find(f"command|{texts[0]}")
    if texts[0].lower() in ("getkeys", "getkeysandflags"):
        return replies.error("ERR COMMAND GETKEYS is not answered: a resource is always the first argument")
    if subcommand is None:
        return replies.error(f"ERR unknown subcommand '{texts[0][:128]}'. Try {usage('command')}")
    if not subcommand.accepts(len(words) + 1):
        return replies.error(f"ERR {arity_error(subcommand.name)}")
    return _SUBCOMMAND_REPLIES[subcommand.name](texts[1:], protocol)


def _count_reply(_: Sequence[str], __: int) -> bytes:
    return replies.integer(command_count())


def _list_reply(words: Sequence[str], protocol: int) -> bytes:
    if words and (len(words) != 3 or words[0].lower() != "filterby"):
        return replies.error("ERR syntax error")
    try:
        return replies.value(command_list(*words[1:]), protocol)
    except ValueError as error:
        return replies.error(f"ERR {error}")


def _info_reply(names: Sequence[str], protocol: int) -> bytes:
    names = names or [command.name for command in COMMANDS]
    known = [(command.name if (command := find(name)) else None) for name in names]
    if len(known) - known.count(None) > len(set(known) - {None}):
        # The same long entry a thousand times would make 700 KB out of a request of 12.
        return replies.error("ERR COMMAND INFO takes the name of a command once")
    return replies.array([_encoded_info(name, protocol) for name in known])


def _docs_reply(names: Sequence[str], protocol: int) -> bytes:
    commands = map(find, names) if names else COMMANDS
    known = dict.fromkeys(command.name for command in commands if command)
    return replies.mapping([_encoded_docs(name, protocol) for name in known], protocol)


_SUBCOMMAND_REPLIES: dict[str, Callable[[Sequence[str], int], bytes]] = {
    "command|count": _count_reply,
    "command|list": _list_reply,
    "command|info": _info_reply,
    "command|docs": _docs_reply,
}


@cache
def _encoded_info(name: str | None, protocol: int) -> bytes:
    return replies.value(_info(_BY_NAME[name]) if name else None, protocol)


@cache
def _encoded_docs(name: str, protocol: int) -> tuple[bytes, bytes]:
    return replies.value(name, protocol), replies.value(_docs(_BY_NAME[name]), protocol)
