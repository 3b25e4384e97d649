"""A wire command: its descriptor, which stands above its handler and is the only place that describes it.

One descriptor serves the checks of a request's length and of its user, the usage in error texts and in
docs/reference/wire.md, `COMMAND INFO` for clients that look for keys and flags, and `COMMAND DOCS`, from
which redis-cli shows hints as one types.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from lockd.server.session import Session

SINCE = "0.1.0"

Handler = Callable[[Session, list[bytes]], bytes | None]
"""Words in, a reply out, or None when it comes later through the session."""
H = TypeVar("H", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument, or with `arguments` a group of them: a "block" takes all, "oneof" takes one of them.

    `type` is a word of Redis: key, string, integer, pattern, pure-token (its token is all of it), block or
    oneof. `token` is the fixed word before the value. key_spec: which of the command's key specifications
    finds it, if it is a key.
    """

    name: str
    type: str = "string"
    token: str | None = None
    optional: bool = False
    multiple: bool = False
    arguments: tuple["Argument", ...] = ()
    key_spec: int = 0


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a subcommand: then its name is "client|id".

    `arity` counts the command's own words, too, and is negative when it is a minimum. `key_access` says in
    flags of Redis what it does to its first argument, if that is a resource. `reply` is what success returns.
    Commands with the flag `admin` are for operators only, commands that are `for_lockers` for users that may
    lock in the class of the resource.

    resources: those of its words that are resources; each of them is checked. in_order: it waits until all
    before it are answered, because it changes how replies are written, or ends them. queues: it may be in a
    MULTI, and then waits for its EXEC. ends_multi: in a MULTI it is run at once. gives_back: if it gives
    something back, it does so even if its app has closed meanwhile. brings_no_loss: it is run even while its
    connection has to be told of a loss. listed: COMMAND lists it. promise: what wire.md says about its reply,
    in Markdown; empty if the reply is as in Redis.
    """

    name: str
    arity: int
    group: str
    flags: tuple[str, ...]
    summary: str
    reply: str
    arguments: tuple[Argument, ...] = ()
    key_access: tuple[str, ...] = ()
    resources: Callable[[list[bytes]], list[bytes]] = lambda words: words[1:2]
    subcommands: tuple["Command", ...] = ()
    for_lockers: bool = False
    in_order: bool = False
    ends_multi: bool = False
    queues: bool = False
    gives_back: bool = False
    brings_no_loss: bool = False
    listed: bool = True
    promise: str = ""
    since: str = SINCE

    def accepts(self, word_count: int) -> bool:
        """Whether a request may have this length, the command's own words included."""
        return word_count == self.arity if self.arity >= 0 else word_count >= -self.arity

    @property
    def grants(self) -> bool:
        """It may grant its resource to the app that asks."""
        return "insert" in self.key_access

    @property
    def about_a_lease(self) -> str:
        """What it does to a held lease, as the metrics name it: extend or unlock; '' neither."""
        named = {"delete": "unlock", "update": "extend"}
        return next((named[access] for access in self.key_access if access in named), "")

    def usage(self) -> str:
        """Its usage, like `UNLOCK resource token`."""
        words = self.name.upper().replace("|", " ")
        return " ".join([words, *_subcommand_usage(self), *map(_argument_usage, self.arguments)])


RESOURCE = Argument("resource", "key")
"""It comes first, and is the key."""
OTHERS = Argument("resource", "key", token="AND", optional=True, multiple=True, key_spec=1)
"""They come last, and are keys as well."""


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


def arity_error(name: str) -> str:
    """What Redis answers to a request with too few or too many words, to send as an ERR."""
    return f"wrong number of arguments for '{name.lower()}' command"


class Group:
    """The commands of a module in the order of their listing, each with its handler; also the decorator that
    adds one."""

    def __init__(self) -> None:
        self._handlers: dict[Command, Callable[..., Any]] = {}

    def __call__(self, command: Command) -> Callable[[H], H]:
        def describe(handler: H) -> H:
            self._handlers[command] = handler
            return handler

        return describe

    @property
    def commands(self) -> tuple[Command, ...]:
        return tuple(self._handlers)

    def handlers(self, owner: Any = None) -> Iterator[tuple[Command, Callable[..., Any]]]:
        """Each as its owner's method, if these are methods."""
        for command, handler in self._handlers.items():
            yield command, handler if owner is None else handler.__get__(owner)
