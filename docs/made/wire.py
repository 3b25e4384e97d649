"""The tables of wire.md and errors.md that the code knows: commands, from their descriptors, and the words of
errors, from their enum."""

from __future__ import annotations

from collections.abc import Iterable

from docs.made.markdown import REFERENCE, table, with_table
from lockd.core.errors import ErrorWord, Kind
from lockd.server.commands import catalog
from lockd.server.commands.command import Command

WIRE = REFERENCE / "wire.md"
ERRORS = REFERENCE / "errors.md"


def commands() -> str:
    """A row for each command of lockd, and one for those that are as in Redis."""
    own = [_command_row([command], command.promise) for command in catalog.COMMANDS if command.promise]
    of_redis = [command for command in catalog.COMMANDS if not command.promise]
    return table(["command", "reply"], [*own, _command_row(of_redis, "as Redis")])


def _command_row(commands: Iterable[Command], reply: str) -> list[str]:
    return [" · ".join(f"`{command.usage()}`" for command in commands), reply]


def errors() -> str:
    """A row for each word, those of one kind together."""
    rows = [
        [f"`{word} {word.for_apps.then}`", word.for_apps.meaning, word.for_apps.to_do]
        for kind in Kind
        for word in ErrorWord
        if word.kind is kind
    ]
    return table(["error", "meaning", "what to do"], rows)


def wire_page() -> str:
    """The page as it is, with its table as it should be."""
    return with_table(WIRE.read_text(), commands())


def errors_page() -> str:
    return with_table(ERRORS.read_text(), errors())
